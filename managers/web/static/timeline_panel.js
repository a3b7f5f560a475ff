// The words beside a timeline: the legend, and what the attempt, gap or area that is pointed at is.

import { WAITED_FOR } from "./attempts.js";
import { formatBrief, formatCount } from "./formatting.js";
import { firstAfter } from "./viewport.js";

const GAPS = ["for data", "for a message", "for a worker"];

/** @param {import("./timeline_model.js").Timeline} timeline */
export function legend({ root, attempts, colours, ranks, shown }) {
  const list = root.querySelector(".legend");
  const entries =
    shown.colours === "state"
      ? [[colours.completed, "completed"], [colours.error, "failed"]]
      : shown.colours === "plan"
        ? [[colours.accent, "under two thirds of the plan"], [colours.completed, "as planned"],
           [colours.worker, "over by more than 10 %"], [colours.error, "over by more than 50 %"]]
        : ranks
            .map((rank, template) => ({ rank, name: attempts.templates[template].name }))
            .filter(({ rank }) => rank >= 0)
            .sort((one, other) => one.rank - other.rank)
            .map(({ rank, name }) => [colours.series[rank], name]);
  if (shown.colours === "template" && ranks.some((rank, template) => rank < 0 && attempts.templates[template])) {
    const hasOthers = attempts.templates.filter((_, template) => ranks[template] < 0).length > 0 && ranks.filter((rank) => rank >= 0).length === 8;
    if (hasOthers) entries.push([colours.other, "others"]);
  }
  if (attempts.hasPlan && shown.showsPlan) entries.push(["plan", "when it was planned"]);
  const gaps = ["data", "message", "worker"].map((kind, index) => [colours[kind], `idle ${GAPS[index]}`]);
  list.replaceChildren(
    ...[...entries, ...gaps].map(([colour, text]) => {
      const item = document.createElement("li");
      const sign = document.createElement("span");
      sign.className = colour === "plan" ? "swatch plan" : "swatch";
      if (colour !== "plan") sign.style.background = colour;
      item.append(sign, text);
      return item;
    }),
  );
}

/** @param {import("./timeline_model.js").Timeline} timeline */
export function explain(timeline) {
  const { attempts, panel, root, shown } = timeline;
  if (shown.area) return explainArea(timeline);
  const found = shown.pointed ?? (shown.chosen >= 0 ? timeline.spot(shown.chosen) : null);
  if (!found) {
    panel.replaceChildren(paragraph("Point at an attempt or at a gap. Drag to move, Ctrl and wheel or W and S to zoom, Shift and drag to add up an area.", "muted"));
    return undefined;
  }
  if (found.isIdle) return explainIdle(timeline, found);
  if (found.isGap) return explainGap(timeline, found);
  if (found.running) return explainRunning(timeline, found);
  const { span } = found;
  const template = attempts.known(span, "template");
  const logical = attempts.templates[template];
  const facts = [
    ["Ran", formatBrief(attempts.end[span] - attempts.begin[span]) + (attempts.attempt[span] < 0 ? ", and failed" : "")],
    ["Began", `${formatBrief(attempts.begin[span])} after the start`],
    ["Ready", `waited ${formatBrief(attempts.given[span] - attempts.ready[span])} with the session`],
    ["Queued", `waited ${formatBrief(attempts.begin[span] - attempts.given[span])} for a worker`],
    ["Committed", `${formatBrief(attempts.committed[span] - attempts.end[span])} after its end`],
    ["Processor", formatBrief(attempts.processor[span])],
  ];
  if (attempts.memory[span]) facts.push(["Memory", octets(attempts.memory[span])]);
  if (attempts.read[span] + attempts.written[span] > 0) {
    facts.push(["Bytes", `${octets(attempts.read[span])} read, ${octets(attempts.written[span])} written`]);
  }
  const plan = attempts.plan(span);
  if (plan) {
    facts.push(["Planned", `${formatBrief(plan.end - plan.begin)}, from ${formatBrief(plan.begin)} on`]);
    facts.push(["Ended", late(attempts.end[span] - plan.end)]);
  } else if (logical?.planned) facts.push(["Planned", formatBrief(logical.planned)]);
  const slack = attempts.known(span, "slack");
  if (slack !== undefined) {
    facts.push(["Slack", attempts.known(span, "critical") ? "none: on the critical path" : formatBrief(slack)]);
    facts.push(["After", WAITED_FOR[attempts.known(span, "kind")]]);
  }
  const lateness = attempts.lateness(found.lane);
  if (lateness !== null) facts.push([`All on ${found.lane.name}`, late(lateness)]);
  const head = headOf(logical?.name ?? "attempt");
  const which = `attempt ${Math.abs(attempts.attempt[span])}, `;
  head.append(` on ${attempts.nodes[found.lane.node].name}, ${found.lane.name}, ${which}`, linkTo(root, attempts.drop[span]));
  panel.replaceChildren(head, factList(facts));
  return undefined;
}

function explainRunning({ attempts, panel, root }, { lane, running }) {
  const head = headOf(attempts.templates[running.template]?.name ?? "attempt");
  head.append(` on ${attempts.nodes[lane.node].name}, ${lane.name}, `, linkTo(root, running.drop));
  const facts = [["Runs", `since ${formatBrief(attempts.until(running, lane.node) - running.begin)}`]];
  facts.push(["Began", `${formatBrief(running.begin)} after the start`]);
  const { planned } = attempts.templates[running.template] ?? {};
  if (planned) facts.push(["Planned", formatBrief(planned)]);
  panel.replaceChildren(head, factList(facts));
}

function headOf(text) {
  const head = paragraph("", "timeline-head");
  const name = document.createElement("b");
  name.textContent = text;
  head.append(name);
  return head;
}

function linkTo(root, drop) {
  const link = document.createElement("a");
  link.href = `${root.dataset.session}?row=${drop}#drops`;
  link.textContent = `drop ${formatCount(drop)}`;
  return link;
}

/** How much later or earlier than planned something ended. */
function late(seconds) {
  if (Math.abs(seconds) < 1e-3) return "as planned";
  return `${formatBrief(Math.abs(seconds))} ${seconds > 0 ? "later" : "earlier"} than planned`;
}

function explainGap({ attempts, panel }, { span, free, lane }) {
  const ends = attempts.gap(span, free);
  const template = attempts.templates[attempts.known(span, "template")];
  const head = headOf(`${lane.name} was idle for ${formatBrief(attempts.begin[span] - free)}`);
  head.append(` on ${attempts.nodes[lane.node].name}, before ${template?.name ?? "its next attempt"}`);
  const facts = GAPS.map((text, piece) => [`Waited ${text}`, formatBrief(ends[piece + 1] - ends[piece])]);
  panel.replaceChildren(head, factList(facts.filter((_, piece) => ends[piece + 1] > ends[piece])));
}

function explainIdle({ attempts, panel }, { lane }) {
  const head = headOf(lane.spans.length ? `${lane.name} is idle` : "nothing runs");
  head.append(` on ${attempts.nodes[lane.node].name}: ${attempts.idleReason(lane.node)}`);
  panel.replaceChildren(head);
}

/** Why nothing runs on nodes, in words: the canvas has the same beside the name of each. */
export function listIdle({ attempts, root }) {
  const list = root.querySelector(".timeline-idle");
  const found = attempts.nodes.map(({ name }, node) => [name, attempts.idleReason(node)]).filter(([, reason]) => reason);
  list.replaceChildren(...found.map(([name, reason]) => {
    const item = document.createElement("li");
    item.textContent = `${name}: ${reason}.`;
    return item;
  }));
}

function explainArea({ attempts, panel, rows, shown }) {
  const { from, to, first, last } = shown.area;
  const sums = new Map();
  const gaps = [0, 0, 0];
  let [count, busy, lanes] = [0, 0, 0];
  for (const row of rows) {
    if (!row.lane || row.top + row.height <= first || row.top >= last) continue;
    lanes += 1;
    const { spans } = row.lane;
    for (let number = firstAfter(spans, attempts.end, from); number < spans.length; number += 1) {
      const span = spans[number];
      const free = number > 0 ? attempts.end[spans[number - 1]] : 0;
      if (free >= to) break;
      const ends = attempts.gap(span, free);
      for (let piece = 0; piece < 3; piece += 1) {
        gaps[piece] += Math.max(0, Math.min(ends[piece + 1], to) - Math.max(ends[piece], from));
      }
      const inside = Math.min(attempts.end[span], to) - Math.max(attempts.begin[span], from);
      if (attempts.begin[span] >= to) break;
      const name = attempts.templates[attempts.known(span, "template")]?.name ?? "–";
      const sum = sums.get(name) ?? { count: 0, seconds: 0, processor: 0 };
      sum.count += 1;
      sum.seconds += Math.max(inside, 0);
      sum.processor += attempts.processor[span];
      sums.set(name, sum);
      count += 1;
      busy += Math.max(inside, 0);
    }
  }
  const head = headOf(`${formatCount(count)} attempts in ${formatBrief(to - from)}`);
  const share = lanes ? (100 * busy) / ((to - from) * lanes) : 0;
  head.append(` on ${formatCount(lanes)} ${lanes === 1 ? "lane" : "lanes"}, busy ${share.toFixed(0)} %`);
  const table = document.createElement("table");
  const header = table.createTHead().insertRow();
  for (const text of ["Logical node", "Attempts", "Running", "Processor"]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    cell.className = text === "Logical node" ? "" : "number";
    header.append(cell);
  }
  const body = table.createTBody();
  for (const [name, sum] of [...sums].sort((one, other) => other[1].seconds - one[1].seconds).slice(0, 12)) {
    const line = body.insertRow();
    for (const text of [name, formatCount(sum.count), formatBrief(sum.seconds), formatBrief(sum.processor)]) {
      const cell = line.insertCell();
      cell.textContent = text;
      cell.className = line.cells.length > 1 ? "number" : "";
    }
  }
  const wrap = document.createElement("div");
  wrap.className = "table";
  wrap.append(table);
  panel.replaceChildren(head, wrap, factList(GAPS.map((text, piece) => [`Idle ${text}`, formatBrief(gaps[piece])])));
}

function paragraph(text, style) {
  const made = document.createElement("p");
  made.className = style;
  made.textContent = text;
  return made;
}

function factList(facts) {
  const list = document.createElement("dl");
  list.className = "timeline-facts";
  for (const [word, text] of facts) {
    const group = document.createElement("div");
    const term = document.createElement("dt");
    const value = document.createElement("dd");
    term.textContent = word;
    value.textContent = text;
    group.append(term, value);
    list.append(group);
  }
  return list;
}

function octets(bytes) {
  const power = bytes < 1000 ? 0 : Math.min(Math.floor(Math.log10(bytes * 1.0005) / 3), 4);
  const value = bytes / 1000 ** power;
  return `${power ? value.toPrecision(3) : value} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

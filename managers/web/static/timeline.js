// The timeline of a session: fetches the times of attempts, draws them, and explains what is pointed at.
//
// Times are in seconds since the first attempt was ready. The tables of the page, which the server renders, have the
// same facts for those who cannot see the canvas.

import { Attempts, WAITED_FOR, sections } from "./attempts.js";
import { formatCount } from "./formatting.js";
import { tell } from "./liveness.js";
import { refresh } from "./refresh.js";
import { RULER, draw, layOut, pixelWords, readColours } from "./timeline_canvas.js";
import { Viewport, duration, firstAfter } from "./viewport.js";

const PACE = 2_000;
const GAPS = ["for data", "for a message", "for a worker"];

const root = document.getElementById("timeline");
const box = root.querySelector(".timeline-box");
const canvas = root.querySelector("canvas");
const spacer = root.querySelector(".timeline-spacer");
const panel = root.querySelector(".timeline-panel");
const api = root.dataset.api;

const attempts = new Attempts();
const view = new Viewport(1);
const shown = { colours: "template", showsPath: true, chosen: -1, pointed: null, area: null };
let rows = [];
let laneRow = new Int32Array(0);
let path = [];
let ranks = [];
let palette = [];
let words = new Uint32Array(0);
let shades = new Uint8Array(0);
let colours = readColours();
let isOver = root.dataset.over === "yes";
let frame = 0;
let drawnLast = 0;

// Data.

async function fetchTimes() {
  const since = attempts.since;
  const answer = await fetch(`${api}/times${since ? `?since=${since}` : ""}`, { cache: "no-store" });
  if (!answer.ok) return answer.status === 404 ? "gone" : answer.status === 401 ? "locked" : "lost";
  const before = attempts.count;
  attempts.missing = [];
  for (const section of sections(await answer.arrayBuffer())) {
    if (!attempts.add(section)) {
      attempts.clear();
      return fetchTimes();
    }
  }
  return attempts.count > before ? "more" : "same";
}

async function fetchAnalysis() {
  const answer = await fetch(`${api}/times/analysis`, { cache: "no-store" });
  if (!answer.ok) return;
  for (const section of sections(await answer.arrayBuffer())) attempts.analyse(section);
  path = [];
  for (let row = 0; row < attempts.count; row += 1) if (attempts.known(row, "critical")) path.push(row);
  path.sort((one, other) => attempts.committed[one] - attempts.committed[other]);
  rankTemplates();
}

/** Give the logical nodes that took most together a colour each. */
function rankTemplates() {
  const sums = attempts.templates.map(() => 0);
  for (let row = 0; row < attempts.count; row += 1) {
    const template = attempts.known(row, "template");
    if (template !== undefined) sums[template] += attempts.end[row] - attempts.begin[row];
  }
  const order = sums.map((_, index) => index).sort((one, other) => sums[other] - sums[one]);
  ranks = sums.map(() => -1);
  order.slice(0, 8).forEach((template, rank) => {
    if (sums[template] > 0 || attempts.known(0, "template") === template) ranks[template] = rank;
  });
}

function arrange() {
  const lanes = attempts.lanes();
  const found = layOut(lanes, attempts.nodes);
  rows = found.rows;
  laneRow = new Int32Array(attempts.count);
  rows.forEach((row, index) => row.lane?.spans.forEach((span) => (laneRow[span] = index)));
  spacer.style.height = `${found.height + RULER}px`;
  view.extend(attempts.last);
  shade();
  resize();
}

async function follow() {
  let next = PACE;
  try {
    const outcome = await fetchTimes();
    if (outcome === "gone" || outcome === "locked" || outcome === "lost") {
      tell(outcome);
      if (outcome !== "lost") return;
    } else {
      if (!isOver) tell("live");
      if (outcome === "more" || !attempts.analysed) {
        arrange();
        paintSoon();
        const began = performance.now();
        await fetchAnalysis();
        // The server reads all attempts for this: it is not asked for more than a tenth of the time.
        next = Math.max(PACE, 10 * (performance.now() - began));
        shade();
        legend();
        explain();
        paintSoon();
      }
      root.dataset.attempts = String(attempts.count);
      root.dataset.ready = "yes";
      if (!isOver) {
        await refresh(["times", "heading"]);
        isOver = document.querySelector("#status")?.dataset.over === "yes";
        if (isOver) {
          tell("over");
          next = 0; // once more, for the last attempts
        }
        setTimeout(follow, next);
      }
    }
  } catch {
    tell("lost");
    if (!isOver) setTimeout(follow, 2 * PACE);
  }
}

// Drawing.

function resize() {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const width = box.clientWidth;
  const height = Math.min(spacer.offsetHeight, Math.max(box.clientHeight, 120));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
  paintSoon();
}

function paintSoon() {
  frame ||= requestAnimationFrame(paint);
}

function left() {
  return box.clientWidth < 600 ? 74 : 104;
}

function paint() {
  frame = 0;
  const began = performance.now();
  drawnLast = draw(canvas.getContext("2d"), {
    width: box.clientWidth, height: canvas.clientHeight, left: left(), scroll: box.scrollTop, rows, view, attempts,
    colours, shades, palette, words, showsPath: shown.showsPath, path, chosen: shown.chosen, area: areaInPixels(),
    rowOf: (span) => rows[laneRow[span]],
  });
  const { from, to } = view;
  canvas.dataset.from = from.toPrecision(9);
  canvas.dataset.to = to.toPrecision(9);
  canvas.dataset.drawn = String(drawnLast);
  canvas.dataset.took = (performance.now() - began).toFixed(1);
}

/** Choose the colour of each attempt. */
function shade() {
  palette = [...colours.series, colours.other, colours.completed, colours.error, colours.worker, colours.accent];
  words = pixelWords(palette);
  const [other, completed, error, late, early] = [8, 9, 10, 11, 12];
  shades = new Uint8Array(attempts.count);
  for (let span = 0; span < attempts.count; span += 1) {
    const template = attempts.known(span, "template");
    let found = other;
    if (shown.colours === "state") found = attempts.attempt[span] < 0 ? error : completed;
    else if (template !== undefined && shown.colours === "template") found = ranks[template] >= 0 ? ranks[template] : other;
    else if (template !== undefined && attempts.templates[template].planned) {
      const ratio = (attempts.end[span] - attempts.begin[span]) / attempts.templates[template].planned;
      found = ratio > 1.5 ? error : ratio > 1.1 ? late : ratio < 0.67 ? early : completed;
    }
    shades[span] = found;
  }
}

function legend() {
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
  const gaps = ["data", "message", "worker"].map((kind, index) => [colours[kind], `idle ${GAPS[index]}`]);
  list.replaceChildren(
    ...[...entries, ...gaps].map(([colour, text]) => {
      const item = document.createElement("li");
      const sign = document.createElement("span");
      sign.className = "swatch";
      sign.style.background = colour;
      item.append(sign, text);
      return item;
    }),
  );
}

// What is pointed at.

function timeAt(x) {
  const share = (x - left()) / (box.clientWidth - left());
  return view.from + share * (view.to - view.from);
}

function rowAt(y) {
  const at = y - RULER + box.scrollTop;
  return rows.find((row) => at >= row.top && at < row.top + row.height);
}

/** The attempt at a point, or the gap before one. */
function find(x, y) {
  const row = y < RULER ? undefined : rowAt(y);
  if (!row?.lane || x < left()) return null;
  const { spans } = row.lane;
  const pixel = (view.to - view.from) / (box.clientWidth - left());
  const time = timeAt(x);
  const number = firstAfter(spans, attempts.end, time - 1.5 * pixel);
  if (number === spans.length) return null;
  const span = spans[number];
  const free = number > 0 ? attempts.end[spans[number - 1]] : 0;
  if (attempts.begin[span] <= time + 1.5 * pixel) return { span, free, lane: row.lane, isGap: false };
  return time > free ? { span, free, lane: row.lane, isGap: true } : null;
}

function explain() {
  if (shown.area) return explainArea();
  const found = shown.pointed ?? (shown.chosen >= 0 ? spot(shown.chosen) : null);
  if (!found) {
    panel.replaceChildren(paragraph("Point at an attempt or at a gap. Drag to move, Ctrl and wheel or W and S to zoom, Shift and drag to add up an area.", "muted"));
    return undefined;
  }
  if (found.isGap) return explainGap(found);
  const { span } = found;
  const template = attempts.known(span, "template");
  const logical = attempts.templates[template];
  const facts = [
    ["Ran", duration(attempts.end[span] - attempts.begin[span]) + (attempts.attempt[span] < 0 ? ", and failed" : "")],
    ["Began", `${duration(attempts.begin[span])} after the start`],
    ["Ready", `waited ${duration(attempts.given[span] - attempts.ready[span])} with the session`],
    ["Queued", `waited ${duration(attempts.begin[span] - attempts.given[span])} for a worker`],
    ["Committed", `${duration(attempts.committed[span] - attempts.end[span])} after its end`],
    ["Processor", duration(attempts.processor[span])],
  ];
  if (attempts.memory[span]) facts.push(["Memory", octets(attempts.memory[span])]);
  if (attempts.read[span] + attempts.written[span] > 0) {
    facts.push(["Bytes", `${octets(attempts.read[span])} read, ${octets(attempts.written[span])} written`]);
  }
  if (logical?.planned) facts.push(["Planned", duration(logical.planned)]);
  const slack = attempts.known(span, "slack");
  if (slack !== undefined) {
    facts.push(["Slack", attempts.known(span, "critical") ? "none: on the critical path" : duration(slack)]);
    facts.push(["After", WAITED_FOR[attempts.known(span, "kind")]]);
  }
  const head = document.createElement("p");
  head.className = "timeline-head";
  const name = document.createElement("b");
  name.textContent = logical?.name ?? "attempt";
  const link = document.createElement("a");
  link.href = `${root.dataset.session}?row=${attempts.drop[span]}#drops`;
  link.textContent = `drop ${formatCount(attempts.drop[span])}`;
  head.append(name, ` on ${attempts.nodes[found.lane.node].name}, ${found.lane.name}, attempt ${Math.abs(attempts.attempt[span])}, `, link);
  panel.replaceChildren(head, factList(facts));
  return undefined;
}

function explainGap({ span, free, lane }) {
  const ends = attempts.gap(span, free);
  const template = attempts.templates[attempts.known(span, "template")];
  const head = paragraph("", "timeline-head");
  const name = document.createElement("b");
  name.textContent = `${lane.name} was idle for ${duration(attempts.begin[span] - free)}`;
  head.append(name, ` on ${attempts.nodes[lane.node].name}, before ${template?.name ?? "its next attempt"}`);
  const facts = GAPS.map((text, piece) => [`Waited ${text}`, duration(ends[piece + 1] - ends[piece])]);
  panel.replaceChildren(head, factList(facts.filter((_, piece) => ends[piece + 1] > ends[piece])));
}

function explainArea() {
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
  const head = paragraph("", "timeline-head");
  const title = document.createElement("b");
  title.textContent = `${formatCount(count)} attempts in ${duration(to - from)}`;
  const share = lanes ? (100 * busy) / ((to - from) * lanes) : 0;
  head.append(title, ` on ${formatCount(lanes)} ${lanes === 1 ? "lane" : "lanes"}, busy ${share.toFixed(0)} %`);
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
    for (const text of [name, formatCount(sum.count), duration(sum.seconds), duration(sum.processor)]) {
      const cell = line.insertCell();
      cell.textContent = text;
      cell.className = line.cells.length > 1 ? "number" : "";
    }
  }
  const wrap = document.createElement("div");
  wrap.className = "table";
  wrap.append(table);
  panel.replaceChildren(head, wrap, factList(GAPS.map((text, piece) => [`Idle ${text}`, duration(gaps[piece])])));
}

function spot(span) {
  const { lane } = rows[laneRow[span]];
  const number = lane.spans.indexOf(span);
  return { span, free: number > 0 ? attempts.end[lane.spans[number - 1]] : 0, lane, isGap: false };
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
  const power = bytes < 1000 ? 0 : Math.min(Math.floor(Math.log10(bytes) / 3), 4);
  const value = bytes / 1000 ** power;
  return `${power ? value.toPrecision(3) : value} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

function areaInPixels() {
  if (!shown.area) return null;
  const top = RULER + shown.area.first - box.scrollTop;
  return { ...shown.area, top: Math.max(top, RULER), bottom: top + shown.area.last - shown.area.first };
}

// Pointer and keys.

const pointers = new Map();
let drag = null;

canvas.addEventListener("pointerdown", (event) => {
  const at = { x: event.offsetX, y: event.offsetY };
  pointers.set(event.pointerId, at);
  canvas.setPointerCapture(event.pointerId);
  const selects = event.shiftKey || at.y < RULER;
  drag = { ...at, from: view.from, to: view.to, selects, moved: false, scroll: box.scrollTop };
});
canvas.addEventListener("pointermove", (event) => {
  const at = { x: event.offsetX, y: event.offsetY };
  if (!pointers.has(event.pointerId)) {
    shown.pointed = find(at.x, at.y);
    canvas.style.cursor = shown.pointed && !shown.pointed.isGap ? "pointer" : "grab";
    explain();
    return;
  }
  const before = pointers.get(event.pointerId);
  if (pointers.size === 2) {
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    const factor = Math.max(Math.abs(at.x - other.x), 8) / Math.max(Math.abs(before.x - other.x), 8);
    view.zoom(factor, timeAt((at.x + other.x) / 2));
    pointers.set(event.pointerId, at);
    drag.moved = true;
    return paintSoon();
  }
  pointers.set(event.pointerId, at);
  drag.moved ||= Math.abs(at.x - drag.x) + Math.abs(at.y - drag.y) > 4;
  if (!drag.moved) return undefined;
  if (drag.selects) {
    const [from, to] = [timeAt(drag.x), timeAt(at.x)].sort((one, other) => one - other);
    const [one, other] = [drag.y, at.y].sort((low, high) => low - high);
    const isRuler = drag.y < RULER;
    const end = rows.length ? rows[rows.length - 1].top + rows[rows.length - 1].height : 0;
    shown.area = {
      from: Math.max(from, view.from), to: Math.min(to, view.to),
      first: isRuler ? 0 : one - RULER + box.scrollTop, last: isRuler ? end : other - RULER + box.scrollTop,
    };
    explain();
  } else {
    const length = drag.to - drag.from;
    const shift = ((drag.x - at.x) / (box.clientWidth - left())) * length;
    view.show(drag.from + shift, drag.to + shift);
    if (event.pointerType === "mouse") box.scrollTop = drag.scroll + drag.y - at.y;
  }
  return paintSoon();
});
const release = (event) => {
  pointers.delete(event.pointerId);
  if (drag && !drag.moved && event.type === "pointerup") {
    const found = find(event.offsetX, event.offsetY);
    shown.area = null;
    shown.pointed = found?.isGap ? found : null;
    choose(found && !found.isGap ? found.span : -1);
  }
  if (!pointers.size) drag = null;
};
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", () => {
  shown.pointed = null;
  explain();
});
canvas.addEventListener(
  "wheel",
  (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      view.zoom(Math.exp(-event.deltaY * 0.002), timeAt(event.offsetX));
      paintSoon();
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      view.pan((event.deltaX || event.deltaY) / (box.clientWidth - left()));
      paintSoon();
    }
  },
  { passive: false },
);

function choose(span) {
  shown.chosen = span;
  if (span >= 0) {
    shown.pointed = null;
    const row = rows[laneRow[span]];
    if (row.top < box.scrollTop) box.scrollTop = row.top;
    const height = canvas.clientHeight - RULER;
    if (row.top + row.height > box.scrollTop + height) box.scrollTop = row.top + row.height - height;
    if (attempts.begin[span] > view.to || attempts.end[span] < view.from) {
      const half = (view.to - view.from) / 2;
      view.show(attempts.begin[span] - half, attempts.begin[span] + half);
    }
  }
  explain();
  paintSoon();
}

/** The neighbour of the chosen attempt: by `along` on its lane, by `across` on another one. */
function step(along, across) {
  if (shown.chosen < 0) {
    const visible = rows.find((row) => row.lane && row.top + row.height > box.scrollTop);
    if (!visible) return;
    const { spans } = visible.lane;
    choose(spans[Math.min(firstAfter(spans, attempts.end, view.from), spans.length - 1)]);
    return;
  }
  let index = laneRow[shown.chosen];
  if (along) {
    const { spans } = rows[index].lane;
    const number = spans.indexOf(shown.chosen) + along;
    if (number >= 0 && number < spans.length) choose(spans[number]);
    return;
  }
  do index += across;
  while (rows[index] && !rows[index].lane);
  if (!rows[index]) return;
  const { spans } = rows[index].lane;
  choose(spans[Math.min(firstAfter(spans, attempts.end, attempts.begin[shown.chosen]), spans.length - 1)]);
}

const KEYS = {
  w: () => view.zoom(1.4, centre()),
  s: () => view.zoom(1 / 1.4, centre()),
  a: () => view.pan(-0.15),
  d: () => view.pan(0.15),
  f: () => (shown.chosen >= 0 ? showChosen() : view.fit()),
  0: () => view.fit(),
  c: () => togglePath(),
  ArrowLeft: () => step(-1, 0),
  ArrowRight: () => step(1, 0),
  ArrowUp: () => step(0, -1),
  ArrowDown: () => step(0, 1),
  Escape: () => {
    shown.area = null;
    choose(-1);
  },
  Enter: () => {
    if (shown.chosen >= 0) location.href = `${root.dataset.session}?row=${attempts.drop[shown.chosen]}#drops`;
  },
};
canvas.addEventListener("keydown", (event) => {
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
  paintSoon();
});

function centre() {
  if (shown.chosen >= 0 && attempts.end[shown.chosen] >= view.from && attempts.begin[shown.chosen] <= view.to) {
    return (attempts.begin[shown.chosen] + attempts.end[shown.chosen]) / 2;
  }
  return (view.from + view.to) / 2;
}

function showChosen() {
  const length = Math.max(attempts.end[shown.chosen] - attempts.ready[shown.chosen], 1e-5);
  view.show(attempts.ready[shown.chosen] - length, attempts.end[shown.chosen] + length);
}

function togglePath() {
  shown.showsPath = !shown.showsPath;
  root.querySelector("#show-path").checked = shown.showsPath;
}

// Controls.

root.querySelector("#colours").addEventListener("change", (event) => {
  shown.colours = event.target.value;
  shade();
  legend();
  paintSoon();
});
root.querySelector("#show-path").addEventListener("change", (event) => {
  shown.showsPath = event.target.checked;
  paintSoon();
});
for (const [name, key] of [["closer", "w"], ["farther", "s"], ["whole", "0"]]) {
  root.querySelector(`[data-do="${name}"]`).addEventListener("click", () => {
    KEYS[key]();
    paintSoon();
  });
}
root.querySelector('[data-do="picture"]').addEventListener("click", () => {
  canvas.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${root.dataset.name}-timeline.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
});
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("[data-attempt]");
  if (!link) return;
  const [drop, attempt] = link.dataset.attempt.split("/").map(Number);
  for (let row = attempts.count - 1; row >= 0; row -= 1) {
    if (attempts.drop[row] === drop && Math.abs(attempts.attempt[row]) === attempt) {
      event.preventDefault();
      choose(row);
      showChosen();
      canvas.focus();
      return;
    }
  }
});

box.addEventListener("scroll", paintSoon);
new ResizeObserver(resize).observe(box);
function recolour() {
  colours = readColours();
  shade();
  legend();
  paintSoon();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
new MutationObserver(recolour).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
explain();
follow();

// The log of a session or a manager: new lines as they are written, older ones on demand, filters that apply as they are typed.
//
// Lines are kept in groups, one for each answer of the server, with the cursor of what is before it: when there are too
// many lines, the groups at the far end are removed.

import { isChanged } from "./filters.js";
import { tell } from "./liveness.js";

const MOST = 10_000;
const FIRST = 200;
const MORE = 500;
const WAIT = 5;
const AGAIN = 2_000;
const TYPING = 250;
const SEARCHES = 50;
const SEVERITY = { DEBUG: 10, INFO: 20, OUTPUT: 20, WARNING: 30, WARN: 30, ERROR: 40, CRITICAL: 50, FATAL: 50 };

const list = document.getElementById("lines");
const form = document.getElementById("filters");
const older = document.getElementById("older");
const newest = document.getElementById("newest");
const edge = document.getElementById("edge");
const none = document.getElementById("none");
const follow = document.getElementById("follow");
const { api, page, ends } = list.dataset;

/** @typedef {{cursor: string, lines: Element[]}} Group */
/** @type {Group[]} */
let groups = [{ cursor: list.dataset.older, lines: [...list.children] }];
let newer = list.dataset.newer;
let isLive = list.dataset.live === "yes";
let isGone = false;
let running = new AbortController();

function filters() {
  const given = [...new FormData(form)].filter(([, value]) => value);
  return new URLSearchParams(given);
}

/** @returns {Promise<object | null>} a page of lines; null if there is none, which was told */
async function ask(fields, signal) {
  const query = filters();
  for (const [name, value] of Object.entries(fields)) query.set(name, value);
  let answer;
  try {
    answer = await fetch(`${api}/log?${query}`, { cache: "no-store", signal });
  } catch {
    if (!signal.aborted) tell("lost");
    return null;
  }
  isGone = answer.status === 404;
  if (isGone) tell("gone");
  else if (answer.status === 401) tell("locked");
  else if (!answer.ok) tell("lost");
  const found = answer.ok ? await answer.json().catch(() => null) : null;
  if (found && !signal.aborted) showMissing(found.missing);
  return signal.aborted ? null : found;
}

function lineOf(line) {
  const row = document.createElement("div");
  const severity = SEVERITY[line.level] ?? 20;
  row.className = `log-line ${severity >= 40 ? "error" : severity >= 30 ? "warning" : "plain"}`;
  const time = document.createElement("time");
  time.textContent = new Date(Math.round(line.time * 1000)).toISOString().replace("T", " ").replace("Z", "");
  const level = document.createElement("span");
  level.className = "level";
  level.textContent = line.level.toLowerCase();
  const origin = document.createElement("span");
  origin.className = "origin";
  if (line.drop) {
    const link = document.createElement("a");
    link.href = `${page}/drops/${encodeURIComponent(line.drop)}`;
    link.title = line.drop;
    link.append(bdi(dropLabel(line), "clip"));
    origin.append(link);
  } else origin.append(bdi(line.name, "clip"));
  origin.append(bdi(line.node, "muted"));
  const text = document.createElement("code");
  text.textContent = line.text;
  row.append(time, level, origin, text);
  return row;
}

/** The name of a drop as `drop_label` in managers/web/page_templates.py makes it. */
function dropLabel({ name, drop }) {
  const indices = drop.slice(drop.lastIndexOf("_") + 1).split("-");
  const isOurs = indices.every((index) => /^[0-9]+$/.test(index));
  return isOurs && indices.length > 1 ? `${name} ${indices.slice(1).join("-")}` : name || drop;
}

function bdi(text, looks) {
  const element = document.createElement("bdi");
  element.className = looks;
  element.textContent = text;
  return element;
}

function showMissing(nodes) {
  const box = document.getElementById("missing");
  box.replaceChildren(
    ...nodes.map((node) => {
      const note = document.createElement("div");
      note.className = "note warning";
      const words = document.createElement("p");
      words.append("Node ", bdi(node, ""), " did not answer: its lines are missing.");
      note.append(words);
      return note;
    }),
  );
}

function showEdges(isFirst) {
  older.hidden = isFirst;
  edge.hidden = !isFirst;
  none.hidden = groups.some((group) => group.lines.length);
}

function shown() {
  return groups.reduce((total, group) => total + group.lines.length, 0);
}

/** Replace everything by the last lines that match, and follow from there. */
async function restart() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const query = filters();
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  document.getElementById("download").href = `${api}/log/text${query.size ? `?${query}` : ""}`;
  list.setAttribute("aria-busy", "true");
  let found = await ask({ limit: FIRST }, signal);
  const end = found?.newer;
  // A search that takes long is answered in parts.
  for (let count = 0; found && !found.lines.length && !found.is_first && count < SEARCHES; count += 1) {
    found = await ask({ limit: FIRST, before: found.older }, signal);
  }
  if (signal.aborted) return;
  list.removeAttribute("aria-busy");
  if (!found) {
    if (!isGone) typing = setTimeout(restart, AGAIN); // what is shown are the lines of other filters
    return;
  }
  const lines = found.lines.map(lineOf);
  list.replaceChildren(...lines);
  groups = [{ cursor: found.older, lines }];
  newer = end;
  newest.hidden = true;
  showEdges(found.is_first);
  scrollToEnd();
  if (isLive) keepUp(signal);
}

async function loadOlder() {
  if (older.hasAttribute("aria-busy")) return; // they come already
  const { signal } = running;
  let found = { lines: [], older: groups[0].cursor, is_first: false };
  older.setAttribute("aria-busy", "true");
  for (let count = 0; found && !found.lines.length && !found.is_first && count < SEARCHES; count += 1) {
    found = await ask({ limit: MORE, before: found.older }, signal);
  }
  older.removeAttribute("aria-busy");
  if (!found) return;
  const lines = found.lines.map(lineOf);
  const before = document.documentElement.scrollHeight;
  list.prepend(...lines);
  groups.unshift({ cursor: found.older, lines });
  window.scrollBy(0, document.documentElement.scrollHeight - before);
  follow.checked = false;
  showEdges(found.is_first);
  while (shown() > MOST && groups.length > 1) {
    for (const line of groups.pop().lines) line.remove();
    // The newest lines are not shown any more, so there is nothing to follow.
    running.abort();
    running = new AbortController();
    newest.hidden = false;
    tell("polling", "older lines");
  }
}

function append(found) {
  if (!found.lines.length) return;
  const lines = found.lines.map(lineOf);
  list.append(...lines);
  groups.push({ cursor: found.older, lines });
  while (shown() > MOST && groups.length > 1) {
    for (const line of groups.shift().lines) line.remove();
    older.hidden = false;
    edge.hidden = true;
  }
  none.hidden = true;
  scrollToEnd();
}

function scrollToEnd() {
  if (isLive && follow.checked) window.scrollTo(0, document.documentElement.scrollHeight);
}

/** Ask for new lines until the session is over, the page is hidden, or `signal` is set. */
async function keepUp(signal) {
  let seconds = 0;
  while (isLive && !isGone && !document.hidden && !signal.aborted) {
    const found = await ask({ limit: MORE, after: newer || "-:-1", seconds }, signal);
    if (signal.aborted) return;
    if (!found) {
      await new Promise((done) => setTimeout(done, AGAIN));
      continue;
    }
    tell("live");
    seconds = WAIT;
    newer = found.newer || newer;
    append(found);
    if (!found.lines.length && found.is_last && (await isOver(signal))) {
      const last = await ask({ limit: MORE, after: newer || "-:-1" }, signal);
      if (last) append(last);
      isLive = !last || last.lines.length > 0;
      if (!isLive) tell("over");
    }
  }
}

async function isOver(signal) {
  if (ends === "no") return false; // the log of a manager
  try {
    const answer = await fetch(api, { cache: "no-store", signal });
    const session = answer.ok ? await answer.json() : {};
    return ["FINISHED", "FAILED", "CANCELLED"].includes(session.status);
  } catch {
    return false;
  }
}

let typing = 0;
form.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(restart, TYPING);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  restart();
});
older.addEventListener("click", (event) => {
  event.preventDefault();
  loadOlder();
});
addEventListener(
  "wheel",
  (event) => {
    if (event.deltaY < 0) follow.checked = false;
  },
  { passive: true },
);
follow.addEventListener("change", scrollToEnd);
document.addEventListener("visibilitychange", () => {
  if (!isLive || !newest.hidden || list.hasAttribute("aria-busy")) return; // a search goes on while the page is hidden
  running.abort();
  running = new AbortController();
  if (!document.hidden) keepUp(running.signal);
});

if (isChanged(form)) restart();
else if (isLive) {
  scrollToEnd();
  keepUp(running.signal);
}

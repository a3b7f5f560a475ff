// The page of a session while it runs: numbers and bars are updated from the event stream, at most five times a second
// and only where they differ. Causes of failures, results and the table of drops are fetched again; the numbers of
// failures are those of the stream.

import { draw } from "./bars.js";
import { tell } from "./liveness.js";
import { refresh } from "./refresh.js";
import { Scrub } from "./scrub.js";
import { Following } from "./stream.js";
import { failedWords, formatCount, formatDuration, formatQuiet, formatRate, formatRemaining, harmWords } from "./formatting.js";

const PAINT = 200;
const RENEW = 1_500;
const RENEWED = ["actions", "warnings", "failures", "results", "drops-moment", "drops"];

const root = document.getElementById("session");
const groups = [...root.querySelectorAll("#legend [data-group]")].map((item) => ({
  style: item.dataset.group,
  item,
  counted: item.dataset.counted.split(" "),
  number: item.querySelector("b"),
}));

/** The session after the last event of the stream. */
let session = null;
let arrived = 0;
let painted = new Map();
let paintTimer = 0;
let renewTimer = 0;
let isRenewing = false;
/** Whether the table of logical nodes is being fetched. */
let isAsking = false;
let isOver = false;

const following = new Following(root.dataset.events, root.dataset.twin, {
  onWhole(whole) {
    const isNew = session !== null && whole.version !== session.version;
    session = whole;
    arrived = performance.now();
    paintSoon();
    if (isNew || String(whole.version) !== root.dataset.version) renewSoon();
  },
  onChange(change) {
    if (session === null) return;
    const logical = session.logical;
    Object.assign(session, change);
    if (change.logical) {
      const known = new Map(change.logical.map((node) => [node.key, node]));
      session.logical = logical.map((node) => known.get(node.key) ?? node);
    }
    arrived = performance.now();
    paintSoon();
    renewSoon();
  },
  onEnd() {
    isOver = true;
    paint();
    tell("over");
    renew();
  },
  onState: tell,
});

function paintSoon() {
  paintTimer ||= setTimeout(paint, PAINT);
}

function paint() {
  clearTimeout(paintTimer);
  paintTimer = 0;
  if (session === null || scrub.isPast) return;
  show(session);
  paintFailures(session);
  paintTime();
}

/** Show the numbers and bars of the session as it is, or as it was at a moment. */
function show(session) {
  const numbers = grouped(session.counts);
  numbers.forEach((number, index) => {
    write(groups[index].number, formatCount(number));
    groups[index].item.classList.toggle("zero", number === 0);
  });
  draw(root.querySelector("#bar svg"), numbers, label(session.settled, session.drops));
  figure("settled", formatCount(session.settled));
  figure("drops", formatCount(session.drops));
  figure("running", formatCount(session.running));
  figure("waiting", formatCount(session.queued + (session.ready ?? 0)));
  paintLogical(session);
}

function paintTime() {
  if (session === null || scrub.isPast) return;
  const isRunning = !isOver && session.status === "RUNNING";
  const since = isRunning ? (performance.now() - arrived) / 1000 : 0;
  figure("seconds", formatDuration(session.seconds + since));
  // No event comes while no drop settles, so the page finds out itself when that lasts unusually long.
  const isQuiet = isRunning && session.quiet + since > session.usual_quiet;
  figure("rate", formatRate(isQuiet ? 0 : session.rate));
  figure("remaining", isQuiet ? formatQuiet(session.quiet + since) : formatRemaining(isOver ? null : session.remaining));
}

function paintLogical(session) {
  const rows = new Map([...root.querySelectorAll("#logical [data-key]")].map((row) => [row.dataset.key, row]));
  let isStrange = rows.size !== session.logical.length;
  for (const node of session.logical) {
    const row = rows.get(node.key);
    const looks = JSON.stringify(node.counts);
    if (!row) isStrange = true;
    else if (painted.get(node.key) !== looks) {
      painted.set(node.key, looks);
      paintRow(row, node);
    }
  }
  if (isStrange && !isAsking) {
    isAsking = true;
    painted = new Map();
    refresh(["logical"]).then((outcome) => {
      isAsking = false;
      if (outcome === "fresh") paintSoon();
      else renewSoon(); // which paints again, after a while: a busy manager must not be asked at once
    });
  }
}

function paintRow(row, node) {
  const numbers = grouped(node.counts);
  const open = sum(node.counts, ["running", "queued", "waiting"]);
  draw(row.querySelector("svg"), numbers, label(node.drops - open, node.drops));
  groups.forEach((group, index) => {
    const cell = row.querySelector(`td[data-group="${group.style}"]`);
    cell.classList.toggle("zero", numbers[index] === 0);
    write(cell.querySelector("a"), formatCount(numbers[index]));
  });
  write(row.querySelector("[data-settled]"), `${formatCount(node.drops - open)} / `);
}

/** Show how many drops the listed causes put in error; a cause that is not listed yet comes with the next request. */
function paintFailures({ counts, failures }) {
  const total = root.querySelector('[data-figure="failures"]');
  if (!total) return;
  const unlisted = counts.failed + counts.took_along - failures.reduce((listed, one) => listed + (one.drop ? one.count : 0), 0);
  const more = unlisted > 0 ? `; causes of ${formatCount(unlisted)} are not listed here` : "";
  write(total, `${failedWords(counts)}${more}`);
  const known = new Map(failures.map((failure) => [failure.row < 0 ? failure.drop || failure.name : failure.row, failure]));
  for (const cause of root.querySelectorAll("[data-causes]")) {
    const found = JSON.parse(cause.dataset.causes).map((key) => known.get(key));
    if (found.every(Boolean)) write(cause.querySelector(".count"), harmWords(found));
  }
}

function renewSoon() {
  renewTimer ||= setTimeout(renew, RENEW);
}

async function renew() {
  if (isRenewing) {
    // One request at a time; the answer to the one that runs may be too old.
    renewTimer = 0;
    renewSoon();
    return;
  }
  clearTimeout(renewTimer);
  scrub.renew();
  isRenewing = true;
  const outcome = await refresh(RENEWED, true);
  // The answer is of another moment than the last event: one moment for all numbers.
  paint();
  isRenewing = false;
  renewTimer = 0;
  if (outcome === "gone" || outcome === "locked") {
    following.close();
    tell(outcome);
  } else if (outcome === "lost" && isOver) {
    renewSoon();
  }
}

function figure(name, text) {
  write(root.querySelector(`[data-figure="${name}"]`), text);
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Drops of each group, as `grouped` of dropflow/web/views.py. */
function grouped(counts) {
  return groups.map((group) => sum(counts, group.counted));
}

function label(settled, drops) {
  return `${formatCount(settled)} of ${formatCount(drops)} drops are settled`;
}

function sum(counts, names) {
  return names.reduce((total, name) => total + counts[name], 0);
}

const CHANGED = ["rate", "remaining", "seconds"];
/** What the page had before a moment was chosen: of a session that is over, no event brings it back. */
let present = null;

/** Parts of the page that the server renders for a moment. */
const FOLLOWING = ["failures", "results", "drops-moment", "drops"];
const list = root.querySelector("#drops form");
let isListed = true;
let isListing = false;

/** Have failures, results and drops show a moment, or what is now; the address of the page has it. */
function listAt(time) {
  const address = new URL(location.href);
  const text = time ? time.toFixed(6) : "";
  if ((address.searchParams.get("time") ?? "") === text) return;
  if (text) address.searchParams.set("time", text);
  else address.searchParams.delete("time");
  history.replaceState(null, "", address);
  let field = list.elements.namedItem("time");
  if (!text) field?.remove();
  else if (!field) {
    field = document.createElement("input");
    Object.assign(field, { type: "hidden", name: "time" });
    list.prepend(field);
  }
  if (text) field.value = text;
  isListed = false;
  listAgain();
}

async function listAgain() {
  if (isListing) return;
  isListing = true;
  while (!isListed) {
    isListed = true;
    await refresh(FOLLOWING, true);
  }
  isListing = false;
}

// Numbers of a moment lead to the drops of that moment, and the timeline has the times until then.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  const time = new URLSearchParams(location.search).get("time");
  const timeline = `${location.pathname}/timeline`;
  if (!link || !time || ![location.pathname, timeline].includes(link.pathname) || link.search.includes("time=")) return;
  const address = new URL(link.href);
  address.searchParams.set("time", time);
  link.href = address;
});

const scrub = new Scrub(document.getElementById("scrub"), {
  time: Number(new URLSearchParams(location.search).get("time")) || 0,
  onMoment(moment) {
    listAt(moment.time);
    present ??= CHANGED.map((name) => root.querySelector(`[data-figure="${name}"]`).textContent);
    show(moment);
    figure("rate", formatRate(0));
    figure("remaining", formatDuration(null));
    figure("seconds", formatDuration(moment.time - moment.began));
  },
  onNow(moment) {
    listAt(0);
    if (session === null) show(moment);
    if (present && session === null) CHANGED.forEach((name, at) => figure(name, present[at]));
    present = null;
    paint();
  },
});

if (root.dataset.over === "no") {
  // A stream holds a connection, and browsers have six for a host: a hidden page closes its stream.
  document.addEventListener("visibilitychange", () => {
    if (isOver) return;
    if (document.hidden) following.close();
    else following.open();
  });
  setInterval(() => !document.hidden && !isOver && paintTime(), 1000);
  if (!document.hidden) following.open();
}

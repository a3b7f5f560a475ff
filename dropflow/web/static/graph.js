// The picture of a physical graph: its canvas, and what is around it.

import { fetchAgain, fetchColumns, octets, refusal } from "./graph_columns.js";
import { Camera } from "./graph_camera.js";
import { BoxList } from "./graph_list.js";
import { LogicalGraph } from "./graph_logical.js";
import { Matrix } from "./graph_matrix.js";
import { GROUPS, Model, WAITING } from "./graph_model.js";
import { distance, paint } from "./graph_paint.js";
import { make, Panel, sign } from "./graph_panel.js";
import { Scrub } from "./scrub.js";
import { StateStream } from "./graph_states.js";
import { Theme } from "./graph_theme.js";

const STILL = 160;
const MOVING_QUALITY = 0.3;
const LIST_PACE = 500;
const STEP = 90;
const ZOOM = 1.25;
const ASPECTS = [0.6, 1, 1.7, 2.5];
const CLOSE_BY = 0.8;

const root = document.getElementById("graph");
const canvas = /** @type {HTMLCanvasElement} */ (root.querySelector("canvas"));
const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
const note = root.querySelector(".graph-note");
const view = root.querySelector(".graph-stage");
const { base, events, api, page } = root.dataset;
const isPlan = !events;

/** @type {Model | null} */
let model = null;
/** @type {Matrix | null} */
let matrix = null;
let byPairs = new Uint32Array(0);
let byPart = isPlan;
let grouping = root.dataset.by || "construct";
let folds = new Map();
let hovered = -1;
let chosenBox = -1;
let early = null;
/** The moment that is shown, in seconds since the epoch; 0 for now. */
let moment = Number(new URLSearchParams(location.hash.slice(1)).get("time")) || 0;
let wasPast = false;
let isDirty = false;
let edgesAsked = false;
let listTimer = 0;
let listed = 0;
let asked = 0;
let isMoving = false;
let stillTimer = 0;
const theme = new Theme();

const camera = new Camera(() => {
  // While the picture moves, it has fewer names and edges; all of them follow when it stands still.
  isMoving = true;
  clearTimeout(stillTimer);
  stillTimer = setTimeout(() => {
    isMoving = false;
    redraw();
  }, STILL);
  redraw();
});
const list = new BoxList(root.querySelector("#graph-boxes"), (box) => {
  chooseBox(box);
  zoomTo(box);
});
const panel = new Panel(root.querySelector("#graph-panel"), { api, page, names: `${base}/names` }, {
  choose: (drop) => chooseDrop(drop, true),
  select,
  zoomTo,
  fold(construct, isOpen) {
    folds.set(construct, isOpen);
    load();
  },
  close() {
    unchoose();
    canvas.focus();
  },
});

const logical = new LogicalGraph(root.querySelector("#graph-logical"), (key) => select("key", 0, key));

async function loadLogical() {
  try {
    const answer = await fetchAgain(`${base}/logical`);
    if (!answer.ok) throw new Error(await refusal(answer));
    logical.show(await answer.json());
    if (!model) return;
    logical.update(model);
    if (model.selected >= 0) logical.choose(model.columns.template[model.selected]);
  } catch (error) {
    say(error.message);
  }
}

function redraw() {
  if (isDirty) return;
  isDirty = true;
  requestAnimationFrame(draw);
}

function draw() {
  isDirty = false;
  if (!model || !camera.width) return;
  const changed = model.takeChanged();
  if (changed === null) matrix.paintAll();
  else matrix.paint(changed);
  const ratio = Math.min(devicePixelRatio, 2);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint({ context, camera, model, theme, matrix, byPairs, byPart, hovered, chosenBox, isPlan, quality: isMoving ? MOVING_QUALITY : 1 });
  const far = distance(camera, model);
  if (far !== canvas.dataset.distance) canvas.dataset.distance = far;
  if (far === "near") needEdges();
}

async function needEdges() {
  if (edgesAsked) return;
  edgesAsked = true;
  try {
    const { head, columns } = await fetchColumns(`${base}/edges`);
    model.setEdges(head, columns);
    redraw();
  } catch (error) {
    say(error.message);
  }
}

/** Fetch the drawing, for the boxes that are wanted now. */
async function load() {
  const number = ++asked;
  const shape = canvas.clientWidth / Math.max(canvas.clientHeight, 1);
  const aspect = ASPECTS.reduce((best, one) => (Math.abs(one - shape) < Math.abs(best - shape) ? one : best)).toFixed(1);
  const query = new URLSearchParams({ by: grouping, aspect });
  const rows = (wanted) => [...folds].filter(([, isOpen]) => isOpen === wanted).map(([row]) => row).join(",");
  if (rows(true)) query.set("open", rows(true));
  if (rows(false)) query.set("closed", rows(false));
  let found;
  try {
    found = await fetchColumns(`${base}/drawing?${query}`);
  } catch (error) {
    say(error.message);
    return;
  }
  if (number !== asked) return;
  found.head.isPlan = isPlan;
  const isFirst = model === null;
  model = new Model(found.head, found.columns, model);
  if (isFirst && early) model.setStates(early);
  model.isPast ||= isFirst && wasPast;
  early = null;
  matrix = new Matrix(model, theme);
  matrix.byPart = byPart;
  matrix.paintAll();
  const edges = found.columns.pairEdges;
  byPairs = new Uint32Array(edges.length).map((_, at) => at);
  byPairs.sort((one, two) => edges[two] - edges[one]);
  chosenBox = -1;
  resize();
  if (model.selected >= 0) chooseDrop(model.selected, true);
  else panel.clear();
  if (!(isFirst && readAddress())) fit(false);
  listSoon(true);
  legend();
  logical.update(model);
  canvas.dataset.boxes = String(model.boxes);
  root.dataset.ready = "yes";
  redraw();
}

function fit(isGliding = true) {
  const [width, height] = model.head.size;
  const whole = camera.framing(0, 0, width, height);
  camera.least = Math.min(whole.scale * 0.4, 0.4);
  camera.go(whole, isGliding);
  camera.isFree = false;
}

function zoomTo(box) {
  const { x, y, width, height } = model.columns;
  camera.go(camera.framing(x[box], y[box], width[box], height[box]));
}

function resize() {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = Math.min(devicePixelRatio, 2);
  if (camera.width !== width || camera.height !== height || canvas.width !== Math.round(width * ratio)) {
    Object.assign(camera, { width, height });
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    if (model && !camera.isFree) fit(false);
  }
  redraw();
}

// What is chosen.

function chooseDrop(drop, isShown = false) {
  model.selected = drop;
  chosenBox = -1;
  logical.choose(model.columns.template[drop]);
  panel.showDrop(model, drop);
  if (isShown) {
    const { x, y } = model.centre(drop);
    const scale = Math.max(camera.scale, CLOSE_BY);
    camera.go({ scale, x: x - camera.width / 2 / scale, y: y - camera.height / 2 / scale });
  }
  writeAddress();
  redraw();
}

function chooseBox(box) {
  model.selected = -1;
  logical.choose(-1);
  chosenBox = box;
  panel.showBox(model, box);
  writeAddress();
  redraw();
}

function unchoose() {
  model.selected = -1;
  chosenBox = -1;
  logical.choose(-1);
  panel.clear();
  writeAddress();
  redraw();
}

let selection = "";
let selecting = 0; // selections, so that an answer that comes after that of a later one is not shown

/** Show some drops apart: those that the server finds. */
async function select(of, drop = 0, text = "") {
  const query = new URLSearchParams({ of, drop: String(drop), text });
  const number = ++selecting;
  try {
    const { head, columns } = await fetchColumns(`${base}/selection?${query}`);
    if (number !== selecting) return;
    selection = `${of}:${of === "text" || of === "key" ? text : drop}`;
    if (!head.count) {
      model.mark(null);
      say(`${head.title}.`);
    } else {
      model.mark(columns.drops);
      say(`Shown: ${head.title}${/^[\d,]+ drop/.test(head.title) ? "" : `, ${head.count.toLocaleString("en")} ${head.count === 1 ? "drop" : "drops"}`}.`, true);
      if (of === "text" && head.count === 1) chooseDrop(columns.drops[0], true);
      else frame(columns.drops);
    }
    listSoon(true);
    writeAddress();
    redraw();
    root.dispatchEvent(new CustomEvent("graph-selection", { detail: { of, drops: columns.drops } }));
  } catch (error) {
    if (number === selecting) say(error.message);
  }
}

function unselect() {
  selecting += 1;
  selection = "";
  model.mark(null);
  note.hidden = true;
  listSoon(true);
  writeAddress();
  redraw();
}

/** Move the camera so that these drops are seen, unless they are. */
function frame(drops) {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const drop of drops) {
    const { x, y } = model.centre(drop);
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x);
    bottom = Math.max(bottom, y);
  }
  const [width, height] = model.head.cell;
  camera.go(camera.framing(left - width, top - height, right - left + 2 * width, bottom - top + 2 * height));
}

/** @param {string} words */
function say(words, isSelection = false) {
  note.hidden = false;
  const close = make("button", { type: "button", className: "plain", onclick: isSelection ? unselect : () => (note.hidden = true) }, [isSelection ? "Show all" : "Close"]);
  note.replaceChildren(make("span", {}, [words]), close);
}

// The address of the page has what is chosen and shown, so that it can be sent to others.

function writeAddress() {
  const hash = new URLSearchParams();
  if (grouping !== "construct") hash.set("by", grouping);
  if (model?.selected >= 0) hash.set("drop", String(model.selected));
  if (selection) hash.set("show", selection);
  if (moment) hash.set("time", String(moment));
  history.replaceState(null, "", `${location.pathname}${location.search}${`${hash}` && `#${hash}`}`);
}

/** @returns {boolean} whether the address has something that the camera goes to */
function readAddress() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const drop = Number(hash.get("drop") ?? "-1");
  const [of, ...rest] = (hash.get("show") ?? "").split(":");
  const oid = hash.get("oid");
  const isThere = Number.isInteger(drop) && drop >= 0 && drop < model.drops;
  if (of || isThere || oid) fit(false);
  if (of) select(of, Number(rest.join(":")) || 0, rest.join(":"));
  if (isThere) chooseDrop(drop, true);
  if (oid) find(oid);
  return Boolean(of || isThere || oid);
}

async function find(oid) {
  const query = new URLSearchParams({ of: "oid", text: oid });
  const { columns } = await fetchColumns(`${base}/selection?${query}`);
  if (columns.drops.length) chooseDrop(columns.drops[0], true);
}

// Bar, legend and list.

function legend() {
  const place = root.querySelector("#graph-legend");
  if (byPart) {
    const names = [...Array(Math.min(model.head.parts, 24)).keys()].map((part) => model.head.places[part] ?? `part ${part}`);
    place.replaceChildren(
      ...names.map((name, part) => {
        const swatch = make("span", { className: "graph-swatch" });
        swatch.style.background = theme.parts[part % theme.parts.length];
        return make("li", {}, [swatch, make("bdi", {}, [name])]);
      }),
    );
    return;
  }
  place.replaceChildren(
    ...GROUPS.map((_, group) => [group, model.totals[group]])
      .filter(([group, number]) => group < WAITING || number)
      .map(([group, number]) =>
        make("li", { className: number ? "" : "zero" }, [sign(group), " ", make("b", {}, [number.toLocaleString("en")])]),
      ),
  );
}

function listSoon(isNew = false) {
  if (isNew) {
    clearTimeout(listTimer);
    listTimer = 0;
    listed = performance.now();
    list.show(model, { isNew: true });
    return;
  }
  listTimer ||= setTimeout(
    () => {
      listTimer = 0;
      listed = performance.now();
      list.show(model);
      legend();
      logical.update(model);
      if (chosenBox >= 0 && !root.querySelector("#graph-panel").contains(document.activeElement)) panel.showBox(model, chosenBox);
    },
    Math.max(0, listed + LIST_PACE - performance.now()),
  );
}

root.querySelector("#graph-by").addEventListener("change", ({ target }) => {
  grouping = target.value;
  folds = new Map();
  writeAddress();
  load();
});
root.querySelector("#graph-colour")?.addEventListener("change", ({ target }) => {
  byPart = target.value === "part";
  matrix.byPart = byPart;
  matrix.paintAll();
  legend();
  redraw();
});
root.querySelector("#graph-find").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = root.querySelector("#graph-text").value.trim();
  if (text) select("text", 0, text);
  else unselect();
});
const COMMANDS = {
  in: () => camera.zoom(ZOOM ** 2),
  out: () => camera.zoom(ZOOM ** -2),
  fit: () => fit(),
  critical: () => select("critical"),
};
root.addEventListener("click", ({ target }) => {
  const command = target.closest?.("[data-do]")?.dataset.do;
  if (command && model) COMMANDS[command]?.();
});

// Mouse, touch and keyboard.

const pointers = new Map();
let travelled = 0;

canvas.addEventListener("pointerdown", (event) => {
  if (event.button > 0) return;
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
  travelled = 0;
  view.classList.add("moving");
});
canvas.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) {
    hover(event);
    return;
  }
  const now = [event.offsetX, event.offsetY];
  if (pointers.size === 2) {
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    const size = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]);
    camera.zoom(size(now) / Math.max(size(before), 1), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    travelled += 10;
  } else if (pointers.size === 1) {
    camera.pan(now[0] - before[0], now[1] - before[1]);
    travelled += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
  }
  pointers.set(event.pointerId, now);
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (!pointers.size) view.classList.remove("moving");
    if (name === "pointerup" && travelled < 5 && model) choose(event);
  });
}
canvas.addEventListener("pointerleave", () => {
  if (hovered < 0) return;
  hovered = -1;
  redraw();
});
canvas.addEventListener("dblclick", (event) => camera.zoom(ZOOM ** 3, event.offsetX, event.offsetY));
canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey) camera.pan(-(event.deltaY + event.deltaX) * lines, 0);
    else camera.zoom(Math.exp((-event.deltaY * lines) / 500), event.offsetX, event.offsetY);
  },
  { passive: false },
);

function hover({ offsetX, offsetY }) {
  if (!model) return;
  const [x, y] = camera.toDrawing(offsetX, offsetY);
  const box = model.boxAt(x, y);
  const drop = canvas.dataset.distance === "far" ? -1 : model.dropAt(x, y, box);
  canvas.style.cursor = box >= 0 ? "pointer" : "";
  const words = drop >= 0 ? [model.templateOf(drop).name, model.indexOf(drop)].join(" ").trim() : box >= 0 ? model.head.labels[box] : "";
  if (canvas.title !== words) canvas.title = words;
  if (drop === hovered) return;
  hovered = drop;
  if (canvas.dataset.distance === "near") redraw();
}

function choose({ offsetX, offsetY }) {
  const [x, y] = camera.toDrawing(offsetX, offsetY);
  const box = model.boxAt(x, y);
  const isCell = model.head.cell[1] * camera.scale >= 4;
  const drop = isCell || (box >= 0 && model.size[box] === 1) ? model.dropAt(x, y, box) : -1;
  if (drop >= 0) chooseDrop(drop);
  else if (box >= 0) chooseBox(box);
  else unchoose();
}

const KEYS = {
  ArrowLeft: () => camera.pan(STEP, 0),
  ArrowRight: () => camera.pan(-STEP, 0),
  ArrowUp: () => camera.pan(0, STEP),
  ArrowDown: () => camera.pan(0, -STEP),
  "+": () => camera.zoom(ZOOM),
  "=": () => camera.zoom(ZOOM),
  "-": () => camera.zoom(1 / ZOOM),
  f: () => fit(),
  Enter: () => choose({ offsetX: camera.width / 2, offsetY: camera.height / 2 }),
  Escape: () => (selection ? unselect() : unchoose()),
};
addEventListener("keydown", (event) => {
  if (!model || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, select, textarea")) return;
  if (event.key === "/") {
    event.preventDefault();
    root.querySelector("#graph-text").focus();
    return;
  }
  // Arrows and Enter are for the canvas: elsewhere they scroll the page and press buttons.
  const isOnCanvas = event.target === canvas;
  if (!isOnCanvas && (event.key.startsWith("Arrow") || event.key === "Enter")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// Looks.

new ResizeObserver(resize).observe(canvas);
function recolour() {
  theme.read();
  matrix?.paintAll();
  redraw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
new MutationObserver(recolour).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class"] });

// Data.

const WORDS = { past: "as it was", live: "live", over: "over", lost: "connection lost, trying again", gone: "this was deleted" };

function tell(state, words = WORDS[state]) {
  const place = root.querySelector(".live");
  if (!place) return;
  place.hidden = false;
  place.dataset.state = state === "gone" ? "lost" : state;
  if (place.textContent !== words) place.textContent = words;
}

if (events) {
  const stream = new StateStream(events, {
    onWhole(states) {
      if (!model) {
        early = states;
        return;
      }
      model.setStates(states);
      listSoon();
      redraw();
    },
    onChange(drops, states) {
      if (!model) {
        // The states that came before the drawing are old now: ask for all of them again.
        drops.forEach((drop, at) => early && (early[drop] = states[at]));
        return;
      }
      model.changeStates(drops, states);
      listSoon();
      redraw();
      scrub.renew();
    },
    onState: tell,
  });
  const show = (found, isPast) => {
    moment = isPast ? found.time : 0;
    writeAddress();
    if (!model) {
      [early, wasPast] = [octets(found.states), isPast];
      return;
    }
    const drop = model.selected;
    const before = [model.isPast, model.group[drop]];
    model.setStates(octets(found.states));
    model.isPast = isPast;
    if (drop >= 0 && (before[0] !== isPast || before[1] !== model.group[drop])) panel.showDrop(model, drop);
    listSoon();
    redraw();
  };
  const scrub = new Scrub(document.getElementById("scrub"), {
    hasStates: true,
    time: moment,
    onMoment(found) {
      stream.close();
      tell("past");
      show(found, true);
    },
    onNow(found) {
      show(found, false);
      if (stream.isOver) {
        tell("over");
      } else stream.open();
    },
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stream.close();
    else if (!scrub.isPast) stream.open();
  });
  stream.open();
}
grouping = new URLSearchParams(location.hash.slice(1)).get("by") ?? grouping;
root.querySelector("#graph-by").value = grouping;
load();
loadLogical();

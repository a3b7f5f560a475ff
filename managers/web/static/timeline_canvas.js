// Draws a timeline on a canvas: only what is in view, and attempts narrower than a pixel together.

import { withColours } from "./colours.js";
import { formatBrief } from "./formatting.js";
import { firstAfter, markText, marks } from "./viewport.js";

export const RULER = 26;
const HEAD = 20;
/** Height of the bars of a plan. */
const PLAN = 5;
const GAP_KINDS = ["data", "message", "worker"];

/**
 * @typedef {object} Row
 * @property {"node" | "lane"} kind
 * @property {number} top
 * @property {number} height
 * @property {number} [inset] space above the bars of a lane
 * @property {number} [high] height of the bars
 * @property {string} text
 * @property {import("./attempts.js").Lane} [lane]
 */

/**
 * The rows of lanes under their nodes, and their height together.
 *
 * @param {import("./attempts.js").Lane[]} lanes
 * @param {import("./attempts.js").Attempts} attempts names of nodes, why nothing runs on one, and whether there is a plan
 * @returns {{rows: Row[], height: number}}
 */
export function layOut(lanes, attempts) {
  const { nodes, hasPlan } = attempts;
  const height = lanes.length > 400 ? 8 : lanes.length > 60 ? 13 : hasPlan ? 28 : 20;
  const hasRoom = height >= 12;
  const high = height - (hasRoom ? 5 : 1) - (hasPlan && height >= 20 ? PLAN + 3 : 0);
  const rows = [];
  let top = 0;
  let node = -1;
  for (const lane of lanes) {
    if (lane.node !== node) {
      node = lane.node;
      rows.push({ kind: "node", top, height: HEAD, text: nodes[node].name, note: attempts.idleReason(node) });
      top += HEAD;
    }
    rows.push({ kind: "lane", top, height, inset: hasRoom ? 2 : 0, high, text: lane.name, lane });
    top += height;
  }
  return { rows, height: top + 6 };
}

/** Colours of the page, which change with light and dark. */
export function readColours() {
  return withColours((read) => ({
    ink: read("ink"), muted: read("muted"), faint: read("faint"), line: read("line"), paper: read("raised"),
    sunken: read("sunken"), accent: read("accent"), error: read("error"), completed: read("completed"),
    other: read("series-other"), series: Array.from({ length: 8 }, (_, index) => read(`series-${index + 1}`)),
    data: read("gap-data"), message: read("gap-message"), worker: read("gap-worker"),
    font: getComputedStyle(document.body).fontFamily,
  }));
}

/**
 * Draw everything.
 *
 * @param {CanvasRenderingContext2D} context scaled to CSS pixels
 * @param {object} scene
 * @param {number} scene.width
 * @param {number} scene.height
 * @param {number} scene.left width of the labels
 * @param {number} scene.scroll pixels that the rows are scrolled by
 * @param {Row[]} scene.rows
 * @param {import("./viewport.js").Viewport} scene.view
 * @param {import("./attempts.js").Attempts} scene.attempts
 * @param {any} scene.colours
 * @param {Uint8Array} scene.shades index of the colour of each attempt
 * @param {string[]} scene.palette these colours
 * @param {Uint32Array} scene.words the same as numbers, for pixels
 * @param {(template: number) => number} scene.shadeOf index of the colour of what runs, by its template
 * @param {boolean} scene.showsPath
 * @param {boolean} scene.showsPlan
 * @param {number[]} scene.path attempts of the critical path
 * @param {(row: number) => Row} scene.rowOf the row of the lane of an attempt
 * @param {number} scene.chosen attempt that is chosen, or -1
 * @param {{from: number, to: number, top: number, bottom: number} | null} scene.area
 * @returns {number} rectangles that were drawn
 */
export function draw(context, scene) {
  const { width, height, left, rows, scroll, view, colours } = scene;
  const scale = (width - left) / (view.to - view.from);
  const x = (time) => left + (time - view.from) * scale;
  let drawn = 0;
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, height);
  drawMarks(context, scene, x);
  context.save();
  context.beginPath();
  context.rect(0, RULER, width, height - RULER);
  context.clip();
  for (const row of rows) {
    const top = RULER + row.top - scroll;
    if (top + row.height < RULER || top > height) continue;
    if (row.kind === "node") drawHead(context, scene, row, top);
    else drawn += drawLane(context, scene, row, top, x);
  }
  context.beginPath();
  context.rect(left, RULER, width - left, height - RULER);
  context.clip();
  if (scene.showsPath) drawPath(context, scene, x);
  if (scene.chosen >= 0) drawChosen(context, scene, x);
  if (scene.area) drawArea(context, scene, x);
  context.restore();
  return drawn;
}

function drawMarks(context, { width, height, left, view, colours }, x) {
  const { times, step } = marks(view.from, view.to, Math.max(Math.floor((width - left) / 90), 2));
  context.font = `11px ${colours.font}`;
  context.textBaseline = "middle";
  for (const time of times) {
    const at = Math.round(x(time)) + 0.5;
    if (at < left - 1) continue;
    context.strokeStyle = colours.line;
    context.beginPath();
    context.moveTo(at, RULER - 6);
    context.lineTo(at, height);
    context.stroke();
    context.fillStyle = colours.muted;
    const text = markText(time, step);
    const wide = context.measureText(text).width;
    context.fillText(text, Math.min(at + 4, width - wide - 2), RULER / 2);
  }
  context.strokeStyle = colours.line;
  context.beginPath();
  context.moveTo(0, RULER - 0.5);
  context.lineTo(width, RULER - 0.5);
  context.stroke();
}

function drawHead(context, { width, colours }, row, top) {
  context.fillStyle = colours.sunken;
  context.fillRect(0, top, width, row.height);
  context.fillStyle = colours.ink;
  context.font = `600 12px ${colours.font}`;
  context.textBaseline = "middle";
  context.fillText(row.text, 8, top + row.height / 2 + 1);
  if (!row.note) return;
  const after = 8 + context.measureText(row.text).width;
  context.fillStyle = colours.muted;
  context.font = `12px ${colours.font}`;
  context.fillText(`: ${row.note}`, after, top + row.height / 2 + 1);
}

function drawLane(context, scene, row, top, x) {
  const { width, left, view, attempts, colours, shades, palette, words } = scene;
  const { begin, end } = attempts;
  const scale = (width - left) / (view.to - view.from);
  const { spans } = row.lane;
  const tall = row.height >= 12;
  const { high } = row;
  const at = top + row.inset;
  let drawn = 0;
  let number = firstAfter(spans, end, view.from);
  let free = number > 0 ? end[spans[number - 1]] : 0;
  // Attempts narrower than a pixel are pixels of one strip, each in the colour of the longest that begins there.
  let strip = null;
  let pixel = -1;
  let longest = 0;
  for (; number < spans.length; number += 1) {
    const span = spans[number];
    if (free > view.to) break;
    if (tall && x(begin[span]) - x(free) >= 3) {
      drawGap(context, scene, span, free, at + high, x);
    }
    free = end[span];
    if (begin[span] > view.to) break;
    const from = Math.max(left + (begin[span] - view.from) * scale, left);
    const to = Math.min(left + (end[span] - view.from) * scale, width);
    if (to - from < 1) {
      const column = Math.floor(from);
      const ran = end[span] - begin[span];
      strip ??= newStrip(width);
      if (column !== pixel || ran > longest) {
        strip.pixels[column] = words[shades[span]];
        pixel = column;
        longest = ran;
      }
      continue;
    }
    context.fillStyle = palette[shades[span]];
    const gap = to - from > 4 ? 0.75 : 0;
    context.fillRect(from, at, to - from - gap, high);
    drawn += 1;
    if (attempts.attempt[span] < 0 && tall && to - from > 6) drawFailure(context, scene, from, at, high);
    if (tall && to - from > 48) drawText(context, scene, span, from, to, at, high);
  }
  if (strip) {
    strip.context.putImageData(strip.image, 0, 0);
    context.drawImage(strip.context.canvas, 0, 0, width, 1, 0, at, width, high);
    drawn += 1;
  }
  if (row.lane.running) drawn += drawRunning(context, scene, row, at, high, x);
  if (scene.showsPlan && row.height >= 20) drawn += drawPlan(context, scene, row, at + high, x);
  context.fillStyle = colours.paper;
  context.fillRect(0, top, left, row.height);
  if (row.height >= 12) {
    context.fillStyle = colours.muted;
    context.font = `${tall && row.height > 14 ? 12 : 10}px ${colours.font}`;
    context.textBaseline = "middle";
    context.fillText(row.text, 16, top + row.height / 2);
  }
  return drawn;
}

/** What has begun and not ended: as long as it is known to run, with an open end. */
function drawRunning(context, { attempts, colours, palette, shadeOf, left, width }, { lane, height }, at, high, x) {
  const { begin, template } = lane.running;
  const now = attempts.until(lane.running, lane.node);
  const [from, to] = [Math.max(x(begin), left), Math.min(x(now), width)];
  if (to <= from || from > width) return 0;
  context.fillStyle = palette[shadeOf(template)];
  context.globalAlpha = 0.45;
  context.fillRect(from, at, to - from, high);
  context.globalAlpha = 1;
  context.fillRect(from, at + high - 2, to - from, 2);
  context.fillRect(to - 2, at, 2, high);
  const name = attempts.templates[template]?.name;
  if (name && height >= 12 && to - from > 48) {
    context.save();
    context.beginPath();
    context.rect(from, at, to - from - 4, high);
    context.clip();
    context.fillStyle = colours.ink;
    context.font = `11px ${colours.font}`;
    context.textBaseline = "middle";
    context.fillText(name, from + 5, at + high / 2);
    context.restore();
  }
  return 1;
}

/** When attempts were to run: an outline below the bars. Those narrower than two pixels are left out. */
function drawPlan(context, { attempts, colours, left, width }, { lane }, bottom, x) {
  let drawn = 0;
  context.strokeStyle = colours.muted;
  context.lineWidth = 1;
  context.beginPath();
  for (const span of lane.spans) {
    const plan = attempts.plan(span);
    if (!plan) continue;
    const [from, to] = [Math.max(x(plan.begin), left), Math.min(x(plan.end), width)];
    if (to - from < 2) continue;
    context.rect(Math.round(from) + 0.5, Math.round(bottom) + 2.5, Math.max(Math.round(to - from) - 1, 1), PLAN - 1);
    drawn += 1;
  }
  context.stroke();
  return drawn;
}

let lastStrip = null;

/** A row of transparent pixels. */
function newStrip(width) {
  if (lastStrip?.image.width !== width) {
    const context = new OffscreenCanvas(width, 1).getContext("2d");
    const image = new ImageData(width, 1);
    lastStrip = { context, image, pixels: new Uint32Array(image.data.buffer) };
  }
  lastStrip.pixels.fill(0);
  return lastStrip;
}

/** Colours as pixels. */
export function pixelWords(palette) {
  const context = new OffscreenCanvas(palette.length, 1).getContext("2d", { willReadFrequently: true });
  palette.forEach((colour, index) => {
    context.fillStyle = colour;
    context.fillRect(index, 0, 1, 1);
  });
  return new Uint32Array(context.getImageData(0, 0, palette.length, 1).data.buffer);
}

function drawGap(context, { attempts, colours, left, width }, span, free, bottom, x) {
  const ends = attempts.gap(span, free);
  for (let piece = 0; piece < 3; piece += 1) {
    const from = Math.max(x(ends[piece]), left);
    const to = Math.min(x(ends[piece + 1]), width);
    if (to - from < 1) continue;
    context.fillStyle = colours[GAP_KINDS[piece]];
    context.fillRect(from, bottom - 3, to - from, 3);
  }
}

function drawFailure(context, { colours }, from, at, high) {
  context.fillStyle = colours.error;
  context.fillRect(from, at, 3, high);
}

function drawText(context, { attempts, colours, left }, span, from, to, at, high) {
  const template = attempts.known(span, "template");
  if (template === undefined) return;
  context.save();
  context.beginPath();
  context.rect(from, at, to - from - 3, high);
  context.clip();
  context.fillStyle = colours.paper;
  context.font = `11px ${colours.font}`;
  context.textBaseline = "middle";
  context.fillText(attempts.templates[template].name, Math.max(from, left) + 5, at + high / 2 + 0.5);
  context.restore();
}

/** Attempts of the critical path that are narrower, in pixels, have no frames of their own. */
const NARROW = 4;

function drawPath(context, scene, x) {
  const { path, rowOf, colours, attempts, left, scroll, view } = scene;
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.5;
  context.beginPath();
  let last = null;
  /** Attempts of one row whose frames would touch: they have a line above and below instead. */
  let run = null;
  const rows = [];
  for (const span of path) {
    const row = rowOf(span);
    const isNear = attempts.end[span] >= view.from && attempts.begin[span] <= view.to;
    const top = RULER + row.top - scroll + row.inset;
    const middle = top + row.high / 2;
    const from = Math.max(x(attempts.begin[span]), left - 9);
    const to = Math.max(x(attempts.end[span]), left - 9);
    // From one attempt to the next on the same worker there is no line to see.
    if (last && (isNear || last.isNear) && (last.middle !== middle || from - last.to > 1)) {
      context.moveTo(last.to, last.middle);
      context.lineTo(from, middle);
    }
    const isNext = run?.row === row && from - run.to < 1;
    if (isNear && to - from < NARROW) {
      if (isNext) run.to = Math.max(run.to, to);
      else rows.push((run = { row, top, from, to: Math.max(to, from + 1) }));
    } else if (isNear) {
      context.rect(from, top - 0.5, to - from, Math.max(row.high + 1, 2));
      run = null;
    }
    last = { to, middle, isNear };
  }
  for (const { row, top, from, to } of rows) {
    for (const edge of [top - 0.5, top + Math.max(row.high, 1.5)]) {
      context.moveTo(from, edge);
      context.lineTo(to, edge);
    }
  }
  context.stroke();
  context.lineWidth = 1;
}

function drawChosen(context, scene, x) {
  const { chosen, rowOf, attempts, colours, left, scroll, width } = scene;
  const row = rowOf(chosen);
  const top = RULER + row.top - scroll + row.inset;
  const middle = top + row.high / 2;
  const ready = Math.max(x(attempts.ready[chosen]), left);
  const from = Math.max(x(attempts.begin[chosen]), left);
  const to = Math.min(Math.max(x(attempts.end[chosen]), from + 2), width);
  context.strokeStyle = colours.accent;
  context.lineWidth = 2;
  context.strokeRect(from - 1, top - 1, to - from + 2, row.high + 2);
  if (from - ready > 2) {
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(ready, middle);
    context.lineTo(from, middle);
    context.stroke();
    context.setLineDash([]);
  }
  const before = attempts.before(chosen);
  const other = before >= 0 ? rowOf(before) : null;
  if (other) {
    context.beginPath();
    context.moveTo(Math.max(x(attempts.end[before]), left), RULER + other.top - scroll + other.inset + other.high / 2);
    context.lineTo(from, middle);
    context.stroke();
  }
  context.lineWidth = 1;
}

function drawArea(context, { area, left, width, colours }, x) {
  const from = Math.max(x(area.from), left);
  const to = Math.min(x(area.to), width);
  context.globalAlpha = 0.14;
  context.fillStyle = colours.accent;
  context.fillRect(from, area.top, to - from, area.bottom - area.top);
  context.globalAlpha = 1;
  context.strokeStyle = colours.accent;
  context.strokeRect(from + 0.5, area.top + 0.5, to - from - 1, area.bottom - area.top - 1);
  context.fillStyle = colours.ink;
  context.font = `11px ${colours.font}`;
  context.textBaseline = "top";
  context.fillText(formatBrief(area.to - area.from), from + 5, area.top + 4);
}

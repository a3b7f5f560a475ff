// Drops near by: each with its border, name, ports and edges, as many as one frame can draw.

import { addInside, inBox, leadBack, turnInside } from "./graph_lines.js";
import { COMPLETED, ERROR, QUEUED } from "./graph_model.js";
import { drawSign } from "./graph_theme.js";

/** Edges and names in one frame that stands still, and edges of one drop in each direction. */
const MOST_EDGES = 5000;
const MOST_LABELS = 500;
const MOST_OF_ONE = 120;
/** Size of a drop in its cell, in units of the drawing. */
export const DROP_WIDTH = 156;
export const DROP_HEIGHT = 50;

/**
 * @typedef {object} Frame
 * @property {CanvasRenderingContext2D} context
 * @property {import("./graph_camera.js").Camera} camera
 * @property {import("./graph_model.js").Model} model
 * @property {import("./graph_theme.js").Theme} theme
 * @property {Uint32Array} visible boxes
 * @property {boolean} byPart
 * @property {number} hovered drop, or -1
 * @property {number} quality 1, or less while the picture moves: fewer names and edges
 */

/** Drops and their edges. @param {Frame} frame */
export function drawNear(frame) {
  const drops = visibleDrops(frame);
  if (frame.model.edges) drawEdges(frame, drops);
  drawDrops(frame, drops);
}

/** @param {Frame} frame @returns {number[]} */
function visibleDrops({ camera, model, visible }) {
  const { columns, head, first, cells } = model;
  const [left, top] = camera.toDrawing(0, 0);
  const [right, bottom] = camera.toDrawing(camera.width, camera.height);
  const found = [];
  for (const box of visible) {
    const across = columns.columns[box];
    const x = columns.x[box] + head.margin;
    const y = columns.y[box] + columns.header[box];
    const start = Math.max(0, Math.floor((left - x) / head.cell[0]));
    const end = Math.min(across - 1, Math.floor((right - x) / head.cell[0]));
    const high = Math.max(0, Math.floor((top - y) / head.cell[1]));
    const low = Math.min(columns.rows[box] - 1, Math.floor((bottom - y) / head.cell[1]));
    for (let row = high; row <= low; row += 1) {
      for (let column = start; column <= end; column += 1) {
        const drop = cells[first[box] + row * across + column];
        if (drop) found.push(drop - 1);
      }
    }
  }
  return found;
}

/** @param {Frame} frame @param {number[]} drops */
function drawEdges({ context, camera, model, theme, hovered, quality }, drops) {
  const { edges, marked, selected } = model;
  const isVisible = new Set(drops);
  const plain = new Path2D();
  const cut = new Path2D();
  const strong = new Path2D();
  const { part, box } = model.columns;
  let budget = MOST_EDGES * quality;
  const add = (source, target) => {
    const from = model.centre(source);
    const to = model.centre(target);
    const isStrong = source === selected || target === selected || source === hovered || target === hovered;
    if (!isStrong && marked && !(marked[source] && marked[target])) return;
    const path = isStrong || marked ? strong : part[source] === part[target] ? plain : cut;
    budget -= 1;
    const half = DROP_WIDTH / 2;
    if (box[source] !== box[target]) {
      const begin = inBox(model, source, from, half, 1, to.y);
      model.ways.add(path, camera, box[source], box[target], begin, inBox(model, target, to, half, -1, from.y));
      return;
    }
    const [x, y] = camera.toScreen(from.x + half, from.y);
    const [u, v] = camera.toScreen(to.x - half, to.y);
    const turn = turnInside(model, from, to);
    if (turn) {
      leadBack(path, camera, turn, x, y, u, v);
    } else if (to.x > from.x) {
      addInside(path, camera, model, from, to, half);
    } else {
      const bend = 40 * camera.scale;
      path.moveTo(x, y);
      path.bezierCurveTo(x + bend, y, u - bend, v, u, v);
    }
  };
  for (const drop of drops) {
    const end = Math.min(edges.ptr[drop + 1], edges.ptr[drop] + MOST_OF_ONE);
    for (let at = edges.ptr[drop]; at < end && budget > 0; at += 1) add(drop, edges.target[at]);
    const last = Math.min(edges.start[drop + 1], edges.start[drop] + MOST_OF_ONE);
    for (let at = edges.start[drop]; at < last && budget > 0; at += 1) {
      const source = edges.source[at];
      const isDrawn = isVisible.has(source) && edges.edge[at] < edges.ptr[source] + MOST_OF_ONE;
      if (!isDrawn) add(source, drop);
    }
    if (budget <= 0) break;
  }
  context.lineWidth = Math.max(0.8, Math.min(1.4, camera.scale * 1.2));
  context.strokeStyle = theme.strong;
  context.stroke(plain);
  context.setLineDash([5, 4]);
  context.strokeStyle = theme.faint;
  context.stroke(cut);
  context.setLineDash([]);
  context.lineWidth += 0.6;
  context.strokeStyle = theme.accent;
  context.stroke(strong);
}

/** The body, border, name, sign and ports of each drop. @param {Frame} frame @param {number[]} drops */
function drawDrops({ context, camera, model, theme, byPart, hovered, quality }, drops) {
  const { scale } = camera;
  const width = DROP_WIDTH * scale;
  const height = DROP_HEIGHT * scale;
  const sign = Math.min(5, height * 0.2);
  const size = Math.min(13, Math.max(9, height * 0.26));
  const hasText = height >= 10;
  const hasPorts = scale >= 1.15 && model.edges !== null && quality === 1;
  const isPlain = height < 34;
  const text = new Labels(context);
  let labels = MOST_LABELS * quality;
  for (const drop of drops) {
    const { x: cx, y: cy } = model.centre(drop);
    const [mx, my] = camera.toScreen(cx, cy);
    const [x, y] = [mx - width / 2, my - height / 2];
    const isDim = model.marked !== null && !model.marked[drop];
    const group = model.group[drop];
    const { name, isApp } = model.templateOf(drop);
    const colour = byPart ? theme.parts[model.columns.part[drop] % theme.parts.length] : theme.groups[group];
    const isChosen = drop === model.selected;
    context.globalAlpha = isDim ? 0.25 : 1;
    context.fillStyle = (byPart ? theme.softParts : theme.softGroups)[byPart ? model.columns.part[drop] % theme.parts.length : group];
    context.strokeStyle = isChosen ? theme.accent : colour;
    context.lineWidth = isChosen ? 2.5 : drop === hovered ? 2 : group === ERROR ? 1.8 : 1;
    if (isPlain && isApp) {
      // Many drops: straight lines cost a third of round ones.
      context.fillRect(x, y, width, height);
      context.strokeRect(x, y, width, height);
    } else {
      context.beginPath();
      context.roundRect(x, y, width, height, isApp ? Math.min(3, height * 0.12) : height / 2);
      context.fill();
      context.stroke();
    }
    const inset = byPart ? 2 * scale : sign + 6 * scale;
    let level = my; // of the sign: beside the first line
    if (hasText && labels > 0 && !isDim) {
      labels -= 1;
      const left = x + inset + (byPart ? 0 : sign + 2);
      const room = x + width - left - 2;
      context.textBaseline = "middle";
      context.textAlign = "center";
      context.font = `${size}px ${theme.font}`;
      context.fillStyle = theme.ink;
      const index = model.indexOf(drop);
      const lines = text.lines(index ? `${name} ${index}` : name, room, height >= 2 * size, width - 2.5);
      const step = Math.min(size * 1.15, height / 2);
      if (lines.length > 1) level -= step / 2;
      lines.forEach((line, at) => context.fillText(line, at ? mx : left + room / 2, level + at * step + 0.5));
    }
    if (!byPart && (quality === 1 || (group > COMPLETED && group < QUEUED))) drawSign(context, theme, group, x + inset, level, sign);
    if (hasPorts && !isDim) drawPorts(context, model, theme, text, drop, { x, my, width, scale });
  }
  context.globalAlpha = 1;
}

function drawPorts(context, model, theme, text, drop, { x, my, width, scale }) {
  const { ptr, start, link, edge, links } = model.edges;
  const outs = new Set();
  for (let at = ptr[drop]; at < Math.min(ptr[drop + 1], ptr[drop] + 40); at += 1) outs.add(links[link[at]][0]);
  const ins = new Set();
  for (let at = start[drop]; at < Math.min(start[drop + 1], start[drop] + 40); at += 1) {
    ins.add(links[link[edge[at]]][1]);
  }
  for (const [side, names] of [[-1, ins], [1, outs]]) {
    if (!names.size) continue;
    const at = side < 0 ? x : x + width;
    context.beginPath();
    context.arc(at, my, 3, 0, 7);
    context.fillStyle = theme.paper;
    context.fill();
    context.strokeStyle = theme.faint;
    context.lineWidth = 1.2;
    context.stroke();
    const words = [...names].filter((name) => name && name !== "(order)").join(", ");
    if (scale < 1.5 || !words) continue;
    context.font = `10px ${theme.font}`;
    context.fillStyle = theme.muted;
    context.textAlign = side < 0 ? "right" : "left";
    context.fillText(text.fitted(words, 20 * scale), at + side * 6, my - 8);
  }
  context.textAlign = "left";
}

const widths = new Map();

/** Texts that are cut to the room that they have. */
export class Labels {
  constructor(context) {
    this.context = context;
  }

  /** @returns {string} the text, or the beginning of it that fits, with the number at its end, which tells it from others */
  fitted(text, room) {
    if (this.width(text) <= room) return text;
    const number = text.match(/ [\d–-]+$/)?.[0] ?? "";
    const name = text.slice(0, text.length - number.length);
    const length = Math.floor((name.length * (room - this.width(`…${number}`))) / this.width(name));
    if (length >= 1) return `${name.slice(0, length).trimEnd()}…${number}`;
    return this.width(number.trim()) <= room ? number.trim() : "";
  }

  /** @returns {string[]} the text in one line, or in two that are cut to the room of the first and of the second */
  lines(text, room, hasTwo, second = room) {
    if (!hasTwo || this.width(text) <= room) return [this.fitted(text, room)];
    // The first line has as many words as fit, or as many letters.
    let end = text.length;
    while (end > 0 && this.width(text.slice(0, end)) > room) end = text.lastIndexOf(" ", end - 1);
    if (end <= 0) end = Math.max(1, Math.floor((text.length * room) / this.width(text)));
    return [text.slice(0, end), this.fitted(text.slice(end).trim(), second)];
  }

  width(text) {
    const key = `${this.context.font}\n${text}`;
    let found = widths.get(key);
    if (found === undefined) {
      if (widths.size > 20_000) widths.clear();
      found = this.context.measureText(text).width;
      widths.set(key, found);
    }
    return found;
  }
}

// Draws one frame: boxes far away as bars, nearer as a matrix of their drops, and near by as drops with their edges.

import { COMPLETED, ERROR, GROUPS, WAITING } from "./graph_model.js";
import { drawSign } from "./graph_theme.js";
import { drawNear, DROP_HEIGHT, DROP_WIDTH, Labels } from "./graph_near.js";

/** Height of a cell in pixels from which drops are cells of a matrix, and from which they have names. */
const MATRIX = 3;
const NEAR = 16;
/** A label of a box, whose head is too low for it, is on a plate of this height if the box is large enough. */
const PLATE = 13;
/** A box of this height is a matrix, however small its cells are. */
const LARGE = 90;
const MOST_PAIRS = 1500;
const MOST_SIGNS = 4000;
const MOST_NUMBERS = 40;
/** If more lines are seen, only those of the chosen box have numbers. */
const MOST_NUMBERED = 250;
/** Space beside a drop that is alone, in units of the drawing, into which its name may reach. */
const BETWEEN = 80;
/** Space for the bar and the label above the drops of a box, as a part of the header. */
const LEAST = 0.8;

/** @param {import("./graph_near.js").Frame & {matrix: import("./graph_matrix.js").Matrix, byPairs: Uint32Array, chosenBox: number}} frame */
export function paint(frame) {
  const { context, camera, model, theme } = frame;
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, camera.width + 1, camera.height + 1);
  const cell = model.head.cell[1] * camera.scale;
  frame.visible = visibleBoxes(camera, model);
  const isNear = cell >= NEAR;
  const numbers = !isNear || !model.edges ? drawPairs(frame) : [];
  for (const box of frame.visible) drawBox(frame, box, cell, isNear);
  drawNumbers(context, theme, numbers);
  if (isNear) drawNear(frame);
  else drawChosen(frame);
}

/** How the drops look at this size: for people who cannot see the canvas, and for tests. */
export function distance(camera, model) {
  const cell = model.head.cell[1] * camera.scale;
  return cell >= NEAR ? "near" : cell >= MATRIX ? "middle" : "far";
}

function visibleBoxes(camera, model) {
  const { x, y, width, height } = model.columns;
  const [left, top] = camera.toDrawing(0, 0);
  const [right, bottom] = camera.toDrawing(camera.width, camera.height);
  const found = [];
  for (let box = 0; box < model.boxes; box += 1) {
    if (x[box] < right && y[box] < bottom && x[box] + width[box] > left && y[box] + height[box] > top) found.push(box);
  }
  return found;
}

function drawPairs({ context, camera, model, theme, byPairs, byPart, chosenBox, isPlan, quality }) {
  const { pairSource, pairTarget, pairEdges, pairCut, x, y, width, height } = model.columns;
  const labels = [];
  const buckets = new Map();
  let budget = MOST_PAIRS * quality;
  for (const pair of byPairs) {
    if (budget <= 0) break;
    const [source, target] = [pairSource[pair], pairTarget[pair]];
    if (model.marked && !(model.markedIn[source] && model.markedIn[target])) continue;
    const [a, b] = camera.toScreen(x[source] + width[source] - inset(model, source), y[source] + height[source] / 2);
    const [c, d] = camera.toScreen(x[target] + inset(model, target), y[target] + height[target] / 2);
    const isBeside = Math.max(a, c) < -200 || Math.min(a, c) > camera.width + 200;
    if (isBeside && !model.head.lines?.[1]) continue;
    if (Math.max(b, d) < -200 || Math.min(b, d) > camera.height + 200) continue;
    budget -= 1;
    const isChosen = chosenBox === source || chosenBox === target;
    const isCut = (byPart || isPlan) && pairCut[pair] > 0;
    const thick = Math.min(4, 0.6 + Math.log2(pairEdges[pair] + 1) * 0.28) * (isChosen ? 1.5 : 1);
    const key = `${isChosen ? 2 : isCut ? 1 : 0} ${thick.toFixed(1)}`;
    if (!buckets.has(key)) buckets.set(key, new Path2D());
    const path = buckets.get(key);
    const level = (box, side) => {
      const at = side > 0 ? x[box] + width[box] - inset(model, box) : x[box] + inset(model, box);
      return [[at, at, middleOf(model, box)]];
    };
    const [u, v] = model.ways.add(path, camera, source, target, level(source, 1), level(target, -1));
    if (pairEdges[pair] > 1 && labels.length < 400) {
      labels.push({ x: u, y: v, length: Math.hypot(c - a, d - b), edges: pairEdges[pair], isChosen });
    }
  }
  // Many lines are faint, so that they do not cover each other and the boxes stay in front.
  const drawn = MOST_PAIRS * quality - budget;
  context.globalAlpha = Math.max(0.35, Math.min(1, 120 / Math.max(drawn, 1)));
  for (const [key, path] of buckets) {
    const [kind, thick] = key.split(" ");
    context.lineWidth = Number(thick);
    context.strokeStyle = kind === "2" ? theme.accent : kind === "1" ? theme.error : theme.strong;
    context.setLineDash(kind === "1" ? [6, 4] : []);
    context.stroke(path);
  }
  context.setLineDash([]);
  context.globalAlpha = 1;
  const isFew = drawn <= MOST_NUMBERED && quality === 1;
  return isFew ? labels : labels.filter(({ isChosen }) => isChosen);
}

function middleOf({ columns }, box) {
  return columns.y[box] + columns.height[box] / 2;
}

/** Space between the border of a box and what is drawn of it. */
function inset(model, box) {
  return model.isSingle(box) ? model.head.margin + (model.head.cell[0] - DROP_WIDTH) / 2 : 0;
}

/** Numbers of edges beside the ends of lines, where no other number is, in front of everything else. */
function drawNumbers(context, theme, labels) {
  const taken = [];
  const text = new Labels(context);
  context.font = `11px ${theme.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  labels.sort((one, two) => two.isChosen - one.isChosen);
  for (const { x, y, length, edges } of labels) {
    if (taken.length >= MOST_NUMBERS) break;
    const words = edges.toLocaleString("en");
    const half = text.width(words) / 2 + 4;
    if (length < half * 2 + 30) continue;
    if (taken.some((other) => Math.abs(other.x - x) < other.half + half + 6 && Math.abs(other.y - y) < 18)) continue;
    taken.push({ x, y, half });
    context.fillStyle = theme.paper;
    context.beginPath();
    context.roundRect(x - half, y - 8, half * 2, 16, 8);
    context.fill();
    context.fillStyle = theme.muted;
    context.fillText(words, x, y + 0.5);
  }
}

function drawBox(frame, box, cell, isNear) {
  const { context, camera, model, theme, matrix, byPart, chosenBox } = frame;
  const { columns, head, counts, markedIn } = model;
  const [x, y] = camera.toScreen(columns.x[box], columns.y[box]);
  const width = columns.width[box] * camera.scale;
  const height = columns.height[box] * camera.scale;
  const isDim = model.marked !== null && !markedIn[box];
  if (model.isSingle(box)) {
    if (!isNear) drawSingle(frame, box, cell, isDim);
    return;
  }
  const hasError = counts[box * GROUPS.length + ERROR] > 0;
  const radius = Math.min(7, height * 0.18, width * 0.18);
  if (width < 3 || height < 3) {
    context.globalAlpha = isDim ? 0.25 : 1;
    context.fillStyle = hasError ? theme.error : theme.strong;
    context.fillRect(x, y, Math.max(width, 1), Math.max(height, 1));
    context.globalAlpha = 1;
    return;
  }
  context.globalAlpha = isDim ? 0.3 : 1;
  const isSmall = cell < MATRIX && height < 30;
  if (!isSmall) {
    context.beginPath();
    context.roundRect(x, y, width, height, radius);
    context.fillStyle = theme.raised;
    context.fill();
  }
  const header = columns.header[box] * camera.scale;
  const isMatrix = !isNear && (cell >= MATRIX || height >= LARGE);
  if (isMatrix) {
    const margin = head.margin * camera.scale;
    const inner = columns.rows[box] * cell;
    const across = columns.columns[box] * head.cell[0] * camera.scale;
    matrix.draw(context, box, x + margin, y + header, across, inner);
    if (cell >= 4) drawGaps(frame, box, x + margin, y + header, cell);
    if (cell >= 5 && !byPart) drawErrors(frame, box, x + margin, y + header, cell);
    drawHead(frame, box, x, y, width, header);
  } else if (isNear) {
    drawHead(frame, box, x, y, width, header);
  } else {
    drawFar(frame, box, x, y, width, height);
  }
  context.globalAlpha = isDim ? 0.3 : 1;
  if (isSmall && !hasError && box !== chosenBox) {
    context.globalAlpha = 1;
    return;
  }
  context.beginPath();
  context.roundRect(x, y, width, height, isSmall ? 0 : radius);
  if (hasError && !isDim) {
    context.strokeStyle = theme.error;
    context.lineWidth = Math.min(2.5, Math.max(1.4, height / 14));
  } else {
    context.strokeStyle = box === chosenBox ? theme.accent : theme.strong;
    context.lineWidth = 1;
  }
  context.stroke();
  if (box === chosenBox) {
    context.strokeStyle = theme.accent;
    context.lineWidth = 2;
    context.beginPath();
    context.roundRect(x - 3.5, y - 3.5, width + 7, height + 7, radius + 3);
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** A box with one drop: the drop alone, as it is near by, but without words. */
function drawSingle({ context, camera, model, theme, byPart, chosenBox, visible }, box, cell, isDim) {
  const drop = model.cells[model.first[box]] - 1;
  const { x, y } = model.centre(drop);
  const [mx, my] = camera.toScreen(x, y);
  const width = Math.max(DROP_WIDTH * camera.scale, 3);
  const height = Math.max(DROP_HEIGHT * camera.scale, 3);
  const group = model.group[drop];
  const colour = byPart ? theme.parts[model.columns.part[drop] % theme.parts.length] : theme.groups[group];
  context.globalAlpha = isDim ? 0.2 : 1;
  context.beginPath();
  context.roundRect(mx - width / 2, my - height / 2, width, height, model.templateOf(drop).isApp ? Math.min(3, height * 0.12) : height / 2);
  context.fillStyle = colour;
  context.fill();
  if (group === ERROR && !byPart) {
    context.strokeStyle = theme.error;
    context.lineWidth = 1;
    context.beginPath();
    context.roundRect(mx - width / 2 - 2.5, my - height / 2 - 2.5, width + 5, height + 5, Math.min(7, height / 2));
    context.stroke();
  }
  if (cell >= 5 && !byPart && group > COMPLETED && group < WAITING) {
    const paper = { ...theme, groups: GROUPS.map(() => theme.raised), faint: theme.raised };
    drawSign(context, paper, group, mx, my, Math.min(5, height * 0.3));
  }
  // Below the drop, down to the next box: the name has the same size at each distance, as long as it fits there.
  const across = (model.columns.width[box] + BETWEEN) * camera.scale - 4;
  const room = across < 40 || isDim ? 0 : roomBelow(camera, model, visible, box) - height / 2;
  if (room >= 13) {
    context.font = `10px ${theme.font}`;
    context.textAlign = "center";
    context.textBaseline = "top";
    context.fillStyle = theme.muted;
    const lines = new Labels(context).lines(model.head.labels[box], across, room >= 23);
    lines.forEach((line, at) => context.fillText(line, mx, my + height / 2 + 2 + 10 * at));
  }
  if (box === chosenBox) {
    context.strokeStyle = theme.accent;
    context.lineWidth = 2;
    context.beginPath();
    context.roundRect(mx - width / 2 - 4, my - height / 2 - 4, width + 8, height + 8, height / 2);
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** Pixels from the middle of a box down to the next one, as far as two lines of a name need. */
function roomBelow(camera, { columns: { x, y, width, height } }, visible, box) {
  const middle = y[box] + height[box] / 2;
  let found = 60 / camera.scale;
  for (const other of visible) {
    const isBelow = y[other] > y[box] && x[other] < x[box] + width[box] && x[other] + width[other] > x[box];
    if (isBelow) found = Math.min(found, y[other] + 12 - middle);
  }
  return found * camera.scale;
}

/** A box far away: a label if there is room, and the stacked bar of its drops. */
function drawFar(frame, box, x, y, width, height) {
  const { context, theme, model } = frame;
  const hasLabel = height >= 22 && width >= 40;
  if (!hasLabel) {
    drawBar(frame, box, x, y, width, height);
    return;
  }
  const inset = Math.min(8, width * 0.1);
  const thick = Math.min(9, height * 0.22);
  const text = new Labels(context);
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillStyle = theme.ink;
  context.font = `11px ${theme.font}`;
  const hasCount = height >= 46;
  const middle = y + (height - thick - inset) / 2;
  context.fillText(text.fitted(model.head.labels[box], width - 2 * inset), x + inset, hasCount ? middle - 6 : middle + 1);
  if (hasCount) {
    context.fillStyle = theme.muted;
    context.font = `10px ${theme.font}`;
    const words = `${model.size[box].toLocaleString("en")} drop${model.size[box] === 1 ? "" : "s"}`;
    context.fillText(text.fitted(words, width - 2 * inset), x + inset, middle + 7);
  }
  drawBar(frame, box, x + inset, y + height - inset - thick, width - 2 * inset, thick, Math.min(3, thick / 2));
}

function drawBar({ context, model, theme, byPart }, box, x, y, width, height, radius = 0) {
  if (byPart) {
    const { columns, first, cells } = model;
    const inside = new Map();
    for (let at = first[box]; at < first[box + 1]; at += 1) {
      if (!cells[at]) continue;
      const part = columns.part[cells[at] - 1] % theme.parts.length;
      inside.set(part, (inside.get(part) ?? 0) + 1);
    }
    let left = x;
    for (const [part, number] of [...inside].sort((one, two) => one[0] - two[0])) {
      const wide = (width * number) / model.size[box];
      context.fillStyle = theme.parts[part];
      context.fillRect(left, y, wide + 0.5, height);
      left += wide;
    }
    return;
  }
  const start = box * GROUPS.length;
  const total = model.size[box];
  const fills = width * height > 40 ? theme.fills(context) : theme.groups;
  let widest = 0;
  let rest = width;
  const widths = GROUPS.map((_, group) => {
    const number = model.counts[start + group];
    const wide = number ? Math.max((width * number) / total, LEAST + (group === ERROR ? 1.5 : 0)) : 0;
    rest -= wide;
    return wide;
  });
  widths.forEach((wide, group) => (widest = wide > widths[widest] ? group : widest));
  widths[widest] += rest;
  const last = widths.findLastIndex((wide) => wide > 0);
  let left = x;
  widths.forEach((wide, group) => {
    if (wide <= 0) return;
    context.fillStyle = fills[group];
    // Not a clip, which costs more than all the rest of a frame.
    const [start, end] = [left === x ? radius : 0, group === last ? radius : 0];
    if (start || end) {
      context.beginPath();
      context.roundRect(left, y, wide, height, [start, end, end, start]);
      context.fill();
    } else {
      context.fillRect(left, y, wide + 0.3, height);
    }
    left += wide;
  });
}

/** Label and bar in the head of a box whose drops are below. */
function drawHead(frame, box, x, y, width, header) {
  const { context, theme, model } = frame;
  const inset = Math.min(14, width * 0.08, Math.max(header * 0.45, 1));
  if (header < 13) {
    if (header >= 6) {
      const thick = Math.max(1, Math.min(header * 0.6, 4));
      drawBar(frame, box, x + inset, y + (header - thick) / 2, width - 2 * inset, thick);
    }
    const { height } = model.columns;
    if (width < 40 || height[box] * frame.camera.scale < PLATE + 9) return;
    const text = new Labels(context);
    context.font = `10px ${theme.font}`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    const words = text.fitted(model.head.labels[box], width - 6);
    context.fillStyle = theme.raised;
    context.fillRect(x + 1, y + 1, text.width(words) + 5, PLATE - 1);
    context.fillStyle = theme.ink;
    context.fillText(words, x + 3, y + PLATE / 2 + 1);
    return;
  }
  const size = Math.min(13, Math.max(10, header * 0.42));
  const text = new Labels(context);
  context.font = `600 ${size}px ${theme.font}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillStyle = theme.ink;
  const bar = Math.min(width * 0.35, 180);
  const label = text.fitted(model.head.labels[box], width > 160 ? width - 3 * inset - bar : width - inset - 2);
  context.fillText(label, x + inset, y + header / 2 + 1);
  if (width > 160 && model.size[box] > 1) {
    const thick = Math.min(7, header * 0.25);
    drawBar(frame, box, x + width - inset - bar, y + (header - thick) / 2 + 1, bar, thick);
  }
}

/** Lines between the cells of a matrix, so that drops can be told apart. */
function drawGaps({ context, camera, model, theme }, box, x, y, cell) {
  const { columns, head } = model;
  const across = head.cell[0] * camera.scale;
  const [wide, high] = [Math.max(1, across * 0.1), Math.max(1, cell * 0.22)];
  const [width, height] = [columns.columns[box] * across, columns.rows[box] * cell];
  context.fillStyle = theme.raised;
  const first = Math.max(1, Math.floor(-x / across));
  const last = Math.min(columns.columns[box] - 1, Math.ceil((camera.width - x) / across));
  for (let column = first; column <= last; column += 1) context.fillRect(x + column * across - wide / 2, y, wide, height);
  const top = Math.max(1, Math.floor(-y / cell));
  const bottom = Math.min(columns.rows[box] - 1, Math.ceil((camera.height - y) / cell));
  for (let row = top; row <= bottom; row += 1) context.fillRect(x, y + row * cell - high / 2, width, high);
}

/** Signs on the cells whose state colour alone should not tell. */
function drawErrors({ context, camera, model, theme }, box, x, y, cell) {
  const { columns, head, first, cells, group, counts } = model;
  const start = box * GROUPS.length;
  if (counts[start + COMPLETED] + counts[start + WAITING] === model.size[box]) return;
  const across = columns.columns[box];
  const wide = head.cell[0] * camera.scale;
  const size = Math.min(5, cell * 0.34);
  const high = Math.max(0, Math.floor(-y / cell));
  const low = Math.min(columns.rows[box] - 1, Math.floor((camera.height - y) / cell));
  const left = Math.max(0, Math.floor(-x / wide));
  const right = Math.min(across - 1, Math.floor((camera.width - x) / wide));
  const paper = { ...theme, groups: GROUPS.map(() => theme.raised), faint: theme.raised };
  let budget = MOST_SIGNS;
  for (let row = high; row <= low && budget > 0; row += 1) {
    for (let column = left; column <= right; column += 1) {
      const drop = cells[first[box] + row * across + column] - 1;
      if (drop < 0 || group[drop] === COMPLETED || group[drop] >= WAITING) continue;
      if (model.marked && !model.marked[drop]) continue;
      drawSign(context, paper, group[drop], x + (column + 0.5) * wide, y + (row + 0.5) * cell, size);
      budget -= 1;
    }
  }
}

/** A ring around the chosen drop, where drops are only cells. */
function drawChosen({ context, camera, model, theme }) {
  if (model.selected < 0) return;
  const { x, y } = model.centre(model.selected);
  const [mx, my] = camera.toScreen(x, y);
  const [width, height] = [model.head.cell[0] * camera.scale, model.head.cell[1] * camera.scale];
  context.strokeStyle = theme.accent;
  context.lineWidth = 2;
  context.beginPath();
  context.roundRect(mx - width / 2 - 4, my - height / 2 - 4, width + 8, height + 8, 5);
  context.stroke();
}

// Ways of edges around boxes and drops. Within a line of boxes, an edge passes each column between its ends where there is
// space between two boxes. From one line to another, in drawings that are wrapped, it goes through the space between the
// lines, as the eye goes from the end of a line of text to the beginning of the next.

/** Space beside a box that an edge leaves or reaches, in units of the drawing. */
const SIDE = 22;
/**
 * @typedef {object} Turn
 * @property {number} first height of the space that the edge goes into, in units of the drawing
 * @property {number} last that of the space that it comes from; the same if the lines follow each other
 * @property {number} shift from -1 to 1: edges are drawn beside each other
 */

/**
 * Where an edge leads to another line of boxes; null if it stays in its line.
 *
 * @param {import("./graph_model.js").Model} model
 * @param {number} from height where it begins, in units of the drawing
 * @param {number} to height where it ends
 * @returns {Turn | null}
 */
export function turnOf({ head }, from, to) {
  const { lines } = head;
  if (!lines || lines.length < 2) return null;
  const [one, other] = [lineAt(lines, from), lineAt(lines, to)];
  if (one === other) return null;
  // The higher it begins, the farther it goes to the right and down: edges do not cross each other.
  const [top, bottom] = lines[one];
  const shift = Math.max(-1, Math.min(1, 1 - (2 * (from - top)) / (bottom - top)));
  const [above, below] = [Math.min(one, other), Math.max(one, other)];
  const first = between(lines, one < other ? above : below - 1, shift);
  const last = between(lines, one < other ? below - 1 : above, shift);
  return { first, last, shift };
}

function between(lines, line, shift) {
  const [top, bottom] = [lines[line][1], lines[line + 1][0]];
  return (top + bottom) / 2 + shift * (bottom - top) * 0.28;
}

/** The line that a height is in. */
function lineAt(lines, y) {
  let [low, high] = [0, lines.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lines[middle][1] < y) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Where an edge inside of a box leads back to a lower row, as its columns are wrapped: between two rows; else null.
 *
 * @returns {Turn | null}
 */
export function turnInside({ head }, from, to) {
  if (to.x > from.x || to.y <= from.y) return null;
  const space = to.y - head.cell[1] / 2;
  return { first: space, last: space, shift: 0 };
}

/**
 * Add such an edge to a path, in pixels of the screen; return the middle of its longest part.
 *
 * @param {Path2D} path
 * @param {import("./graph_camera.js").Camera} camera
 * @param {Turn} turn
 */
export function leadBack(path, camera, { first, last, shift }, a, b, c, d) {
  const side = (SIDE + shift * 8) * camera.scale;
  const [edge, y] = camera.toScreen(-2 * SIDE + shift * 16, first);
  const [, z] = camera.toScreen(0, last);
  const points = [[a, b], [a + side, b], [a + side, y]];
  // Past the lines between, if there are any: left of all of them.
  if (first !== last) points.push([edge, y], [edge, z]);
  points.push([c - side, z], [c - side, d], [c, d]);
  round(path, points, 14 * camera.scale);
  return first === last ? [(a + c) / 2, y] : [(a + edge) / 2, y];
}

/** Free space beside a column of boxes, above and below it, in units of the drawing. */
const ASIDE = 16;
/** Edges through the same space are drawn beside each other, so many units apart. */
const APART = 4;

/**
 * A part of an edge that is level: from one x to another. Between two of them, the edge is bent.
 *
 * @typedef {[number, number, number]} Level left, right, y; in units of the drawing
 */

/** The columns of boxes of a drawing, and the ways between them. */
export class Ways {
  /** @param {import("./graph_model.js").Model} model */
  constructor(model) {
    this.model = model;
    const { x, y, width, height } = model.columns;
    const found = new Map();
    for (let box = 0; box < model.boxes; box += 1) {
      const line = model.head.lines?.length ? lineAt(model.head.lines, y[box] + height[box] / 2) : 0;
      const key = `${line} ${Math.round(x[box] + width[box] / 2)}`;
      if (!found.has(key)) found.set(key, { line, left: Infinity, right: -Infinity, boxes: [] });
      const column = found.get(key);
      column.left = Math.min(column.left, x[box]);
      column.right = Math.max(column.right, x[box] + width[box]);
      column.boxes.push(box);
    }
    this.columns = [...found.values()].sort((one, two) => one.line - two.line || one.left - two.left);
    this.columnOf = new Uint32Array(model.boxes);
    this.columns.forEach((column, at) => {
      column.boxes.sort((one, two) => y[one] - y[two]);
      for (const box of column.boxes) this.columnOf[box] = at;
    });
    this.kept = new Map();
  }

  /**
   * How an edge from a box to another one of its line passes the columns between: level parts, from the source to the
   * target. Backwards, it also passes the columns of both.
   *
   * @returns {Level[]}
   */
  between(source, target) {
    const key = source * this.model.boxes + target;
    let found = this.kept.get(key);
    if (!found) {
      found = this.#passages(source, target);
      this.kept.set(key, found);
    }
    return found;
  }

  isBack(source, target) {
    return this.columnOf[target] <= this.columnOf[source];
  }

  #passages(source, target) {
    const { y, height } = this.model.columns;
    const [from, to] = [this.columnOf[source], this.columnOf[target]];
    const isBack = to <= from;
    const [first, last, step] = isBack ? [from, to - 1, -1] : [from + 1, to, 1];
    const shift = (((source * 7 + target * 13) % 5) - 2) * APART;
    const end = y[target] + height[target] / 2;
    let at = y[source] + height[source] / 2;
    const found = [];
    for (let column = first; column !== last; column += step) {
      const left = Math.abs(last - column);
      at = this.#space(this.columns[column], at + (end - at) / (left + 1)) + shift;
      const { left: near, right: far } = this.columns[column];
      found.push([near - 4, far + 4, at]);
    }
    return found;
  }

  /** The height nearest to a wanted one where a column has no box. */
  #space({ boxes }, wanted) {
    const { y, height } = this.model.columns;
    let [low, high] = [0, boxes.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (y[boxes[middle]] + height[boxes[middle]] / 2 < wanted) low = middle + 1;
      else high = middle;
    }
    const end = (box) => y[box] + height[box];
    if (!low) return Math.min(wanted, y[boxes[0]] - ASIDE);
    if (low === boxes.length) return Math.max(wanted, end(boxes[low - 1]) + ASIDE);
    return (end(boxes[low - 1]) + y[boxes[low]]) / 2;
  }

  /**
   * Add an edge between two boxes to a path, in pixels of the screen; return the middle of its last free part.
   *
   * @param {Path2D} path
   * @param {import("./graph_camera.js").Camera} camera
   * @param {Level[]} begin level parts in the source; the last ends at its right side
   * @param {Level[]} end level parts in the target; the first begins at its left side
   */
  add(path, camera, source, target, begin, end) {
    const from = begin.at(-1);
    const to = end[0];
    const turn = turnOf(this.model, from[2], to[2]);
    if (turn) {
      levels(path, camera, begin);
      const middle = leadBack(path, camera, turn, ...camera.toScreen(from[1], from[2]), ...camera.toScreen(to[0], to[2]));
      levels(path, camera, end);
      return middle;
    }
    const passages = this.between(source, target);
    const out = this.columns[this.columnOf[source]].right;
    const into = this.columns[this.columnOf[target]].left;
    if (!this.isBack(source, target)) {
      const last = passages.at(-1) ?? [0, out, from[2]];
      levels(path, camera, [...begin, [out, out, from[2]], ...passages, [into, into, to[2]], ...end]);
      return camera.toScreen((last[1] + into) / 2, (last[2] + to[2]) / 2);
    }
    levels(path, camera, begin);
    const points = [[from[1], from[2]], [out + ASIDE, from[2]]];
    for (const [left, right, y] of passages) points.push([right + ASIDE - 4, y], [left - ASIDE + 4, y]);
    points.push([into - ASIDE, to[2]], [to[0], to[2]]);
    round(path, points.map((point) => camera.toScreen(...point)), 14 * camera.scale);
    levels(path, camera, end);
    return camera.toScreen(into - ASIDE, (passages.at(-1)[2] + to[2]) / 2);
  }
}

/**
 * Where an edge of a drop is level in its box: beside the drop if it is in the last column, else between two rows.
 *
 * @param {1 | -1} side to the right of the drop, or to the left
 * @param {number} towards the height that the edge goes to
 * @returns {Level[]} from the drop to the border of the box; reversed for the left
 */
export function inBox({ columns, head, size }, drop, { x, y }, half, side, towards) {
  const box = columns.box[drop];
  const border = side > 0 ? columns.x[box] + columns.width[box] : columns.x[box];
  const isLast = size[box] === 1 || columns.column[drop] === (side > 0 ? columns.columns[box] - 1 : 0);
  const start = x + side * half;
  if (isLast) return [[Math.min(start, border), Math.max(start, border), y]];
  const space = y + (Math.sign(towards - y) || 1) * (head.cell[1] / 2);
  const cell = x + side * (head.cell[0] / 2);
  const level = [Math.min(cell, border), Math.max(cell, border), space];
  return side > 0 ? [[start, start, y], level] : [level, [start, start, y]];
}

/**
 * Add an edge between two drops of one box, the target right of the source: between two rows of drops, if it passes others.
 */
export function addInside(path, camera, { head }, from, to, half) {
  const [out, into] = [from.x + half, to.x - half];
  const parts = [[out, out, from.y], [into, into, to.y]];
  if (into - out > head.cell[0]) {
    const space = from.y + (Math.round((to.y - from.y) / 2 / head.cell[1] - 0.5) + 0.5) * head.cell[1];
    parts.splice(1, 0, [from.x + head.cell[0] / 2 + 8, to.x - head.cell[0] / 2 - 8, space]);
  }
  levels(path, camera, parts);
}

/** Add level parts, with bends from each to the next. */
function levels(path, camera, parts) {
  let [x, y] = camera.toScreen(parts[0][0], parts[0][2]);
  path.moveTo(x, y);
  for (const [left, right, height] of parts) {
    const [u, v] = camera.toScreen(left, height);
    const bend = Math.max((u - x) * 0.45, 0);
    if (v === y) path.lineTo(u, v);
    else path.bezierCurveTo(x + bend, y, u - bend, v, u, v);
    [x, y] = camera.toScreen(right, height);
    if (x !== u) path.lineTo(x, y);
  }
}

/** Add lines through points, with round corners. */
function round(path, points, radius) {
  path.moveTo(...points[0]);
  for (let at = 1; at < points.length - 1; at += 1) {
    const [before, here, after] = [points[at - 1], points[at], points[at + 1]];
    const length = Math.min(Math.hypot(here[0] - before[0], here[1] - before[1]), Math.hypot(after[0] - here[0], after[1] - here[1]));
    path.arcTo(...here, ...after, Math.min(radius, length / 2));
  }
  path.lineTo(...points.at(-1));
}

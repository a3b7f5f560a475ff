// Edges from one line of boxes to a later one, of drawings that are wrapped: through the space between the lines, as the
// eye goes from the end of a line of text to the beginning of the next.

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

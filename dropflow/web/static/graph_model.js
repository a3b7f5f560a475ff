// The graph that the view shows: boxes, cells and edges from the server, the states of drops, and which are shown apart.

import { Ways } from "./graph_lines.js";

/** Groups of drops by state, in the order of dropflow/web/views.py. Lost drops are CANCELLED; the last group is unknown. */
export const GROUPS = [
  { style: "completed", word: "completed" },
  { style: "error", word: "in error" },
  { style: "skipped", word: "skipped" },
  { style: "cancelled", word: "cancelled" },
  { style: "running", word: "running" },
  { style: "queued", word: "queued" },
  { style: "waiting", word: "waiting" },
  { style: "unknown", word: "unknown" },
];
export const [COMPLETED, ERROR, SKIPPED, CANCELLED, RUNNING, QUEUED, WAITING, UNKNOWN] = GROUPS.keys();

/** Of applications in WRITING, those whose attempt runs, and those whose attempt waits for a worker, have these numbers in
 * place of that of their state: RUNNING and QUEUED in dropflow/api/requests.py, which `plain_states` there takes out. */
const SIGN_RUNNING = 65;
const SIGN_QUEUED = 66;
/** The group of each state by its number in dropflow/states.py. Data in WRITING, which have some of their contents, wait. */
const GROUP_OF = new Uint8Array(256).fill(UNKNOWN);
GROUP_OF.set([WAITING, WAITING, COMPLETED, ERROR, COMPLETED, COMPLETED, CANCELLED, SKIPPED]);
GROUP_OF[SIGN_RUNNING] = RUNNING;
GROUP_OF[SIGN_QUEUED] = QUEUED;

export class Model {
  /**
   * @param {any} head
   * @param {Record<string, any>} columns
   * @param {Model | null} before the same graph with other boxes: its states, edges and selection are kept
   */
  constructor(head, columns, before = null) {
    this.head = head;
    this.columns = columns;
    this.drops = head.drops;
    this.boxes = head.labels.length;
    this.group = before?.group ?? new Uint8Array(this.drops).fill(head.isPlan ? WAITING : UNKNOWN);
    this.edges = before?.edges ?? null;
    /** 1 for each drop that is shown apart; null if all are shown alike. */
    this.marked = before?.marked ?? null;
    this.selected = before?.selected ?? -1;
    /** Whether the states are those of an earlier moment. */
    this.isPast = before?.isPast ?? false;
    this.counts = new Uint32Array(this.boxes * GROUPS.length);
    this.templateCounts = new Uint32Array(head.templates.length * GROUPS.length);
    this.totals = new Uint32Array(GROUPS.length);
    this.markedIn = new Uint32Array(this.boxes);
    this.size = new Uint32Array(this.boxes);
    /** Drops that have changed since the last call of `takeChanged`; null for all. */
    this.changed = null;
    this.#index();
    this.recount();
    this.ways = new Ways(this);
  }

  #index() {
    const { columns, boxes } = this;
    this.first = new Uint32Array(boxes + 1);
    for (let box = 0; box < boxes; box += 1) {
      this.first[box + 1] = this.first[box] + columns.columns[box] * columns.rows[box];
    }
    // One more than the drop in each cell; 0 for an empty cell.
    this.cells = new Uint32Array(this.first[boxes]);
    this.cellOf = new Uint32Array(this.drops);
    const { box, column, row } = columns;
    for (let drop = 0; drop < this.drops; drop += 1) {
      const cell = this.first[box[drop]] + row[drop] * columns.columns[box[drop]] + column[drop];
      this.cells[cell] = drop + 1;
      this.cellOf[drop] = cell;
      this.size[box[drop]] += 1;
    }
  }

  recount() {
    const { box, template } = this.columns;
    this.counts.fill(0);
    this.templateCounts.fill(0);
    this.totals.fill(0);
    for (let drop = 0; drop < this.drops; drop += 1) {
      const group = this.group[drop];
      this.counts[box[drop] * GROUPS.length + group] += 1;
      this.templateCounts[template[drop] * GROUPS.length + group] += 1;
      this.totals[group] += 1;
    }
    this.markedIn.fill(0);
    if (this.marked) {
      for (let drop = 0; drop < this.drops; drop += 1) this.markedIn[box[drop]] += this.marked[drop];
    }
    this.changed = null;
  }

  /** @param {Uint8Array} states of all drops, by row */
  setStates(states) {
    for (let drop = 0; drop < this.drops; drop += 1) {
      this.group[drop] = drop < states.length ? GROUP_OF[states[drop]] : UNKNOWN;
    }
    this.recount();
  }

  /**
   * @param {Uint32Array} drops
   * @param {Uint8Array} states
   */
  changeStates(drops, states) {
    const { box, template } = this.columns;
    const width = GROUPS.length;
    for (let at = 0; at < drops.length; at += 1) {
      const drop = drops[at];
      if (drop >= this.drops) continue;
      const before = this.group[drop];
      const after = GROUP_OF[states[at]];
      if (before === after) continue;
      this.group[drop] = after;
      this.counts[box[drop] * width + before] -= 1;
      this.counts[box[drop] * width + after] += 1;
      this.templateCounts[template[drop] * width + before] -= 1;
      this.templateCounts[template[drop] * width + after] += 1;
      this.totals[before] -= 1;
      this.totals[after] += 1;
      this.changed?.push(drop);
    }
  }

  /** Return the drops that have changed since the last call, or null for all. */
  takeChanged() {
    const changed = this.changed;
    this.changed = [];
    return changed;
  }

  /** @param {Uint32Array | null} drops those to be shown apart; null for none */
  mark(drops) {
    this.marked = drops && new Uint8Array(this.drops);
    for (const drop of drops ?? []) this.marked[drop] = 1;
    this.recount();
  }

  /** @param {any} head @param {Record<string, any>} columns edges by source */
  setEdges(head, { ptr, target, link }) {
    const start = new Uint32Array(this.drops + 1);
    for (const drop of target) start[drop + 1] += 1;
    for (let drop = 0; drop < this.drops; drop += 1) start[drop + 1] += start[drop];
    const next = start.slice(0, this.drops);
    const source = new Uint32Array(target.length);
    const edge = new Uint32Array(target.length);
    for (let drop = 0; drop < this.drops; drop += 1) {
      for (let at = ptr[drop]; at < ptr[drop + 1]; at += 1) {
        const place = next[target[at]]++;
        source[place] = drop;
        edge[place] = at;
      }
    }
    this.edges = { links: head.links, ptr, target, link, start, source, edge };
  }

  /** Whether a box is drawn as the only drop in it. */
  isSingle(box) {
    return this.size[box] === 1 && this.columns.construct[box] === 0;
  }

  /** Middle of a drop's cell in the drawing. */
  centre(drop) {
    const { columns, head } = this;
    const box = columns.box[drop];
    return {
      x: columns.x[box] + head.margin + (columns.column[drop] + 0.5) * head.cell[0],
      y: columns.y[box] + columns.header[box] + (columns.row[drop] + 0.5) * head.cell[1],
    };
  }

  /** @returns {number} the box at a place of the drawing, or -1 */
  boxAt(x, y) {
    const { x: left, y: top, width, height } = this.columns;
    for (let box = 0; box < this.boxes; box += 1) {
      if (x >= left[box] && y >= top[box] && x < left[box] + width[box] && y < top[box] + height[box]) return box;
    }
    return -1;
  }

  /** @returns {number} the drop at a place of the drawing, or -1 */
  dropAt(x, y, box = this.boxAt(x, y)) {
    if (box < 0) return -1;
    const { columns, head } = this;
    const column = Math.floor((x - columns.x[box] - head.margin) / head.cell[0]);
    const row = Math.floor((y - columns.y[box] - columns.header[box]) / head.cell[1]);
    if (column < 0 || row < 0 || column >= columns.columns[box] || row >= columns.rows[box]) return -1;
    return this.cells[this.first[box] + row * columns.columns[box] + column] - 1;
  }

  templateOf(drop) {
    return this.head.templates[this.columns.template[drop]];
  }

  /** Indices of a drop in the constructs around it, as in its id. */
  indexOf(drop) {
    const { shape } = this.templateOf(drop);
    let instance = this.columns.instance[drop];
    if (!shape.length) return "";
    const index = [];
    for (const size of [...shape].reverse()) {
      index.unshift(instance % size);
      instance = Math.floor(instance / size);
    }
    return index.join("-");
  }

  /** Id of a drop; empty for graphs whose drops have ids of their own. */
  oidOf(drop) {
    if (this.head.named) return "";
    const index = this.indexOf(drop);
    return `${this.head.prefix}_${this.templateOf(drop).key}_0${index && `-${index}`}`;
  }
}

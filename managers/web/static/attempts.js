// The attempts of a session as columns: read from the octets of /times and /times/analysis (see docs/reference/rest.md).

const TYPES = {
  "<u4": Uint32Array, "<i4": Int32Array, "<i2": Int16Array, "<u2": Uint16Array, "<f8": Float64Array, "<f4": Float32Array,
  "|u1": Uint8Array,
};
const FIELDS = {
  drop: Uint32Array, attempt: Int16Array, worker: Uint16Array, ready: Float64Array, given: Float64Array,
  begin: Float64Array, end: Float64Array, committed: Float64Array, processor: Float32Array, memory: Float32Array,
  read: Float32Array, written: Float32Array, node: Uint16Array, number: Uint32Array,
};

/** What an attempt waited for, by the `kind` of the analysis. */
export const WAITED_FOR = ["the beginning of the session", "data", "an attempt that failed", "a worker"];

/**
 * @typedef {object} Section
 * @property {any} header
 * @property {Record<string, any>} columns typed arrays
 */

/**
 * The sections of a download.
 *
 * @param {ArrayBuffer} buffer
 * @returns {Generator<Section>}
 */
export function* sections(buffer) {
  const view = new DataView(buffer);
  const text = new TextDecoder();
  let at = 0;
  while (at < buffer.byteLength) {
    const size = view.getUint32(at, true);
    const base = at + 8 + size;
    const header = JSON.parse(text.decode(new Uint8Array(buffer, at + 8, size)));
    const columns = {};
    for (const { name, type, offset, length } of header.columns) {
      columns[name] = new TYPES[type](buffer, base + offset, length);
    }
    yield { header, columns };
    at = base + view.getUint32(at + 4, true);
  }
}

/**
 * @typedef {object} Lane
 * @property {number} node
 * @property {string} name
 * @property {Int32Array} spans attempts in the order of their begins; they do not overlap
 */

export class Attempts {
  constructor() {
    this.clear();
  }

  clear() {
    this.count = 0;
    this.room = 1024;
    /** @type {{name: string, rows: number[]}[]} nodes, with the row of each of their attempts */
    this.nodes = [];
    for (const [name, Type] of Object.entries(FIELDS)) this[name] = new Type(this.room);
    /** Seconds since the epoch that all times are relative to. */
    this.origin = 0;
    this.last = 0;
    this.templates = [];
    /** @type {string[]} */
    this.missing = [];
    this.analysed = null;
  }

  /** The records that are known, for `?since=`. */
  get since() {
    return this.nodes.map(({ name, rows }) => `${encodeURIComponent(name)}:${rows.length}`).join(",");
  }

  /**
   * Add what a node has recorded since; false if that does not continue what is known, and all must be read again.
   *
   * @param {Section} section
   */
  add({ header, columns }) {
    if (header.missing) {
      this.missing.push(header.node);
      return true;
    }
    let node = this.nodes.findIndex(({ name }) => name === header.node);
    if (node < 0) node = this.nodes.push({ name: header.node, rows: [] }) - 1;
    const { rows } = this.nodes[node];
    if (header.first !== rows.length) return false;
    const added = columns.drop.length;
    this.#grow(this.count + added);
    if (added) this.#begin(columns.ready.reduce((least, time) => Math.min(least, time), Infinity));
    for (let from = 0; from < added; from += 1) {
      const row = this.count + from;
      for (const name of ["drop", "attempt", "worker", "processor", "memory", "read", "written"]) {
        this[name][row] = columns[name][from];
      }
      const ready = columns.ready[from] - this.origin;
      this.ready[row] = ready;
      this.given[row] = ready + columns.waited[from];
      this.begin[row] = this.given[row] + columns.queued[from];
      this.end[row] = this.begin[row] + columns.ran[from];
      this.committed[row] = this.end[row] + columns.committed[from];
      this.last = Math.max(this.last, this.committed[row]);
      this.node[row] = node;
      this.number[row] = rows.length;
      rows.push(row);
    }
    this.count += added;
    return true;
  }

  /** @param {Section} section the analysis */
  analyse({ header, columns }) {
    const base = new Map();
    let first = 0;
    header.nodes.forEach((name, index) => {
      base.set(name, { first, count: header.counts[index] });
      first += header.counts[index];
    });
    this.templates = header.templates;
    this.analysed = { columns, bases: this.nodes.map(({ name }) => base.get(name) ?? { first: 0, count: 0 }), base };
  }

  /** The row of an attempt in the analysis, or -1 if it is younger than that. */
  analysisRow(row) {
    if (!this.analysed) return -1;
    const base = this.analysed.bases[this.node[row]];
    const number = this.number[row];
    return base && number < base.count ? base.first + number : -1;
  }

  /** A value of the analysis for an attempt; undefined if it is younger than that. */
  known(row, name) {
    const at = this.analysisRow(row);
    return at < 0 ? undefined : this.analysed.columns[name][at];
  }

  /** The attempt that another one waited for, or -1. */
  before(row) {
    let at = this.known(row, "before") ?? -1;
    if (at < 0) return -1;
    for (const { name, rows } of this.nodes) {
      const base = this.analysed.base.get(name);
      if (base && at >= base.first && at < base.first + base.count) return rows[at - base.first];
    }
    return -1;
  }

  /** @returns {Lane[]} a lane for each worker, and as many as needed for attempts without one, node after node */
  lanes() {
    const found = [];
    this.nodes.forEach(({ rows }, node) => {
      const workers = new Map();
      const without = [];
      for (const row of rows) {
        const worker = this.worker[row];
        if (!worker) without.push(row);
        else if (workers.has(worker)) workers.get(worker).push(row);
        else workers.set(worker, [row]);
      }
      const inOrder = (list) => Int32Array.from(list).sort((one, other) => this.begin[one] - this.begin[other]);
      for (const worker of [...workers.keys()].sort((one, other) => one - other)) {
        found.push({ node, name: `worker ${worker}`, spans: inOrder(workers.get(worker)) });
      }
      const lanes = [];
      for (const row of inOrder(without)) {
        let lane = lanes.findIndex(({ end }) => end <= this.begin[row]);
        if (lane < 0) lane = lanes.push({ end: 0, list: [] }) - 1;
        lanes[lane].list.push(row);
        lanes[lane].end = this.end[row];
      }
      lanes.forEach(({ list }, index) => {
        found.push({ node, name: `thread ${index + 1}`, spans: Int32Array.from(list) });
      });
    });
    return found;
  }

  /**
   * The idle time before an attempt in three pieces: waiting for data, for a message, and for a worker.
   *
   * @param {number} row
   * @param {number} before when its lane became free
   * @returns {number[]} where the pieces end, the first one at `before`
   */
  gap(row, before) {
    const start = Math.min(before, this.begin[row]);
    const ready = Math.min(Math.max(this.ready[row], start), this.begin[row]);
    const inputs = this.known(row, "inputs");
    const isFirst = Math.abs(this.attempt[row]) === 1;
    const there = isFirst && inputs !== undefined ? (Number.isNaN(inputs) ? start : this.ready[row] + inputs) : ready;
    return [start, Math.min(Math.max(there, start), ready), ready, this.begin[row]];
  }

  /** Have all times begin with the first one: a node may answer later, and have begun earlier. */
  #begin(first) {
    const shift = this.origin - first;
    if (this.count && shift <= 0) return;
    this.origin = first;
    for (const name of ["ready", "given", "begin", "end", "committed"]) {
      for (let row = 0; row < this.count; row += 1) this[name][row] += shift;
    }
    if (this.count) this.last += shift;
  }

  #grow(count) {
    if (count <= this.room) return;
    while (this.room < count) this.room *= 2;
    for (const [name, Type] of Object.entries(FIELDS)) {
      const larger = new Type(this.room);
      larger.set(this[name].subarray(0, this.count));
      this[name] = larger;
    }
  }
}

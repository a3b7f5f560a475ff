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
 * @property {Running | null} running the attempt that has begun and not ended
 *
 * @typedef {object} Running
 * @property {number} drop
 * @property {number} template index into `templates`
 * @property {number} worker
 * @property {number} begin
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
    /** @type {{drop: number, template: number, worker: number, since: number}[][]} by node, what runs now */
    this.running = [];
    /** By node, the clock of the node less that of this page, in seconds. */
    this.clocks = [];
    /** By node, the time of its last answer. */
    this.answered = [];
    /** By node, the other sessions that its workers are busy with while this one waits for them. */
    this.busyWith = [];
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
    let node = this.nodes.findIndex(({ name }) => name === header.node);
    if (node < 0) node = this.nodes.push({ name: header.node, rows: [] }) - 1;
    this.busyWith[node] = header.busy_with ?? [];
    if (header.missing) {
      this.running[node] = [];
      this.missing.push(header.node);
      return true;
    }
    const { rows } = this.nodes[node];
    if (header.first !== rows.length) return false;
    const added = columns.drop.length;
    this.running[node] = Array.from(columns.running_drop ?? [], (drop, at) => ({
      drop, template: columns.running_template[at], worker: columns.running_worker[at], since: columns.running_since[at],
    }));
    if (!this.count && !added && this.running[node].length) {
      this.origin = Math.min(this.origin || Infinity, ...this.running[node].map(({ since }) => since || Infinity));
    }
    this.clocks[node] = (header.now ?? 0) - performance.now() / 1000;
    this.answered[node] = header.now ?? 0;
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

  /** Whether an attempt runs now. */
  get isRunning() {
    return this.running.some((list) => list.length > 0);
  }

  /** Why nothing runs on a node, as far as that is known; empty if there is nothing to explain. */
  idleReason(node) {
    const { name, rows } = this.nodes[node];
    if (this.missing.includes(name)) return "it does not answer";
    const others = this.busyWith[node];
    if (others.length) return `its workers are busy with session${others.length > 1 ? "s" : ""} ${others.join(", ")}`;
    return rows.length || this.running[node].length ? "" : "no attempt of this session has run there";
  }

  /** Now, by the clock of a node, as other times. */
  now(node) {
    return this.clocks[node] + performance.now() / 1000 - this.origin;
  }

  /**
   * Until when an attempt runs, as far as that is known: it grows by as much as it had run in the last answer of its
   * node. One that had just begun then may have ended since, and is not drawn until now.
   */
  until({ begin }, node) {
    const known = this.answered[node] - this.origin;
    return Math.max(Math.min(this.now(node), 2 * known - begin), begin);
  }

  /** The latest time of all. */
  get latest() {
    return this.running.reduce(
      (most, list, node) => list.reduce((least, { since }) => Math.max(least, this.until({ begin: since - this.origin }, node)), most),
      this.last,
    );
  }

  /** When an attempt was to begin and to end; null without a plan. */
  plan(row) {
    if (!this.analysed?.columns.planned_end) return null;
    const [begin, end] = [this.known(row, "planned_begin"), this.known(row, "planned_end")];
    return end === undefined || Number.isNaN(end) ? null : { begin, end };
  }

  get hasPlan() {
    return Boolean(this.analysed?.columns.planned_end);
  }

  /** How much later the attempts of a lane ended than they were to end; null without a plan. */
  lateness({ spans }) {
    if (!this.hasPlan) return null;
    let [planned, ended] = [-Infinity, -Infinity];
    for (const span of spans) {
      planned = Math.max(planned, this.plan(span)?.end ?? -Infinity);
      ended = Math.max(ended, this.end[span]);
    }
    return planned > -Infinity ? ended - planned : null;
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
    const at = this.known(row, "before") ?? -1;
    if (at < 0) return -1;
    for (const { name, rows } of this.nodes) {
      const base = this.analysed.base.get(name);
      if (base && at >= base.first && at < base.first + base.count) return rows[at - base.first];
    }
    return -1;
  }

  /** @returns {Lane[]} a lane for each worker, as many as needed for attempts without one, and one for an idle node */
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
      const running = [...(this.running[node] ?? [])];
      const take = (worker, spans) => {
        const at = running.findIndex((one) => one.worker === worker);
        return at < 0 ? null : this.#begun(running.splice(at, 1)[0], node, spans);
      };
      for (const { worker } of running) if (worker && !workers.has(worker)) workers.set(worker, []);
      const inOrder = (list) => Int32Array.from(list).sort((one, other) => this.begin[one] - this.begin[other]);
      for (const worker of [...workers.keys()].sort((one, other) => one - other)) {
        const spans = inOrder(workers.get(worker));
        found.push({ node, name: `worker ${worker}`, spans, running: take(worker, spans) });
      }
      const lanes = [];
      for (const row of inOrder(without)) {
        let lane = lanes.findIndex(({ end }) => end <= this.begin[row]);
        if (lane < 0) lane = lanes.push({ end: 0, list: [] }) - 1;
        lanes[lane].list.push(row);
        lanes[lane].end = this.end[row];
      }
      // Those that run without a worker process are on lanes that were free when they began.
      for (const one of running.filter(({ worker }) => !worker)) {
        const begin = one.since - this.origin;
        let lane = lanes.findIndex(({ end, isTaken }) => !isTaken && end <= begin + 1e-3);
        if (lane < 0) lane = lanes.push({ end: 0, list: [] }) - 1;
        lanes[lane].isTaken = true;
      }
      lanes.forEach(({ list, isTaken }, index) => {
        const spans = Int32Array.from(list);
        found.push({ node, name: `thread ${index + 1}`, spans, running: isTaken ? take(0, spans) : null });
      });
      if (!workers.size && !lanes.length) found.push({ node, name: "idle", spans: new Int32Array(0), running: null });
    });
    return found;
  }

  /** An attempt that runs; null if it has ended meanwhile. It began when its worker had ended the one before it. */
  #begun({ drop, template, worker, since }, node, spans) {
    const last = spans.length ? spans[spans.length - 1] : -1;
    const free = last < 0 ? 0 : this.end[last];
    const given = since ? since - this.origin : 0;
    if (last >= 0 && this.drop[last] === drop && free > given) return null;
    return { drop, template, worker, begin: Math.max(given, free) };
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

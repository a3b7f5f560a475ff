// What the page of a timeline shows: attempts in lanes, the part that is in view, and what is chosen in it.

import { Attempts } from "./attempts.js";
import { RULER, draw, layOut, pixelWords, readColours } from "./timeline_canvas.js";
import { Viewport, firstAfter } from "./viewport.js";

const [OTHER, COMPLETED, ERROR, LATE, EARLY] = [8, 9, 10, 11, 12];
/** Time between two frames while attempts run, in milliseconds. */
const FRAME = 100;

export class Timeline {
  /** @param {HTMLElement} root the section of the page */
  constructor(root) {
    this.root = root;
    this.box = root.querySelector(".timeline-box");
    this.canvas = root.querySelector("canvas");
    this.spacer = root.querySelector(".timeline-spacer");
    this.panel = root.querySelector(".timeline-panel");
    this.attempts = new Attempts();
    this.view = new Viewport(1);
    this.shown = { colours: "template", showsPath: true, showsPlan: true, chosen: -1, pointed: null, area: null };
    this.rows = [];
    this.path = [];
    /** By template, its place among those with a colour of their own, or -1. */
    this.ranks = [];
    this.colours = readColours();
    this.laneRow = new Int32Array(0);
    this.palette = [];
    this.words = new Uint32Array(0);
    this.shades = new Uint8Array(0);
    this.hasPlan = false;
    this.frame = 0;
    this.timer = 0;
    /** Called when another attempt, gap or area is to be explained. */
    this.onChoice = () => {};
  }

  /** Forget all attempts, and what was chosen of them: the session was deleted, and another one has its name. */
  restart() {
    this.attempts.clear();
    [this.path, this.ranks] = [[], []];
    Object.assign(this.shown, { chosen: -1, pointed: null, area: null });
    this.arrange();
    this.onChoice();
  }

  /** Put attempts into lanes again: there are more. */
  arrange() {
    const { attempts } = this;
    this.hasPlan = attempts.hasPlan;
    const found = layOut(attempts.lanes(), attempts);
    this.rows = found.rows;
    this.laneRow = new Int32Array(attempts.count);
    this.rows.forEach((row, index) => row.lane?.spans.forEach((span) => (this.laneRow[span] = index)));
    this.spacer.style.height = `${found.height + RULER}px`;
    this.view.extend(attempts.latest);
    this.shade();
    this.resize();
  }

  /** The analysis is there: the critical path, and the logical nodes that took most together get a colour each. */
  analysed() {
    const { attempts } = this;
    this.path = [];
    for (let row = 0; row < attempts.count; row += 1) if (attempts.known(row, "critical")) this.path.push(row);
    this.path.sort((one, other) => attempts.committed[one] - attempts.committed[other]);
    const sums = attempts.templates.map(() => 0);
    for (let row = 0; row < attempts.count; row += 1) {
      const template = attempts.known(row, "template");
      if (template !== undefined) sums[template] += attempts.end[row] - attempts.begin[row];
    }
    const order = sums.map((_, index) => index).sort((one, other) => sums[other] - sums[one]);
    this.ranks = sums.map(() => -1);
    order.slice(0, 8).forEach((template, rank) => {
      if (sums[template] > 0 || attempts.known(0, "template") === template) this.ranks[template] = rank;
    });
    if (attempts.hasPlan !== this.hasPlan) this.arrange();
    else this.shade();
  }

  /** Choose the colour of each attempt. */
  shade() {
    const { attempts, colours, shown } = this;
    this.palette = [...colours.series, colours.other, colours.completed, colours.error, colours.worker, colours.accent];
    this.words = pixelWords(this.palette);
    this.shades = new Uint8Array(attempts.count);
    for (let span = 0; span < attempts.count; span += 1) {
      const template = attempts.known(span, "template");
      let found = OTHER;
      if (shown.colours === "state") found = attempts.attempt[span] < 0 ? ERROR : COMPLETED;
      else if (template !== undefined && shown.colours === "template") found = this.shadeOf(template);
      else if (template !== undefined && attempts.templates[template].planned) {
        const ratio = (attempts.end[span] - attempts.begin[span]) / attempts.templates[template].planned;
        found = ratio > 1.5 ? ERROR : ratio > 1.1 ? LATE : ratio < 0.67 ? EARLY : COMPLETED;
      }
      this.shades[span] = found;
    }
  }

  /** The colour of a logical node; of what runs, whose state and time are not known, in all colourings. */
  shadeOf(template) {
    if (this.shown.colours !== "template") return EARLY;
    return this.ranks[template] >= 0 ? this.ranks[template] : OTHER;
  }

  /** Read the colours of the page again: it is dark or light now. */
  recolour() {
    this.colours = readColours();
    this.shade();
    this.paintSoon();
  }

  resize() {
    const { box, canvas, spacer } = this;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const width = box.clientWidth;
    const height = Math.min(spacer.offsetHeight, Math.max(box.clientHeight, 120));
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paintSoon();
  }

  paintSoon() {
    this.frame ||= requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    this.frame = 0;
    const began = performance.now();
    const { attempts, box, canvas, view, shown, rows } = this;
    if (attempts.isRunning) {
      view.extend(attempts.latest);
      // What runs grows: the times are known, so nothing is asked for.
      this.timer ||= setTimeout(() => {
        this.timer = 0;
        if (!document.hidden) this.paintSoon();
      }, FRAME);
    }
    const drawn = draw(canvas.getContext("2d"), {
      width: box.clientWidth, height: canvas.clientHeight, left: this.left, scroll: box.scrollTop, rows, view, attempts,
      colours: this.colours, shades: this.shades, palette: this.palette, words: this.words, path: this.path,
      showsPath: shown.showsPath, showsPlan: shown.showsPlan && attempts.hasPlan, chosen: shown.chosen,
      area: this.#areaInPixels(), rowOf: (span) => rows[this.laneRow[span]], shadeOf: (template) => this.shadeOf(template),
    });
    canvas.dataset.from = view.from.toPrecision(9);
    canvas.dataset.to = view.to.toPrecision(9);
    canvas.dataset.drawn = String(drawn);
    canvas.dataset.running = String(rows.filter(({ lane }) => lane?.running).length);
    canvas.dataset.took = (performance.now() - began).toFixed(1);
  }

  #areaInPixels() {
    const { area } = this.shown;
    if (!area) return null;
    const top = RULER + area.first - this.box.scrollTop;
    return { ...area, top: Math.max(top, RULER), bottom: top + area.last - area.first };
  }

  // Places.

  /** Width of the names of lanes, in pixels. */
  get left() {
    return this.box.clientWidth < 600 ? 74 : 104;
  }

  /** Width of a pixel, in seconds. */
  get pixel() {
    return (this.view.to - this.view.from) / (this.box.clientWidth - this.left);
  }

  timeAt(x) {
    return this.view.from + (x - this.left) * this.pixel;
  }

  /** The attempt at a point, what runs there, or the gap before an attempt. */
  find(x, y) {
    const at = y - RULER + this.box.scrollTop;
    const row = y < RULER ? undefined : this.rows.find(({ top, height }) => at >= top && at < top + height);
    if (!row?.lane || x < this.left) return null;
    const { attempts } = this;
    const { lane } = row;
    const { spans, running } = lane;
    const time = this.timeAt(x);
    const near = 1.5 * this.pixel;
    if (running && time >= running.begin && time <= attempts.until(running, lane.node) + near) {
      return { span: -1, free: 0, lane, running, isGap: false };
    }
    const number = firstAfter(spans, attempts.end, time - near);
    if (number === spans.length) {
      return attempts.idleReason(lane.node) ? { span: -1, free: 0, lane, isGap: true, isIdle: true } : null;
    }
    const span = spans[number];
    const free = number > 0 ? attempts.end[spans[number - 1]] : 0;
    if (attempts.begin[span] <= time + near) return { span, free, lane, isGap: false };
    return time > free ? { span, free, lane, isGap: true } : null;
  }

  /** An attempt, as `find` returns it. */
  spot(span) {
    const { lane } = this.rows[this.laneRow[span]];
    const number = lane.spans.indexOf(span);
    return { span, free: number > 0 ? this.attempts.end[lane.spans[number - 1]] : 0, lane, isGap: false };
  }

  // Choices.

  choose(span) {
    const { attempts, box, canvas, shown, view } = this;
    shown.chosen = span;
    if (span >= 0) {
      shown.pointed = null;
      const row = this.rows[this.laneRow[span]];
      if (row.top < box.scrollTop) box.scrollTop = row.top;
      const height = canvas.clientHeight - RULER;
      if (row.top + row.height > box.scrollTop + height) box.scrollTop = row.top + row.height - height;
      if (attempts.begin[span] > view.to || attempts.end[span] < view.from) {
        const half = (view.to - view.from) / 2;
        view.show(attempts.begin[span] - half, attempts.begin[span] + half);
      }
    }
    this.onChoice();
    this.paintSoon();
  }

  /** Choose the neighbour of the chosen attempt: by `along` on its lane, by `across` on another one. */
  step(along, across) {
    const { attempts, box, rows, shown, view } = this;
    const nearest = (spans, time) => spans[Math.min(firstAfter(spans, attempts.end, time), spans.length - 1)];
    if (shown.chosen < 0) {
      const visible = rows.find((row) => row.lane?.spans.length && row.top + row.height > box.scrollTop);
      if (visible) this.choose(nearest(visible.lane.spans, view.from));
      return;
    }
    let index = this.laneRow[shown.chosen];
    if (along) {
      const { spans } = rows[index].lane;
      const number = spans.indexOf(shown.chosen) + along;
      if (number >= 0 && number < spans.length) this.choose(spans[number]);
      return;
    }
    do index += across;
    while (rows[index] && !rows[index].lane?.spans.length);
    if (rows[index]) this.choose(nearest(rows[index].lane.spans, attempts.begin[shown.chosen]));
  }

  /** What zooming by keys leaves in its place. */
  get centre() {
    const { attempts, shown, view } = this;
    const { chosen } = shown;
    if (chosen >= 0 && attempts.end[chosen] >= view.from && attempts.begin[chosen] <= view.to) {
      return (attempts.begin[chosen] + attempts.end[chosen]) / 2;
    }
    return (view.from + view.to) / 2;
  }

  /** Have the chosen attempt fill the view. */
  showChosen() {
    const { attempts, shown, view } = this;
    const length = Math.max(attempts.end[shown.chosen] - attempts.ready[shown.chosen], 1e-5);
    view.show(attempts.ready[shown.chosen] - length, attempts.end[shown.chosen] + length);
  }
}

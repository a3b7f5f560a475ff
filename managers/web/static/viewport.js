// Which part of the time a canvas shows, and the marks of its ruler. Nothing here touches the page.

const NEAREST = 1e-6;

export class Viewport {
  /** @param {number} end length of the whole, in seconds */
  constructor(end) {
    this.end = Math.max(end, NEAREST);
    this.from = 0;
    this.to = this.end;
  }

  /** Whether all of the time is shown. */
  get isWhole() {
    return this.from <= 0 && this.to >= this.end;
  }

  /** Note that the whole is longer now; a view of the whole stays one. */
  extend(end) {
    const wasWhole = this.isWhole;
    this.end = Math.max(end, NEAREST);
    if (wasWhole) this.fit();
  }

  fit() {
    this.from = 0;
    this.to = this.end;
  }

  /** Show exactly this, if it is not too short. */
  show(from, to) {
    const length = Math.min(Math.max(to - from, NEAREST), this.end * 1.1);
    const middle = (from + to) / 2;
    this.from = middle - length / 2;
    this.to = middle + length / 2;
    this.#keep();
  }

  /** Make everything `factor` times as wide, and leave what is at `time` where it is. */
  zoom(factor, time) {
    const length = Math.min(Math.max((this.to - this.from) / factor, NEAREST), this.end);
    const share = (time - this.from) / (this.to - this.from);
    this.from = time - share * length;
    this.to = this.from + length;
    this.#keep();
  }

  /** Move by a share of what is shown. */
  pan(share) {
    const step = share * (this.to - this.from);
    this.from += step;
    this.to += step;
    this.#keep();
  }

  #keep() {
    const length = this.to - this.from;
    if (this.to > this.end) this.from = this.end - length;
    if (this.from < 0) this.from = 0;
    this.to = this.from + length;
  }
}

/**
 * Times for marks that are 1, 2 or 5 times a power of ten apart.
 *
 * @param {number} from
 * @param {number} to
 * @param {number} most how many there may be
 * @returns {{times: number[], step: number}}
 */
export function marks(from, to, most) {
  const least = (to - from) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((found) => found >= least * 0.999999);
  const times = [];
  for (let number = Math.ceil(from / step - 1e-9); number * step <= to * (1 + 1e-12); number += 1) times.push(number * step);
  return { times, step };
}

/**
 * A time of the ruler as text, as exact as the distance of the marks.
 *
 * @param {number} seconds
 * @param {number} step
 */
export function markText(seconds, step) {
  if (step >= 60) {
    const minutes = Math.round(seconds / 60);
    return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")}`;
  }
  const [unit, size] = step >= 0.1 ? ["s", 1] : step >= 1e-4 ? ["ms", 1e-3] : ["µs", 1e-6];
  const digits = Math.max(0, -Math.floor(Math.log10((step / size) * 1.0001)));
  return `${(seconds / size).toFixed(digits)} ${unit}`;
}

/**
 * The first of the sorted `spans` whose end is after a time.
 *
 * @param {Int32Array} spans
 * @param {Float64Array} ends by span
 * @param {number} time
 */
export function firstAfter(spans, ends, time) {
  let low = 0;
  let high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[spans[middle]] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

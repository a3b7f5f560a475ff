// A slider over the time of a session: the server says how the session was at the chosen moment, one request at a time.

import { formatBrief } from "./formatting.js";
import { Latest } from "./latest.js";

const STEPS = 1000;
const PATIENCE = 10_000;

export class Scrub {
  /**
   * @param {HTMLElement} root has a slider, an output and a button; hidden until the session has times
   * @param {{hasStates?: boolean, time?: number, onMoment: (moment: any) => void, onNow: (moment: any) => void}} options
   *   `time` is the moment that is shown first, in seconds since the epoch; without it, now
   */
  constructor(root, options) {
    this.root = root;
    this.options = options;
    this.slider = root.querySelector("input");
    this.output = root.querySelector("output");
    this.button = root.querySelector("button");
    this.began = 0;
    this.ended = 0;
    this.requests = new Latest(() => this.#fetch());
    this.wasPast = false;
    this.asked = -Infinity;
    /** The moment that was asked for, between two steps of the slider. */
    this.exact = options.time ?? 0;
    this.slider.addEventListener("input", () => {
      this.exact = 0;
      this.#ask();
    });
    // How long the session is now, before the slider moves.
    this.slider.addEventListener("focus", () => !this.isPast && this.#ask());
    this.button.addEventListener("click", () => {
      this.slider.value = String(STEPS);
      this.exact = 0;
      this.#ask();
    });
    this.#ask();
  }

  /** Whether a moment before the present is shown. */
  get isPast() {
    return Number(this.slider.value) < STEPS;
  }

  /** The session has changed: ask again whether it has times, if it had none. */
  renew() {
    if (this.root.hidden && performance.now() - this.asked > PATIENCE) this.#ask();
  }

  #ask() {
    this.requests.want(true);
  }

  async #fetch() {
    const { isPast } = this;
    this.asked = performance.now();
    const time = isPast ? this.exact || this.began + (Number(this.slider.value) / STEPS) * (this.ended - this.began) : 1e12;
    const query = new URLSearchParams({ time: String(time), states: String(Boolean(this.options.hasStates)) });
    try {
      const answer = await fetch(`${this.root.dataset.moment}?${query}`, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      this.#show(await answer.json(), isPast);
    } catch (error) {
      this.output.textContent = `not known now: ${error.message}`;
    }
  }

  #show(moment, isPast) {
    // While a moment is shown, the ends stay: the slider must not move under the pointer.
    if (!isPast || !this.ended) [this.began, this.ended] = [moment.began, moment.ended];
    if (this.exact && !isPast && !this.wasPast && this.exact < this.ended) {
      const share = (this.exact - this.began) / (this.ended - this.began);
      this.slider.value = String(Math.max(0, Math.min(STEPS - 1, Math.round(share * STEPS))));
      this.#ask();
    }
    this.root.hidden = !(moment.ended > moment.began);
    const words = isPast ? `${formatBrief(moment.time - this.began)} of ${formatBrief(this.ended - this.began)}` : "now";
    this.output.textContent = words;
    this.slider.setAttribute("aria-valuetext", isPast ? `${words} after the beginning` : words);
    this.button.disabled = !isPast;
    this.root.dataset.shown = String(isPast);
    if (isPast) this.options.onMoment(moment);
    else if (this.wasPast) this.options.onNow(moment);
    this.wasPast = isPast;
  }
}

// The states of the drops of a session, from its event stream.

import { octets } from "./graph_columns.js";

/**
 * @typedef {object} StateListener
 * @property {(states: Uint8Array) => void} onWhole the states of all drops, by row
 * @property {(drops: Uint32Array, states: Uint8Array) => void} onChange
 * @property {(state: "live" | "over" | "lost" | "gone", words?: string) => void} onState
 */

const AGAIN = 5_000;

export class StateStream {
  /**
   * @param {string} address
   * @param {StateListener} listener
   */
  constructor(address, listener) {
    this.address = address;
    this.listener = listener;
    this.source = null;
    this.timer = 0;
    this.isOver = false;
  }

  /** Start. Idempotent. */
  open() {
    if (this.source || this.isOver) return;
    const source = new EventSource(this.address);
    this.source = source;
    const on = (name, take) => source.addEventListener(name, (event) => take(event.data && JSON.parse(event.data)));
    on("open", () => this.listener.onState("live"));
    on("whole", ({ states }) => {
      this.listener.onWhole(octets(states));
      this.listener.onState("live");
    });
    on("change", ({ drops, states }) => {
      this.listener.onChange(new Uint32Array(octets(drops).buffer), octets(states));
      this.listener.onState("live");
    });
    on("trouble", (error) => this.listener.onState("lost", error.text));
    on("gone", () => this.#end("gone"));
    on("end", () => this.#end("over"));
    source.addEventListener("error", () => {
      if (source !== this.source) return;
      this.listener.onState("lost");
      if (source.readyState !== EventSource.CLOSED) return;
      // Refused: too many streams. The browser does not try again.
      this.source = null;
      this.timer = setTimeout(() => this.open(), AGAIN);
    });
  }

  /** Stop; `open` may follow. */
  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  #end(state) {
    this.isOver = true;
    this.close();
    this.listener.onState(state);
  }
}

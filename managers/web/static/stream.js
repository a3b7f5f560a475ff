// Follows one session by server-sent events, or by polling its JSON twin if there is no stream.

const ASKING = 2_000;
const ASKS_BEFORE_STREAM = 10;

/**
 * @typedef {object} Listener
 * @property {(whole: object) => void} onWhole the whole session
 * @property {(change: object) => void} onChange fields that differ; `logical` has only the nodes that differ
 * @property {() => void} onEnd the session is over
 * @property {(state: "live" | "polling" | "lost" | "gone" | "locked", words?: string) => void} onState
 */

export class Following {
  /**
   * @param {string} events address of the stream
   * @param {string} twin address of the page as JSON
   * @param {Listener} listener
   */
  constructor(events, twin, listener) {
    this.events = events;
    this.twin = twin;
    this.listener = listener;
    this.source = null;
    this.timer = 0;
    this.asked = 0;
    this.closings = 0;
    this.isOpen = false;
  }

  /** Start. Idempotent. */
  open() {
    if (this.isOpen) return;
    this.isOpen = true;
    this.#stream();
  }

  /** Stop; `open` may follow. */
  close() {
    this.isOpen = false;
    this.closings += 1;
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  #stream() {
    const source = new EventSource(this.events);
    this.source = source;
    source.addEventListener("open", () => this.listener.onState("live"));
    source.addEventListener("session", (event) => {
      this.listener.onState("live");
      this.listener.onWhole(JSON.parse(event.data));
    });
    source.addEventListener("change", (event) => {
      this.listener.onState("live");
      this.listener.onChange(JSON.parse(event.data));
    });
    source.addEventListener("trouble", (event) => this.listener.onState("lost", JSON.parse(event.data).text));
    source.addEventListener("gone", () => this.#stop("gone"));
    source.addEventListener("end", () => this.#finish());
    source.addEventListener("error", () => {
      if (source !== this.source) return;
      if (source.readyState === EventSource.CLOSED) {
        // Refused: too many streams, or a proxy that allows none. The browser does not try again.
        this.source = null;
        this.asked = 0;
        this.#ask();
      } else {
        this.listener.onState("lost");
      }
    });
  }

  async #ask() {
    const closings = this.closings;
    let answer;
    let body;
    try {
      answer = await fetch(this.twin, { cache: "no-store", signal: AbortSignal.timeout(30_000) });
      body = answer.ok ? await answer.json() : null;
    } catch {
      answer = null;
    }
    if (closings !== this.closings) return; // `open` may have followed, which asks by itself
    if (answer?.status === 404) return this.#stop("gone");
    if (answer?.status === 401) return this.#stop("locked");
    if (body) {
      this.listener.onState("polling");
      this.listener.onWhole(body.session);
      if (["FINISHED", "FAILED", "CANCELLED"].includes(body.session.status)) return this.#finish();
    } else {
      this.listener.onState("lost");
    }
    this.asked += 1;
    this.timer = setTimeout(() => (this.asked >= ASKS_BEFORE_STREAM ? this.#stream() : this.#ask()), ASKING);
  }

  #finish() {
    this.close();
    this.listener.onEnd();
  }

  #stop(state) {
    this.close();
    this.listener.onState(state);
  }
}

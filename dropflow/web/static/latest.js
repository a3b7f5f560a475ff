// Requests to the server, one at a time: of those that were wanted meanwhile, only the last is sent.

/** Calls `ask` for the last of the wanted things, one at a time. */
export class Latest {
  #ask;
  #wanted = null;
  #isBusy = false;

  constructor(ask) {
    this.#ask = ask;
  }

  async want(thing) {
    this.#wanted = thing;
    if (this.#isBusy) return;
    this.#isBusy = true;
    while (this.#wanted !== null) {
      const next = this.#wanted;
      this.#wanted = null;
      await this.#ask(next).catch(() => {}); // a manager that does not answer: what is shown stays
    }
    this.#isBusy = false;
  }
}

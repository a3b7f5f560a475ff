// The boxes as a list beside the canvas, for people who do not see it, and to find those with errors.

import { make, sign } from "./graph_panel.js";
import { ERROR, GROUPS, RUNNING } from "./graph_model.js";

const PAGE = 60;

export class BoxList {
  /**
   * @param {HTMLElement} place
   * @param {(box: number) => void} onChoose
   */
  constructor(place, onChoose) {
    this.place = place;
    this.onChoose = onChoose;
    this.shown = PAGE;
    this.rows = new Map();
    this.more = make("button", { type: "button", className: "plain more" });
    this.last = make("li", {}, [this.more]);
  }

  /** @param {import("./graph_model.js").Model} model */
  show(model, { isNew = false } = {}) {
    if (isNew) {
      this.shown = PAGE;
      this.rows.clear();
      this.place.replaceChildren();
    }
    const { counts, size } = model;
    const of = (box, group) => counts[box * GROUPS.length + group];
    const order = [...size.keys()];
    // Errors first, then what is active, then in the order of the graph.
    order.sort((one, two) => of(two, ERROR) - of(one, ERROR) || (of(two, RUNNING) > 0) - (of(one, RUNNING) > 0) || one - two);
    const visible = model.marked ? order.filter((box) => model.markedIn[box]) : order;
    const items = visible.slice(0, this.shown).map((box) => this.#row(model, box));
    if (visible.length > this.shown) {
      const more = Math.min(PAGE, visible.length - this.shown);
      this.more.textContent = `${more} more of ${visible.length.toLocaleString("en")}`;
      this.more.onclick = () => this.#more(model);
      items.push(this.last);
    }
    // What is taken out and put back between press and release of a button is not clicked.
    const before = this.place.children;
    if (before.length === items.length && items.every((item, at) => item === before[at])) return;
    const focus = this.place.contains(document.activeElement) ? document.activeElement : null;
    this.place.replaceChildren(...items);
    focus?.focus({ preventScroll: true });
  }

  #more(model) {
    this.shown += PAGE;
    this.show(model);
  }

  #row(model, box) {
    let row = this.rows.get(box);
    if (!row) {
      const numbers = make("span", { className: "graph-numbers" });
      const button = make("button", { type: "button", className: "plain", onclick: () => this.onChoose(box) }, [make("bdi", {}, [model.head.labels[box]]), numbers]);
      row = { item: make("li", {}, [button]), numbers, looks: "" };
      this.rows.set(box, row);
    }
    const number = model.size[box];
    const groups = GROUPS.map((_, group) => [group, model.counts[box * GROUPS.length + group]]).filter(([, count]) => count);
    const looks = `${groups}`;
    if (looks !== row.looks) {
      row.looks = looks;
      const parts = model.head.isPlan
        ? [make("span", {}, [`${number.toLocaleString("en")} ${number === 1 ? "drop" : "drops"}`])]
        : groups.slice(0, 3).map(([group, count]) => {
            const found = sign(group, count.toLocaleString("en"));
            found.append(make("span", { className: "unseen" }, [` ${GROUPS[group].word}`]));
            return found;
          });
      row.numbers.replaceChildren(...parts);
    }
    return row.item;
  }
}

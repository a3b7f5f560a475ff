// The panel beside the canvas: the drop or box that is chosen, with what can be done with it.

import { refusal } from "./graph_columns.js";
import { GROUPS, ERROR, RUNNING, UNKNOWN, WAITING } from "./graph_model.js";

/** @param {string} name @param {Record<string, any>} [set] @param {(Node | string)[]} [inside] */
export function make(name, set = {}, inside = []) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(set)) {
    if (key.startsWith("on")) found.addEventListener(key.slice(2), value);
    else if (key in found) found[key] = value;
    else found.setAttribute(key, value);
  }
  found.append(...inside);
  return found;
}

/**
 * @typedef {object} PanelActions
 * @property {(drop: number) => void} choose
 * @property {(of: string, drop: number) => void} select
 * @property {(box: number) => void} zoomTo
 * @property {(construct: number, isOpen: boolean) => void} fold
 * @property {() => void} close
 */

export class Panel {
  /**
   * @param {HTMLElement} place
   * @param {{api: string, page: string, names: string}} addresses `api` and `page` are empty before deployment
   * @param {PanelActions} actions
   */
  constructor(place, addresses, actions) {
    this.place = place;
    this.addresses = addresses;
    this.actions = actions;
    this.wanted = 0;
  }

  clear() {
    this.wanted += 1;
    this.place.hidden = true;
    this.place.replaceChildren();
  }

  /** @param {import("./graph_model.js").Model} model */
  async showDrop(model, drop) {
    const wanted = ++this.wanted;
    const { name, category, isApp } = model.templateOf(drop);
    const index = model.indexOf(drop);
    const facts = make("dl", { className: "facts" });
    const fact = (word, ...values) => facts.append(make("dt", {}, [word]), make("dd", {}, values));
    if (!model.head.isPlan) fact("State", sign(model.group[drop]));
    fact("Kind", `${isApp ? "application" : "data"}, ${category || "–"}`);
    fact(model.head.places.length ? "Node" : "Part", placeOf(model, drop));
    const more = make("div");
    const { api, page } = this.addresses;
    // It is there before its address is known, so that the buttons beside it do not move under the pointer.
    const opening = make("a", { className: "button primary" }, ["Open its page"]);
    const actions = make("div", { className: "actions" }, [...(api ? [opening] : []), ...this.#selections(model, drop)]);
    this.#fill(make("bdi", {}, [index ? `${name} ${index}` : name]), [facts, actions, more]);
    const oid = model.oidOf(drop) || (await this.#nameOf(drop));
    if (wanted !== this.wanted || !oid) return;
    more.append(make("p", { className: "mono small" }, [make("bdi", {}, [oid])]));
    if (!api) return;
    opening.href = `${page}/drops/${encodeURIComponent(oid)}`;
    try {
      const answer = await fetch(`${api}/drops/${encodeURIComponent(oid)}?limit=8`);
      if (!answer.ok) throw new Error(await refusal(answer));
      const detail = await answer.json();
      if (wanted === this.wanted) this.#detail(model, facts, more, detail);
    } catch (error) {
      if (wanted === this.wanted) more.append(make("p", { className: "muted" }, [String(error.message)]));
    }
  }

  #detail(model, facts, more, detail) {
    const fact = (word, ...values) => facts.append(make("dt", {}, [word]), make("dd", {}, values));
    if (model.isPast) {
      more.append(make("p", { className: "muted small" }, ["As it was. What it waits for, took along or wrote is known for now: see its page."]));
    } else {
      fact("Attempt", String(detail.attempt));
      if (!detail.is_app) fact("Size", detail.size === null || detail.size === undefined ? "–" : `${detail.size.toLocaleString("en")} B`);
    }
    if (detail.failure && (!model.isPast || model.group[detail.drop] === ERROR)) {
      more.append(make("div", { className: "note error" }, [make("p", {}, [make("bdi", {}, [detail.failure.text])])]));
    } else if (!model.isPast) {
      more.append(...detail.reasons.slice(0, 4).map((reason) => make("p", { className: "small" }, [make("bdi", {}, [reason])])));
    }
    for (const [word, all, count] of [["Inputs", detail.inputs, detail.input_count], ["Outputs", detail.outputs, detail.output_count]]) {
      if (!count) continue;
      more.append(make("h3", {}, [word, " ", make("span", { className: "muted small" }, [count.toLocaleString("en")])]));
      more.append(
        make(
          "ul",
          { className: "graph-links" },
          all.map((other) => make("li", {}, [this.#dropButton(model, other.drop, other.name)])),
        ),
      );
    }
  }

  #dropButton(model, drop, name) {
    const index = model.indexOf(drop);
    const words = make("bdi", {}, [index ? `${name} ${index}` : name]);
    return make("button", { type: "button", className: "plain", onclick: () => this.actions.choose(drop) }, [sign(model.group[drop], ""), words]);
  }

  #selections(model, drop) {
    const group = model.group[drop];
    const isNow = !model.isPast; // the server follows failures and waits in the present states
    const some = [
      ["upstream", "Upstream", true],
      ["downstream", "Downstream", true],
      ["failure", "What this failure took along", isNow && group === ERROR],
      ["waiting", "What it waits for", isNow && group === WAITING && !model.head.isPlan],
      ["chain", "Waiting chain", isNow && group === WAITING && !model.head.isPlan],
    ];
    return some
      .filter(([, , isPossible]) => isPossible)
      .map(([of, word]) => make("button", { type: "button", onclick: () => this.actions.select(of, drop) }, [word]));
  }

  async #nameOf(drop) {
    try {
      const answer = await fetch(`${this.addresses.names}?drops=${drop}`);
      return answer.ok ? (await answer.json()).names[0] : "";
    } catch {
      return "";
    }
  }

  /** @param {import("./graph_model.js").Model} model */
  showBox(model, box) {
    this.wanted += 1;
    const counts = make("ul", { className: "legend" });
    if (!model.head.isPlan) {
      GROUPS.forEach((_, group) => {
        const number = model.counts[box * GROUPS.length + group];
        if (number) counts.append(make("li", {}, [sign(group), " ", make("b", {}, [number.toLocaleString("en")])]));
      });
    }
    const number = model.size[box];
    const actions = make("div", { className: "actions" }, [
      make("button", { type: "button", className: "primary", onclick: () => this.actions.zoomTo(box) }, ["Zoom to it"]),
    ]);
    const construct = model.columns.construct[box] - 1;
    if (construct >= 0) {
      const { name, isOpen, is_open: open = isOpen } = model.head.constructs[construct];
      const word = open ? `Close ${name}` : `Open ${name}`;
      actions.append(make("button", { type: "button", onclick: () => this.actions.fold(construct, !open) }, [word]));
      model.head.constructs.forEach((inner, row) => {
        if (inner.parent !== construct || !open) return;
        const words = inner.is_open ? `Close ${inner.name} inside` : `Open ${inner.name} inside`;
        actions.append(make("button", { type: "button", onclick: () => this.actions.fold(row, !inner.is_open) }, [words]));
      });
    }
    const words = make("p", { className: "muted" }, [`${number.toLocaleString("en")} ${number === 1 ? "drop" : "drops"}`]);
    this.#fill(make("bdi", {}, [model.head.labels[box]]), [words, counts, actions]);
  }

  #fill(title, inside) {
    const close = make("button", { type: "button", className: "plain", ariaLabel: "Close", title: "Close", onclick: () => this.actions.close() }, ["✕"]);
    this.place.hidden = false;
    this.place.replaceChildren(make("div", { className: "graph-panel-head" }, [make("h2", {}, [title]), close]), ...inside);
  }
}

/** Sign and word of a group of states. */
export function sign(group, word = GROUPS[group].word) {
  const style = group === UNKNOWN ? "waiting" : group === RUNNING ? "running" : GROUPS[group].style;
  return make("span", { className: `state ${style}` }, [word]);
}

function placeOf(model, drop) {
  const part = model.columns.part[drop];
  return make("bdi", {}, [model.head.places[part] ?? String(part)]);
}

// The page of a physical graph: what is chosen and shown, and what is around its canvas.

import { fetchAgain, fetchColumns, octets, refusal } from "./graph_columns.js";
import { GraphCanvas, ZOOM } from "./graph_canvas.js";
import { BoxList } from "./graph_list.js";
import { LogicalGraph } from "./graph_logical.js";
import { GROUPS, Model, WAITING } from "./graph_model.js";
import { make, Panel, sign } from "./graph_panel.js";
import { Scrub } from "./scrub.js";
import { StateStream } from "./graph_states.js";

/** Milliseconds between two updates of the list, the legend and the logical graph. */
const BESIDE_INTERVAL = 500;
/** Milliseconds after a refusal from which the edges are asked for again, with the next frame that shows single drops. */
const EDGES_AGAIN = 2_000;
/** Pixels by which an arrow key moves the picture. */
const ARROW_STEP = 90;
/** Widths by heights of the drawings that are asked for: few, since the server keeps each. */
const ASPECTS = [0.6, 1, 1.7, 2.5];
/** Names in the legend of parts. */
const MOST_PARTS = 24;

/** Words for the state of the connection, and for an earlier moment. */
const LIVENESS = { past: "as it was", live: "live", over: "over", lost: "connection lost, trying again", gone: "this was deleted" };

/** What buttons do, by their attribute data-do. */
const COMMANDS = {
  in: ({ view }) => view.camera.zoom(ZOOM ** 2),
  out: ({ view }) => view.camera.zoom(ZOOM ** -2),
  fit: ({ view }) => view.fit(),
  critical: (page) => page.select("critical"),
};

const KEYS = {
  ArrowLeft: ({ view }) => view.camera.pan(ARROW_STEP, 0),
  ArrowRight: ({ view }) => view.camera.pan(-ARROW_STEP, 0),
  ArrowUp: ({ view }) => view.camera.pan(0, ARROW_STEP),
  ArrowDown: ({ view }) => view.camera.pan(0, -ARROW_STEP),
  "+": ({ view }) => view.camera.zoom(ZOOM),
  "=": ({ view }) => view.camera.zoom(ZOOM),
  "-": ({ view }) => view.camera.zoom(1 / ZOOM),
  f: ({ view }) => view.fit(),
  Enter: ({ view }) => view.clickAt(view.camera.width / 2, view.camera.height / 2),
  Escape: (page) => (page.selection ? page.unselect() : page.unchoose()),
};

class GraphPage {
  /** @param {HTMLElement} root as in graph_view.tpl */
  constructor(root) {
    const { base, events, api, page, by } = root.dataset;
    const hash = hashOfAddress();
    this.root = root;
    this.base = base;
    this.isPlan = !events;
    this.note = root.querySelector(".graph-note");
    /** What the boxes are, as the server calls it. */
    this.grouping = hash.get("by") ?? (by || "construct");
    /** Whether a construct is open, by its row, of those that have been opened or closed. */
    this.folds = new Map();
    /** What is shown apart, as in the address: the kind of the selection, and its drop or text. */
    this.selection = "";
    /** The moment that is shown, in seconds since the epoch; 0 for now. */
    this.moment = Number(hash.get("time")) || 0;
    /** States that came before the drawing, and whether they are of an earlier moment. */
    this.early = null;
    this.isEarlyPast = false;
    /** Requests, so that an answer that comes after that of a later one is not shown. */
    this.drawingsAsked = 0;
    this.selectionsAsked = 0;
    this.areEdgesAsked = false;
    this.besideTimer = 0;
    this.besideUpdated = 0; // of performance.now()
    this.view = new GraphCanvas(root.querySelector(".graph-stage"), {
      isPlan: this.isPlan,
      onClick: (drop, box) => (drop >= 0 ? this.chooseDrop(drop) : box >= 0 ? this.chooseBox(box) : this.unchoose()),
      onNear: () => this.#loadEdges(),
    });
    this.list = new BoxList(root.querySelector("#graph-boxes"), (box) => {
      this.chooseBox(box);
      this.view.goToBox(box);
    });
    this.panel = new Panel(root.querySelector("#graph-panel"), { api, page, names: `${base}/names` }, {
      choose: (drop) => this.showDrop(drop),
      select: (of, drop) => this.select(of, drop),
      zoomTo: (box) => this.view.goToBox(box),
      fold: (construct, isOpen) => {
        this.folds.set(construct, isOpen);
        this.load();
      },
      close: () => {
        this.unchoose();
        this.view.canvas.focus();
      },
    });
    this.logical = new LogicalGraph(root.querySelector("#graph-logical"), (key) => this.select("key", 0, key));
    this.#listen();
    if (events) this.#follow(events);
    root.querySelector("#graph-by").value = this.grouping;
    this.load();
    this.#loadLogical();
  }

  /** The graph that is shown; null until the first drawing is there. */
  get model() {
    return this.view.model;
  }

  // What comes from the server.

  /** Fetch the drawing, for the boxes that are wanted now. */
  async load() {
    const number = ++this.drawingsAsked;
    const { clientWidth, clientHeight } = this.view.canvas;
    const shape = clientWidth / Math.max(clientHeight, 1);
    const aspect = ASPECTS.reduce((best, one) => (Math.abs(one - shape) < Math.abs(best - shape) ? one : best)).toFixed(1);
    const query = new URLSearchParams({ by: this.grouping, aspect });
    const rows = (wanted) => [...this.folds].filter(([, isOpen]) => isOpen === wanted).map(([row]) => row).join(",");
    if (rows(true)) query.set("open", rows(true));
    if (rows(false)) query.set("closed", rows(false));
    let found;
    try {
      found = await fetchColumns(`${this.base}/drawing?${query}`);
    } catch (error) {
      this.say(error.message);
      return;
    }
    if (number === this.drawingsAsked) this.#show(found);
  }

  #show({ head, columns }) {
    const { view, early } = this;
    const isFirst = this.model === null;
    const model = new Model({ ...head, isPlan: this.isPlan }, columns, this.model);
    if (isFirst && early) model.setStates(early);
    model.isPast ||= isFirst && this.isEarlyPast;
    this.early = null;
    view.show(model);
    if (model.selected >= 0) this.showDrop(model.selected);
    else this.panel.clear();
    if (!(isFirst && this.#readAddress())) view.fit(false);
    this.#updateList();
    this.#updateLegend();
    this.logical.update(model);
    view.canvas.dataset.boxes = String(model.boxes);
    this.root.dataset.ready = "yes";
  }

  async #loadEdges() {
    if (this.areEdgesAsked) return;
    this.areEdgesAsked = true;
    try {
      const { head, columns } = await fetchColumns(`${this.base}/edges`);
      this.model.setEdges(head, columns);
      this.view.redraw();
    } catch (error) {
      this.say(error.message);
      setTimeout(() => (this.areEdgesAsked = false), EDGES_AGAIN);
    }
  }

  async #loadLogical() {
    const { logical } = this;
    try {
      const answer = await fetchAgain(`${this.base}/logical`);
      if (!answer.ok) throw new Error(await refusal(answer));
      logical.show(await answer.json());
      const { model } = this;
      if (!model) return;
      logical.update(model);
      if (model.selected >= 0) logical.choose(model.columns.template[model.selected]);
    } catch (error) {
      this.say(error.message);
    }
  }

  /** Show the states of a session as they change, and those of the moment that is chosen. */
  #follow(events) {
    const stream = new StateStream(events, {
      onWhole: (states) => {
        if (this.model) this.#applyStates(() => this.model.setStates(states));
        else this.early = states;
      },
      onChange: (drops, states) => {
        if (!this.model) {
          drops.forEach((drop, at) => this.early && (this.early[drop] = states[at]));
          return;
        }
        this.#applyStates(() => this.model.changeStates(drops, states));
        scrub.renew();
      },
      onState: (state, words) => this.#showLiveness(state, words),
    });
    const scrub = new Scrub(document.getElementById("scrub"), {
      hasStates: true,
      time: this.moment,
      onMoment: (found) => {
        stream.close();
        this.#showLiveness("past");
        this.#showMoment(found, true);
      },
      onNow: (found) => {
        this.#showMoment(found, false);
        if (stream.isOver) this.#showLiveness("over");
        else stream.open();
      },
    });
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) stream.close();
      else if (!scrub.isPast) stream.open();
    });
    stream.open();
  }

  #applyStates(change) {
    change();
    this.#updateBesideSoon();
    this.view.redraw();
  }

  #showMoment(found, isPast) {
    const { model } = this;
    this.moment = isPast ? found.time : 0;
    this.#writeAddress();
    if (!model) {
      [this.early, this.isEarlyPast] = [octets(found.states), isPast];
      return;
    }
    const drop = model.selected;
    const before = [model.isPast, model.group[drop]];
    model.setStates(octets(found.states));
    model.isPast = isPast;
    if (drop >= 0 && (before[0] !== isPast || before[1] !== model.group[drop])) this.panel.showDrop(model, drop);
    this.#updateBesideSoon();
    this.view.redraw();
  }

  #showLiveness(state, words = LIVENESS[state]) {
    const place = this.root.querySelector(".live");
    if (!place) return;
    place.hidden = false;
    place.dataset.state = state === "gone" ? "lost" : state;
    if (place.textContent !== words) place.textContent = words;
  }

  // What is chosen: a drop, a box, or nothing.

  chooseDrop(drop) {
    this.#choose(drop, -1);
    this.panel.showDrop(this.model, drop);
  }

  /** Choose a drop, and move the camera there. */
  showDrop(drop) {
    this.chooseDrop(drop);
    this.view.goToDrop(drop);
  }

  chooseBox(box) {
    this.#choose(-1, box);
    this.panel.showBox(this.model, box);
  }

  unchoose() {
    this.#choose(-1, -1);
    this.panel.clear();
  }

  #choose(drop, box) {
    this.model.selected = drop;
    this.view.chosenBox = box;
    this.logical.choose(drop >= 0 ? this.model.columns.template[drop] : -1);
    this.#writeAddress();
    this.view.redraw();
  }

  // What is shown apart.

  /** Show some drops apart: those that the server finds. */
  async select(of, drop = 0, text = "") {
    const query = new URLSearchParams({ of, drop: String(drop), text });
    const number = ++this.selectionsAsked;
    try {
      const { head, columns } = await fetchColumns(`${this.base}/selection?${query}`);
      if (number !== this.selectionsAsked) return;
      this.selection = `${of}:${of === "text" || of === "key" ? text : drop}`;
      if (!head.count) {
        this.#mark(null);
        this.say(`${head.title}.`);
        return;
      }
      this.#mark(columns.drops);
      this.say(`Shown: ${head.title}${/^[\d,]+ drop/.test(head.title) ? "" : `, ${head.count.toLocaleString("en")} ${head.count === 1 ? "drop" : "drops"}`}.`, true);
      if (of === "text" && head.count === 1) this.showDrop(columns.drops[0]);
      else this.view.goToDrops(columns.drops);
    } catch (error) {
      if (number === this.selectionsAsked) this.say(error.message);
    }
  }

  unselect() {
    this.selectionsAsked += 1;
    this.selection = "";
    this.#mark(null);
    this.note.hidden = true;
  }

  #mark(drops) {
    this.model.mark(drops);
    this.#updateList();
    this.#writeAddress();
    this.view.redraw();
  }

  async #findDrop(oid) {
    const query = new URLSearchParams({ of: "oid", text: oid });
    const { columns } = await fetchColumns(`${this.base}/selection?${query}`);
    if (columns.drops.length) this.showDrop(columns.drops[0]);
  }

  /** @param {string} words over the canvas, until they are closed */
  say(words, isSelection = false) {
    const onclick = isSelection ? () => this.unselect() : () => (this.note.hidden = true);
    const close = make("button", { type: "button", className: "plain", onclick }, [isSelection ? "Show all" : "Close"]);
    this.note.hidden = false;
    this.note.replaceChildren(make("span", {}, [words]), close);
  }

  // The address of the page has what is chosen and shown, so that it can be sent to others.

  #writeAddress() {
    const hash = new URLSearchParams();
    if (this.grouping !== "construct") hash.set("by", this.grouping);
    if (this.model?.selected >= 0) hash.set("drop", String(this.model.selected));
    if (this.selection) hash.set("show", this.selection);
    if (this.moment) hash.set("time", String(this.moment));
    history.replaceState(null, "", `${location.pathname}${location.search}${`${hash}` && `#${hash}`}`);
  }

  /** @returns {boolean} whether the address has something that the camera goes to */
  #readAddress() {
    const hash = hashOfAddress();
    const drop = Number(hash.get("drop") ?? "-1");
    const [of, ...rest] = (hash.get("show") ?? "").split(":");
    const oid = hash.get("oid");
    const isThere = Number.isInteger(drop) && drop >= 0 && drop < this.model.drops;
    if (of || isThere || oid) this.view.fit(false);
    if (of) this.select(of, Number(rest.join(":")) || 0, rest.join(":"));
    if (isThere) this.showDrop(drop);
    if (oid) this.#findDrop(oid);
    return Boolean(of || isThere || oid);
  }

  // Legend and list.

  #updateLegend() {
    const { model } = this;
    const { theme, byPart } = this.view;
    const place = this.root.querySelector("#graph-legend");
    if (byPart) {
      const names = [...Array(Math.min(model.head.parts, MOST_PARTS)).keys()].map((part) => model.head.places[part] ?? `part ${part}`);
      place.replaceChildren(
        ...names.map((name, part) => {
          const swatch = make("span", { className: "graph-swatch" });
          swatch.style.background = theme.parts[part % theme.parts.length];
          return make("li", {}, [swatch, make("bdi", {}, [name])]);
        }),
      );
      return;
    }
    place.replaceChildren(
      ...GROUPS.map((_, group) => [group, model.totals[group]])
        .filter(([group, number]) => group < WAITING || number)
        .map(([group, number]) =>
          make("li", { className: number ? "" : "zero" }, [sign(group), " ", make("b", {}, [number.toLocaleString("en")])]),
        ),
    );
  }

  /** Show the boxes of another drawing or selection in the list. */
  #updateList() {
    clearTimeout(this.besideTimer);
    this.besideTimer = 0;
    this.besideUpdated = performance.now();
    this.list.show(this.model, { isNew: true });
  }

  /** Update what is beside the canvas after states have changed. */
  #updateBesideSoon() {
    this.besideTimer ||= setTimeout(
      () => {
        const { model, panel, view } = this;
        this.besideTimer = 0;
        this.besideUpdated = performance.now();
        this.list.show(model);
        this.#updateLegend();
        this.logical.update(model);
        if (view.chosenBox >= 0 && !panel.place.contains(document.activeElement)) panel.showBox(model, view.chosenBox);
      },
      Math.max(0, this.besideUpdated + BESIDE_INTERVAL - performance.now()),
    );
  }

  // Bar and keyboard.

  #listen() {
    const { root } = this;
    root.querySelector("#graph-by").addEventListener("change", ({ target }) => {
      this.grouping = target.value;
      this.folds = new Map();
      this.#writeAddress();
      this.load();
    });
    root.querySelector("#graph-colour")?.addEventListener("change", ({ target }) => {
      this.view.colourBy(target.value === "part");
      if (this.model) this.#updateLegend();
    });
    root.querySelector("#graph-find").addEventListener("submit", (event) => {
      event.preventDefault();
      const text = root.querySelector("#graph-text").value.trim();
      if (text) this.select("text", 0, text);
      else this.unselect();
    });
    root.addEventListener("click", ({ target }) => {
      const command = target.closest?.("[data-do]")?.dataset.do;
      if (command && this.model) COMMANDS[command]?.(this);
    });
    addEventListener("keydown", (event) => this.#onKey(event));
  }

  #onKey(event) {
    if (!this.model || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, select, textarea")) return;
    if (event.key === "/") {
      event.preventDefault();
      this.root.querySelector("#graph-text").focus();
      return;
    }
    // Arrows and Enter are for the canvas: elsewhere they scroll the page and press buttons.
    const isOnCanvas = event.target === this.view.canvas;
    if (!isOnCanvas && (event.key.startsWith("Arrow") || event.key === "Enter")) return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act(this);
  }
}

function hashOfAddress() {
  return new URLSearchParams(location.hash.slice(1));
}

new GraphPage(document.getElementById("graph"));

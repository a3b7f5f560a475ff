// The picture of an array: zooms, moves, and tells the value under the pointer. The server cuts, averages and draws; it
// is asked for one picture and one value at a time.

import { Latest } from "./latest.js";

const LEAST = 4;
const STEP = 1.5;
const WHEEL = 1.0015;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

class Viewer {
  constructor(root) {
    this.root = root;
    this.frame = root.querySelector(".frame");
    this.image = root.querySelector("img");
    this.output = root.querySelector("output");
    this.form = document.querySelector(".content-form");
    this.across = Number(root.dataset.across);
    this.down = Number(root.dataset.down);
    const [left, top, right, bottom] = root.dataset.region.split(" ").map(Number);
    this.region = { left, top, width: right - left, height: bottom - top };
    this.pictures = new Latest((query) => this.#show(query));
    this.values = new Latest((query) => this.#tell(query));
    this.buttons = this.#makeButtons();
    this.slider = this.#makeSlider();
    this.dress();
    this.#listen();
  }

  /** Add what the page of the server does not have; again after the page was updated from it. */
  dress() {
    // The box keeps its size while the picture in it changes.
    this.frame.style.aspectRatio = `${this.across} / ${this.down}`;
    this.frame.style.width = `${this.root.dataset.width}px`;
    this.image.classList.add("fills");
    this.root.append(this.buttons);
    if (this.slider) this.form.elements.namedItem("plane").after(this.slider);
  }

  /** Show what is `factor` times as near, and leave the value at these shares of the picture where it is. */
  zoom(factor, x = 0.5, y = 0.5) {
    const width = Math.min(Math.max(this.region.width / factor, Math.min(LEAST, this.across)), this.across);
    const height = Math.min(Math.max((width * this.down) / this.across, 1), this.down);
    this.#go(this.region.left + x * (this.region.width - width), this.region.top + y * (this.region.height - height), width, height);
  }

  /** Move by shares of what is shown. */
  move(x, y) {
    const { left, top, width, height } = this.region;
    this.#go(left + x * width, top + y * height, width, height);
  }

  whole() {
    this.#go(0, 0, this.across, this.down);
  }

  #go(left, top, width, height) {
    this.region = {
      left: Math.min(Math.max(left, 0), this.across - width),
      top: Math.min(Math.max(top, 0), this.down - height),
      width,
      height,
    };
    this.#draw();
  }

  #draw() {
    const { left, top, width, height } = this.region;
    const query = this.#query(Math.floor(left), Math.floor(top), Math.ceil(left + width), Math.ceil(top + height));
    history.replaceState(null, "", `?${query}#data`);
    this.pictures.want(query);
  }

  /** What is asked of the server: the fields of the form, and a part of the picture. */
  #query(left, top, right, bottom) {
    const query = new URLSearchParams(this.form ? new FormData(this.form) : undefined);
    for (const [name, value] of Object.entries({ left, top, right, bottom })) query.set(name, String(value));
    return query;
  }

  async #show(query) {
    const next = new Image();
    next.src = `${this.root.dataset.picture}?${query}`;
    const [, answer] = await Promise.all([next.decode(), fetch(`${this.root.dataset.preview}?${query}`)]);
    const preview = await answer.json();
    this.image.src = next.src;
    this.image.classList.toggle("pixels", preview.width * 2 < this.frame.clientWidth);
    this.#fill(this.root.querySelector(".ticks"), preview.scale.map((value) => element("span", Number(value.toPrecision(4)))));
    this.root.querySelector(".scale").className = `scale ${query.get("colours") ?? "grey"}`;
    const facts = preview.facts.flatMap(([word, value]) => [element("dt", word), element("dd", value)]);
    this.#fill(this.root.parentElement.querySelector("dl.facts"), facts);
    this.#fill(document.querySelector("#data .notes"), preview.notes.map((note) => element("p", note)));
  }

  async #tell(query) {
    const answer = await fetch(`${this.root.dataset.preview}?${query}`);
    if (answer.ok) this.output.textContent = (await answer.json()).facts.map((fact) => fact.join(" ")).join("   ");
  }

  #fill(parent, children) {
    parent?.replaceChildren(...children);
  }

  #makeButtons() {
    const bar = document.createElement("div");
    bar.className = "viewer-buttons";
    for (const [text, name, act] of [
      ["+", "Nearer", () => this.zoom(STEP)],
      ["−", "Farther", () => this.zoom(1 / STEP)],
      ["All", "The whole plane", () => this.whole()],
    ]) {
      const button = element("button", text);
      button.type = "button";
      button.title = name;
      button.addEventListener("click", act);
      bar.append(button);
    }
    return bar;
  }

  /** A slider beside the number of the plane. */
  #makeSlider() {
    const number = this.form?.elements.namedItem("plane");
    if (!number) return null;
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: number.min, max: number.max, value: number.value });
    slider.setAttribute("aria-label", "Plane");
    slider.addEventListener("input", () => (number.value = slider.value));
    number.addEventListener("input", () => (slider.value = number.value));
    return slider;
  }

  #listen() {
    this.form?.addEventListener("input", (event) => event.target.name !== "part" && this.#draw());
    this.root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in ARROWS) this.move(...ARROWS[event.key].map((one) => one / 8));
      else if (event.key === "+") this.zoom(STEP);
      else if (event.key === "-") this.zoom(1 / STEP);
      else if (event.key === "0") this.whole();
      else return;
      event.preventDefault();
    });
    this.frame.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey) return; // the page scrolls
        event.preventDefault();
        this.zoom(WHEEL ** -event.deltaY, ...this.#share(event));
      },
      { passive: false },
    );
    this.frame.addEventListener("dblclick", (event) => this.zoom(2, ...this.#share(event)));
    this.frame.addEventListener("pointerdown", (event) => {
      this.frame.setPointerCapture(event.pointerId);
      this.held = { at: this.#share(event), region: this.region };
      event.preventDefault();
    });
    this.frame.addEventListener("pointerup", () => (this.held = null));
    this.frame.addEventListener("pointermove", (event) => {
      const [x, y] = this.#share(event);
      if (this.held && event.buttons) {
        const { left, top, width, height } = this.held.region;
        this.#go(left - (x - this.held.at[0]) * width, top - (y - this.held.at[1]) * height, width, height);
        return;
      }
      const column = Math.min(Math.floor(this.region.left + x * this.region.width), this.across - 1);
      const row = Math.min(Math.floor(this.region.top + y * this.region.height), this.down - 1);
      if (x >= 0 && y >= 0) this.values.want(this.#query(column, row, column + 1, row + 1));
    });
  }

  /** Where a pointer is, as shares of width and height of the picture. */
  #share(event) {
    const box = this.frame.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

const viewers = new WeakMap();

/** Begin, or go on after the page was updated from that of the server. */
function begin() {
  const root = document.getElementById("viewer");
  if (!root) return;
  if (viewers.has(root)) viewers.get(root).dress();
  else viewers.set(root, new Viewer(root));
}

const image = document.querySelector("#viewer img");
if (image?.complete) begin();
else image?.addEventListener("load", begin, { once: true });
document.addEventListener("refreshed", begin);

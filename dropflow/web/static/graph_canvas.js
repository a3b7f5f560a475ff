// The canvas of the graph page: drawn again after each change, and moved by pointer and wheel.

import { Camera } from "./graph_camera.js";
import { Matrix } from "./graph_matrix.js";
import { distance, paint } from "./graph_paint.js";
import { Theme } from "./graph_theme.js";

/** Milliseconds after the last move of the camera until the picture stands still. */
const STILL_AFTER = 160;
/** Share of names and edges that is drawn while the picture moves. */
const MOVING_QUALITY = 0.3;
/** Scale, in pixels per unit of the drawing, that the camera has at least when it goes to a drop. */
const LEAST_OF_DROP = 0.8;
/** Height of a cell, in pixels, from which a drop in a box can be clicked. */
const LEAST_TO_CLICK = 4;
/** A pointer that has moved by fewer pixels between press and release has clicked. */
const MOST_OF_CLICK = 5;
/** Factor of one step of the zoom. */
export const ZOOM = 1.25;

export class GraphCanvas {
  /**
   * @param {HTMLElement} stage contains the canvas
   * @param {{isPlan: boolean, onClick: (drop: number, box: number) => void, onNear: () => void}} options
   *   `onClick` gets -1 for no drop or box; `onNear` is called with each frame that shows single drops
   */
  constructor(stage, options) {
    this.stage = stage;
    this.options = options;
    this.canvas = /** @type {HTMLCanvasElement} */ (stage.querySelector("canvas"));
    this.context = this.canvas.getContext("2d", { alpha: false, willReadFrequently: true });
    this.theme = new Theme();
    this.camera = new Camera(() => this.#onMove());
    /** @type {import("./graph_model.js").Model | null} */
    this.model = null;
    /** @type {Matrix | null} */
    this.matrix = null;
    /** Pairs of boxes, those with most edges first. */
    this.byPairs = new Uint32Array(0);
    /** Whether colours are those of parts, in place of those of states. */
    this.byPart = options.isPlan;
    this.chosenBox = -1;
    this.hovered = -1;
    this.isMoving = false;
    this.stillTimer = 0;
    this.isFrameAsked = false;
    /** Place of each pointer that is pressed, by its number; and how far they have moved, in pixels. */
    this.pointers = new Map();
    this.travelled = 0;
    this.#listen();
  }

  /** Show another drawing; the camera stays, unless it shows all of the drawing. */
  show(model) {
    this.model = model;
    this.matrix = new Matrix(model, this.theme);
    const edges = model.columns.pairEdges;
    this.byPairs = new Uint32Array(edges.length).map((_, at) => at);
    this.byPairs.sort((one, two) => edges[two] - edges[one]);
    this.chosenBox = -1;
    this.colourBy(this.byPart);
    this.resize();
  }

  colourBy(byPart) {
    this.byPart = byPart;
    if (!this.matrix) return;
    this.matrix.byPart = byPart;
    this.matrix.paintAll();
    this.redraw();
  }

  /** Draw once before the browser shows the next frame. */
  redraw() {
    if (this.isFrameAsked) return;
    this.isFrameAsked = true;
    requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.isFrameAsked = false;
    const { canvas, context, camera, model, theme, matrix, byPairs, byPart, hovered, chosenBox } = this;
    if (!model || !camera.width) return;
    const changed = model.takeChanged();
    if (changed === null) matrix.paintAll();
    else matrix.paint(changed);
    const ratio = Math.min(devicePixelRatio, 2);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const quality = this.isMoving ? MOVING_QUALITY : 1;
    paint({ context, camera, model, theme, matrix, byPairs, byPart, hovered, chosenBox, isPlan: this.options.isPlan, quality });
    const far = distance(camera, model);
    if (far !== canvas.dataset.distance) canvas.dataset.distance = far;
    if (far === "near") this.options.onNear();
  }

  resize() {
    const { canvas, camera } = this;
    const { width, height } = canvas.getBoundingClientRect();
    const ratio = Math.min(devicePixelRatio, 2);
    if (camera.width !== width || camera.height !== height || canvas.width !== Math.round(width * ratio)) {
      Object.assign(camera, { width, height });
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      if (this.model && !camera.isFree) this.fit(false);
    }
    this.redraw();
  }

  #recolour() {
    this.theme.read();
    this.matrix?.paintAll();
    this.redraw();
  }

  // Where the camera goes.

  #onMove() {
    // While the picture moves, it has fewer names and edges; all of them follow when it stands still.
    this.isMoving = true;
    clearTimeout(this.stillTimer);
    this.stillTimer = setTimeout(() => {
      this.isMoving = false;
      this.redraw();
    }, STILL_AFTER);
    this.redraw();
  }

  /** Show all of the drawing. */
  fit(isGliding = true) {
    const { camera } = this;
    const [width, height] = this.model.head.size;
    const whole = camera.framing(0, 0, width, height);
    camera.least = Math.min(whole.scale * 0.4, 0.4);
    camera.go(whole, isGliding);
    camera.isFree = false;
  }

  goToBox(box) {
    const { x, y, width, height } = this.model.columns;
    this.camera.go(this.camera.framing(x[box], y[box], width[box], height[box]));
  }

  goToDrop(drop) {
    const { camera } = this;
    const { x, y } = this.model.centre(drop);
    const scale = Math.max(camera.scale, LEAST_OF_DROP);
    camera.go({ scale, x: x - camera.width / 2 / scale, y: y - camera.height / 2 / scale });
  }

  /** @param {Uint32Array} drops that are all seen then */
  goToDrops(drops) {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const drop of drops) {
      const { x, y } = this.model.centre(drop);
      left = Math.min(left, x);
      top = Math.min(top, y);
      right = Math.max(right, x);
      bottom = Math.max(bottom, y);
    }
    const [width, height] = this.model.head.cell;
    this.camera.go(this.camera.framing(left - width, top - height, right - left + 2 * width, bottom - top + 2 * height));
  }

  // Pointer and wheel.

  #listen() {
    const { canvas, camera } = this;
    canvas.addEventListener("pointerdown", (event) => this.#onPress(event));
    canvas.addEventListener("pointermove", (event) => (this.pointers.has(event.pointerId) ? this.#onDrag(event) : this.#onHover(event)));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.#onRelease(event));
    canvas.addEventListener("pointerleave", () => {
      if (this.hovered < 0) return;
      this.hovered = -1;
      this.redraw();
    });
    canvas.addEventListener("dblclick", (event) => camera.zoom(ZOOM ** 3, event.offsetX, event.offsetY));
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const lines = event.deltaMode === 1 ? 16 : 1;
        if (event.shiftKey) camera.pan(-(event.deltaY + event.deltaX) * lines, 0);
        else camera.zoom(Math.exp((-event.deltaY * lines) / 500), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    new ResizeObserver(() => this.resize()).observe(canvas);
    const recolour = () => this.#recolour();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    new MutationObserver(recolour).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class"] });
  }

  #onPress(event) {
    if (event.button > 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.travelled = 0;
    this.stage.classList.add("moving");
  }

  /** One pointer moves the picture, and two zoom it. */
  #onDrag(event) {
    const { camera, pointers } = this;
    const before = pointers.get(event.pointerId);
    const now = [event.offsetX, event.offsetY];
    if (pointers.size === 2) {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const size = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]);
      camera.zoom(size(now) / Math.max(size(before), 1), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
      this.travelled += 2 * MOST_OF_CLICK; // never a click
    } else if (pointers.size === 1) {
      camera.pan(now[0] - before[0], now[1] - before[1]);
      this.travelled += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
    }
    pointers.set(event.pointerId, now);
  }

  #onRelease(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    if (!this.pointers.size) this.stage.classList.remove("moving");
    if (event.type === "pointerup" && this.travelled < MOST_OF_CLICK && this.model) this.clickAt(event.offsetX, event.offsetY);
  }

  #onHover({ offsetX, offsetY }) {
    const { canvas, model } = this;
    if (!model) return;
    const [x, y] = this.camera.toDrawing(offsetX, offsetY);
    const box = model.boxAt(x, y);
    const drop = canvas.dataset.distance === "far" ? -1 : model.dropAt(x, y, box);
    canvas.style.cursor = box >= 0 ? "pointer" : "";
    const words = drop >= 0 ? [model.templateOf(drop).name, model.indexOf(drop)].join(" ").trim() : box >= 0 ? model.head.labels[box] : "";
    if (canvas.title !== words) canvas.title = words;
    if (drop === this.hovered) return;
    this.hovered = drop;
    if (canvas.dataset.distance === "near") this.redraw();
  }

  /** Click at a place of the canvas, in pixels. */
  clickAt(left, top) {
    const { camera, model } = this;
    const [x, y] = camera.toDrawing(left, top);
    const box = model.boxAt(x, y);
    const isCell = model.head.cell[1] * camera.scale >= LEAST_TO_CLICK;
    const drop = isCell || (box >= 0 && model.size[box] === 1) ? model.dropAt(x, y, box) : -1;
    this.options.onClick(drop, box);
  }
}

// Which part of the drawing is on the canvas, and how large.

const LARGEST = 2.5;
const GLIDE = 180;

export class Camera {
  /** @param {() => void} onMove */
  constructor(onMove) {
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.width = 1;
    this.height = 1;
    this.least = 0.001;
    this.onMove = onMove;
    this.glide = 0;
    /** Whether it shows something else than the whole drawing. */
    this.isFree = true;
    this.isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  /** Place of the canvas, in pixels, of a place of the drawing. */
  toScreen(x, y) {
    return [(x - this.x) * this.scale, (y - this.y) * this.scale];
  }

  toDrawing(x, y) {
    return [x / this.scale + this.x, y / this.scale + this.y];
  }

  pan(dx, dy) {
    this.#stop();
    this.isFree = true;
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.onMove();
  }

  /** Zoom by a factor, and keep the drawing under a place of the canvas. */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    this.#stop();
    this.isFree = true;
    const scale = Math.min(LARGEST, Math.max(this.least, this.scale * factor));
    this.x += x / this.scale - x / scale;
    this.y += y / this.scale - y / scale;
    this.scale = scale;
    this.onMove();
  }

  /** The camera that shows a rectangle of the drawing as a whole. */
  framing(left, top, width, height, largest = 1) {
    const room = Math.min(this.width, this.height) < 500 ? 12 : 28;
    const scale = Math.min(
      largest,
      Math.max((this.width - 2 * room) / Math.max(width, 1), 0.0001),
      Math.max((this.height - 2 * room) / Math.max(height, 1), 0.0001),
    );
    return {
      scale,
      x: left + width / 2 - this.width / 2 / scale,
      y: top + height / 2 - this.height / 2 / scale,
    };
  }

  /** Move there at once, or in a short glide. */
  go({ scale, x, y }, isGliding = true) {
    this.#stop();
    this.isFree = true;
    if (!isGliding || this.isCalm) {
      Object.assign(this, { scale, x, y });
      this.onMove();
      return;
    }
    const from = { scale: this.scale, cx: this.x + this.width / 2 / this.scale, cy: this.y + this.height / 2 / this.scale };
    const to = { cx: x + this.width / 2 / scale, cy: y + this.height / 2 / scale };
    const began = performance.now();
    const step = (now) => {
      const part = Math.min((now - began) / GLIDE, 1);
      const eased = 1 - (1 - part) ** 3;
      this.scale = from.scale * (scale / from.scale) ** eased;
      this.x = from.cx + (to.cx - from.cx) * eased - this.width / 2 / this.scale;
      this.y = from.cy + (to.cy - from.cy) * eased - this.height / 2 / this.scale;
      this.onMove();
      this.glide = part < 1 ? requestAnimationFrame(step) : 0;
    };
    this.glide = requestAnimationFrame(step);
  }

  #stop() {
    cancelAnimationFrame(this.glide);
    this.glide = 0;
  }
}

// The drops of all boxes as one picture, a pixel a drop, which is drawn larger or smaller.

const WIDTH = 2048;

export class Matrix {
  /**
   * @param {import("./graph_model.js").Model} model
   * @param {import("./graph_theme.js").Theme} theme
   */
  constructor(model, theme) {
    this.model = model;
    this.theme = theme;
    this.byPart = false;
    const { columns, rows } = model.columns;
    this.left = new Uint16Array(model.boxes);
    this.top = new Uint32Array(model.boxes);
    const order = [...columns.keys()].sort((one, two) => rows[two] - rows[one]);
    let x = 0;
    let y = 0;
    let high = 0;
    this.width = columns.reduce((most, count) => Math.max(most, count), WIDTH);
    for (const box of order) {
      if (x + columns[box] > this.width) {
        x = 0;
        y += high;
        high = 0;
      }
      this.left[box] = x;
      this.top[box] = y;
      high = Math.max(high, rows[box]);
      x += columns[box];
    }
    this.canvas = new OffscreenCanvas(this.width, Math.max(y + high, 1));
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
    this.image = this.context.createImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.paintAll();
  }

  paintAll() {
    this.pixels.fill(this.theme.empty);
    for (let drop = 0; drop < this.model.drops; drop += 1) this.#paint(drop);
    this.context.putImageData(this.image, 0, 0);
  }

  /** @param {number[]} drops those that have changed */
  paint(drops) {
    if (!drops.length) return;
    let low = Infinity;
    let high = 0;
    for (const drop of drops) {
      const y = this.#paint(drop);
      low = Math.min(low, y);
      high = Math.max(high, y);
    }
    this.context.putImageData(this.image, 0, 0, 0, low, this.canvas.width, high - low + 1);
  }

  #paint(drop) {
    const { model, theme } = this;
    const { box, column, row, part } = model.columns;
    const y = this.top[box[drop]] + row[drop];
    const isDim = model.marked !== null && !model.marked[drop];
    let word;
    if (this.byPart) {
      const words = isDim ? theme.dimPartPixels : theme.partPixels;
      word = words[part[drop] % words.length];
    } else {
      word = (isDim ? theme.dimPixels : theme.pixels)[model.group[drop]];
    }
    this.pixels[y * this.canvas.width + this.left[box[drop]] + column[drop]] = word;
    return y;
  }

  /** Draw the drops of a box into a rectangle of another canvas. */
  draw(context, box, x, y, width, height) {
    const { columns, rows } = this.model.columns;
    context.imageSmoothingEnabled = height < rows[box] * 1.5;
    context.drawImage(this.canvas, this.left[box], this.top[box], columns[box], rows[box], x, y, width, height);
  }
}

// Colours, patterns and fonts of the canvas, from the style sheet.

import { withColours } from "./colours.js";
import { GROUPS } from "./graph_model.js";

/** Colours of parts, after Okabe and Ito, and lighter ones of the same hues. */
const PARTS = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7b3f", "#5b5f97", "#7ac6a6", "#f2c879", "#b5a1c9", "#8fb8d9",
];

export class Theme {
  constructor() {
    this.read();
  }

  /** Read the style sheet again: the colours differ between light and dark. */
  read() {
    withColours((value) => {
      this.paper = value("paper");
      this.raised = value("raised");
      this.sunken = value("sunken");
      this.ink = value("ink");
      this.muted = value("muted");
      this.faint = value("faint");
      this.line = value("line");
      this.strong = value("line-strong");
      this.accent = value("accent");
      this.error = value("error");
      this.groups = GROUPS.map(({ style: group }) => value(group) || value("sunken"));
    });
    this.parts = PARTS;
    this.font = getComputedStyle(document.body).fontFamily;
    this.softGroups = this.groups.map((colour) => mixed(colour, this.raised, 0.84));
    this.softParts = this.parts.map((colour) => mixed(colour, this.raised, 0.84));
    this.pixels = this.groups.map(toPixel);
    this.partPixels = this.parts.map(toPixel);
    this.dimPixels = this.groups.map((colour) => toPixel(mixed(colour, this.raised, 0.82)));
    this.dimPartPixels = this.parts.map((colour) => toPixel(mixed(colour, this.raised, 0.82)));
    this.empty = toPixel(this.raised);
    this.patterns = null;
  }

  /** Fill styles of the groups in bars: some have a pattern besides their colour. */
  fills(context) {
    this.patterns ??= GROUPS.map(({ style }, at) => {
      const draw = PATTERNS[style];
      if (!draw) return this.groups[at];
      const tile = new OffscreenCanvas(6, 6);
      const pen = tile.getContext("2d");
      pen.fillStyle = this.groups[at];
      pen.fillRect(0, 0, 6, 6);
      pen.strokeStyle = this.raised;
      pen.lineWidth = 1.2;
      pen.beginPath();
      draw(pen);
      pen.stroke();
      return context.createPattern(tile, "repeat");
    });
    return this.patterns;
  }
}

const PATTERNS = {
  error(pen) {
    for (const at of [-6, 0, 6]) {
      pen.moveTo(at - 1, 7);
      pen.lineTo(at + 7, -1);
    }
  },
  skipped(pen) {
    pen.moveTo(0, 3);
    pen.lineTo(6, 3);
  },
  cancelled(pen) {
    for (const at of [-6, 0, 6]) {
      pen.moveTo(at - 1, -1);
      pen.lineTo(at + 7, 7);
      pen.moveTo(at - 1, 7);
      pen.lineTo(at + 7, -1);
    }
  },
};

let pen = null;

/** @returns {[number, number, number]} */
function channels(colour) {
  pen ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

function mixed(colour, other, share) {
  const [one, two] = [channels(colour), channels(other)];
  return `rgb(${one.map((value, at) => Math.round(value * (1 - share) + two[at] * share)).join(" ")})`;
}

/** A colour as one number of a picture's pixels. */
function toPixel(colour) {
  const [red, green, blue] = channels(colour);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/**
 * The sign of a group, centred: no two groups have the same shape.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {number} size half of its height
 */
export function drawSign(context, theme, group, x, y, size) {
  const { style } = GROUPS[group];
  context.fillStyle = context.strokeStyle = theme.groups[group];
  context.lineWidth = Math.max(1, size * 0.32);
  context.beginPath();
  if (style === "error") {
    context.moveTo(x, y - size * 1.1);
    context.lineTo(x + size * 1.1, y);
    context.lineTo(x, y + size * 1.1);
    context.lineTo(x - size * 1.1, y);
    context.fill();
  } else if (style === "completed") {
    context.arc(x, y, size, 0, 7);
    context.fill();
  } else if (style === "running") {
    context.arc(x, y, size, Math.PI / 2, -Math.PI / 2);
    context.fill();
    context.beginPath();
    context.arc(x, y, size * 0.86, 0, 7);
    context.stroke();
  } else if (style === "queued") {
    context.arc(x, y, size * 0.5, 0, 7);
    context.fill();
    context.beginPath();
    context.arc(x, y, size * 0.86, 0, 7);
    context.stroke();
  } else if (style === "cancelled") {
    context.moveTo(x - size * 0.8, y - size * 0.8);
    context.lineTo(x + size * 0.8, y + size * 0.8);
    context.moveTo(x + size * 0.8, y - size * 0.8);
    context.lineTo(x - size * 0.8, y + size * 0.8);
    context.stroke();
  } else if (style === "skipped") {
    context.strokeRect(x - size, y - size * 0.5, size * 2, size);
  } else {
    context.strokeStyle = theme.faint;
    context.arc(x, y, size * 0.86, 0, 7);
    context.stroke();
  }
}

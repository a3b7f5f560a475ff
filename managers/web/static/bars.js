// Stacked bars: the same as dropflow/web/views.py, for open pages whose drops change state.

/** Smallest width of a group that is not empty, in per cent. */
const LEAST = 0.8;

/**
 * Start and width of each part of a bar, in per cent.
 *
 * @param {number[]} numbers drops of each group, in the order of the bar
 * @returns {{start: number, width: number}[]}
 */
export function segments(numbers) {
  const total = numbers.reduce((sum, number) => sum + number, 0);
  if (total <= 0) return numbers.map(() => ({ start: 0, width: 0 }));
  const widths = numbers.map((number) => (number ? Math.max((100 * number) / total, LEAST) : 0));
  const widest = widths.indexOf(Math.max(...widths));
  widths[widest] -= widths.reduce((sum, width) => sum + width, 0) - 100;
  let start = 0;
  return widths.map((width) => {
    const part = { start: round(start), width: round(width) };
    start += width;
    return part;
  });
}

/**
 * Update a bar that the server rendered; its parts are in the same order.
 *
 * @param {SVGElement} bar
 * @param {number[]} numbers
 * @param {string} label text for screen readers
 */
export function draw(bar, numbers, label) {
  const parts = bar.querySelectorAll("rect");
  segments(numbers).forEach(({ start, width }, index) => {
    parts[index].setAttribute("x", String(start));
    parts[index].setAttribute("width", String(width));
  });
  bar.setAttribute("aria-label", label);
}

function round(value) {
  return Math.round(value * 100) / 100;
}

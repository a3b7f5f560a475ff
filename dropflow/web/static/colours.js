// Colours of the style sheet for a canvas, which knows neither variables nor light and dark.

/**
 * Read colours as they are now, light or dark.
 *
 * @template T
 * @param {(colour: (name: string) => string) => T} read gets a function that returns the colour of a variable, such as
 *   `paper` for `--paper`; empty if there is no such variable
 * @returns {T} what `read` returns
 */
export function withColours(read) {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const style = getComputedStyle(probe);
  try {
    return read((name) => {
      if (!style.getPropertyValue(`--${name}`)) return "";
      probe.style.color = `var(--${name})`;
      return style.color;
    });
  } finally {
    probe.remove();
  }
}

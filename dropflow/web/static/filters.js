// Filters apply as they are typed, and are in the address of the page.

import { refresh } from "./refresh.js";

const DELAY = 250;

/** @returns {boolean} whether filters differ from those of the page: changed before its script ran, or kept by the browser */
export function isChanged(form) {
  return [...form.elements].some((field) => {
    if (field.options) return field.selectedIndex !== Math.max([...field.options].findIndex((one) => one.defaultSelected), 0);
    if (field.type === "checkbox") return field.checked !== field.defaultChecked;
    return field.tagName === "INPUT" && field.value !== field.defaultValue;
  });
}

/** Have every form of filters update the parts that it names. */
export function watchFilters() {
  for (const form of document.querySelectorAll("form.filters[data-parts]")) {
    let timer = 0;
    const apply = () => {
      clearTimeout(timer);
      const wanted = new URLSearchParams();
      for (const [name, value] of new FormData(form)) if (value) wanted.append(name, value);
      const query = wanted.toString();
      history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
      form.setAttribute("aria-busy", "true");
      refresh(form.dataset.parts.split(" ")).then(() => form.removeAttribute("aria-busy"));
    };
    form.addEventListener("input", (event) => {
      clearTimeout(timer);
      timer = setTimeout(apply, event.target.tagName === "SELECT" ? 0 : DELAY);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      apply();
    });
    if (isChanged(form)) apply();
  }
}

// Tables: sorted by a click on a column, and a button that shows the columns that a narrow window leaves out.
//
// Lists in pages are sorted by the server, with links in their headers. Here are those that are whole on the page.

const UNITS = {
  "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400, "%": 1, "/s": 1,
  Byte: 1, Bytes: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, PB: 1e15,
};
const PART = /(-?[\d.]+(?:e[+-]?\d+)?)\s*(µs|ms|min|Bytes?|kB|MB|GB|TB|PB|\/s|[shd%])?/y;

/** The order of each table that was sorted: the number of the column, and whether it descends. */
const orders = new Map();

/** Make tables sortable, also after the page has changed. */
export function watchTables() {
  prepare();
  document.addEventListener("refreshed", prepare);
  addEventListener("resize", offerColumns);
}

function prepare() {
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((cell, column) => addButton(table, cell, column));
    const order = orders.get(nameOf(table));
    if (order) sort(table, order);
  }
  offerColumns();
}

function nameOf(table) {
  return table.closest("[aria-label]")?.getAttribute("aria-label") ?? "";
}

function addButton(table, cell, column) {
  if (cell.querySelector("button") || cell.querySelector(".unseen")) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "sort";
  button.append(...cell.childNodes);
  cell.append(button);
  cell.setAttribute("aria-sort", "none");
  button.addEventListener("click", () => {
    const before = orders.get(nameOf(table));
    const isSame = before?.column === column;
    // Numbers are wanted largest first, names in their order.
    const first = cell.classList.contains("number") || cell.classList.contains("grow");
    orders.set(nameOf(table), { column, descends: isSame ? !before.descends : first });
    sort(table, orders.get(nameOf(table)));
  });
}

function sort(table, { column, descends }) {
  [...table.tHead.rows[0].cells].forEach((cell, at) => {
    if (cell.hasAttribute("aria-sort")) cell.setAttribute("aria-sort", at !== column ? "none" : descends ? "descending" : "ascending");
  });
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, value: valueOf(row.cells[column]) }));
  rows.sort((one, other) => (descends ? -1 : 1) * compare(one.value, other.value));
  if (rows.some(({ row }, at) => row !== body.rows[at])) body.append(...rows.map(({ row }) => row));
}

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  if (typeof one !== typeof other) return typeof one === "number" ? 1 : -1; // a dash is less than any number
  return one.localeCompare(other, undefined, { numeric: true });
}

/** A number if the cell has one, with its unit; else its text. */
export function valueOf(cell) {
  const bar = cell?.querySelector("svg[aria-label]");
  const share = bar?.getAttribute("aria-label").replaceAll(",", "").match(/^(\d+) of (\d+)/);
  if (share) return Number(share[1]) / Math.max(Number(share[2]), 1);
  return parsed((cell?.innerText ?? "").trim());
}

/** @param {string} text such as `1,234`, `3 min 05 s` or `1.2 GB` */
export function parsed(text) {
  const plain = text.replaceAll(",", "").replace(/^\d+ \/ /, "");
  let at = 0;
  let total = 0;
  let isNumber = false;
  while (at < plain.length) {
    PART.lastIndex = at;
    const found = PART.exec(plain);
    if (!found || !found[0].trim() || Number.isNaN(Number(found[1]))) return text;
    if (isNumber && found[1].startsWith("-")) return text; // a name such as 1-2
    total += Number(found[1]) * (UNITS[found[2]] ?? 1);
    isNumber = true;
    at = PART.lastIndex;
    while (plain[at] === " ") at += 1;
  }
  return isNumber ? total : text;
}

function offerColumns() {
  for (const box of document.querySelectorAll("main .table")) {
    const isShown = box.classList.contains("all-columns");
    let button = box.previousElementSibling?.matches(".columns-button") ? box.previousElementSibling : null;
    const leavesOut = isShown || [...box.querySelectorAll("thead th")].some((cell) => getComputedStyle(cell).display === "none");
    if (leavesOut && !button) {
      button = document.createElement("button");
      button.type = "button";
      button.className = "columns-button";
      button.addEventListener("click", () => {
        box.classList.toggle("all-columns");
        name(button, box);
      });
      box.before(button);
    }
    if (button) {
      button.classList.toggle("needed", leavesOut);
      name(button, box);
    }
  }
}

function name(button, box) {
  const isShown = box.classList.contains("all-columns");
  button.textContent = isShown ? "Fewer columns" : "All columns";
  button.setAttribute("aria-pressed", String(isShown));
}

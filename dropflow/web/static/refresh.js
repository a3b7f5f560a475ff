// Updates the parts of an open page from the page that the server renders now.
//
// There are no templates here: a part is fetched as HTML and only the differences are changed in place, so
// that focus, scrolling and opened details stay as they are.

/**
 * @typedef {"fresh" | "gone" | "locked" | "lost"} Outcome
 *   fresh: done. gone: the page does not exist any more. locked: the token is needed again. lost: no answer.
 */

/** The number of the request whose answer each part shows: an older one that comes late does not replace it. */
const shown = new Map();
let requests = 0;

/**
 * Fetch this page again and update the parts with these names; all parts if there are none.
 *
 * @param {string[]} [names]
 * @param {boolean} [isBrief] leave out what the event stream sends; then only named parts may be updated
 * @returns {Promise<Outcome>}
 */
export async function refresh(names, isBrief = false) {
  const number = (requests += 1);
  let page;
  try {
    const answer = await fetch(location.pathname + location.search, {
      headers: { Accept: "text/html", ...(isBrief ? { "X-Brief": "yes" } : {}) },
      cache: "no-store",
      redirect: "manual",
      signal: AbortSignal.timeout(30_000),
    });
    if (answer.status === 404) return "gone";
    if (answer.status === 401 || answer.type === "opaqueredirect") return "locked";
    if (!answer.ok) return "lost";
    page = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return "lost";
  }
  const focused = document.activeElement;
  for (const fresh of page.querySelectorAll("[data-part]")) {
    const name = fresh.getAttribute("data-part");
    const live = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
    if (!live || (names && !names.includes(name)) || number < (shown.get(name) ?? 0)) continue;
    shown.set(name, number);
    become(live, fresh);
  }
  const foot = page.querySelector(".foot");
  if (foot) become(document.querySelector(".foot"), foot);
  // The order of tables, buttons and the like are not in the page of the server: `kit.js` and others add them again.
  document.dispatchEvent(new Event("refreshed"));
  // An element that is moved, as with the rows of a table that the reader has sorted, loses the focus.
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  return "fresh";
}

/** Buttons of the frame that scripts show. */
const SHOWN = new Set(["theme", "help"]);

/**
 * Make `live` equal to `fresh` with as few changes as possible.
 *
 * @param {Element} live
 * @param {Element} fresh
 */
export function become(live, fresh) {
  if (live.isEqualNode(fresh)) return;
  for (const { name } of [...live.attributes]) {
    // The reader decides whether details are open; scripts show buttons that are hidden without them.
    if (!fresh.hasAttribute(name) && name !== "open") live.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name === "hidden" && live.id && SHOWN.has(live.id)) continue;
    if (live.getAttribute(name) !== value) live.setAttribute(name, value);
  }
  becomeChildren(live, fresh);
}

function becomeChildren(live, fresh) {
  const keyed = new Map();
  for (const child of live.children) {
    const key = keyOf(child);
    // Several may have one key, as two nodes with one name: each is used once.
    if (key !== null && !keyed.get(key)?.push(child)) keyed.set(key, [child]);
  }
  const kept = new Set([...fresh.children].map(keyOf));
  let here = live.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const found = key === null ? here : keyed.get(key)?.shift();
    if (found && alike(found, wanted)) {
      // An element that is moved loses the focus, and an open panel closes: what is before it and goes, goes first.
      while (here && here !== found && !(keyOf(here) !== null && kept.has(keyOf(here)))) here = removed(here);
      if (found === here) here = here.nextSibling;
      else live.insertBefore(found, here);
      if (found.nodeType === Node.ELEMENT_NODE) become(found, wanted);
      else if (found.nodeValue !== wanted.nodeValue) found.nodeValue = wanted.nodeValue;
    } else {
      live.insertBefore(document.importNode(wanted, true), here);
    }
  }
  while (here) here = removed(here);
}

/** Remove a node; the one after it is returned. */
function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-row") ?? node.getAttribute("data-key") : null;
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

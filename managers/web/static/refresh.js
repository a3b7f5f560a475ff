// Brings the parts of an open page up to date with the page as the server makes it now.
//
// The server's templates stay the only ones: a part is fetched as HTML and only what differs is changed in place, so
// that focus, scrolling and opened details stay as they are.

/**
 * @typedef {"fresh" | "gone" | "locked" | "lost"} Outcome
 *   fresh: done. gone: there is no such page any more. locked: the token is needed again. lost: nobody answers.
 */

/**
 * Fetch this page again and renew the parts with these names; all parts when none is named.
 *
 * @param {string[]} [names]
 * @param {boolean} [isBrief] leave out what the stream of changes tells: then only parts that are named may be renewed
 * @returns {Promise<Outcome>}
 */
export async function refresh(names, isBrief = false) {
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
  for (const fresh of page.querySelectorAll("[data-part]")) {
    const name = fresh.getAttribute("data-part");
    const live = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
    if (live && (!names || names.includes(name))) become(live, fresh);
  }
  const foot = page.querySelector(".foot");
  if (foot) become(document.querySelector(".foot"), foot);
  return "fresh";
}

/**
 * Make `live` like `fresh`, changing as little as can be.
 *
 * @param {Element} live
 * @param {Element} fresh
 */
export function become(live, fresh) {
  if (live.isEqualNode(fresh)) return;
  for (const { name } of [...live.attributes]) {
    // Whether details are open is for the reader to say.
    if (!fresh.hasAttribute(name) && name !== "open") live.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (live.getAttribute(name) !== value) live.setAttribute(name, value);
  }
  becomeChildren(live, fresh);
}

function becomeChildren(live, fresh) {
  const keyed = new Map();
  for (const child of live.children) {
    const key = keyOf(child);
    if (key !== null) keyed.set(key, child);
  }
  let here = live.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const found = key === null ? here : keyed.get(key);
    if (found && alike(found, wanted)) {
      if (found === here) here = here.nextSibling;
      else live.insertBefore(found, here);
      if (found.nodeType === Node.ELEMENT_NODE) become(found, wanted);
      else if (found.nodeValue !== wanted.nodeValue) found.nodeValue = wanted.nodeValue;
    } else {
      live.insertBefore(document.importNode(wanted, true), here);
    }
  }
  while (here) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-row") ?? node.getAttribute("data-key") : null;
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

// Reads the token or a ticket from the fragment of the address, which is not sent to the server, and exchanges it for a
// cookie and the page key. Without one it goes to the front door of the cluster, where the browser may be signed in.
"use strict";

const form = document.getElementById("form");
const wait = document.getElementById("wait");
const wrong = document.getElementById("wrong");
const door = document.getElementById("door");
const SOON = 15_000;
/** Address of this server without a slash at its end, as the browser reaches it: below another path through a proxy. */
const ROOT = new URL(".", document.currentScript.src).href.slice(0, -1);
const PATH = new URL(ROOT).pathname.replace(/\/$/, "");
/** Name of the page key, as in page_key.js. */
const NAME = `dropflow-key${PATH}`;
const VISITED = `dropflow-door-visited${PATH}`;

/** The token or ticket and the page to go on to: `#TOKEN`, or `#ticket=TICKET&next=/sessions`. */
function fromFragment() {
  const text = location.hash.slice(1);
  const wanted = form.elements.next.value || "/";
  if (!/^(token|ticket)=/.test(text)) return { token: decodeURIComponent(text), ticket: "", next: wanted };
  const fields = new URLSearchParams(text);
  return { token: fields.get("token") || "", ticket: fields.get("ticket") || "", next: fields.get("next") || wanted };
}

function show(text) {
  if (text) wrong.textContent = text;
  wrong.hidden = false;
}

async function login(asked) {
  form.hidden = true;
  wrong.hidden = true;
  wait.hidden = false;
  try {
    const answer = await fetch(`${ROOT}/login`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(asked),
    });
    if (answer.ok) {
      const { key, next } = await answer.json(); // always a page of this server
      try {
        if (key) localStorage.setItem(NAME, key);
        sessionStorage.removeItem(VISITED);
      } catch {
        // Storage is blocked: pages ask for the token before a change.
      }
      location.replace(ROOT + next);
      return;
    }
    show(asked.ticket && "This address was used before, or is too old. \"dropflow open\" prints a fresh one.");
  } catch {
    show("The server does not answer.");
  }
  wait.hidden = true;
  form.hidden = false;
  form.elements.token?.focus();
  if (door) door.hidden = !door.dataset.door;
}

function isLoopback(host) {
  return host === "localhost" || host === "[::1]" || host.startsWith("127.");
}

/** The page of the front door that comes back here with a ticket; nothing if this is the front door. */
function doorAddress() {
  const base = door && door.dataset.door;
  if (!base || base === ROOT) return "";
  return `${base}/hop?to=${encodeURIComponent(ROOT + (form.elements.next.value || "/"))}`;
}

/** Whether the front door can be expected at its address: not through a proxy, and not twice in a row. */
function canVisit(address) {
  const there = new URL(address).hostname;
  if (there !== location.hostname && !(isLoopback(there) && isLoopback(location.hostname))) return false;
  try {
    const last = Number(sessionStorage.getItem(VISITED) || 0);
    sessionStorage.setItem(VISITED, String(Date.now()));
    return Date.now() - last > SOON;
  } catch {
    return false;
  }
}

function start() {
  const asked = fromFragment();
  if (asked.token || asked.ticket) {
    // Remove it from the address bar and the history.
    history.replaceState(null, "", location.pathname + location.search);
    login(asked);
    return;
  }
  const address = doorAddress();
  if (!address) {
    if (door) door.hidden = true;
    return;
  }
  if (canVisit(address)) location.replace(address);
  else door.querySelector("a").href = address;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  login({ token: form.elements.token.value.trim(), next: form.elements.next.value || "/" });
});
addEventListener("hashchange", start);
start();

// Completes the forms that change something (form[data-key]) with the page key.
//
// The cookie is not enough for them: browsers send it to every port of this host, and so to servers of other users.
// The key is kept in localStorage, which only pages of this origin can read, port included. A browser that may only read
// has a key that passes it on to other managers: for all other forms, the server asks for the token.
//
// A browser that signed in at the front door of the cluster only has no key here yet: the form is kept, the front door is
// asked for a ticket, and the form is sent when the browser comes back.
//
// It runs before the page is shown, so that no form can be sent without it.
"use strict";

/** Address of this server without a slash at its end, as the browser reaches it: below another path through a proxy. */
const ROOT = new URL("..", document.currentScript.src).href.slice(0, -1);
/** Servers below different paths of one proxy have the same origin, and each keeps its own key and form. */
const PATH = new URL(ROOT).pathname.replace(/\/$/, "");
const NAME = `dropflow-key${PATH}`;
const KEPT = `dropflow-form${PATH}`;

function stored() {
  try {
    return localStorage.getItem(NAME) || "";
  } catch {
    return ""; // storage is blocked: the server asks for the token
  }
}

function store(key) {
  try {
    localStorage.setItem(NAME, key);
  } catch {
    // The key is used for this form only.
  }
}

function complete(form, key) {
  let field = form.elements.namedItem("key");
  if (!field) {
    field = document.createElement("input");
    field.type = "hidden";
    field.name = "key";
    form.append(field);
  }
  field.value = key;
}

/** The page key in exchange for the token; empty if the token is wrong or the server does not answer. */
async function exchanged(token) {
  try {
    const answer = await fetch(`${ROOT}/login`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token }),
    });
    return answer.ok ? (await answer.json()).key : "";
  } catch {
    return "";
  }
}

async function confirmed(form, field) {
  const key = await exchanged(field.value.trim());
  if (key) {
    store(key);
    complete(form, key);
    field.disabled = true; // the token is sent to the login only
  }
  form.submit(); // with a wrong token, the server asks again
}

function isLoopback(host) {
  return host === "localhost" || host === "[::1]" || host.startsWith("127.");
}

/** The page of the front door that comes back to this one with a ticket; nothing if it cannot be reached from here. */
function doorAddress() {
  const base = document.querySelector('meta[name="dropflow-door"]')?.content;
  if (!base || base === ROOT) return "";
  const there = new URL(base).hostname;
  if (there !== location.hostname && !(isLoopback(there) && isLoopback(location.hostname))) return "";
  return `${base}/hop?to=${encodeURIComponent(location.origin + location.pathname + location.search)}`;
}

/** Keep a form and go to the front door; whether that is possible. A file cannot be kept. */
function goToDoor(form) {
  const address = doorAddress();
  if (!address || form.querySelector('input[type="file"]')) return false;
  const fields = [...new FormData(form)].filter(([name]) => name !== "key");
  const kept = { page: location.pathname, action: form.getAttribute("action"), fields };
  try {
    if (sessionStorage.getItem(KEPT)) return false; // it was there, and has no key all the same
    sessionStorage.setItem(KEPT, JSON.stringify(kept));
  } catch {
    return false;
  }
  location.assign(address);
  return true;
}

function refill(form, fields) {
  for (const box of form.querySelectorAll('input[type="checkbox"]')) box.checked = false; // only checked ones are kept
  for (const [name, value] of fields) {
    const field = form.elements.namedItem(name);
    if (!field) continue;
    if (field instanceof RadioNodeList || field.type !== "checkbox") field.value = value;
    else field.checked = true;
  }
}

/** Send the form that was kept, if the browser has come back with a key. */
function sendKept() {
  let kept = null;
  try {
    kept = JSON.parse(sessionStorage.getItem(KEPT));
    sessionStorage.removeItem(KEPT);
  } catch {
    return;
  }
  if (!kept || kept.page !== location.pathname) return;
  const form = [...document.querySelectorAll("form[data-key]")].find((each) => each.getAttribute("action") === kept.action);
  if (!form) return;
  refill(form, kept.fields);
  if (stored()) form.requestSubmit();
}

addEventListener("submit", (event) => {
  const form = event.target;
  const isElsewhere = event.submitter?.hasAttribute("formaction");
  if (!form.matches("form[data-key]") || (isElsewhere && !event.submitter.hasAttribute("data-key"))) return;
  const field = form.elements.namedItem("token");
  if (field && field.value) {
    event.preventDefault();
    confirmed(form, field);
  } else if (!stored() && !isElsewhere && goToDoor(form)) { // the form that is kept is sent to its own action
    event.preventDefault();
  } else {
    complete(form, stored());
  }
});

addEventListener("DOMContentLoaded", () => {
  // The answer to a logout: other applications of the same origin keep what they have stored.
  if (document.querySelector("[data-forget]")) {
    try {
      localStorage.removeItem(NAME);
      sessionStorage.removeItem(KEPT);
    } catch {
      // Storage is blocked: nothing was kept.
    }
  }
  sendKept();
  const own = document.querySelector("form[data-auto]");
  if (own && stored()) own.requestSubmit();
});

// Reads the token from the fragment of the address, which is not sent to the server, and exchanges it for a cookie and the page key.
"use strict";

const form = document.getElementById("form");
const wait = document.getElementById("wait");
const wrong = document.getElementById("wrong");

/** The token and the page to go on to: `#TOKEN`, or `#token=TOKEN&next=/sessions`. */
function fromFragment() {
  const text = decodeURIComponent(location.hash.slice(1));
  const wanted = form.elements.next.value || "/";
  if (!text.startsWith("token=")) return { token: text, next: wanted };
  const fields = new URLSearchParams(text);
  return { token: fields.get("token") || "", next: fields.get("next") || wanted };
}

async function login(asked) {
  form.hidden = true;
  wrong.hidden = true;
  wait.hidden = false;
  try {
    const answer = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(asked),
    });
    if (answer.ok) {
      const { key, next } = await answer.json(); // always a page of this server
      try {
        localStorage.setItem("dropflow-key", key); // see key.js
      } catch {
        // Storage is blocked: pages ask for the token before a change.
      }
      location.replace(next);
      return;
    }
    wrong.hidden = false;
  } catch {
    wrong.textContent = "The server does not answer.";
    wrong.hidden = false;
  }
  wait.hidden = true;
  form.hidden = false;
}

function start() {
  const asked = fromFragment();
  if (!asked.token) return;
  // Remove it from the address bar and the history.
  history.replaceState(null, "", location.pathname + location.search);
  login(asked);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  login({ token: form.elements.token.value.trim(), next: form.elements.next.value || "/" });
});
addEventListener("hashchange", start);
start();

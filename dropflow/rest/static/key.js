// Completes the forms that change something (form[data-key]) with the page key.
//
// The cookie is not enough for them: browsers send it to every port of this host, and so to servers of other users.
// The key is kept in localStorage, which only pages of this origin can read, port included.
"use strict";

const NAME = "dropflow-key";

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
    const answer = await fetch("/login", {
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

addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form[data-key]")) return;
  const field = form.elements.namedItem("token");
  if (field && field.value) {
    event.preventDefault();
    confirmed(form, field);
  } else {
    complete(form, stored());
  }
});

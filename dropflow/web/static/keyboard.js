// Keys of all pages: j and k go through rows, / searches, ? shows the keys, Ctrl+K finds pages, sessions and commands.

const KEYS = [
  ["j k", "next and previous row, or cause"],
  ["Enter", "open it"],
  ["/", "search, or filter the list"],
  ["Ctrl K", "find a page, a session or a command"],
  ["?", "these keys"],
  ["Escape", "close, or leave the search"],
];
const THEMES = [["", "as the system"], ["light", "light"], ["dark", "dark"]];
const MOST = 12;
const ROOT = new URL("..", import.meta.url).href.slice(0, -1);

/** Listen to keys, and show the buttons for them. */
export function watchKeys() {
  addEventListener("keydown", press);
  const help = document.getElementById("help");
  const theme = document.getElementById("theme");
  if (help) {
    help.hidden = false;
    help.addEventListener("click", showKeys);
  }
  if (theme) {
    theme.hidden = false;
    theme.addEventListener("click", () => {
      const at = THEMES.findIndex(([name]) => name === window.dropflowTheme.get());
      window.dropflowTheme.set(THEMES[(at + 1) % THEMES.length][0]);
    });
    document.addEventListener("theme", nameTheme);
    document.addEventListener("refreshed", nameTheme);
    nameTheme();
  }
}

function nameTheme() {
  const word = THEMES.find(([name]) => name === window.dropflowTheme.get())[1];
  document.getElementById("theme").textContent = `Colours: ${word}`;
}

function press(event) {
  if (event.defaultPrevented) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !event.altKey) {
    event.preventDefault();
    showCommands();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isWriting = event.target.closest?.("input:not([type=checkbox]), select, textarea, [contenteditable]");
  if (isWriting) {
    if (event.key === "Escape" && !event.target.closest("dialog")) event.target.blur();
    return;
  }
  if (event.target.closest?.("dialog, canvas")) {
    if (event.key !== "?" || event.target.closest("dialog")) return;
  }
  const act = { j: () => step(1), k: () => step(-1), "/": search, "?": showKeys }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

/** Rows and causes that are shown, top to bottom, each with the link that opens it. */
function stops() {
  return [...document.querySelectorAll("main tbody tr, main article.note")]
    .map((row) => ({ row, link: row.querySelector("a[href]") }))
    .filter(({ row, link }) => link && row.getClientRects().length && link.getClientRects().length);
}

function step(by) {
  const all = stops();
  if (!all.length) return;
  const here = all.findIndex(({ row }) => row.contains(document.activeElement));
  const next = all[here < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(here + by, 0), all.length - 1)];
  document.querySelector("main .chosen")?.classList.remove("chosen");
  next.row.classList.add("chosen");
  next.link.focus();
  next.row.scrollIntoView({ block: "nearest" });
}

function search() {
  const field = document.querySelector("main input[type=search]");
  if (field) {
    field.focus();
    field.select();
  } else showCommands();
}

function dialog(kind, label) {
  const box = document.createElement("dialog");
  box.className = `box ${kind}`;
  box.setAttribute("aria-label", label);
  box.addEventListener("close", () => box.remove());
  box.addEventListener("click", (event) => event.target === box && box.close());
  document.body.append(box);
  return box;
}

// A box that was closed stands in the page until its event "close" comes, a little later.
function isBoxOpen() {
  return document.querySelector("dialog.box[open]") !== null;
}

function showKeys() {
  if (isBoxOpen()) return;
  const box = dialog("help", "Keys");
  const title = document.createElement("h2");
  title.textContent = "Keys";
  const list = document.createElement("dl");
  list.className = "keys";
  for (const [keys, words] of KEYS) {
    const term = document.createElement("dt");
    keys.split(" ").forEach((key, at) => {
      if (at) term.append(" ");
      const sign = document.createElement("kbd");
      sign.textContent = key;
      term.append(sign);
    });
    const text = document.createElement("dd");
    text.textContent = words;
    list.append(term, text);
  }
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close";
  close.addEventListener("click", () => box.close());
  const actions = document.createElement("p");
  actions.className = "block-small";
  actions.append(close);
  box.append(title, list, actions);
  box.showModal();
}

/** Pages, actions and parts of this page, and what all pages can do. */
function commands() {
  const found = [];
  const add = (kind, word, run) => {
    const text = word.replace(/\s+/g, " ").trim();
    if (text && !found.some((one) => one.text === text && one.kind === kind)) found.push({ kind, text, run });
  };
  for (const link of document.querySelectorAll(".masthead nav a, .tabs a, .page-head a[href], .actions > .button[href], .page-head .actions > button, .section-head > a[href]")) {
    const kind = link.closest(".actions") ? "do" : "page";
    add(kind, link.textContent, () => link.click());
  }
  for (const title of document.querySelectorAll("main h2:not(.card h2)")) {
    add("on this page", title.textContent, () => title.scrollIntoView({ block: "start" }));
  }
  for (const [name, word] of THEMES) add("colours", `Colours: ${word}`, () => window.dropflowTheme.set(name));
  add("help", "Keys", showKeys);
  return found;
}

/** Sessions whose name or graph has a text, if this is a manager. */
async function sessions(text) {
  if (!document.querySelector('.masthead nav a[href$="/sessions"]')) return [];
  try {
    const answer = await fetch(`${ROOT}/sessions.json?limit=8&text=${encodeURIComponent(text)}`, { signal: AbortSignal.timeout(10_000) });
    const { sessions: found } = answer.ok ? await answer.json() : { sessions: [] };
    return found.map(({ session, status }) => ({
      kind: `session, ${status.toLowerCase()}`,
      text: session,
      run: () => location.assign(`${ROOT}/sessions/${encodeURIComponent(session)}`),
    }));
  } catch {
    return [];
  }
}

function showCommands() {
  if (isBoxOpen()) return;
  const box = dialog("commands", "Find a page, a session or a command");
  const field = document.createElement("input");
  field.type = "text";
  field.placeholder = "Find a page, a session or a command";
  field.setAttribute("aria-label", field.placeholder);
  field.setAttribute("role", "combobox");
  field.setAttribute("aria-expanded", "true");
  field.setAttribute("aria-controls", "commands");
  field.autocomplete = "off";
  const list = document.createElement("ul");
  list.id = "commands";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Found");
  const known = commands();
  let shown = [];
  let chosen = 0;
  let asked = 0;

  const run = (one) => {
    box.close();
    one?.run();
  };
  const paint = () => {
    list.replaceChildren(
      ...shown.map((one, at) => {
        const item = document.createElement("li");
        item.id = `command-${at}`;
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", String(at === chosen));
        const word = document.createElement("bdi");
        word.textContent = one.text;
        const kind = document.createElement("span");
        kind.className = "muted small";
        kind.textContent = one.kind;
        item.append(word, kind);
        item.addEventListener("click", () => run(one));
        return item;
      })
    );
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", shown.length ? `command-${chosen}` : "");
  };
  const find = async () => {
    const text = field.value.trim().toLowerCase();
    const here = known.filter((one) => one.text.toLowerCase().includes(text));
    chosen = 0;
    shown = here.slice(0, MOST);
    paint();
    const mine = (asked += 1);
    const more = await sessions(text);
    if (mine !== asked || !box.isConnected) return;
    shown = text ? [...more, ...here].slice(0, MOST) : [...here.slice(0, MOST - 4), ...more.slice(0, 4)];
    paint();
  };
  field.addEventListener("input", find);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      run(shown[chosen]);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const count = Math.max(shown.length, 1);
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
      paint();
    }
  });
  box.append(field, list);
  box.showModal();
  field.focus();
  find();
}

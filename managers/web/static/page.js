// Lists and drops: fetches the page again every few seconds while it is visible.

import { tell } from "./liveness.js";
import { refresh } from "./refresh.js";

const PACE = 2_500;
const SLOWEST = 30_000;

let timer = 0;
let pace = PACE;

async function again() {
  const outcome = await refresh();
  tell(outcome === "fresh" ? "polling" : outcome, outcome === "fresh" ? "live" : undefined);
  if (outcome === "gone") return;
  // If the server does not answer, wait longer each time.
  pace = outcome === "fresh" ? PACE : Math.min(pace * 1.6, SLOWEST);
  plan();
}

function plan() {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(again, pace);
}

document.addEventListener("visibilitychange", () => {
  pace = PACE;
  if (document.hidden) clearTimeout(timer);
  else again();
});

plan();

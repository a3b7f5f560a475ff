// The page of the timeline of a session: fetches the times of attempts, and again while the session runs.
//
// Times are in seconds since the first attempt was ready. The tables of the page, which the server renders, have the
// same facts for those who cannot see the canvas.

import { sections } from "./attempts.js";
import { tell } from "./liveness.js";
import { refresh } from "./refresh.js";
import { listen } from "./timeline_controls.js";
import { Timeline } from "./timeline_model.js";
import { explain, legend, listIdle } from "./timeline_panel.js";

const PACE = 2_000;

const root = document.getElementById("timeline");
const api = root.dataset.api;
const timeline = new Timeline(root);
const { attempts } = timeline;
let isOver = root.dataset.over === "yes";

async function fetchTimes() {
  const since = attempts.since;
  const answer = await fetch(`${api}/times${since ? `?since=${since}` : ""}`, { cache: "no-store" });
  if (!answer.ok) return answer.status === 404 ? "gone" : answer.status === 401 ? "locked" : "lost";
  const present = () => JSON.stringify([attempts.running, attempts.busyWith, attempts.missing]);
  const before = { count: attempts.count, present: present() };
  attempts.missing = [];
  for (const section of sections(await answer.arrayBuffer())) {
    if (!attempts.add(section)) {
      timeline.restart();
      return fetchTimes();
    }
  }
  return attempts.count > before.count ? "more" : present() === before.present ? "same" : "moved";
}

async function fetchAnalysis() {
  const answer = await fetch(`${api}/times/analysis`, { cache: "no-store" });
  if (!answer.ok) return;
  for (const section of sections(await answer.arrayBuffer())) attempts.analyse(section);
  root.querySelector("#plan").hidden = !attempts.hasPlan;
  timeline.analysed();
}

async function follow() {
  let next = PACE;
  try {
    const outcome = await fetchTimes();
    if (outcome === "gone" || outcome === "locked" || outcome === "lost") {
      tell(outcome);
      if (outcome !== "lost") return;
    } else {
      tell(isOver ? "over" : "live");
      if (outcome !== "same" || !attempts.analysed) {
        timeline.arrange();
        listIdle(timeline);
      }
      if (outcome === "more" || !attempts.analysed) {
        const began = performance.now();
        await fetchAnalysis();
        // The server reads all attempts for this: it is not asked for more than a tenth of the time.
        next = Math.max(PACE, 10 * (performance.now() - began));
        legend(timeline);
        explain(timeline);
        timeline.paintSoon();
      }
      root.dataset.attempts = String(attempts.count);
      root.dataset.ready = "yes";
      if (!isOver) {
        await refresh(["actions", "times", "heading"]);
        isOver = document.querySelector("#heading")?.dataset.over === "yes";
        if (isOver) {
          tell("over");
          next = 0; // once more, for the last attempts
        }
      }
    }
    if (!isOver || next === 0 || outcome === "lost") setTimeout(follow, next);
  } catch {
    tell("lost");
    setTimeout(follow, 2 * PACE);
  }
}

timeline.onChoice = () => explain(timeline);
timeline.box.addEventListener("scroll", () => timeline.paintSoon());
new ResizeObserver(() => timeline.resize()).observe(timeline.box);
const recolour = () => {
  timeline.recolour();
  legend(timeline);
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
new MutationObserver(recolour).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
listen(timeline);
explain(timeline);
follow();

// Pointer, wheel, keys and buttons of a timeline.

import { explain, legend } from "./timeline_panel.js";
import { RULER } from "./timeline_canvas.js";

/** @param {import("./timeline_model.js").Timeline} timeline */
export function listen(timeline) {
  const act = actions(timeline);
  listenToPointers(timeline);
  listenToWheel(timeline);
  timeline.canvas.addEventListener("keydown", (event) => {
    const done = act[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!done || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    done();
    timeline.paintSoon();
  });
  listenToButtons(timeline, act);
}

/** What keys do. */
function actions(timeline) {
  const { root, attempts, shown, view } = timeline;
  const toggle = (id) => () => root.querySelector(id).click();
  return {
    w: () => view.zoom(1.4, timeline.centre),
    s: () => view.zoom(1 / 1.4, timeline.centre),
    a: () => view.pan(-0.15),
    d: () => view.pan(0.15),
    f: () => (shown.chosen >= 0 ? timeline.showChosen() : view.fit()),
    0: () => view.fit(),
    c: toggle("#show-path"),
    p: toggle("#show-plan"),
    ArrowLeft: () => timeline.step(-1, 0),
    ArrowRight: () => timeline.step(1, 0),
    ArrowUp: () => timeline.step(0, -1),
    ArrowDown: () => timeline.step(0, 1),
    Escape: () => {
      shown.area = null;
      timeline.choose(-1);
    },
    Enter: () => {
      if (shown.chosen >= 0) location.href = `${root.dataset.session}?row=${attempts.drop[shown.chosen]}#drops`;
    },
  };
}

function listenToPointers(timeline) {
  const { box, canvas, shown, view } = timeline;
  const pointers = new Map();
  let drag = null;

  canvas.addEventListener("pointerdown", (event) => {
    const at = { x: event.offsetX, y: event.offsetY };
    pointers.set(event.pointerId, at);
    canvas.setPointerCapture(event.pointerId);
    const selects = event.shiftKey || at.y < RULER;
    drag = { ...at, from: view.from, to: view.to, selects, moved: false, scroll: box.scrollTop };
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = { x: event.offsetX, y: event.offsetY };
    if (!pointers.has(event.pointerId)) {
      shown.pointed = timeline.find(at.x, at.y);
      canvas.style.cursor = shown.pointed && !shown.pointed.isGap ? "pointer" : "grab";
      explain(timeline);
      return;
    }
    const before = pointers.get(event.pointerId);
    pointers.set(event.pointerId, at);
    if (pointers.size === 2) {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      const factor = Math.max(Math.abs(at.x - other.x), 8) / Math.max(Math.abs(before.x - other.x), 8);
      view.zoom(factor, timeline.timeAt((at.x + other.x) / 2));
      drag.moved = true;
      timeline.paintSoon();
      return;
    }
    drag.moved ||= Math.abs(at.x - drag.x) + Math.abs(at.y - drag.y) > 4;
    if (!drag.moved) return;
    if (drag.selects) {
      select(timeline, drag, at);
    } else {
      const shift = (drag.x - at.x) * timeline.pixel;
      view.show(drag.from + shift, drag.to + shift);
      if (event.pointerType === "mouse") box.scrollTop = drag.scroll + drag.y - at.y;
    }
    timeline.paintSoon();
  });
  const release = (event) => {
    pointers.delete(event.pointerId);
    if (drag && !drag.moved && event.type === "pointerup") {
      const found = timeline.find(event.offsetX, event.offsetY);
      shown.area = null;
      shown.pointed = found && (found.isGap || found.running) ? found : null;
      timeline.choose(found && !found.isGap ? found.span : -1);
    }
    if (!pointers.size) drag = null;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    shown.pointed = null;
    explain(timeline);
  });
}

/** Add up what is between where the pointer went down and where it is. */
function select(timeline, drag, at) {
  const { box, rows, shown, view } = timeline;
  const [from, to] = [timeline.timeAt(drag.x), timeline.timeAt(at.x)].sort((one, other) => one - other);
  const [one, other] = [drag.y, at.y].sort((low, high) => low - high);
  const isRuler = drag.y < RULER;
  const end = rows.length ? rows[rows.length - 1].top + rows[rows.length - 1].height : 0;
  shown.area = {
    from: Math.max(from, view.from), to: Math.min(to, view.to),
    first: isRuler ? 0 : one - RULER + box.scrollTop, last: isRuler ? end : other - RULER + box.scrollTop,
  };
  explain(timeline);
}

function listenToWheel(timeline) {
  const { box, canvas, view } = timeline;
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        view.zoom(Math.exp(-event.deltaY * 0.002), timeline.timeAt(event.offsetX));
        timeline.paintSoon();
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
        event.preventDefault();
        view.pan((event.deltaX || event.deltaY) / (box.clientWidth - timeline.left));
        timeline.paintSoon();
      }
    },
    { passive: false },
  );
}

function listenToButtons(timeline, act) {
  const { root, attempts, canvas, shown } = timeline;
  root.querySelector("#colours").addEventListener("change", (event) => {
    shown.colours = event.target.value;
    timeline.shade();
    legend(timeline);
    timeline.paintSoon();
  });
  root.querySelector("#show-path").addEventListener("change", (event) => {
    shown.showsPath = event.target.checked;
    timeline.paintSoon();
  });
  root.querySelector("#show-plan").addEventListener("change", (event) => {
    shown.showsPlan = event.target.checked;
    legend(timeline);
    timeline.paintSoon();
  });
  for (const [name, key] of [["closer", "w"], ["farther", "s"], ["whole", "0"]]) {
    root.querySelector(`[data-do="${name}"]`).addEventListener("click", () => {
      act[key]();
      timeline.paintSoon();
    });
  }
  root.querySelector('[data-do="picture"]').addEventListener("click", () => {
    canvas.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = `${root.dataset.name}-timeline.png`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    });
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-attempt]");
    if (!link) return;
    const [drop, attempt] = link.dataset.attempt.split("/").map(Number);
    for (let row = attempts.count - 1; row >= 0; row -= 1) {
      if (attempts.drop[row] === drop && Math.abs(attempts.attempt[row]) === attempt) {
        event.preventDefault();
        timeline.choose(row);
        timeline.showChosen();
        canvas.focus();
        return;
      }
    }
  });
}

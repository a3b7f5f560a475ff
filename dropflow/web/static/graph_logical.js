// The logical graph above the physical one: its nodes with the states of their drops, in frames of their constructs.

import { ERROR, GROUPS } from "./graph_model.js";

const SPACE = "http://www.w3.org/2000/svg";
const EDGE = 12;
const BAR = 5;
/** Of the size in which it is laid out: a wide graph is smaller, and scrolls if that is not enough. */
const LARGEST = 0.85;
const SMALLEST = 0.6;

function draw(name, set = {}, inside = []) {
  const found = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(set)) found.setAttribute(key, String(value));
  found.append(...inside);
  return found;
}

export class LogicalGraph {
  /**
   * @param {HTMLElement} place
   * @param {(key: string, name: string) => void} onChoose
   */
  constructor(place, onChoose) {
    this.place = place;
    this.onChoose = onChoose;
    this.nodes = new Map();
  }

  /** @param {any} drawing as dropflow/graph/logical_drawing.py makes it */
  show(drawing) {
    const { nodes, frames, arrows, node_width: width, node_height: height } = drawing;
    const places = new Map(nodes.map((node) => [node.template, node]));
    const size = [drawing.width + 2 * EDGE, drawing.height + 2 * EDGE];
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.place.clientWidth / size[0]));
    const svg = draw("svg", { viewBox: `${-EDGE} ${-EDGE} ${size[0]} ${size[1]}`, width: size[0] * scale, height: size[1] * scale, role: "group", "aria-label": "Logical graph" });
    for (const frame of frames) {
      const words = frame.size > 1 ? `${frame.name} × ${frame.size.toLocaleString("en")}` : frame.name;
      svg.append(
        draw("rect", { class: "frame", x: frame.x, y: frame.y, width: frame.width, height: frame.height, rx: 10 }),
        draw("text", { class: "frame-name", x: frame.x + 14, y: frame.y + 20 }, [fitted(words, frame.width - 24, 7)]),
      );
    }
    for (const { source, target, is_carry: isCarry, is_streaming: isStreaming } of arrows) {
      const [from, to] = [places.get(source), places.get(target)];
      if (!from || !to) continue;
      const path = curve(from, to, width, height, isCarry);
      svg.append(draw("path", { class: `arrow${isCarry ? " carry" : ""}${isStreaming ? " stream" : ""}`, d: path }));
    }
    for (const node of nodes) svg.append(this.#node(node, width, height));
    this.place.replaceChildren(svg);
  }

  #node(node, width, height) {
    const bar = GROUPS.map(({ style }) => draw("rect", { class: style, x: 0, y: 0, width: 0, height: BAR }));
    const sign = draw("path", { class: "error-sign", d: "M0-6L6 0L0 6L-6 0Z", transform: `translate(${width - 14} 16)` });
    const group = draw("g", { class: `node ${node.is_app ? "app" : "data"}`, transform: `translate(${node.x} ${node.y})`, role: "button", tabindex: "0" }, [
      draw("rect", { class: "body", width, height, rx: node.is_app ? 4 : height / 2 }),
      draw("text", { class: "name", x: node.is_app ? 12 : 20, y: 21 }, [fitted(node.name, width - (node.is_app ? 34 : 48), 7.2)]),
      draw("g", { class: "bar", transform: `translate(${node.is_app ? 12 : 20} ${height - 15})` }, bar),
      sign,
    ]);
    const title = draw("title", {}, [node.name]);
    group.prepend(title);
    const choose = () => this.onChoose(node.key, node.name);
    group.addEventListener("click", choose);
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      choose();
    });
    this.nodes.set(node.template, { group, bar, sign, title, name: node.name, room: width - (node.is_app ? 24 : 40), looks: "" });
    return group;
  }

  /** Show the states of the drops. @param {import("./graph_model.js").Model} model */
  update(model) {
    const width = GROUPS.length;
    for (const [template, shape] of this.nodes) {
      const counts = [...model.templateCounts.subarray(template * width, (template + 1) * width)];
      const looks = counts.join();
      if (looks === shape.looks) continue;
      shape.looks = looks;
      const total = counts.reduce((sum, number) => sum + number, 0);
      let left = 0;
      counts.forEach((number, group) => {
        const wide = total ? (shape.room * number) / total : 0;
        shape.bar[group].setAttribute("x", left.toFixed(2));
        shape.bar[group].setAttribute("width", wide.toFixed(2));
        left += wide;
      });
      shape.group.classList.toggle("failed", counts[ERROR] > 0);
      const states = model.head.isPlan ? [] : counts.map((number, group) => number && `${number.toLocaleString("en")} ${GROUPS[group].word}`).filter(Boolean);
      const words = [`${shape.name}: ${total.toLocaleString("en")} ${total === 1 ? "drop" : "drops"}`, ...states].join(", ");
      shape.group.setAttribute("aria-label", words);
      shape.title.textContent = words;
    }
  }

  /** Mark the node of the drop that is chosen. @param {number} template its row, or -1 */
  choose(template) {
    for (const [row, { group }] of this.nodes) group.classList.toggle("chosen", row === template);
  }
}

/** The curve of an arrow: from the right side to the left one, if there is room; else between the sides that are near. */
function curve(from, to, width, height, isCarry) {
  const [across, down] = [to.x - from.x, to.y - from.y];
  if (Math.abs(across) < width && Math.abs(down) > height && !isCarry) {
    const [x, u] = [from.x + width / 2, to.x + width / 2];
    const [y, v] = down > 0 ? [from.y + height, to.y] : [from.y, to.y + height];
    const bend = (v - y) / 2;
    return `M${x} ${y}C${x} ${y + bend} ${u} ${v - bend} ${u} ${v}`;
  }
  const isBack = across <= -width && !isCarry;
  const [x, y] = [from.x + (isBack ? 0 : width), from.y + height / 2];
  const [u, v] = [to.x + (isBack ? width : 0), to.y + height / 2];
  const bend = isBack ? Math.min((u - x) / 2, -16) : u < x ? 60 : Math.max((u - x) / 2, 16);
  return `M${x} ${y}C${x + bend} ${y} ${u - bend} ${v} ${u} ${v}`;
}

/** The beginning of a text that has about this room. */
function fitted(text, room, wide) {
  const length = Math.floor(room / wide);
  return text.length <= length ? text : `${text.slice(0, Math.max(length - 1, 1)).trimEnd()}…`;
}

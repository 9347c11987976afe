// Plots of rates: lines over the last samples, as SVG.

import { h, show, svg } from "/dom.js";
import { short } from "/format.js";

const SAMPLES = 120;
const COLOURS = 6;
const [WIDTH, HEIGHT, MARGIN] = [600, 150, 6];

/** A number at or above `value` that reads well: 1, 2 or 5 times a power of ten. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value) ?? value;
}

/** A plot of named series. `add` takes an object of names and values. */
export class Plot {
  constructor(title, unit) {
    this.unit = unit;
    this.title = title;
    this.series = new Map();
    this.length = 0;
    this.lines = svg("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.top = h("span", null);
    this.legend = h("ul", { class: "legend" });
    const axis = h("div", { class: "axis" }, this.lines, this.top);
    this.element = h("section", { class: "panel" }, h("h2", null, title), axis, this.legend);
  }

  add(values) {
    for (const name of Object.keys(values)) if (!this.series.has(name)) this.series.set(name, Array(this.length).fill(0));
    for (const [name, points] of this.series) {
      points.push(values[name] ?? 0);
      if (points.length > SAMPLES) points.shift();
    }
    this.length = Math.min(this.length + 1, SAMPLES);
    this.draw();
  }

  draw() {
    const most = ceiling(Math.max(1, ...[...this.series.values()].flat()));
    const x = (at) => WIDTH - ((this.length - 1 - at) * WIDTH) / (SAMPLES - 1);
    const y = (value) => HEIGHT - MARGIN - (value / most) * (HEIGHT - 2 * MARGIN);
    const grid = [0, 0.5, 1].map((part) => svg("line", { x1: 0, x2: WIDTH, y1: y(part * most), y2: y(part * most) }));
    const names = [...this.series.keys()];
    const lines = names.map((name, at) =>
      svg("polyline", { class: `c${at % COLOURS}`, points: this.series.get(name).map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
    show(this.lines, grid, lines);
    this.top.textContent = short(most, this.unit);
    const now = (name) => short(this.series.get(name).at(-1) ?? 0, this.unit);
    show(this.legend, names.map((name, at) => h("li", null, h("i", { class: `c${at % COLOURS}` }), `${name} `, h("b", null, now(name)))));
    this.lines.setAttribute("aria-label", `${this.title}: ${names.map((name) => `${name} ${now(name)}`).join(", ")}`);
  }
}

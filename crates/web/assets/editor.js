// A text area with line numbers and marks under the words of errors. Only the lines in sight are drawn, so that long policies can be edited.

import { h, show } from "/dom.js";

const LINE = 20;
const MARGIN = 2;

/** The bytes of a character in UTF-8. */
const bytes = (char) => {
  const code = char.codePointAt(0);
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
};

/** Where an error is in its line: the first index of the string, and the one behind the last. */
export function range(line, finding) {
  let [at, start, left] = [0, null, finding.span ? finding.span[1] - finding.span[0] : 1];
  let column = 1;
  for (const char of line) {
    if (column === finding.column) start = at;
    if (start !== null) {
      if (left <= 0) break;
      left -= bytes(char);
    }
    at += char.length;
    column += 1;
  }
  return start === null ? [line.length, line.length] : [start, at];
}

export class Editor {
  /** `onchange` is called after changes of the text, `onmove` with the line of the caret, from 1. */
  constructor(label, readOnly, onchange, onmove) {
    this.lines = [""];
    this.findings = [];
    this.line = 1;
    this.onmove = onmove;
    this.text = h("textarea", { "aria-label": label, spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", readonly: readOnly });
    this.gutter = h("div", { class: "gutter", "aria-hidden": "true" });
    this.marks = h("div", { class: "marks", "aria-hidden": "true" });
    this.element = h("div", { class: "editor" }, this.gutter, h("div", { class: "paper" }, this.marks, this.text));
    this.text.addEventListener("scroll", () => this.draw());
    this.text.addEventListener("input", () => {
      this.split();
      onchange();
    });
    for (const event of ["keyup", "click", "focus", "input"]) {
      this.text.addEventListener(event, () => {
        const line = this.text.value.slice(0, this.text.selectionStart).split("\n").length;
        if (line !== this.line) {
          this.line = line;
          this.draw();
        }
        this.onmove(line);
      });
    }
    new ResizeObserver(() => this.draw()).observe(this.text);
  }

  get value() {
    return this.text.value;
  }

  set value(text) {
    this.text.value = text;
    this.findings = [];
    this.split();
  }

  /** Shows marks under these words. */
  mark(findings) {
    this.findings = findings;
    this.draw();
  }

  /** Selects the words of a finding. */
  jump(finding) {
    const before = this.lines.slice(0, finding.line - 1).reduce((length, line) => length + line.length + 1, 0);
    const [start, end] = range(this.lines[finding.line - 1] ?? "", finding);
    this.text.focus();
    this.text.setSelectionRange(before + start, before + end);
    this.text.scrollTop = Math.max(0, (finding.line - 4) * LINE);
    this.line = finding.line;
    this.draw();
    this.onmove(this.line);
  }

  split() {
    this.lines = this.text.value.split("\n");
    this.draw();
  }

  draw() {
    const { scrollTop, scrollLeft, clientHeight } = this.text;
    const first = Math.max(0, Math.floor(scrollTop / LINE) - MARGIN);
    const last = Math.min(this.lines.length, Math.ceil((scrollTop + clientHeight) / LINE) + MARGIN);
    const [numbers, marks] = [[], []];
    for (let at = first; at < last; at += 1) {
      const here = this.findings.filter((finding) => finding.line === at + 1);
      const top = `${at * LINE - scrollTop}px`;
      const number = h("div", { class: here.some((finding) => !finding.remark) ? "bad" : "" }, String(at + 1));
      number.style.top = top;
      numbers.push(number);
      if (here.length || at + 1 === this.line) {
        const line = h("div", { class: at + 1 === this.line ? "here" : "" }, this.marked(this.lines[at], here));
        line.style.top = top;
        line.style.left = `${-scrollLeft}px`;
        marks.push(line);
      }
    }
    show(this.gutter, numbers);
    show(this.marks, marks);
  }

  /** A line with its words of errors marked. */
  marked(line, findings) {
    const parts = [];
    let at = 0;
    const places = findings.map((finding) => range(line, finding)).sort((a, b) => a[0] - b[0]);
    for (const [start, end] of places) {
      if (start < at) continue;
      parts.push(line.slice(at, start), h("mark", null, line.slice(start, end) || " "));
      at = end;
    }
    parts.push(line.slice(at));
    return parts;
  }
}

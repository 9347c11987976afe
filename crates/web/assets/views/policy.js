// The policy in force as a text: editing, checking, a preview of what would change, applying.

import { getText, post, put } from "/api.js";
import { FATES, changes, isNothing } from "/changes.js";
import { ask, debounced, field, h, marked, show } from "/dom.js";
import { Editor, range } from "/editor.js";
import { short, whole } from "/format.js";

/** Findings that are listed. */
const MOST = 50;
/** Texts longer than this are put into the editor and checked on request only: browsers take seconds for them. */
const LONG = 1_000_000;

/** Seconds after which a change that nobody confirms is taken back. */
const WAITS = [["", "at once"], ["60", "if confirmed within a minute"], ["600", "if confirmed within ten minutes"]];

export function policy(main, page) {
  let tag = null;
  let version = 0;
  let findings = [];
  const status = h("span", { role: "status" });
  const long = h("div", { class: "note long", hidden: true });
  const list = h("ul", { class: "findings", "aria-label": "Errors and notes" });
  const check = debounced(() => {
    if (editor.value.length <= LONG) checkNow().catch(failed);
    else status.textContent = "a long text: Check checks it";
  }, 350);
  const editor = new Editor("Policy", page.readOnly, () => {
    version += 1;
    check();
  }, here);
  const fate = h("select", null, FATES.map(([value, text]) => h("option", { value }, text)));
  const wait = h("select", null, WAITS.map(([value, text]) => h("option", { value }, text)));
  const button = (label, onclick, kind) => h("button", { type: "button", class: kind, onclick: () => onclick().catch(failed) }, label);

  function failed(problem) {
    page.problem(problem.status === 422 && problem.errors.length ? null : problem);
    if (problem.errors?.length) found(problem.errors, []);
  }

  /** Shows errors and notes. */
  function found(errors, notes) {
    findings = [...errors, ...notes.map((note) => ({ ...note, remark: true }))];
    editor.mark(findings.filter((finding) => finding.line));
    show(list, findings.slice(0, MOST).map(item));
    here(editor.line);
  }

  function item(finding) {
    const place = finding.line ? `${finding.line}:${finding.column}: ` : "";
    const hint = [finding.expected ? `expected ${finding.expected}` : null, finding.suggestion ? `did you mean ${finding.suggestion}?` : null].filter(Boolean).join("; ");
    const line = finding.line ? editor.lines[finding.line - 1] ?? "" : null;
    const [start, end] = line === null ? [0, 0] : range(line, finding);
    return h("li", { class: finding.remark ? "remark" : "" },
      h("button", { type: "button", onclick: () => finding.line && editor.jump(finding) }, [place, marked(finding.error)]),
      line !== null && h("pre", null, `${line}\n${line.slice(0, start).replace(/[^\t]/g, " ")}${"^".repeat(Math.max(1, end - start))}`),
      hint && h("div", null, marked(hint)));
  }

  /** Marks the findings of the line that the caret is in. */
  function here(line) {
    [...list.children].forEach((one, at) => one.classList.toggle("at", findings[at]?.line === line));
  }

  async function load() {
    const saved = await getText("/api/v1/policy");
    page.problem(null);
    long.hidden = saved.text.length <= LONG;
    if (long.hidden) {
      edit(saved);
    } else {
      show(long,
        h("p", null, `The policy is long: ${short(saved.text.length, "B")}. `, h("code", null, "mmb save FILE"), " and ", h("code", null, "mmb apply FILE"), " are faster than a browser."),
        h("button", { type: "button", onclick: () => edit(saved) }, "Edit it here"));
    }
  }

  function edit(saved) {
    long.hidden = true;
    tag = saved.tag;
    version += 1;
    editor.value = saved.text;
    found([], []);
    status.textContent = "as in force";
  }

  async function checkNow() {
    const checked = version;
    status.textContent = "checking";
    const result = await post("/api/v1/policy/check", { policy: editor.value });
    if (checked !== version) return;
    const shadowed = result.shadowed.slice(0, MOST).map(({ id, by }) => ({ error: `rule ${id} never decides, because rule ${by} has the better verdict for all of its packets` }));
    found(result.errors, [...result.notes, ...shadowed]);
    const count = result.errors.length;
    status.textContent = result.good ? `good, ${whole(result.rules)} rules` : `${count} ${count === 1 ? "error" : "errors"}`;
  }

  const tried = () => post(`/api/v1/policy/dry-run?connections=${fate.value}`, { policy: editor.value });

  async function preview() {
    const change = await tried();
    page.problem(null);
    await ask("Preview", isNothing(change) ? h("p", null, "This is the policy in force: nothing changes.") : changes(change), "Close");
  }

  async function apply() {
    const text = editor.value;
    const change = await tried();
    page.problem(null);
    if (isNothing(change)) {
      status.textContent = "nothing to change";
      return;
    }
    const isAgreed = await ask("Apply this policy", [changes(change), h("p", null, "Every packet sees the policy before or the policy after.")], "Apply");
    if (!isAgreed) return;
    const confirm = wait.value ? `&confirm=${wait.value}` : "";
    const done = await put(`/api/v1/policy?connections=${fate.value}${confirm}`, { policy: text }, tag);
    edit(await getText("/api/v1/policy"));
    page.waiting(done.unconfirmed);
    status.textContent = `applied: ${whole(done.count.added)} added, ${whole(done.count.removed)} removed`;
  }

  show(main, h("h1", null, "Policy"),
    h("section", { class: "panel" },
      h("div", { class: "tools" },
        button("Load", load), button("Check", checkNow), button("Preview", preview),
        !page.readOnly && button("Apply", apply, "primary"),
        !page.readOnly && field("Connections of removed rules", fate),
        !page.readOnly && field("The change is kept", wait), status),
      long, editor.element, list));
  load().catch(failed);
  return {};
}

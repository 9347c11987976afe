// Versions of the policy: what they changed, and the way back to one.

import { FATES, changes } from "/changes.js";
import { get, post } from "/api.js";
import { ask, field, h, show, table } from "/dom.js";
import { whole } from "/format.js";

const LIMIT = 100;
const COLUMNS = [["Version", "n"], ["Time", "nowrap"], ["User"], ["What"], ["Command", "rule"], ["Rules", "n"], [""]];

const who = (entry) => entry.user ?? (entry.uid === undefined ? "–" : String(entry.uid));
const lines = (found) => found.lines.map((one) => h("div", { class: one.sign === "+" ? "plus" : "minus" }, `${one.sign === "+" ? "+" : "−"} ${one.line}`));

export function history(main, page) {
  const list = h("div", null);
  const small = (label, onclick, kind = "") => h("button", { type: "button", class: `small ${kind}`, onclick: () => onclick().catch(page.problem) }, label);

  async function difference(from, to) {
    const found = await get(`/api/v1/history/diff?from=${from}&to=${to}`);
    page.problem(null);
    return [
      found.lines.length ? h("div", { class: "change", tabindex: "0" }, lines(found)) : h("p", null, "Nothing differs."),
      found.more && h("p", { class: "dim" }, "and more: ", h("code", null, `mmb diff ${from} ${to}`)),
    ].filter(Boolean);
  }

  const compare = async (from, to) => ask(`Version ${from} to ${to}`, await difference(from, to), "Close");

  async function rollback(version, now) {
    const fate = h("select", null, FATES.map(([value, text]) => h("option", { value }, text)));
    const content = [await difference(now, version), field("Connections of rules that go", fate)];
    if (!(await ask(`Put version ${version} in force again`, content, "Roll back", true))) return;
    const done = await post("/api/v1/history/rollback", { version, connections: fate.value });
    page.problem(null);
    await load();
    await ask("Done", changes(done), "Close");
  }

  async function load() {
    const found = await get(`/api/v1/history?limit=${LIMIT}`);
    page.waiting(found.unconfirmed);
    const now = found.entries.find((entry) => entry.in_force)?.version;
    let before;
    const rows = found.entries.map((entry) => {
      const { version } = entry;
      const compared = entry.kept && before !== undefined && small("Changes", compare.bind(null, before, version));
      const isOld = entry.kept && !entry.in_force && now !== undefined && !page.readOnly;
      const back = isOld && small("Roll back", () => rollback(version, now), "danger");
      if (entry.kept) before = version;
      return [
        version === undefined ? "–" : String(version),
        entry.time.replace("T", " ").replace(/\.\d+/, ""),
        who(entry),
        h("span", { class: entry.refused ? "down" : entry.in_force ? "up" : "" }, entry.refused ? "refused" : entry.in_force ? `${entry.action}, in force` : entry.action),
        entry.refused ? `${entry.command}: ${entry.refused}` : entry.command,
        entry.added || entry.removed ? `+${whole(entry.added)} −${whole(entry.removed)}` : "–",
        h("span", { class: "buttons" }, [compared, back].filter(Boolean)),
      ];
    });
    show(list, rows.length ? table(COLUMNS, rows.reverse(), { caption: "Versions" }) : h("p", { class: "empty" }, "No entry"));
  }

  show(main, h("h1", null, "History"), h("section", { class: "panel" },
    h("p", { class: "dim" }, "The last changes, the newest first. A version that is kept can be compared, and be in force again."), list));
  return { refresh: load, interval: 5000 };
}

// What a change of the policy does, for people.

import { h } from "/dom.js";
import { whole } from "/format.js";

/** What becomes of the connections of rules that go. */
export const FATES = [["release", "keep their translations"], ["keep", "keep the rules until they end"], ["kill", "end"]];

/** What a change would do, as a list of added and removed rules. */
export function changes(change) {
  const { added, removed, kept } = change.count;
  const lines = [
    ...change.removed.map((rule) => h("div", { class: "minus" }, `− ${rule.id} ${rule.rule}`)),
    ...change.added.map((rule) => h("div", { class: "plus" }, `+ ${rule.id} ${rule.rule}`)),
    ...change.settings.map((line) => h("div", null, `set ${line.name} ${line.value}`)),
    ...change.enabled.map((port) => h("div", null, `enable ${port}`)),
    ...change.disabled.map((port) => h("div", null, `disable ${port}`)),
    ...change.patterns.map((list) => h("div", null, `patterns ${list.name}: ${whole(list.patterns)}`)),
    ...change.sets.map((set) => h("div", { class: set.elements === null ? "minus" : "" }, set.elements === null ? `− set ${set.name}` : `set ${set.name}: ${whole(set.before ?? 0)} elements, then ${whole(set.elements)}`)),
  ];
  const more = added + removed - change.added.length - change.removed.length;
  const affected = change.affected && Object.entries(change.affected).filter(([, count]) => count);
  return [
    h("p", null, `${whole(added)} rules are added, ${whole(removed)} removed, ${whole(kept)} stay with their counters.`),
    lines.length > 0 && h("div", { class: "change", tabindex: "0" }, lines),
    more > 0 && h("p", { class: "dim" }, `and ${whole(more)} more rules`),
    affected?.length > 0 && h("p", { class: "note" }, `Connections: ${affected.map(([what, count]) => `${whole(count)} ${what.replaceAll("_", " ")}`).join(", ")}`),
  ].filter(Boolean);
}

/** Whether a change leaves all as it is. */
export const isNothing = ({ count, settings, enabled, disabled, patterns, sets }) => count.added + count.removed + settings.length + enabled.length + disabled.length + patterns.length + sets.length === 0;

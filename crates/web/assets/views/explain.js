// What the policy in force does to a packet, and why.

import { post } from "/api.js";
import { field, h, show } from "/dom.js";
import { endpoint } from "/format.js";

const EXAMPLE = "in lan ip-saddr 10.0.0.1 tcp-dport 443 tcp-syn";

function packet(one) {
  const end = (part) => (part ? (part.port === null ? part.address : endpoint(part.address, part.port)) : "?");
  const between = one.source ? `${end(one.source)} → ${end(one.destination)}` : "";
  return `${one.proto} ${between}, ${one.bytes} bytes`;
}

const HOLDS = { true: ["holds", "up"], false: ["does not hold", "down"], null: ["depends on the connection", "note"] };

function answer(found) {
  const verdict = found.verdict === "passes" ? `It passes to port ${found.out}` : found.verdict === "dropped" ? `It is dropped: ${found.reason}` : `It is ${found.verdict}`;
  const rules = found.rules.map((rule) => h("tr", null, h("td", { class: "n" }, String(rule.id)), h("td", { class: "rule" }, rule.rule), h("td", null, rule.decides ? h("span", { class: "decides" }, "decides") : "")));
  const asked = found.why_not.map((rule) => h("section", null,
    h("h2", null, `Rule ${rule.id} ${rule.applies ? "applies" : "does not apply"}`),
    h("ul", null, rule.constraints.map((one) => h("li", null, h("code", null, one.constraint), ": ", h("span", { class: HOLDS[String(one.holds)][1] }, HOLDS[String(one.holds)][0]))))));
  return [
    h("p", { class: `verdict ${found.verdict === "dropped" ? "down" : "up"}` }, verdict),
    h("p", { class: "mono" }, packet(found.packet)),
    found.rewritten && h("p", null, "Rewritten: ", h("span", { class: "mono" }, packet(found.rewritten))),
    rules.length ? h("div", { class: "scroll" }, h("table", { "aria-label": "Rules that apply" }, h("tbody", null, rules))) : h("p", null, "No rule applies"),
    found.more_rules > 0 && h("p", { class: "dim" }, `and ${found.more_rules} more`),
    asked,
  ];
}

export function explain(main, page) {
  const words = h("input", { class: "mono", value: EXAMPLE, required: true, spellcheck: "false", autocomplete: "off" });
  const ids = h("input", { class: "mono", placeholder: "12, 40", spellcheck: "false", autocomplete: "off", pattern: "[0-9, ]*" });
  const result = h("section", { class: "panel", "aria-live": "polite", hidden: true });

  async function run(event) {
    event.preventDefault();
    page.problem(null);
    const why_not = ids.value.split(/[\s,]+/).filter(Boolean).map(Number);
    try {
      const found = await post("/api/v1/explain", { packet: words.value, why_not });
      result.hidden = false;
      show(result, answer(found));
    } catch (problem) {
      result.hidden = true;
      page.problem(problem);
    }
  }

  show(main, h("h1", null, "Explain"),
    h("form", { class: "panel", onsubmit: run },
      h("p", { class: "dim" }, "A packet is described by constraints, as in a rule. It passes an engine with the policy in force, apart from the traffic: without its connections, and without a search in bytes."),
      h("div", { class: "tools" }, field("Packet", words, "grow"), field("Why not these rules", ids), h("button", { class: "primary", type: "submit" }, "Explain"))),
    result);
  return {};
}

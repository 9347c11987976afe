// Rules with their counters: searched and sorted by the server, a page at a time.

import { get } from "/api.js";
import { debounced, field, h, show, table } from "/dom.js";
import { rate, short, whole } from "/format.js";

const PAGE = 50;
const COLUMNS = [["Id", "n", "id"], ["Rule", "rule"], ["Rate", "n"], ["Packets", "n", "packets"], ["Bytes", "n", "bytes"], ["Dropped", "n", "dropped_packets"], ["Hits", "n", "hits"]];

export function rules(main, page) {
  const sort = { key: "id", ascending: true };
  const q = h("input", { type: "search", class: "mono", placeholder: "10.0.0. drop", spellcheck: "false", autocomplete: "off" });
  const word = h("input", { type: "search", class: "mono", placeholder: "tcp-dport", spellcheck: "false", autocomplete: "off" });
  const [list, count, pages] = [h("div", null), h("span", { role: "status" }), h("span", { class: "dim" })];
  const step = (by) => () => {
    offset = Math.max(0, offset + by);
    load().catch(page.problem);
  };
  const [previous, next] = [h("button", { type: "button", onclick: step(-PAGE) }, "Previous"), h("button", { type: "button", onclick: step(PAGE) }, "Next")];
  let offset = 0;
  let asked = 0;
  let before = { time: 0, packets: new Map() };

  const search = debounced(() => {
    offset = 0;
    load().catch(page.problem);
  }, 200);
  q.addEventListener("input", search);
  word.addEventListener("input", search);

  function onsort(key) {
    const isSame = sort.key === key;
    sort.ascending = isSame ? !sort.ascending : key === "id";
    sort.key = key;
    offset = 0;
    load().catch(page.problem);
  }

  function draw(found) {
    const time = performance.now() - found.age_ms;
    const ms = time - before.time;
    const packets = new Map(found.rules.map((rule) => [rule.id, rule.packets ?? 0]));
    const now = (rule) => {
      const was = before.packets.get(rule.id);
      return was === undefined || ms < 300 ? rates.get(rule.id) : rate(rule.packets ?? 0, was, ms);
    };
    const fresh = new Map(found.rules.map((rule) => [rule.id, now(rule)]));
    if (ms >= 300) before = { time, packets };
    rates = fresh;
    const rows = found.rules.map((rule) => [
      String(rule.id),
      [rule.rule, rule.shadowed_by ? h("div", { class: "note" }, `never decides: rule ${rule.shadowed_by} does`) : null],
      fresh.get(rule.id) === undefined ? "–" : short(fresh.get(rule.id), "pps"),
      whole(rule.packets),
      short(rule.bytes ?? 0, "B"),
      whole(rule.dropped_packets),
      rule.hits === undefined ? "–" : whole(rule.hits),
    ].map((cell) => (Array.isArray(cell) ? h("span", null, cell) : cell)));
    const isSearch = q.value.trim() || word.value.trim();
    count.textContent = isSearch ? `${whole(found.matched)} of ${whole(found.total)} rules` : `${whole(found.total)} rules`;
    const last = Math.min(found.offset + found.rules.length, found.matched);
    pages.textContent = found.matched ? `${whole(found.offset + 1)} to ${whole(last)}` : "";
    previous.disabled = found.offset === 0;
    next.disabled = last >= found.matched;
    show(list, rows.length ? table(COLUMNS, rows, { caption: "Rules", sort, onsort }) : h("p", { class: "empty" }, isSearch ? "No rule matches" : "There are no rules: every packet passes"));
  }
  let rates = new Map();

  async function load() {
    const number = ++asked;
    const query = new URLSearchParams({ q: q.value, field: word.value, sort: sort.key, order: sort.ascending ? "asc" : "desc", offset, limit: PAGE });
    const found = await get(`/api/v1/rules?${query}`);
    // Answers may overtake each other while somebody types.
    if (number === asked) draw(found);
  }

  show(main, h("h1", null, "Rules"),
    h("section", { class: "panel" },
      h("div", { class: "tools" }, field("Words of the rule, or its id", q, "grow"), field("Field or target", word), count),
      list, h("div", { class: "pager" }, previous, pages, next)));
  return { refresh: load, interval: 3000 };
}

// Connections that a filter selects, and ending them.

import { get, post } from "/api.js";
import { ask, debounced, field, h, show, table } from "/dom.js";
import { endpoint, short, time, whole } from "/format.js";

const LIMIT = 200;
const COLUMNS = [["Protocol"], ["State"], ["From"], ["To"], ["Leaves as"], ["Age", "n"], ["Idle", "n"], ["Sent", "n"], ["Replied", "n"], ["Rules"], [""]];

/** The filter of the language that selects a connection. */
function filterOf({ proto, arrived }) {
  const ip = arrived.src.includes(":") ? "ip6" : "ip";
  const ports = proto === "tcp" || proto === "udp" ? `${proto}-sport ${arrived.sport} ${proto}-dport ${arrived.dport}` : `ip-proto ${proto}`;
  return `${ip}-saddr ${arrived.src} ${ip}-daddr ${arrived.dst} ${ports}`;
}

const ends = (tuple) => [endpoint(tuple.src, tuple.sport), endpoint(tuple.dst, tuple.dport)];

export function connections(main, page) {
  const filter = h("input", { type: "search", class: "mono", placeholder: "ip-saddr 10.0.0.0/24 tcp-dport 443", spellcheck: "false", autocomplete: "off" });
  const kill = h("button", { type: "button", class: "danger", onclick: end, hidden: page.readOnly }, "End these");
  const [summary, fault, list] = [h("span", { role: "status" }), h("p", { class: "note", role: "alert", hidden: true }), h("div", null)];
  let asked = 0;

  filter.addEventListener("input", debounced(() => load().catch(page.problem), 300));

  function row(connection) {
    const [from, to] = ends(connection.arrived);
    const [sentFrom, sentTo] = ends(connection.sent);
    const translated = [sentFrom !== from ? `from ${sentFrom}` : null, sentTo !== to ? `to ${sentTo}` : null].filter(Boolean).join(", ");
    const select = () => {
      filter.value = filterOf(connection);
      load().catch(page.problem);
    };
    const traffic = (one) => `${whole(one.packets)} · ${short(one.bytes, "B")}`;
    return [connection.proto, connection.state, from, to, translated || "–", time(connection.age_ms), time(connection.idle_ms),
      traffic(connection.forward), traffic(connection.reply), connection.rules.join(", "),
      h("button", { type: "button", class: "small", onclick: select, "aria-label": `Filter by ${from} to ${to}` }, "Filter")];
  }

  async function load() {
    const number = ++asked;
    const query = new URLSearchParams({ filter: filter.value, limit: LIMIT });
    let found;
    try {
      found = await get(`/api/v1/connections?${query}`);
    } catch (problem) {
      if (problem.status !== 422) throw problem;
      // Somebody is typing.
      if (number === asked) {
        fault.hidden = false;
        fault.textContent = problem.errors[0]?.suggestion ? `${problem.message}; did you mean ${problem.errors[0].suggestion}?` : problem.message;
        kill.disabled = true;
      }
      return;
    }
    const state = await get("/api/v1/state");
    if (number !== asked) return;
    fault.hidden = true;
    kill.disabled = !filter.value.trim();
    const shown = found.connections.length;
    const total = state.connections?.connections ?? 0;
    summary.textContent = found.more ? `the first ${whole(shown)} that match; ${whole(total)} exist` : `${whole(shown)} match; ${whole(total)} exist`;
    show(list, shown ? table(COLUMNS, found.connections.map(row), { caption: "Connections" }) : h("p", { class: "empty" }, "No connection matches"));
  }

  async function end() {
    const chosen = filter.value.trim();
    const content = [h("p", null, "All connections that this filter selects end at once; their packets begin new ones if the rules allow it."), h("pre", null, chosen)];
    if (!(await ask("End connections", content, "End them", true))) return;
    try {
      const killed = await post("/api/v1/connections/kill", { filter: chosen });
      page.problem(null);
      await load();
      summary.textContent = `${whole(killed.connections)} ended`;
    } catch (problem) {
      page.problem(problem);
    }
  }

  show(main, h("h1", null, "Connections"),
    h("section", { class: "panel" }, h("div", { class: "tools" }, field("Filter", filter, "grow"), kill), fault, h("p", { class: "dim" }, summary), list));
  return { refresh: load, interval: 3000 };
}

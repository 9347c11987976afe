// Dropped packets by reason, what the reasons mean, and what helps.

import { get } from "/api.js";
import { h, marked, show, table } from "/dom.js";
import { rate, short, whole } from "/format.js";

const COLUMNS = [["Reason", "nowrap"], ["Rate", "n"], ["Packets", "n"], ["Meaning"], ["Remedy"]];
const OTHERS = [["Event", "nowrap"], ["Count", "n"]];

export function drops(main) {
  const [list, others] = [h("div", null), h("div", null)];
  show(main, h("h1", null, "Drops"),
    h("section", { class: "panel" }, h("h2", null, "Dropped packets by reason"), list),
    h("section", { class: "panel" }, h("h2", null, "Lost by devices, targets not applied, packets made"), others));
  let before = null;

  function draw(state) {
    const ms = before ? state.time_ms - before.time_ms : 0;
    const was = (reason) => before?.drops.find((drop) => drop.reason === reason)?.count ?? 0;
    const rows = state.drops.toSorted((a, b) => b.count - a.count).map((drop) => [
      h("b", null, drop.reason),
      ms > 0 ? short(rate(drop.count, was(drop.reason), ms), "pps") : "–",
      whole(drop.count),
      h("span", null, marked(drop.meaning)),
      h("span", null, marked(drop.remedy)),
    ]);
    show(list, rows.length ? table(COLUMNS, rows, { caption: "Drops" }) : h("p", { class: "empty" }, "No packet was dropped"));
    const lost = state.port_losses.flatMap((port) => [["no room on receipt", port.rx_missed], ["damaged on receipt", port.rx_errors], ["failed to send", port.tx_errors]]
      .filter(([, count]) => count).map(([what, count]) => [`${port.port}: ${what}`, whole(count)]));
    const more = [...lost,
      ...state.not_applied.map((line) => [`not applied: ${line.reason}`, whole(line.count)]),
      ...state.made.map((line) => [`made: ${line.reason}`, whole(line.count)])];
    if (state.absorbed) more.push(["absorbed: their bytes live on in streams", whole(state.absorbed)]);
    show(others, more.length ? table(OTHERS, more, { caption: "Other events" }) : h("p", { class: "empty" }, "Nothing"));
    if (!before || ms > 0) before = state;
  }

  return { refresh: async () => draw(await get("/api/v1/state")) };
}

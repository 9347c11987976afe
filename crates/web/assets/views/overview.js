// Ports, workers and rates.

import { get } from "/api.js";
import { h, show, table } from "/dom.js";
import { rate, short, whole } from "/format.js";
import { Plot } from "/plot.js";

const LINKS = { up: ["up", "up"], down: ["down", "down"], gone: ["gone", "down"] };

const sum = (items, value) => items.reduce((total, item) => total + value(item), 0);
const card = (name, value) => h("div", { class: "card" }, h("span", { class: "dim" }, name), h("b", null, value));

/** Rates between two states: by port, and over all. */
function rates(now, before) {
  const ms = now.time_ms - before.time_ms;
  const old = (name) => before.ports.find((port) => port.name === name);
  const ports = now.ports.filter((port) => old(port.name)).map((port) => {
    const [rx, tx, was] = [port.rx, port.tx, old(port.name)];
    return {
      name: port.name,
      rx: rate(rx.packets, was.rx.packets, ms),
      tx: rate(tx.packets, was.tx.packets, ms),
      rxBits: 8 * rate(rx.bytes, was.rx.bytes, ms),
      txBits: 8 * rate(tx.bytes, was.tx.bytes, ms),
    };
  });
  const dropped = (state) => sum(state.drops, (drop) => drop.count);
  const made = (state) => state.connections?.created ?? 0;
  return { ports, drops: rate(dropped(now), dropped(before), ms), made: rate(made(now), made(before), ms) };
}

/** The share of a worker's calls that had packets: how busy it is. */
function busy(worker, was) {
  const total = (one, name) => sum(one?.stages ?? [], (stage) => stage[name]);
  const calls = total(worker, "calls") - total(was, "calls");
  const vectors = total(worker, "vectors") - total(was, "vectors");
  return calls > 0 && vectors >= 0 ? `${Math.round((100 * vectors) / calls)}\u202f%` : "–";
}

function portRows(ports, now) {
  return ports.map((port) => {
    const [text, kind] = LINKS[port.link] ?? [port.link, ""];
    const at = now?.ports.find((one) => one.name === port.name);
    const lost = port.rx_missed + port.rx_errors + port.tx_errors;
    return [
      h("b", null, port.name),
      h("span", null, port.device, " ", h("span", { class: "dim" }, port.driver)),
      h("span", { class: kind }, port.enabled ? text : `${text}, disabled`),
      port.peer ?? "–",
      whole(port.mtu),
      at ? `${short(at.rx, "pps")} · ${short(at.rxBits, "b/s")}` : "–",
      at ? `${short(at.tx, "pps")} · ${short(at.txBits, "b/s")}` : "–",
      whole(port.rx.packets),
      whole(port.tx.packets),
      h("span", { class: lost ? "down" : "" }, whole(lost)),
    ];
  });
}

function workerRows(state, before) {
  return state.workers.map((worker) => {
    const was = before?.workers.find((one) => one.worker === worker.worker);
    const packets = Math.max(0, ...worker.stages.map((stage) => stage.packets));
    const cycles = sum(worker.stages, (stage) => (packets ? (stage.cycles_per_packet * stage.packets) / packets : 0));
    return [String(worker.worker), worker.core === null ? "–" : String(worker.core), was ? busy(worker, was) : "–", whole(packets), packets ? whole(Math.round(cycles)) : "–"];
  });
}

const PORT_COLUMNS = [["Port"], ["Device"], ["Link"], ["Wire to"], ["MTU", "n"], ["Receives", "n"], ["Sends", "n"], ["Received", "n"], ["Sent", "n"], ["Lost", "n"]];
const WORKER_COLUMNS = [["Worker"], ["Core"], ["Busy calls", "n"], ["Packets", "n"], ["Cycles a packet", "n"]];

export function overview(main) {
  const [cards, ports, workers] = [h("div", { class: "cards" }), h("div", null), h("div", null)];
  const plots = { packets: new Plot("Packets received", "pps"), bits: new Plot("Bits received", "b/s"), drops: new Plot("Packets dropped", "pps"), made: new Plot("Connections made", "/s") };
  show(main, h("h1", null, "Overview"), cards,
    h("div", { class: "plots" }, Object.values(plots).map((plot) => plot.element)),
    h("section", { class: "panel" }, h("h2", null, "Ports"), ports),
    h("section", { class: "panel" }, h("h2", null, "Workers"), workers));
  let before = null;

  function draw(state) {
    const now = before && state.time_ms > before.time_ms ? rates(state, before) : null;
    if (before && !now) return;
    if (now) {
      const by = (value) => Object.fromEntries(now.ports.map((port) => [port.name, port[value]]));
      plots.packets.add(by("rx"));
      plots.bits.add(by("rxBits"));
      plots.drops.add({ dropped: now.drops });
      plots.made.add({ made: now.made });
    }
    const all = (value) => (now ? sum(now.ports, (port) => port[value]) : 0);
    const held = state.connections;
    show(cards, card("Received", short(all("rx"), "pps")), card("Sent", short(all("tx"), "pps")), card("Dropped", short(now?.drops ?? 0, "pps")),
      card("Connections", held ? `${short(held.connections)} of ${short(held.max)}` : "–"),
      card("Rule lookup", state.version?.instructions ?? "–"));
    show(ports, table(PORT_COLUMNS, portRows(state.ports, now), { caption: "Ports" }));
    show(workers, table(WORKER_COLUMNS, workerRows(state, before), { caption: "Workers" }));
    before = state;
  }

  return { refresh: async () => draw(await get("/api/v1/state")) };
}

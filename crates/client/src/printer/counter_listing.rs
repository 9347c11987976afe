//! The tables of `show tables`, `show ports`, `show errors` and `show runtime`, for people.

use super::text_table::{Align, TextTable};
use crate::report::counted;
use crate::screen::Screen;
use mmb_protocol::answer::{
    FlowCacheLine, LinkLine, PortLine, PortLossLine, ReasonLine, StageLine, TableLine, TableMemoryLine,
    TrafficLine, WorkerLine,
};

/// Prints the tables of the classifier.
pub(super) fn show_tables(screen: &mut Screen<'_>, tables: &[TableLine], memory: Option<TableMemoryLine>) {
    if tables.is_empty() {
        screen.text("no tables: there are no rules\n");
        if let Some(memory) = memory {
            screen.text(&table_memory(memory));
        }
        return;
    }
    let mut table = TextTable::new(&[
        ("CLASS", Align::Left),
        ("TUPLES", Align::Right),
        ("RULES", Align::Right),
        ("ENTRIES", Align::Right),
        ("BUCKETS", Align::Right),
        ("LOAD", Align::Right),
        ("MASK", Align::Left),
    ]);
    let mut sums = [0u64; 4];
    for line in tables {
        let numbers = [line.tuples, line.rules, line.entries, line.buckets];
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        let [tuples, rules, entries, buckets] = numbers.map(|number| number.to_string());
        let load = format!("{:.2}", line.load);
        let mask = if line.mask.is_empty() { "(any)".to_owned() } else { line.mask.clone() };
        table.row(screen, vec![line.class.clone(), tuples, rules, entries, buckets, load, mask]);
    }
    let [tuples, rules, entries, buckets] = sums.map(|sum| sum.to_string());
    let count = counted(tables.len() as u64, "table");
    table.end(screen, Some(vec![String::new(), tuples, rules, entries, buckets, String::new(), count]));
    if let Some(memory) = memory {
        screen.text(&table_memory(memory));
    }
}

fn table_memory(TableMemoryLine { bytes, huge_bytes, daemon_huge_bytes }: TableMemoryLine) -> String {
    let [all, huge] = [bytes, huge_bytes].map(|bytes| bytes as f64 / f64::from(1 << 20));
    let given = match daemon_huge_bytes {
        _ if huge_bytes == 0 => String::new(),
        Some(0) => {
            ", which the kernel does not provide (/sys/kernel/mm/transparent_hugepage/enabled)".to_owned()
        }
        Some(given) => {
            format!("; {:.1} MB of the daemon are in such pages", given as f64 / f64::from(1 << 20))
        }
        None => String::new(),
    };
    format!("{all:.1} MB of tables, actions and counters, {huge:.1} MB of them for huge pages{given}\n")
}

/// Prints the ports, and below them their counters.
pub(super) fn show_ports(screen: &mut Screen<'_>, ports: Vec<PortLine>) {
    let mut devices = TextTable::new(&[
        ("PORT", Align::Left),
        ("DEVICE", Align::Left),
        ("DRIVER", Align::Left),
        ("MAC", Align::Left),
        ("MTU", Align::Right),
        ("LINK", Align::Left),
        ("PEER", Align::Left),
        ("STATE", Align::Left),
    ]);
    let right = |name| (name, Align::Right);
    let mut counters = TextTable::new(&[
        ("PORT", Align::Left),
        right("RX PACKETS"),
        right("RX BYTES"),
        right("TX PACKETS"),
        right("TX BYTES"),
        right("RX MISSED"),
        right("RX ERRORS"),
        right("TX ERRORS"),
    ]);
    let mut sums = [0u64; 7];
    let mut rows = Vec::new();
    for port in ports {
        let link = match port.link {
            LinkLine::Up => "up",
            LinkLine::Down => "down",
            LinkLine::Gone => "gone",
        };
        let state = if port.enabled { "enabled" } else { "disabled" };
        let (rx, tx) = (port.rx, port.tx);
        let numbers =
            [rx.packets, rx.bytes, tx.packets, tx.bytes, port.rx_missed, port.rx_errors, port.tx_errors];
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.saturating_add(number));
        rows.push(
            std::iter::once(port.name.clone()).chain(numbers.map(|number| number.to_string())).collect(),
        );
        devices.row(
            screen,
            vec![
                port.name,
                port.device,
                port.driver,
                port.mac,
                port.mtu.to_string(),
                link.to_owned(),
                port.peer.unwrap_or_else(|| "-".to_owned()),
                state.to_owned(),
            ],
        );
    }
    devices.end(screen, None);
    screen.text("\n");
    rows.into_iter().for_each(|row| counters.row(screen, row));
    let totals = std::iter::once("total".to_owned()).chain(sums.map(|sum| sum.to_string()));
    counters.end(screen, Some(totals.collect()));
}

/// Prints packets by reason, the most frequent first; `none` if there are none.
pub(super) fn show_reasons(
    screen: &mut Screen<'_>,
    mut reasons: Vec<ReasonLine>,
    [count, of]: [&'static str; 2],
    none: &str,
) {
    if reasons.is_empty() {
        screen.text(none);
        return;
    }
    reasons.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    let mut table = TextTable::new(&[(count, Align::Right), (of, Align::Left)]);
    let total: u64 = reasons.iter().map(|line| line.count).fold(0, u64::saturating_add);
    reasons.into_iter().for_each(|line| table.row(screen, vec![line.count.to_string(), line.reason]));
    table.end(screen, Some(vec![total.to_string(), "total".to_owned()]));
}

/// Prints what devices have lost.
pub(super) fn show_losses(screen: &mut Screen<'_>, losses: Vec<PortLossLine>) {
    if losses.is_empty() {
        return;
    }
    let right = |name| (name, Align::Right);
    let columns =
        [("LOST BY DEVICE", Align::Left), right("RX MISSED"), right("RX ERRORS"), right("TX ERRORS")];
    let mut table = TextTable::new(&columns);
    for PortLossLine { port, rx_missed, rx_errors, tx_errors } in losses {
        let counts = [rx_missed, rx_errors, tx_errors].map(|count| count.to_string());
        table.row(screen, std::iter::once(port).chain(counts).collect());
    }
    table.end(screen, None);
}

/// Prints stages and flow cache of each worker, and of all.
pub(super) fn show_runtime(
    screen: &mut Screen<'_>,
    workers: &[WorkerLine],
    (stages, flow_cache): (&[StageLine], &FlowCacheLine),
    offloaded: Option<TrafficLine>,
) {
    for worker in workers {
        let core = worker.core.map_or_else(String::new, |core| format!(" on core {core}"));
        screen.text(&format!("worker {}{core}\n", worker.worker));
        show_stages(screen, &worker.stages);
        show_flow_cache(screen, &worker.flow_cache);
    }
    if workers.len() != 1 {
        screen.text("all workers\n");
        show_stages(screen, stages);
        show_flow_cache(screen, flow_cache);
    }
    if let Some(TrafficLine { packets, bytes }) = offloaded {
        let packets = counted(packets, "packet");
        screen
            .text(&format!("offloaded: {packets}, {bytes} bytes, which passed no stage (`show offload`)\n"));
    }
    screen.text("not included: the cycles of receiving from devices and sending to them\n");
}

fn show_flow_cache(screen: &mut Screen<'_>, FlowCacheLine { hits, misses, bypassed }: &FlowCacheLine) {
    let mut text = format!("flow cache: {hits} hits, {misses} misses");
    if !bypassed.is_empty() {
        let reasons: Vec<String> =
            bypassed.iter().map(|(reason, packets)| format!("{packets} ({reason})")).collect();
        text += &format!(", bypassed: {}", reasons.join(", "));
    }
    screen.text(&(text + "\n"));
}

fn show_stages(screen: &mut Screen<'_>, stages: &[StageLine]) {
    let right = |name| (name, Align::Right);
    let mut table = TextTable::new(&[
        ("STAGE", Align::Left),
        right("CALLS"),
        right("VECTORS"),
        right("PACKETS"),
        right("PACKETS/VECTOR"),
        right("CYCLES/PACKET"),
    ]);
    for stage in stages {
        let counts = [stage.calls, stage.vectors, stage.packets].map(|count| count.to_string());
        let averages =
            [stage.packets_per_vector, stage.cycles_per_packet].map(|average| format!("{average:.1}"));
        table.row(screen, std::iter::once(stage.name.clone()).chain(counts).chain(averages).collect());
    }
    // Stages process different numbers of packets: all of them are parsed.
    let packets = stages.iter().map(|stage| stage.packets).max().unwrap_or_default();
    let cycles: f64 = stages.iter().map(|stage| stage.cycles_per_packet * stage.packets as f64).sum();
    let cycles = cycles / packets.max(1) as f64;
    let blank = || String::new();
    table.end(
        screen,
        Some(vec![
            "total".to_owned(),
            blank(),
            blank(),
            packets.to_string(),
            blank(),
            format!("{cycles:.1}"),
        ]),
    );
}

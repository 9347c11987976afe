//! Answers for people: aligned tables with totals, changes after a sign.

use super::answer_printer::AnswerPrinter;
use super::connection_listing::{self, ConnectionListing};
use super::log_listing;
use super::offload::OffloadListing;
use super::rates::show_rates;
use super::set_listing;
use super::stream_listing::{self, StreamListing};
use super::text_table::{Align, TextTable};
use crate::report::{self, SourceText, counted};
use crate::screen::{Color, Screen};
use crate::sink::OutputSink;
use mmb_protocol::answer::{
    AffectedLine, Answer, AnswerBegin, AnswerEnd, ErrorLine, FlowCacheLine, LinkLine, PatternsLine, PortLine,
    PortLossLine, RateLines, ReasonLine, RuleLine, SetLine, StageLine, TableLine, TableMemoryLine, Topic,
    TrafficLine, WorkerLine,
};

/// Added rules, and removed rules, that are shown of a change.
const CHANGES_SHOWN: u64 = 20;

/// Prints the lines of one answer as they arrive.
pub(crate) struct HumanPrinter<'a> {
    screen: Screen<'a>,
    /// Printed before the first event of `monitor`.
    monitor_hint: &'a str,
    section: HumanSection,
    /// A whole policy is applied: its counts are always printed.
    applying: bool,
    added: u64,
    removed: u64,
    affected: Option<AffectedLine>,
    others: u64,
}

#[derive(Debug)]
enum HumanSection {
    None,
    Rules {
        table: Option<TextTable>,
        rules: u64,
        /// By the rules that are listed.
        dropped: TrafficLine,
        former: Option<TrafficLine>,
        terse: bool,
    },
    Tables(Vec<TableLine>, Option<TableMemoryLine>),
    Ports(Vec<PortLine>),
    Errors {
        drops: Vec<ReasonLine>,
        made: Vec<ReasonLine>,
        absorbed: u64,
        not_applied: Vec<ReasonLine>,
        losses: Vec<PortLossLine>,
    },
    Runtime {
        workers: Vec<WorkerLine>,
        stages: Vec<StageLine>,
        flow_cache: FlowCacheLine,
        offloaded: Option<TrafficLine>,
    },
    Offload(OffloadListing),
    Rates(Box<RateLines>),
    Settings(Vec<(String, String)>),
    Sets(Vec<SetLine>),
    Connections(ConnectionListing),
    Streams(StreamListing),
    /// Each line is printed at once.
    Unbuffered,
}

impl<'a> HumanPrinter<'a> {
    pub(crate) fn new(sink: &'a dyn OutputSink, monitor_hint: &'a str, applying: bool) -> HumanPrinter<'a> {
        let (screen, section) = (Screen::new(sink), HumanSection::None);
        HumanPrinter {
            screen,
            monitor_hint,
            section,
            applying,
            added: 0,
            removed: 0,
            affected: None,
            others: 0,
        }
    }
}

impl AnswerPrinter for HumanPrinter<'_> {
    fn line(&mut self, answer: Answer) {
        match (answer, &mut self.section) {
            (Answer::Begin(AnswerBegin { topic, selected, .. }), _) => {
                self.finish_section();
                self.section = HumanSection::new(topic, selected);
                if topic == Topic::Monitor {
                    self.screen.sink().err(self.monitor_hint);
                }
            }
            (Answer::Rule(rule), HumanSection::Rules { .. }) => self.rule(rule),
            (Answer::DroppedByFormerRules(line), HumanSection::Rules { former, .. }) => *former = Some(line),
            (Answer::Table(line), HumanSection::Tables(tables, _)) => tables.push(line),
            (Answer::TableMemory(line), HumanSection::Tables(_, memory)) => *memory = Some(line),
            (Answer::Port(line), HumanSection::Ports(ports)) => ports.push(line),
            (Answer::Drop(line), HumanSection::Errors { drops, .. }) => drops.push(line),
            (Answer::Made(line), HumanSection::Errors { made, .. }) => made.push(line),
            (Answer::Absorbed(count), HumanSection::Errors { absorbed, .. }) => *absorbed += count,
            (Answer::NotApplied(line), HumanSection::Errors { not_applied, .. }) => not_applied.push(line),
            (Answer::PortLoss(line), HumanSection::Errors { losses, .. }) => losses.push(line),
            (Answer::Worker(line), HumanSection::Runtime { workers, .. }) => workers.push(line),
            (Answer::Stage(line), HumanSection::Runtime { stages, .. }) => stages.push(line),
            (Answer::FlowCache(line), HumanSection::Runtime { flow_cache, .. }) => *flow_cache = line,
            (Answer::Offloaded(line), HumanSection::Runtime { offloaded, .. }) => *offloaded = Some(line),
            (Answer::Offload(line), HumanSection::Offload(listing)) => listing.line = line,
            (Answer::PortOffload(line), HumanSection::Offload(listing)) => listing.ports.push(line),
            (Answer::KeptFlows(line), HumanSection::Offload(listing)) => listing.kept.push(line),
            (Answer::Rate(line), HumanSection::Rates(rates)) => rates.add(line),
            (Answer::Setting(line), HumanSection::Settings(settings)) => {
                settings.push((line.name, plain(&line.value)));
            }
            (Answer::Connection(line), HumanSection::Connections(listing)) => {
                listing.row(&mut self.screen, &line)
            }
            (Answer::Connection(line), HumanSection::Streams(listing)) => {
                listing.row(&mut self.screen, &line)
            }
            (Answer::StreamSummary(line), _) => stream_listing::summary(&mut self.screen, &line),
            (Answer::StreamEvent(line), _) => stream_listing::event(&mut self.screen, &line),
            (Answer::Log(line), _) => log_listing::packet(&mut self.screen, &line),
            (Answer::Suppressed(line), _) => log_listing::suppressed(&mut self.screen, &line),
            (Answer::Summary(line), _) => connection_listing::summary(&mut self.screen, &line),
            (Answer::Event(line), _) => connection_listing::event(&mut self.screen, &line),
            (Answer::Set(line), HumanSection::Sets(sets)) => sets.push(line),
            (Answer::Element(line), _) => set_listing::element(&mut self.screen, &line),
            (Answer::Lost(events), _) => {
                self.screen.text(&format!("… {} lost\n", counted(events, "event")));
            }
            (Answer::Version(line), _) => {
                self.screen.text(&format!("mmb {}, protocol {}", line.version, line.protocol));
                if !line.instructions.is_empty() {
                    self.screen.text(&format!(", looks rules up with {} instructions", line.instructions));
                }
                self.screen.text("\n");
            }
            (other, _) => self.change(other),
        }
    }

    fn note(&mut self, note: &ErrorLine, source: SourceText<'_>) {
        report::note(self.screen.sink(), note, source);
    }

    fn is_closed(&self) -> bool {
        self.screen.is_closed()
    }

    fn end(mut self: Box<Self>, end: AnswerEnd) {
        self.finish_section();
        let Some(count) = end.change else { return };
        for (count, sign) in [(self.added, "+"), (self.removed, "-")] {
            if count > CHANGES_SHOWN {
                self.screen.text(&format!("{sign} … and {} more\n", count - CHANGES_SHOWN));
            }
        }
        if let Some(affected) = self.affected {
            self.affected(affected);
        }
        if self.applying {
            let line = format!("{} added, {} removed, {} kept\n", count.added, count.removed, count.kept);
            self.screen.bold(&line);
            if count.dry_run {
                self.screen.text("nothing was changed: this was a dry run\n");
            }
        } else if self.added + self.removed + self.others == 0 {
            self.screen.text("nothing changed\n");
        } else if self.added + self.removed > CHANGES_SHOWN {
            self.screen.bold(&format!("{} added, {} removed\n", count.added, count.removed));
        }
    }
}

impl HumanPrinter<'_> {
    fn change(&mut self, answer: Answer) {
        match answer {
            Answer::Added(rule) => {
                self.added += 1;
                if self.added <= CHANGES_SHOWN {
                    self.screen.color(Color::Green, &format!("+ {:<5} ", rule.id));
                    self.screen.text(&format!("{}\n", rule.rule));
                }
            }
            Answer::Removed(rule) => {
                self.removed += 1;
                if self.removed <= CHANGES_SHOWN {
                    self.screen.color(Color::Red, &format!("- {:<5} ", rule.id));
                    self.screen.text(&format!("{}\n", rule.rule));
                }
            }
            Answer::Enabled(port) => {
                self.others += 1;
                self.screen.text(&format!("{port} is enabled: the rules see its packets\n"));
            }
            Answer::Disabled(port) => {
                self.others += 1;
                self.screen.text(&format!("{port} is disabled: its packets pass untouched\n"));
            }
            Answer::Affected(line) => self.affected = Some(line),
            Answer::Killed(line) => {
                self.others += 1;
                self.screen.text(&format!("{} ended\n", counted(line.connections, "connection")));
            }
            Answer::Cleared(what) => {
                self.others += 1;
                self.screen.text(&format!("the {what} begin at zero\n"));
            }
            Answer::Patterns(PatternsLine { name, patterns: 0, .. }) => {
                self.others += 1;
                self.screen.text(&format!("@{name} is gone\n"));
            }
            Answer::Patterns(line) => {
                self.others += 1;
                let patterns = counted(line.patterns, "pattern");
                self.screen.text(&format!("@{} has {patterns} of {} now\n", line.name, line.file));
            }
            Answer::SetChanged(line) => {
                self.others += 1;
                set_listing::change(&mut self.screen, &line);
            }
            Answer::Setting(line) => {
                self.others += 1;
                self.screen.text(&format!("{} is {} now\n", line.name, plain(&line.value)));
            }
            _ => {}
        }
    }

    fn affected(&mut self, line: AffectedLine) {
        let texts = [
            (
                line.handed_over,
                "follows the rule's successor and keeps its translation",
                "follow their rules' successors and keep their translations",
            ),
            (line.kept, "keeps a rule until it ends", "keep a rule until they end"),
            (line.lose_rules, "loses a rule", "lose rules"),
            (line.lose_accept, "loses its accept", "lose their accept"),
            (line.ended, "ends", "end"),
        ];
        for (connections, one, several) in texts.into_iter().filter(|(connections, ..)| *connections > 0) {
            let effect = if connections == 1 { one } else { several };
            self.screen.text(&format!("{} {effect}\n", counted(connections, "connection")));
        }
    }

    fn rule(&mut self, line: RuleLine) {
        let HumanSection::Rules { table, rules, dropped, terse, .. } = &mut self.section else { return };
        *rules += 1;
        let id = line.id.to_string();
        let text = match (line.shadowed_by, line.hits) {
            (Some(by), _) => format!("{}  (never decides: rule {by} does)", line.rule),
            (None, Some(hits)) => format!("{}  ({})", line.rule, counted(hits, "hit")),
            (None, None) => line.rule,
        };
        let cells = match (line.packets, line.bytes) {
            (Some(packets), Some(bytes)) => {
                let by_it = TrafficLine {
                    packets: line.dropped_packets.unwrap_or_default(),
                    bytes: line.dropped_bytes.unwrap_or_default(),
                };
                *dropped = sum(*dropped, by_it);
                let counts = [packets, bytes, by_it.packets, by_it.bytes].map(|count| count.to_string());
                std::iter::once(id).chain(counts).chain([text]).collect()
            }
            _ => {
                *terse = true;
                vec![id, text]
            }
        };
        let table = table.get_or_insert_with(|| {
            let counted = [
                ("ID", Align::Right),
                ("PACKETS", Align::Right),
                ("BYTES", Align::Right),
                ("DROPPED", Align::Right),
                ("DROPPED BYTES", Align::Right),
                ("RULE", Align::Left),
            ];
            if *terse { TextTable::new(&[counted[0], counted[5]]) } else { TextTable::new(&counted) }
        });
        table.row(&mut self.screen, cells);
    }

    fn finish_section(&mut self) {
        let screen = &mut self.screen;
        match std::mem::replace(&mut self.section, HumanSection::None) {
            HumanSection::None | HumanSection::Unbuffered => {}
            HumanSection::Connections(listing) => listing.end(screen),
            HumanSection::Streams(listing) => listing.end(screen),
            HumanSection::Rules { table: None, .. } => screen.text("no rules: every packet passes\n"),
            HumanSection::Rules { table: Some(mut table), rules, dropped, former, terse } => {
                // A packet may match several rules, but one rule drops it: only these columns have a sum.
                let row = |dropped: TrafficLine, text: String| {
                    let counts = [dropped.packets, dropped.bytes].map(|count| count.to_string());
                    let blank = std::iter::repeat_n(String::new(), 3);
                    blank.chain(counts).chain([text]).collect()
                };
                if let Some(former) = former {
                    table.row(screen, row(former, "(dropped by former rules)".to_owned()));
                }
                let all = sum(dropped, former.unwrap_or_default());
                let totals = row(all, format!("dropped in all, {}", counted(rules, "rule")));
                table.end(screen, (!terse).then_some(totals));
            }
            HumanSection::Tables(tables, memory) => show_tables(screen, &tables, memory),
            HumanSection::Ports(ports) => show_ports(screen, ports),
            HumanSection::Errors { drops, made, absorbed, not_applied, losses } => {
                show_reasons(screen, drops, ["DROPPED", "REASON"], "no packet was dropped\n");
                show_reasons(screen, made, ["MADE", "KIND"], "");
                if absorbed > 0 {
                    screen
                        .text(&format!("{absorbed} packets were absorbed: their bytes live on in streams\n"));
                }
                show_reasons(screen, not_applied, ["NOT APPLIED", "REASON"], "");
                show_losses(screen, losses);
            }
            HumanSection::Runtime { workers, stages, flow_cache, offloaded } => {
                show_runtime(screen, &workers, (&stages, &flow_cache), offloaded);
            }
            HumanSection::Offload(listing) => listing.end(screen),
            HumanSection::Rates(rates) => show_rates(screen, &rates),
            HumanSection::Sets(sets) => set_listing::show(screen, &sets),
            HumanSection::Settings(settings) => {
                let mut table = TextTable::new(&[("SETTING", Align::Left), ("VALUE", Align::Left)]);
                settings.into_iter().for_each(|(name, value)| table.row(screen, vec![name, value]));
                table.end(screen, None);
            }
        }
    }
}

impl HumanSection {
    fn new(topic: Topic, selected: bool) -> HumanSection {
        match topic {
            Topic::Rules => HumanSection::Rules {
                table: None,
                rules: 0,
                dropped: TrafficLine::default(),
                former: None,
                terse: false,
            },
            Topic::Tables => HumanSection::Tables(Vec::new(), None),
            Topic::Ports => HumanSection::Ports(Vec::new()),
            Topic::Errors => HumanSection::Errors {
                drops: Vec::new(),
                made: Vec::new(),
                absorbed: 0,
                not_applied: Vec::new(),
                losses: Vec::new(),
            },
            Topic::Runtime => HumanSection::Runtime {
                workers: Vec::new(),
                stages: Vec::new(),
                flow_cache: FlowCacheLine::default(),
                offloaded: None,
            },
            Topic::Offload => HumanSection::Offload(OffloadListing::default()),
            Topic::Rates => HumanSection::Rates(Box::default()),
            Topic::Settings => HumanSection::Settings(Vec::new()),
            Topic::Sets => HumanSection::Sets(Vec::new()),
            Topic::Connections => HumanSection::Connections(ConnectionListing::default()),
            Topic::Streams => HumanSection::Streams(StreamListing::new(selected)),
            Topic::StreamSummary | Topic::ConnSummary | Topic::Monitor | Topic::Version => {
                HumanSection::Unbuffered
            }
            Topic::Elements => HumanSection::Unbuffered,
        }
    }
}

fn sum(a: TrafficLine, b: TrafficLine) -> TrafficLine {
    TrafficLine { packets: a.packets.saturating_add(b.packets), bytes: a.bytes.saturating_add(b.bytes) }
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn show_tables(screen: &mut Screen<'_>, tables: &[TableLine], memory: Option<TableMemoryLine>) {
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

fn show_ports(screen: &mut Screen<'_>, ports: Vec<PortLine>) {
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

fn show_reasons(
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

fn show_losses(screen: &mut Screen<'_>, losses: Vec<PortLossLine>) {
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

fn show_runtime(
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

//! Answers for people: aligned tables with totals, changes after a sign.

use super::answer_printer::AnswerPrinter;
use super::connection_listing::{self, ConnectionListing};
use super::counter_listing::{show_losses, show_ports, show_reasons, show_runtime, show_tables};
use super::history_listing::{self, HistoryListing};
use super::log_listing;
use super::offload::OffloadListing;
use super::packet_listing::traced_text;
use super::rates::show_rates;
use super::server_listing;
use super::set_listing;
use super::stream_listing::{self, StreamListing};
use super::text_table::{Align, TextTable};
use crate::report::{self, SourceText, counted};
use crate::screen::{Color, Screen};
use crate::sink::OutputSink;
use mmb_protocol::answer::{
    AffectedLine, Answer, AnswerBegin, AnswerEnd, ErrorLine, FlowCacheLine, LogSinkLine, PatternsLine,
    PortLine, PortLossLine, RateLines, ReasonLine, RuleLine, ServerLine, SetLine, StageLine, TableLine,
    TableMemoryLine, Topic, TrafficLine, UnconfirmedLine, WorkerLine,
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
    unconfirmed: Option<UnconfirmedLine>,
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
    Servers(Vec<ServerLine>),
    Log(Vec<LogSinkLine>),
    Settings(Vec<(String, String)>),
    Sets(Vec<SetLine>),
    Connections(ConnectionListing),
    Streams(StreamListing),
    History(HistoryListing),
    /// Packets, each printed at once.
    Packets,
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
            unconfirmed: None,
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
            (Answer::Server(line), HumanSection::Servers(servers)) => servers.push(line),
            (Answer::LogSink(line), HumanSection::Log(sinks)) => sinks.push(line),
            (Answer::Setting(line), HumanSection::Settings(settings)) => {
                settings.push((line.name, plain(&line.value)));
            }
            (Answer::Connection(line), HumanSection::Connections(listing)) => {
                listing.row(&mut self.screen, &line)
            }
            (Answer::Connection(line), HumanSection::Streams(listing)) => {
                listing.row(&mut self.screen, &line)
            }
            (Answer::HistoryEntry(line), HumanSection::History(listing)) => {
                listing.row(&mut self.screen, line)
            }
            (Answer::DiffOf(versions), _) => history_listing::versions(&mut self.screen, versions),
            (Answer::Difference(line), _) => history_listing::difference(&mut self.screen, &line),
            (Answer::StreamSummary(line), _) => stream_listing::summary(&mut self.screen, &line),
            (Answer::StreamEvent(line), _) => stream_listing::event(&mut self.screen, &line),
            (Answer::Log(line), _) => log_listing::packet(&mut self.screen, &line),
            (Answer::Suppressed(line), _) => log_listing::suppressed(&mut self.screen, &line),
            (Answer::Summary(line), _) => connection_listing::summary(&mut self.screen, &line),
            (Answer::Event(line), _) => connection_listing::event(&mut self.screen, &line),
            (Answer::Tap(line), _) => {
                let count = counted(line.count.into(), "packet");
                self.screen.sink().err(&format!("tracing up to {count}; Ctrl-C ends it\n"));
            }
            (Answer::Traced(line), _) => {
                self.screen.text(&traced_text(&line, None));
                self.screen.text("\n");
                self.screen.flush();
            }
            (Answer::Lost(packets), HumanSection::Packets) => {
                self.screen.text(&format!("… {} left out\n\n", counted(packets, "packet")));
            }
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
                if line.policy > 0 {
                    self.screen.text(&format!(", version {} of the policy", line.policy));
                }
                self.screen.text("\n");
            }
            (Answer::Unconfirmed(line), _) => self.unconfirmed = Some(line),
            (Answer::Confirmed(version), _) => {
                self.screen.text(&format!("version {version} of the policy is confirmed\n"));
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
        let unconfirmed = self.unconfirmed.take();
        if end.change.is_some() {
            self.changed(end);
        }
        if let Some(line) = unconfirmed {
            history_listing::unconfirmed(&mut self.screen, &line);
        }
    }
}

impl HumanPrinter<'_> {
    /// Prints the numbers of a change.
    fn changed(&mut self, end: AnswerEnd) {
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
            Answer::ServerState(line) => {
                self.others += 1;
                self.screen.text(&server_listing::state(&line));
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
            HumanSection::None | HumanSection::Packets | HumanSection::Unbuffered => {}
            HumanSection::Connections(listing) => listing.end(screen),
            HumanSection::Streams(listing) => listing.end(screen),
            HumanSection::History(listing) => listing.end(screen),
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
            HumanSection::Servers(servers) => server_listing::show(screen, &servers),
            HumanSection::Log(sinks) => log_listing::sinks(screen, sinks),
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
            Topic::Servers => HumanSection::Servers(Vec::new()),
            Topic::Log => HumanSection::Log(Vec::new()),
            Topic::Settings => HumanSection::Settings(Vec::new()),
            Topic::Sets => HumanSection::Sets(Vec::new()),
            Topic::Connections => HumanSection::Connections(ConnectionListing::default()),
            Topic::Streams => HumanSection::Streams(StreamListing::new(selected)),
            Topic::History => HumanSection::History(HistoryListing::default()),
            Topic::Trace | Topic::Capture => HumanSection::Packets,
            Topic::StreamSummary | Topic::ConnSummary | Topic::Monitor | Topic::Version => {
                HumanSection::Unbuffered
            }
            Topic::Diff | Topic::Elements => HumanSection::Unbuffered,
        }
    }
}

fn sum(a: TrafficLine, b: TrafficLine) -> TrafficLine {
    TrafficLine { packets: a.packets.saturating_add(b.packets), bytes: a.bytes.saturating_add(b.bytes) }
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

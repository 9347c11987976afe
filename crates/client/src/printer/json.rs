//! Answers in JSON: one object for each command, on a line of its own.

use super::answer_printer::AnswerPrinter;
use crate::report::{SourceText, note_object};
use crate::screen::Screen;
use crate::sink::OutputSink;
use mmb_protocol::answer::{
    AffectedLine, Answer, AnswerBegin, AnswerEnd, DiffVersions, DifferenceSign, ErrorLine, FlowCacheLine,
    OffloadLine, PatternsLine, PortLine, PortLossLine, PortOffloadLine, RateLines, RuleText, ServerStateLine,
    SetChangeLine, StageLine, TableLine, TableMemoryLine, Topic, TrafficLine, UnconfirmedLine, WorkerLine,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Makes one JSON object of the lines of an answer.
pub(crate) struct JsonPrinter<'a> {
    screen: Screen<'a>,
    section: JsonSection,
    notes: Vec<Value>,
    changes: Option<JsonChange>,
}

#[derive(Debug)]
enum JsonSection {
    None,
    /// An array of that name, whose elements are written as they arrive: there may be millions.
    Array {
        name: &'static str,
        is_open: bool,
        /// A member after it.
        former: Option<TrafficLine>,
    },
    Diff(JsonDiff),
    /// Each line is an object of its own, which is written at once.
    Events,
    Summary(Value),
    Tables(Vec<TableLine>, Option<TableMemoryLine>),
    Ports(Vec<PortLine>),
    Errors {
        drops: Map<String, Value>,
        made: Map<String, Value>,
        absorbed: u64,
        not_applied: Map<String, Value>,
        losses: Vec<PortLossLine>,
    },
    Runtime {
        workers: Vec<WorkerLine>,
        stages: Vec<StageLine>,
        flow_cache: FlowCacheLine,
        offloaded: Option<TrafficLine>,
        unconfirmed: Option<UnconfirmedLine>,
    },
    Offload {
        line: OffloadLine,
        ports: Vec<PortOffloadLine>,
        kept: Map<String, Value>,
    },
    Rates(Box<RateLines>),
    Settings(Map<String, Value>),
    Version(Value),
}

/// What differs between two versions of the policy.
#[derive(Debug, Default, Serialize)]
struct JsonDiff {
    #[serde(flatten)]
    versions: DiffVersions,
    removed: Vec<String>,
    added: Vec<String>,
}

/// The effect of a change.
#[derive(Debug, Default, Serialize)]
struct JsonChange {
    added: Vec<RuleText>,
    removed: Vec<RuleText>,
    kept: u64,
    /// The version of the policy that the change has made.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    /// The change waits for its confirmation.
    #[serde(skip_serializing_if = "Option::is_none")]
    unconfirmed: Option<UnconfirmedLine>,
    /// The version that was confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed: Option<u64>,
    /// Nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    enabled: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disabled: Vec<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    settings: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    patterns: Vec<PatternsLine>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sets: Vec<SetChangeLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<AffectedLine>,
    /// The number of connections that were ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    killed: Option<u64>,
    /// What begins at zero again.
    #[serde(skip_serializing_if = "Option::is_none")]
    cleared: Option<String>,
    /// Servers whose state was set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers: Vec<ServerStateLine>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Value>,
}

impl<'a> JsonPrinter<'a> {
    pub(crate) fn new(sink: &'a dyn OutputSink) -> JsonPrinter<'a> {
        JsonPrinter {
            screen: Screen::new(sink),
            section: JsonSection::None,
            notes: Vec::new(),
            changes: None,
        }
    }
}

impl AnswerPrinter for JsonPrinter<'_> {
    fn line(&mut self, answer: Answer) {
        match (answer, &mut self.section) {
            (Answer::Begin(AnswerBegin { topic, .. }), _) => {
                self.finish_section();
                self.section = JsonSection::new(topic);
            }
            (Answer::Rule(rule), JsonSection::Array { .. }) => self.element(&rule),
            (Answer::DroppedByFormerRules(line), JsonSection::Array { former, .. }) => *former = Some(line),
            (Answer::Connection(line), JsonSection::Array { .. }) => self.element(&line),
            (Answer::Server(line), JsonSection::Array { .. }) => self.element(&line),
            (Answer::HistoryEntry(line), JsonSection::Array { .. }) => self.element(&line),
            (Answer::DiffOf(versions), JsonSection::Diff(diff)) => diff.versions = versions,
            (Answer::Difference(line), JsonSection::Diff(diff)) => match line.sign {
                DifferenceSign::Added => diff.added.push(line.line),
                DifferenceSign::Removed => diff.removed.push(line.line),
            },
            (Answer::Event(line), JsonSection::Events) => self.write_line(&json!(line)),
            (Answer::StreamEvent(line), JsonSection::Events) => self.write_line(&json!(line)),
            (Answer::Log(line), JsonSection::Events) => self.write_line(&json!(line)),
            (Answer::Suppressed(line), JsonSection::Events) => self.write_line(&json!(line)),
            (Answer::Tap(line), JsonSection::Events) => self.write_line(&json!({ "tap": line })),
            (Answer::Traced(line), JsonSection::Events) => self.write_line(&json!(line)),
            (Answer::Captured(line), JsonSection::Events) => self.write_line(&json!(line)),
            (Answer::Lost(events), JsonSection::Events) => self.write_line(&json!({ "lost": events })),
            (Answer::LogSink(line), JsonSection::Array { .. }) => self.element(&line),
            (Answer::Summary(line), JsonSection::Summary(summary)) => *summary = json!(line),
            (Answer::StreamSummary(line), JsonSection::Summary(summary)) => *summary = json!(line),
            (Answer::Set(line), JsonSection::Array { .. }) => self.element(&line),
            (Answer::Element(line), JsonSection::Array { .. }) => self.element(&line),
            (Answer::Table(line), JsonSection::Tables(tables, _)) => tables.push(line),
            (Answer::TableMemory(line), JsonSection::Tables(_, memory)) => *memory = Some(line),
            (Answer::Port(line), JsonSection::Ports(ports)) => ports.push(line),
            (Answer::Drop(line), JsonSection::Errors { drops, .. }) => {
                drops.insert(line.reason, json!(line.count));
            }
            (Answer::Made(line), JsonSection::Errors { made, .. }) => {
                made.insert(line.reason, json!(line.count));
            }
            (Answer::Absorbed(count), JsonSection::Errors { absorbed, .. }) => *absorbed += count,
            (Answer::NotApplied(line), JsonSection::Errors { not_applied, .. }) => {
                not_applied.insert(line.reason, json!(line.count));
            }
            (Answer::PortLoss(line), JsonSection::Errors { losses, .. }) => losses.push(line),
            (Answer::Worker(line), JsonSection::Runtime { workers, .. }) => workers.push(line),
            (Answer::Stage(line), JsonSection::Runtime { stages, .. }) => stages.push(line),
            (Answer::FlowCache(line), JsonSection::Runtime { flow_cache, .. }) => *flow_cache = line,
            (Answer::Offloaded(line), JsonSection::Runtime { offloaded, .. }) => *offloaded = Some(line),
            (Answer::Offload(of_host), JsonSection::Offload { line, .. }) => *line = of_host,
            (Answer::PortOffload(line), JsonSection::Offload { ports, .. }) => ports.push(line),
            (Answer::KeptFlows(line), JsonSection::Offload { kept, .. }) => {
                kept.insert(line.reason, json!(line.count));
            }
            (Answer::Rate(line), JsonSection::Rates(rates)) => rates.add(line),
            (Answer::Setting(line), JsonSection::Settings(settings)) => {
                settings.insert(line.name, line.value);
            }
            (Answer::Version(line), JsonSection::Version(version)) => *version = json!(line),
            (Answer::Unconfirmed(line), JsonSection::Version(version)) => {
                version["unconfirmed"] = json!(line)
            }
            (Answer::Unconfirmed(line), JsonSection::Runtime { unconfirmed, .. }) => {
                *unconfirmed = Some(line)
            }
            (other, _) => self.change(other),
        }
    }

    fn note(&mut self, note: &ErrorLine, source: SourceText<'_>) {
        self.notes.push(note_object(note, source));
    }

    fn is_closed(&self) -> bool {
        self.screen.is_closed()
    }

    fn end(mut self: Box<Self>, end: AnswerEnd) {
        self.finish_section();
        let Some(count) = end.change else {
            let Some(changes) = self.changes else { return };
            if !changes.servers.is_empty() {
                let mut servers = json!({ "servers": changes.servers });
                if let Some(killed) = changes.killed {
                    servers["killed"] = json!(killed);
                }
                self.screen.json(&format!("{servers}\n"));
                return;
            }
            if let Some(killed) = changes.killed {
                self.screen.json(&format!("{}\n", json!({ "killed": killed })));
            }
            if let Some(confirmed) = changes.confirmed {
                self.screen.json(&format!("{}\n", json!({ "confirmed": confirmed })));
            }
            if let Some(cleared) = changes.cleared {
                self.screen.json(&format!("{}\n", json!({ "cleared": cleared })));
            }
            return;
        };
        let changed = JsonChange {
            kept: count.kept,
            version: end.version,
            dry_run: count.dry_run,
            notes: self.notes,
            ..self.changes.unwrap_or_default()
        };
        self.screen.json(&json!(changed).to_string());
        self.screen.json("\n");
    }
}

impl JsonPrinter<'_> {
    /// Writes an element of the open array.
    fn element(&mut self, line: &impl Serialize) {
        let JsonSection::Array { name, is_open, .. } = &mut self.section else { return };
        if std::mem::replace(is_open, true) {
            self.screen.json(",");
        } else {
            self.screen.json(&format!("{{\"{name}\":["));
        }
        self.screen.json(&serde_json::to_string(line).unwrap_or_default());
    }

    fn write_line(&mut self, value: &Value) {
        self.screen.json(&format!("{value}\n"));
        self.screen.flush();
    }

    fn change(&mut self, answer: Answer) {
        let changes = self.changes.get_or_insert_default();
        match answer {
            Answer::Added(rule) => changes.added.push(rule),
            Answer::Removed(rule) => changes.removed.push(rule),
            Answer::Enabled(port) => changes.enabled.push(port),
            Answer::Disabled(port) => changes.disabled.push(port),
            Answer::Affected(line) => changes.connections = Some(line),
            Answer::Cleared(what) => changes.cleared = Some(what),
            Answer::Killed(line) => changes.killed = Some(line.connections),
            Answer::ServerState(line) => changes.servers.push(line),
            Answer::Unconfirmed(line) => changes.unconfirmed = Some(line),
            Answer::Confirmed(version) => changes.confirmed = Some(version),
            Answer::Patterns(line) => changes.patterns.push(line),
            Answer::SetChanged(line) => changes.sets.push(line),
            Answer::Setting(line) => {
                changes.settings.insert(line.name, line.value);
            }
            _ => {}
        }
    }

    fn finish_section(&mut self) {
        let value = match std::mem::replace(&mut self.section, JsonSection::None) {
            JsonSection::None | JsonSection::Events => return,
            JsonSection::Array { name, is_open, former } => {
                if !is_open {
                    self.screen.json(&format!("{{\"{name}\":["));
                }
                self.screen.json("]");
                if let Some(former) = former {
                    self.screen.json(&format!(",\"dropped_by_former_rules\":{}", json!(former)));
                }
                self.screen.json("}\n");
                return;
            }
            JsonSection::Summary(summary) => summary,
            JsonSection::Diff(diff) => json!(diff),
            JsonSection::Tables(tables, memory) => {
                let mut value = json!({ "tables": tables });
                if let Some(memory) = memory {
                    value["memory"] = json!(memory);
                }
                value
            }
            JsonSection::Ports(ports) => json!({ "ports": ports }),
            JsonSection::Errors { drops, made, absorbed, not_applied, losses } => {
                json!({ "drops": drops, "made": made, "absorbed": absorbed, "not_applied": not_applied, "port_losses": losses })
            }
            JsonSection::Runtime { workers, stages, flow_cache, offloaded, unconfirmed } => {
                let mut runtime = json!({ "workers": workers, "stages": stages, "flow_cache": flow_cache });
                if let Some(offloaded) = offloaded {
                    runtime["offloaded"] = json!(offloaded);
                }
                if let Some(unconfirmed) = unconfirmed {
                    runtime["unconfirmed"] = json!(unconfirmed);
                }
                runtime
            }
            JsonSection::Offload { line, ports, kept } => {
                let mut offload = json!(line);
                offload["ports"] = json!(ports);
                offload["kept"] = json!(kept);
                offload
            }
            JsonSection::Rates(rates) => json!(rates),
            JsonSection::Settings(settings) => json!({ "settings": settings }),
            JsonSection::Version(version) => version,
        };
        self.screen.json(&value.to_string());
        self.screen.json("\n");
    }
}

impl JsonSection {
    fn new(topic: Topic) -> JsonSection {
        match topic {
            Topic::Rules => JsonSection::Array { name: "rules", is_open: false, former: None },
            Topic::Connections => JsonSection::Array { name: "connections", is_open: false, former: None },
            Topic::Log => JsonSection::Array { name: "log", is_open: false, former: None },
            Topic::Streams => JsonSection::Array { name: "streams", is_open: false, former: None },
            Topic::Servers => JsonSection::Array { name: "servers", is_open: false, former: None },
            Topic::History => JsonSection::Array { name: "history", is_open: false, former: None },
            Topic::Diff => JsonSection::Diff(JsonDiff::default()),
            Topic::Sets => JsonSection::Array { name: "sets", is_open: false, former: None },
            Topic::Elements => JsonSection::Array { name: "elements", is_open: false, former: None },
            Topic::ConnSummary | Topic::StreamSummary => JsonSection::Summary(Value::Null),
            Topic::Monitor | Topic::Trace | Topic::Capture => JsonSection::Events,
            Topic::Tables => JsonSection::Tables(Vec::new(), None),
            Topic::Ports => JsonSection::Ports(Vec::new()),
            Topic::Errors => JsonSection::Errors {
                drops: Map::new(),
                made: Map::new(),
                absorbed: 0,
                not_applied: Map::new(),
                losses: Vec::new(),
            },
            Topic::Runtime => JsonSection::Runtime {
                workers: Vec::new(),
                stages: Vec::new(),
                flow_cache: FlowCacheLine::default(),
                offloaded: None,
                unconfirmed: None,
            },
            Topic::Offload => {
                JsonSection::Offload { line: OffloadLine::default(), ports: Vec::new(), kept: Map::new() }
            }
            Topic::Rates => JsonSection::Rates(Box::default()),
            Topic::Settings => JsonSection::Settings(Map::new()),
            Topic::Version => JsonSection::Version(Value::Null),
        }
    }
}

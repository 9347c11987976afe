//! Answers in JSON: one object for each command, on a line of its own.

use crate::report::{Source, note_object};
use crate::run::Printer;
use crate::screen::Screen;
use crate::sink::Sink;
use mmb_control::answer::{
    Answer, Begin, End, ErrorLine, PortLine, RuleText, StageLine, TableLine, Topic, WorkerLine,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Puts the lines of one answer together.
pub(crate) struct JsonPrinter<'a> {
    screen: Screen<'a>,
    section: Section,
    notes: Vec<Value>,
    change: Option<Changed>,
}

#[derive(Debug)]
enum Section {
    None,
    /// Written as they come, under this name: there may be millions.
    Stream {
        name: &'static str,
        begun: bool,
    },
    /// Each line is an object of its own, written at once.
    Events,
    Summary(Value),
    Tables(Vec<TableLine>),
    Ports(Vec<PortLine>),
    Errors {
        drops: Map<String, Value>,
        not_applied: Map<String, Value>,
    },
    Runtime {
        workers: Vec<WorkerLine>,
        stages: Vec<StageLine>,
    },
    Settings(Map<String, Value>),
    Version(Value),
}

/// What a change did.
#[derive(Debug, Default, Serialize)]
struct Changed {
    added: Vec<RuleText>,
    removed: Vec<RuleText>,
    kept: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    enabled: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disabled: Vec<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    settings: Map<String, Value>,
    /// Connections that were ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    killed: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Value>,
}

impl<'a> JsonPrinter<'a> {
    pub(crate) fn new(sink: &'a dyn Sink) -> JsonPrinter<'a> {
        JsonPrinter { screen: Screen::new(sink), section: Section::None, notes: Vec::new(), change: None }
    }
}

impl Printer for JsonPrinter<'_> {
    fn take(&mut self, answer: Answer) {
        match (answer, &mut self.section) {
            (Answer::Begin(Begin { topic, .. }), _) => {
                self.finish_section();
                self.section = Section::new(topic);
            }
            (Answer::Rule(rule), Section::Stream { .. }) => self.member(&rule),
            (Answer::Connection(line), Section::Stream { .. }) => self.member(&line),
            (Answer::Event(line), Section::Events) => self.at_once(&json!(line)),
            (Answer::Lost(events), Section::Events) => self.at_once(&json!({ "lost": events })),
            (Answer::Summary(line), Section::Summary(summary)) => *summary = json!(line),
            (Answer::Table(line), Section::Tables(tables)) => tables.push(line),
            (Answer::Port(line), Section::Ports(ports)) => ports.push(line),
            (Answer::Drop(line), Section::Errors { drops, .. }) => {
                drops.insert(line.reason, json!(line.count));
            }
            (Answer::NotApplied(line), Section::Errors { not_applied, .. }) => {
                not_applied.insert(line.reason, json!(line.count));
            }
            (Answer::Worker(line), Section::Runtime { workers, .. }) => workers.push(line),
            (Answer::Stage(line), Section::Runtime { stages, .. }) => stages.push(line),
            (Answer::Setting(line), Section::Settings(settings)) => {
                settings.insert(line.name, line.value);
            }
            (Answer::Version(line), Section::Version(version)) => *version = json!(line),
            (other, _) => self.take_change(other),
        }
    }

    fn note(&mut self, note: &ErrorLine, source: Source<'_>) {
        self.notes.push(note_object(note, source));
    }

    fn is_gone(&self) -> bool {
        self.screen.is_gone()
    }

    fn end(mut self: Box<Self>, end: End) {
        self.finish_section();
        let Some(count) = end.change else {
            if let Some(killed) = self.change.and_then(|change| change.killed) {
                self.screen.text(&json!({ "killed": killed }).to_string());
                self.screen.text("\n");
            }
            return;
        };
        let changed = Changed { kept: count.kept, notes: self.notes, ..self.change.unwrap_or_default() };
        self.screen.text(&json!(changed).to_string());
        self.screen.text("\n");
    }
}

impl JsonPrinter<'_> {
    /// Writes one more of many.
    fn member(&mut self, line: &impl Serialize) {
        let Section::Stream { name, begun } = &mut self.section else { return };
        if std::mem::replace(begun, true) {
            self.screen.text(",");
        } else {
            self.screen.text(&format!("{{\"{name}\":["));
        }
        self.screen.text(&serde_json::to_string(line).unwrap_or_default());
    }

    fn at_once(&mut self, value: &Value) {
        self.screen.text(&format!("{value}\n"));
        self.screen.flush();
    }

    fn take_change(&mut self, answer: Answer) {
        let change = self.change.get_or_insert_default();
        match answer {
            Answer::Added(rule) => change.added.push(rule),
            Answer::Removed(rule) => change.removed.push(rule),
            Answer::Enabled(port) => change.enabled.push(port),
            Answer::Disabled(port) => change.disabled.push(port),
            Answer::Killed(line) => change.killed = Some(line.connections),
            Answer::Setting(line) => {
                change.settings.insert(line.name, line.value);
            }
            _ => {}
        }
    }

    fn finish_section(&mut self) {
        let value = match std::mem::replace(&mut self.section, Section::None) {
            Section::None | Section::Events => return,
            Section::Stream { begun: true, .. } => {
                self.screen.text("]}\n");
                return;
            }
            Section::Stream { name, begun: false } => {
                self.screen.text(&format!("{{\"{name}\":[]}}\n"));
                return;
            }
            Section::Summary(summary) => summary,
            Section::Tables(tables) => json!({ "tables": tables }),
            Section::Ports(ports) => json!({ "ports": ports }),
            Section::Errors { drops, not_applied } => json!({ "drops": drops, "not_applied": not_applied }),
            Section::Runtime { workers, stages } => json!({ "workers": workers, "stages": stages }),
            Section::Settings(settings) => json!({ "settings": settings }),
            Section::Version(version) => version,
        };
        self.screen.text(&value.to_string());
        self.screen.text("\n");
    }
}

impl Section {
    fn new(topic: Topic) -> Section {
        match topic {
            Topic::Rules => Section::Stream { name: "rules", begun: false },
            Topic::Connections => Section::Stream { name: "connections", begun: false },
            Topic::ConnSummary => Section::Summary(Value::Null),
            Topic::Monitor => Section::Events,
            Topic::Tables => Section::Tables(Vec::new()),
            Topic::Ports => Section::Ports(Vec::new()),
            Topic::Errors => Section::Errors { drops: Map::new(), not_applied: Map::new() },
            Topic::Runtime => Section::Runtime { workers: Vec::new(), stages: Vec::new() },
            Topic::Settings => Section::Settings(Map::new()),
            Topic::Version => Section::Version(Value::Null),
        }
    }
}

//! Answers in JSON: one object for each command, on a line of its own.

use crate::report::{SourceText, note_object};
use crate::run::AnswerPrinter;
use crate::screen::Screen;
use crate::sink::OutputSink;
use mmb_protocol::answer::{
    Answer, AnswerBegin, AnswerEnd, ErrorLine, PortLine, RuleText, StageLine, TableLine, Topic, WorkerLine,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Puts the lines of one answer together.
pub(crate) struct JsonPrinter<'a> {
    screen: Screen<'a>,
    section: JsonSection,
    notes: Vec<Value>,
    change: Option<JsonChange>,
}

#[derive(Debug)]
enum JsonSection {
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
struct JsonChange {
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
    pub(crate) fn new(sink: &'a dyn OutputSink) -> JsonPrinter<'a> {
        JsonPrinter { screen: Screen::new(sink), section: JsonSection::None, notes: Vec::new(), change: None }
    }
}

impl AnswerPrinter for JsonPrinter<'_> {
    fn take(&mut self, answer: Answer) {
        match (answer, &mut self.section) {
            (Answer::Begin(AnswerBegin { topic, .. }), _) => {
                self.finish_section();
                self.section = JsonSection::new(topic);
            }
            (Answer::Rule(rule), JsonSection::Stream { .. }) => self.member(&rule),
            (Answer::Connection(line), JsonSection::Stream { .. }) => self.member(&line),
            (Answer::Event(line), JsonSection::Events) => self.at_once(&json!(line)),
            (Answer::Lost(events), JsonSection::Events) => self.at_once(&json!({ "lost": events })),
            (Answer::Summary(line), JsonSection::Summary(summary)) => *summary = json!(line),
            (Answer::Table(line), JsonSection::Tables(tables)) => tables.push(line),
            (Answer::Port(line), JsonSection::Ports(ports)) => ports.push(line),
            (Answer::Drop(line), JsonSection::Errors { drops, .. }) => {
                drops.insert(line.reason, json!(line.count));
            }
            (Answer::NotApplied(line), JsonSection::Errors { not_applied, .. }) => {
                not_applied.insert(line.reason, json!(line.count));
            }
            (Answer::Worker(line), JsonSection::Runtime { workers, .. }) => workers.push(line),
            (Answer::Stage(line), JsonSection::Runtime { stages, .. }) => stages.push(line),
            (Answer::Setting(line), JsonSection::Settings(settings)) => {
                settings.insert(line.name, line.value);
            }
            (Answer::Version(line), JsonSection::Version(version)) => *version = json!(line),
            (other, _) => self.take_change(other),
        }
    }

    fn note(&mut self, note: &ErrorLine, source: SourceText<'_>) {
        self.notes.push(note_object(note, source));
    }

    fn is_gone(&self) -> bool {
        self.screen.is_gone()
    }

    fn end(mut self: Box<Self>, end: AnswerEnd) {
        self.finish_section();
        let Some(count) = end.change else {
            if let Some(killed) = self.change.and_then(|change| change.killed) {
                self.screen.text(&json!({ "killed": killed }).to_string());
                self.screen.text("\n");
            }
            return;
        };
        let changed = JsonChange { kept: count.kept, notes: self.notes, ..self.change.unwrap_or_default() };
        self.screen.text(&json!(changed).to_string());
        self.screen.text("\n");
    }
}

impl JsonPrinter<'_> {
    /// Writes one more of many.
    fn member(&mut self, line: &impl Serialize) {
        let JsonSection::Stream { name, begun } = &mut self.section else { return };
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
        let value = match std::mem::replace(&mut self.section, JsonSection::None) {
            JsonSection::None | JsonSection::Events => return,
            JsonSection::Stream { begun: true, .. } => {
                self.screen.text("]}\n");
                return;
            }
            JsonSection::Stream { name, begun: false } => {
                self.screen.text(&format!("{{\"{name}\":[]}}\n"));
                return;
            }
            JsonSection::Summary(summary) => summary,
            JsonSection::Tables(tables) => json!({ "tables": tables }),
            JsonSection::Ports(ports) => json!({ "ports": ports }),
            JsonSection::Errors { drops, not_applied } => {
                json!({ "drops": drops, "not_applied": not_applied })
            }
            JsonSection::Runtime { workers, stages } => json!({ "workers": workers, "stages": stages }),
            JsonSection::Settings(settings) => json!({ "settings": settings }),
            JsonSection::Version(version) => version,
        };
        self.screen.text(&value.to_string());
        self.screen.text("\n");
    }
}

impl JsonSection {
    fn new(topic: Topic) -> JsonSection {
        match topic {
            Topic::Rules => JsonSection::Stream { name: "rules", begun: false },
            Topic::Connections => JsonSection::Stream { name: "connections", begun: false },
            Topic::ConnSummary => JsonSection::Summary(Value::Null),
            Topic::Monitor => JsonSection::Events,
            Topic::Tables => JsonSection::Tables(Vec::new()),
            Topic::Ports => JsonSection::Ports(Vec::new()),
            Topic::Errors => JsonSection::Errors { drops: Map::new(), not_applied: Map::new() },
            Topic::Runtime => JsonSection::Runtime { workers: Vec::new(), stages: Vec::new() },
            Topic::Settings => JsonSection::Settings(Map::new()),
            Topic::Version => JsonSection::Version(Value::Null),
        }
    }
}

//! Answers in JSON: one object for each command, on a line of its own.

use super::report::{Screen, Source, note_object};
use super::run::Printer;
use mmb_control::answer::{
    Answer, Begin, End, ErrorLine, PortLine, RuleText, StageLine, TableLine, Topic, WorkerLine,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Puts the lines of one answer together.
#[derive(Debug)]
pub(crate) struct JsonPrinter {
    screen: Screen,
    section: Section,
    notes: Vec<Value>,
    change: Option<Changed>,
}

#[derive(Debug)]
enum Section {
    None,
    /// Written as they come: there may be millions.
    Rules {
        begun: bool,
    },
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Value>,
}

impl JsonPrinter {
    pub(crate) fn new(screen: Screen) -> JsonPrinter {
        JsonPrinter { screen, section: Section::None, notes: Vec::new(), change: None }
    }
}

impl Printer for JsonPrinter {
    fn take(&mut self, answer: Answer) {
        match (answer, &mut self.section) {
            (Answer::Begin(Begin { topic, .. }), _) => {
                self.finish_section();
                self.section = Section::new(topic);
            }
            (Answer::Rule(rule), Section::Rules { begun }) => {
                let before = if std::mem::replace(begun, true) { "," } else { "{\"rules\":[" };
                self.screen.text(before);
                self.screen.text(&serde_json::to_string(&rule).unwrap_or_default());
            }
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

    fn end(mut self: Box<Self>, end: End) {
        self.finish_section();
        let Some(count) = end.change else { return };
        let changed = Changed { kept: count.kept, notes: self.notes, ..self.change.unwrap_or_default() };
        self.screen.text(&json!(changed).to_string());
        self.screen.text("\n");
    }
}

impl JsonPrinter {
    fn take_change(&mut self, answer: Answer) {
        let change = self.change.get_or_insert_default();
        match answer {
            Answer::Added(rule) => change.added.push(rule),
            Answer::Removed(rule) => change.removed.push(rule),
            Answer::Enabled(port) => change.enabled.push(port),
            Answer::Disabled(port) => change.disabled.push(port),
            Answer::Setting(line) => {
                change.settings.insert(line.name, line.value);
            }
            _ => {}
        }
    }

    fn finish_section(&mut self) {
        let value = match std::mem::replace(&mut self.section, Section::None) {
            Section::None => return,
            Section::Rules { begun } => {
                self.screen.text(if begun { "]}\n" } else { "{\"rules\":[]}\n" });
                return;
            }
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
            Topic::Rules => Section::Rules { begun: false },
            Topic::Tables => Section::Tables(Vec::new()),
            Topic::Ports => Section::Ports(Vec::new()),
            Topic::Errors => Section::Errors { drops: Map::new(), not_applied: Map::new() },
            Topic::Runtime => Section::Runtime { workers: Vec::new(), stages: Vec::new() },
            Topic::Settings => Section::Settings(Map::new()),
            Topic::Version => Section::Version(Value::Null),
        }
    }
}

//! Conversions from the language's values to lines of answers, and from text to values.

use mmb_language::{Command, Diagnostic, Note, port_switches, with_id};
use mmb_policy::Policy;
use mmb_policy::setting_table::Setting;
use mmb_policy::settings::Settings;
use mmb_protocol::answer::{ErrorLine, SettingLine};
use serde_json::Value;

/// Parses one command; returns its notes, or its errors.
pub(crate) fn parse_command(line: &str) -> Result<(Command, Vec<ErrorLine>), Vec<ErrorLine>> {
    match mmb_language::parse_command(line) {
        Ok((command, notes)) => Ok((command, notes.into_iter().map(note).collect())),
        Err(errors) => Err(errors.into_iter().map(error).collect()),
    }
}

/// Parses a policy file; returns its notes, or its errors.
pub(crate) fn parse_policy(text: &str) -> Result<(Policy, Vec<ErrorLine>), Vec<ErrorLine>> {
    match mmb_language::parse_policy(text) {
        Ok((policy, notes)) => Ok((policy, notes.into_iter().map(note).collect())),
        Err(errors) => Err(errors.into_iter().map(error).collect()),
    }
}

/// Returns every setting with its value.
pub(crate) fn settings(settings: &Settings) -> Vec<SettingLine> {
    let line = |setting: Setting| {
        let value = setting.number().map_or_else(|| Value::from(setting.value()), Value::from);
        SettingLine { name: setting.info().name.to_owned(), value }
    };
    settings.all().map(line).collect()
}

/// Returns the lines of a policy file for this policy: settings, ports, rules with their ids.
pub(crate) fn policy_lines(policy: &Policy) -> impl Iterator<Item = String> + '_ {
    let settings = policy.settings.changed().map(|setting| format!("set {setting}"));
    let rules = policy.rules.iter().map(|rule| with_id(&rule).to_string());
    settings.chain(port_switches(policy)).chain(rules)
}

fn error(diagnostic: Diagnostic) -> ErrorLine {
    ErrorLine {
        message: diagnostic.message,
        command: None,
        line: Some(diagnostic.line),
        column: Some(diagnostic.column),
        span: Some((diagnostic.span.start, diagnostic.span.end)),
        expected: diagnostic.expected,
        suggestion: diagnostic.suggestion,
    }
}

fn note(note: Note) -> ErrorLine {
    ErrorLine {
        line: Some(note.line),
        column: Some(note.column),
        span: Some((note.span.start, note.span.end)),
        ..ErrorLine::new(note.message)
    }
}

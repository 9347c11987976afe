//! Conversions from the language's values to lines of answers, and from text to values.

use mmb_language::{
    Command, Diagnostic, FileReader, Note, pattern_lists, port_switches, read_elements, set_lines, with_id,
};
use mmb_policy::setting_table::Setting;
use mmb_policy::settings::Settings;
use mmb_policy::{ElementList, PatternList, Policy};
use mmb_protocol::answer::{ErrorLine, PatternsLine, SettingLine};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Parses one command; returns its notes, or its errors.
pub(crate) fn parse_command(
    line: &str,
    reader: &dyn FileReader,
) -> Result<(Command, Vec<ErrorLine>), Vec<ErrorLine>> {
    match mmb_language::parse_command_with(line, reader) {
        Ok((command, notes)) => Ok((command, notes.into_iter().map(note).collect())),
        Err(errors) => Err(errors.into_iter().map(error).collect()),
    }
}

/// Parses a policy file; returns its notes, or its errors.
pub(crate) fn parse_policy(
    text: &str,
    reader: &dyn FileReader,
) -> Result<(Policy, Vec<ErrorLine>), Vec<ErrorLine>> {
    match mmb_language::parse_policy_with(text, reader) {
        Ok((policy, notes)) => Ok((policy, notes.into_iter().map(note).collect())),
        Err(errors) => Err(errors.into_iter().map(error).collect()),
    }
}

/// Reads the files that a client sent with its request, by name. The names of those of patterns are whole paths, which `save` writes.
pub(crate) struct RequestFiles<'r>(pub(crate) &'r BTreeMap<String, Vec<u8>>);

impl RequestFiles<'_> {
    fn content(&self, file: &str) -> Result<&[u8], String> {
        if !Path::new(file).is_absolute() {
            return Err("the name is not a whole path, which begins with `/`".to_owned());
        }
        let content = self.0.get(file).ok_or("its content did not come with the request")?;
        Ok(content)
    }
}

impl FileReader for RequestFiles<'_> {
    fn patterns(&self, file: &str) -> Result<PatternList, String> {
        PatternList::parse(file.to_owned(), self.content(file)?).map_err(|error| error.to_string())
    }

    fn elements(&self, file: &str) -> Result<ElementList, String> {
        read_elements(self.content(file)?)
    }
}

/// Returns the lists of patterns that one policy has and the other has not, or has with other patterns.
pub(crate) fn changed_lists(before: &Policy, after: &Policy) -> Vec<PatternsLine> {
    let line = |name: &String, list: &PatternList, patterns: usize| PatternsLine {
        name: name.clone(),
        file: list.file.clone(),
        patterns: patterns as u64,
        digest: format!("{:016x}", list.digest),
    };
    let removed = before.lists.iter().filter(|(name, _)| !after.lists.contains_key(*name));
    let changed = after.lists.iter().filter(|(name, list)| before.lists.get(*name) != Some(list));
    removed
        .map(|(name, list)| line(name, list, 0))
        .chain(changed.map(|(name, list)| line(name, list, list.patterns.len())))
        .collect()
}

/// Returns every setting with its value.
pub(crate) fn settings(settings: &Settings) -> Vec<SettingLine> {
    let line = |setting: Setting| {
        let value = setting.number().map_or_else(|| Value::from(setting.value()), Value::from);
        SettingLine { name: setting.info().name.to_owned(), value }
    };
    settings.all().map(line).collect()
}

/// Returns the lines of a policy file for this policy: settings, ports, lists of patterns, sets, rules with their ids.
pub(crate) fn policy_lines(policy: &Policy) -> impl Iterator<Item = String> + '_ {
    let settings = policy.settings.changed().map(|setting| format!("set {setting}"));
    let rules = policy.rules.iter().map(|rule| with_id(&rule).to_string());
    let sets = policy.sets.iter().flat_map(|(name, set)| set_lines(name, set, policy.now_ms));
    settings.chain(port_switches(policy)).chain(pattern_lists(policy)).chain(sets).chain(rules)
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

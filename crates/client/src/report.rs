//! Messages to the user: errors and notes, for people on the error output, as JSON in the place of the answer.

use crate::sink::OutputSink;
use mmb_language::diagnostic::{Diagnostic, Note, RenderStyle, TextSpan};
use mmb_policy::printable::{printable, printable_json, printable_lines};
use mmb_protocol::answer::{ErrorLine, LoadedLine};
use serde_json::{Map, Value, json};
use std::error::Error;

const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

/// The text that an error refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceText<'a> {
    /// The name of the file; empty for a command.
    pub(crate) name: &'a str,
    /// The text.
    pub(crate) text: &'a str,
    /// Lines before the text, if it is a part of a longer input.
    pub(crate) lines_before: usize,
}

impl<'a> SourceText<'a> {
    /// The source of a command.
    pub(crate) fn command(text: &'a str) -> SourceText<'a> {
        SourceText { name: "", text, lines_before: 0 }
    }

    /// The source of a file.
    pub(crate) fn file(name: &'a str, text: &'a str) -> SourceText<'a> {
        SourceText { name: if name == "-" { "standard input" } else { name }, text, lines_before: 0 }
    }

    /// The source of a line of standard input, counted from 1.
    pub(crate) fn piped(text: &'a str, line: usize) -> SourceText<'a> {
        SourceText { name: "standard input", text, lines_before: line - 1 }
    }
}

/// Reports errors. JSON is one object with the members of the first error and, if there are several, all of them in `errors`.
pub(crate) fn errors(sink: &dyn OutputSink, errors: &[ErrorLine], source: SourceText<'_>, json: bool) {
    if !json {
        let style = style(sink);
        errors.iter().for_each(|error| sink.err(&rendered(error, source, style)));
        return;
    }
    let mut objects: Vec<Map<String, Value>> = errors.iter().map(|error| object(error, source)).collect();
    if objects.len() > 1 {
        let all = json!(objects);
        objects[0].insert("errors".to_owned(), all);
    }
    if let Some(first) = objects.into_iter().next() {
        print_json(sink, &Value::Object(first));
    }
}

/// Reports a note to people; in JSON, notes are part of the answer.
pub(crate) fn note(sink: &dyn OutputSink, note: &ErrorLine, source: SourceText<'_>) {
    let text = match position(note, source) {
        Some((line, column, span)) => {
            let note = Note { line, column, span, message: note.message.clone() };
            note.render_in(source.name, source.text, style(sink))
        }
        None => format!("note: {}\n", printable(&note.message)),
    };
    sink.err(&text);
}

/// Reports an error that has no position in a text.
pub fn failure(sink: &dyn OutputSink, message: &str, json: bool) {
    errors(sink, &[ErrorLine::new(message)], SourceText::command(""), json);
}

/// Prints the last output of a command. A closed sink is ignored, since nothing is left to stop.
pub(crate) fn print(sink: &dyn OutputSink, text: &str) {
    let _ = sink.out(&printable_lines(text));
}

/// Prints a JSON value on a line of its own, as [`print()`] does.
pub(crate) fn print_json(sink: &dyn OutputSink, value: &Value) {
    let _ = sink.out(&printable_json(&format!("{value}\n")));
}

/// Reports a line without colours, for people.
pub(crate) fn tell(sink: &dyn OutputSink, text: &str) {
    sink.err(&printable_lines(text));
}

/// Formats a number with its noun: `1 connection`, `2 connections`.
pub(crate) fn counted(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Formats an error and its causes on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Returns the style of errors and notes.
pub(crate) fn style(sink: &dyn OutputSink) -> RenderStyle {
    if sink.colors().err { RenderStyle::Colored } else { RenderStyle::Plain }
}

/// Makes a JSON object of a note.
pub(crate) fn note_object(note: &ErrorLine, source: SourceText<'_>) -> Value {
    let mut object = object(note, source);
    if let Some(message) = object.shift_remove("error") {
        object.shift_insert(0, "note".to_owned(), message);
    }
    Value::Object(object)
}

fn object(error: &ErrorLine, source: SourceText<'_>) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("error".to_owned(), json!(error.message));
    if let Some((line, column, _)) = position(error, source) {
        object.insert("line".to_owned(), json!(line));
        object.insert("column".to_owned(), json!(column));
    }
    for (name, value) in [("expected", &error.expected), ("suggestion", &error.suggestion)] {
        if let Some(value) = value {
            object.insert(name.to_owned(), json!(value));
        }
    }
    object
}

fn rendered(error: &ErrorLine, source: SourceText<'_>, style: RenderStyle) -> String {
    match position(error, source) {
        Some((line, column, span)) => {
            let diagnostic = Diagnostic {
                line,
                column,
                span,
                message: error.message.clone(),
                expected: error.expected.clone(),
                suggestion: error.suggestion.clone(),
            };
            diagnostic.render_in(source.name, source.text, style)
        }
        None => match style {
            RenderStyle::Plain => format!("error: {}\n", printable_lines(&error.message)),
            RenderStyle::Colored => {
                format!("\x1b[1;31merror\x1b[0m{BOLD}: {}{RESET}\n", printable_lines(&error.message))
            }
        },
    }
}

fn position(error: &ErrorLine, source: SourceText<'_>) -> Option<(usize, usize, TextSpan)> {
    let (start, end) = error.span?;
    Some((error.line? + source.lines_before, error.column?, TextSpan { start, end }))
}

/// Describes a state that was loaded: `7 connections loaded, 1 of them lost a rule, 3 left out: 2 conn-full, 1 nat-clash`.
pub fn loaded(LoadedLine { connections, lost_rules, left_out }: &LoadedLine) -> String {
    let mut text = format!("{} loaded", counted(*connections, "connection"));
    if *lost_rules > 0 {
        text += &format!(", {lost_rules} of them lost a rule");
    }
    let all: u64 = left_out.values().filter_map(Value::as_u64).sum();
    if all > 0 {
        let reasons: Vec<_> = left_out.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        text += &format!(", {all} left out: {}", reasons.join(", "));
    }
    text
}

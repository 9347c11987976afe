//! What is wrong, told to people where errors go and in JSON where answers go.

use crate::sink::OutputSink;
use mmb_language::diagnostic::{Diagnostic, Note, RenderStyle, TextSpan};
use mmb_protocol::answer::ErrorLine;
use serde_json::{Map, Value, json};
use std::error::Error;

const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

/// The text that was read, to show errors in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceText<'a> {
    /// The file's name; empty for a command that was just typed.
    pub(crate) name: &'a str,
    /// The text.
    pub(crate) text: &'a str,
    /// Lines before it, where it is a piece of something longer.
    pub(crate) lines_before: usize,
}

impl<'a> SourceText<'a> {
    /// A command.
    pub(crate) fn command(text: &'a str) -> SourceText<'a> {
        SourceText { name: "", text, lines_before: 0 }
    }

    /// A file.
    pub(crate) fn file(name: &'a str, text: &'a str) -> SourceText<'a> {
        SourceText { name: if name == "-" { "standard input" } else { name }, text, lines_before: 0 }
    }

    /// A line of standard input, counted from 1.
    pub(crate) fn piped(text: &'a str, line: usize) -> SourceText<'a> {
        SourceText { name: "standard input", text, lines_before: line - 1 }
    }
}

/// Shows errors: for people as errors, in JSON as an answer, as one object with the first
/// error's members and, if there are more, all of them under `errors`.
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
        say_json(sink, &Value::Object(first));
    }
}

/// Shows a note to people; in JSON it is part of the answer.
pub(crate) fn note(sink: &dyn OutputSink, note: &ErrorLine, source: SourceText<'_>) {
    let text = match place(note, source) {
        Some((line, column, span)) => {
            let note = Note { line, column, span, message: note.message.clone() };
            note.render_in(source.name, source.text, style(sink))
        }
        None => format!("note: {}\n", note.message),
    };
    sink.err(&text);
}

/// Shows one error that has no place in a text.
pub fn failure(sink: &dyn OutputSink, message: &str, json: bool) {
    errors(sink, &[ErrorLine::new(message)], SourceText::command(""), json);
}

/// Says the last words of an errand: where nobody hears them, nothing is left to end.
pub(crate) fn say(sink: &dyn OutputSink, text: &str) {
    let _ = sink.out(text);
}

/// [`say`] for one JSON value on a line of its own.
pub(crate) fn say_json(sink: &dyn OutputSink, value: &Value) {
    say(sink, &format!("{value}\n"));
}

/// An error and what led to it, on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// How errors and notes look.
pub(crate) fn style(sink: &dyn OutputSink) -> RenderStyle {
    if sink.colors().err { RenderStyle::Colored } else { RenderStyle::Plain }
}

/// A note as a JSON object.
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
    if let Some((line, column, _)) = place(error, source) {
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
    match place(error, source) {
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
            RenderStyle::Plain => format!("error: {}\n", error.message),
            RenderStyle::Colored => format!("\x1b[1;31merror\x1b[0m{BOLD}: {}{RESET}\n", error.message),
        },
    }
}

fn place(error: &ErrorLine, source: SourceText<'_>) -> Option<(usize, usize, TextSpan)> {
    let (start, end) = error.span?;
    Some((error.line? + source.lines_before, error.column?, TextSpan { start, end }))
}

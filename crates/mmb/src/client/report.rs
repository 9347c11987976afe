//! What goes to the screen: answers to standard output, errors and notes to standard error, coloured where
//! someone is there to see it.

use crate::output;
use mmb_control::answer::ErrorLine;
use mmb_policy::diagnostic::{Diagnostic, Note, Span, Style};
use serde_json::{Map, Value, json};
use std::io::IsTerminal;

/// Bytes collected before they are printed.
const BUFFER: usize = 32 << 10;

const BOLD: &str = "\x1b[1m";
const DIM_UNDERLINE: &str = "\x1b[2;4m";
const RESET: &str = "\x1b[0m";

/// Colours of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    /// Came, is up, is well.
    Green,
    /// Went, is down, was dropped.
    Red,
}

/// Standard output, or a string in tests; printed when full, when asked, and when dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    text: String,
    colored: bool,
    /// `None` in tests.
    printed: bool,
}

impl Screen {
    /// Standard output.
    pub(crate) fn stdout() -> Screen {
        Screen { text: String::new(), colored: is_colored(), printed: true }
    }

    /// Adds text.
    pub(crate) fn text(&mut self, text: &str) {
        self.text.push_str(text);
        if self.printed && self.text.len() >= BUFFER {
            self.flush();
        }
    }

    /// Adds text in bold.
    pub(crate) fn bold(&mut self, text: &str) {
        self.painted(BOLD, text);
    }

    /// Adds the head of a table.
    pub(crate) fn heading(&mut self, text: &str) {
        self.painted(DIM_UNDERLINE, text);
    }

    /// Adds text in a colour.
    pub(crate) fn color(&mut self, color: Color, text: &str) {
        let code = match color {
            Color::Green => "\x1b[32m",
            Color::Red => "\x1b[31m",
        };
        self.painted(code, text);
    }

    fn painted(&mut self, code: &str, text: &str) {
        if self.colored && !text.is_empty() {
            self.text.push_str(code);
            self.text.push_str(text);
            self.text.push_str(RESET);
        } else {
            self.text.push_str(text);
        }
    }

    /// Prints what is collected.
    pub(crate) fn flush(&mut self) {
        if self.printed && !self.text.is_empty() {
            output::print(&std::mem::take(&mut self.text));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
impl Screen {
    /// A screen that keeps what is written, without colours.
    pub(crate) fn to_string() -> Screen {
        Screen { text: String::new(), colored: false, printed: false }
    }

    /// What was written.
    pub(crate) fn into_string(mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

/// Whether standard output shows colours: a terminal that can, and nobody asked for none (no-color.org).
pub(crate) fn is_colored() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !no_color && !dumb
}

/// The text that was read, to show errors in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// The file's name; empty for a command that was just typed.
    pub(crate) name: &'a str,
    /// The text.
    pub(crate) text: &'a str,
    /// Lines before it, where it is a piece of something longer.
    pub(crate) lines_before: usize,
}

impl<'a> Source<'a> {
    /// A command.
    pub(crate) fn command(text: &'a str) -> Source<'a> {
        Source { name: "", text, lines_before: 0 }
    }

    /// A file.
    pub(crate) fn file(name: &'a str, text: &'a str) -> Source<'a> {
        Source { name: if name == "-" { "standard input" } else { name }, text, lines_before: 0 }
    }

    /// A line of standard input, counted from 1.
    pub(crate) fn piped(text: &'a str, line: usize) -> Source<'a> {
        Source { name: "standard input", text, lines_before: line - 1 }
    }
}

/// Shows errors: for people on standard error, in JSON on standard output, as one object with the first
/// error's members and, if there are more, all of them under `errors`.
pub(crate) fn errors(errors: &[ErrorLine], source: Source<'_>, json: bool) {
    if !json {
        let style = stderr_style();
        errors.iter().for_each(|error| output::tell(&rendered(error, source, style)));
        return;
    }
    let mut objects: Vec<Map<String, Value>> = errors.iter().map(|error| object(error, source)).collect();
    if objects.len() > 1 {
        let all = json!(objects);
        objects[0].insert("errors".to_owned(), all);
    }
    if let Some(first) = objects.into_iter().next() {
        output::print_json(&Value::Object(first));
    }
}

/// Shows a note to people; in JSON it is part of the answer.
pub(crate) fn note(note: &ErrorLine, source: Source<'_>) {
    let text = match place(note, source) {
        Some((line, column, span)) => {
            let note = Note { line, column, span, message: note.message.clone() };
            note.render_in(source.name, source.text, stderr_style())
        }
        None => format!("note: {}\n", note.message),
    };
    output::tell(&text);
}

/// Shows one error that has no place in a text.
pub(crate) fn failure(message: &str, json: bool) {
    errors(&[ErrorLine::new(message)], Source::command(""), json);
}

/// A note as a JSON object.
pub(crate) fn note_object(note: &ErrorLine, source: Source<'_>) -> Value {
    let mut object = object(note, source);
    if let Some(message) = object.shift_remove("error") {
        object.shift_insert(0, "note".to_owned(), message);
    }
    Value::Object(object)
}

fn object(error: &ErrorLine, source: Source<'_>) -> Map<String, Value> {
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

fn rendered(error: &ErrorLine, source: Source<'_>, style: Style) -> String {
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
            Style::Plain => format!("error: {}\n", error.message),
            Style::Colored => format!("\x1b[1;31merror\x1b[0m{BOLD}: {}{RESET}\n", error.message),
        },
    }
}

fn place(error: &ErrorLine, source: Source<'_>) -> Option<(usize, usize, Span)> {
    let (start, end) = error.span?;
    Some((error.line? + source.lines_before, error.column?, Span { start, end }))
}

fn stderr_style() -> Style {
    if output::stderr_is_colored() { Style::Colored } else { Style::Plain }
}

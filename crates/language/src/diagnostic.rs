//! Errors in a text, and notes on a text that is right but may surprise.
//!
//! A [`Diagnostic`] is plain data: where, what, what was expected, the nearest known word. It is made by the
//! parser and the checker with byte spans only; `locate` adds lines and columns in one pass over the text.
//! Rendering needs the text again, since diagnostics do not keep it alive.

use mmb_policy::printable::{is_hidden, printable};
use std::fmt::Write as _;

/// A range of bytes of the text, end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TextSpan {
    /// First byte.
    pub start: usize,
    /// First byte behind.
    pub end: usize,
}

impl TextSpan {
    /// From the start of this one to the end of `other`.
    pub(crate) fn to(self, other: TextSpan) -> TextSpan {
        TextSpan { start: self.start, end: other.end }
    }
}

/// An error: the command or file was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The words meant.
    pub span: TextSpan,
    /// The error.
    pub message: String,
    /// The text that is allowed in this place.
    pub expected: Option<String>,
    /// The nearest known word.
    pub suggestion: Option<String>,
}

/// A remark: the text was taken, with this in mind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The words meant.
    pub span: TextSpan,
    /// The way in which the text was read.
    pub message: String,
}

/// The use of colours in a rendering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RenderStyle {
    /// Text only.
    #[default]
    Plain,
    /// Colours of the terminal.
    Colored,
}

impl Diagnostic {
    pub(crate) fn new(span: TextSpan, message: impl Into<String>) -> Diagnostic {
        Diagnostic { line: 0, column: 0, span, message: message.into(), expected: None, suggestion: None }
    }

    pub(crate) fn expected(mut self, expected: impl Into<String>) -> Diagnostic {
        self.expected = Some(expected.into());
        self
    }

    pub(crate) fn suggest(mut self, word: Option<impl Into<String>>) -> Diagnostic {
        self.suggestion = word.map(Into::into);
        self
    }

    /// The error with its line of `source`, a caret under the words meant, what was expected and the nearest
    /// known word; ends with a line break. `source` is the text that was parsed; an empty `source_name` leaves the
    /// place out.
    pub fn render(&self, source_name: &str, source: &str) -> String {
        self.render_in(source_name, source, RenderStyle::Plain)
    }

    /// [`Diagnostic::render`], in colours if asked.
    pub fn render_in(&self, source_name: &str, source: &str, style: RenderStyle) -> String {
        let mut out = Rendering::new("error", RED, &self.message, style);
        out.excerpt(source_name, source, (self.line, self.column), self.span);
        if let Some(expected) = &self.expected {
            out.remark("expected ", expected);
        }
        if let Some(word) = &self.suggestion {
            out.remark("did you mean ", &format!("`{word}`?"));
        }
        out.text
    }
}

/// The most errors, and the most notes, that are reported for one text: a text with more errors is no policy.
pub(crate) const MAX_REPORTED: usize = 200;

/// The errors or the notes of one text, in the order in which they are found. From [`MAX_REPORTED`] on they are not kept: a
/// text may be long and give rise to one with every few bytes.
#[derive(Debug)]
pub(crate) struct Reported<T>(Vec<T>);

/// Errors of one text.
pub(crate) type Errors = Reported<Diagnostic>;
/// Notes on one text.
pub(crate) type Notes = Reported<Note>;

impl<T> Default for Reported<T> {
    fn default() -> Reported<T> {
        Reported(Vec::new())
    }
}

impl<T: Located> Reported<T> {
    /// Returns whether no more are kept.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MAX_REPORTED
    }

    pub(crate) fn push(&mut self, one: T) {
        if !self.is_full() {
            self.0.push(one);
        }
    }

    /// Adds those of another check of the text.
    pub(crate) fn append(&mut self, others: Reported<T>) {
        others.0.into_iter().for_each(|one| self.push(one));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them by their place in the text, which they get as line and column.
    pub(crate) fn located(mut self, source: &str) -> Vec<T> {
        locate(&mut self.0, source);
        self.0
    }
}

impl Errors {
    /// The text of the first one.
    pub(crate) fn first_message(&self) -> String {
        self.0.first().map(|error| error.message.clone()).unwrap_or_default()
    }
}

impl Note {
    pub(crate) fn new(span: TextSpan, message: impl Into<String>) -> Note {
        Note { line: 0, column: 0, span, message: message.into() }
    }

    /// The remark with its line of `source` and a caret under the words meant; ends with a line break.
    pub fn render(&self, source_name: &str, source: &str) -> String {
        self.render_in(source_name, source, RenderStyle::Plain)
    }

    /// [`Note::render`], in colours if asked.
    pub fn render_in(&self, source_name: &str, source: &str, style: RenderStyle) -> String {
        let mut out = Rendering::new("note", CYAN, &self.message, style);
        out.excerpt(source_name, source, (self.line, self.column), self.span);
        out.text
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(expected) = &self.expected {
            write!(f, "; expected {expected}")?;
        }
        if let Some(word) = &self.suggestion {
            write!(f, "; did you mean `{word}`?")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

const RED: &str = "\x1b[1;31m";
const CYAN: &str = "\x1b[1;36m";
const BLUE: &str = "\x1b[1;34m";
const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";
/// The most characters of a source line that are shown; of a longer one the part around the caret.
const EXCERPT: usize = 120;

struct Rendering {
    text: String,
    style: RenderStyle,
    margin: usize,
    accent: &'static str,
}

impl Rendering {
    fn new(severity: &str, accent: &'static str, message: &str, style: RenderStyle) -> Rendering {
        let mut out = Rendering { text: String::new(), style, margin: 1, accent };
        out.paint(accent, severity);
        out.paint(BOLD, &format!(": {}", printable(message)));
        out.text.push('\n');
        out
    }

    fn paint(&mut self, color: &str, text: &str) {
        match self.style {
            RenderStyle::Plain => self.text.push_str(text),
            RenderStyle::Colored => {
                let _ = write!(self.text, "{color}{text}{RESET}");
            }
        }
    }

    fn excerpt(&mut self, source_name: &str, source: &str, (line, column): (usize, usize), span: TextSpan) {
        let number = line.to_string();
        self.margin = number.len();
        if !source_name.is_empty() {
            self.paint(BLUE, &format!("{:width$}--> ", "", width = self.margin));
            let _ = writeln!(self.text, "{}:{line}:{column}", printable(source_name));
        }
        let start = floor_boundary(source, span.start);
        let end = floor_boundary(source, span.end).max(start);
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = source[start..].find('\n').map_or(source.len(), |at| start + at);
        let before = &source[line_start..start];
        let shown_from = before.char_indices().rev().nth(EXCERPT / 2 - 1).map_or(0, |(at, _)| at);
        let mut shown: String = if shown_from > 0 { "…".to_owned() } else { String::new() };
        let mut under: String = if shown_from > 0 { " ".to_owned() } else { String::new() };
        for c in before[shown_from..].chars() {
            under.extend(std::iter::repeat_n(' ', show(c, &mut shown)));
        }
        let marked = end.min(line_end).saturating_sub(start);
        let mut carets = 0;
        let mut behind = source[start..line_end].char_indices();
        for (place, (at, c)) in behind.by_ref().take(EXCERPT).enumerate() {
            let width = show(c, &mut shown);
            carets += if at < marked && place < EXCERPT / 2 { width } else { 0 };
        }
        if behind.next().is_some() {
            shown.push('…');
        }
        self.gutter("");
        self.text.push('\n');
        self.gutter(&number);
        let _ = writeln!(self.text, " {}", shown.trim_end());
        self.gutter("");
        let _ = write!(self.text, " {under}");
        self.paint(self.accent, &"^".repeat(carets.max(1)));
        self.text.push('\n');
    }

    fn gutter(&mut self, number: &str) {
        self.paint(BLUE, &format!("{number:>width$} |", width = self.margin));
    }

    fn remark(&mut self, label: &str, text: &str) {
        self.paint(BLUE, &format!("{:width$} = ", "", width = self.margin));
        let _ = writeln!(self.text, "{label}{}", printable(text));
    }
}

/// Adds a character of a source line: a blank for a tab, an escape for another hidden character. Returns the number of characters that it
/// added.
fn show(c: char, shown: &mut String) -> usize {
    if c != '\t' && is_hidden(c) {
        shown.extend(c.escape_default());
        return c.escape_default().len();
    }
    shown.push(if c == '\t' { ' ' } else { c });
    1
}

fn floor_boundary(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// An error or note, which gets a line and a column.
pub(crate) trait Located {
    /// The span's first byte.
    fn start(&self) -> usize;
    /// Sets the place.
    fn place(&mut self, line: usize, column: usize);
}

impl Located for Diagnostic {
    fn start(&self) -> usize {
        self.span.start
    }
    fn place(&mut self, line: usize, column: usize) {
        (self.line, self.column) = (line, column);
    }
}

impl Located for Note {
    fn start(&self) -> usize {
        self.span.start
    }
    fn place(&mut self, line: usize, column: usize) {
        (self.line, self.column) = (line, column);
    }
}

/// Sorts by place and fills in lines and columns, in one pass over the text.
fn locate<T: Located>(items: &mut [T], source: &str) {
    items.sort_by_key(Located::start);
    let (mut line, mut line_start, mut seen) = (1, 0, 0);
    for item in items {
        let start = floor_boundary(source, item.start());
        for (at, _) in source[seen..start].match_indices('\n') {
            line += 1;
            line_start = seen + at + 1;
        }
        seen = start;
        item.place(line, source[line_start..start].chars().count() + 1);
    }
}

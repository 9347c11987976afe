//! What answers for people are written on, in pieces that are worth handing on.

use crate::sink::OutputSink;

/// Bytes collected before they are handed on.
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

/// The answer's side of a sink; handed on when full, when asked, and when dropped.
pub(crate) struct Screen<'a> {
    text: String,
    sink: &'a dyn OutputSink,
    colored: bool,
    gone: bool,
}

impl<'a> Screen<'a> {
    /// An empty screen.
    pub(crate) fn new(sink: &'a dyn OutputSink) -> Screen<'a> {
        Screen { text: String::new(), sink, colored: sink.colors().out, gone: false }
    }

    /// Where it hands its text on.
    pub(crate) fn sink(&self) -> &'a dyn OutputSink {
        self.sink
    }

    /// Nobody looks at it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Adds text.
    pub(crate) fn text(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() >= BUFFER {
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

    /// Hands on what is collected.
    pub(crate) fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() && !self.gone {
            self.gone = self.sink.out(&text).is_err();
        }
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

//! A buffer in front of a sink, which collects text to pieces of a useful size and colours it.

use crate::sink::OutputSink;
use mmb_policy::printable::{printable_json, printable_lines};

/// Bytes that are collected before they are sent to the sink.
const BUFFER_BYTES: usize = 32 << 10;

const BOLD: &str = "\x1b[1m";
const DIM_UNDERLINE: &str = "\x1b[2;4m";
const RESET: &str = "\x1b[0m";

/// Colours of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    /// Something was added, or is up.
    Green,
    /// Something was removed, or is down.
    Red,
}

/// Buffered text of an answer. It is sent to the sink when the buffer is full, on [`Screen::flush`], and on drop.
pub(crate) struct Screen<'a> {
    text: String,
    sink: &'a dyn OutputSink,
    colored: bool,
    closed: bool,
}

impl<'a> Screen<'a> {
    /// Creates an empty buffer.
    pub(crate) fn new(sink: &'a dyn OutputSink) -> Screen<'a> {
        Screen { text: String::new(), sink, colored: sink.colors().out, closed: false }
    }

    /// Returns the sink.
    pub(crate) fn sink(&self) -> &'a dyn OutputSink {
        self.sink
    }

    /// Returns whether the reader has gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Appends a text and escapes its invisible characters: it may come from users.
    pub(crate) fn text(&mut self, text: &str) {
        self.push(&printable_lines(text));
    }

    /// Appends a part of JSON, between two of its tokens.
    pub(crate) fn json(&mut self, json: &str) {
        self.push(&printable_json(json));
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Appends bold text.
    pub(crate) fn bold(&mut self, text: &str) {
        self.styled(BOLD, text);
    }

    /// Appends the heading of a table.
    pub(crate) fn heading(&mut self, text: &str) {
        self.styled(DIM_UNDERLINE, text);
    }

    /// Appends coloured text.
    pub(crate) fn color(&mut self, color: Color, text: &str) {
        let code = match color {
            Color::Green => "\x1b[32m",
            Color::Red => "\x1b[31m",
        };
        self.styled(code, text);
    }

    fn styled(&mut self, code: &str, text: &str) {
        let text = printable_lines(text);
        if self.colored && !text.is_empty() {
            self.text.push_str(code);
            self.text.push_str(&text);
            self.text.push_str(RESET);
        } else {
            self.text.push_str(&text);
        }
    }

    /// Sends the collected text to the sink.
    pub(crate) fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() && !self.closed {
            self.closed = self.sink.out(&text).is_err();
        }
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sink::SinkClosed;
    use std::cell::RefCell;

    /// Keeps all output.
    #[derive(Default)]
    struct CapturedOutput(RefCell<String>);

    impl OutputSink for CapturedOutput {
        fn out(&self, text: &str) -> Result<(), SinkClosed> {
            self.0.borrow_mut().push_str(text);
            Ok(())
        }

        fn err(&self, text: &str) {
            self.0.borrow_mut().push_str(text);
        }
    }

    /// Returns what `show` writes to a screen.
    pub(crate) fn shown(show: impl FnOnce(&mut Screen<'_>)) -> String {
        let captured = CapturedOutput::default();
        show(&mut Screen::new(&captured));
        captured.0.into_inner()
    }

    /// CVE-2021-42574: a terminal shows the text after U+202E before it.
    #[test]
    fn no_character_that_is_not_seen_reaches_a_terminal() {
        let text = "a\u{202e}b\u{85}c\x1b[2Jd\n";
        assert_eq!(shown(|screen| screen.text(text)), "a\\u{202e}b\\u{85}c\\u{1b}[2Jd\n");
        assert_eq!(shown(|screen| screen.bold(text)), shown(|screen| screen.text(text)));
        let value = serde_json::json!({ "reason": text });
        let json = shown(|screen| screen.json(&value.to_string()));
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON"), value);
    }
}

//! Standard output and error, written so that a closed pipe (`mmb list | head`) ends the program quietly.

use mmb_client::{ColorChoice, OutputSink, SinkClosed};
use std::io::{ErrorKind, IsTerminal, Write};

/// Standard output and error as errands use them.
pub(crate) struct Terminal;

impl OutputSink for Terminal {
    fn out(&self, text: &str) -> Result<(), SinkClosed> {
        print(text);
        Ok(())
    }

    fn err(&self, text: &str) {
        tell(text);
    }

    fn colors(&self) -> ColorChoice {
        ColorChoice { out: stdout_is_colored(), err: stderr_is_colored() }
    }
}

/// Writes text to standard output. Where its reader is gone there is nobody left to work for: the program ends.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        complain(&format!("cannot write to standard output: {error}"));
        std::process::exit(1);
    }
}

/// Writes one JSON value and a newline to standard output.
pub(crate) fn print_json(value: &serde_json::Value) {
    print(&format!("{value}\n"));
}

/// Writes a line to standard error, after the program's name.
pub(crate) fn complain(text: &str) {
    tell(&format!("mmb: {text}\n"));
}

/// Writes text to standard error as it is.
pub(crate) fn tell(text: &str) {
    // Standard error is the last place to complain to: if it is gone, so be it.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Whether standard output shows colours: a terminal that can, and nobody asked for none.
pub(crate) fn stdout_is_colored() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && colors_are_wanted() && !dumb
}

/// Whether standard error shows colours: it is a terminal, and nobody asked for none.
fn stderr_is_colored() -> bool {
    std::io::stderr().is_terminal() && colors_are_wanted()
}

/// no-color.org
fn colors_are_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

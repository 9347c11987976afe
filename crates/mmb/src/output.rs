//! Standard output and error, written so that a closed pipe (`mmb list | head`) ends the program quietly.

use mmb_client::{ColorChoice, OutputSink, SinkClosed};
use mmb_policy::printable::{printable_json, printable_lines};
use std::io::{ErrorKind, IsTerminal, Write};

/// Standard output and error, as the destination of commands.
pub(crate) struct Terminal;

impl OutputSink for Terminal {
    fn out(&self, text: &str) -> Result<(), SinkClosed> {
        print(text);
        Ok(())
    }

    fn err(&self, text: &str) {
        print_error(text);
    }

    fn colors(&self) -> ColorChoice {
        ColorChoice { out: stdout_is_colored(), err: stderr_is_colored() }
    }
}

/// Writes text to standard output. Ends the program if its reader has gone.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        report_error(&format!("cannot write to standard output: {error}"));
        std::process::exit(1);
    }
}

/// Writes one JSON value and a newline to standard output.
pub(crate) fn print_json(value: &serde_json::Value) {
    print(&printable_json(&format!("{value}\n")));
}

/// Writes a line to standard error, after the program's name.
pub(crate) fn report_error(text: &str) {
    print_error(&printable_lines(&format!("mmb: {text}\n")));
}

/// Writes text to standard error as it is.
pub(crate) fn print_error(text: &str) {
    // A failure to write to standard error cannot be reported.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Returns whether standard output is coloured: it is a terminal with colours, and the user has not disabled them.
pub(crate) fn stdout_is_colored() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && colors_are_allowed() && !dumb
}

/// Returns whether standard error is coloured: it is a terminal, and the user has not disabled colours.
fn stderr_is_colored() -> bool {
    std::io::stderr().is_terminal() && colors_are_allowed()
}

/// Returns whether the environment allows colours (no-color.org).
fn colors_are_allowed() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

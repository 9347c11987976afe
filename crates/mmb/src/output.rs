//! Standard output and error, written so that a closed pipe (`mmb list | head`) ends the program quietly.

use std::io::{ErrorKind, Write};

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
    // Standard error is the last place to complain to: if it is gone, so be it.
    let _ = writeln!(std::io::stderr().lock(), "mmb: {text}");
}

//! The other end of the control socket: one-shot commands and the interactive shell.

use std::path::PathBuf;
use std::process::ExitCode;

/// Options that every command takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientOptions {
    /// The control socket; the default one if there is none.
    pub(crate) socket: Option<PathBuf>,
    /// Answer in JSON.
    pub(crate) json: bool,
}

/// Runs one command, given in the words of the shell that started the program.
pub(crate) fn main(words: Vec<String>, opts: ClientOptions) -> ExitCode {
    let _ = (words, opts);
    ExitCode::SUCCESS
}

/// Opens the interactive shell, or runs the lines of standard input where that is no terminal.
pub(crate) fn shell(opts: ClientOptions) -> ExitCode {
    let _ = opts;
    ExitCode::SUCCESS
}

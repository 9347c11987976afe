//! The other end of the control socket: one-shot commands and the interactive shell.
//!
//! Both make an [`Errand`] of what was typed and let a [`Runner`] do it: it asks the daemon (a connection for
//! each errand, so that a daemon that was restarted is simply there again) and prints the answer for people
//! or as JSON. Only `check` needs no daemon.
//!
//! Words of a one-shot command come from the user's shell, which has its own use for `"`, `!`, `|`, `{` and
//! `>`. They are joined with single spaces, so a rule may be typed as many words or few: `mmb add tcp-dport
//! 80 drop` and `mmb add 'tcp-dport 80 drop'` are the same. What the shell would eat needs single quotes:
//! `mmb add '! tcp-syn' drop`, `mmb add tcp-dport '{80, 443}' drop`, `mmb add payload '"GET "' drop`.

mod connections;
mod editor;
mod errand;
mod file;
mod help;
mod human;
mod interrupt;
mod json;
mod names;
mod report;
mod run;
mod shell;
mod table;

use errand::{Errand, Misuse};
use mmb_control::DEFAULT_SOCKET;
use run::Runner;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit status of what cannot be meant.
const BAD_USAGE: u8 = 2;

/// Options that every command takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientOptions {
    /// The control socket; the default one if there is none.
    pub(crate) socket: Option<PathBuf>,
    /// Answer in JSON.
    pub(crate) json: bool,
}

impl ClientOptions {
    fn socket(&self) -> &Path {
        self.socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET))
    }
}

/// Runs one command, given in the words of the shell that started the program.
pub(crate) fn main(words: Vec<String>, opts: ClientOptions) -> ExitCode {
    match Errand::from_words(&words) {
        Ok(errand) => match Runner::new(&opts).run(&errand) {
            Ok(()) => ExitCode::SUCCESS,
            Err(run::Failed) => ExitCode::FAILURE,
        },
        Err(Misuse(message)) => {
            report::failure(&message, opts.json);
            ExitCode::from(BAD_USAGE)
        }
    }
}

/// Opens the interactive shell, or runs the lines of standard input where that is no terminal.
pub(crate) fn shell(opts: ClientOptions) -> ExitCode {
    shell::main(&opts)
}

//! The program as a client of a daemon: one-shot commands and the interactive shell.
//!
//! Both parse what was typed as a [`UserCommand`], and a [`CommandRunner`](mmb_client::CommandRunner) runs it.
//! This module adds the terminal, its colours, Ctrl-C and exit statuses.
//!
//! The words of a one-shot command come from the user's shell, to which `"`, `!`, `|`, `{` and `>` are special. This module joins the words
//! with single spaces, so that a rule may be typed as many words or few: `mmb add tcp-dport 80 drop` and `mmb add 'tcp-dport 80 drop'` are
//! the same. Characters that are special to the shell need single quotes:
//! `mmb add '! tcp-syn' drop`, `mmb add tcp-dport '{80, 443}' drop`, `mmb add payload '"GET "' drop`.

mod editor;
mod interrupt;
mod runner;
mod shell;

pub(crate) use runner::ClientOptions;

use mmb_client::{CommandFailed, UsageError, UserCommand};
use mmb_protocol::Client;
use runner::{failure, run, runner};
use std::process::ExitCode;

/// The exit status for a line that is no command.
const BAD_USAGE: u8 = 2;

/// Runs one command, which the words of the program's command line are.
pub(crate) fn main(words: Vec<String>, opts: ClientOptions) -> ExitCode {
    match UserCommand::from_words(&words) {
        Ok(command) => match run(&runner(&|| Client::connect(opts.socket()), opts.json), &command, None) {
            Ok(()) => ExitCode::SUCCESS,
            Err(CommandFailed) => ExitCode::FAILURE,
        },
        Err(UsageError(message)) => {
            failure(&message, &opts);
            ExitCode::from(BAD_USAGE)
        }
    }
}

/// Opens the interactive shell, or runs the lines of standard input if that is no terminal.
pub(crate) fn shell(opts: ClientOptions) -> ExitCode {
    shell::main(&opts)
}

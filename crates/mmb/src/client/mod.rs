//! The program as a client of a daemon: one-shot commands and the interactive shell.
//!
//! Both read a [`UserCommand`] from what was typed, and `mmb_client`'s [`CommandRunner`] runs it. This module adds the terminal, its colours,
//! Ctrl-C and exit statuses.
//!
//! The words of a one-shot command come from the user's shell, to which `"`, `!`, `|`, `{` and `>` are special. This module joins the words
//! with single spaces, so that a rule may be typed as many words or few: `mmb add tcp-dport 80 drop` and `mmb add 'tcp-dport 80 drop'` are
//! the same. Characters that are special to the shell need single quotes:
//! `mmb add '! tcp-syn' drop`, `mmb add tcp-dport '{80, 443}' drop`, `mmb add payload '"GET "' drop`.

mod editor;
mod interrupt;
mod shell;

use crate::output::Terminal;
use interrupt::InterruptGuard;
use mmb_client::help::ProgramWords;
use mmb_client::{CommandAction, CommandFailed, CommandRunner, Connector, UsageError, UserCommand};
use mmb_protocol::{Client, DEFAULT_SOCKET};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Commands of the shell itself, and their descriptions.
const SHELL_WORDS: ProgramWords<'_> = &[
    ("help", "shows the words that may follow the ones after it; so does ? anywhere"),
    ("exit", "leaves the shell"),
];

/// Printed after the error that no daemon answers.
const NO_DAEMON_HINT: &str = "  = start one with: mmb run --port lan=eth1 --port wan=eth2
  = or name its socket: --socket PATH
";

/// Printed before the first event of `monitor`.
const MONITOR_HINT: &str = "watching connections; Ctrl-C ends it\n";

/// The exit status for a line that is no command.
const BAD_USAGE: u8 = 2;

/// Options that every command takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientOptions {
    /// The path of the control socket; `None` is the default path.
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON.
    pub(crate) json: bool,
}

impl ClientOptions {
    /// The path of the control socket.
    pub(crate) fn socket(&self) -> &Path {
        self.socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET))
    }
}

/// Returns a runner of commands at this terminal.
fn runner<'a>(connect: &'a Connector<'a>, json: bool) -> CommandRunner<'a> {
    CommandRunner {
        connect,
        sink: &Terminal,
        is_interrupted: &interrupt::interrupted,
        json,
        compile: crate::compile::check,
        standard_streams: true,
        program_words: SHELL_WORDS,
        no_daemon_hint: NO_DAEMON_HINT,
        monitor_hint: MONITOR_HINT,
    }
}

/// Runs a command, which may come from line `line` of standard input. Ctrl-C ends `monitor`, `trace` and `capture`.
fn run(runner: &CommandRunner<'_>, command: &UserCommand, line: Option<usize>) -> Result<(), CommandFailed> {
    let is_followed = matches!(command.action, CommandAction::Monitor(_) | CommandAction::Capture(_));
    let _guard = is_followed.then(InterruptGuard::begin);
    runner.run_line(command, line)
}

/// Reports an error that belongs to no command.
fn failure(message: &str, opts: &ClientOptions) {
    mmb_client::failure(&Terminal, message, opts.json);
}

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

//! The program as a client of a running one: one-shot commands and the interactive shell.
//!
//! Both make a [`UserCommand`] of what was typed and let `mmb_client`'s [`CommandRunner`] do it. Here is what is this program's own: the
//! terminal, its colours, Ctrl-C, and exit statuses.
//!
//! Words of a one-shot command come from the user's shell, which has its own use for `"`, `!`, `|`, `{` and
//! `>`. They are joined with single spaces, so a rule may be typed as many words or few: `mmb add tcp-dport
//! 80 drop` and `mmb add 'tcp-dport 80 drop'` are the same. What the shell would eat needs single quotes:
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

/// Words of the shell itself, and what they do.
const SHELL_WORDS: ProgramWords<'_> = &[
    ("help", "shows what may follow the words behind it; so does ? anywhere"),
    ("exit", "leaves the shell"),
];

const NO_DAEMON: &str = "  = start one with: mmb run --port lan=eth1 --port wan=eth2
  = or say where it listens: --socket PATH
";

const WATCHING: &str = "watching connections; Ctrl-C ends it\n";

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

/// Does errands at this terminal.
fn runner<'a>(connect: &'a Connector<'a>, json: bool) -> CommandRunner<'a> {
    CommandRunner {
        connect,
        sink: &Terminal,
        enough: &interrupt::came,
        json,
        standard_streams: true,
        own_words: SHELL_WORDS,
        no_daemon: NO_DAEMON,
        watching: WATCHING,
    }
}

/// Does an errand, which line `line` of standard input was, if it was one. What has no end ends with Ctrl-C.
fn run(runner: &CommandRunner<'_>, command: &UserCommand, line: Option<usize>) -> Result<(), CommandFailed> {
    let _watch = matches!(command.task, CommandAction::Monitor(_)).then(InterruptGuard::begin);
    runner.run_line(command, line)
}

/// Tells of an error that belongs to no errand.
fn failure(message: &str, opts: &ClientOptions) {
    mmb_client::failure(&Terminal, message, opts.json);
}

/// Runs one command, given in the words of the shell that started the program.
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

/// Opens the interactive shell, or runs the lines of standard input where that is no terminal.
pub(crate) fn shell(opts: ClientOptions) -> ExitCode {
    shell::main(&opts)
}

//! Runs commands at this terminal.

use super::interrupt::{InterruptGuard, interrupted};
use crate::output::Terminal;
use mmb_client::help::ProgramWords;
use mmb_client::{CommandAction, CommandFailed, CommandRunner, Connector, UserCommand};
use mmb_protocol::DEFAULT_SOCKET;
use std::path::{Path, PathBuf};

/// Commands of the shell itself, and their descriptions.
pub(super) const SHELL_WORDS: ProgramWords<'_> = &[
    ("help", "shows the words that may follow the ones after it; so does ? anywhere"),
    ("exit", "leaves the shell"),
];

/// Printed after the error that no daemon answers.
const NO_DAEMON_HINT: &str = "  = start one with: mmb run --port lan=eth1 --port wan=eth2
  = or name its socket: --socket PATH
";

/// Printed before the first event of `monitor`.
const MONITOR_HINT: &str = "watching connections; Ctrl-C ends it\n";

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
pub(super) fn runner<'a>(connect: &'a Connector<'a>, json: bool) -> CommandRunner<'a> {
    CommandRunner {
        connect,
        sink: &Terminal,
        is_interrupted: &interrupted,
        json,
        compile: crate::compile::check,
        standard_streams: true,
        program_words: SHELL_WORDS,
        no_daemon_hint: NO_DAEMON_HINT,
        monitor_hint: MONITOR_HINT,
    }
}

/// Runs a command, which may come from line `line` of standard input. Ctrl-C ends `monitor`, `trace` and `capture`.
pub(super) fn run(
    runner: &CommandRunner<'_>,
    command: &UserCommand,
    line: Option<usize>,
) -> Result<(), CommandFailed> {
    let is_followed = matches!(command.action, CommandAction::Monitor(_) | CommandAction::Capture(_));
    let _guard = is_followed.then(InterruptGuard::begin);
    runner.run_line(command, line)
}

/// Reports an error that belongs to no command.
pub(super) fn failure(message: &str, opts: &ClientOptions) {
    mmb_client::failure(&Terminal, message, opts.json);
}

//! The interactive shell: a prompt with history, completion and help on a terminal, and the same commands line by line from standard input
//! otherwise.

use super::editor::{LineEditor, PromptInput};
use super::runner::{ClientOptions, failure, run, runner};
use crate::output;
use mmb_client::{CommandAction, CommandFailed, UsageError, UserCommand};
use mmb_protocol::answer::Answer;
use mmb_protocol::{Client, ClientError, Request};
use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The longest time that the daemon may take before a prompt.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Opens the shell on standard input.
pub(crate) fn main(opts: &ClientOptions) -> ExitCode {
    if io::stdin().is_terminal() { interactive(opts) } else { piped(opts) }
}

/// Runs every line, also after one that failed; the exit status tells whether a line failed.
fn piped(opts: &ClientOptions) -> ExitCode {
    let connect = || Client::connect(opts.socket());
    let runner = runner(&connect, opts.json);
    let mut failed = false;
    for command in joined(io::stdin().lock().lines()) {
        let (number, text) = match command {
            Ok(command) => command,
            Err(error) => {
                failure(&format!("cannot read standard input: {error}"), opts);
                return ExitCode::FAILURE;
            }
        };
        match UserCommand::from_line(&text) {
            Ok(UserCommand { action: CommandAction::Exit, .. }) => break,
            Ok(command) => failed |= run(&runner, &command, Some(number)) == Err(CommandFailed),
            Err(UsageError(message)) => {
                failure(&message, opts);
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Returns commands with the number of their first line, from 1. As in a policy file, a backslash at the end of a line joins it to the
/// next.
fn joined(
    lines: impl Iterator<Item = io::Result<String>>,
) -> impl Iterator<Item = io::Result<(usize, String)>> {
    let mut lines = (1..).zip(lines);
    std::iter::from_fn(move || {
        let (number, first) = lines.next()?;
        let mut command = match first {
            Ok(line) => line,
            Err(error) => return Some(Err(error)),
        };
        while command.ends_with('\\') {
            match lines.next() {
                Some((_, Ok(line))) => command = command + "\n" + &line,
                Some((_, Err(error))) => return Some(Err(error)),
                None => break,
            }
        }
        Some(Ok((number, command)))
    })
}

fn interactive(opts: &ClientOptions) -> ExitCode {
    let connect = || Client::connect(opts.socket());
    let runner = runner(&connect, opts.json);
    let mut editor = match LineEditor::new(opts.socket()) {
        Ok(editor) => editor,
        Err(error) => {
            failure(&format!("cannot use this terminal: {error}"), opts);
            return ExitCode::FAILURE;
        }
    };
    output::print("mmb: Tab completes, ? helps at any word, exit leaves\n");
    let mut daemon = DaemonPresence::Unknown;
    loop {
        daemon = daemon.update(opts.socket());
        let prompt = match daemon {
            DaemonPresence::Present => "mmb> ",
            DaemonPresence::Unconfirmed => "mmb (unconfirmed)> ",
            DaemonPresence::Unknown | DaemonPresence::Absent => "mmb (no daemon)> ",
        };
        let line = match editor.line(prompt) {
            Ok(PromptInput::Line(line)) => line,
            Ok(PromptInput::Discarded) => continue,
            Ok(PromptInput::End) => break,
            Err(error) => {
                failure(&format!("cannot read from this terminal: {error}"), opts);
                return ExitCode::FAILURE;
            }
        };
        // A paste may have several lines.
        for (_, command) in joined(line.lines().map(|line| Ok(line.to_owned()))).flatten() {
            match UserCommand::from_line(&command) {
                Ok(UserCommand { action: CommandAction::Exit, .. }) => return ExitCode::SUCCESS,
                // The failure was reported, and the next line may succeed.
                Ok(command) => drop(run(&runner, &command, None)),
                Err(UsageError(message)) => failure(&message, opts),
            }
        }
    }
    ExitCode::SUCCESS
}

/// Knowledge about the daemon, for the prompt. Each command connects anew, so that a return of the daemon needs no action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DaemonPresence {
    Unknown,
    Present,
    /// It is there, and a change of its policy waits for its confirmation.
    Unconfirmed,
    Absent,
}

impl DaemonPresence {
    /// Asks a daemon whether a change waits.
    fn of(client: Client) -> DaemonPresence {
        let mut presence = DaemonPresence::Present;
        // A daemon that does not answer now answers the next command, or says why not.
        let _ = client.with_timeout(TIMEOUT).and_then(|mut client| {
            client.ask(&Request::Run(vec!["show version".to_owned()]), |answer| {
                if let Answer::Unconfirmed(_) = answer {
                    presence = DaemonPresence::Unconfirmed;
                }
                Ok::<_, ClientError>(())
            })
        });
        presence
    }

    /// Tries to connect, and tells the user about a change.
    fn update(self, socket: &Path) -> DaemonPresence {
        match (self, Client::connect(socket)) {
            (DaemonPresence::Absent, Ok(client)) => {
                output::print("mmb is back; its counters restarted from zero\n");
                DaemonPresence::of(client)
            }
            (_, Ok(client)) => DaemonPresence::of(client),
            (DaemonPresence::Unknown, Err(error)) => {
                let hint = match error {
                    ClientError::NoDaemon { .. } => "; start it with mmb run, this prompt will find it",
                    _ => "",
                };
                output::print_error(&format!("{:#}{hint}\n", anyhow::Error::from(error)));
                DaemonPresence::Absent
            }
            (DaemonPresence::Present | DaemonPresence::Unconfirmed, Err(error)) => {
                output::print_error(&format!("mmb went away: {:#}\n", anyhow::Error::from(error)));
                DaemonPresence::Absent
            }
            (DaemonPresence::Absent, Err(_)) => DaemonPresence::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_joins_a_line_to_the_next() {
        let lines = |text: &'static str| {
            let lines = joined(text.lines().map(|line| Ok(line.to_owned())));
            lines.map(|command| command.expect("text")).collect::<Vec<_>>()
        };
        assert_eq!(
            lines("a\n\nb \\\n c\nd"),
            [(1, "a".to_owned()), (2, String::new()), (3, "b \\\n c".to_owned()), (5, "d".to_owned())]
        );
        assert_eq!(lines("a\\"), [(1, "a\\".to_owned())], "a last line may end with a backslash");
    }
}

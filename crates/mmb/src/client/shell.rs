//! The interactive shell: a prompt with history, completion and help where someone sits at it, and the same
//! commands line by line from standard input where not.

use super::ClientOptions;
use super::editor::{Editor, Typed};
use super::errand::{Errand, Misuse, Task};
use super::report;
use super::run::{Failed, Runner};
use crate::output;
use mmb_control::{Client, ClientError};
use std::io::{BufRead, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

/// Opens the shell on standard input.
pub(crate) fn main(opts: &ClientOptions) -> ExitCode {
    if std::io::stdin().is_terminal() { interactive(opts) } else { piped(opts) }
}

/// Runs every line, also behind one that failed; the exit status tells whether one did.
fn piped(opts: &ClientOptions) -> ExitCode {
    let runner = Runner::new(opts);
    let mut failed = false;
    let (mut pending, mut first) = (String::new(), 1);
    for (index, line) in std::io::stdin().lock().lines().enumerate() {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                report::failure(&format!("cannot read standard input: {error}"), opts.json);
                return ExitCode::FAILURE;
            }
        };
        if pending.is_empty() {
            first = index + 1;
        }
        // As in a policy file, a backslash joins a line to the next.
        pending.push_str(&line);
        if line.ends_with('\\') {
            pending.push('\n');
            continue;
        }
        let text = std::mem::take(&mut pending);
        match Errand::from_line(&text) {
            Ok(Errand { task: Task::Exit, .. }) => break,
            Ok(errand) => failed |= runner.run_line(&errand, Some(first)) == Err(Failed),
            Err(Misuse(message)) => {
                report::failure(&message, opts.json);
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn interactive(opts: &ClientOptions) -> ExitCode {
    let runner = Runner::new(opts);
    let mut editor = match Editor::new(opts.socket()) {
        Ok(editor) => editor,
        Err(error) => {
            report::failure(&format!("cannot use this terminal: {error}"), opts.json);
            return ExitCode::FAILURE;
        }
    };
    output::print("mmb: Tab completes, ? helps at any word, exit leaves\n");
    let mut daemon = Presence::Unknown;
    loop {
        daemon = daemon.look(opts.socket());
        let prompt = if daemon == Presence::There { "mmb> " } else { "mmb (no daemon)> " };
        let line = match editor.line(prompt) {
            Ok(Typed::Line(line)) => line,
            Ok(Typed::Nothing) => continue,
            Ok(Typed::End) => break,
            Err(error) => {
                report::failure(&format!("cannot read from this terminal: {error}"), opts.json);
                return ExitCode::FAILURE;
            }
        };
        match Errand::from_line(&line) {
            Ok(Errand { task: Task::Exit, .. }) => break,
            // What failed was printed, and the next line may work.
            Ok(errand) => drop(runner.run(&errand)),
            Err(Misuse(message)) => report::failure(&message, opts.json),
        }
    }
    ExitCode::SUCCESS
}

/// Whether a daemon answers. Each command connects anew, so that nothing need be done when it is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Unknown,
    There,
    Gone,
}

impl Presence {
    /// Looks, and tells the user what changed.
    fn look(self, socket: &Path) -> Presence {
        match (self, Client::connect(socket)) {
            (Presence::Gone, Ok(_)) => {
                output::print("mmb is back; its counters began anew\n");
                Presence::There
            }
            (_, Ok(_)) => Presence::There,
            (Presence::Unknown, Err(error)) => {
                let hint = match error {
                    ClientError::NoDaemon { .. } => "; start it with mmb run, this prompt will find it",
                    _ => "",
                };
                output::tell(&format!("{:#}{hint}\n", anyhow::Error::from(error)));
                Presence::Gone
            }
            (Presence::There, Err(error)) => {
                output::tell(&format!("mmb went away: {:#}\n", anyhow::Error::from(error)));
                Presence::Gone
            }
            (Presence::Gone, Err(_)) => Presence::Gone,
        }
    }
}

//! The language in VPP's command line: `mmb add …`, `mmb list`, `show mmb tables`.
//!
//! A command is an errand like any other client's, and a thread does it. VPP's main thread must not: it is a packet thread as well,
//! and questions about connections wait for it. It shows what comes, piece by piece, and lets VPP go on in between; where VPP
//! cannot, since the workers stand still for the command, it answers in their stead.

use crate::runtime::Runtime;
use crate::sys::Main;
use mmb_client::{Errand, Failed, Gone, Misuse, Sink, Task};
use mmb_policy::verb::COMMANDS;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

/// Pieces of an answer that wait to be shown.
const PIECES: usize = 8;

/// How long VPP does something else before it asks for the first time whether there is an answer, and at most.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// A command of VPP's.
pub(crate) struct CliCommand {
    /// The words that it begins with.
    pub(crate) path: String,
    /// What `?` shows behind them.
    pub(crate) usage: String,
    /// What `help` shows.
    pub(crate) help: String,
}

/// What an errand has to say.
enum Piece {
    /// A part of the answer.
    Out(String),
    /// An error or a note.
    Err(String),
    /// The errand is done.
    End(Result<(), Failed>),
}

/// Adds the language's commands to VPP's, and `show mmb`, which is `mmb show`.
///
/// # Errors
/// VPP has such a command already.
pub(crate) fn add_commands(main: Main) -> Result<(), String> {
    for (number, info) in COMMANDS.iter().enumerate() {
        let usage = format!("mmb {} {}", info.name, info.arguments).trim_end().to_owned();
        let help = format!("{usage}\n{}", info.help);
        main.add_command(number, &CliCommand { path: format!("mmb {}", info.name), usage, help })?;
        if info.name == "show" {
            let usage = format!("show mmb {}", info.arguments);
            let help = format!("{usage}\n{}", info.help);
            main.add_command(number, &CliCommand { path: "show mmb".to_owned(), usage, help })?;
        }
    }
    Ok(())
}

/// Carries out the command of that number in the table of commands, with what was typed behind it.
///
/// # Errors
/// What is wrong with it, in VPP's form: VPP puts the command's words before it.
pub(crate) fn run(main: Main, number: usize, rest: &str) -> Result<(), String> {
    let runtime = Runtime::running().ok_or("mmb has not started")?;
    let verb = COMMANDS.get(number).map_or("", |info| info.name);
    let errand = Errand::from_line(&format!("{verb} {rest}")).map_err(|Misuse(what)| what)?;
    if matches!(errand.task, Task::Monitor(_)) {
        return Err(match runtime.socket() {
            Some(path) => {
                format!(
                    "VPP's command line cannot be interrupted; use: mmb --socket {} monitor",
                    path.display()
                )
            }
            None => "VPP's command line cannot be interrupted, and there is no control socket".to_owned(),
        });
    }
    if verb == "show" {
        runtime.interfaces.look(main);
    }
    let (pieces, answer) = sync_channel(PIECES);
    let work = move || {
        let speaker = Speaker(pieces);
        let done = runtime.errand(&errand, &speaker);
        // Nobody is left to tell if this fails.
        let _ = speaker.0.send(Piece::End(done));
    };
    thread::Builder::new()
        .name("mmb-errand".to_owned())
        .spawn(work)
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let told = show(main, runtime, &answer);
    let refused = runtime.interfaces.reconcile(main);
    told?;
    if refused.is_empty() { Ok(()) } else { Err(refused.join("\n")) }
}

/// Shows an answer until its end; what is told beside it is the error if the errand fails.
fn show(main: Main, runtime: &Runtime, answer: &Receiver<Piece>) -> Result<(), String> {
    let (mut lines, mut beside) = (Lines::default(), String::new());
    let [mut pause, longest] = PAUSES;
    loop {
        match answer.try_recv() {
            Ok(Piece::Out(text)) => main.output(&lines.take(&text)),
            Ok(Piece::Err(text)) => beside.push_str(&text),
            Ok(Piece::End(Ok(()))) => {
                main.output(&lines.begun);
                main.output(&beside);
                return Ok(());
            }
            Ok(Piece::End(Err(Failed))) => return Err(as_vpp_says(&beside)),
            Err(TryRecvError::Disconnected) => return Err("an internal error".to_owned()),
            Err(TryRecvError::Empty) => {
                wait(main, runtime, pause);
                pause = longest.min(pause * 2);
            }
        }
    }
}

/// Has VPP's threads look after their workers, and something else, for a while.
fn wait(main: Main, runtime: &Runtime, pause: Duration) {
    main.kick();
    if main.may_suspend() {
        main.suspend(pause);
    } else {
        runtime.stand_in(if main.workers_stand_still() { main.threads() } else { 1 });
        thread::sleep(pause);
    }
}

/// Errors without the word that VPP puts its own in place of.
fn as_vpp_says(errors: &str) -> String {
    errors.strip_prefix("error: ").unwrap_or(errors).trim_end().to_owned()
}

/// Whole lines of an answer, of which the pieces may end anywhere.
#[derive(Default)]
struct Lines {
    begun: String,
}

impl Lines {
    /// Takes a piece; returns the lines that are whole now.
    fn take(&mut self, piece: &str) -> String {
        let Some(end) = piece.rfind('\n') else {
            self.begun.push_str(piece);
            return String::new();
        };
        let mut whole = std::mem::take(&mut self.begun);
        let (lines, begun) = piece.split_at(end + 1);
        whole.push_str(lines);
        self.begun.push_str(begun);
        whole
    }
}

/// Where an errand's words go: to VPP's main thread, which shows them.
struct Speaker(SyncSender<Piece>);

impl Sink for Speaker {
    fn out(&self, text: &str) -> Result<(), Gone> {
        self.0.send(Piece::Out(text.to_owned())).map_err(|_| Gone)
    }

    fn err(&self, text: &str) {
        // Nobody is left to tell if this fails.
        let _ = self.0.send(Piece::Err(text.to_owned()));
    }
}

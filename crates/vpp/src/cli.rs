//! The language in VPP's command line: `mmb add …`, `mmb list`, `show mmb tables`.
//!
//! A command is an errand like any other client's, and a thread does it. VPP's main thread must not: it is a packet thread as well,
//! and questions about connections wait for it. It shows what comes, piece by piece, and lets VPP go on in between; where VPP
//! cannot, since the workers stand still for the command, it answers in their stead.

use crate::lines::LineBuffer;
use crate::runtime::Runtime;
use crate::sys::{CliClientState, LogLevel, MainThread};
use crate::typed;
use mmb_client::{CommandAction, CommandFailed, OutputSink, SinkClosed, UsageError, UserCommand};
use mmb_language::verb::COMMANDS;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

/// Pieces of an answer that wait to be shown.
const PIECES: usize = 8;

/// Bytes of the longest answer. VPP keeps what its client has not read yet, however much that is.
const MOST_SHOWN: usize = 32 << 20;

/// How long VPP does something else before it looks whether there is more of an answer: at first, and in the end.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

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
enum OutputPiece {
    /// A part of the answer.
    Out(String),
    /// An error or a note.
    Err(String),
    /// The errand is done.
    End(Result<(), CommandFailed>),
}

/// Adds the language's commands to VPP's, and `show mmb`, which is `mmb show`.
///
/// # Errors
/// VPP has such a command already.
pub(crate) fn add_commands(main: MainThread) -> Result<(), String> {
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

/// Carries out the command of that number in the table of commands, with what was typed behind it. What is wrong with one of a script
/// is told in VPP's log as well.
///
/// # Errors
/// What is wrong with it, in VPP's form: VPP puts the command's words before it.
pub(crate) fn run_logged(main: MainThread, number: usize, rest: &[u8]) -> Result<(), String> {
    let script = main.is_script();
    let verb = COMMANDS.get(number).map_or("", |info| info.name);
    let done = typed::line(rest, verb).and_then(|rest| run(main, verb, &rest));
    if let Err(why) = &done
        && script
    {
        main.log(LogLevel::Error, &format!("mmb {verb} {}: {why}", String::from_utf8_lossy(rest)));
    }
    done
}

fn run(main: MainThread, verb: &str, rest: &str) -> Result<(), String> {
    let runtime = Runtime::running().ok_or("mmb has not started")?;
    let command = UserCommand::from_line(&format!("{verb} {rest}")).map_err(|UsageError(what)| what)?;
    let watches = matches!(command.action, CommandAction::Monitor(_));
    if watches && !main.may_suspend() {
        return Err(format!("VPP would stand still meanwhile; {}", elsewhere(runtime)));
    }
    if matches!(verb, "show" | "enable" | "apply") {
        runtime.interfaces.poll(main);
    }
    if watches {
        main.output("watching connections; a key ends it\n");
    }
    let enough = Arc::new(AtomicBool::new(false));
    let (pieces, answer) = sync_channel(PIECES);
    let work = {
        let enough = Arc::clone(&enough);
        move || {
            let speaker = CliSink(pieces);
            let done = runtime.run_command(&command, &speaker, &|| enough.load(Ordering::Relaxed));
            // Nobody is left to tell if this fails.
            let _ = speaker.0.send(OutputPiece::End(done));
        }
    };
    let thread = thread::Builder::new().name("mmb-command".to_owned());
    thread.spawn(work).map_err(|error| format!("cannot start a thread: {error}"))?;
    let mut showing = CliOutput { main, runtime, watches, enough: &enough, refused: Vec::new() };
    showing.show(&answer)?;
    let refused = showing.refused;
    if refused.is_empty() { Ok(()) } else { Err(refused.join("\n")) }
}

/// What to do that VPP's command line cannot.
fn elsewhere(runtime: &Runtime) -> String {
    match runtime.socket() {
        Some(path) => format!("ask from outside, with mmb --socket {}", path.display()),
        None => "ask from outside, by way of a control socket".to_owned(),
    }
}

/// An answer that is being shown.
struct CliOutput<'a> {
    main: MainThread,
    runtime: &'a Runtime,
    /// It has no end of its own.
    watches: bool,
    /// Says that it is to end.
    enough: &'a AtomicBool,
    /// What VPP refused of what was asked for.
    refused: Vec<String>,
}

impl CliOutput<'_> {
    /// Shows an answer until its end, or until nobody looks at it any more; what is told beside it is the error if the errand fails.
    fn show(&mut self, answer: &Receiver<OutputPiece>) -> Result<(), String> {
        let (mut lines, mut beside, mut shown) = (LineBuffer::default(), String::new(), 0);
        let mut pause = SHORTEST_PAUSE;
        loop {
            match answer.try_recv() {
                Ok(OutputPiece::Out(text)) => {
                    self.main.output(&lines.take(&text));
                    shown += text.len();
                    if shown > MOST_SHOWN {
                        self.enough.store(true, Ordering::Relaxed);
                        return Err(format!("that is too long for VPP; {}", elsewhere(self.runtime)));
                    }
                    // Time for VPP to hand it on.
                    pause = SHORTEST_PAUSE;
                }
                Ok(OutputPiece::Err(text)) => {
                    beside.push_str(&text);
                    continue;
                }
                Ok(OutputPiece::End(Ok(()))) => {
                    self.main.output(&lines.rest());
                    self.main.output(&beside);
                    return Ok(());
                }
                Ok(OutputPiece::End(Err(CommandFailed))) => return Err(as_vpp_says(&beside)),
                Err(TryRecvError::Disconnected) => return Err("an internal error".to_owned()),
                Err(TryRecvError::Empty) => pause = LONGEST_PAUSE.min(pause * 2),
            }
            self.wait(pause);
            match self.main.client_did() {
                CliClientState::Go => {
                    self.enough.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                CliClientState::Type if self.watches => self.enough.store(true, Ordering::Relaxed),
                CliClientState::Type | CliClientState::Nothing => {}
            }
        }
    }

    /// Has VPP do what the errand waits for, and something else, for a while.
    fn wait(&mut self, pause: Duration) {
        self.refused.extend(self.runtime.interfaces.reconcile(self.main));
        self.main.kick();
        if self.main.may_suspend() {
            self.main.suspend(pause);
        } else {
            let threads = if self.main.workers_stand_still() { self.main.threads() } else { 1 };
            self.runtime.process_idle_threads(threads);
            thread::sleep(pause);
        }
    }
}

/// Errors without the word that VPP puts its own in place of.
fn as_vpp_says(errors: &str) -> String {
    errors.strip_prefix("error: ").unwrap_or(errors).trim_end().to_owned()
}

/// Where an errand's words go: to VPP's main thread, which shows them.
struct CliSink(SyncSender<OutputPiece>);

impl OutputSink for CliSink {
    fn out(&self, text: &str) -> Result<(), SinkClosed> {
        self.0.send(OutputPiece::Out(text.to_owned())).map_err(|_| SinkClosed)
    }

    fn err(&self, text: &str) {
        // Nobody is left to tell if this fails.
        let _ = self.0.send(OutputPiece::Err(text.to_owned()));
    }
}

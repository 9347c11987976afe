//! The language in VPP's command line: `mmb add …`, `mmb list`, `show mmb tables`.
//!
//! A thread of the plugin runs each command as a client of the daemon. VPP's main thread must not: it is a packet thread too, and
//! requests about connections wait for it. It prints the output piece by piece, and lets VPP do other work in between. Where VPP cannot,
//! since a barrier stops the workers, the main thread runs their workers without packets.

use crate::lines::LineBuffer;
use crate::runtime::Runtime;
use crate::sys::{CliClientState, LogLevel, MainThread, VppCommand};
use crate::typed;
use mmb_client::{CommandFailed, OutputSink, SinkClosed, UsageError, UserCommand};
use mmb_language::verb::COMMANDS;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

/// The most pieces of output that wait to be printed.
const PIECES: usize = 8;

/// The most bytes of output. VPP buffers what its client has not read yet, without a limit.
const MAX_OUTPUT_BYTES: usize = 32 << 20;

/// The pause before the next look for output: the first, and the longest.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// A piece of a command's output.
enum OutputPiece {
    /// A part of the answer.
    Out(String),
    /// An error or a note.
    Err(String),
    /// The command has ended.
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
        main.add_command(number, &VppCommand { path: format!("mmb {}", info.name), usage, help })?;
        if info.name == "show" {
            let usage = format!("show mmb {}", info.arguments);
            let help = format!("{usage}\n{}", info.help);
            main.add_command(number, &VppCommand { path: "show mmb".to_owned(), usage, help })?;
        }
    }
    Ok(())
}

/// Runs the command of that number in [`COMMANDS`] with its arguments. Errors of a script's command also go to VPP's log.
///
/// # Errors
/// The command's errors in VPP's form: VPP puts the command's words before them.
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
    let watches = verb == "monitor";
    if watches && !main.may_suspend() {
        return Err(format!("VPP would stand still meanwhile; {}", elsewhere(runtime)));
    }
    if matches!(verb, "show" | "enable" | "apply") {
        runtime.interfaces.poll(main);
    }
    if watches {
        main.output("watching connections; a key ends it\n");
    }
    let cancelled = Arc::new(AtomicBool::new(false));
    let (pieces, output) = sync_channel(PIECES);
    let work = {
        let cancelled = Arc::clone(&cancelled);
        move || {
            let sink = CliSink(pieces);
            let done = runtime.run_command(&command, &sink, &|| cancelled.load(Ordering::Relaxed));
            // The command was given up if this fails.
            let _ = sink.0.send(OutputPiece::End(done));
        }
    };
    let thread = thread::Builder::new().name("mmb-command".to_owned());
    thread.spawn(work).map_err(|error| format!("cannot start a thread: {error}"))?;
    let mut printer = CliOutput { main, runtime, watches, cancelled: &cancelled, refused: Vec::new() };
    printer.print(&output)?;
    let refused = printer.refused;
    if refused.is_empty() { Ok(()) } else { Err(refused.join("\n")) }
}

/// The advice for a command that VPP's command line cannot run.
fn elsewhere(runtime: &Runtime) -> String {
    match runtime.socket() {
        Some(path) => format!("ask from outside, with mmb --socket {}", path.display()),
        None => "ask from outside, by way of a control socket".to_owned(),
    }
}

/// A running command whose output is printed.
struct CliOutput<'a> {
    main: MainThread,
    runtime: &'a Runtime,
    /// The command has no end of its own.
    watches: bool,
    /// Set to end the command.
    cancelled: &'a AtomicBool,
    /// VPP's refusals to enable or disable interfaces.
    refused: Vec<String>,
}

impl CliOutput<'_> {
    /// Prints output until the command ends or its client closes the session. If the command fails, its messages are the error.
    fn print(&mut self, output: &Receiver<OutputPiece>) -> Result<(), String> {
        let (mut lines, mut messages, mut printed) = (LineBuffer::default(), String::new(), 0);
        let mut pause = SHORTEST_PAUSE;
        loop {
            match output.try_recv() {
                Ok(OutputPiece::Out(text)) => {
                    self.main.output(&lines.take(&text));
                    printed += text.len();
                    if printed > MAX_OUTPUT_BYTES {
                        self.cancelled.store(true, Ordering::Relaxed);
                        return Err(format!("that is too long for VPP; {}", elsewhere(self.runtime)));
                    }
                    // VPP needs time to pass it to the client.
                    pause = SHORTEST_PAUSE;
                }
                Ok(OutputPiece::Err(text)) => {
                    messages.push_str(&text);
                    continue;
                }
                Ok(OutputPiece::End(Ok(()))) => {
                    self.main.output(&lines.rest());
                    self.main.output(&messages);
                    return Ok(());
                }
                Ok(OutputPiece::End(Err(CommandFailed))) => return Err(without_prefix(&messages)),
                Err(TryRecvError::Disconnected) => return Err("an internal error".to_owned()),
                Err(TryRecvError::Empty) => pause = LONGEST_PAUSE.min(pause * 2),
            }
            self.wait(pause);
            match self.main.client_state() {
                CliClientState::Closed => {
                    self.cancelled.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                CliClientState::Typed if self.watches => self.cancelled.store(true, Ordering::Relaxed),
                CliClientState::Typed | CliClientState::Waits => {}
            }
        }
    }

    /// Does on the main thread what the command may wait for, and lets VPP do other work for a while.
    fn wait(&mut self, pause: Duration) {
        self.refused.extend(self.runtime.interfaces.reconcile(self.main));
        self.main.kick();
        if self.main.may_suspend() {
            self.main.suspend(pause);
        } else {
            let threads = if self.main.workers_are_stopped() { self.main.threads() } else { 1 };
            self.runtime.process_idle_threads(threads);
            thread::sleep(pause);
        }
    }
}

/// Errors without `error: `, in place of which VPP prints its own words.
fn without_prefix(errors: &str) -> String {
    errors.strip_prefix("error: ").unwrap_or(errors).trim_end().to_owned()
}

/// Sends a command's output to VPP's main thread, which prints it.
struct CliSink(SyncSender<OutputPiece>);

impl OutputSink for CliSink {
    fn out(&self, text: &str) -> Result<(), SinkClosed> {
        self.0.send(OutputPiece::Out(text.to_owned())).map_err(|_| SinkClosed)
    }

    fn err(&self, text: &str) {
        // The command was given up if this fails.
        let _ = self.0.send(OutputPiece::Err(text.to_owned()));
    }
}

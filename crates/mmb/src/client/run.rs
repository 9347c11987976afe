//! Does errands: asks the daemon and prints what it answers.

use super::connections::number;
use super::errand::{Errand, Task};
use super::file::Saving;
use super::human::HumanPrinter;
use super::interrupt::Watch;
use super::json::JsonPrinter;
use super::report::{self, Screen, Source};
use super::{ClientOptions, help, names};
use crate::cli::{CheckArgs, Global};
use crate::{output, policy_file};
use anyhow::Context;
use mmb_control::answer::{Answer, End, ErrorLine};
use mmb_control::protocol::{Request, hex};
use mmb_control::{Client, ClientError};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// It did not work, and why was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

/// Does errands for one user.
#[derive(Debug)]
pub(crate) struct Runner {
    socket: PathBuf,
    json: bool,
}

/// Shows an answer as its lines come.
pub(crate) trait Printer {
    /// Takes a line that is no note, error or end.
    fn take(&mut self, answer: Answer);
    /// Takes a note about the text that was sent.
    fn note(&mut self, note: &ErrorLine, source: Source<'_>);
    /// The answer is complete, and what was asked is done.
    fn end(self: Box<Self>, end: End);
}

impl Runner {
    pub(crate) fn new(opts: &ClientOptions) -> Runner {
        Runner { socket: opts.socket().to_owned(), json: opts.json }
    }

    /// Does an errand that was given as such.
    pub(crate) fn run(&self, errand: &Errand) -> Result<(), Failed> {
        self.run_line(errand, None)
    }

    /// Does an errand that is line `line` of standard input, if it is.
    pub(crate) fn run_line(&self, errand: &Errand, line: Option<usize>) -> Result<(), Failed> {
        let json = self.json || errand.json;
        match &errand.task {
            Task::Nothing | Task::Exit => Ok(()),
            Task::Help(words) => {
                let known = names::ask(&self.socket, &format!("{words} "));
                output::print(&help::about(words, &known));
                Ok(())
            }
            Task::Check(file) => self.check(file, json),
            Task::Language(text) => {
                let source = line.map_or(Source::command(text), |line| Source::piped(text, line));
                self.ask(&Request::Run(vec![text.clone()]), source, false, json)
            }
            Task::Apply(name) => {
                let text = policy_file::read(Path::new(name))
                    .with_context(|| name.clone())
                    .map_err(|error| fail(&error, json))?;
                let request = Request::Apply(text);
                let Request::Apply(text) = &request else { return Ok(()) };
                self.ask(&request, Source::file(name, text), true, json)
            }
            Task::Save(name) => self.save(name, json),
            Task::Monitor(text) => {
                let source = line.map_or(Source::command(text), |line| Source::piped(text, line));
                self.monitor(&Request::Run(vec![text.clone()]), source, json)
            }
            Task::SaveState(name) => self.save_state(name, json),
            Task::LoadState(name) => self.load_state(name, json),
        }
    }

    fn check(&self, file: &str, json: bool) -> Result<(), Failed> {
        let args = CheckArgs { file: file.into() };
        match policy_file::check(&args, &Global { json, socket: None }) {
            Ok(code) if code == ExitCode::SUCCESS => Ok(()),
            Ok(_) => Err(Failed),
            Err(error) => Err(fail(&error, json)),
        }
    }

    fn ask(&self, request: &Request, source: Source<'_>, applying: bool, json: bool) -> Result<(), Failed> {
        self.show(source, applying, json, |take| self.talk(request, take))
    }

    /// Shows what happens until the daemon ends or somebody presses Ctrl-C.
    fn monitor(&self, request: &Request, source: Source<'_>, json: bool) -> Result<(), Failed> {
        let watch = Watch::begin();
        self.show(source, false, json, |take| {
            Client::connect(&self.socket)?.follow(request, || watch.is_over(), take)
        })
    }

    /// Prints the answer that `talk` gets.
    fn show(
        &self,
        source: Source<'_>,
        applying: bool,
        json: bool,
        talk: impl FnOnce(&mut dyn FnMut(Answer) -> anyhow::Result<()>) -> anyhow::Result<End>,
    ) -> Result<(), Failed> {
        let mut printer: Box<dyn Printer> = if json {
            Box::new(JsonPrinter::new(Screen::stdout()))
        } else {
            Box::new(HumanPrinter::new(Screen::stdout(), applying))
        };
        let mut errors = Vec::new();
        let end = talk(&mut |answer| {
            match answer {
                Answer::Error(error) => errors.push(error),
                Answer::Note(note) => printer.note(&note, source),
                other => printer.take(other),
            }
            Ok(())
        });
        match end {
            Ok(end) if end.ok => {
                printer.end(end);
                Ok(())
            }
            Ok(_) => {
                drop(printer);
                report::errors(&errors, source, json);
                Err(Failed)
            }
            Err(stop) => {
                drop(printer);
                Err(stopped(&stop, json))
            }
        }
    }

    fn save_state(&self, name: &str, json: bool) -> Result<(), Failed> {
        let mut saved = 0;
        self.save_as(&Request::SaveState, name, json, |answer| match answer {
            Answer::State(piece) => {
                hex::decode(&piece).context("what came is no state of connections").map(Some)
            }
            Answer::Saved(line) => {
                saved = line.connections;
                Ok(None)
            }
            _ => Ok(None),
        })?;
        tell_saved(name, json, &json!({ "saved": name, "connections": saved }), &number(saved, "connection"));
        Ok(())
    }

    fn load_state(&self, name: &str, json: bool) -> Result<(), Failed> {
        let mut state: Box<dyn Read> = match name {
            "-" => Box::new(std::io::stdin()),
            _ => {
                let file = File::open(name).with_context(|| name.to_owned());
                Box::new(file.map_err(|error| fail(&error, json))?)
            }
        };
        let (mut errors, mut loaded) = (Vec::new(), 0);
        let mut talk = || {
            Client::connect(&self.socket)?.load(&mut state, |answer| {
                match answer {
                    Answer::Loaded(line) => loaded = line.connections,
                    Answer::Error(error) => errors.push(error),
                    _ => {}
                }
                anyhow::Ok(())
            })
        };
        match talk() {
            Ok(end) if end.ok && json => {
                output::print_json(&json!({ "loaded": name, "connections": loaded }))
            }
            Ok(end) if end.ok => output::print(&format!("{name}: {} loaded\n", number(loaded, "connection"))),
            Ok(_) => {
                report::errors(&errors, Source::command(""), json);
                return Err(Failed);
            }
            Err(stop) => return Err(stopped(&stop, json)),
        }
        Ok(())
    }

    fn save(&self, name: &str, json: bool) -> Result<(), Failed> {
        let mut rules = 0u64;
        self.save_as(&Request::Save, name, json, |answer| match answer {
            Answer::Policy(text) => {
                rules += text.lines().filter(|line| line.starts_with("add")).count() as u64;
                Ok(Some(text.into_bytes()))
            }
            _ => Ok(None),
        })?;
        tell_saved(name, json, &json!({ "saved": name, "rules": rules }), &format!("{rules} rules"));
        Ok(())
    }

    /// Puts into a file what `piece` takes out of the answer.
    fn save_as(
        &self,
        request: &Request,
        name: &str,
        json: bool,
        mut piece: impl FnMut(Answer) -> anyhow::Result<Option<Vec<u8>>>,
    ) -> Result<(), Failed> {
        let mut errors = Vec::new();
        // Nothing is touched before the daemon has begun to answer.
        let mut saving = None;
        let end = self.talk(request, |answer| {
            if let Answer::Error(error) = answer {
                errors.push(error);
            } else if let Some(piece) = piece(answer)? {
                let saving = match &mut saving {
                    Some(saving) => saving,
                    none => none.insert(Saving::begin(name)?),
                };
                saving.write(&piece)?;
            }
            Ok(())
        });
        let saved = match end {
            Ok(end) if end.ok => match saving {
                Some(saving) => saving.finish(),
                None => Saving::begin(name).and_then(Saving::finish),
            },
            Ok(_) => {
                report::errors(&errors, Source::command(""), json);
                return Err(Failed);
            }
            Err(stop) => return Err(stopped(&stop, json)),
        };
        saved.map_err(|error| fail(&error, json))
    }

    fn talk(&self, request: &Request, take: impl FnMut(Answer) -> anyhow::Result<()>) -> anyhow::Result<End> {
        Client::connect(&self.socket)?.ask(request, take)
    }
}

/// Tells what was saved, unless it went to standard output.
fn tell_saved(name: &str, json: bool, line: &serde_json::Value, what: &str) {
    match (name, json) {
        ("-", _) => {}
        (_, true) => output::print_json(line),
        (_, false) => output::print(&format!("{name}: {what} saved\n")),
    }
}

/// Tells why the daemon did not answer, or why its answer could not be used.
fn stopped(stop: &anyhow::Error, json: bool) -> Failed {
    report::failure(&format!("{stop:#}"), json);
    if !json && let Some(ClientError::NoDaemon { .. }) = stop.downcast_ref() {
        output::tell("  = start one with: mmb run --port lan=eth1 --port wan=eth2\n");
        output::tell("  = or say where it listens: --socket PATH\n");
    }
    Failed
}

fn fail(error: &anyhow::Error, json: bool) -> Failed {
    report::failure(&format!("{error:#}"), json);
    Failed
}

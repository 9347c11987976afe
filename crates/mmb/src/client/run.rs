//! Does errands: asks the daemon and prints what it answers.

use super::errand::{Errand, Task};
use super::file::Saving;
use super::human::HumanPrinter;
use super::json::JsonPrinter;
use super::report::{self, Screen, Source};
use super::{ClientOptions, help, names};
use crate::cli::{CheckArgs, Global};
use crate::{output, policy_file};
use anyhow::Context;
use mmb_control::answer::{Answer, End, ErrorLine};
use mmb_control::protocol::Request;
use mmb_control::{Client, ClientError};
use serde_json::json;
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
        let mut printer: Box<dyn Printer> = if json {
            Box::new(JsonPrinter::new(Screen::stdout()))
        } else {
            Box::new(HumanPrinter::new(Screen::stdout(), applying))
        };
        let mut errors = Vec::new();
        let end = self.talk(request, |answer| {
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

    fn save(&self, name: &str, json: bool) -> Result<(), Failed> {
        let mut errors: Vec<ErrorLine> = Vec::new();
        // Nothing is touched before the daemon has begun to answer.
        let mut saving = None;
        let mut rules = 0u64;
        let end = self.talk(&Request::Save, |answer| {
            match answer {
                Answer::Policy(text) => {
                    let saving = match &mut saving {
                        Some(saving) => saving,
                        none => none.insert(Saving::begin(name)?),
                    };
                    rules += text.lines().filter(|line| line.starts_with("add")).count() as u64;
                    saving.write(&text)?;
                }
                Answer::Error(error) => errors.push(error),
                _ => {}
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
        saved.map_err(|error| fail(&error, json))?;
        match (name, json) {
            ("-", _) => {}
            (_, true) => output::print_json(&json!({ "saved": name, "rules": rules })),
            (_, false) => output::print(&format!("{name}: {rules} rules saved\n")),
        }
        Ok(())
    }

    fn talk(&self, request: &Request, take: impl FnMut(Answer) -> anyhow::Result<()>) -> anyhow::Result<End> {
        Client::connect(&self.socket)?.ask(request, take)
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

//! Does errands: asks the daemon and shows what it answers.

use crate::connections::number;
use crate::errand::{Errand, Task};
use crate::file::{self, Content, OpenError, Saving, WriteError, is_own_stream};
use crate::help::{self, OwnWords};
use crate::human::HumanPrinter;
use crate::json::JsonPrinter;
use crate::names;
use crate::policy_file::{self, Unreadable};
use crate::report::{self, Source, say, say_json};
use crate::sink::{Gone, Sink};
use mmb_control::answer::{Answer, End, ErrorLine};
use mmb_control::protocol::{Request, hex};
use mmb_control::{Client, ClientError};
use serde_json::{Value, json};
use std::path::Path;

/// It did not work, and why was told; or nobody is left to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// Reaches the daemon; called anew for each errand.
pub type Connect<'a> = dyn Fn() -> Result<Client, ClientError> + 'a;

/// Does errands for one user.
pub struct Runner<'a> {
    /// How the daemon is reached.
    pub connect: &'a Connect<'a>,
    /// Where answers, errors and notes go.
    pub sink: &'a dyn Sink,
    /// Asked now and then while something is watched that has no end: whether that is enough.
    pub enough: &'a dyn Fn() -> bool,
    /// Answer in JSON, also where the line does not say so.
    pub json: bool,
    /// `-` as a file is this process's standard input or output; otherwise it is refused.
    pub standard_streams: bool,
    /// Words of the caller's own, which help tells about.
    pub own_words: OwnWords<'a>,
    /// Lines told to people behind the error that no daemon answers: how to start one.
    pub no_daemon: &'a str,
    /// A line told to people before the first event of what is watched: how to end it.
    pub watching: &'a str,
}

/// Shows an answer as its lines come.
pub(crate) trait Printer {
    /// Takes a line that is no note, error or end.
    fn take(&mut self, answer: Answer);
    /// Takes a note about the text that was sent.
    fn note(&mut self, note: &ErrorLine, source: Source<'_>);
    /// Nobody looks any more.
    fn is_gone(&self) -> bool;
    /// The answer is complete, and what was asked is done.
    fn end(self: Box<Self>, end: End);
}

/// Why an errand ended before its end.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Read(#[from] Unreadable),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("what came is no state of connections")]
    NoState,
    #[error("- and /dev/fd are streams of a client, which there is none of here; name a file")]
    NoStandardStreams,
    #[error(transparent)]
    Gone(#[from] Gone),
    #[error("it was told why")]
    Told,
}

impl Runner<'_> {
    /// Does an errand that was given as such.
    ///
    /// # Errors
    /// It did not work.
    pub fn run(&self, errand: &Errand) -> Result<(), Failed> {
        self.run_line(errand, None)
    }

    /// Does an errand that is line `line` of standard input, if it is.
    ///
    /// # Errors
    /// It did not work.
    pub fn run_line(&self, errand: &Errand, line: Option<usize>) -> Result<(), Failed> {
        let json = self.json || errand.json;
        self.attempt(&errand.task, line, json).map_err(|stop| self.tell(&stop, json))
    }

    fn attempt(&self, task: &Task, line: Option<usize>, json: bool) -> Result<(), Stop> {
        if task.file().is_some_and(is_own_stream) && !self.standard_streams {
            return Err(Stop::NoStandardStreams);
        }
        let typed = |text| line.map_or(Source::command(text), |line| Source::piped(text, line));
        match task {
            Task::Nothing | Task::Exit => Ok(()),
            Task::Help(words) => {
                let known = names::ask(self.connect, &format!("{words} "));
                Ok(self.sink.out(&help::about(words, &known, self.own_words))?)
            }
            Task::Check(file) => match policy_file::check(Path::new(file), json, self.sink)? {
                true => Ok(()),
                false => Err(Stop::Told),
            },
            Task::Language(text) => {
                let request = Request::Run(vec![text.clone()]);
                self.show(typed(text), false, json, |take| self.talk(&request, take))
            }
            Task::Monitor(text) => {
                let request = Request::Run(vec![text.clone()]);
                self.show(typed(text), false, json, |take| {
                    (self.connect)()?.follow(&request, self.enough, take)
                })
            }
            Task::Apply(name) => self.apply(name, json),
            Task::Save(name) => self.save(name, json),
            Task::SaveState(name) => self.save_state(name, json),
            Task::LoadState(name) => self.load_state(name, json),
        }
    }

    /// Tells why the daemon did not answer, or why its answer could not be used.
    fn tell(&self, stop: &Stop, json: bool) -> Failed {
        if !matches!(stop, Stop::Told | Stop::Gone(_)) {
            report::failure(self.sink, &report::chain(stop), json);
        }
        if !json && matches!(stop, Stop::Client(ClientError::NoDaemon { .. })) {
            self.sink.err(self.no_daemon);
        }
        Failed
    }

    /// Tells why the daemon refused.
    fn refused(&self, errors: &[ErrorLine], source: Source<'_>, json: bool) -> Stop {
        report::errors(self.sink, errors, source, json);
        Stop::Told
    }

    /// Shows the answer that `talk` gets.
    fn show(
        &self,
        source: Source<'_>,
        applying: bool,
        json: bool,
        talk: impl FnOnce(&mut dyn FnMut(Answer) -> Result<(), Stop>) -> Result<End, Stop>,
    ) -> Result<(), Stop> {
        let mut printer: Box<dyn Printer> = if json {
            Box::new(JsonPrinter::new(self.sink))
        } else {
            Box::new(HumanPrinter::new(self.sink, self.watching, applying))
        };
        let mut errors = Vec::new();
        let end = talk(&mut |answer| {
            match answer {
                Answer::Error(error) => errors.push(error),
                Answer::Note(note) => printer.note(&note, source),
                other => printer.take(other),
            }
            if printer.is_gone() { Err(Gone.into()) } else { Ok(()) }
        });
        match end {
            Ok(end) if end.ok => {
                printer.end(end);
                Ok(())
            }
            Ok(_) => {
                drop(printer);
                Err(self.refused(&errors, source, json))
            }
            Err(stop) => Err(stop),
        }
    }

    fn apply(&self, name: &str, json: bool) -> Result<(), Stop> {
        let path = Path::new(name);
        let text = policy_file::read(path).map_err(|error| Unreadable::new(path, error))?;
        let request = Request::Apply(text);
        let Request::Apply(text) = &request else { return Ok(()) };
        self.show(Source::file(name, text), true, json, |take| self.talk(&request, take))
    }

    fn save(&self, name: &str, json: bool) -> Result<(), Stop> {
        let mut rules = 0u64;
        self.save_as((&Request::Save, Content::Policy), name, json, |answer| match answer {
            Answer::Policy(text) => {
                rules += text.lines().filter(|line| line.starts_with("add")).count() as u64;
                Ok(Some(text.into_bytes()))
            }
            _ => Ok(None),
        })?;
        self.tell_saved(name, json, &json!({ "saved": name, "rules": rules }), &format!("{rules} rules"));
        Ok(())
    }

    fn save_state(&self, name: &str, json: bool) -> Result<(), Stop> {
        let mut saved = 0;
        self.save_as((&Request::SaveState, Content::State), name, json, |answer| match answer {
            Answer::State(piece) => hex::decode(&piece).ok_or(Stop::NoState).map(Some),
            Answer::Saved(line) => {
                saved = line.connections;
                Ok(None)
            }
            _ => Ok(None),
        })?;
        let line = json!({ "saved": name, "connections": saved });
        self.tell_saved(name, json, &line, &number(saved, "connection"));
        Ok(())
    }

    fn load_state(&self, name: &str, json: bool) -> Result<(), Stop> {
        let mut state = file::open_state(name)?;
        let (mut errors, mut loaded) = (Vec::new(), 0);
        let end = (self.connect)()?.load(&mut state, |answer| {
            match answer {
                Answer::Loaded(line) => loaded = line.connections,
                Answer::Error(error) => errors.push(error),
                _ => {}
            }
            Ok::<_, Stop>(())
        })?;
        if !end.ok {
            return Err(self.refused(&errors, Source::command(""), json));
        }
        if json {
            say_json(self.sink, &json!({ "loaded": name, "connections": loaded }));
        } else {
            say(self.sink, &format!("{name}: {} loaded\n", number(loaded, "connection")));
        }
        Ok(())
    }

    /// Puts into a file what `piece` takes out of the answer.
    fn save_as(
        &self,
        (request, content): (&Request, Content),
        name: &str,
        json: bool,
        mut piece: impl FnMut(Answer) -> Result<Option<Vec<u8>>, Stop>,
    ) -> Result<(), Stop> {
        let mut errors = Vec::new();
        // Nothing is touched before the daemon has begun to answer.
        let mut saving = None;
        let end = self.talk(request, |answer| {
            if let Answer::Error(error) = answer {
                errors.push(error);
            } else if let Some(piece) = piece(answer)? {
                let saving = match &mut saving {
                    Some(saving) => saving,
                    none => none.insert(Saving::begin(name, content)?),
                };
                saving.write(&piece)?;
            }
            Ok(())
        })?;
        if !end.ok {
            return Err(self.refused(&errors, Source::command(""), json));
        }
        match saving {
            Some(saving) => saving.finish()?,
            None => Saving::begin(name, content)?.finish()?,
        }
        Ok(())
    }

    fn talk(&self, request: &Request, take: impl FnMut(Answer) -> Result<(), Stop>) -> Result<End, Stop> {
        (self.connect)()?.ask(request, take)
    }

    /// Tells what was saved, unless it went to standard output.
    fn tell_saved(&self, name: &str, json: bool, line: &Value, what: &str) {
        match (name, json) {
            ("-", _) => {}
            (_, true) => say_json(self.sink, line),
            (_, false) => say(self.sink, &format!("{name}: {what} saved\n")),
        }
    }
}

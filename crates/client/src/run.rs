//! Does errands: asks the daemon and shows what it answers.

use crate::connections::number;
use crate::file::{self, FileContent, FileWriter, OpenError, WriteError, is_own_stream};
use crate::help::{self, ProgramWords};
use crate::human::HumanPrinter;
use crate::json::JsonPrinter;
use crate::names;
use crate::policy_file::{self, PolicyFileError};
use crate::report::{self, SourceText, say, say_json};
use crate::sink::{OutputSink, SinkClosed};
use crate::user_command::{CommandAction, UserCommand};
use mmb_protocol::answer::{Answer, AnswerEnd, ErrorLine, LoadedLine};
use mmb_protocol::{Client, ClientError};
use mmb_protocol::{Request, hex};
use serde_json::{Map, Value, json};
use std::path::Path;

/// It did not work, and why was told; or nobody is left to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFailed;

/// Reaches the daemon; called anew for each errand.
pub type Connector<'a> = dyn Fn() -> Result<Client, ClientError> + 'a;

/// Does errands for one user.
pub struct CommandRunner<'a> {
    /// How the daemon is reached.
    pub connect: &'a Connector<'a>,
    /// Where answers, errors and notes go.
    pub sink: &'a dyn OutputSink,
    /// Asked now and then while something is watched that has no end: whether that is enough.
    pub enough: &'a dyn Fn() -> bool,
    /// Answer in JSON, also where the line does not say so.
    pub json: bool,
    /// `-` as a file is this process's standard input or output; otherwise it is refused.
    pub standard_streams: bool,
    /// Words of the caller's own, which help tells about.
    pub own_words: ProgramWords<'a>,
    /// Lines told to people behind the error that no daemon answers: how to start one.
    pub no_daemon: &'a str,
    /// A line told to people before the first event of what is watched: how to end it.
    pub watching: &'a str,
}

/// Shows an answer as its lines come.
pub(crate) trait AnswerPrinter {
    /// Takes a line that is no note, error or end.
    fn take(&mut self, answer: Answer);
    /// Takes a note about the text that was sent.
    fn note(&mut self, note: &ErrorLine, source: SourceText<'_>);
    /// Nobody looks any more.
    fn is_gone(&self) -> bool;
    /// The answer is complete, and what was asked is done.
    fn end(self: Box<Self>, end: AnswerEnd);
}

/// Why an errand ended before its end.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Read(#[from] PolicyFileError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("what came is no state of connections")]
    NoState,
    #[error("- and /dev/fd are streams of a client, which there is none of here; name a file")]
    NoStandardStreams,
    #[error(transparent)]
    Gone(#[from] SinkClosed),
    #[error("it was told why")]
    Told,
}

impl CommandRunner<'_> {
    /// Does an errand that was given as such.
    ///
    /// # Errors
    /// It did not work.
    pub fn run(&self, command: &UserCommand) -> Result<(), CommandFailed> {
        self.run_line(command, None)
    }

    /// Does an errand that is line `line` of standard input, if it is.
    ///
    /// # Errors
    /// It did not work.
    pub fn run_line(&self, command: &UserCommand, line: Option<usize>) -> Result<(), CommandFailed> {
        let json = self.json || command.json;
        self.attempt(&command.task, line, json).map_err(|stop| self.report(&stop, json))
    }

    fn attempt(&self, task: &CommandAction, line: Option<usize>, json: bool) -> Result<(), CommandError> {
        if task.file().is_some_and(is_own_stream) && !self.standard_streams {
            return Err(CommandError::NoStandardStreams);
        }
        let typed = |text| line.map_or(SourceText::command(text), |line| SourceText::piped(text, line));
        match task {
            CommandAction::Nothing | CommandAction::Exit => Ok(()),
            CommandAction::Help(words) => {
                let known = names::ask(self.connect, &format!("{words} "));
                Ok(self.sink.out(&help::about(words, &known, self.own_words))?)
            }
            CommandAction::Check(file) => match policy_file::check(Path::new(file), json, self.sink)? {
                true => Ok(()),
                false => Err(CommandError::Told),
            },
            CommandAction::Language(text) => {
                let request = Request::Run(vec![text.clone()]);
                self.show(typed(text), false, json, |take| self.request(&request, take))
            }
            CommandAction::Monitor(text) => {
                let request = Request::Run(vec![text.clone()]);
                self.show(typed(text), false, json, |take| {
                    (self.connect)()?.follow(&request, self.enough, take)
                })
            }
            CommandAction::Apply(name) => self.apply(name, json),
            CommandAction::Save(name) => self.save(name, json),
            CommandAction::SaveState(name) => self.save_state(name, json),
            CommandAction::LoadState(name) => self.load_state(name, json),
        }
    }

    /// Tells why the daemon did not answer, or why its answer could not be used.
    fn report(&self, stop: &CommandError, json: bool) -> CommandFailed {
        if !matches!(stop, CommandError::Told | CommandError::Gone(_)) {
            report::failure(self.sink, &report::chain(stop), json);
        }
        if !json && matches!(stop, CommandError::Client(ClientError::NoDaemon { .. })) {
            self.sink.err(self.no_daemon);
        }
        CommandFailed
    }

    /// Tells why the daemon refused.
    fn refused(&self, errors: &[ErrorLine], source: SourceText<'_>, json: bool) -> CommandError {
        report::errors(self.sink, errors, source, json);
        CommandError::Told
    }

    /// Shows the answer that `talk` gets.
    fn show(
        &self,
        source: SourceText<'_>,
        applying: bool,
        json: bool,
        talk: impl FnOnce(&mut dyn FnMut(Answer) -> Result<(), CommandError>) -> Result<AnswerEnd, CommandError>,
    ) -> Result<(), CommandError> {
        let mut printer: Box<dyn AnswerPrinter> = if json {
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
            if printer.is_gone() { Err(SinkClosed.into()) } else { Ok(()) }
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

    fn apply(&self, name: &str, json: bool) -> Result<(), CommandError> {
        let path = Path::new(name);
        let text = policy_file::read(path).map_err(|error| PolicyFileError::new(path, error))?;
        let request = Request::Apply(text);
        let Request::Apply(text) = &request else { return Ok(()) };
        self.show(SourceText::file(name, text), true, json, |take| self.request(&request, take))
    }

    fn save(&self, name: &str, json: bool) -> Result<(), CommandError> {
        let mut rules = 0u64;
        self.save_as((&Request::Save, FileContent::Policy), name, json, |answer| match answer {
            Answer::Policy(text) => {
                rules += text.lines().filter(|line| line.starts_with("add")).count() as u64;
                Ok(Some(text.into_bytes()))
            }
            _ => Ok(None),
        })?;
        self.tell_saved(name, json, &json!({ "saved": name, "rules": rules }), &format!("{rules} rules"));
        Ok(())
    }

    fn save_state(&self, name: &str, json: bool) -> Result<(), CommandError> {
        let mut saved = 0;
        self.save_as((&Request::SaveState, FileContent::State), name, json, |answer| match answer {
            Answer::State(piece) => hex::decode(&piece).ok_or(CommandError::NoState).map(Some),
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

    fn load_state(&self, name: &str, json: bool) -> Result<(), CommandError> {
        let mut state = file::open_state(name)?;
        let (mut errors, mut loaded) = (Vec::new(), LoadedLine::default());
        let end = (self.connect)()?.load(&mut state, |answer| {
            match answer {
                Answer::Loaded(line) => loaded = line,
                Answer::Error(error) => errors.push(error),
                _ => {}
            }
            Ok::<_, CommandError>(())
        })?;
        if !end.ok {
            return Err(self.refused(&errors, SourceText::command(""), json));
        }
        let LoadedLine { connections, left_out } = loaded;
        if json {
            let line = json!({ "loaded": name, "connections": connections, "left_out": left_out });
            say_json(self.sink, &line);
        } else {
            let left_out = left_out_text(&left_out);
            say(self.sink, &format!("{name}: {} loaded{left_out}\n", number(connections, "connection")));
        }
        Ok(())
    }

    /// Puts into a file what `piece` takes out of the answer.
    fn save_as(
        &self,
        (request, content): (&Request, FileContent),
        name: &str,
        json: bool,
        mut piece: impl FnMut(Answer) -> Result<Option<Vec<u8>>, CommandError>,
    ) -> Result<(), CommandError> {
        let mut errors = Vec::new();
        // Nothing is touched before the daemon has begun to answer.
        let mut saving = None;
        let end = self.request(request, |answer| {
            if let Answer::Error(error) = answer {
                errors.push(error);
            } else if let Some(piece) = piece(answer)? {
                let saving = match &mut saving {
                    Some(saving) => saving,
                    none => none.insert(FileWriter::begin(name, content)?),
                };
                saving.write(&piece)?;
            }
            Ok(())
        })?;
        if !end.ok {
            return Err(self.refused(&errors, SourceText::command(""), json));
        }
        match saving {
            Some(saving) => saving.finish()?,
            None => FileWriter::begin(name, content)?.finish()?,
        }
        Ok(())
    }

    fn request(
        &self,
        request: &Request,
        take: impl FnMut(Answer) -> Result<(), CommandError>,
    ) -> Result<AnswerEnd, CommandError> {
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

/// `, 3 left out: 2 conn-full, 1 nat-clash`, or nothing.
fn left_out_text(left_out: &Map<String, Value>) -> String {
    let all: u64 = left_out.values().filter_map(Value::as_u64).sum();
    let reasons: Vec<_> = left_out.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if all == 0 { String::new() } else { format!(", {all} left out: {}", reasons.join(", ")) }
}

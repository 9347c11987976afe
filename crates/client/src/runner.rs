//! Runs commands: sends requests to the daemon and prints the answers.

use crate::capture::{CaptureFailure, CaptureTarget, Captured, capture};
use crate::connector::Connector;
use crate::daemon_names;
use crate::file::{self, FileContent, FileWriter, OpenError, WriteError, is_own_stream};
use crate::help::{self, ProgramWords};
use crate::policy_file::{self, CompileCheck, PolicyFileError};
use crate::printer::{self, AnswerPrinter, HumanPrinter, JsonPrinter};
use crate::report::{self, SourceText, counted, print, print_json, tell};
use crate::sink::{OutputSink, SinkClosed};
use crate::user_command::{ApplyCommand, BatchCommand, CaptureCommand, CommandAction, UserCommand};
use mmb_language::{NamedFile, with_files};
use mmb_policy::printable::printable_json;
use mmb_protocol::ClientError;
use mmb_protocol::answer::{Answer, AnswerEnd, ErrorLine, LoadedLine};
use mmb_protocol::request::{ChangeOptions, ConnectionFate};
use mmb_protocol::{Request, hex};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

/// The command failed, and the reason was reported; or the sink is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFailed;

/// Runs the commands of one user.
pub struct CommandRunner<'a> {
    /// Connects to the daemon.
    pub connect: &'a Connector<'a>,
    /// Takes answers, errors and notes.
    pub sink: &'a dyn OutputSink,
    /// Returns whether the user has interrupted `monitor`, `trace` or `capture`, which have no end of their own; called a few times per second.
    pub is_interrupted: &'a dyn Fn() -> bool,
    /// Print JSON, even if the command does not ask for it.
    pub json: bool,
    /// What `check` asks about a policy without errors.
    pub compile: CompileCheck,
    /// Take `-` and `/dev/fd/N` as files: streams of this process. Otherwise they are refused.
    pub standard_streams: bool,
    /// The caller's own commands, for help.
    pub program_words: ProgramWords<'a>,
    /// Lines for people after the error that no daemon answers: how to start one.
    pub no_daemon_hint: &'a str,
    /// A line for people before the first event of `monitor`: how to end it.
    pub monitor_hint: &'a str,
}

/// The contents of files by their whole paths.
type FileContents = BTreeMap<String, Vec<u8>>;

/// Reads the files that `patterns` and `set` commands of a text name, beside a directory. Returns also the text with their whole paths.
fn named_files<'t>(text: &'t str, directory: &Path) -> Result<(Cow<'t, str>, FileContents), CommandError> {
    let names = RefCell::new(BTreeMap::new());
    let text = with_files(text, &|file, named| {
        let path = policy_file::absolute(file, directory);
        names.borrow_mut().insert(path.clone(), named);
        path
    });
    let mut files = FileContents::new();
    for (file, named) in names.into_inner() {
        let content = match named {
            NamedFile::Patterns => policy_file::read_pattern_file(&file),
            NamedFile::Elements => policy_file::read_element_file(&file),
        };
        let content = content.map_err(|reason| CommandError::NamedFile { file: file.clone(), reason })?;
        files.insert(file, content);
    }
    Ok((text, files))
}

/// The request with these files, if there are any.
fn attached(request: Request, files: FileContents) -> Request {
    if files.is_empty() { request } else { Request::WithFiles(files, Box::new(request)) }
}

/// The request with the name of the file that its text came from, and the time within which it has to be confirmed.
fn with_options(request: Request, file: &str, confirm: Option<u32>) -> Request {
    Request::WithOptions(
        ChangeOptions { source: Some(file.to_owned()), confirm, checked: false },
        Box::new(request),
    )
}

/// The reason why a command stopped before its end.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Read(#[from] PolicyFileError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{file}: {reason}")]
    NamedFile { file: String, reason: String },
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Capture(#[from] CaptureFailure),
    #[error(
        "`capture` writes packets to a file: add -w FILE, or -w - for standard output (--json prints them)"
    )]
    NoCaptureFile,
    #[error("the answer contains no state of connections")]
    NotAState,
    #[error("`-` and /dev/fd are streams of a client process, which does not exist here; name a file")]
    NoStandardStreams,
    #[error(transparent)]
    Closed(#[from] SinkClosed),
    #[error("the errors were reported")]
    Reported,
}

impl CommandRunner<'_> {
    /// Runs a command.
    ///
    /// # Errors
    /// The command failed.
    pub fn run(&self, command: &UserCommand) -> Result<(), CommandFailed> {
        self.run_line(command, None)
    }

    /// Runs a command from line `line` of standard input, or from no file.
    ///
    /// # Errors
    /// The command failed.
    pub fn run_line(&self, command: &UserCommand, line: Option<usize>) -> Result<(), CommandFailed> {
        let json = self.json || command.json;
        self.try_run(&command.action, line, json).map_err(|error| self.report(&error, json))
    }

    fn try_run(&self, action: &CommandAction, line: Option<usize>, json: bool) -> Result<(), CommandError> {
        if action.file().is_some_and(is_own_stream) && !self.standard_streams {
            return Err(CommandError::NoStandardStreams);
        }
        let source = |text| line.map_or(SourceText::command(text), |line| SourceText::piped(text, line));
        match action {
            CommandAction::Nothing | CommandAction::Exit => Ok(()),
            CommandAction::Help(words) => {
                let known = daemon_names::query(self.connect, &format!("{words} "));
                Ok(self.sink.out(&help::about(words, &known, self.program_words))?)
            }
            CommandAction::Check(file) => {
                match policy_file::check(Path::new(file), json, self.compile, self.sink)? {
                    true => Ok(()),
                    false => Err(CommandError::Reported),
                }
            }
            CommandAction::Language(text) => {
                let (text, files) = named_files(text, Path::new(""))?;
                let request = attached(Request::Run(vec![text.clone().into_owned()]), files);
                self.show(source(&text), false, json, |take| self.request(&request, take))
            }
            CommandAction::Monitor(text) => {
                let request = Request::Run(vec![text.clone()]);
                self.show(source(text), false, json, |take| {
                    (self.connect)()?.follow(&request, self.is_interrupted, take)
                })
            }
            CommandAction::Capture(command) => self.capture(command, json),
            CommandAction::Apply(command) => self.apply(command, json),
            CommandAction::Batch(command) => self.batch(command, json),
            CommandAction::Save(name) => self.save(name, json),
            CommandAction::SaveState(name) => self.save_state(name, json),
            CommandAction::LoadState(name, verbose) => self.load_state(name, *verbose, json),
        }
    }

    /// Reports why the daemon did not answer, or why its answer could not be used.
    fn report(&self, error: &CommandError, json: bool) -> CommandFailed {
        if !matches!(error, CommandError::Reported | CommandError::Closed(_)) {
            report::failure(self.sink, &report::chain(error), json);
        }
        if !json && matches!(error, CommandError::Client(ClientError::NoDaemon { .. })) {
            self.sink.err(self.no_daemon_hint);
        }
        CommandFailed
    }

    /// Reports why the daemon refused a request.
    fn refused(&self, errors: &[ErrorLine], source: SourceText<'_>, json: bool) -> CommandError {
        report::errors(self.sink, errors, source, json);
        CommandError::Reported
    }

    /// Prints the answer that `exchange` receives.
    fn show(
        &self,
        source: SourceText<'_>,
        applying: bool,
        json: bool,
        exchange: impl FnOnce(
            &mut dyn FnMut(Answer) -> Result<(), CommandError>,
        ) -> Result<AnswerEnd, CommandError>,
    ) -> Result<(), CommandError> {
        let mut printer: Box<dyn AnswerPrinter> = if json {
            Box::new(JsonPrinter::new(self.sink))
        } else {
            Box::new(HumanPrinter::new(self.sink, self.monitor_hint, applying))
        };
        let mut errors = Vec::new();
        let end = exchange(&mut |answer| {
            match answer {
                Answer::Error(error) => errors.push(error),
                Answer::Note(note) => printer.note(&note, source),
                other => printer.line(other),
            }
            if printer.is_closed() { Err(SinkClosed.into()) } else { Ok(()) }
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
            Err(error) => Err(error),
        }
    }

    fn apply(&self, command: &ApplyCommand, json: bool) -> Result<(), CommandError> {
        let ApplyCommand { file, dry_run, fate, confirm } = command;
        let path = Path::new(file);
        let text = policy_file::read(path).map_err(|error| PolicyFileError::new(path, error))?;
        let (text, files) = named_files(&text, &policy_file::directory(path))?;
        let sent = text.clone().into_owned();
        // Connections go on until it is known whether their rules come back: that of the operator may be one of them.
        let fate = match fate {
            ConnectionFate::Release if confirm.is_some() => ConnectionFate::Keep,
            ConnectionFate::Release | ConnectionFate::Keep | ConnectionFate::Kill => *fate,
        };
        let request = if *dry_run { Request::DryRun(sent, fate) } else { Request::Apply(sent, fate) };
        let request = attached(with_options(request, file, *confirm), files);
        self.show(SourceText::file(file, &text), true, json, |take| self.request(&request, take))
    }

    fn batch(&self, command: &BatchCommand, json: bool) -> Result<(), CommandError> {
        let BatchCommand { file, dry_run, confirm } = command;
        let path = Path::new(file);
        let text = policy_file::read(path).map_err(|error| PolicyFileError::new(path, error))?;
        let (text, files) = named_files(&text, &policy_file::directory(path))?;
        let request = Request::Batch { text: text.clone().into_owned(), dry_run: *dry_run };
        let request = attached(with_options(request, file, *confirm), files);
        self.show(SourceText::file(file, &text), true, json, |take| self.request(&request, take))
    }

    fn capture(
        &self,
        CaptureCommand { command, file }: &CaptureCommand,
        json: bool,
    ) -> Result<(), CommandError> {
        let (source, request) = (SourceText::command(command), Request::Run(vec![command.clone()]));
        let Some(name) = file else {
            if !json {
                return Err(CommandError::NoCaptureFile);
            }
            return self.show(source, false, json, |take| {
                (self.connect)()?.follow(&request, self.is_interrupted, take)
            });
        };
        let begun = || {
            if !json {
                tell(
                    self.sink,
                    &format!(
                        "capturing to {}; Ctrl-C ends it\n",
                        if name == "-" { "standard output" } else { name.as_str() }
                    ),
                );
            }
        };
        let target = CaptureTarget { name, is_interrupted: self.is_interrupted, begun: &begun };
        let Captured { packets, left_out, errors } = capture((self.connect)()?, &request, target)?;
        if !errors.is_empty() {
            return Err(self.refused(&errors, source, json));
        }
        let line = json!({ "captured": packets, "left_out": left_out, "file": name });
        match (json, name == "-") {
            (true, false) => print_json(self.sink, &line),
            (true, true) => self.sink.err(&printable_json(&format!("{line}\n"))),
            (false, _) => {
                tell(self.sink, &format!("captured {}, left out {left_out}\n", counted(packets, "packet")));
            }
        }
        Ok(())
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
        self.report_saved(name, json, &json!({ "saved": name, "rules": rules }), &format!("{rules} rules"));
        Ok(())
    }

    fn save_state(&self, name: &str, json: bool) -> Result<(), CommandError> {
        let (mut saved, mut notes) = (0, Vec::new());
        self.save_as((&Request::SaveState, FileContent::State), name, json, |answer| match answer {
            Answer::State(piece) => hex::decode(&piece).ok_or(CommandError::NotAState).map(Some),
            Answer::Note(note) => {
                notes.push(note);
                Ok(None)
            }
            Answer::Saved(line) => {
                saved = line.connections;
                Ok(None)
            }
            _ => Ok(None),
        })?;
        let source = SourceText::command("");
        let mut line = json!({ "saved": name, "connections": saved });
        if !notes.is_empty() {
            line["notes"] = notes.iter().map(|note| report::note_object(note, source)).collect();
        }
        if !json {
            notes.iter().for_each(|note| report::note(self.sink, note, source));
        }
        self.report_saved(name, json, &line, &counted(saved, "connection"));
        Ok(())
    }

    /// Loads a state; with `verbose`, reports each connection that was left out.
    fn load_state(&self, name: &str, verbose: bool, json: bool) -> Result<(), CommandError> {
        let mut state = file::open_state(name)?;
        let (mut errors, mut loaded) = (Vec::new(), LoadedLine::default());
        let mut lines_left_out = Vec::new();
        let end = (self.connect)()?.load(&mut state, verbose, |answer| {
            match answer {
                Answer::Loaded(line) => loaded = line,
                Answer::LeftOut(line) if json => lines_left_out.push(line),
                Answer::LeftOut(line) => print(self.sink, &printer::left_out(&line)),
                Answer::Error(error) => {
                    errors.push(ErrorLine { message: format!("{name}: {}", error.message), ..error });
                }
                _ => {}
            }
            Ok::<_, CommandError>(())
        })?;
        if !end.ok {
            return Err(self.refused(&errors, SourceText::command(""), json));
        }
        if json {
            let LoadedLine { connections, lost_rules, left_out } = loaded;
            let mut line = json!({
                "loaded": name, "connections": connections, "lost_rules": lost_rules, "left_out": left_out
            });
            if verbose {
                line["connections_left_out"] = json!(lines_left_out);
            }
            print_json(self.sink, &line);
        } else {
            print(self.sink, &format!("{name}: {}\n", report::loaded(&loaded)));
        }
        Ok(())
    }

    /// Writes to a file the bytes that `piece` extracts from each line of the answer.
    fn save_as(
        &self,
        (request, content): (&Request, FileContent),
        name: &str,
        json: bool,
        mut piece: impl FnMut(Answer) -> Result<Option<Vec<u8>>, CommandError>,
    ) -> Result<(), CommandError> {
        let mut errors = Vec::new();
        // The file is opened after the first bytes have arrived, so that a refusal leaves it as it is.
        let mut writer = None;
        let end = self.request(request, |answer| {
            if let Answer::Error(error) = answer {
                errors.push(error);
            } else if let Some(piece) = piece(answer)? {
                let writer = match &mut writer {
                    Some(writer) => writer,
                    none => none.insert(FileWriter::begin(name, content)?),
                };
                writer.write(&piece)?;
            }
            Ok(())
        })?;
        if !end.ok {
            return Err(self.refused(&errors, SourceText::command(""), json));
        }
        match writer {
            Some(writer) => writer.finish()?,
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

    /// Reports what was saved, unless it went to standard output.
    fn report_saved(&self, name: &str, json: bool, line: &Value, what: &str) {
        match (name, json) {
            ("-", _) => {}
            (_, true) => print_json(self.sink, line),
            (_, false) => print(self.sink, &format!("{name}: {what} saved\n")),
        }
    }
}

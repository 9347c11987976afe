//! Requests that are parsed and wait to be executed.

use crate::change::{ChangeRequest, CommitError, is_change};
use crate::convert;
use crate::panic_guard::guarded;
use mmb_language::{Command, Deletion};
use mmb_policy::RuleId;
use mmb_protocol::answer::ErrorLine;
use mmb_protocol::request::{ChangeOptions, ConnectionFate, DecodeError, Request};
use std::collections::BTreeMap;
use std::ops::Range;

/// The contents of files that came with a request, by name.
type RequestFiles = BTreeMap<String, Vec<u8>>;

/// The most errors, and the most notes, of one request that are sent.
pub(super) const MAX_ERRORS: usize = 100;

/// A request that was parsed, as far as possible without the daemon.
pub(super) struct PendingRequest {
    /// The change that it requests, until that is put into the commit queue.
    pub(super) change: Option<ChangeRequest>,
    /// What is recorded of the change.
    pub(super) command: String,
    /// The seconds within which the change has to be confirmed.
    pub(super) confirm: Option<u32>,
    /// The request has a change, also after that was put into the queue.
    pub(super) has_change: bool,
    /// Notes about the text.
    pub(super) notes: Vec<ErrorLine>,
    /// The rules whose connections end with the change.
    pub(super) kills: Vec<Kill>,
    /// The part of the request that the answer has lines for, beside the effect of the change.
    pub(super) question: PendingQuestion,
}

/// The text of a change that is only tried.
pub(super) enum ChangeText {
    File(String),
    Batch(String, Vec<Range<usize>>),
}

/// Rules whose connections end with them.
pub(super) enum Kill {
    /// `del ID --kill`, `replace ID … --kill`
    Rule(RuleId),
    /// `del name WORD --kill`
    Named(String),
}

/// The part of a request that is no change.
pub(super) enum PendingQuestion {
    /// The request has errors.
    Refused(Vec<ErrorLine>),
    /// Commands, and with their indexes those of them that have an answer of their own.
    Run(Vec<String>, Vec<(usize, Command)>),
    /// The text of a policy file.
    Apply(String, ConnectionFate),
    /// The text of a batch, and the bytes that each of its commands takes.
    Batch(String, Vec<Range<usize>>),
    /// A change that is not to be committed.
    DryRun {
        change: Box<ChangeRequest>,
        /// The fate of the connections of rules that a policy file removes.
        fate: ConnectionFate,
        text: ChangeText,
        /// The client has checked the patterns.
        checked: bool,
    },
    Save,
    Names(String),
    SaveState,
    LoadState {
        verbose: bool,
    },
}

impl PendingRequest {
    pub(super) fn new(request: Result<Request, DecodeError>) -> PendingRequest {
        let internal_error =
            || PendingRequest::refused(vec![ErrorLine::new(CommitError::Internal.to_string())]);
        let (files, request) = match request {
            Ok(Request::WithFiles(files, request)) => (files, Ok(*request)),
            request => (BTreeMap::new(), request),
        };
        let (options, request) = match request {
            Ok(Request::WithOptions(options, request)) => (options, Ok(*request)),
            request => (ChangeOptions::default(), request),
        };
        let parsed = guarded(|| match request {
            Ok(Request::Run(lines)) => PendingRequest::run(lines, &files),
            Ok(Request::Apply(text, fate)) => PendingRequest::apply(text, fate, &files),
            Ok(Request::DryRun(text, fate)) => PendingRequest::dry_run(text, fate, &files),
            Ok(Request::Batch { text, dry_run }) => PendingRequest::batch(text, dry_run, &files),
            Ok(Request::Save) => PendingRequest::question(PendingQuestion::Save),
            Ok(Request::Names(prefix)) => PendingRequest::question(PendingQuestion::Names(prefix)),
            Ok(Request::SaveState) => PendingRequest::question(PendingQuestion::SaveState),
            Ok(Request::LoadState { verbose }) => {
                PendingRequest::question(PendingQuestion::LoadState { verbose })
            }
            Ok(Request::Piece(_)) => {
                PendingRequest::refused(vec![ErrorLine::new("a piece of a state follows 'load-state'")])
            }
            // No line decodes to one in another.
            Ok(Request::WithFiles(..) | Request::WithOptions(..)) => {
                PendingRequest::refused(vec![ErrorLine::new("files and options come once")])
            }
            Err(error) => PendingRequest::refused(vec![ErrorLine::new(error.to_string())]),
        });
        let mut parsed = parsed.unwrap_or_else(internal_error);
        parsed.confirm = options.confirm.filter(|_| parsed.has_change);
        if let PendingQuestion::DryRun { checked, .. } = &mut parsed.question {
            *checked = options.checked;
        }
        if let Some(source) = options.source {
            parsed.command = shortened(&format!("{} {source}", parsed.command));
        }
        parsed
    }

    fn question(question: PendingQuestion) -> PendingRequest {
        PendingRequest {
            change: None,
            command: String::new(),
            confirm: None,
            has_change: false,
            notes: Vec::new(),
            kills: Vec::new(),
            question,
        }
    }

    fn refused(errors: Vec<ErrorLine>) -> PendingRequest {
        PendingRequest::question(PendingQuestion::Refused(errors))
    }

    fn run(lines: Vec<String>, files: &RequestFiles) -> PendingRequest {
        let (mut commands, mut notes, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        let reader = convert::RequestFiles(files);
        for (index, line) in lines.iter().enumerate() {
            let locate = |error: ErrorLine| ErrorLine { command: Some(index), ..error };
            match convert::parse_command(line, &reader) {
                Ok((command, found)) => {
                    commands.push(command);
                    let space = MAX_ERRORS.saturating_sub(notes.len());
                    notes.extend(found.into_iter().take(space).map(locate));
                }
                Err(found) => errors.extend(found.into_iter().map(locate)),
            }
            if errors.len() > MAX_ERRORS {
                break;
            }
        }
        if !errors.is_empty() {
            return PendingRequest::refused(errors);
        }
        let has_change = commands.iter().any(is_change);
        let kills = commands.iter().filter_map(killed).collect();
        let command = summary(&lines, &commands);
        let questions = commands.iter().enumerate().filter(|(_, command)| !is_change(command));
        let questions = questions.map(|(index, command)| (index, command.clone())).collect();
        let change = has_change.then_some(ChangeRequest::Run(commands));
        let question = PendingQuestion::Run(lines, questions);
        PendingRequest { change, command, confirm: None, has_change, notes, kills, question }
    }

    fn apply(text: String, fate: ConnectionFate, files: &RequestFiles) -> PendingRequest {
        match convert::parse_policy(&text, &convert::RequestFiles(files)) {
            Ok((file, notes)) => {
                let change = Some(ChangeRequest::Apply(Box::new(file), fate));
                PendingRequest {
                    change,
                    command: "apply".to_owned(),
                    confirm: None,
                    has_change: true,
                    notes,
                    kills: Vec::new(),
                    question: PendingQuestion::Apply(text, fate),
                }
            }
            Err(errors) => PendingRequest::refused(errors),
        }
    }

    fn dry_run(text: String, fate: ConnectionFate, files: &RequestFiles) -> PendingRequest {
        match convert::parse_policy(&text, &convert::RequestFiles(files)) {
            Ok((file, notes)) => {
                let change = Box::new(ChangeRequest::Apply(Box::new(file), fate));
                let text = ChangeText::File(text);
                let question = PendingQuestion::DryRun { change, fate, text, checked: false };
                PendingRequest { notes, ..PendingRequest::question(question) }
            }
            Err(errors) => PendingRequest::refused(errors),
        }
    }

    fn batch(text: String, is_dry_run: bool, files: &RequestFiles) -> PendingRequest {
        let (commands, notes) = match convert::parse_batch(&text, &convert::RequestFiles(files)) {
            Ok(parsed) => parsed,
            Err(errors) => return PendingRequest::refused(errors),
        };
        let (commands, places): (Vec<Command>, Vec<_>) = commands.into_iter().unzip();
        let kills = commands.iter().filter_map(killed).collect();
        let change = ChangeRequest::Run(commands);
        if is_dry_run {
            let text = ChangeText::Batch(text, places);
            let (change, fate) = (Box::new(change), ConnectionFate::Release);
            let question = PendingQuestion::DryRun { change, fate, text, checked: false };
            return PendingRequest { notes, kills, ..PendingRequest::question(question) };
        }
        let question = PendingQuestion::Batch(text, places);
        let command = "batch".to_owned();
        PendingRequest {
            change: Some(change),
            command,
            confirm: None,
            has_change: true,
            notes,
            kills,
            question,
        }
    }

    /// Returns whether its answer depends on the policy in force when it is executed.
    pub(super) fn reads_policy(&self) -> bool {
        match &self.question {
            PendingQuestion::Refused(_) | PendingQuestion::Apply(..) | PendingQuestion::Batch(..) => false,
            PendingQuestion::Run(_, questions) => !questions.is_empty(),
            PendingQuestion::DryRun { .. }
            | PendingQuestion::Save
            | PendingQuestion::Names(_)
            | PendingQuestion::SaveState
            | PendingQuestion::LoadState { .. } => true,
        }
    }
}

/// The rules whose connections end with a command.
fn killed(command: &Command) -> Option<Kill> {
    match command {
        Command::DelKill(id) => Some(Kill::Rule(*id)),
        Command::Replace(replacement) if replacement.kill => Some(Kill::Rule(replacement.id)),
        Command::DelNamed(name, Deletion::Kill) => Some(Kill::Named(name.clone())),
        _ => None,
    }
}

/// The most characters of a command that are recorded.
const RECORDED: usize = 200;

/// The commands that change the policy, for the history.
fn summary(lines: &[String], commands: &[Command]) -> String {
    let mut changes = lines.iter().zip(commands).filter(|(_, command)| is_change(command));
    let mut text = String::new();
    for (line, _) in changes.by_ref() {
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(line.trim());
        if text.len() > RECORDED {
            break;
        }
    }
    shortened(&text)
}

/// The first characters of a text, and a sign if there are more.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(RECORDED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

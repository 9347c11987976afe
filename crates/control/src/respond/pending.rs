//! Requests that are parsed and wait to be executed.

use crate::convert;
use crate::daemon::{ChangeRequest, CommitError, is_change};
use crate::panic_guard::guarded;
use mmb_language::Command;
use mmb_policy::Policy;
use mmb_protocol::answer::ErrorLine;
use mmb_protocol::request::{ConnectionFate, DecodeError, Request};
use std::collections::BTreeMap;

/// The contents of files that came with a request, by name.
type RequestFiles = BTreeMap<String, Vec<u8>>;

/// The most errors, and the most notes, of one request that are sent.
pub(super) const MOST_ERRORS: usize = 100;

/// A request that was parsed, as far as possible without the daemon.
pub(super) struct PendingRequest {
    /// The change that it requests, until that is put into the commit queue.
    pub(super) change: Option<ChangeRequest>,
    /// The request has a change, also after that was put into the queue.
    pub(super) has_change: bool,
    /// Notes about the text.
    pub(super) notes: Vec<ErrorLine>,
    /// The part of the request that the answer has lines for, beside the effect of the change.
    pub(super) question: PendingQuestion,
}

/// The part of a request that is no change.
pub(super) enum PendingQuestion {
    /// The request has errors.
    Refused(Vec<ErrorLine>),
    /// Commands, and with their indexes those of them that have an answer of their own.
    Run(Vec<String>, Vec<(usize, Command)>),
    /// The text of a policy file.
    Apply(String, ConnectionFate),
    /// The text of a policy file, and the policy.
    DryRun(String, Box<Policy>, ConnectionFate),
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
        let parsed = guarded(|| match request {
            Ok(Request::Run(lines)) => PendingRequest::run(lines, &files),
            Ok(Request::Apply(text, fate)) => PendingRequest::apply(text, fate, &files),
            Ok(Request::DryRun(text, fate)) => PendingRequest::dry_run(text, fate, &files),
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
            Ok(Request::WithFiles(..)) => PendingRequest::refused(vec![ErrorLine::new("files come once")]),
            Err(error) => PendingRequest::refused(vec![ErrorLine::new(error.to_string())]),
        });
        parsed.unwrap_or_else(internal_error)
    }

    fn question(question: PendingQuestion) -> PendingRequest {
        PendingRequest { change: None, has_change: false, notes: Vec::new(), question }
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
                    let space = MOST_ERRORS.saturating_sub(notes.len());
                    notes.extend(found.into_iter().take(space).map(locate));
                }
                Err(found) => errors.extend(found.into_iter().map(locate)),
            }
            if errors.len() > MOST_ERRORS {
                break;
            }
        }
        if !errors.is_empty() {
            return PendingRequest::refused(errors);
        }
        let has_change = commands.iter().any(is_change);
        let has_answer =
            |(_, command): &(usize, &Command)| !is_change(command) || matches!(command, Command::DelKill(_));
        let questions = commands.iter().enumerate().filter(has_answer);
        let questions = questions.map(|(index, command)| (index, command.clone())).collect();
        let change = has_change.then_some(ChangeRequest::Run(commands));
        PendingRequest { change, has_change, notes, question: PendingQuestion::Run(lines, questions) }
    }

    fn apply(text: String, fate: ConnectionFate, files: &RequestFiles) -> PendingRequest {
        match convert::parse_policy(&text, &convert::RequestFiles(files)) {
            Ok((file, notes)) => {
                let change = Some(ChangeRequest::Apply(Box::new(file), fate));
                PendingRequest {
                    change,
                    has_change: true,
                    notes,
                    question: PendingQuestion::Apply(text, fate),
                }
            }
            Err(errors) => PendingRequest::refused(errors),
        }
    }

    fn dry_run(text: String, fate: ConnectionFate, files: &RequestFiles) -> PendingRequest {
        match convert::parse_policy(&text, &convert::RequestFiles(files)) {
            Ok((file, notes)) => {
                let question = PendingQuestion::DryRun(text, Box::new(file), fate);
                PendingRequest { change: None, has_change: false, notes, question }
            }
            Err(errors) => PendingRequest::refused(errors),
        }
    }

    /// Returns whether its answer depends on the policy in force when it is executed.
    pub(super) fn reads_policy(&self) -> bool {
        match &self.question {
            PendingQuestion::Refused(_) | PendingQuestion::Apply(..) => false,
            PendingQuestion::Run(_, questions) => !questions.is_empty(),
            PendingQuestion::DryRun(..)
            | PendingQuestion::Save
            | PendingQuestion::Names(_)
            | PendingQuestion::SaveState
            | PendingQuestion::LoadState { .. } => true,
        }
    }
}

//! From requests to the lines of their answers.
//!
//! What can be said without the daemon is said first: a request is parsed, and becomes a [`PendingRequest`]. Changes are laid on
//! the [`commit_queue`](crate::commit_queue). The daemon is locked for a look or a change and let go before a line is written: a client that reads
//! slowly, or not at all, keeps nobody waiting. What an answer holds while it is sent is the policy that it
//! is about, which is shared, and some hundred counters.

mod connections;
mod state;

use crate::commit_queue::CommitQueue;
use crate::daemon::{ChangeRequest, CommitError, Committed, Daemon, is_change};
use crate::language;
use crate::limits::Budget;
use crate::locate;
use crate::status;
use mmb_base::lock;
use mmb_engine::Count;
use mmb_language::command::Show;
use mmb_language::{Command, Print};
use mmb_policy::{ConnectionFilter, Policy, Rule, RuleChange, RuleId};
use mmb_protocol::answer::{
    Answer, AnswerBegin, AnswerEnd, ChangeCount, ErrorLine, RuleLine, RuleText, Topic,
};
use mmb_protocol::request::{DecodeError, Request};
use mmb_protocol::write_line;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

/// Rules whose counters are read under one lock.
const RULES_AT_ONCE: usize = 512;

/// Bytes of a policy's text in one line of an answer, about.
const TEXT_AT_ONCE: usize = 16 << 10;

/// Errors of one request that are sent.
const MOST_ERRORS: usize = 100;

/// Rules offered for completion.
const MOST_NAMES: usize = 200;

/// Where requests are carried out.
pub(crate) struct RequestContext<'a> {
    pub(crate) daemon: &'a Mutex<Daemon>,
    pub(crate) queue: &'a CommitQueue,
    /// Places for clients that watch.
    pub(crate) monitors: &'a Budget,
}

/// What a client sends behind the requests that it is answered.
pub(crate) trait FollowingRequests {
    /// It has sent more, or has gone.
    fn is_there(&self) -> bool;

    /// The next request, which has to come soon; `None`: the conversation is over.
    fn next(&mut self) -> Option<Result<Request, DecodeError>>;
}

/// Carries out requests that came together and writes their answers, in order. Changes that follow each other come into
/// force together, up to a request that looks at what is in force.
///
/// # Errors
/// What the writer says: the client is gone. What is wrong with a request is part of its answer.
pub(crate) fn respond(
    room: &RequestContext<'_>,
    requests: impl IntoIterator<Item = Result<Request, DecodeError>>,
    more: &mut dyn FollowingRequests,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut pending = requests.into_iter().map(PendingRequest::new).peekable();
    while pending.peek().is_some() {
        let mut together = Vec::new();
        for pending in pending.by_ref() {
            together.push(pending);
            if together.last().is_some_and(PendingRequest::only_reads) {
                break;
            }
        }
        let requests: Vec<ChangeRequest> =
            together.iter_mut().filter_map(|pending| pending.request.take()).collect();
        let changed = guarded(|| room.queue.submit(room.daemon, requests));
        let mut changed = changed.unwrap_or_default().into_iter();
        let waiting = pending.peek().is_some();
        for pending in together {
            let mut change = None;
            if pending.changes {
                change = Some(changed.next().unwrap_or(Err(CommitError::Lost)));
            }
            let (out, more) = (&mut *out, &mut *more);
            let mut responder = Responder { room, waiting, more, out, line: Vec::new(), text: String::new() };
            match guarded(|| responder.answer_pending(pending, change)) {
                Some(answered) => answered?,
                None => refuse(CommitError::Lost.to_string(), out)?,
            }
        }
    }
    Ok(())
}

/// What a fault of ours ends is this and no more.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// A request that was understood as far as that goes without the daemon.
struct PendingRequest {
    /// What is to be changed, until it is laid on the desk.
    request: Option<ChangeRequest>,
    /// There is, or was, a wish.
    changes: bool,
    notes: Vec<ErrorLine>,
    rest: PendingQuestion,
}

/// What else a request is.
enum PendingQuestion {
    /// It is wrong.
    Refused(Vec<ErrorLine>),
    /// Commands, and with their places those of them that are questions, or of which a part follows the change.
    Run(Vec<String>, Vec<(usize, Command)>),
    Apply(String),
    Save,
    Names(String),
    SaveState,
    LoadState,
}

impl PendingRequest {
    fn new(request: Result<Request, DecodeError>) -> PendingRequest {
        let failed = || PendingRequest::refused(vec![ErrorLine::new(CommitError::Lost.to_string())]);
        let understood = guarded(|| match request {
            Ok(Request::Run(lines)) => PendingRequest::run(lines),
            Ok(Request::Apply(text)) => PendingRequest::apply(text),
            Ok(Request::Save) => PendingRequest::question(PendingQuestion::Save),
            Ok(Request::Names(prefix)) => PendingRequest::question(PendingQuestion::Names(prefix)),
            Ok(Request::SaveState) => PendingRequest::question(PendingQuestion::SaveState),
            Ok(Request::LoadState) => PendingRequest::question(PendingQuestion::LoadState),
            Ok(Request::Piece(_)) => {
                PendingRequest::refused(vec![ErrorLine::new("a piece of a state follows 'load-state'")])
            }
            Err(error) => PendingRequest::refused(vec![ErrorLine::new(error.to_string())]),
        });
        understood.unwrap_or_else(failed)
    }

    fn question(rest: PendingQuestion) -> PendingRequest {
        PendingRequest { request: None, changes: false, notes: Vec::new(), rest }
    }

    fn refused(errors: Vec<ErrorLine>) -> PendingRequest {
        PendingRequest::question(PendingQuestion::Refused(errors))
    }

    fn run(lines: Vec<String>) -> PendingRequest {
        let (mut commands, mut notes, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (index, line) in lines.iter().enumerate() {
            let place = |error: ErrorLine| ErrorLine { command: Some(index), ..error };
            match language::parse_command(line) {
                Ok((command, said)) => {
                    commands.push(command);
                    let room = MOST_ERRORS.saturating_sub(notes.len());
                    notes.extend(said.into_iter().take(room).map(place));
                }
                Err(wrong) => errors.extend(wrong.into_iter().map(place)),
            }
            if errors.len() > MOST_ERRORS {
                break;
            }
        }
        if !errors.is_empty() {
            return PendingRequest::refused(errors);
        }
        let changes = commands.iter().any(is_change);
        let looks =
            |(_, command): &(usize, &Command)| !is_change(command) || matches!(command, Command::DelKill(_));
        let questions = commands.iter().enumerate().filter(looks);
        let questions = questions.map(|(index, command)| (index, command.clone())).collect();
        let request = changes.then_some(ChangeRequest::Run(commands));
        PendingRequest { request, changes, notes, rest: PendingQuestion::Run(lines, questions) }
    }

    fn apply(text: String) -> PendingRequest {
        match language::parse_policy(&text) {
            Ok((file, notes)) => {
                let request = Some(ChangeRequest::Apply(Box::new(file)));
                PendingRequest { request, changes: true, notes, rest: PendingQuestion::Apply(text) }
            }
            Err(errors) => PendingRequest::refused(errors),
        }
    }

    /// Whether its answer is about what is in force when it is its turn.
    fn only_reads(&self) -> bool {
        match &self.rest {
            PendingQuestion::Refused(_) | PendingQuestion::Apply(_) => false,
            PendingQuestion::Run(_, questions) => !questions.is_empty(),
            PendingQuestion::Save
            | PendingQuestion::Names(_)
            | PendingQuestion::SaveState
            | PendingQuestion::LoadState => true,
        }
    }
}

/// Writes the whole answer to something that was no request, or that went wrong.
pub(crate) fn refuse(message: String, out: &mut dyn Write) -> io::Result<()> {
    for answer in [Answer::Error(ErrorLine::new(message)), Answer::End(AnswerEnd::new(false))] {
        write_line(&answer, &mut *out)?;
    }
    out.flush()
}

/// Whether a question was answered; if not, why.
type AnswerResult = Result<(), String>;

struct Responder<'a> {
    room: &'a RequestContext<'a>,
    /// Requests that came together with this one are not answered yet.
    waiting: bool,
    more: &'a mut dyn FollowingRequests,
    out: &'a mut dyn Write,
    /// Reused; a line is written whole or not at all.
    line: Vec<u8>,
    /// A rule's text, reused.
    text: String,
}

impl Responder<'_> {
    /// The state, whatever happened to a thread that held it: a policy is replaced as a whole or not at all.
    fn daemon(&self) -> MutexGuard<'_, Daemon> {
        lock(self.room.daemon)
    }

    fn send(&mut self, answer: &Answer) -> io::Result<()> {
        self.line.clear();
        write_line(answer, &mut self.line)?;
        self.out.write_all(&self.line)
    }

    fn refused(&mut self, errors: Vec<ErrorLine>) -> io::Result<AnswerEnd> {
        let more = errors.len() > MOST_ERRORS;
        for error in errors.into_iter().take(MOST_ERRORS) {
            self.send(&Answer::Error(error))?;
        }
        if more {
            self.send(&Answer::Error(ErrorLine::new("there are more errors")))?;
        }
        Ok(AnswerEnd::new(false))
    }

    /// Writes the answer to a request of which this became.
    fn answer_pending(
        &mut self,
        pending: PendingRequest,
        change: Option<Result<Committed, CommitError>>,
    ) -> io::Result<()> {
        let mut end = AnswerEnd::new(true);
        match (change, &pending.rest) {
            (None, _) => {}
            (Some(Ok(change)), _) => end.change = Some(self.changed(&change, pending.notes)?),
            (Some(Err(refusal)), rest) => {
                let error = match rest {
                    PendingQuestion::Run(lines, _) => locate::in_commands(&refusal, lines),
                    PendingQuestion::Apply(text) => locate::in_file(&refusal, text),
                    _ => ErrorLine::new(refusal.to_string()),
                };
                let end = self.refused(vec![error])?;
                return self.send(&Answer::End(end));
            }
        }
        match pending.rest {
            PendingQuestion::Refused(errors) => end = self.refused(errors)?,
            PendingQuestion::Run(_, questions) => {
                for (index, question) in &questions {
                    if let Err(message) = self.answer(*index, question)? {
                        let error = ErrorLine { command: Some(*index), ..ErrorLine::new(message) };
                        self.send(&Answer::Error(error))?;
                        end.ok = false;
                        break;
                    }
                }
            }
            PendingQuestion::Apply(_) => {}
            PendingQuestion::Save => end = self.save()?,
            PendingQuestion::Names(prefix) => end = self.names(&prefix)?,
            PendingQuestion::SaveState => end = self.save_state()?,
            PendingQuestion::LoadState => end = self.load_state()?,
        }
        self.send(&Answer::End(end))
    }

    /// Tells what a change did.
    fn changed(&mut self, change: &Committed, notes: Vec<ErrorLine>) -> io::Result<ChangeCount> {
        for note in notes.into_iter().take(MOST_ERRORS) {
            self.send(&Answer::Note(note))?;
        }
        let mut count = ChangeCount::default();
        for fate in change.diff() {
            match fate {
                RuleChange::Added(rule) => {
                    count.added += 1;
                    self.send(&Answer::Added(rule_text(&rule)))?;
                }
                RuleChange::Removed(rule) => {
                    count.removed += 1;
                    self.send(&Answer::Removed(rule_text(&rule)))?;
                }
            }
        }
        count.kept = change.before.rules.len() as u64 - count.removed;
        let (before, after) = (&change.before, &change.after);
        let switched = self.daemon().switched_ports(before, after);
        for (port, enabled) in switched {
            self.send(&if enabled { Answer::Enabled(port) } else { Answer::Disabled(port) })?;
        }
        for (old, new) in
            language::settings(&before.settings).into_iter().zip(language::settings(&after.settings))
        {
            if old != new {
                self.send(&Answer::Setting(new))?;
            }
        }
        Ok(count)
    }

    /// Answers a question, or says why it cannot; a command that changes something has no answer of its own.
    fn answer(&mut self, command: usize, question: &Command) -> io::Result<AnswerResult> {
        let topic = match question {
            Command::List { .. } => Topic::Rules,
            Command::Show(Show::Tables) => Topic::Tables,
            Command::Show(Show::Ports) => Topic::Ports,
            Command::Show(Show::Errors) => Topic::Errors,
            Command::Show(Show::Runtime) => Topic::Runtime,
            Command::Show(Show::Settings) => Topic::Settings,
            Command::Show(Show::Version) => Topic::Version,
            Command::Show(Show::Connections { .. }) => Topic::Connections,
            Command::Show(Show::ConnSummary) => Topic::ConnSummary,
            Command::Monitor => Topic::Monitor,
            Command::Kill(filter) => return self.kill(filter),
            Command::DelKill(id) => {
                return self.kill(&ConnectionFilter { rule: Some(*id), ..ConnectionFilter::ALL });
            }
            _ => return Ok(Ok(())),
        };
        self.send(&Answer::Begin(AnswerBegin { command, topic }))?;
        let lines = match question {
            Command::List { terse } => return self.rules(*terse).map(Ok),
            Command::Show(Show::Connections { filter, verbose }) => {
                return self.connections(filter, *verbose);
            }
            Command::Monitor => return self.monitor(),
            Command::Show(show) => status::of(&self.daemon(), *show),
            _ => Vec::new(),
        };
        lines.iter().try_for_each(|line| self.send(line)).map(Ok)
    }

    fn rules(&mut self, terse: bool) -> io::Result<()> {
        let policy = Arc::clone(self.daemon().policy());
        let mut rules = policy.rules.iter();
        loop {
            let chunk: Vec<_> = rules.by_ref().take(RULES_AT_ONCE).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            let ids: Vec<RuleId> = chunk.iter().filter_map(|rule| rule.id).collect();
            let daemon = self.daemon();
            let count = |id: &RuleId| {
                let count = (!terse).then(|| daemon.engine().rule_count(*id));
                daemon.in_force(&policy, *id).then_some(count)
            };
            let counts: Vec<_> = ids.iter().map(count).collect();
            drop(daemon);
            for (rule, count) in chunk.iter().zip(counts) {
                if let Some(count) = count {
                    self.rule(rule, count)?;
                }
            }
        }
    }

    fn rule(&mut self, rule: &Rule, count: Option<Count>) -> io::Result<()> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        // Writing to a string does not fail.
        let _ = write!(text, "{}", rule.text());
        let (packets, bytes) = (count.map(|count| count.packets), count.map(|count| count.bytes));
        let line = RuleLine { id: rule.id.map_or(0, |id| id.0), rule: text, packets, bytes };
        let answer = Answer::Rule(line);
        let sent = self.send(&answer);
        if let Answer::Rule(line) = answer {
            self.text = line.rule;
        }
        sent
    }

    fn save(&mut self) -> io::Result<AnswerEnd> {
        let policy = Arc::clone(self.daemon().policy());
        let mut text = String::new();
        for line in language::policy_lines(&policy) {
            text.push_str(&line);
            text.push('\n');
            if text.len() >= TEXT_AT_ONCE {
                self.send(&Answer::Policy(std::mem::take(&mut text)))?;
            }
        }
        if !text.is_empty() {
            self.send(&Answer::Policy(text))?;
        }
        Ok(AnswerEnd::new(true))
    }

    fn names(&mut self, prefix: &str) -> io::Result<AnswerEnd> {
        let (policy, ports) = {
            let daemon = self.daemon();
            (Arc::clone(daemon.policy()), daemon.host().ports())
        };
        for port in ports {
            self.send(&Answer::PortName(port.name))?;
        }
        for rule in rules_with_prefix(&policy, prefix).take(MOST_NAMES) {
            self.rule(&rule, None)?;
        }
        Ok(AnswerEnd::new(true))
    }
}

/// The rules whose number begins with these digits, found without looking at the others: numbers with a
/// common prefix of digits form one range for each length.
fn rules_with_prefix<'a>(policy: &'a Policy, prefix: &str) -> impl Iterator<Item = Rule> + use<'a> {
    let last_id = u64::from(u32::MAX);
    let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit()) && !prefix.starts_with('0');
    let ranges = match prefix.parse::<u32>() {
        _ if prefix.is_empty() => vec![(0, last_id)],
        Ok(n) if is_number => {
            let n = u64::from(n);
            (0..10).map(|digits| 10u64.pow(digits)).map(|ten| (n * ten, (n + 1) * ten - 1)).collect()
        }
        _ => Vec::new(),
    };
    ranges.into_iter().filter(move |(first, _)| *first <= last_id).flat_map(move |(first, last)| {
        policy.rules.range(RuleId(first as u32)..=RuleId(last.min(last_id) as u32))
    })
}

fn rule_text(rule: &Rule) -> RuleText {
    RuleText { id: rule.id.map_or(0, |id| id.0), rule: rule.text().to_string() }
}

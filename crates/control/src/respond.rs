//! Executes requests and writes the lines of their answers.
//!
//! A request is parsed without the daemon and becomes a [`PendingRequest`]. Its change goes through the
//! [`commit_queue`](crate::commit_queue). The daemon is locked to read or change its state, and unlocked before a line is written, so that a
//! client that reads slowly, or not at all, delays no other. While an answer is sent it holds the policy that it is about, which is shared,
//! and some hundred counters.

mod connection_answers;
mod history_answers;
mod packet_answers;
mod pending;
mod rates;
mod server_answers;
mod set_lines;
mod sets;
mod state_transfer;

use crate::author::Author;
use crate::change::{ChangeOrigin, ChangeRequest, CommitError, CommittedChange, Submission};
use crate::commit_queue::CommitQueue;
use crate::compiling::PatternJobs;
use crate::convert;
use crate::daemon::Daemon;
use crate::history::entry::{Entry, EntryAction};
use crate::limits::Budget;
use crate::locate;
use crate::panic_guard::guarded;
use crate::status;
use mmb_base::lock;
use mmb_compile::Applicant;
use mmb_engine::{Count, RuleCount};
use mmb_language::command::Show;
use mmb_language::{Command, Print, shadowed};
use mmb_policy::{ConnectionFilter, Policy, Rule, RuleChange, RuleId};
use mmb_protocol::answer::{
    Answer, AnswerBegin, AnswerEnd, ChangeCount, ErrorLine, RuleLine, RuleText, Topic,
};
use mmb_protocol::request::{ConnectionFate, DecodeError, Request};
use mmb_protocol::write_line;
use pending::{ChangeText, Kill, MAX_ERRORS, PendingQuestion, PendingRequest};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard};

/// The most comparisons of rules of one `list`, to find those that never decide: some milliseconds.
const COMPARISONS: u64 = 1 << 16;

/// Rules whose counters are read while the daemon is locked once.
const RULES_AT_ONCE: usize = 512;

/// The approximate size in bytes of a policy's text in one line of an answer.
const LINE_BYTES: usize = 16 << 10;

/// The most rules that are sent for completion.
const MAX_NAMES: usize = 200;

/// The environment in which requests are executed.
pub(crate) struct RequestContext<'a> {
    pub(crate) daemon: &'a Mutex<Daemon>,
    pub(crate) queue: &'a CommitQueue,
    /// The client.
    pub(crate) author: Author,
    /// The applicant for which the compiler of patterns takes the client.
    pub(crate) applicant: Applicant,
    /// Returns true once the client has disconnected or the server stops.
    pub(crate) is_gone: &'a dyn Fn() -> bool,
    /// The number of clients that may still run `monitor`.
    pub(crate) monitors: &'a Budget,
    /// The number of clients that may still run `trace` or `capture`.
    pub(crate) taps: &'a Budget,
    /// The number of clients that may still compare versions.
    pub(crate) differences: &'a Budget,
}

impl<'a> RequestContext<'a> {
    /// The compilations for the client.
    fn pattern_jobs(&self) -> PatternJobs<'a> {
        PatternJobs::new(self.daemon, self.applicant, self.is_gone)
    }
}

/// The requests that a client sends after those that are being answered.
pub(crate) trait FollowingRequests {
    /// Returns whether the client has sent more, or has disconnected.
    fn has_arrived(&self) -> bool;

    /// Reads the next request, which has to arrive soon. `None`: the session is over.
    fn next(&mut self) -> Option<Result<Request, DecodeError>>;
}

/// Executes requests that arrived together and writes their answers, in order. Consecutive changes are committed together, up to a request
/// whose answer depends on the policy in force.
///
/// # Errors
/// The writer failed: the client has disconnected. Errors of a request are part of its answer.
pub(crate) fn respond(
    context: &RequestContext<'_>,
    requests: impl IntoIterator<Item = Result<Request, DecodeError>>,
    following: &mut dyn FollowingRequests,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut pending = requests.into_iter().map(PendingRequest::new).peekable();
    while pending.peek().is_some() {
        let mut batch = Vec::new();
        for pending in pending.by_ref() {
            batch.push(pending);
            if batch.last().is_some_and(PendingRequest::reads_policy) {
                break;
            }
        }
        let submission = |pending: &mut PendingRequest| {
            let (request, command) = (pending.change.take()?, std::mem::take(&mut pending.command));
            let (author, action, confirm) = (context.author, EntryAction::Change, pending.confirm);
            let origin = ChangeOrigin { author, action, command, confirm };
            Some(Submission { request, origin })
        };
        let changes: Vec<Submission> = batch.iter_mut().filter_map(submission).collect();
        let outcomes = guarded(|| context.queue.submit(&mut context.pattern_jobs(), changes));
        let mut outcomes = outcomes.unwrap_or_default().into_iter();
        let others_wait = pending.peek().is_some();
        for pending in batch {
            let mut outcome = None;
            if pending.has_change {
                outcome = Some(outcomes.next().unwrap_or(Err(CommitError::Internal)));
            }
            let (out, following) = (&mut *out, &mut *following);
            let (line, text) = (Vec::new(), String::new());
            let mut responder = Responder { context, others_wait, following, out, line, text };
            match guarded(|| responder.answer_pending(pending, outcome)) {
                Some(written) => written?,
                None => refuse(CommitError::Internal.to_string(), out)?,
            }
        }
    }
    Ok(())
}

/// Writes a complete answer that consists of one error.
pub(crate) fn refuse(message: String, out: &mut dyn Write) -> io::Result<()> {
    for answer in [Answer::Error(ErrorLine::new(message)), Answer::End(AnswerEnd::new(false))] {
        write_line(&answer, &mut *out)?;
    }
    out.flush()
}

/// The result of answering a question; an error is the message for the client.
type AnswerResult = Result<(), String>;

struct Responder<'a> {
    context: &'a RequestContext<'a>,
    /// Requests that arrived together with this one are not answered yet.
    others_wait: bool,
    following: &'a mut dyn FollowingRequests,
    out: &'a mut dyn Write,
    /// A line, which is written as a whole; reused.
    line: Vec<u8>,
    /// The text of a rule; reused.
    text: String,
}

impl Responder<'_> {
    /// Locks the daemon, also after a panic of a thread that held the lock: a policy is replaced as a whole or not at all.
    fn daemon(&self) -> MutexGuard<'_, Daemon> {
        lock(self.context.daemon)
    }

    fn send(&mut self, answer: &Answer) -> io::Result<()> {
        self.line.clear();
        write_line(answer, &mut self.line)?;
        self.out.write_all(&self.line)
    }

    fn refused(&mut self, errors: Vec<ErrorLine>) -> io::Result<AnswerEnd> {
        let has_more = errors.len() > MAX_ERRORS;
        for error in errors.into_iter().take(MAX_ERRORS) {
            self.send(&Answer::Error(error))?;
        }
        if has_more {
            self.send(&Answer::Error(ErrorLine::new("there are more errors")))?;
        }
        Ok(AnswerEnd::new(false))
    }

    /// Writes the answer to a request whose change had this outcome.
    fn answer_pending(
        &mut self,
        mut pending: PendingRequest,
        outcome: Option<Result<CommittedChange, CommitError>>,
    ) -> io::Result<()> {
        let mut end = AnswerEnd::new(true);
        match (outcome, &pending.question) {
            (None, _) => {}
            (Some(Ok(change)), _) => self.changed(&mut pending, &change, &mut end)?,
            (Some(Err(refusal)), question) => {
                let error = match question {
                    PendingQuestion::Run(lines, _) => locate::in_commands(&refusal, lines),
                    PendingQuestion::Apply(text, _) => locate::in_file(&refusal, text),
                    PendingQuestion::Batch(text, places) => locate::in_batch(&refusal, text, places),
                    _ => ErrorLine::new(refusal.to_string()),
                };
                let end = self.refused(vec![error])?;
                return self.send(&Answer::End(end));
            }
        }
        match pending.question {
            PendingQuestion::Refused(errors) => end = self.refused(errors)?,
            PendingQuestion::Run(_, questions) => {
                for (index, question) in &questions {
                    if let Err(message) = self.answer(*index, question, &mut end)? {
                        let error = ErrorLine { command: Some(*index), ..ErrorLine::new(message) };
                        self.send(&Answer::Error(error))?;
                        end.ok = false;
                        break;
                    }
                }
            }
            PendingQuestion::Apply(..) | PendingQuestion::Batch(..) => {}
            PendingQuestion::DryRun { change, fate, text, checked } => {
                end = self.dry_run((&change, fate, &text), checked, &pending.kills, pending.notes)?;
            }
            PendingQuestion::Save => end = self.save()?,
            PendingQuestion::Names(prefix) => end = self.names(&prefix)?,
            PendingQuestion::SaveState => end = self.save_state()?,
            PendingQuestion::LoadState { verbose } => end = self.load_state(verbose)?,
        }
        self.send(&Answer::End(end))
    }

    /// Answers a request whose change was committed.
    fn changed(
        &mut self,
        pending: &mut PendingRequest,
        change: &CommittedChange,
        end: &mut AnswerEnd,
    ) -> io::Result<()> {
        // Before the client is told anything, since it may be gone.
        let waiting = self.mark(change, pending.confirm.is_some(), &mut pending.notes);
        let killed = killed_rules(&pending.kills, change);
        let fate = match &pending.question {
            PendingQuestion::Apply(_, fate) => *fate,
            _ => fate_of_removed(&killed, change),
        };
        end.version = change.version;
        end.change = Some(self.committed(change, std::mem::take(&mut pending.notes), (fate, false))?);
        if matches!(pending.question, PendingQuestion::Apply(_, ConnectionFate::Kill))
            && !change.stateful.is_empty()
        {
            self.kill_removed(&change.stateful)?;
        }
        if !killed.is_empty() {
            self.kill_rules(&killed)?;
        }
        waiting.map_or(Ok(()), |waiting| self.send(&Answer::Unconfirmed(waiting)))
    }

    /// Writes the effect of a change. `fate` is that of the connections of removed rules.
    fn committed(
        &mut self,
        change: &CommittedChange,
        notes: Vec<ErrorLine>,
        (fate, is_dry_run): (ConnectionFate, bool),
    ) -> io::Result<ChangeCount> {
        for note in notes.into_iter().take(MAX_ERRORS) {
            self.send(&Answer::Note(note))?;
        }
        let mut count = ChangeCount::default();
        for rule_change in change.diff() {
            match rule_change {
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
        if !change.stateful.is_empty() {
            self.affected(&change.stateful, fate, is_dry_run)?;
        }
        count.kept = change.before.rules.len() as u64 - count.removed;
        let (before, after) = (&change.before, &change.after);
        let switched = self.daemon().switched_ports(before, after);
        for (port, enabled) in switched {
            self.send(&if enabled { Answer::Enabled(port) } else { Answer::Disabled(port) })?;
        }
        for (old, new) in
            convert::settings(&before.settings).into_iter().zip(convert::settings(&after.settings))
        {
            if old != new {
                self.send(&Answer::Setting(new))?;
            }
        }
        if let Some(note) = self.connections_above(before, after) {
            self.send(&Answer::Note(note))?;
        }
        for line in convert::changed_lists(before, after) {
            self.send(&Answer::Patterns(line))?;
        }
        for line in set_lines::changes(before, after) {
            self.send(&Answer::SetChanged(line))?;
        }
        Ok(count)
    }

    fn dry_run(
        &mut self,
        (request, fate, text): (&ChangeRequest, ConnectionFate, &ChangeText),
        is_checked: bool,
        kills: &[Kill],
        notes: Vec<ErrorLine>,
    ) -> io::Result<AnswerEnd> {
        match self.tried(request, is_checked) {
            Ok(change) => {
                let fate = match text {
                    ChangeText::File(_) => fate,
                    ChangeText::Batch(..) => fate_of_removed(&killed_rules(kills, &change), &change),
                };
                let count = self.committed(&change, notes, (fate, true))?;
                Ok(AnswerEnd { change: Some(ChangeCount { dry_run: true, ..count }), ..AnswerEnd::new(true) })
            }
            Err(refusal) => self.refused(vec![match text {
                ChangeText::File(text) => locate::in_file(&refusal, text),
                ChangeText::Batch(text, places) => locate::in_batch(&refusal, text, places),
            }]),
        }
    }

    /// The change that a request would be.
    fn tried(&self, request: &ChangeRequest, is_checked: bool) -> Result<CommittedChange, CommitError> {
        let mut jobs = self.context.pattern_jobs();
        loop {
            let tried = self.daemon().try_request(request, !is_checked);
            match tried {
                Err(CommitError::Uncompiled(policy)) => jobs.compile(&policy)?,
                tried => return tried,
            }
        }
    }

    /// Answers a question. A command that changes something has no answer of its own.
    fn answer(
        &mut self,
        command: usize,
        question: &Command,
        end: &mut AnswerEnd,
    ) -> io::Result<AnswerResult> {
        let topic = match question {
            Command::List { .. } => Topic::Rules,
            Command::Show(Show::Tables) => Topic::Tables,
            Command::Show(Show::Ports) => Topic::Ports,
            Command::Show(Show::Errors) => Topic::Errors,
            Command::Show(Show::Runtime) => Topic::Runtime,
            Command::Show(Show::Offload) => Topic::Offload,
            Command::Show(Show::Rates) => Topic::Rates,
            Command::Show(Show::Log) => Topic::Log,
            Command::Show(Show::Settings) => Topic::Settings,
            Command::Show(Show::Sets) => Topic::Sets,
            Command::ShowSet(_) => Topic::Elements,
            Command::Show(Show::Version) => Topic::Version,
            Command::Show(Show::Connections { .. }) => Topic::Connections,
            Command::Show(Show::Streams { .. }) => Topic::Streams,
            Command::Show(Show::StreamSummary) => Topic::StreamSummary,
            Command::Show(Show::ConnSummary) => Topic::ConnSummary,
            Command::Show(Show::Servers { .. }) => Topic::Servers,
            Command::Monitor => Topic::Monitor,
            Command::History(_) => Topic::History,
            Command::Diff(..) => Topic::Diff,
            Command::Confirm(version) => return self.confirm(*version),
            Command::Rollback(version, deletion) => return self.rollback(*version, *deletion, end),
            Command::Trace(_) => Topic::Trace,
            Command::Capture(_) => Topic::Capture,
            Command::Kill(filter) => return self.kill(filter),
            Command::Server(command) => return self.order_server(command),
            Command::ClearCounters => {
                self.fold_counters();
                let live = self.server_traffic();
                self.daemon().clear_counters(&live);
                let author = self.context.author;
                self.daemon().record(Entry::new(author, EntryAction::Clear, question.to_string()));
                return self.send(&Answer::Cleared("counters".to_owned())).map(Ok);
            }
            _ => return Ok(Ok(())),
        };
        let selected = match question {
            Command::Show(Show::Streams { filter, verbose }) => *verbose || *filter != ConnectionFilter::ALL,
            _ => false,
        };
        self.send(&Answer::Begin(AnswerBegin { command, topic, selected }))?;
        let lines = match question {
            Command::List { terse } => return self.rules(*terse).map(Ok),
            Command::Show(Show::Connections { filter, verbose }) => {
                return self.connections(filter, *verbose, |_| true);
            }
            Command::Show(Show::Streams { filter, verbose }) => {
                return self.connections(filter, *verbose, |info| info.stream.is_some());
            }
            Command::Show(Show::StreamSummary) => return self.stream_summary(),
            Command::Show(Show::Rates) => return self.rates(),
            Command::Show(Show::Servers { terse }) => return self.servers(*terse),
            Command::Monitor => return self.monitor(),
            Command::History(last) => return self.history(*last),
            Command::Diff(from, to) => return self.difference(*from, *to),
            Command::Trace(request) => return self.trace(request),
            Command::Capture(request) => return self.capture(request),
            Command::ShowSet(name) => return self.elements(name),
            Command::Show(Show::Sets) => {
                let policy = Arc::clone(self.daemon().policy());
                set_lines::all(&policy)
            }
            Command::Show(show) => {
                if status::has_counters(*show) {
                    self.fold_counters();
                }
                status::of(&self.daemon(), *show)
            }
            _ => Vec::new(),
        };
        lines.iter().try_for_each(|line| self.send(line)).map(Ok)
    }

    fn rules(&mut self, terse: bool) -> io::Result<()> {
        if !terse {
            self.fold_counters();
        }
        let policy = Arc::clone(self.daemon().policy());
        let budget = if terse { 0 } else { COMPARISONS };
        let mut shadowed = shadowed(&policy.rules, budget).into_iter().peekable();
        let mut rules = policy.rules.iter();
        loop {
            let chunk: Vec<_> = rules.by_ref().take(RULES_AT_ONCE).collect();
            if chunk.is_empty() {
                break;
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
                let by = shadowed.next_if(|shadowed| Some(shadowed.id) == rule.id);
                if let Some(count) = count {
                    self.rule(rule, count, by.map(|shadowed| shadowed.by))?;
                }
            }
        }
        let former = self.daemon().engine().dropped_by_former_rules();
        if terse || former == Count::default() {
            return Ok(());
        }
        self.send(&Answer::DroppedByFormerRules(status::traffic(former)))
    }

    fn rule(&mut self, rule: &Rule, count: Option<RuleCount>, shadowed_by: Option<RuleId>) -> io::Result<()> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        // Writing to a string does not fail.
        let _ = write!(text, "{}", rule.text());
        let line = RuleLine {
            id: rule.id.map_or(0, |id| id.0),
            rule: text,
            packets: count.map(|count| count.matched.packets),
            bytes: count.map(|count| count.matched.bytes),
            dropped_packets: count.map(|count| count.dropped.packets),
            dropped_bytes: count.map(|count| count.dropped.bytes),
            hits: count.map(|count| count.hits).filter(|_| rule.is_stream_rule()),
            shadowed_by: shadowed_by.map(|by| by.0),
        };
        let answer = Answer::Rule(line);
        let sent = self.send(&answer);
        if let Answer::Rule(line) = answer {
            self.text = line.rule;
        }
        sent
    }

    fn save(&mut self) -> io::Result<AnswerEnd> {
        let policy = {
            let daemon = self.daemon();
            let mut policy = Policy::clone(daemon.policy());
            policy.now_ms = daemon.now_ms();
            policy
        };
        let mut text = String::new();
        for line in convert::policy_lines(&policy) {
            text.push_str(&line);
            text.push('\n');
            if text.len() >= LINE_BYTES {
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
        for list in policy.lists.keys().take(MAX_NAMES) {
            self.send(&Answer::ListName(list.clone()))?;
        }
        for set in policy.sets.keys().take(MAX_NAMES) {
            self.send(&Answer::SetName(set.clone()))?;
        }
        for rule in rules_with_prefix(&policy, prefix).take(MAX_NAMES) {
            self.rule(&rule, None, None)?;
        }
        Ok(AnswerEnd::new(true))
    }
}

/// Returns the rules whose id begins with these digits. The other rules are not visited: ids with a common prefix of digits form one range
/// for each number of digits.
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

/// The rules whose connections end with a change, by the commands that say so.
fn killed_rules(kills: &[Kill], change: &CommittedChange) -> BTreeSet<RuleId> {
    let of_name = |name: &String| {
        let mut ids = change.before.named(name);
        ids.retain(|id| !change.after.rules.contains(*id));
        ids
    };
    let of = |kill: &Kill| match kill {
        Kill::Rule(id) => vec![*id],
        Kill::Named(name) => of_name(name),
    };
    kills.iter().flat_map(of).collect()
}

/// The fate of the connections of the rules that a change removes, of which these take theirs along. If other rules go too, the connections of
/// all are counted.
fn fate_of_removed(killed: &BTreeSet<RuleId>, change: &CommittedChange) -> ConnectionFate {
    let all = !killed.is_empty() && killed.len() == removed(change);
    if all { ConnectionFate::Kill } else { ConnectionFate::Release }
}

/// The number of rules that a change removes.
fn removed(change: &CommittedChange) -> usize {
    change.diff().filter(|change| matches!(change, RuleChange::Removed(_))).count()
}

fn rule_text(rule: &Rule) -> RuleText {
    RuleText { id: rule.id.map_or(0, |id| id.0), rule: rule.text().to_string() }
}

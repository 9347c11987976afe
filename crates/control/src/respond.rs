//! From a request to the lines of its answer.
//!
//! The daemon is locked for a look or a change and let go before a line is written: a client that reads
//! slowly, or not at all, keeps nobody waiting. What an answer holds while it is sent is the policy that it
//! is about, which is shared, and some hundred counters.

use crate::answer::{Answer, Begin, ChangeCount, End, ErrorLine, RuleLine, RuleText, Topic};
use crate::blame;
use crate::daemon::{Change, Daemon, is_change};
use crate::language;
use crate::protocol::Request;
use crate::status;
use mmb_engine::Count;
use mmb_policy::command::Show;
use mmb_policy::{Command, Policy, Rule, RuleChange, RuleId};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rules whose counters are read under one lock.
const RULES_AT_ONCE: usize = 512;

/// Bytes of a policy's text in one line of an answer, about.
const TEXT_AT_ONCE: usize = 16 << 10;

/// Errors of one request that are sent.
const MOST_ERRORS: usize = 100;

/// Rules offered for completion.
const MOST_NAMES: usize = 200;

/// Carries a request out and writes its answer.
///
/// # Errors
/// What the writer says: the client is gone. What is wrong with the request is part of the answer.
pub fn respond(daemon: &Mutex<Daemon>, request: Request, out: &mut dyn Write) -> io::Result<()> {
    let mut responder = Responder { daemon, out, line: Vec::new(), text: String::new() };
    let end = match request {
        Request::Run(lines) => responder.run(&lines)?,
        Request::Apply(text) => responder.apply(&text)?,
        Request::Save => responder.save()?,
        Request::Names(prefix) => responder.names(&prefix)?,
    };
    responder.send(&Answer::End(end))
}

/// Writes the whole answer to something that was no request, or that went wrong.
pub(crate) fn refuse(message: String, out: &mut dyn Write) -> io::Result<()> {
    for answer in [Answer::Error(ErrorLine::new(message)), Answer::End(End::new(false))] {
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        out.write_all(&line)?;
    }
    out.flush()
}

struct Responder<'a> {
    daemon: &'a Mutex<Daemon>,
    out: &'a mut dyn Write,
    /// Reused; a line is written whole or not at all.
    line: Vec<u8>,
    /// A rule's text, reused.
    text: String,
}

impl Responder<'_> {
    /// The state, whatever happened to a thread that held it: a policy is replaced as a whole or not at all.
    fn daemon(&self) -> MutexGuard<'_, Daemon> {
        self.daemon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&mut self, answer: &Answer) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, answer)?;
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }

    fn refused(&mut self, errors: Vec<ErrorLine>) -> io::Result<End> {
        let more = errors.len() > MOST_ERRORS;
        for error in errors.into_iter().take(MOST_ERRORS) {
            self.send(&Answer::Error(error))?;
        }
        if more {
            self.send(&Answer::Error(ErrorLine::new("there are more errors")))?;
        }
        Ok(End::new(false))
    }

    fn run(&mut self, lines: &[String]) -> io::Result<End> {
        let (mut commands, mut notes, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (index, line) in lines.iter().enumerate() {
            let place = |error: ErrorLine| ErrorLine { command: Some(index), ..error };
            match language::parse_command(line) {
                Ok((command, said)) => {
                    commands.push(command);
                    notes.extend(said.into_iter().map(place));
                }
                Err(wrong) => errors.extend(wrong.into_iter().map(place)),
            }
            if errors.len() > MOST_ERRORS {
                break;
            }
        }
        if !errors.is_empty() {
            return self.refused(errors);
        }
        let mut end = End::new(true);
        if commands.iter().any(is_change) {
            let changed = self.daemon().run(&commands);
            match changed {
                Ok(change) => end.change = Some(self.changed(&change, notes)?),
                Err(refusal) => return self.refused(vec![blame::of_commands(&refusal, lines)]),
            }
        }
        for (index, command) in commands.iter().enumerate() {
            self.answer(index, command)?;
        }
        Ok(end)
    }

    fn apply(&mut self, text: &str) -> io::Result<End> {
        let (file, notes) = match language::parse_policy(text) {
            Ok(parsed) => parsed,
            Err(errors) => return self.refused(errors),
        };
        let changed = self.daemon().apply(file);
        match changed {
            Ok(change) => {
                let count = self.changed(&change, notes)?;
                Ok(End { change: Some(count), ..End::new(true) })
            }
            Err(refusal) => self.refused(vec![blame::of_file(&refusal, text)]),
        }
    }

    /// Tells what a change did.
    fn changed(&mut self, change: &Change, notes: Vec<ErrorLine>) -> io::Result<ChangeCount> {
        for note in notes.into_iter().take(MOST_ERRORS) {
            self.send(&Answer::Note(note))?;
        }
        let mut count = ChangeCount::default();
        for fate in change.fates() {
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
        for port in after.disabled.difference(&before.disabled) {
            self.send(&Answer::Disabled(port.clone()))?;
        }
        for port in before.disabled.difference(&after.disabled) {
            self.send(&Answer::Enabled(port.clone()))?;
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

    /// Answers a question; a command that changes something has no answer of its own.
    fn answer(&mut self, command: usize, question: &Command) -> io::Result<()> {
        let topic = match question {
            Command::List { .. } => Topic::Rules,
            Command::Show(Show::Tables) => Topic::Tables,
            Command::Show(Show::Ports) => Topic::Ports,
            Command::Show(Show::Errors) => Topic::Errors,
            Command::Show(Show::Runtime) => Topic::Runtime,
            Command::Show(Show::Settings) => Topic::Settings,
            Command::Show(Show::Version) => Topic::Version,
            _ => return Ok(()),
        };
        self.send(&Answer::Begin(Begin { command, topic }))?;
        let lines = match topic {
            Topic::Rules => return self.rules(matches!(question, Command::List { terse: true })),
            Topic::Tables => status::tables(&self.daemon()),
            Topic::Ports => status::ports(&self.daemon()),
            Topic::Errors => status::errors(&self.daemon()),
            Topic::Runtime => status::runtime(&self.daemon()),
            Topic::Settings => status::settings(&self.daemon()),
            Topic::Version => vec![status::version()],
        };
        lines.iter().try_for_each(|line| self.send(line))
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
        let _ = write!(text, "{rule}");
        let (packets, bytes) = (count.map(|count| count.packets), count.map(|count| count.bytes));
        let line = RuleLine { id: rule.id.map_or(0, |id| id.0), rule: text, packets, bytes };
        let answer = Answer::Rule(line);
        let sent = self.send(&answer);
        if let Answer::Rule(line) = answer {
            self.text = line.rule;
        }
        sent
    }

    fn save(&mut self) -> io::Result<End> {
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
        Ok(End::new(true))
    }

    fn names(&mut self, prefix: &str) -> io::Result<End> {
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
        Ok(End::new(true))
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
    RuleText { id: rule.id.map_or(0, |id| id.0), rule: rule.to_string() }
}

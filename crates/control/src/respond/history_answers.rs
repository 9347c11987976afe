//! Answers about the history of the policy, and the return to one of its versions. Versions are read without the daemon's lock.

use super::{AnswerResult, Responder};
use crate::change::{ChangeOrigin, ChangeRequest, CommitError, CommittedChange, Submission};
use crate::convert;
use crate::history::entry::EntryAction;
use crate::history::record::EntryHeader;
use crate::housekeeping::take_back;
use crate::unconfirmed::UnconfirmedChange;
use mmb_language::{Command, Deletion, SetText, set_lines, with_id};
use mmb_policy::{ElementList, NamedSet, PatternList, Policy, RuleChange, RuleStore};
use mmb_protocol::answer::{
    Answer, AnswerEnd, DiffVersions, DifferenceLine, DifferenceSign, ErrorLine, HistoryLine, UnconfirmedLine,
};
use mmb_protocol::request::ConnectionFate;
use std::collections::BTreeSet;
use std::io;

/// The most elements of a set that is shown whole in a difference, and the most elements of a larger one that are shown because they differ.
const MAX_ELEMENTS: usize = 100;

/// About the most bytes that a rule of an earlier version takes while it is read and compared.
const RULE_BYTES: u64 = 128;

impl Responder<'_> {
    /// Lists the last entries, or all.
    pub(super) fn history(&mut self, last: Option<u64>) -> io::Result<AnswerResult> {
        let (history, in_force) = {
            let daemon = self.daemon();
            (daemon.history(), daemon.version())
        };
        let entries = match history.entries() {
            Ok(entries) => entries,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let last = last.and_then(|last| usize::try_from(last).ok()).unwrap_or(usize::MAX);
        let left_out = entries.len().saturating_sub(last);
        for (header, is_kept) in entries.into_iter().skip(left_out) {
            self.send(&Answer::HistoryEntry(history_line(header, is_kept, in_force)))?;
        }
        Ok(Ok(()))
    }

    /// Tells what differs between two versions, or between one and the policy in force.
    pub(super) fn difference(&mut self, from: Option<u64>, to: Option<u64>) -> io::Result<AnswerResult> {
        let mut share = self.context.differences.share();
        if !share.grow_to(1) {
            return Ok(Err("other clients compare versions of the policy; try again".to_owned()));
        }
        // Both versions may be read from the history, and each may have as many rules as the policy in force.
        let daemon = self.daemon();
        let bytes = 2 * daemon.policy().rules.len() as u64 * RULE_BYTES;
        if let Err(short) = daemon.check_memory_now(bytes) {
            return Ok(Err(short.to_string()));
        }
        drop(daemon);
        let (history, in_force, policy) = {
            let daemon = self.daemon();
            // Elements are shown with the time that they have left now.
            let mut policy = Policy::clone(daemon.policy());
            policy.now_ms = daemon.now_ms();
            (daemon.history(), daemon.version(), policy)
        };
        let from = from.unwrap_or(in_force.saturating_sub(1));
        let versions = DiffVersions { from, to: to.unwrap_or(in_force) };
        let after = if versions.to == in_force { Ok(policy) } else { history.policy(versions.to) };
        let before = history.policy(versions.from);
        let (before, after) = match (before, after) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(error), _) | (_, Err(error)) => return Ok(Err(error.to_string())),
        };
        self.send(&Answer::DiffOf(versions))?;
        let mut sent = Ok(());
        for (sign, line) in differences(&before, &after) {
            sent = self.send(&Answer::Difference(DifferenceLine { sign, line }));
            if sent.is_err() {
                break;
            }
        }
        sent.map(Ok)
    }

    /// Puts a version in force again, or the one before.
    pub(super) fn rollback(
        &mut self,
        version: Option<u64>,
        deletion: Deletion,
        end: &mut AnswerEnd,
    ) -> io::Result<AnswerResult> {
        let fate = match deletion {
            Deletion::Plain => ConnectionFate::Release,
            Deletion::Kill => ConnectionFate::Kill,
            Deletion::Drain => ConnectionFate::Keep,
        };
        let (history, in_force, waiting) = {
            let daemon = self.daemon();
            (daemon.history(), daemon.version(), daemon.unconfirmed())
        };
        if let Some(waiting) =
            waiting.filter(|waiting| version.is_none_or(|version| version == waiting.before))
        {
            let fate = Some(fate).filter(|_| deletion != Deletion::Plain);
            let reason = |still: &UnconfirmedChange| {
                let is_meant = still.version == waiting.version;
                is_meant.then(|| format!(" (version {} was not confirmed)", still.version))
            };
            // The jobs, and with them the turn to compile, end before the answer is written: a slow client keeps no turn.
            let taken_back = take_back(&mut self.context.pattern_jobs(), self.context.author, fate, &reason);
            return match taken_back {
                Some((outcome, fate)) => self.rolled_back(outcome, fate, end),
                None => {
                    Ok(Err("the change that waited for its confirmation has just come to its end".to_owned()))
                }
            };
        }
        let wanted = version.unwrap_or(in_force.saturating_sub(1));
        let mut policy = match history.policy(wanted) {
            Ok(policy) => Box::new(policy),
            Err(error) => return Ok(Err(error.to_string())),
        };
        policy.begin_timeouts(self.daemon().now_ms());
        let command = Command::Rollback(Some(wanted), deletion).to_string();
        let (author, action) = (self.context.author, EntryAction::Rollback);
        let origin = ChangeOrigin { author, action, command, confirm: None };
        let submission = Submission { request: ChangeRequest::Restore(policy, fate), origin };
        let outcome = self.context.queue.submit(&mut self.context.pattern_jobs(), vec![submission]).pop();
        self.rolled_back(outcome.unwrap_or(Err(CommitError::Internal)), fate, end)
    }

    /// Keeps the change that waits for it.
    pub(super) fn confirm(&mut self, wanted: Option<u64>) -> io::Result<AnswerResult> {
        let (confirmed, history) = {
            let mut daemon = self.daemon();
            if let (Some(wanted), Some(waiting)) = (wanted, daemon.unconfirmed())
                && waiting.version != wanted
            {
                let refused = format!(
                    "version {wanted} does not wait for its confirmation: version {} of the policy does",
                    waiting.version
                );
                return Ok(Err(refused));
            }
            (daemon.confirm(self.context.author), daemon.history())
        };
        let Some(version) = confirmed else {
            return Ok(Err(
                "no change waits for its confirmation; `history` tells what became of it".to_owned()
            ));
        };
        if let Err(error) = history.mark_confirmed() {
            let note = format!("a restart takes version {version} for unconfirmed: {error}");
            self.send(&Answer::Note(ErrorLine::new(note)))?;
        }
        self.send(&Answer::Confirmed(version)).map(Ok)
    }

    /// Notes on the disk whether a change has to be confirmed, for a restart. Returns what waits, if it is this change.
    pub(super) fn mark(
        &self,
        change: &CommittedChange,
        has_to_be_confirmed: bool,
        notes: &mut Vec<ErrorLine>,
    ) -> Option<UnconfirmedLine> {
        let (history, waiting) = {
            let daemon = self.daemon();
            (daemon.history(), daemon.unconfirmed())
        };
        let waiting =
            waiting.filter(|waiting| has_to_be_confirmed && Some(waiting.version) == change.version);
        let marked = match &waiting {
            Some(waiting) => history.mark_unconfirmed(waiting.version, waiting.before, &change.after),
            None => history.mark_applied(&change.after),
        };
        // It may have been confirmed while the mark was written.
        let is_over = |waiting: &UnconfirmedLine| {
            self.daemon().unconfirmed().is_none_or(|now| now.version != waiting.version)
                && self.daemon().version() == waiting.version
        };
        let marked = match &waiting {
            Some(waiting) if is_over(waiting) => marked.and_then(|()| history.mark_confirmed()),
            _ => marked,
        };
        if let Err(error) = marked {
            let note = format!("a restart does not know whether this change was confirmed: {error}");
            notes.insert(0, ErrorLine::new(note));
        }
        waiting
    }

    /// Writes the effect of a rollback.
    fn rolled_back(
        &mut self,
        outcome: Result<CommittedChange, CommitError>,
        fate: ConnectionFate,
        end: &mut AnswerEnd,
    ) -> io::Result<AnswerResult> {
        match outcome {
            Ok(change) => {
                end.version = change.version;
                let mut notes = Vec::new();
                self.mark(&change, false, &mut notes);
                end.change = Some(self.committed(&change, notes, (fate, false))?);
                if fate == ConnectionFate::Kill && !change.stateful.is_empty() {
                    self.kill_removed(&change.stateful)?;
                }
                Ok(Ok(()))
            }
            Err(refusal) => Ok(Err(refusal.to_string())),
        }
    }
}

fn history_line(header: EntryHeader, kept: bool, in_force: u64) -> HistoryLine {
    let EntryHeader {
        version,
        time,
        uid,
        user,
        pid,
        action,
        command,
        added,
        removed,
        connections,
        refused,
        ..
    } = header;
    HistoryLine {
        in_force: version == Some(in_force),
        version,
        time,
        uid,
        user,
        pid,
        action: action.name().to_owned(),
        command,
        added,
        removed,
        connections,
        refused,
        kept,
    }
}

/// What differs between two policies, as lines of policy files. Rules that drain are in none.
fn differences<'p>(
    before: &'p Policy,
    after: &'p Policy,
) -> impl Iterator<Item = (DifferenceSign, String)> + 'p {
    use DifferenceSign::{Added, Removed};
    let settings = convert::changed_settings(&before.settings, &after.settings);
    let settings =
        settings.flat_map(|(old, new)| [(Removed, format!("set {old}")), (Added, format!("set {new}"))]);
    let switch = |policy: &Policy, port: &String| {
        let enabled = policy.ports.get(port)?;
        Some(format!("{} {port}", if *enabled { "enable" } else { "disable" }))
    };
    let list = |policy: &Policy, name: &String| {
        let list = policy.lists.get(name)?;
        let PatternList { patterns, digest, .. } = list;
        let line = mmb_language::pattern_list(name, list);
        Some(format!("{line} # {} patterns, digest {digest:016x}", patterns.len()))
    };
    let ports = changed(before.ports.keys().chain(after.ports.keys()), (before, after), switch);
    let lists = changed(before.lists.keys().chain(after.lists.keys()), (before, after), list);
    let sets = changed_sets(before, after);
    let rules = RuleStore::diff(&before.rules, &after.rules).filter_map(|change| {
        let (sign, rule) = match change {
            RuleChange::Added(rule) => (Added, rule),
            RuleChange::Removed(rule) => (Removed, rule),
        };
        (!rule.draining).then(|| (sign, with_id(&rule).to_string()))
    });
    settings.chain(ports).chain(lists).chain(sets).chain(rules)
}

/// The lines of these names that differ between two policies.
fn changed<'p>(
    names: impl Iterator<Item = &'p String>,
    (before, after): (&Policy, &Policy),
    line: impl Fn(&Policy, &String) -> Option<String>,
) -> Vec<(DifferenceSign, String)> {
    let names: BTreeSet<&String> = names.collect();
    let mut lines = Vec::new();
    for name in names {
        let (old, new) = (line(before, name), line(after, name));
        if old != new {
            lines.extend(old.map(|line| (DifferenceSign::Removed, line)));
            lines.extend(new.map(|line| (DifferenceSign::Added, line)));
        }
    }
    lines
}

/// The lines of sets that have other elements: whole sets if they are small, otherwise the elements that differ if they are few. Other times do not
/// count, since versions have clocks of their own.
fn changed_sets(before: &Policy, after: &Policy) -> Vec<(DifferenceSign, String)> {
    use DifferenceSign::{Added, Removed};
    let is_small = |set: &NamedSet| set.len() <= MAX_ELEMENTS;
    let whole = |name: &str, set: &NamedSet, now_ms: u64| match &set_lines(name, set, now_ms)[..] {
        [line] if is_small(set) => line.clone(),
        _ => format!("set {name} {{…}} # {} elements", set.len()),
    };
    let names: BTreeSet<&String> = before.sets.keys().chain(after.sets.keys()).collect();
    let mut lines = Vec::new();
    for name in names {
        let (old, new) = (before.sets.get(name), after.sets.get(name));
        if let (Some(old), Some(new)) = (old, new) {
            let (gone, added) = (NamedSet::diff(old, new).0, NamedSet::diff(new, old).0);
            if gone.is_empty() && added.is_empty() {
                continue;
            }
            if !(is_small(old) && is_small(new)) && gone.len() + added.len() <= MAX_ELEMENTS {
                let some = [(Removed, gone, before.now_ms), (Added, added, after.now_ms)];
                let some = some.into_iter().filter(|(_, list, _)| !list.is_empty());
                lines.extend(some.map(|(sign, list, now_ms)| (sign, some_elements(name, &list, now_ms))));
                continue;
            }
        }
        lines.extend(old.map(|old| (Removed, whole(name, old, before.now_ms))));
        lines.extend(new.map(|new| (Added, whole(name, new, after.now_ms))));
    }
    lines
}

/// Elements that a set has among others.
fn some_elements(name: &str, list: &ElementList, now_ms: u64) -> String {
    let mut texts = Vec::new();
    let Ok(()) = list.each(|element, expires_ms| {
        texts.push(SetText { element, expires_ms, now_ms }.to_string());
        Ok::<(), std::convert::Infallible>(())
    });
    format!("set {name} += {{{}}}", texts.join(", "))
}

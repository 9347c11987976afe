//! The records of the history, as text: a header, and the policy as a whole or as the difference from the version before.
//!
//! A header is a line of JSON behind `#`. The lines behind it are commands of the language, and directives for what has no command: they begin
//! with `@`. Rules that drain are not part of a version: they go with their last connections, at any time.

use crate::author::UserNames;
use crate::convert;
use crate::history::entry::{Entry, EntryAction};
use mmb_language::{parse_command, with_id};
use mmb_log::clock::{read_rfc3339, rfc3339};
use mmb_policy::{LineNote, NoteKey, PatternList, Policy, RuleChange, RuleId, RuleStore};
use mmb_protocol::hex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is told of one entry. It is also the line of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryHeader {
    /// The version that the entry has made; `None`: it has made none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
    /// The time, as RFC 3339 writes it, in UTC.
    pub(crate) time: String,
    /// The user; missing if the system did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<u32>,
    /// The user's name in /etc/passwd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// The process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    /// What was done.
    pub(crate) action: EntryAction,
    /// By which command; shortened.
    pub(crate) command: String,
    /// Rules that were added.
    #[serde(default)]
    pub(crate) added: u64,
    /// Rules that were removed.
    #[serde(default)]
    pub(crate) removed: u64,
    /// Connections that were ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<u64>,
    /// The reason why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// What of the policy is behind the header; missing where there is no version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<RecordContent>,
}

/// What a record has of its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RecordContent {
    /// The policy.
    Whole,
    /// The difference from the version before it.
    Difference,
    /// The version is the same as the one before it.
    Same,
    /// Nothing: the difference of the next version is also that of this one.
    Merged,
    /// Nothing: the version could not be written.
    Lost,
}

impl RecordContent {
    /// Whether the version can be restored.
    pub(crate) fn is_whole_version(self) -> bool {
        match self {
            RecordContent::Whole | RecordContent::Difference | RecordContent::Same => true,
            RecordContent::Merged | RecordContent::Lost => false,
        }
    }
}

/// A record cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("a line is not understood: {0}")]
    Line(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl EntryHeader {
    /// The header of an entry, before anything is known about its content.
    pub(crate) fn new(entry: &Entry, names: &mut UserNames) -> EntryHeader {
        EntryHeader {
            version: entry.version,
            time: rfc3339(entry.at),
            uid: entry.author.uid,
            user: entry.author.uid.and_then(|uid| names.name(uid)),
            pid: entry.author.pid,
            action: entry.action,
            command: entry.command.clone(),
            added: 0,
            removed: 0,
            connections: entry.connections,
            refused: entry.refused.clone(),
            content: None,
        }
    }

    /// Its time, in milliseconds since 1970.
    pub(crate) fn unix_ms(&self) -> Option<u64> {
        read_rfc3339(&self.time).map(unix_ms)
    }

    /// Writes the header as a line.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(b"#")?;
        serde_json::to_writer(&mut *to, self)?;
        to.write_all(b"\n")
    }

    /// Reads a line as a header, if it is one.
    pub(crate) fn read(line: &str) -> Option<Result<EntryHeader, RecordError>> {
        let json = line.strip_prefix('#')?;
        Some(serde_json::from_str(json).map_err(|error| RecordError::Line(error.to_string())))
    }
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The rules that a change adds and removes.
pub(crate) fn counts(before: &Policy, after: &Policy) -> (u64, u64) {
    let (mut added, mut removed) = (0, 0);
    RuleStore::diff(&before.rules, &after.rules).for_each(|change| match change {
        RuleChange::Added(_) => added += 1,
        RuleChange::Removed(_) => removed += 1,
    });
    (added, removed)
}

/// The lines of a whole policy.
pub(crate) fn whole(policy: &Policy) -> impl Iterator<Item = String> + '_ {
    let lists = policy.lists.iter().map(|(name, list)| list_line(name, list));
    let settings = policy.settings.changed().map(|setting| format!("set {setting}"));
    let rules = policy.rules.iter().filter(|rule| !rule.draining).map(|rule| with_id(&rule).to_string());
    let notes = policy.notes.iter().map(|(key, note)| note_line(key, note));
    let sets = policy.sets.iter().flat_map(|(name, set)| mmb_language::set_lines(name, set, policy.now_ms));
    lists.chain(settings).chain(mmb_language::port_switches(policy)).chain(sets).chain(rules).chain(notes)
}

/// A note on a line of a policy file.
#[derive(Serialize, Deserialize)]
struct NoteRecord {
    /// The rule that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<u32>,
    /// Otherwise the line; without one, the end of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    above: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    behind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wording: Option<(String, String)>,
}

fn note_line(key: NoteKey, note: LineNote) -> String {
    let (rule, line) = match key {
        NoteKey::Rule(id) => (Some(id.0), None),
        NoteKey::Line(line) => (None, Some(line)),
        NoteKey::End => (None, None),
    };
    let LineNote { above, behind, wording } = note;
    let record = NoteRecord { rule, line, above, behind, wording };
    // Texts and numbers have a form in JSON.
    format!("@note {}", serde_json::to_string(&record).unwrap_or_default())
}

/// The notes that the lines of rules do not leave as they are to be: those of the policy after, and empty ones where it has none. A rule that is
/// added in the place of another one has none at first.
fn changed_notes(before: &Policy, after: &Policy) -> Vec<String> {
    let added = RuleStore::diff(&before.rules, &after.rules).filter_map(|change| match change {
        RuleChange::Added(rule) => rule.id.filter(|id| after.notes.rule(*id).is_some()).map(NoteKey::Rule),
        RuleChange::Removed(_) => None,
    });
    let added: BTreeSet<NoteKey> = added.collect();
    if Arc::ptr_eq(&before.notes, &after.notes) && added.is_empty() {
        return Vec::new();
    }
    let old: BTreeMap<_, _> = before.notes.iter().collect();
    let new: BTreeMap<_, _> = after.notes.iter().collect();
    let gone = old.keys().filter(|key| !new.contains_key(key)).map(|key| (key.clone(), LineNote::default()));
    let changed = new.iter().filter(|(key, note)| old.get(key) != Some(note) || added.contains(key));
    let changed = changed.map(|(key, note)| (key.clone(), note.clone()));
    gone.chain(changed).map(|(key, note)| note_line(key, note)).collect()
}

/// Appends the lines of a difference; returns false if they would take more than `max` bytes.
pub(crate) fn difference(before: &Policy, after: &Policy, max: usize, out: &mut String) -> bool {
    let new_lists = after.lists.iter().filter(|(name, list)| before.lists.get(*name) != Some(list));
    let settings = convert::changed_settings(&before.settings, &after.settings);
    let gone_ports = before.ports.keys().filter(|port| !after.ports.contains_key(*port));
    let switches = after.ports.iter().filter(|(port, enabled)| before.ports.get(*port) != Some(enabled));
    let first = new_lists
        .map(|(name, list)| list_line(name, list))
        .chain(settings.map(|(_, setting)| format!("set {setting}")))
        .chain(gone_ports.map(|port| format!("@unswitched {port}")))
        .chain(
            switches.map(|(port, enabled)| format!("{} {port}", if *enabled { "enable" } else { "disable" })),
        );
    // Rules that are gone do not keep a set from getting elements of another kind, and rules that are new find theirs.
    let gone_rules = RuleStore::diff(&before.rules, &after.rules).filter_map(|change| match change {
        RuleChange::Removed(rule) if !rule.draining => rule.id.map(|id| format!("del {id}")),
        RuleChange::Added(_) | RuleChange::Removed(_) => None,
    });
    let new_rules = RuleStore::diff(&before.rules, &after.rules).filter_map(|change| match change {
        RuleChange::Added(rule) if !rule.draining => Some(with_id(&rule).to_string()),
        RuleChange::Added(_) | RuleChange::Removed(_) => None,
    });
    let sets = after.sets.iter().flat_map(|(name, set)| match before.sets.get(name) {
        Some(old) if Arc::ptr_eq(old, set) => Vec::new(),
        Some(old) if old.kinds() == set.kinds() => mmb_language::set_difference(name, old, set, after.now_ms),
        _ => mmb_language::set_lines(name, set, after.now_ms),
    });
    let gone_sets = before.sets.keys().filter(|name| !after.sets.contains_key(*name));
    let gone_lists = before.lists.keys().filter(|name| !after.lists.contains_key(*name));
    let notes = changed_notes(before, after);
    let last = gone_lists.map(|name| format!("@unlisted {name}"));
    let last = last.chain(gone_sets.map(|name| format!("del set {name}"))).chain(notes);
    for line in first.chain(gone_rules).chain(sets).chain(new_rules).chain(last) {
        if out.len() + line.len() > max {
            return false;
        }
        out.push_str(&line);
        out.push('\n');
    }
    true
}

/// A list with its patterns, since the file that it came from may be another one by now.
fn list_line(name: &str, list: &PatternList) -> String {
    let mut line = format!("@list {name} ");
    for pattern in list.patterns.iter() {
        line.push_str(&hex::encode(pattern));
        line.push(',');
    }
    // Writing to a string does not fail.
    let _ = write!(line, " {}", list.file);
    line
}

/// Applies a line behind a header to the policy.
pub(crate) fn apply_line(policy: &mut Policy, line: &str) -> Result<(), RecordError> {
    let broken = || RecordError::Line(line.chars().take(200).collect());
    if let Some(list) = line.strip_prefix("@list ") {
        let mut parts = list.splitn(3, ' ');
        let parts = [parts.next(), parts.next(), parts.next()];
        let [Some(name), Some(patterns), Some(file)] = parts else { return Err(broken()) };
        let patterns = patterns.split_terminator(',').map(hex::decode);
        let patterns: Vec<_> = patterns.collect::<Option<_>>().ok_or_else(broken)?;
        policy.lists.insert(name.to_owned(), PatternList::new(file.to_owned(), patterns));
    } else if let Some(note) = line.strip_prefix("@note ") {
        let NoteRecord { rule, line, above, behind, wording } =
            serde_json::from_str(note).map_err(|_| broken())?;
        let key = match (rule, line) {
            (Some(id), _) => NoteKey::Rule(RuleId(id)),
            (None, Some(line)) => NoteKey::Line(line),
            (None, None) => NoteKey::End,
        };
        Arc::make_mut(&mut policy.notes).set(key, LineNote { above, behind, wording });
    } else if let Some(name) = line.strip_prefix("@unlisted ") {
        policy.lists.remove(name).ok_or_else(broken)?;
    } else if let Some(port) = line.strip_prefix("@unswitched ") {
        policy.ports.remove(port).ok_or_else(broken)?;
    } else {
        let (command, _) = parse_command(line).map_err(|_| broken())?;
        command.run(policy).map_err(|_| broken())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_language::parse_policy_with;
    use proptest::prelude::*;

    fn policy(text: &str) -> Policy {
        let reader =
            |file: &str| PatternList::parse(file.to_owned(), b"one\ntwo\xff\n").map_err(|e| e.to_string());
        parse_policy_with(text, &reader).expect("a policy").0
    }

    fn applied(mut policy: Policy, lines: impl IntoIterator<Item = String>) -> Policy {
        lines.into_iter().for_each(|line| apply_line(&mut policy, &line).expect("applies"));
        policy
    }

    const BEFORE: &str = "set poll spin\nset conn pickup strict\ndisable lan\nenable wan\npatterns a /x\npatterns b \"/a b\"\nset gone {1-5}\nset kind {1, 2}\nset some {10.0.0.0/8, 192.0.2.1, 2001:db8::/32}\nset empty {}\n\
                          add id 1 tcp-dport @kind drop\nadd id 3 tcp-dport 80 drop\n\
                          add-stateful id 5 tcp-dport 7 stream @a close\nadd-stateful id 6 draining all accept\nadd id 9 name x all mod ip-ttl 3\n";
    const AFTER: &str = "set conn pickup strict\nset conn max 5\nenable lan\npatterns b /y\nset kind {10.0.0.1}\nset some {10.0.0.0/8, 192.0.2.2}\nset new {7}\nadd id 1 ip-saddr @kind drop\nadd id 2 ip-daddr != @some tcp-sport @new drop\nadd id 3 tcp-dport 81 drop\nadd id 4 udp-dport dns accept\nadd id 9 name x all mod ip-ttl 3\n";

    #[test]
    fn a_policy_is_read_as_it_was_written() {
        let before = policy(BEFORE);
        let mut kept = before.clone();
        kept.delete(mmb_policy::RuleId(6)).expect("is there");
        assert_eq!(applied(Policy::default(), whole(&before)), kept);
    }

    #[test]
    fn a_difference_leads_from_one_policy_to_the_other() {
        let (before, after) = (policy(BEFORE), policy(AFTER));
        for (from, to) in
            [(&before, &after), (&after, &before), (&before, &Policy::default()), (&after, &after)]
        {
            let mut text = String::new();
            assert!(difference(from, to, usize::MAX, &mut text));
            let start = applied(Policy::default(), whole(from));
            let end = applied(Policy::default(), whole(to));
            assert_eq!(applied(start, text.lines().map(str::to_owned)), end, "{text}");
        }
        assert!(!difference(&before, &after, 50, &mut String::new()));
    }

    fn drawn() -> impl Strategy<Value = Policy> {
        mmb_testkit::strategy::policy().prop_filter_map("no policy", |lines| {
            let commented = lines.iter().map(|line| format!("# {line}\n{line} # x\n"));
            mmb_language::parse_policy(&commented.collect::<String>()).ok().map(|(policy, _)| policy)
        })
    }

    proptest! {
        /// From any policy to any other one; comments and wording too.
        #[test]
        fn a_difference_leads_to_any_policy(from in drawn(), to in drawn()) {
            let mut text = String::new();
            prop_assert!(difference(&from, &to, usize::MAX, &mut text));
            let start = applied(Policy::default(), whole(&from));
            let end = applied(start, text.lines().map(str::to_owned));
            prop_assert_eq!(&end, &to, "{}", text);
            prop_assert_eq!(&end.notes, &to.notes, "{}", text);
        }
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        for line in [
            "add tcp-dprt 80 drop",
            "del 7",
            "@list a",
            "@list a zz, /x",
            "@unlisted a",
            "@unswitched lan",
            "@x",
            "",
        ] {
            assert!(apply_line(&mut Policy::default(), line).is_err(), "{line}");
        }
    }
}

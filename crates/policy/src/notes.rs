//! What a policy file says beside its meaning: comments, and the wording of rules, which may have names of values. `save` writes both again.
//!
//! Notes belong to rules by number, and to other lines by what they are about. A policy with notes equals one without. What would take
//! more than [`PolicyNotes::MAX_BYTES`] is not noted.

use crate::rule::RuleId;
use std::collections::BTreeMap;

/// The memory that a note takes beside its texts, about.
const OVERHEAD: usize = 160;

/// The notes of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyNotes {
    rules: BTreeMap<RuleId, LineNote>,
    /// By `set NAME`, `port NAME` or `patterns NAME`.
    lines: BTreeMap<String, LineNote>,
    /// Comments behind the last line.
    end: String,
    bytes: usize,
}

/// What a file says beside the meaning of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineNote {
    /// The lines of comments above it, without the last line break; empty lines around them stay.
    pub above: String,
    /// The comment behind it, with its `#`.
    pub behind: String,
    /// How the file words a rule, if that is not how it is printed: the first word, and what is behind it, without the number.
    pub wording: Option<(String, String)>,
}

/// What a note belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteKey {
    /// A rule.
    Rule(RuleId),
    /// Another line, by what it is about: `set NAME`, `port NAME` or `patterns NAME`.
    Line(String),
    /// The end of the file, where only [`LineNote::above`] counts.
    End,
}

impl LineNote {
    /// Returns whether nothing is noted.
    pub fn is_empty(&self) -> bool {
        self.above.is_empty() && self.behind.is_empty() && self.wording.is_none()
    }

    fn bytes(&self) -> usize {
        let wording = self.wording.as_ref().map_or(0, |(verb, rest)| verb.len() + rest.len());
        OVERHEAD + self.above.len() + self.behind.len() + wording
    }
}

impl PolicyNotes {
    /// The most bytes of all notes.
    pub const MAX_BYTES: usize = 16 << 20;

    /// The most rules of a file whose wording is compared with how they are printed.
    pub const MAX_WORDED_RULES: usize = 100_000;

    /// Notes something, in the place of what was noted there before. Returns false if there is no room.
    pub fn set(&mut self, key: NoteKey, note: LineNote) -> bool {
        self.remove(&key);
        if note.is_empty() {
            return true;
        }
        if self.bytes + note.bytes() > PolicyNotes::MAX_BYTES {
            return false;
        }
        self.bytes += note.bytes();
        match key {
            NoteKey::Rule(id) => drop(self.rules.insert(id, note)),
            NoteKey::Line(line) => drop(self.lines.insert(line, note)),
            NoteKey::End => self.end = note.above,
        }
        true
    }

    /// Forgets what is noted there.
    pub fn remove(&mut self, key: &NoteKey) {
        let removed = match key {
            NoteKey::Rule(id) => self.rules.remove(id),
            NoteKey::Line(line) => self.lines.remove(line),
            NoteKey::End if self.end.is_empty() => None,
            NoteKey::End => Some(LineNote { above: std::mem::take(&mut self.end), ..LineNote::default() }),
        };
        self.bytes -= removed.map_or(0, |note| note.bytes());
    }

    /// The note of a rule.
    pub fn rule(&self, id: RuleId) -> Option<&LineNote> {
        self.rules.get(&id)
    }

    /// The note of a line by what it is about.
    pub fn line(&self, about: &str) -> Option<&LineNote> {
        self.lines.get(about)
    }

    /// Comments behind the last line.
    pub fn end(&self) -> &str {
        &self.end
    }

    /// All notes.
    pub fn iter(&self) -> impl Iterator<Item = (NoteKey, LineNote)> + '_ {
        let rules = self.rules.iter().map(|(id, note)| (NoteKey::Rule(*id), note.clone()));
        let lines = self.lines.iter().map(|(line, note)| (NoteKey::Line(line.clone()), note.clone()));
        let end = LineNote { above: self.end.clone(), ..LineNote::default() };
        rules.chain(lines).chain((!self.end.is_empty()).then_some((NoteKey::End, end)))
    }

    /// Forgets the notes of all rules.
    pub(crate) fn forget_rules(&mut self) {
        for note in std::mem::take(&mut self.rules).into_values() {
            self.bytes -= note.bytes();
        }
    }

    /// Forgets how a rule is worded, which has changed.
    pub(crate) fn forget_wording(&mut self, id: RuleId) {
        if let Some(note) = self.rules.get(&id).cloned() {
            self.set(NoteKey::Rule(id), LineNote { wording: None, ..note });
        }
    }

    /// Whether a rule has a note.
    pub(crate) fn has(&self, id: RuleId) -> bool {
        self.rules.contains_key(&id)
    }

    /// The notes with other numbers for the rules.
    pub(crate) fn renumbered(&self, numbers: impl Iterator<Item = (RuleId, RuleId)>) -> PolicyNotes {
        let rules = numbers.filter_map(|(old, new)| Some((new, self.rules.get(&old)?.clone())));
        PolicyNotes { rules: rules.collect(), ..self.clone() }
    }
}

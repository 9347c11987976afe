//! Patterns as they are given.

use std::hash::Hasher;

/// What to find.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The text or regex.
    pub kind: PatternKind,
    /// Letters of ASCII match in either case.
    pub ignores_case: bool,
    /// Told with each match. Several patterns may have the same.
    pub id: u32,
}

/// A text or a regex.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PatternKind {
    /// These bytes, of which any may be zero.
    Text(Vec<u8>),
    /// A regex over bytes, without the slashes around it.
    Regex(String),
}

impl Pattern {
    /// A text that is found as it is.
    pub fn text(id: u32, bytes: impl Into<Vec<u8>>) -> Pattern {
        Pattern { kind: PatternKind::Text(bytes.into()), ignores_case: false, id }
    }

    /// A regex.
    pub fn regex(id: u32, source: impl Into<String>) -> Pattern {
        Pattern { kind: PatternKind::Regex(source.into()), ignores_case: false, id }
    }

    /// The same in either case.
    pub fn ignoring_case(self) -> Pattern {
        Pattern { ignores_case: true, ..self }
    }

    /// The bytes of the text, or of the regex as it is written.
    #[expect(clippy::len_without_is_empty, reason = "a pattern that is accepted is never empty")]
    pub fn len(&self) -> usize {
        match &self.kind {
            PatternKind::Text(bytes) => bytes.len(),
            PatternKind::Regex(source) => source.len(),
        }
    }

    /// About as a rule has it, in one line and shortened.
    pub fn shown(&self) -> String {
        const SHOWN: usize = 60;
        let cut = |text: String| match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        };
        match &self.kind {
            PatternKind::Text(bytes) => format!("\"{}\"", cut(bytes.escape_ascii().to_string())),
            PatternKind::Regex(source) => format!("/{}/", cut(source.clone())),
        }
    }

    /// Adds all of it, with its length, to a digest.
    pub(crate) fn digest(&self, into: &mut impl Hasher) {
        let (kind, bytes) = match &self.kind {
            PatternKind::Text(bytes) => (0, bytes.as_slice()),
            PatternKind::Regex(source) => (1, source.as_bytes()),
        };
        into.write_u8(kind);
        into.write_u8(u8::from(self.ignores_case));
        into.write_u32(self.id);
        into.write_u64(bytes.len() as u64);
        into.write(bytes);
    }
}

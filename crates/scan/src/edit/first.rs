//! What comes first in some bytes.

/// The first match or begun match of some patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First {
    pub start: usize,
    pub what: What,
}

/// What starts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// More bytes may make a match, or a longer one.
    Begun,
    /// The longest match, and the first pattern that has it.
    Match { end: usize, pattern: u32 },
}

impl First {
    /// The first of two: the one that starts earlier; a begun one; the longer one; the one with the lower pattern.
    #[inline]
    pub(super) fn of(one: Option<First>, other: Option<First>) -> Option<First> {
        let (Some(first), Some(second)) = (one, other) else { return one.or(other) };
        Some(if second.key() < first.key() { second } else { first })
    }

    fn key(&self) -> (usize, usize, u32) {
        match self.what {
            What::Begun => (self.start, 0, 0),
            What::Match { end, pattern } => (self.start, usize::MAX - end, pattern),
        }
    }
}

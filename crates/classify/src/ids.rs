//! Ids of rules and lists.

use mmb_base::{Id, id_types};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;

/// A rule's place in the compiled policy: its matches are reported by it, and its action and counters are stored under it. It is valid
/// as long as the rule is in the policy, and reused later. Users know a rule by its `RuleId`.
///
/// A slot carries a *mark*, a number below [`RuleSlot::MARKS`] that whoever inserts the rule chooses and whoever gets the match sees, without a
/// look at a table that may be far away. The mark is no part of the identity: slots that differ in it are equal.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct RuleSlot(NonZeroU32);

/// The bits of a slot's word behind its mark.
const MARK: u32 = 28;

impl RuleSlot {
    /// The number of marks.
    pub const MARKS: u8 = 4;

    /// The same slot with a mark below [`RuleSlot::MARKS`].
    #[must_use]
    pub fn marked(self, mark: u8) -> RuleSlot {
        let number = NonZeroU32::new(self.number()).unwrap_or(NonZeroU32::MIN);
        RuleSlot(number | u32::from(mark & (RuleSlot::MARKS - 1)) << MARK)
    }

    /// Its mark; 0 if it was not marked.
    #[inline(always)]
    pub fn mark(self) -> u8 {
        (self.0.get() >> MARK) as u8
    }

    /// Number and mark.
    #[inline(always)]
    pub(crate) fn word(self) -> u32 {
        self.0.get()
    }

    /// Reverses [`RuleSlot::word`].
    #[inline(always)]
    pub(crate) fn from_word(word: u32) -> Option<RuleSlot> {
        NonZeroU32::new(word).map(RuleSlot)
    }
}

impl Id for RuleSlot {
    const FIRST: RuleSlot = RuleSlot(NonZeroU32::MIN);

    #[inline(always)]
    fn new(number: u32) -> Option<RuleSlot> {
        NonZeroU32::new(number).filter(|number| number.get() >> MARK == 0).map(RuleSlot)
    }

    #[inline(always)]
    fn number(self) -> u32 {
        self.0.get() & ((1 << MARK) - 1)
    }
}

impl PartialEq for RuleSlot {
    #[inline(always)]
    fn eq(&self, other: &RuleSlot) -> bool {
        self.number() == other.number()
    }
}

impl Eq for RuleSlot {}

impl PartialOrd for RuleSlot {
    fn partial_cmp(&self, other: &RuleSlot) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RuleSlot {
    fn cmp(&self, other: &RuleSlot) -> std::cmp::Ordering {
        self.number().cmp(&other.number())
    }
}

impl Hash for RuleSlot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number().hash(state);
    }
}

impl fmt::Debug for RuleSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RuleSlot({})", self.number())
    }
}

id_types! {
    /// A list of rules that have the same key.
    pub(crate) struct ListId;

    /// The only rule of a key, which has conditions.
    pub(crate) struct RangedId;

    /// A short list, among those of its shape.
    pub(crate) struct ShortId;
}

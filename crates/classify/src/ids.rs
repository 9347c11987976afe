//! Ids of rules and lists, and how tables store them.

use crate::ranged::ListShape;
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
    pub(crate) fn of_word(word: u32) -> Option<RuleSlot> {
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

/// The kinds of rules of a key, in the upper two bits of a word: tables tell slots, rules with conditions, lists and short lists by them.
const KIND: u32 = 30;
/// The shape of a short list, below its kind. Words with a number behind all shapes are none.
const SHAPE: u32 = 26;

/// The rules of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRules {
    /// A single rule without conditions.
    Rule(RuleSlot),
    /// A single rule with conditions that are not about a TCP option of some kind.
    Ranged(RangedId),
    /// Several rules, or one that is found by a TCP option.
    List(ListId),
    /// Several rules, in a short list.
    Short(ListShape, ShortId),
}

impl KeyRules {
    /// Values of [`KeyRules::kind`].
    pub(crate) const RULE: u32 = 0;
    pub(crate) const RANGED: u32 = 1;
    pub(crate) const LIST: u32 = 2;
    pub(crate) const SHORT: u32 = 3;
    /// Short lists of a shape have numbers below this one.
    pub(crate) const SHORT_END: u32 = 1 << SHAPE;
    /// Bits of a shape.
    pub(crate) const SHAPE_BITS: u32 = KIND - SHAPE;

    /// The word that tables store.
    pub(crate) fn packed(self) -> u32 {
        match self {
            KeyRules::Rule(slot) => slot.word(),
            KeyRules::Ranged(rule) => KeyRules::RANGED << KIND | rule.number(),
            KeyRules::List(list) => KeyRules::LIST << KIND | list.number(),
            KeyRules::Short(shape, list) => KeyRules::SHORT << KIND | shape.number() << SHAPE | list.number(),
        }
    }

    /// Reverses [`KeyRules::packed`].
    #[inline(always)]
    pub(crate) fn unpacked(word: u32) -> Option<KeyRules> {
        let number = KeyRules::number(word);
        match KeyRules::kind(word) {
            KeyRules::RULE => RuleSlot::of_word(number).map(KeyRules::Rule),
            KeyRules::RANGED => RangedId::new(number).map(KeyRules::Ranged),
            KeyRules::LIST => ListId::new(number).map(KeyRules::List),
            _ => KeyRules::short(word).map(|(shape, list)| KeyRules::Short(shape, list)),
        }
    }

    /// The kind of a packed word.
    #[inline(always)]
    pub(crate) fn kind(word: u32) -> u32 {
        word >> KIND
    }

    /// The number of the slot, the rule or the list of a packed word that is none of a short list.
    #[inline(always)]
    pub(crate) fn number(word: u32) -> u32 {
        word & !(3 << KIND)
    }

    /// Shape and number of a packed word of a short list; none for words that are none.
    fn short(word: u32) -> Option<(ListShape, ShortId)> {
        Some((
            ListShape::new(word >> SHAPE & ((1 << KeyRules::SHAPE_BITS) - 1))?,
            ShortId::new(KeyRules::short_index(word) as u32)?,
        ))
    }

    /// The number of the list of a packed word of a short list, as an index.
    #[inline(always)]
    pub(crate) fn short_index(word: u32) -> usize {
        (word & (KeyRules::SHORT_END - 1)) as usize
    }

    /// Kind and shape of a packed word, the shape in the lower [`KeyRules::SHAPE_BITS`] bits. Of words that have no shape these may be any.
    #[inline(always)]
    pub(crate) fn kind_and_shape(word: u32) -> usize {
        (word >> SHAPE) as usize
    }
}

/// A key, and the packed [`KeyRules`] that it led to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) key: u8,
    pub(crate) rules: u32,
}

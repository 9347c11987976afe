//! The rules that a key leads to, packed into a word of a table.

use crate::ids::{ListId, RangedId, RuleSlot, ShortId};
use crate::ranged::ListShape;
use mmb_base::Id;

/// The kind of a packed word (slot, rule with conditions, list or short list) is in its upper two bits.
const KIND: u32 = 30;
/// The shape of a short list is in the bits below the kind. A number that is no shape marks a word that is no short list.
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
            KeyRules::RULE => RuleSlot::from_word(number).map(KeyRules::Rule),
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

    /// The number in a packed word of a slot, a rule or a list. Not for short lists.
    #[inline(always)]
    pub(crate) fn number(word: u32) -> u32 {
        word & !(3 << KIND)
    }

    /// Shape and number of a packed word of a short list; `None` if the word has no valid shape or number.
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

    /// Kind and shape of a packed word, the shape in the lower [`KeyRules::SHAPE_BITS`] bits. If the kind is not `SHORT`, the shape bits are arbitrary.
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

//! Ids of rules and lists, and how tables store them.

use mmb_base::{Id, id_types};

id_types! {
    /// A rule's place in the compiled policy: its matches are reported by it, and its action and counters are stored under it. It is valid
    /// as long as the rule is in the policy, and reused later. Users know a rule by its `RuleId`.
    pub struct RuleSlot;

    /// A list of rules that have the same key.
    pub(crate) struct ListId;

    /// The only rule of a key, which has conditions.
    pub(crate) struct RangedId;
}

/// The kinds of rules of a key, in the upper two bits of a word: tables tell slots, lists and rules with conditions by them. Words with both bits
/// are none.
const KIND: u32 = 30;

/// The rules of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRules {
    /// A single rule without conditions.
    Rule(RuleSlot),
    /// A single rule with conditions that are not about a TCP option of some kind.
    Ranged(RangedId),
    /// Several rules, or one that is found by a TCP option.
    List(ListId),
}

impl KeyRules {
    /// Values of [`KeyRules::kind`].
    pub(crate) const RULE: u32 = 0;
    pub(crate) const RANGED: u32 = 1;
    pub(crate) const LIST: u32 = 2;

    /// The word that tables store.
    pub(crate) fn packed(self) -> u32 {
        match self {
            KeyRules::Rule(slot) => slot.number(),
            KeyRules::Ranged(rule) => KeyRules::RANGED << KIND | rule.number(),
            KeyRules::List(list) => KeyRules::LIST << KIND | list.number(),
        }
    }

    /// Reverses [`KeyRules::packed`].
    #[inline(always)]
    pub(crate) fn unpacked(word: u32) -> Option<KeyRules> {
        let number = KeyRules::number(word);
        match KeyRules::kind(word) {
            KeyRules::RULE => RuleSlot::new(number).map(KeyRules::Rule),
            KeyRules::RANGED => RangedId::new(number).map(KeyRules::Ranged),
            KeyRules::LIST => ListId::new(number).map(KeyRules::List),
            _ => None,
        }
    }

    /// The kind of a packed word.
    #[inline(always)]
    pub(crate) fn kind(word: u32) -> u32 {
        word >> KIND
    }

    /// The number of the slot, the rule or the list of a packed word.
    #[inline(always)]
    pub(crate) fn number(word: u32) -> u32 {
        word & !(3 << KIND)
    }
}

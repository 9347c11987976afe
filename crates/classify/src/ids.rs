//! Ids of rules and lists, and how tables store them.

use mmb_base::{Id, id_types};

id_types! {
    /// A rule's place in the compiled policy: its matches are reported by it, and its action and counters are stored under it. It is valid
    /// as long as the rule is in the policy, and reused later. Users know a rule by its `RuleId`.
    pub struct RuleSlot;

    /// A list of rules that have the same key.
    pub(crate) struct ListId;
}

/// The most rule slots: tables need a bit to tell slots from lists.
const LIST: u32 = 1 << 31;

/// The rules of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRules {
    /// A single rule without conditions.
    Rule(RuleSlot),
    /// Several rules, or one with conditions.
    List(ListId),
}

impl KeyRules {
    /// The word that tables store.
    pub(crate) fn packed(self) -> u32 {
        match self {
            KeyRules::Rule(slot) => slot.number(),
            KeyRules::List(list) => LIST | list.number(),
        }
    }

    /// Reverses [`KeyRules::packed`].
    #[inline(always)]
    pub(crate) fn unpacked(word: u32) -> Option<KeyRules> {
        match word & LIST {
            0 => RuleSlot::new(word).map(KeyRules::Rule),
            _ => ListId::new(word & !LIST).map(KeyRules::List),
        }
    }
}

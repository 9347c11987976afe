//! How a packet stands to connections, as rules ask for it: `ct new`, `ct {established, related}`, `! ct invalid`.
//!
//! The words mean what they mean to Linux's `ctstate`; `reply` is its `ctdir`. Several may hold of one packet, so that constraints are
//! about the few combinations that there are.

use crate::field::FieldId;
use crate::rule::{Cond, Match, NumberItem, Rule, Test};

/// How a packet stands to connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CtState {
    /// Nobody follows what it is of: an ICMP message that is neither query, answer nor error; a frame that is not IP.
    #[default]
    Untracked,
    /// Of no connection, and it could begin one; or of one that was not answered yet, from whom began it.
    New,
    /// Of a connection that both ends were seen of, from whom began it.
    Established,
    /// Of a connection, from the other end.
    EstablishedReply,
    /// An ICMP error about a connection, to the other end.
    Related,
    /// An ICMP error about a connection, to whom began it.
    RelatedReply,
    /// Not believed by its connection, or of none and it can begin none.
    Invalid,
}

impl CtState {
    /// All, by their numbers.
    pub const ALL: [CtState; 7] = [
        CtState::Untracked,
        CtState::New,
        CtState::Established,
        CtState::EstablishedReply,
        CtState::Related,
        CtState::RelatedReply,
        CtState::Invalid,
    ];
}

/// A set of [`CtState`]s: the bit of each one's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtStates(u8);

impl CtStates {
    /// Every state.
    pub const ALL: CtStates = CtStates((1 << CtState::ALL.len()) - 1);

    fn of(states: &[CtState]) -> CtStates {
        CtStates(states.iter().fold(0, |bits, state| bits | 1 << *state as u8))
    }

    /// What a word of `ct` means, by its number in the table of fields.
    fn named(number: u128) -> CtStates {
        use CtState::{Established, EstablishedReply, Invalid, New, Related, RelatedReply};
        match number {
            0 => CtStates::of(&[New]),
            1 => CtStates::of(&[Established, EstablishedReply]),
            2 => CtStates::of(&[Related, RelatedReply]),
            3 => CtStates::of(&[EstablishedReply, RelatedReply]),
            4 => CtStates::of(&[Invalid]),
            _ => CtStates(0),
        }
    }

    /// The states that satisfy constraints, of which only those on `ct` count.
    pub fn asked_by<'m>(matches: impl Iterator<Item = &'m Match>) -> CtStates {
        let mut states = CtStates::ALL;
        for constraint in matches.filter(|constraint| constraint.field.id == FieldId::Ct) {
            let Test::Number(cond, set) = &constraint.test else { continue };
            let named = set.0.iter().fold(0, |bits, item| match item {
                NumberItem::One(number) => bits | CtStates::named(*number).0,
                NumberItem::Range(..) | NumberItem::Prefix(..) => bits,
            });
            let wanted = (*cond == Cond::Eq) != constraint.negated;
            states.0 &= if wanted { named } else { !named };
        }
        states
    }

    /// Whether a state is one of them.
    #[inline]
    pub fn has(self, state: CtState) -> bool {
        self.0 >> state as u8 & 1 == 1
    }

    /// The bits of the states that are not among them.
    #[inline]
    pub fn unwanted(self) -> u8 {
        !self.0 & CtStates::ALL.0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Rule {
    /// The states of packets that the rule matches: all, unless it asks for `ct`.
    pub fn ct_states(&self) -> CtStates {
        CtStates::asked_by(self.matches.iter())
    }
}

//! The relation of a packet to connections, as rules ask for it: `ct new`, `ct {established, related}`, `! ct invalid`.
//!
//! The words mean what they mean to Linux's `ctstate`; `reply` is its `ctdir`. Several may hold of one packet, so that constraints are
//! about the few combinations that there are.

use crate::field::FieldId;
use crate::rule::{Cond, Match, NumberItem, Rule, Test};

/// The relation of a packet to connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CtState {
    /// Nothing that is tracked: an ICMP message that is neither query, answer nor error; a frame that is not IP.
    #[default]
    Untracked,
    /// A packet of no connection that may begin one, or a packet from the initiator of a connection that has no answer yet.
    New,
    /// A packet from the initiator of a connection of which both ends have sent packets.
    Established,
    /// A packet of a connection from its other end.
    EstablishedReply,
    /// An ICMP error about a connection, sent to its other end.
    Related,
    /// An ICMP error about a connection, sent to its initiator.
    RelatedReply,
    /// A packet that the state of its connection does not allow, or a packet of no connection that cannot begin one.
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

    /// The states that a word of `ct` stands for, by its number in the table of fields.
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

    /// Returns whether the set has a state.
    #[inline]
    pub fn has(self, state: CtState) -> bool {
        self.0 >> state as u8 & 1 == 1
    }

    /// The bits of the states that are not among them.
    #[inline]
    pub fn unwanted(self) -> u8 {
        !self.0 & CtStates::ALL.0
    }

    /// Returns whether the set is empty.
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

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
    pub(crate) fn asked_by<'m>(matches: impl Iterator<Item = &'m Match>) -> CtStates {
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
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Rule {
    /// The states of packets that the rule matches: all, unless it asks for `ct`.
    pub fn ct_states(&self) -> CtStates {
        CtStates::asked_by(self.matches.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, parse_command};

    fn states(constraints: &str) -> Vec<CtState> {
        let (command, _) = parse_command(&format!("add {constraints} drop")).expect("a rule");
        let Command::Add(rule) = command else { panic!("{command:?}") };
        CtState::ALL.into_iter().filter(|state| rule.ct_states().has(*state)).collect()
    }

    #[test]
    fn words_mean_states() {
        use CtState::*;
        assert_eq!(states("ip-ttl 3"), CtState::ALL);
        assert_eq!(states("ct new"), [New]);
        assert_eq!(
            states("ct {established, related}"),
            [Established, EstablishedReply, Related, RelatedReply]
        );
        assert_eq!(states("ct established ct reply"), [EstablishedReply]);
        assert_eq!(states("ct established ! ct reply"), [Established]);
        assert_eq!(states("ct != invalid"), states("! ct invalid"));
        assert_eq!(states("ct != invalid").len(), 6);
        assert_eq!(states("! ct != invalid"), [Invalid]);
    }

    #[test]
    fn what_no_packet_is_cannot_be_asked() {
        for line in [
            "add ct new ct reply drop",
            "add ct invalid ! ct invalid drop",
            "add-stateful ct established accept",
        ] {
            let errors = parse_command(line).expect_err(line);
            assert!(errors[0].to_string().contains("can never match"), "{line}: {errors:?}");
        }
        for line in
            ["add ct drop", "add ct 1 drop", "add ct new-reply drop", "add ct > new drop", "add ct open drop"]
        {
            assert!(parse_command(line).is_err(), "{line}");
        }
        assert!(parse_command("add-stateful ct new tcp-dport 80 accept").is_ok());
    }
}

//! Which packets connections believe, and which may begin one.

use super::{Ends, Flows, Standing, relate, sources};
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use mmb_conn::nat::Translated;
use mmb_conn::{CloseReason, ConnId, Direction, Invalid, Judged, State, Tuple};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, Packet};
use mmb_policy::CtState;
use std::sync::atomic::Ordering;

/// How a packet stands to connections when it is decided on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judgement {
    pub(crate) standing: Standing,
    /// This connection is over if the packet begins a new one.
    pub(crate) ends: Ends,
    /// Its connection does not believe it. `None` says nothing of ordinary packets, unless they are judged early.
    pub(crate) invalid: Option<Invalid>,
}

impl Flows {
    /// How a packet stands to connections now, and whether it is believed. Ordinary packets of a connection that goes on are judged
    /// `early` or not at all; [`Flows::touch`] judges them.
    pub(crate) fn judge(
        &mut self,
        at: usize,
        packet: &Packet<'_>,
        layout: &Layout,
        early: bool,
    ) -> Judgement {
        let standing = self.standing(at, packet.port);
        let judgement = |standing| Judgement { standing, ends: None, invalid: None };
        let Standing::Member(id, direction) = standing else {
            return judgement(self.beginning(at, standing, packet, layout));
        };
        if !early && self.is_steady(at) && self.table.expires_ms(id, self.keeper.now_ms) > 0 {
            return judgement(standing);
        }
        match self.judge_member((id, direction), packet, layout) {
            Judged::Stays | Judged::Noted | Judged::Moves(_) => judgement(standing),
            Judged::Invalid(kind) => Judgement { invalid: Some(kind), ..judgement(standing) },
            // It gets the rules that it matches itself.
            Judged::Reopens => {
                let standing = self.beginning(at, self.anew(at), packet, layout);
                Judgement { ends: Some((id, CloseReason::Finished)), ..judgement(standing) }
            }
        }
    }

    /// What [`Flows::touch`] would make of a packet.
    pub(crate) fn judge_member(
        &self,
        (id, direction): (ConnId, Direction),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Judged {
        let signal = self.signal(id, direction, packet, layout);
        let soundness = || transport_soundness(packet.bytes(), layout);
        self.table.judge(id, direction, self.keeper.now_ms, signal.as_ref(), soundness)
    }

    /// How a packet of no connection stands: TCP and SCTP begin by some packets only.
    fn beginning(&mut self, at: usize, standing: Standing, packet: &Packet<'_>, layout: &Layout) -> Standing {
        if matches!(standing, Standing::New)
            && let Some(signal) = relate::signal(packet, layout)
            && let Some(kind) = self.table.cannot_begin(&signal)
        {
            return self.disbelieve(at, kind);
        }
        standing
    }

    /// A packet can make no connection.
    pub(crate) fn disbelieve(&mut self, at: usize, kind: Invalid) -> Standing {
        self.standings[at] = Standing::Invalid(kind);
        self.standings[at]
    }

    /// Counts a packet that can make no connection though rules ask for one. An error is why it must not pass; `maps` tells that it
    /// would not leave as it came if it could.
    pub(crate) fn refuse_beginning(&self, kind: Invalid, maps: bool, strict: bool) -> Result<(), DropReason> {
        self.keeper.cells.count_invalid(kind);
        match kind {
            Invalid::NotSyn if maps || strict => Err(DropReason::ConnNotSyn),
            _ if maps || self.drops_invalid => Err(DropReason::ConnInvalid),
            _ => Ok(()),
        }
    }

    /// Whether a connection believes a packet that does not pass for other reasons.
    ///
    /// # Errors
    /// It does not, which is counted.
    pub(crate) fn believe(
        &self,
        member: (ConnId, Direction),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(), Invalid> {
        match self.judge_member(member, packet, layout) {
            Judged::Invalid(kind) => {
                self.count_invalid(kind);
                Err(kind)
            }
            Judged::Stays | Judged::Noted | Judged::Moves(_) | Judged::Reopens => Ok(()),
        }
    }

    /// Whether a connection's packets that go on are all alike to rules: both ends were seen, and it is not over.
    pub(crate) fn is_lasting(&self, id: ConnId) -> bool {
        self.table.is_lasting(id, self.keeper.now_ms)
    }

    /// Whether a packet that went forward is the SYN or INIT of a connection that was not answered.
    pub(crate) fn is_repeated_syn(&self, id: ConnId, packet: &Packet<'_>, layout: &Layout) -> bool {
        self.table.get(id).state == State::SynSent
            && relate::signal(packet, layout).is_some_and(|signal| signal.opens())
            && transport_soundness(packet.bytes(), layout) != Soundness::Wrong
    }

    /// Whether a connection was made by these stateful rules, given by slot in order.
    pub(crate) fn is_made_by(
        &self,
        snapshot: &Snapshot,
        id: ConnId,
        slots: impl Iterator<Item = u32>,
    ) -> bool {
        let stamps = slots.filter_map(|slot| snapshot.stateful(slot)).map(|rule| rule.stamp);
        self.keeper.sets.rules(sources::rule_set(self.table.get(id))).map(|rule| rule.stamp).eq(stamps)
    }

    /// How rules see a packet.
    pub(crate) fn ct_state(
        &mut self,
        at: usize,
        (standing, invalid): (Standing, Option<Invalid>),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> CtState {
        let state = match standing {
            Standing::Member(..) if invalid.is_some() => CtState::Invalid,
            Standing::Member(_, Direction::Reply) | Standing::Fragment(_, Direction::Reply, _) => {
                CtState::EstablishedReply
            }
            Standing::Member(id, Direction::Forward) | Standing::Fragment(id, Direction::Forward, _) => {
                let connection = self.table.get(id);
                match connection.state {
                    State::SynSent | State::Unreplied => CtState::New,
                    _ if connection.packets[Direction::Reply as usize] == 0 => CtState::New,
                    _ => CtState::Established,
                }
            }
            Standing::Error(_, Direction::Forward, _) => CtState::Related,
            Standing::Error(_, Direction::Reply, _) => CtState::RelatedReply,
            Standing::New => CtState::New,
            Standing::Invalid(_) => CtState::Invalid,
            Standing::Apart => relate::state_apart(packet.bytes(), layout),
            Standing::Elsewhere(_) | Standing::Refused(_) | Standing::Held(_) => CtState::Untracked,
        };
        self.states[at] = state;
        state
    }

    /// How rules saw a packet when it was decided on.
    pub(crate) fn known_ct_state(&self, at: usize) -> CtState {
        self.states[at]
    }

    /// Counts a packet that its connection does not believe.
    pub(crate) fn count_invalid(&self, kind: Invalid) {
        self.keeper.cells.count_invalid(kind);
    }

    /// Whether invalid packets are dropped.
    #[inline]
    pub(crate) fn drops_invalid(&self) -> bool {
        self.drops_invalid
    }

    /// Whether a packet of no connection comes to an outside end that leads to an inside one, from whom it may.
    pub(crate) fn is_admitted(&self, arrived: Tuple) -> bool {
        let common = &self.keeper.common;
        if common.bindings.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // What cannot be noted for want of memory is dropped when it would begin.
        let Ok(entered) = common.nat().enter(Translated { sent: arrived, binding: 0 }) else { return true };
        common.release(entered.binding);
        entered.sent != arrived
    }
}

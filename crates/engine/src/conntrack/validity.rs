//! Which packets connections believe, and which may begin one.

use super::{Conntrack, FlowState, Replaced, key, sources};
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use mmb_conn::nat::Translated;
use mmb_conn::{CloseReason, ConnId, ConnState, Direction, Invalid, TcpOutcome, Tuple};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, Packet};
use mmb_policy::CtState;
use std::sync::atomic::Ordering;

/// How a packet stands to connections when it is decided on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assessment {
    pub(crate) flow_state: FlowState,
    /// This connection is over if the packet begins a new one.
    pub(crate) replaced: Replaced,
    /// Its connection does not believe it. `None` says nothing of ordinary packets, unless they are judged early.
    pub(crate) invalid: Option<Invalid>,
}

impl Conntrack {
    /// How a packet stands to connections now, and whether it is believed. Ordinary packets of a connection that goes on are judged
    /// `early` or not at all; [`Conntrack::touch`] judges them.
    pub(crate) fn assess(
        &mut self,
        at: usize,
        packet: &Packet<'_>,
        layout: &Layout,
        early: bool,
    ) -> Assessment {
        let flow_state = self.flow_state(at, packet.port);
        let assessment = |flow_state| Assessment { flow_state, replaced: None, invalid: None };
        let FlowState::Existing(id, direction) = flow_state else {
            return assessment(self.beginning(at, flow_state, packet, layout));
        };
        if !early && self.is_mid_flow(at) && self.table.expires_ms(id, self.state.now_ms) > 0 {
            return assessment(flow_state);
        }
        match self.assess_existing((id, direction), packet, layout) {
            TcpOutcome::Stays | TcpOutcome::Noted | TcpOutcome::Moves(_) => assessment(flow_state),
            TcpOutcome::Invalid(kind) => Assessment { invalid: Some(kind), ..assessment(flow_state) },
            // It gets the rules that it matches itself.
            TcpOutcome::Reopens => {
                let flow_state = self.beginning(at, self.recheck(at), packet, layout);
                Assessment { replaced: Some((id, CloseReason::Finished)), ..assessment(flow_state) }
            }
        }
    }

    /// What [`Conntrack::touch`] would make of a packet.
    pub(crate) fn assess_existing(
        &self,
        (id, direction): (ConnId, Direction),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> TcpOutcome {
        let signal = self.signal(id, direction, packet, layout);
        let soundness = || transport_soundness(packet.bytes(), layout);
        self.table.judge(id, direction, self.state.now_ms, signal.as_ref(), soundness)
    }

    /// How a packet of no connection stands: TCP and SCTP begin by some packets only.
    fn beginning(
        &mut self,
        at: usize,
        flow_state: FlowState,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> FlowState {
        if matches!(flow_state, FlowState::New)
            && let Some(signal) = key::signal(packet, layout)
            && let Some(kind) = self.table.cannot_begin(&signal)
        {
            return self.mark_invalid(at, kind);
        }
        flow_state
    }

    /// A packet can make no connection.
    pub(crate) fn mark_invalid(&mut self, at: usize, kind: Invalid) -> FlowState {
        self.flow_states[at] = FlowState::Invalid(kind);
        self.flow_states[at]
    }

    /// Counts a packet that can make no connection though rules ask for one. An error is why it must not pass; `maps` tells that it
    /// would not leave as it came if it could.
    pub(crate) fn refuse_beginning(&self, kind: Invalid, maps: bool, strict: bool) -> Result<(), DropReason> {
        self.state.cells.count_invalid(kind);
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
    pub(crate) fn check_window(
        &self,
        member: (ConnId, Direction),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(), Invalid> {
        match self.assess_existing(member, packet, layout) {
            TcpOutcome::Invalid(kind) => {
                self.count_invalid(kind);
                Err(kind)
            }
            TcpOutcome::Stays | TcpOutcome::Noted | TcpOutcome::Moves(_) | TcpOutcome::Reopens => Ok(()),
        }
    }

    /// Whether a connection's packets that go on are all alike to rules: both ends were seen, and it is not over.
    pub(crate) fn is_lasting(&self, id: ConnId) -> bool {
        self.table.is_lasting(id, self.state.now_ms)
    }

    /// Whether a packet that went forward is the SYN or INIT of a connection that was not answered.
    pub(crate) fn is_repeated_syn(&self, id: ConnId, packet: &Packet<'_>, layout: &Layout) -> bool {
        self.table.get(id).state == ConnState::SynSent
            && key::signal(packet, layout).is_some_and(|signal| signal.opens())
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
        self.state.sets.rules(sources::rule_set(self.table.get(id))).map(|rule| rule.stamp).eq(stamps)
    }

    /// How rules see a packet.
    pub(crate) fn ct_state(
        &mut self,
        at: usize,
        (flow_state, invalid): (FlowState, Option<Invalid>),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> CtState {
        let state = match flow_state {
            FlowState::Existing(..) if invalid.is_some() => CtState::Invalid,
            FlowState::Existing(_, Direction::Reply) | FlowState::Fragment(_, Direction::Reply, _) => {
                CtState::EstablishedReply
            }
            FlowState::Existing(id, Direction::Forward) | FlowState::Fragment(id, Direction::Forward, _) => {
                let connection = self.table.get(id);
                match connection.state {
                    ConnState::SynSent | ConnState::Unreplied => CtState::New,
                    _ if connection.packets[Direction::Reply as usize] == 0 => CtState::New,
                    _ => CtState::Established,
                }
            }
            FlowState::Error(_, Direction::Forward, _) => CtState::Related,
            FlowState::Error(_, Direction::Reply, _) => CtState::RelatedReply,
            FlowState::New => CtState::New,
            FlowState::Invalid(_) => CtState::Invalid,
            FlowState::Untracked => key::untracked_ct_state(packet.bytes(), layout),
            FlowState::OtherWorker(_) | FlowState::Refused(_) | FlowState::Held(_) => CtState::Untracked,
        };
        self.ct_states[at] = state;
        state
    }

    /// How rules saw a packet when it was decided on.
    pub(crate) fn initial_ct_state(&self, at: usize) -> CtState {
        self.ct_states[at]
    }

    /// Counts a packet that its connection does not believe.
    pub(crate) fn count_invalid(&self, kind: Invalid) {
        self.state.cells.count_invalid(kind);
    }

    /// Whether invalid packets are dropped.
    #[inline]
    pub(crate) fn drops_invalid(&self) -> bool {
        self.drops_invalid
    }

    /// Whether a packet of no connection comes to an outside end that leads to an inside one, from whom it may.
    pub(crate) fn is_admitted(&self, arrived: Tuple) -> bool {
        let common = &self.state.shared;
        if common.bindings.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // What cannot be noted for want of memory is dropped when it would begin.
        let Ok(entered) = common.nat().enter(Translated { sent: arrived, binding: 0 }) else { return true };
        common.release(entered.binding);
        entered.sent != arrived
    }
}

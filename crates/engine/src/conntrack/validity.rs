//! Packet validity: which packets a connection accepts, and which may begin one.

use super::{Conntrack, FlowState, Replaced, key, sources};
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use mmb_conn::nat::Translated;
use mmb_conn::{CloseReason, ConnId, ConnState, Direction, Invalid, TcpOutcome, Tuple};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, Packet};
use mmb_policy::CtState;
use std::sync::atomic::Ordering;

/// The flow state and validity of a packet when its verdict is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assessment {
    pub(crate) flow_state: FlowState,
    /// The connection that ends if the packet begins a new one.
    pub(crate) replaced: Replaced,
    /// Why the packet is invalid for its connection. `None` for mid-flow packets that were not assessed early, valid or not.
    pub(crate) invalid: Option<Invalid>,
}

impl Conntrack {
    /// The flow state of a packet, and whether it is valid. Mid-flow packets of a live connection are assessed only if `early`; otherwise
    /// [`Conntrack::touch`] assesses them.
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
            // The packet is classified like one that begins a connection.
            TcpOutcome::Reopens => {
                let flow_state = self.beginning(at, self.recheck(at), packet, layout);
                Assessment { replaced: Some((id, CloseReason::Finished)), ..assessment(flow_state) }
            }
        }
    }

    /// The outcome that [`Conntrack::touch`] would have for a packet, without a change.
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

    /// The flow state of a packet without a connection: TCP and SCTP connections begin only with certain packets.
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

    /// Notes that a packet cannot create a connection.
    pub(crate) fn mark_invalid(&mut self, at: usize, kind: Invalid) -> FlowState {
        self.flow_states[at] = FlowState::Invalid(kind);
        self.flow_states[at]
    }

    /// Counts a packet that cannot create a connection although rules require one. An error is the reason to drop it; `maps` tells that a
    /// connection would have translated it.
    pub(crate) fn refuse_beginning(&self, kind: Invalid, maps: bool, strict: bool) -> Result<(), DropReason> {
        self.state.cells.count_invalid(kind);
        match kind {
            Invalid::NotSyn if maps || strict => Err(DropReason::ConnNotSyn),
            _ if maps || self.drops_invalid => Err(DropReason::ConnInvalid),
            _ => Ok(()),
        }
    }

    /// Checks a packet against its connection although it is dropped for another reason.
    ///
    /// # Errors
    /// The packet is invalid, which is counted.
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

    /// Whether all mid-flow packets of a connection are alike to rules: both ends were seen, and the connection is not closed.
    pub(crate) fn is_lasting(&self, id: ConnId) -> bool {
        self.table.is_lasting(id, self.state.now_ms)
    }

    /// Whether a forward packet is the SYN or INIT of an unreplied connection.
    pub(crate) fn is_repeated_syn(&self, id: ConnId, packet: &Packet<'_>, layout: &Layout) -> bool {
        self.table.get(id).state == ConnState::SynSent
            && key::signal(packet, layout).is_some_and(|signal| signal.opens())
            && transport_soundness(packet.bytes(), layout) != Soundness::Wrong
    }

    /// Whether a connection was created by these stateful rules, given by slot in order.
    pub(crate) fn is_made_by(
        &self,
        snapshot: &Snapshot,
        id: ConnId,
        slots: impl Iterator<Item = u32>,
    ) -> bool {
        let stamps = slots.filter_map(|slot| snapshot.stateful(slot)).map(|rule| rule.stamp);
        self.state.sets.rules(sources::rule_set(self.table.get(id))).map(|rule| rule.stamp).eq(stamps)
    }

    /// The `ct` state of a packet, which rules match on.
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

    /// The `ct` state of a packet when its verdict was decided.
    pub(crate) fn initial_ct_state(&self, at: usize) -> CtState {
        self.ct_states[at]
    }

    /// Counts an invalid packet of a connection.
    pub(crate) fn count_invalid(&self, kind: Invalid) {
        self.state.cells.count_invalid(kind);
    }

    /// Whether invalid packets are dropped.
    #[inline]
    pub(crate) fn drops_invalid(&self) -> bool {
        self.drops_invalid
    }

    /// Whether a packet without a connection is addressed to the outside endpoint of a NAT binding whose filtering admits its sender.
    pub(crate) fn is_admitted(&self, arrived: Tuple) -> bool {
        let common = &self.state.shared;
        if common.bindings.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // If the peer cannot be recorded for lack of memory, the packet is dropped when it would create its connection.
        let Ok(entered) = common.nat().enter(Translated { sent: arrived, binding: 0 }) else { return true };
        common.release(entered.binding);
        entered.sent != arrived
    }
}

//! Assesses packets: determines the flow state of a packet, whether the packet is valid for its connection,
//! and whether it may create one.

use super::flow_state::{FlowState, Replaced};
use super::key;
use super::rule_sets::MAX_RULES;
use super::tracking::Conntrack;
use crate::compiled::{Snapshot, StatefulRule};
use crate::drop::DropReason;
use crate::verdict::Verdict;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_conn::{CloseReason, ConnId, ConnState, Direction, Invalid, TrackOutcome, Tuple, proto};
use mmb_nat::Translated;
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, Packet};
use mmb_policy::CtState;

/// The flow state and validity of a packet when its verdict is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assessment {
    pub(crate) flow_state: FlowState,
    /// The connection that ends if the packet begins a new one.
    pub(crate) replaced: Replaced,
    /// Why the packet is invalid for its connection. Always `None` for a mid-flow packet that was not
    /// assessed early, even if it is invalid.
    pub(crate) invalid: Option<Invalid>,
}

/// How a packet repeats the first packet of its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeated {
    /// A SYN or an INIT. It matches the same rules as the first packet.
    Opening,
    /// A packet of a protocol without a handshake. It may differ from the first packet in fields that vary
    /// within a connection, so a match on such a field says nothing about the first packet.
    Datagram,
}

impl Assessment {
    /// The assessment of a valid packet of an existing connection.
    pub(crate) fn valid((id, direction): (ConnId, Direction)) -> Assessment {
        Assessment { flow_state: FlowState::Existing(id, direction), replaced: None, invalid: None }
    }

    /// The existing connection of the packet.
    pub(crate) fn connection(&self) -> Option<ConnId> {
        match self.flow_state {
            FlowState::Existing(id, _) | FlowState::Fragment(id, ..) | FlowState::Error(id, ..) => Some(id),
            FlowState::Untracked
            | FlowState::New
            | FlowState::Expected
            | FlowState::Invalid(_)
            | FlowState::OtherWorker(_)
            | FlowState::Refused(_)
            | FlowState::Held(_) => None,
        }
    }

    /// Whether the packet may create a connection.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.flow_state, FlowState::New)
    }

    /// Whether the packet creates a connection that a helper expects.
    pub(crate) fn is_expected(&self) -> bool {
        matches!(self.flow_state, FlowState::Expected)
    }

    /// Whether the packet belongs to no connection and creates none.
    pub(crate) fn is_untracked(&self) -> bool {
        matches!(self.flow_state, FlowState::Untracked)
    }

    /// Whether an untracked packet matched a stateful rule that maps addresses or ports. Such a packet must
    /// be dropped: it would reveal the addresses that the rule hides. Link-scope messages are exempt, because
    /// the link has the same addresses on both sides. `candidates` are the slots of all rules that the packet
    /// matched.
    pub(crate) fn is_unsolicited(
        &self,
        snapshot: &Snapshot,
        candidates: &[RuleSlot],
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> bool {
        // [`Snapshot::stateful`] accepts only the slots of stateful rules.
        let maps = |slot: &RuleSlot| {
            snapshot.actions.at(slot.index()).is_stateful()
                && snapshot.stateful(*slot).is_some_and(|rule| rule.maps)
        };
        self.is_untracked() && candidates.iter().any(maps) && !key::is_link_scope(packet.bytes(), layout)
    }
}

impl Conntrack {
    /// Assesses a packet just before its rules decide.
    ///
    /// # Errors
    /// The final verdict of the packet, if no rule can change it.
    pub(crate) fn assess(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<Assessment, Verdict> {
        if self.is_refused(index, packet, layout) {
            return Err(Verdict::Drop(DropReason::FragmentRefused));
        }
        let mut assessment = self.assess_flow(index, packet, layout, self.assesses_early(snapshot));
        // The rules of the control connection no longer exist, so its expectation admits no connection.
        if assessment.is_expected() && self.expected_rules(snapshot, index).is_empty() {
            assessment.flow_state = FlowState::New;
        }
        match assessment.flow_state {
            FlowState::Refused(reason) => return Err(Verdict::Drop(reason)),
            FlowState::Held(place) => return Err(Verdict::Held(place)),
            FlowState::OtherWorker(worker) => return Err(Verdict::Hand(worker as u16)),
            FlowState::Error(id, direction, quoted)
                if !self.is_related(index, (id, direction), quoted, packet, layout) =>
            {
                return Err(Verdict::Drop(DropReason::IcmpUnrelated));
            }
            FlowState::Untracked
            | FlowState::New
            | FlowState::Expected
            | FlowState::Invalid(_)
            | FlowState::Existing(..)
            | FlowState::Fragment(..)
            | FlowState::Error(..) => {}
        }
        match assessment.invalid {
            Some(kind) if self.drops_invalid => {
                self.count_invalid(kind);
                self.refuse(index, packet, layout);
                Err(Verdict::Drop(DropReason::ConnInvalid))
            }
            _ => Ok(assessment),
        }
    }

    /// Whether packets must be assessed before their rules apply: either invalid packets are dropped, or some
    /// rules match on `ct` states.
    #[inline]
    pub(super) fn assesses_early(&self, snapshot: &Snapshot) -> bool {
        self.drops_invalid || snapshot.ct_rules > 0
    }

    /// The flow state of a packet, and whether it is valid. Without `early`, mid-flow packets of a connection
    /// that has not timed out are not checked here: [`Conntrack::touch`] checks them.
    fn assess_flow(&mut self, index: usize, packet: &Packet<'_>, layout: &Layout, early: bool) -> Assessment {
        let flow_state = self.flow_state(index, packet.port);
        let assessment = |flow_state| Assessment { flow_state, replaced: None, invalid: None };
        let FlowState::Existing(id, direction) = flow_state else {
            return assessment(self.flow_state_of_new(index, flow_state, packet, layout));
        };
        if !early && self.is_mid_flow(index) && self.table.expires_ms(id, self.state.now_ms) > 0 {
            return assessment(flow_state);
        }
        let reopens = || self.reopens_lost((id, direction), packet, layout);
        match self.assess_existing((id, direction), packet, layout) {
            TrackOutcome::Stays | TrackOutcome::Moves(_) => assessment(flow_state),
            TrackOutcome::Noted if !reopens() => assessment(flow_state),
            TrackOutcome::Invalid(kind) if !reopens() => {
                Assessment { invalid: Some(kind), ..assessment(flow_state) }
            }
            // The packet begins a new connection, which replaces the old one.
            TrackOutcome::Reopens | TrackOutcome::Noted | TrackOutcome::Invalid(_) => {
                let flow_state = self.flow_state_of_new(index, self.recheck(index), packet, layout);
                Assessment { replaced: Some((id, CloseReason::Finished)), ..assessment(flow_state) }
            }
        }
    }

    /// The outcome that [`Conntrack::touch`] would have for a packet. Changes nothing.
    pub(super) fn assess_existing(
        &self,
        (id, direction): (ConnId, Direction),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> TrackOutcome {
        let signal = self.signal(id, direction, packet, layout);
        let soundness = || transport_soundness(packet.bytes(), layout);
        self.table.preview(id, direction, self.state.now_ms, signal.as_ref(), soundness)
    }

    /// Completes the flow state of a packet without a connection. TCP and SCTP connections begin only with
    /// certain packets: any other packet is [`FlowState::Invalid`]. A packet whose connection a helper
    /// expects is [`FlowState::Expected`].
    fn flow_state_of_new(
        &mut self,
        index: usize,
        flow_state: FlowState,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> FlowState {
        if matches!(flow_state, FlowState::New)
            && let Some(signal) = key::signal(packet, layout)
            && let Some(kind) = self.table.cannot_begin(&signal)
        {
            return self.mark_invalid(index, kind);
        }
        if matches!(flow_state, FlowState::New) && self.is_expected(index, packet, layout) {
            return FlowState::Expected;
        }
        flow_state
    }

    /// Records the flow state of a packet for its trace. Earlier packets of the vector may have changed it
    /// since the lookup.
    pub(crate) fn note_flow_state(&mut self, index: usize, assessment: &Assessment) {
        self.flow_states[index] = assessment.flow_state;
    }

    /// Records that a packet cannot create a connection, and why.
    pub(super) fn mark_invalid(&mut self, index: usize, kind: Invalid) -> FlowState {
        self.flow_states[index] = FlowState::Invalid(kind);
        self.flow_states[index]
    }

    /// Checks a packet against its connection without updating the connection.
    ///
    /// # Errors
    /// Why the packet is invalid. The packet is counted as such.
    pub(super) fn check_window(
        &self,
        member: (ConnId, Direction),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(), Invalid> {
        match self.assess_existing(member, packet, layout) {
            TrackOutcome::Invalid(kind) => {
                self.count_invalid(kind);
                Err(kind)
            }
            TrackOutcome::Stays | TrackOutcome::Noted | TrackOutcome::Moves(_) | TrackOutcome::Reopens => {
                Ok(())
            }
        }
    }

    /// Whether rules on `ct` states treat all mid-flow packets of a connection alike: both ends have
    /// confirmed it, and it is neither closed nor timed out.
    pub(super) fn is_lasting(&self, id: ConnId) -> bool {
        self.table.is_lasting(id, self.state.now_ms)
    }

    /// Turns a packet that repeats the first packet of an unanswered connection into the first packet of a
    /// new connection, which replaces the old one. This happens if the current policy would create the
    /// connection by other stateful rules, or with a stream that the old connection lacks. `slots` returns
    /// the slots of the stateful rules that the packet matches now, in order.
    pub(crate) fn replace_if_rules_changed<'s>(
        &self,
        snapshot: &Snapshot,
        assessment: &mut Assessment,
        (packet, layout): (&Packet<'_>, &Layout),
        slots: impl FnOnce() -> &'s [RuleSlot],
    ) {
        let &mut Assessment {
            flow_state: FlowState::Existing(id, Direction::Forward), invalid: None, ..
        } = assessment
        else {
            return;
        };
        // No rule has created an expected connection.
        if self.table.is_expected(id) {
            return;
        }
        let Some(repeated) = self.repeated_first_packet(id, packet, layout) else { return };
        let slots = slots();
        if !self.was_created_by(snapshot, (id, repeated), slots)
            || repeated == Repeated::Opening && self.lacks_stream(snapshot, id, slots)
        {
            *assessment = Assessment {
                flow_state: FlowState::New,
                replaced: Some((id, CloseReason::Evicted)),
                invalid: None,
            };
        }
    }

    /// Whether a TCP connection has no stream although one of these rules inspects its bytes. For example,
    /// its first SYN was signed (TCP-AO, MD5), or the stream table was full. The responder may answer a later
    /// SYN instead, with which a stream can begin.
    fn lacks_stream(&self, snapshot: &Snapshot, id: ConnId, slots: &[RuleSlot]) -> bool {
        let mut rules = slots.iter().take(MAX_RULES).filter_map(|&slot| snapshot.stateful(slot));
        self.table.proto(id) == proto::TCP
            && rules.any(|rule| rule.stream.is_some())
            && self.state.stream_of(self.table.ids(id).extension).is_none()
    }

    /// How a forward packet repeats the first packet of an unanswered connection; `None` if it does not.
    fn repeated_first_packet(&self, id: ConnId, packet: &Packet<'_>, layout: &Layout) -> Option<Repeated> {
        match self.table.state(id) {
            ConnState::SynSent => key::begins_connection(packet, layout).then_some(Repeated::Opening),
            // Without a handshake, every packet may be the first one. On a host that routes it must come in
            // by the same port as the first packet, because rules may match on the port.
            ConnState::Unreplied if !matches!(self.table.proto(id), proto::TCP | proto::SCTP) => {
                let first = self.table.arrival_port(id, Direction::Forward);
                first.is_none_or(|first| first == packet.port).then_some(Repeated::Datagram)
            }
            ConnState::SynReceived
            | ConnState::Established
            | ConnState::FinWait
            | ConnState::Closing
            | ConnState::TimeWait
            | ConnState::Reset
            | ConnState::Unreplied
            | ConnState::Replied => None,
        }
    }

    /// Whether these stateful rules, given by slot in order, have created a connection. Rules that drain are
    /// not compared: the connection keeps them, but its packets no longer match them. For a
    /// [`Repeated::Datagram`], only rules that match all packets of a direction or none are compared.
    fn was_created_by(
        &self,
        snapshot: &Snapshot,
        (id, repeated): (ConnId, Repeated),
        slots: &[RuleSlot],
    ) -> bool {
        let counts = |rule: &StatefulRule| repeated == Repeated::Opening || rule.is_constant;
        let rules = slots.iter().take(MAX_RULES).filter_map(|&slot| snapshot.stateful(slot));
        let versions = rules.filter(|rule| counts(rule)).map(|rule| rule.version);
        match self.table.ids(id).rule_set {
            Some(set) => self.state.sets.undrained_versions(snapshot, set, counts).eq(versions),
            None => versions.count() == 0,
        }
    }

    /// Marks a packet as invalid if it would create a connection and its checksum is wrong. Returns whether
    /// it did.
    pub(crate) fn check_first_checksum(
        &mut self,
        index: usize,
        assessment: &mut Assessment,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> bool {
        let is_wrong = matches!(assessment.flow_state, FlowState::New)
            && transport_soundness(packet.bytes(), layout) == Soundness::Wrong;
        if is_wrong {
            assessment.flow_state = self.mark_invalid(index, Invalid::BadChecksum);
        }
        is_wrong
    }

    /// Determines and records the `ct` state of a packet, on which rules match.
    pub(crate) fn ct_state(
        &mut self,
        index: usize,
        &Assessment { flow_state, invalid, .. }: &Assessment,
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
                let new = if connection.is_expected { CtState::Related } else { CtState::New };
                let opens = || key::signal(packet, layout).is_some_and(|signal| signal.opens());
                match connection.state {
                    // The initiator's RST ends the responder's old connection (RFC 9293 section 3.5.1). The
                    // responder has answered, so the state is established, as in Linux.
                    ConnState::SynSent if self.table.is_challenged(id) && !opens() => CtState::Established,
                    ConnState::SynSent | ConnState::Unreplied => new,
                    _ if connection.packets[Direction::Reply as usize] == 0 => new,
                    _ => CtState::Established,
                }
            }
            FlowState::Error(_, Direction::Forward, _) => CtState::Related,
            FlowState::Error(_, Direction::Reply, _) => CtState::RelatedReply,
            FlowState::New => CtState::New,
            FlowState::Expected => CtState::Related,
            FlowState::Invalid(_) => CtState::Invalid,
            FlowState::Untracked => key::untracked_ct_state(packet.bytes(), layout),
            FlowState::OtherWorker(_) | FlowState::Refused(_) | FlowState::Held(_) => CtState::Untracked,
        };
        self.ct_states[index] = state;
        state
    }

    /// Counts an invalid packet of a connection.
    pub(super) fn count_invalid(&self, kind: Invalid) {
        self.state.cells.count_invalid(kind);
    }

    /// Whether a packet without a connection is addressed to the outside endpoint of a NAT binding, and the
    /// binding's filtering admits its sender.
    pub(super) fn is_admitted(&self, arrived: Tuple) -> bool {
        let common = &self.state.shared;
        if !common.has_bindings() {
            return false;
        }
        // Without memory to record the peer, the packet counts as admitted, so that it does not pass
        // untranslated.
        let Ok(entered) = common.nat().enter(Translated { sent: arrived, lease: None }) else { return true };
        common.release(entered.lease);
        entered.sent != arrived
    }
}

//! Updates connections after the rules have decided on a packet. A packet that passes updates its connection
//! or creates one. A packet that is dropped may end one.

use super::assess::Assessment;
use super::connection_update::Touched;
use super::flow_state::{FlowState, NatTransform, QuotedOffsets, Replaced};
use super::rule_sets::MAX_RULES;
use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use arrayvec::ArrayVec;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_conn::{CloseReason, ConnId, Direction, Invalid};
use mmb_packet::{Layout, Packet};
use mmb_policy::settings::Pickup;

/// The rules of a packet, as slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketRules<'s> {
    /// All rules that the packet matches if `ct` conditions are ignored.
    pub(crate) candidates: &'s [RuleSlot],
    /// The rules that apply to the packet, in order.
    pub(crate) applied: &'s [RuleSlot],
}

/// The result for a packet that passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    /// Its connection and direction.
    pub(crate) member: Option<(ConnId, Direction)>,
    /// Its translation. For an ICMP error, also the offsets of the quoted packet, which is translated too.
    pub(crate) transform: Option<(NatTransform, Option<QuotedOffsets>)>,
    /// The packet is valid, its connection existed before, and it was not only [noted](Touched::Noted).
    pub(crate) is_valid: bool,
}

impl Committed {
    /// A packet without a connection.
    const UNTRACKED: Committed = Committed { member: None, transform: None, is_valid: false };
}

impl Conntrack {
    /// Updates the connection of a packet that its rules let pass. Creates the connection if the packet
    /// matched stateful rules, if a helper expects the connection, or if a NAT binding admits the packet.
    /// Returns the translation of the packet.
    ///
    /// # Errors
    /// Why the packet must be dropped after all.
    pub(crate) fn commit(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        assessment: &Assessment,
        rules: PacketRules<'_>,
        (packet, layout): (&Packet<'_>, &Layout),
    ) -> Result<Committed, DropReason> {
        let replaced = self.end_if_expired(assessment.replaced);
        let (mut quoted, mut is_valid) = (None, false);
        let member = match assessment.flow_state {
            FlowState::Invalid(kind) => {
                self.refuse_invalid(snapshot, index, kind, rules)?;
                return Ok(Committed::UNTRACKED);
            }
            FlowState::Untracked | FlowState::OtherWorker(_) | FlowState::Refused(_) | FlowState::Held(_) => {
                return Ok(Committed::UNTRACKED);
            }
            FlowState::Existing(id, direction) => {
                match self.touch(id, direction, packet, layout) {
                    Ok(Touched::Tracked) => {
                        is_valid = true;
                        self.note_valid(index, packet, layout);
                    }
                    Ok(Touched::Noted) => {}
                    // Invalid packets that must not pass were dropped before.
                    Err(_) => self.pass_invalid((id, direction), packet),
                }
                (id, direction)
            }
            FlowState::Fragment(id, direction, complete) => {
                self.touch_fragment((id, direction), (index, complete), packet, layout);
                (id, direction)
            }
            FlowState::Error(id, direction, offsets) => {
                quoted = Some(offsets);
                (id, direction)
            }
            FlowState::Expected => {
                let member = self.create_expected(snapshot, (index, replaced), packet, layout)?;
                self.note_valid(index, packet, layout);
                member
            }
            FlowState::New => {
                match self.create_if_required(snapshot, index, replaced, rules, (packet, layout))? {
                    Some(member) => {
                        self.note_valid(index, packet, layout);
                        member
                    }
                    None => return Ok(Committed::UNTRACKED),
                }
            }
        };
        let transform = self.translates(member.0).then(|| (self.transform(member), quoted));
        Ok(Committed { member: Some(member), transform, is_valid })
    }

    /// Records that a rule drops a packet. If the packet would have replaced an unanswered connection, that
    /// connection ends.
    pub(crate) fn dropped_by_rule(
        &mut self,
        index: usize,
        assessment: &Assessment,
        packet: &Packet<'_>,
        layout: &Layout,
    ) {
        if let Some(kind) = assessment.invalid {
            self.count_invalid(kind);
        }
        if let Some((id, CloseReason::Evicted)) = assessment.replaced {
            self.end(id, CloseReason::Evicted);
        }
        self.refuse(index, packet, layout);
    }

    /// Counts a packet that passes although it is invalid for its connection. Returns its translation.
    pub(crate) fn commit_invalid(
        &mut self,
        member: (ConnId, Direction),
        packet: &Packet<'_>,
    ) -> Option<NatTransform> {
        self.pass_invalid(member, packet);
        self.translates(member.0).then(|| self.transform(member))
    }

    /// Ends the connection that a new one would replace if it has timed out. Returns it otherwise.
    fn end_if_expired(&mut self, replaced: Replaced) -> Replaced {
        let (id, reason) = replaced?;
        if self.table.expires_ms(id, self.state.now_ms) > 0 {
            return replaced;
        }
        self.end(id, reason);
        None
    }

    /// Creates a connection for a packet without one, if stateful rules or a NAT binding require it.
    fn create_if_required(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        replaced: Replaced,
        rules: PacketRules<'_>,
        (packet, layout): (&Packet<'_>, &Layout),
    ) -> Result<Option<(ConnId, Direction)>, DropReason> {
        let Some(arrived) = self.tuple(index) else { return Ok(None) };
        let slots: ArrayVec<RuleSlot, MAX_RULES> =
            stateful(snapshot, rules.applied).take(MAX_RULES).collect();
        if !slots.is_empty() {
            return self.create(snapshot, (arrived, replaced), &slots, packet, layout).map(Some);
        }
        let admitted = self.admit(snapshot, (arrived, replaced), packet, layout)?;
        if let (None, Some((id, reason))) = (admitted, replaced)
            && (reason == CloseReason::Evicted || !self.table.is_translated(id))
        {
            // The rules that created the old connection are gone, and it is closed or unreplied. The old
            // connection must not claim the replies to this packet. A closed connection with a translation
            // stays, because late packets need its port. It cannot claim these replies: this packet passes
            // untranslated, so they have another tuple.
            self.end(id, reason);
        }
        Ok(admitted)
    }

    /// Counts a packet that cannot create a connection, if rules or a NAT binding require one. Such a packet
    /// must not pass untranslated: a packet that a rule would map must not leave with its original address,
    /// and a packet for an inside endpoint must not be sent to the outside address.
    ///
    /// # Errors
    /// Why the packet must be dropped.
    fn refuse_invalid(
        &self,
        snapshot: &Snapshot,
        index: usize,
        kind: Invalid,
        rules: PacketRules<'_>,
    ) -> Result<(), DropReason> {
        let mut stateful = stateful(snapshot, rules.candidates).peekable();
        let is_required = stateful.peek().is_some();
        let maps = stateful.any(|slot| snapshot.stateful(slot).is_some_and(|rule| rule.maps))
            || self.tuple(index).is_some_and(|arrived| self.is_admitted(arrived));
        if !is_required && !maps {
            return Ok(());
        }
        let strict = snapshot.connections.pickup == Pickup::Strict;
        self.refuse_untracked(kind, maps, strict)
    }

    /// Counts a packet that cannot create a connection although one is required. With `maps`, the connection
    /// would have translated it. With `strict`, connections are not picked up in mid-flow.
    ///
    /// # Errors
    /// Why the packet must be dropped: it would pass untranslated, or the policy drops such packets.
    fn refuse_untracked(&self, kind: Invalid, maps: bool, strict: bool) -> Result<(), DropReason> {
        self.state.cells.count_invalid(kind);
        match kind {
            Invalid::NotSyn if maps || strict => Err(DropReason::ConnNotSyn),
            _ if maps || self.drops_invalid => Err(DropReason::ConnInvalid),
            _ => Ok(()),
        }
    }
}

/// The slots of stateful rules among these.
fn stateful<'s>(snapshot: &'s Snapshot, slots: &'s [RuleSlot]) -> impl Iterator<Item = RuleSlot> + 's {
    slots.iter().copied().filter(|&slot| snapshot.actions.at(slot.index()).is_stateful())
}

//! The verdict stage with connection tracking: packets also get the rules of their connection.

use super::resolver::VerdictResolver;
use super::work::{EditList, PacketEdits, PacketTransform, RewriteWork};
use super::{FEW_RULES, Pipeline};
use crate::compiled::Snapshot;
use crate::conntrack::{Assessment, CachedVerdict, FlowState, QuotedOffsets, Replaced, is_link_scope};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::verdict::Verdict;
use arrayvec::ArrayVec;
use mmb_conn::{CloseReason, ConnId, Direction, Invalid};
use mmb_packet::Packet;
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_policy::CtState;
use mmb_policy::policy::Pickup;

/// The most stateful rules that one connection has: the first in order.
const MOST_RULES: usize = 64;

impl Pipeline {
    /// [`Pipeline::decide`] with connection tracking: packets also get the rules of their connection. A packet that passes updates its
    /// connection, or creates one if it matched stateful rules.
    pub(super) fn decide_by_connection(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        self.work.clear();
        self.fetch_rules(snapshot);
        let slots = if snapshot.stateful_rules < FEW_RULES { &[] } else { self.scratch.all_handles() };
        self.conntrack.prefetch_new(snapshot, slots);
        for (at, packet) in packets.iter().enumerate() {
            if self.apply_cached(snapshot, at, packet, verdicts) {
                continue;
            }
            if let Err(verdict) = self.decide_one(snapshot, at, packet, verdicts) {
                verdicts[at] = verdict;
            }
        }
    }

    /// Decides on a packet without a cached verdict. An error is its verdict.
    fn decide_one(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<(), Verdict> {
        let assessment = self.assess(snapshot, at, packet)?;
        let Assessment { flow_state, replaced: ends, invalid } =
            self.set_ct_state_of(snapshot, at, assessment, packet);
        let is_unsolicited =
            matches!(flow_state, FlowState::Untracked) && self.is_mapped(snapshot, at, packet);
        if self.matched.is_empty()
            && ends.is_none()
            && !is_unsolicited
            && matches!(flow_state, FlowState::Untracked)
        {
            return Ok(());
        }
        let plans = self.cacheable(snapshot, at, (flow_state, invalid));
        let drops = self.resolve_verdict(snapshot, packet).drops();
        if drops {
            plans.into_iter().for_each(|member| self.cache_verdict(snapshot, at, member, packet, drops));
            if let Some(kind) = invalid {
                self.conntrack.count_invalid(kind);
            }
            if let Some((id, CloseReason::Evicted)) = ends {
                self.conntrack.end(id, CloseReason::Evicted);
            }
            return Err(self.refuse(at, packet, DropReason::Rule));
        }
        if matches!(verdicts[at], Verdict::Drop(_)) {
            return Ok(());
        }
        if is_unsolicited {
            return Err(self.refuse(at, packet, DropReason::NatUnsolicited));
        }
        let ends = self.conntrack.end_if_expired(ends);
        let transforms = self.track(snapshot, at, (flow_state, ends), packet, verdicts);
        let is_believed = transforms.map_err(|reason| self.refuse(at, packet, reason))?;
        plans
            .filter(|_| is_believed)
            .into_iter()
            .for_each(|member| self.cache_verdict(snapshot, at, member, packet, drops));
        self.rewrite_matched(snapshot, at);
        Ok(())
    }

    /// The flow state and validity of a packet. An error is its verdict, if no rule can change it.
    fn assess(&mut self, snapshot: &Snapshot, at: usize, packet: &Packet<'_>) -> Result<Assessment, Verdict> {
        let early = self.assesses_early(snapshot);
        let layout = &self.work.layouts[at];
        if self.conntrack.is_refused(at, packet, layout) {
            return Err(Verdict::Drop(DropReason::FragmentRefused));
        }
        let assessment = self.conntrack.assess(at, packet, layout, early);
        match assessment.flow_state {
            FlowState::Refused(reason) => return Err(Verdict::Drop(reason)),
            FlowState::Held(place) => return Err(Verdict::Held(place)),
            FlowState::OtherWorker(worker) => {
                self.handed += 1;
                return Err(Verdict::Hand(worker as u16));
            }
            FlowState::Error(id, direction, quoted)
                if !self.conntrack.is_related(at, (id, direction), quoted, packet, layout) =>
            {
                return Err(Verdict::Drop(DropReason::IcmpUnrelated));
            }
            FlowState::Untracked
            | FlowState::New
            | FlowState::Invalid(_)
            | FlowState::Existing(..)
            | FlowState::Fragment(..)
            | FlowState::Error(..) => {}
        }
        match assessment.invalid {
            Some(kind) if self.conntrack.drops_invalid() => {
                self.conntrack.count_invalid(kind);
                Err(self.refuse(at, packet, DropReason::ConnInvalid))
            }
            _ => Ok(assessment),
        }
    }

    /// Collects the rules that apply to an assessed packet, and completes its assessment with them.
    fn set_ct_state_of(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        mut assessment: Assessment,
        packet: &Packet<'_>,
    ) -> Assessment {
        if let Assessment { flow_state: FlowState::Existing(id, Direction::Forward), invalid: None, .. } =
            assessment
            && self.conntrack.is_repeated_syn(id, packet, &self.work.layouts[at])
            && self.begins_otherwise(snapshot, at, id)
        {
            // Its connection was created by rules that are no longer in force, and is unreplied.
            (assessment.flow_state, assessment.replaced) = (FlowState::New, Some((id, CloseReason::Evicted)));
        }
        self.set_ct_state(snapshot, at, (assessment.flow_state, assessment.invalid), packet);
        if matches!(assessment.flow_state, FlowState::New)
            && self.matched.iter().any(|&slot| snapshot.actions.at(slot as usize).is_stateful())
            && transport_soundness(packet.bytes(), &self.work.layouts[at]) == Soundness::Wrong
        {
            assessment.flow_state = self.conntrack.mark_invalid(at, Invalid::BadChecksum);
            self.set_ct_state(snapshot, at, (assessment.flow_state, assessment.invalid), packet);
        }
        assessment
    }

    /// The verdict of a packet that is dropped.
    fn refuse(&mut self, at: usize, packet: &Packet<'_>, reason: DropReason) -> Verdict {
        self.conntrack.refuse(at, packet, &self.work.layouts[at]);
        Verdict::Drop(reason)
    }

    /// The connection and direction of a packet, if the verdict holds for other packets of that direction.
    fn cacheable(
        &self,
        snapshot: &Snapshot,
        at: usize,
        (flow_state, invalid): (FlowState, Option<Invalid>),
    ) -> Option<(ConnId, Direction)> {
        let FlowState::Existing(id, direction) = flow_state else { return None };
        let is_alike = snapshot.is_constant()
            && self.conntrack.is_mid_flow(at)
            && invalid.is_none()
            && (snapshot.ct_rules == 0 || self.conntrack.is_lasting(id));
        is_alike.then_some((id, direction))
    }

    /// Caches a packet's verdict for others of its connection and direction.
    fn cache_verdict(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        member: (ConnId, Direction),
        packet: &Packet<'_>,
        drops: bool,
    ) {
        let candidates = if snapshot.ct_rules > 0 { self.scratch.handles(at) } else { &[] };
        let edits = self.matched.iter().any(|&slot| snapshot.actions.at(slot as usize).edit_number() > 0);
        self.conntrack.cache.set(member, packet.port, (&self.matched, candidates), drops, edits);
    }

    /// Whether packets must be assessed before their rules apply.
    #[inline]
    fn assesses_early(&self, snapshot: &Snapshot) -> bool {
        self.conntrack.drops_invalid() || snapshot.ct_rules > 0
    }

    /// Whether the current policy would create a connection by other stateful rules than those that created it.
    fn begins_otherwise(&mut self, snapshot: &Snapshot, at: usize, id: ConnId) -> bool {
        let action = |slot: u32| snapshot.actions.at(slot as usize);
        let makes = |slot: &u32| action(*slot).is_stateful() && action(*slot).wants(CtState::New);
        self.matched.clear();
        self.matched.extend(self.scratch.handles(at).iter().copied().filter(makes));
        self.matched.sort_unstable_by_key(|&slot| action(slot).rank());
        !self.conntrack.is_made_by(snapshot, id, self.matched.iter().copied().take(MOST_RULES))
    }

    /// Determines the `ct` state of a packet, and which of the matched rules apply to it.
    fn set_ct_state(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        (flow_state, invalid): (FlowState, Option<Invalid>),
        packet: &Packet<'_>,
    ) {
        let state = match snapshot.ct_rules {
            0 => CtState::Untracked,
            _ => self.conntrack.ct_state(at, (flow_state, invalid), packet, &self.work.layouts[at]),
        };
        self.collect_matched(snapshot, at, flow_state, state);
    }

    /// Adds the edits of the rules that apply to a packet.
    fn rewrite_matched(&mut self, snapshot: &Snapshot, at: usize) {
        let start = self.work.listed.len();
        let numbers = self.matched.iter().map(|&slot| snapshot.actions.at(slot as usize).edit_number());
        self.work.listed.extend(numbers.filter(|&number| number > 0));
        self.rewrite_listed(at, start);
    }

    /// Whether a packet matched a stateful rule that maps. If it is of no connection and creates none, it must not leave: it would reveal
    /// the addresses that the rule hides. Link-scope messages are exempt: the link has the same addresses on both sides.
    fn is_mapped(&self, snapshot: &Snapshot, at: usize, packet: &Packet<'_>) -> bool {
        // Only the slots of stateful rules are within this table.
        let maps = |slot: &u32| {
            snapshot.actions.at(*slot as usize).is_stateful()
                && snapshot.stateful(*slot).is_some_and(|rule| rule.maps)
        };
        self.scratch.handles(at).iter().any(maps) && !is_link_scope(packet.bytes(), &self.work.layouts[at])
    }

    /// Adds the edits that are listed from `start` on, if there are any.
    #[inline]
    fn rewrite_listed(&mut self, at: usize, start: usize) {
        let end = self.work.listed.len();
        if end > start {
            // A vector's packets are numbered in a byte.
            let edits = EditList::Listed(start as u32, end as u32);
            self.work.rewrites.push(PacketEdits { packet: at as u8, edits });
        }
    }

    /// Applies a packet's cached verdict. Returns false if there is none.
    #[inline]
    fn apply_cached(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> bool {
        let plan = self.conntrack.cached(at);
        let Some(&CachedVerdict { drops, edits, .. }) = self.conntrack.cache.verdict(plan) else {
            return false;
        };
        let FlowState::Existing(id, direction) = self.conntrack.initial(at) else { return false };
        if !self.conntrack.is_cache_current(at, (id, direction), packet.port) {
            // An earlier packet of this vector ended its connection, and this packet was not classified: it is a late segment.
            verdicts[at] = Verdict::Drop(DropReason::ConnInvalid);
            return true;
        }
        let layout = &self.work.layouts[at];
        let believed = match drops {
            false => self.conntrack.touch(id, direction, packet, layout),
            true if self.assesses_early(snapshot) => {
                self.conntrack.check_window((id, direction), packet, layout)
            }
            true => Ok(()),
        };
        if believed.is_err() {
            if self.conntrack.drops_invalid() {
                verdicts[at] = Verdict::Drop(DropReason::ConnInvalid);
                return true;
            }
            if snapshot.ct_rules > 0 {
                self.decide_invalid(snapshot, at, (id, direction), packet, verdicts);
                return true;
            }
            self.conntrack.pass_invalid((id, direction), packet);
        }
        let cells = &snapshot.cells[self.worker];
        let count = Count { packets: 1, bytes: packet.len() as u64 };
        let start = self.work.listed.len();
        for &slot in self.conntrack.cache.rules(plan) {
            cells.slot(slot).add(count);
            if edits && !drops {
                self.work.listed.push(snapshot.actions.at(slot as usize).edit_number());
            }
        }
        if drops {
            verdicts[at] = Verdict::Drop(DropReason::Rule);
            return true;
        }
        if self.conntrack.transforms(id) {
            self.add_transform(at, (id, direction), None, packet, verdicts);
        }
        self.rewrite_listed(at, start);
        true
    }

    /// Decides on an invalid packet, from the rules that all packets of its direction match.
    #[cold]
    fn decide_invalid(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        (id, direction): (ConnId, Direction),
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) {
        let action = |slot: u32| snapshot.actions.at(slot as usize);
        let gets = |slot: &u32| !action(*slot).is_stateful() && action(*slot).wants(CtState::Invalid);
        self.matched.clear();
        self.matched
            .extend(self.conntrack.cache.candidates(self.conntrack.cached(at)).iter().copied().filter(gets));
        self.matched.extend_from_slice(self.conntrack.rules(snapshot, id));
        if self.resolve_verdict(snapshot, packet).drops() {
            verdicts[at] = Verdict::Drop(DropReason::Rule);
            return;
        }
        self.conntrack.pass_invalid((id, direction), packet);
        if self.conntrack.transforms(id) {
            self.add_transform(at, (id, direction), None, packet, verdicts);
        }
        self.rewrite_matched(snapshot, at);
    }

    /// Collects in `matched` the slots of the rules that apply to a packet.
    pub(super) fn collect_matched(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        flow_state: FlowState,
        state: CtState,
    ) {
        self.matched.clear();
        let action = |slot: u32| snapshot.actions.at(slot as usize);
        let matched = self.scratch.handles(at).iter().copied().filter(|&slot| action(slot).wants(state));
        match flow_state {
            FlowState::New => self.matched.extend(matched),
            _ => self.matched.extend(matched.filter(|&slot| !action(slot).is_stateful())),
        }
        if let FlowState::Existing(id, _) | FlowState::Fragment(id, ..) | FlowState::Error(id, ..) =
            flow_state
        {
            self.matched.extend_from_slice(self.conntrack.rules(snapshot, id));
        }
    }

    /// Orders and counts the rules that apply to a packet, and resolves their accept and drop targets.
    fn resolve_verdict(&mut self, snapshot: &Snapshot, packet: &Packet<'_>) -> VerdictResolver {
        let cells = &snapshot.cells[self.worker];
        let count = Count { packets: 1, bytes: packet.len() as u64 };
        let action = |slot: u32| snapshot.actions.at(slot as usize);
        if self.matched.len() > 1 {
            self.matched.sort_unstable_by_key(|&slot| action(slot).rank());
        }
        let mut resolver = VerdictResolver::default();
        for &slot in &self.matched {
            cells.slot(slot).add(count);
            resolver.resolve(action(slot), || Some(self.random.draw()));
        }
        resolver
    }

    /// Updates a packet's connection, and adds its translation; a packet that matched stateful rules and has no connection creates one.
    /// Returns whether it is a valid packet of a connection.
    fn track(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        (flow_state, ends): (FlowState, Replaced),
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<bool, DropReason> {
        let Pipeline { conntrack: flows, work: RewriteWork { layouts, .. }, .. } = self;
        let (mut quoted, mut is_believed) = (None, false);
        let member = match flow_state {
            FlowState::Invalid(kind) => {
                self.refuse_beginning(snapshot, at, kind)?;
                return Ok(false);
            }
            FlowState::Untracked | FlowState::OtherWorker(_) | FlowState::Refused(_) | FlowState::Held(_) => {
                return Ok(false);
            }
            FlowState::Existing(id, direction) => {
                is_believed = flows.touch(id, direction, packet, &layouts[at]).is_ok();
                match is_believed {
                    true => flows.note_valid(at, packet, &layouts[at]),
                    // Invalid packets that must not pass were dropped before.
                    false => flows.pass_invalid((id, direction), packet),
                }
                (id, direction)
            }
            FlowState::Fragment(id, direction, complete) => {
                flows.touch_fragment((id, direction), (at, complete), packet, &layouts[at]);
                (id, direction)
            }
            FlowState::Error(id, direction, place) => {
                quoted = Some(place);
                (id, direction)
            }
            FlowState::New => match self.create(snapshot, at, ends, packet)? {
                Some(member) => {
                    self.conntrack.note_valid(at, packet, &self.work.layouts[at]);
                    member
                }
                None => return Ok(false),
            },
        };
        if self.conntrack.transforms(member.0) {
            self.add_transform(at, member, quoted, packet, verdicts);
        }
        Ok(is_believed)
    }

    /// Creates a connection for a packet without one, if stateful rules or a NAT binding require it.
    fn create(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        ends: Replaced,
        packet: &Packet<'_>,
    ) -> Result<Option<(ConnId, Direction)>, DropReason> {
        let Pipeline { conntrack: flows, work: RewriteWork { layouts, .. }, matched: due, .. } = self;
        let Some(arrived) = flows.tuple(at) else { return Ok(None) };
        let stateful = |slot: &u32| snapshot.actions.at(*slot as usize).is_stateful();
        let slots: ArrayVec<u32, MOST_RULES> =
            due.iter().copied().filter(stateful).take(MOST_RULES).collect();
        if !slots.is_empty() {
            return flows.create(snapshot, (arrived, ends), &slots, packet, &layouts[at]).map(Some);
        }
        let admitted = flows.admit(snapshot, (arrived, ends), packet, &layouts[at])?;
        if let (None, Some((id, CloseReason::Evicted))) = (admitted, ends) {
            // The rules that created it are gone, and it is unreplied.
            flows.end(id, CloseReason::Evicted);
        }
        Ok(admitted)
    }

    /// Drops a packet that cannot create a connection, if it would otherwise pass untranslated: one that a rule would map must not leave
    /// with its original address, nor may one for an inside endpoint go to the outside address.
    fn refuse_beginning(&self, snapshot: &Snapshot, at: usize, kind: Invalid) -> Result<(), DropReason> {
        let handles = self.scratch.handles(at).iter();
        let mut stateful =
            handles.copied().filter(|&slot| snapshot.actions.at(slot as usize).is_stateful()).peekable();
        let is_asked_for = stateful.peek().is_some();
        let maps = stateful.any(|slot| snapshot.stateful(slot).is_some_and(|rule| rule.maps))
            || self.conntrack.tuple(at).is_some_and(|arrived| self.conntrack.is_admitted(arrived));
        if !is_asked_for && !maps {
            return Ok(());
        }
        let strict = snapshot.connections.pickup == Pickup::Strict;
        self.conntrack.refuse_beginning(kind, maps, strict)
    }

    /// Adds the translation of a packet whose connection [rewrites packets](crate::conntrack::Conntrack::transforms).
    fn add_transform(
        &mut self,
        at: usize,
        (id, direction): (ConnId, Direction),
        quoted: Option<QuotedOffsets>,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) {
        let transform = self.conntrack.transform(id, direction);
        if transform.hairpin.is_some() {
            verdicts[at] = Verdict::Send(packet.port);
        }
        // A vector's packets are numbered in a byte.
        self.work.transforms.push(PacketTransform { packet: at as u8, transform, quoted });
    }
}

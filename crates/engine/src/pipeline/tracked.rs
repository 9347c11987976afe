//! The verdict stage with connection tracking: packets also get the rules of their connection.

use super::resolver::{VerdictResolver, first_dropping_rule};
use super::state::Pipeline;
use super::work::{EditList, PacketEdits, PacketTransform};
use crate::compiled::Snapshot;
use crate::conntrack::{
    Assessment, BLOCK, CachedOutcome, Committed, Conntrack, Followed, NatTransform, PacketRules,
    QuotedOffsets, StreamPacket, StreamRefusal, VerdictId,
};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::verdict::{VECTOR, Verdict};
use arrayvec::ArrayVec;
use mmb_base::{Id, prefetch};
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, Direction};
use mmb_packet::{Layout, Packet};
use mmb_policy::CtState;

impl Pipeline {
    /// [`Pipeline::decide`] with connection tracking: packets also get the rules of their connection. A
    /// packet that passes updates its connection, or creates one if it matched stateful rules.
    pub(super) fn decide_by_connection(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        self.work.clear();
        self.prefetch_rules(snapshot);
        self.prefetch_limits(snapshot, packets, true);
        self.work.translations.extend_from_slice(&self.conntrack.quick().translations);
        self.work.streamed.extend(self.conntrack.quick_streams(verdicts));
        let others: ArrayVec<u8, VECTOR> =
            self.conntrack.quick().others(packets.len()).map(|index| index as u8).collect();
        for block in others.chunks(BLOCK) {
            self.conntrack.prefetch_new(snapshot, block, |index| self.scratch.slots(index));
            self.decide_block(snapshot, block, packets, verdicts);
        }
    }

    /// Processes packets that this worker generated like other packets of their connections: the edits of all
    /// rules that they match apply to them. Neither rules nor connections count them, and no rule drops them.
    pub(super) fn pass_generated(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        self.work.clear();
        for (index, packet) in packets.iter().enumerate() {
            let Some(member) = self.conntrack.member(index, packet) else {
                // The connection has ended, so its translation is gone.
                verdicts[index] = Verdict::Drop(DropReason::ConnInvalid);
                continue;
            };
            self.match_ct_state(snapshot, index, &Assessment::valid(member), packet);
            // No rule drops a generated packet: an end that does not get its RST would keep the connection.
            self.sort_matched(snapshot);
            if self.conntrack.translates(member.0) {
                self.add_transform(
                    (index, packet),
                    member,
                    (self.conntrack.transform(member), None),
                    verdicts,
                );
            }
            self.rewrite_matched(snapshot, index);
        }
        // Generated packets do not pass the streams stage.
        self.work.streamed.clear();
    }

    /// Passes packets to their streams, in order. A stream may drop or absorb a packet.
    pub(super) fn follow_streams(
        &mut self,
        snapshot: &Snapshot,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        if self.work.streamed.is_empty() {
            return;
        }
        let mut streamed = std::mem::take(&mut self.work.streamed);
        // The packets of the quick pass were added before the others.
        if !streamed.is_sorted_by_key(|(index, _)| *index) {
            streamed.sort_unstable_by_key(|(index, _)| *index);
        }
        let mut any_removed = false;
        let mut ahead = PrefetchAhead::new(&streamed, &self.conntrack);
        for (number, &(index, stream_packet)) in streamed.iter().enumerate() {
            ahead.prefetch(&streamed, number, &self.conntrack);
            if let Some((next, _)) = streamed.get(number + 1) {
                let next = usize::from(*next);
                prefetch_payload(&packets[next], &self.work.layouts[next]);
            }
            let index = usize::from(index);
            let packet = &mut packets[index];
            self.conntrack.trace_packet(Some(index));
            match self.conntrack.follow_stream(snapshot, stream_packet, packet, &mut self.work.layouts[index])
            {
                Ok(Followed::Passes) => {
                    self.work.followed.add(index);
                    continue;
                }
                Ok(Followed::Absorbed) => verdicts[index] = Verdict::Absorbed,
                Err(StreamRefusal { reason, rule }) => {
                    let count = Count { packets: 1, bytes: packet.len() as u64 };
                    let cells = &snapshot.cells[self.worker];
                    rule.into_iter().for_each(|slot| cells.dropped(slot).add(count));
                    verdicts[index] = Verdict::Drop(reason);
                }
            }
            any_removed = true;
        }
        if any_removed {
            self.work.discard(|index| matches!(verdicts[index], Verdict::Drop(_) | Verdict::Absorbed));
        }
        self.work.streamed = streamed;
    }

    fn decide_block(
        &mut self,
        snapshot: &Snapshot,
        block: &[u8],
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        for index in block.iter().map(|index| usize::from(*index)) {
            let packet = &packets[index];
            let is_done = if self.per_packet.slots(index).is_empty() {
                self.apply_cached(snapshot, index, packet, verdicts)
            } else {
                self.apply_cached_and_per_packet(snapshot, index, packet, verdicts)
            };
            if is_done {
                continue;
            }
            if let Err(verdict) = self.decide_one(snapshot, index, packet, verdicts) {
                self.handed += u64::from(matches!(verdict, Verdict::Hand(_)));
                verdicts[index] = verdict;
            }
        }
    }

    /// Decides on a packet without a cached verdict. An error is the packet's verdict.
    fn decide_one(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<(), Verdict> {
        let assessment = self.conntrack.assess(snapshot, index, packet, &self.work.layouts[index])?;
        let assessment = self.complete_assessment(snapshot, index, assessment, packet);
        if self.is_traced {
            self.conntrack.note_flow_state(index, &assessment);
        }
        let slots = self.scratch.slots(index);
        let is_unsolicited = assessment.is_unsolicited(snapshot, slots, packet, &self.work.layouts[index]);
        if self.matched.is_empty()
            && assessment.replaced.is_none()
            && !is_unsolicited
            && assessment.is_untracked()
        {
            return Ok(());
        }
        let decided = self.decide_assessed(snapshot, index, (&assessment, is_unsolicited), packet, verdicts);
        if snapshot.log_rules > 0 {
            let verdict = decided.err().unwrap_or(verdicts[index]);
            self.log_matched(snapshot, index, assessment.is_new(), packet, verdict);
        }
        decided
    }

    /// Decides on an assessed packet, to which the rules in `matched` apply. An error is the packet's
    /// verdict.
    fn decide_assessed(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        (assessment, is_unsolicited): (&Assessment, bool),
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<(), Verdict> {
        let cacheable = self.conntrack.cacheable(snapshot, index, assessment);
        let dropped_by = self.resolve_verdict(snapshot, index, assessment, packet);
        let drops = dropped_by.is_some();
        if let Some(drop_rule) = dropped_by {
            cacheable
                .into_iter()
                .for_each(|member| self.cache_verdict(snapshot, index, member, packet, drops));
            self.conntrack.dropped_by_rule(index, assessment, packet, &self.work.layouts[index]);
            return Err(self.dropped_by(snapshot, drop_rule, index, packet));
        }
        let layout = &self.work.layouts[index];
        if matches!(verdicts[index], Verdict::Drop(_)) {
            return Ok(());
        }
        if is_unsolicited {
            self.conntrack.refuse(index, packet, layout);
            return Err(Verdict::Drop(DropReason::NatUnsolicited));
        }
        let rules = PacketRules { candidates: self.scratch.slots(index), applied: &self.matched };
        let committed = self.conntrack.commit(snapshot, index, assessment, rules, (packet, layout));
        let Committed { member, transform, is_valid } = committed.map_err(|reason| {
            self.conntrack.refuse(index, packet, layout);
            Verdict::Drop(reason)
        })?;
        if let (Some(member), Some(transform)) = (member, transform) {
            self.add_transform((index, packet), member, transform, verdicts);
        }
        cacheable
            .filter(|_| is_valid)
            .into_iter()
            .for_each(|member| self.cache_verdict(snapshot, index, member, packet, drops));
        self.rewrite_matched(snapshot, index);
        Ok(())
    }

    /// Collects in `matched` the rules that apply to an assessed packet, and completes its assessment with
    /// them.
    fn complete_assessment(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        mut assessment: Assessment,
        packet: &Packet<'_>,
    ) -> Assessment {
        let layout = &self.work.layouts[index];
        let (slots, matched) = (self.scratch.slots(index), &mut self.matched);
        self.conntrack.replace_if_rules_changed(snapshot, &mut assessment, (packet, layout), || {
            let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
            let creates =
                |slot: &RuleSlot| action(*slot).is_stateful() && action(*slot).matches_ct(CtState::New);
            matched.clear();
            matched.extend(slots.iter().copied().filter(creates));
            matched.sort_unstable_by_key(|&slot| action(slot).rank());
            matched
        });
        self.match_ct_state(snapshot, index, &assessment, packet);
        let is_stateful = |&slot: &RuleSlot| snapshot.actions.at(slot.index()).is_stateful();
        if assessment.is_new()
            && self.matched.iter().any(is_stateful)
            && self.conntrack.check_first_checksum(index, &mut assessment, packet, &self.work.layouts[index])
        {
            self.match_ct_state(snapshot, index, &assessment, packet);
        }
        assessment
    }

    /// Caches a verdict for later packets of the same connection and direction: the verdict by the packet's
    /// rules other than per-packet rules.
    fn cache_verdict(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        member: (ConnId, Direction),
        packet: &Packet<'_>,
        drops: bool,
    ) {
        let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
        if self.per_packet.slots(index).is_empty() {
            // Without per-packet rules, only a stateful rule can drop some packets and pass others. It
            // applies to each packet of its connection, so that no verdict can be cached.
            if !self.matched.iter().any(|&slot| action(slot).drops_some()) {
                let rules = PacketRules { candidates: self.scratch.slots(index), applied: &self.matched };
                self.conntrack.cache_verdict(snapshot, member, packet.port, rules, drops);
            }
            return;
        }
        let is_constant = |slot: &RuleSlot| !action(*slot).is_per_packet();
        self.constant.clear();
        self.constant.extend(self.matched.iter().copied().filter(is_constant));
        let applied = self.constant.len();
        self.constant.extend(self.scratch.slots(index).iter().copied().filter(is_constant));
        let (applied, candidates) = self.constant.split_at(applied);
        let (mut resolver, mut draws) = (VerdictResolver::default(), false);
        for &slot in applied {
            draws |= !resolver.resolve(slot, action(slot), || None);
        }
        let all_drop = resolver.dropped_by().is_some();
        // If this packet is dropped and others pass, the first packet that passes notes its ingress port.
        if !draws && (all_drop || !drops) {
            let rules = PacketRules { candidates, applied };
            self.conntrack.cache_verdict(snapshot, member, packet.port, rules, all_drop);
        }
    }

    /// Determines the `ct` state of a packet, and collects in `matched` the rules that apply to it.
    fn match_ct_state(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        assessment: &Assessment,
        packet: &Packet<'_>,
    ) {
        let state = match snapshot.ct_rules {
            0 => CtState::Untracked,
            _ => self.conntrack.ct_state(index, assessment, packet, &self.work.layouts[index]),
        };
        self.collect_matched(snapshot, index, assessment, state);
    }

    /// Adds the edits of the rules in `matched` to the pending rewrites.
    fn rewrite_matched(&mut self, snapshot: &Snapshot, index: usize) {
        let start = self.work.listed.len();
        let edits = self.matched.iter().map(|&slot| snapshot.actions.at(slot.index()).edit());
        self.work.listed.extend(edits.filter(Option::is_some));
        self.rewrite_listed(index, start);
    }

    /// Adds the edits that are listed from `start` on, if there are any, to the pending rewrites.
    #[inline]
    fn rewrite_listed(&mut self, index: usize, start: usize) {
        let end = self.work.listed.len();
        if end > start {
            // The index of a packet in a vector fits in a byte.
            let edits = EditList::Listed(start as u32, end as u32);
            self.work.rewrites.push(PacketEdits { packet: index as u8, edits });
        }
    }

    /// Applies a packet's cached verdict. Returns false if there is none.
    #[inline]
    fn apply_cached(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> bool {
        let outcome = self.conntrack.apply_cached(snapshot, index, packet, &self.work.layouts[index]);
        let (cached, passes, edits) = match outcome {
            CachedOutcome::None => return false,
            CachedOutcome::Refused(reason) => {
                verdicts[index] = Verdict::Drop(reason);
                return true;
            }
            CachedOutcome::Invalid(cached, member) => {
                self.decide_invalid(snapshot, index, (cached, member), packet, verdicts);
                return true;
            }
            CachedOutcome::Drop(cached) => (cached, None, false),
            CachedOutcome::Pass { cached, member, edits } => (cached, Some(member), edits),
        };
        let cells = &snapshot.cells[self.worker];
        let count = Count { packets: 1, bytes: packet.len() as u64 };
        let start = self.work.listed.len();
        for &slot in self.conntrack.cached_rules(cached) {
            cells.slot(slot).add(count);
            if edits {
                self.work.listed.push(snapshot.actions.at(slot.index()).edit());
            }
        }
        if let Some(member) = passes
            && self.conntrack.offers(member)
        {
            self.offer_cached(snapshot, index, packet, (cached, member));
        }
        let Some(member) = passes else {
            let dropped_by = first_dropping_rule(snapshot, self.conntrack.cached_rules(cached));
            verdicts[index] = Verdict::Drop(DropReason::Rule);
            if let Some(drop_rule) = dropped_by {
                cells.dropped(drop_rule).add(count);
                verdicts[index] = self.dropped_by(snapshot, drop_rule, index, packet);
            }
            return true;
        };
        if self.conntrack.translates(member.0) {
            self.add_transform((index, packet), member, (self.conntrack.transform(member), None), verdicts);
        }
        self.rewrite_listed(index, start);
        true
    }

    /// Applies a packet's cached verdict together with the per-packet rules that the packet matches. Returns
    /// false without a cached verdict.
    #[inline(never)]
    fn apply_cached_and_per_packet(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> bool {
        let Some((cached, member)) = self.conntrack.cached(index) else { return false };
        if !self.conntrack.is_cache_current(index, member, packet.port) {
            verdicts[index] = Verdict::Drop(DropReason::ConnInvalid);
            return true;
        }
        let state = match snapshot.ct_rules {
            0 => CtState::Untracked,
            _ => {
                let assessment = Assessment::valid(member);
                self.conntrack.ct_state(index, &assessment, packet, &self.work.layouts[index])
            }
        };
        let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
        self.matched.clear();
        self.matched.extend_from_slice(self.conntrack.cached_rules(cached));
        let per_packet = self.per_packet.slots(index).iter().copied();
        self.matched.extend(per_packet.filter(|&slot| action(slot).matches_ct(state)));
        let layout = &self.work.layouts[index];
        let invalid = match self.has_limits(snapshot) {
            true => self.conntrack.assess_cached(snapshot, (packet, layout), member, cached),
            false => None,
        };
        let (dropped_by, outcome) = match invalid {
            Some(outcome) => (None, outcome),
            None => {
                let drop_rule = self.resolve_matched(snapshot, index, &Assessment::valid(member), packet);
                let layout = &self.work.layouts[index];
                let rules = (cached, drop_rule.is_some(), true);
                (drop_rule, self.conntrack.apply_verdict(snapshot, index, (packet, layout), member, rules))
            }
        };
        match outcome {
            CachedOutcome::None => return false,
            CachedOutcome::Refused(reason) => {
                verdicts[index] = Verdict::Drop(reason);
                return true;
            }
            CachedOutcome::Invalid(cached, member) => {
                self.decide_invalid(snapshot, index, (cached, member), packet, verdicts);
                return true;
            }
            CachedOutcome::Drop(_) => {
                self.count_matched(snapshot, packet, dropped_by);
                verdicts[index] = match dropped_by {
                    Some(drop_rule) => self.dropped_by(snapshot, drop_rule, index, packet),
                    None => Verdict::Drop(DropReason::Rule),
                };
            }
            CachedOutcome::Pass { .. } => {
                self.count_matched(snapshot, packet, dropped_by);
                if self.conntrack.translates(member.0) {
                    self.add_transform(
                        (index, packet),
                        member,
                        (self.conntrack.transform(member), None),
                        verdicts,
                    );
                }
                self.rewrite_matched(snapshot, index);
            }
        }
        if snapshot.log_rules > 0 {
            self.log_matched(snapshot, index, false, packet, verdicts[index]);
        }
        true
    }

    /// Decides on an invalid packet by the rules that all packets of its direction match, and by the
    /// per-packet rules that it matches.
    #[cold]
    fn decide_invalid(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        (cached, member): (VerdictId, (ConnId, Direction)),
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) {
        let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
        let applies =
            |slot: &RuleSlot| !action(*slot).is_stateful() && action(*slot).matches_ct(CtState::Invalid);
        self.matched.clear();
        self.matched.extend(self.conntrack.cached_candidates(cached).iter().copied().filter(applies));
        self.matched.extend(self.per_packet.slots(index).iter().copied().filter(applies));
        self.matched.extend_from_slice(self.conntrack.rules(snapshot, member.0));
        if let Some(drop_rule) = self.resolve_verdict(snapshot, index, &Assessment::valid(member), packet) {
            verdicts[index] = self.dropped_by(snapshot, drop_rule, index, packet);
        } else {
            if let Some(transform) = self.conntrack.commit_invalid(member, packet) {
                self.add_transform((index, packet), member, (transform, None), verdicts);
            }
            self.rewrite_matched(snapshot, index);
        }
        if snapshot.log_rules > 0 {
            self.log_matched(snapshot, index, false, packet, verdicts[index]);
        }
    }

    /// Adds the translation of a packet, or of the packet that it quotes, to the pending rewrites. If the
    /// packet belongs to a stream, adds it to the packets of the streams stage.
    fn add_transform(
        &mut self,
        (index, packet): (usize, &Packet<'_>),
        member: (ConnId, Direction),
        (transform, quoted): (NatTransform, Option<QuotedOffsets>),
        verdicts: &mut [Verdict],
    ) {
        if transform.hairpin.is_some() {
            verdicts[index] = Verdict::Send(packet.port);
        }
        if let (Some(stream), None, Verdict::Send(out)) = (transform.stream, quoted, verdicts[index]) {
            self.work.streamed.push((index as u8, StreamPacket { stream, member, out }));
        }
        let mut transform = transform;
        if let Some(quoted) = quoted {
            self.conntrack.note_mtu(member, quoted, packet, &self.work.layouts[index]);
            transform.translation.ack =
                transform.translation.ack.wrapping_add(self.conntrack.quoted_shift(member, quoted, packet));
        } else if !transform.changes() {
            return;
        }
        // The index of a packet in a vector fits in a byte.
        self.work.transforms.push(PacketTransform { packet: index as u8, transform, quoted });
    }
}

/// Prefetches the whole payload of a packet, because all of it will be read soon.
#[inline]
fn prefetch_payload(packet: &Packet<'_>, layout: &Layout) {
    let payload = packet.bytes().get(layout.payload_range()).unwrap_or_default();
    payload.chunks(CACHE_LINE).for_each(|line| prefetch(&line[0]));
}

/// Prefetches the memory of streams before their packets are processed, in three stages: the engine's record
/// of the stream, then what the record refers to, then what edits need. Consecutive packets of one stream
/// form a run; memory is prefetched once per run.
struct PrefetchAhead {
    /// The first packet of each run.
    first: ArrayVec<u8, VECTOR>,
    /// The number of runs that were started.
    done: usize,
}

impl PrefetchAhead {
    /// By stage: how many runs it is ahead of the current run.
    const RUNS_AHEAD: [usize; 3] = [3, 2, 1];

    fn new(packets: &[(u8, StreamPacket)], conntrack: &Conntrack) -> PrefetchAhead {
        let mut first = ArrayVec::new();
        let mut before = None;
        for (number, (_, stream_packet)) in packets.iter().enumerate() {
            if before != Some(stream_packet.stream.id) {
                before = Some(stream_packet.stream.id);
                // The index of a packet in a vector fits in a byte.
                first.push(number as u8);
            }
        }
        let ahead = PrefetchAhead { first, done: 0 };
        let [max, ..] = PrefetchAhead::RUNS_AHEAD;
        (0..max).for_each(|run| ahead.prefetch_run(packets, run, |packet| conntrack.prefetch_stream(packet)));
        ahead
    }

    /// Prefetches for later runs, if the packet with this number, which is processed next, starts a run.
    #[inline]
    fn prefetch(&mut self, packets: &[(u8, StreamPacket)], number: usize, conntrack: &Conntrack) {
        if self.first.get(self.done).is_none_or(|first| usize::from(*first) != number) {
            return;
        }
        let [stream, records, edit] = PrefetchAhead::RUNS_AHEAD.map(|runs| self.done + runs);
        self.prefetch_run(packets, stream, |packet| conntrack.prefetch_stream(packet));
        self.prefetch_run(packets, records, |packet| conntrack.prefetch_records(packet));
        self.prefetch_run(packets, edit, |packet| conntrack.prefetch_edit(packet));
        self.done += 1;
    }

    fn prefetch_run(&self, packets: &[(u8, StreamPacket)], run: usize, fetch: impl Fn(&StreamPacket)) {
        self.first.get(run).into_iter().for_each(|first| fetch(&packets[usize::from(*first)].1));
    }
}

/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

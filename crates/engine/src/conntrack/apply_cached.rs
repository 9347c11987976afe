//! Cached verdicts in the pipeline: finds them for a vector, applies them packet by packet, and caches new
//! ones.

use super::assess::Assessment;
use super::cached_unreplied::CachedUnreplied;
use super::commit::PacketRules;
use super::connection_update::Touched;
use super::flow_state::FlowState;
use super::key::PacketKind;
use super::tracking::Conntrack;
use super::verdict_cache::VerdictId;
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use mmb_base::Id;
use mmb_base::prefetch;
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, Connection, Direction, Tuple};
use mmb_packet::{Layout, Packet, PortId};
use mmb_policy::CtState;

/// The outcome of a packet's cached verdict.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CachedOutcome {
    /// The packet has no cached verdict.
    None,
    /// The packet is dropped, and rules do not count it.
    Refused(DropReason),
    /// Rules drop the packet.
    Drop(VerdictId),
    /// The packet passes as a packet of the connection and direction in `member`. With `edits`, some of its
    /// rules rewrite it.
    Pass { cached: VerdictId, member: (ConnId, Direction), edits: bool },
    /// The packet is invalid for its connection, and some rules match on `ct` states.
    Invalid(VerdictId, (ConnId, Direction)),
}

impl Conntrack {
    /// Looks up the cached verdicts of packets, if the policy allows caching, and prefetches what applying
    /// them reads. Returns whether some packets need no classification ([`Conntrack::needs_no_rules`]).
    ///
    /// The connection of such a packet exists when the vector is looked up, but an earlier packet of the
    /// vector may still end it: a RST followed by a SYN, or a RST while the table is full.
    /// [`Conntrack::apply_cached`] checks this when the packet is processed.
    pub(super) fn lookup_cache(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>]) -> bool {
        self.cached[..packets.len()].fill(None);
        if !snapshot.caches_verdicts() {
            return self.some_cached;
        }
        self.found.iter().flatten().for_each(|(id, _)| self.state.cache.prefetch(*id));
        let mut cached_unreplied = CachedUnreplied::default();
        for &(index, kind) in &self.lookup_keys.packets {
            if let FlowState::Existing(id, direction) = self.flow_states[usize::from(index)]
                && kind.is_mid_flow()
                && let Some(cached) = self.state.cache.verdict_id(id, direction)
                && self.survives_vector(snapshot, id, &mut cached_unreplied)
            {
                self.cached[usize::from(index)] = Some(cached);
                self.state.cache.verdict(cached).into_iter().for_each(prefetch);
            }
        }
        self.cached_unreplied = cached_unreplied;
        let cells = &snapshot.cells[self.state.worker];
        for (cached, packet) in self.cached.iter_mut().zip(packets) {
            let Some(id) = *cached else { continue };
            if self.state.cache.verdict(id).is_none_or(|verdict| verdict.port != packet.port) {
                *cached = None;
                continue;
            }
            self.some_cached = true;
            self.state.cache.rules(id).iter().take(4).for_each(|&slot| prefetch(cells.slot(slot)));
        }
        self.some_cached
    }

    /// Whether the cached verdicts of a connection apply to all mid-flow packets of the vector. They do if
    /// the connection is lasting. They also do if it is unreplied and will not be evicted within the
    /// vector, unless rules match on `ct` states: its first reply changes the state. In the second case the
    /// connection is added to `cached_unreplied`, so that its port is not reclaimed.
    #[inline]
    fn survives_vector(
        &self,
        snapshot: &Snapshot,
        id: ConnId,
        cached_unreplied: &mut CachedUnreplied,
    ) -> bool {
        if self.table.is_lasting(id, self.state.now_ms) {
            return true;
        }
        let outlasts = snapshot.ct_rules == 0 && self.table.is_unreplied_and_safe(id, self.state.now_ms);
        if outlasts {
            cached_unreplied.add(id);
        }
        outlasts
    }

    /// Whether a packet needs no classification: the quick pass took it, it has a cached verdict, it belongs
    /// to another worker, or it is refused or held.
    #[inline]
    pub(crate) fn needs_no_rules(&self, index: usize) -> bool {
        self.is_taken(index)
            || self.cached[index].is_some()
            || matches!(
                self.flow_states[index],
                FlowState::OtherWorker(_) | FlowState::Refused(_) | FlowState::Held(_)
            )
    }

    /// Applies the cached verdict of a packet. A packet that passes updates its connection. The caller counts
    /// the packet for [`Conntrack::cached_rules`].
    #[inline(always)]
    pub(crate) fn apply_cached(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> CachedOutcome {
        let Some((cached, member)) = self.cached(index) else { return CachedOutcome::None };
        let Some(verdict) = self.state.cache.verdict(cached) else { return CachedOutcome::None };
        let rules = (cached, verdict.drops, verdict.edits);
        self.apply_verdict(snapshot, index, (packet, layout), member, rules)
    }

    /// Like [`Conntrack::apply_cached`], for a packet that may also match per-packet rules besides those of
    /// the verdict `cached`. `drops` is whether its rules drop the packet, and `edits` whether some of them
    /// rewrite it.
    #[inline(always)]
    pub(crate) fn apply_verdict(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        (packet, layout): (&Packet<'_>, &Layout),
        member: (ConnId, Direction),
        (cached, drops, edits): (VerdictId, bool, bool),
    ) -> CachedOutcome {
        if !self.is_cache_current(index, member, packet.port) {
            // An earlier packet of this vector has ended the connection. This packet was not classified: it
            // is a late segment.
            return CachedOutcome::Refused(DropReason::ConnInvalid);
        }
        let validity = match drops {
            false => self.touch(member.0, member.1, packet, layout),
            true if self.assesses_early(snapshot) => {
                self.check_window(member, packet, layout).map(|()| Touched::Tracked)
            }
            true => Ok(Touched::Tracked),
        };
        if validity.is_err() {
            if self.drops_invalid {
                return CachedOutcome::Refused(DropReason::ConnInvalid);
            }
            if snapshot.ct_rules > 0 {
                return CachedOutcome::Invalid(cached, member);
            }
            self.pass_invalid(member, packet);
        }
        if validity == Ok(Touched::Tracked) && self.is_plain(member.0, cached) && self.was_offered(member) {
            self.table.cache_verdict(member.0, member.1, packet.port);
        }
        if drops { CachedOutcome::Drop(cached) } else { CachedOutcome::Pass { cached, member, edits } }
    }

    /// Checks a packet with a cached verdict before the limits of rules count it. Returns the outcome if the
    /// packet is invalid and packets are assessed early; otherwise `None`.
    pub(crate) fn assess_cached(
        &self,
        snapshot: &Snapshot,
        (packet, layout): (&Packet<'_>, &Layout),
        member: (ConnId, Direction),
        cached: VerdictId,
    ) -> Option<CachedOutcome> {
        if !self.assesses_early(snapshot) || self.check_window(member, packet, layout).is_ok() {
            return None;
        }
        Some(match self.drops_invalid {
            true => CachedOutcome::Refused(DropReason::ConnInvalid),
            false => CachedOutcome::Invalid(cached, member),
        })
    }

    /// The slots of a cached verdict's rules, in the order in which they are applied.
    #[inline]
    pub(crate) fn cached_rules(&self, cached: VerdictId) -> &[RuleSlot] {
        self.state.cache.rules(cached)
    }

    /// The slots of the rules that packets with a cached verdict match if their `ct` conditions are ignored.
    pub(crate) fn cached_candidates(&self, cached: VerdictId) -> &[RuleSlot] {
        self.state.cache.candidates(cached)
    }

    /// The connection and direction of a packet, if its verdict also applies to other packets of that
    /// direction.
    pub(crate) fn cacheable(
        &self,
        snapshot: &Snapshot,
        index: usize,
        assessment: &Assessment,
    ) -> Option<(ConnId, Direction)> {
        let FlowState::Existing(id, direction) = assessment.flow_state else { return None };
        let is_alike = snapshot.caches_verdicts()
            && self.is_mid_flow(index)
            && assessment.invalid.is_none()
            && (snapshot.ct_rules == 0 || self.is_lasting(id));
        is_alike.then_some((id, direction))
    }

    /// Caches the verdict of a packet for other packets of its connection and direction.
    pub(crate) fn cache_verdict(
        &mut self,
        snapshot: &Snapshot,
        member: (ConnId, Direction),
        port: PortId,
        rules: PacketRules<'_>,
        drops: bool,
    ) {
        let candidates = if snapshot.ct_rules > 0 { rules.candidates } else { &[] };
        // The quick pass counted these packets under the verdict that this one replaces.
        let unfolded = self.table.fold(member.0);
        self.state.credit(unfolded);
        self.table.clear_verdict(member.0, member.1);
        let edits = rules.applied.iter().any(|&slot| snapshot.actions.at(slot.index()).edit().is_some());
        self.state.cache.set(member, port, (rules.applied, candidates), drops, edits);
    }

    /// Whether a packet matches the same rules as the other mid-flow packets of its connection and direction,
    /// as long as rules match only on the tuple and ports.
    #[inline]
    pub(super) fn is_mid_flow(&self, index: usize) -> bool {
        self.lookup_keys.kind_of(index).is_some_and(PacketKind::is_mid_flow)
    }

    /// Whether packets of a connection pass with a cached verdict, and only the translation of addresses and
    /// ports changes them.
    #[inline]
    fn is_plain(&self, id: ConnId, cached: VerdictId) -> bool {
        let passes = self.state.cache.verdict(cached).is_some_and(|verdict| !verdict.drops && !verdict.edits);
        let extension = self.table.ids(id).extension;
        let is_plain = |extension| {
            let extension = self.state.extensions.get(extension);
            extension.is_only_stream()
                && extension.stream.is_none_or(|stream| self.state.streams.is_unshifted(stream))
        };
        passes && extension.is_none_or(is_plain)
    }

    /// A packet's cached verdict, and its connection and direction.
    #[inline]
    pub(crate) fn cached(&self, index: usize) -> Option<(VerdictId, (ConnId, Direction))> {
        match (self.cached[index], self.flow_states[index]) {
            (Some(cached), FlowState::Existing(id, direction)) => Some((cached, (id, direction))),
            _ => None,
        }
    }

    /// Whether a packet still has the connection and the cached verdict of its lookup, after earlier packets
    /// of the vector were processed.
    #[inline]
    pub(crate) fn is_cache_current(&self, index: usize, member: (ConnId, Direction), port: PortId) -> bool {
        !self.stale
            || (self.state.cache.verdict_id(member.0, member.1) == self.cached[index]
                && matches!(self.flow_state(index, port), FlowState::Existing(id, direction) if (id, direction) == member))
    }

    /// The existing connection of a packet, and the direction of the packet.
    pub(crate) fn member(&self, index: usize, packet: &Packet<'_>) -> Option<(ConnId, Direction)> {
        match self.flow_state(index, packet.port) {
            FlowState::Existing(id, direction) => Some((id, direction)),
            _ => None,
        }
    }

    /// The tuple of a connection's first packet. For a connection that a helper expected, this tuple
    /// reversed, so that source and destination are those of the control connection.
    pub(crate) fn client_tuple(&self, id: ConnId) -> Tuple {
        let tuple = self.table.get(id).tuple(Direction::Forward);
        if self.table.is_expected(id) { tuple.reversed() } else { tuple }
    }

    /// The trace of a packet of the vector that was processed last.
    pub(crate) fn traced(&self, index: usize) -> Traced<'_> {
        let flow_state = self.flow_states[index];
        // Looked up only now, because the packet may have created its connection.
        let found = match flow_state {
            FlowState::Untracked
            | FlowState::Invalid(_)
            | FlowState::OtherWorker(_)
            | FlowState::Refused(_)
            | FlowState::Held(_) => None,
            FlowState::New
            | FlowState::Expected
            | FlowState::Existing(..)
            | FlowState::Fragment(..)
            | FlowState::Error(..) => self.tuple(index).and_then(|tuple| self.table.find(&tuple)),
        };
        Traced {
            assessment: Assessment { flow_state, replaced: None, invalid: None },
            ct_state: self.ct_states[index],
            cached: self.cached[index].map(|cached| self.state.cache.rules(cached)),
            connection: found.map(|(id, direction)| (id, direction, self.table.get(id))),
        }
    }
}

/// The trace of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced<'c> {
    /// Its last recorded flow state; the other fields are not filled in.
    pub(crate) assessment: Assessment,
    /// Its `ct` state when its verdict was decided.
    pub(crate) ct_state: CtState,
    /// The slots of its rules, if its verdict was cached.
    pub(crate) cached: Option<&'c [RuleSlot]>,
    /// Its connection now.
    pub(crate) connection: Option<(ConnId, Direction, Connection)>,
}

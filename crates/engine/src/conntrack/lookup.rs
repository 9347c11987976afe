//! The connections stage: looks up the flow state and the cached verdict of each packet of a vector.

use super::flow_state::FlowState;
use super::key::{ExtractedKey, Ingress, LookupKey, PacketKind, extract, extract_plain};
use super::lookup_keys::LookupKeys;
use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use crate::verdict::{Origin, VECTOR, Verdict};
use arrayvec::ArrayVec;
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, ConnectionTable, Direction, QuickLookup, QuickResult, QuickVector, Tuple};
use mmb_nat::MAX_PREFETCHED;
use mmb_packet::columns::KeyColumns;
use mmb_packet::key::LANES4;
use mmb_packet::{Class, Layout, Packet, PortId};
use mmb_policy::settings::Zone;

/// The most packets for which one call of [`Conntrack::prefetch_new`] prefetches.
pub(crate) const BLOCK: usize = MAX_PREFETCHED;

impl Conntrack {
    /// Looks up the flow states of a vector's packets, and the cached verdicts of mid-flow packets. The quick
    /// pass leaves the packets in `left_to_worker`, which match per-packet rules. Returns whether some
    /// packets [need no classification](Conntrack::needs_no_rules).
    pub(crate) fn lookup(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        (keys, layouts): (&KeyColumns<LANES4>, &[Layout; VECTOR]),
        left_to_worker: &[u8],
        verdicts: &[Verdict],
        (origin, is_traced): (Origin, bool),
    ) -> bool {
        // Neither rules nor connections count generated packets, so the quick pass must not take them.
        self.pass_quickly(packets, (keys, layouts), left_to_worker, is_traced || origin == Origin::Generated);
        self.lookup_flow_states(snapshot, packets, layouts, verdicts, origin);
        self.lookup_cache(snapshot, packets) | (self.quick.count() > 0)
    }

    /// Runs the quick pass: the table takes mid-flow packets of connections with known verdicts. Traced
    /// packets are not taken.
    fn pass_quickly(
        &mut self,
        packets: &[Packet<'_>],
        (keys, layouts): (&KeyColumns<LANES4>, &[Layout; VECTOR]),
        left_to_worker: &[u8],
        is_traced: bool,
    ) {
        if is_traced || self.table.is_empty() {
            return self.quick.clear();
        }
        let (now_ms, ports) = (self.state.now_ms, &self.quick_ports[..]);
        self.table.pass_quickly(
            QuickVector { now_ms, packets, layouts, keys, ports, left: left_to_worker },
            &mut self.quick,
        );
        self.fold_full();
    }

    /// Whether the quick pass took a packet.
    #[inline]
    pub(crate) fn is_taken(&self, index: usize) -> bool {
        self.quick.has(index)
    }

    /// The result of the quick pass.
    #[inline]
    pub(crate) fn quick(&self) -> &QuickResult {
        &self.quick
    }

    fn lookup_flow_states(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        verdicts: &[Verdict],
        origin: Origin,
    ) {
        (self.stale, self.some_cached) = (false, false);
        self.lookup_keys.clear();
        self.refused.clear();
        self.noted_seqs.clear();
        self.flow_states[..packets.len()].fill(FlowState::Untracked);
        self.found.clear();
        let zone = snapshot.connections.zone;
        let mut run = None;
        for index in self.quick.others(packets.len()) {
            let (packet, layout) = (&packets[index], &layouts[index]);
            let ingress = match run {
                Some((port, ingress)) if port == packet.port => ingress,
                _ => {
                    let route = snapshot.route(packet.port);
                    let tagged = zone == Zone::Vlan && !route.is_routed();
                    let ingress = Ingress { wire: route.wire, side: route.side, tagged };
                    let ingress = route.enabled.then_some(ingress);
                    run = Some((packet.port, ingress));
                    ingress
                }
            };
            let Some(ingress) = ingress else { continue };
            if layout.class == Class::Other || matches!(verdicts[index], Verdict::Drop(_)) {
                continue;
            }
            let key = match extract_plain(packet, layout, ingress) {
                Some(key) => key,
                None => match self.lookup_key(packet, layout, ingress, (snapshot, origin)) {
                    Ok(None) => continue,
                    Ok(Some(key)) => key,
                    Err(flow_state) => {
                        self.flow_states[index] = flow_state;
                        self.some_cached = true;
                        continue;
                    }
                },
            };
            self.lookup_keys.push(index, key);
            self.found.push(match self.quick.lookup(index) {
                QuickLookup::Found(id, direction) => Some((id, direction)),
                QuickLookup::Absent => None,
                QuickLookup::Unknown => {
                    self.lookup_keys.unknown.push((self.found.len() as u16, key.tuple));
                    None
                }
            });
        }
        self.find_unknown();
        self.catch_up();
        let LookupKeys { tuples, packets: keys, .. } = &self.lookup_keys;
        for ((&(index, kind), &found), tuple) in keys.iter().zip(&self.found).zip(tuples) {
            let index = usize::from(index);
            self.flow_states[index] = if tuple.wire.is_routed() {
                flow_state(&self.table, found, kind, packets[index].port)
            } else {
                state_of(found, kind)
            };
        }
        if !self.state.shared.owners.owns_all(self.state.worker) {
            self.lookup_owner(packets, layouts, origin);
        }
    }

    /// Looks up the tuples that the quick pass did not look up.
    fn find_unknown(&mut self) {
        let tuples: ArrayVec<Tuple, VECTOR> =
            self.lookup_keys.unknown.iter().map(|(_, tuple)| *tuple).collect();
        let mut found = [None; VECTOR];
        self.table.find_all(&tuples, &mut found);
        for ((index, _), found) in self.lookup_keys.unknown.iter().zip(found) {
            self.found[usize::from(*index)] = found;
        }
    }

    /// The lookup key of a packet for which [`extract_plain`] returns none; `None` if the packet is not
    /// looked up. An error is the flow state of the packet, which is then already known.
    fn lookup_key(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        ingress: Ingress,
        (snapshot, origin): (&Snapshot, Origin),
    ) -> Result<Option<LookupKey>, FlowState> {
        match extract(packet, layout, ingress) {
            ExtractedKey::None => Ok(None),
            ExtractedKey::Malformed(why) => Err(FlowState::Refused(DropReason::Malformed(why))),
            ExtractedKey::Key(key) => {
                // A fragmented ICMP error is related to no connection (`icmp`). It has no ports for later
                // fragments.
                if layout.is_fragment() && !matches!(key.kind, PacketKind::IcmpError(_)) {
                    self.first_fragment(packet, layout, &key.tuple, origin)?;
                }
                Ok(Some(key))
            }
            ExtractedKey::Fragment(key) => self.later_fragment(packet, layout, key, (snapshot, origin)),
        }
    }

    /// Prefetches what is read for the packets of `block` that create connections: the stateful rules that
    /// they match and the sets of these rules, the places of the new connections, the index buckets of the
    /// expected reply tuples, and what NAT reads. Each step prefetches what the next one reads.
    pub(crate) fn prefetch_new<'s>(
        &self,
        snapshot: &Snapshot,
        block: &[u8],
        slots: impl Fn(usize) -> &'s [RuleSlot],
    ) {
        let sets = &self.state.sets;
        let new: ArrayVec<usize, BLOCK> = block
            .iter()
            .map(|index| usize::from(*index))
            .filter(|index| matches!(self.flow_states[*index], FlowState::New))
            .collect();
        if new.is_empty() || snapshot.stateful_rules == 0 {
            return;
        }
        for slot in new.iter().flat_map(|index| slots(*index)).copied() {
            snapshot.prefetch_stateful(slot);
            sets.prefetch_place(slot);
        }
        for slot in new.iter().flat_map(|index| slots(*index)).copied() {
            snapshot.stateful(slot).into_iter().for_each(|rule| rule.prefetch());
            sets.prefetch_set(slot);
        }
        self.table.prefetch_slots(new.len(), &self.state).for_each(|id| self.state.cache.prefetch(id));
        let rule_of = |index: usize| slots(index).iter().find_map(|slot| snapshot.stateful(*slot));
        let (mut maps, mut plain) = (ArrayVec::<_, BLOCK>::new(), ArrayVec::<Tuple, BLOCK>::new());
        for &index in &new {
            let Some((rule, arrived)) = rule_of(index).zip(self.tuple(index)) else { continue };
            rule.prefetch_sets();
            match rule.maps {
                true => maps.push((arrived, &rule.mapping)),
                false => plain.push(arrived),
            }
        }
        if !maps.is_empty() {
            let expect = |arrived: &Tuple, sent: &Tuple| self.table.prefetch(arrived, &sent.reversed());
            self.state.shared.nat().prefetch_new(maps.into_iter(), expect);
        }
        for slot in new.iter().flat_map(|index| slots(*index)).copied() {
            sets.prefetch_rules(slot);
        }
        plain.iter().for_each(|arrived| self.table.prefetch(arrived, &arrived.reversed()));
    }

    /// Finds the owning worker of packets for which no connection was found here.
    fn lookup_owner(&mut self, packets: &[Packet<'_>], layouts: &[Layout], origin: Origin) {
        for ((&(index, _), found), tuple) in
            self.lookup_keys.packets.iter().zip(&self.found).zip(&self.lookup_keys.tuples)
        {
            let index = usize::from(index);
            // The worker that handed the packet over has already looked up its owner.
            let is_final =
                || origin != Origin::Wire && !self.is_at_home(&packets[index], &layouts[index], tuple);
            if found.is_some() || is_final() {
                continue;
            }
            let owner = self.state.shared.owners.owner(tuple);
            if owner != self.state.worker {
                self.flow_states[index] = FlowState::OtherWorker(owner);
                self.some_cached = true;
            }
        }
    }

    /// The flow state of a packet that came in by a port, after earlier packets of the vector were processed.
    #[inline]
    pub(super) fn flow_state(&self, index: usize, port: PortId) -> FlowState {
        match self.flow_states[index] {
            known @ FlowState::OtherWorker(_) => known,
            known if self.stale => match self.lookup_keys.key_of(index) {
                Some(LookupKey { tuple, kind }) => {
                    flow_state(&self.table, self.table.find(&tuple), kind, port)
                }
                None => known,
            },
            // An earlier packet may have used the last ingress port that this direction of the connection may
            // learn.
            FlowState::Existing(id, direction)
            | FlowState::Fragment(id, direction, _)
            | FlowState::Error(id, direction, _)
                if !self.table.admits(id, direction, port) =>
            {
                FlowState::Untracked
            }
            known => known,
        }
    }

    /// The flow state of a packet as if no connection had its tuple.
    pub(super) fn recheck(&self, index: usize) -> FlowState {
        self.lookup_keys
            .key_of(index)
            .map_or(FlowState::Untracked, |LookupKey { kind, .. }| state_of(None, kind))
    }

    /// The tuple by which a packet is looked up; `None` if it is not looked up.
    pub(super) fn tuple(&self, index: usize) -> Option<Tuple> {
        self.lookup_keys.key_of(index).map(|key| key.tuple)
    }
}

/// The flow state of a packet that came in by a port, from the lookup result of its tuple. On a host that
/// routes, the tuple does not contain the ingress port, so the port is checked here.
#[inline]
fn flow_state(
    table: &ConnectionTable,
    found: Option<(ConnId, Direction)>,
    kind: PacketKind,
    port: PortId,
) -> FlowState {
    match found {
        Some((id, direction)) if !table.admits(id, direction, port) => FlowState::Untracked,
        found => state_of(found, kind),
    }
}

/// The flow state from a lookup result, without a check of the ingress port.
#[inline]
fn state_of(found: Option<(ConnId, Direction)>, kind: PacketKind) -> FlowState {
    match (kind, found) {
        (PacketKind::MidFlow | PacketKind::Packet, Some((id, direction))) => {
            FlowState::Existing(id, direction)
        }
        (PacketKind::MidFlow | PacketKind::Packet, None) => FlowState::New,
        // Both ends may send queries with the same identifier. A request is therefore never the reply to
        // another request, and a reply creates no connection.
        (PacketKind::IcmpRequest, Some((id, direction @ Direction::Forward)))
        | (PacketKind::IcmpReply, Some((id, direction @ Direction::Reply))) => {
            FlowState::Existing(id, direction)
        }
        (PacketKind::IcmpRequest, _) => FlowState::New,
        (PacketKind::Fragment(complete), Some((id, direction))) => {
            FlowState::Fragment(id, direction, complete)
        }
        (PacketKind::IcmpError(quoted), Some((id, direction))) => FlowState::Error(id, direction, quoted),
        (PacketKind::IcmpReply | PacketKind::Fragment(_) | PacketKind::IcmpError(_), _) => {
            FlowState::Untracked
        }
    }
}

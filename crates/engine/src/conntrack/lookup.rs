//! The connections stage: looks up the flow state and the cached verdict of each packet of a vector.

use super::flow_state::FlowState;
use super::key::{ExtractedKey, Ingress, LookupKey, PacketKind, extract, extract_plain};
use super::lookups::Lookups;
use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use crate::verdict::{Origin, Verdict};
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, ConnectionTable, Direction, Tuple};
use mmb_packet::{Class, Layout, Packet, PortId};
use mmb_policy::settings::Zone;

impl Conntrack {
    /// Looks up the flow states of a vector's packets, and the cached verdicts of those that are in the middle of a connection. Returns
    /// whether some packets [need no classification](Conntrack::needs_no_rules).
    pub(crate) fn lookup(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        verdicts: &[Verdict],
        origin: Origin,
    ) -> bool {
        self.lookup_flow_states(snapshot, packets, layouts, verdicts, origin);
        self.lookup_cache(snapshot, packets)
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
        self.lookups.clear();
        self.refused.clear();
        self.noted_seqs.clear();
        self.flow_states[..packets.len()].fill(FlowState::Untracked);
        let zone = snapshot.connections.zone;
        let mut start = 0;
        for run in packets.chunk_by(|a, b| a.port == b.port) {
            let route = snapshot.route(run[0].port);
            let tagged = zone == Zone::Vlan && !route.is_routed();
            let place = Ingress { wire: route.wire, side: route.side, tagged };
            let ends = if route.enabled { start + run.len() } else { start };
            for at in start..ends {
                let (packet, layout) = (&packets[at], &layouts[at]);
                if layout.class == Class::Other || matches!(verdicts[at], Verdict::Drop(_)) {
                    continue;
                }
                if let Some(key) = extract_plain(packet, layout, place) {
                    self.lookups.push(at, key);
                    continue;
                }
                match self.lookup_key(packet, layout, place, (snapshot, origin)) {
                    Ok(None) => {}
                    Ok(Some(key)) => self.lookups.push(at, key),
                    Err(flow_state) => {
                        self.flow_states[at] = flow_state;
                        self.some_cached = true;
                    }
                }
            }
            start += run.len();
        }
        self.found.clear();
        self.found.resize(self.lookups.of.len(), None);
        self.table.find_all(&self.lookups.tuples, &mut self.found);
        let Lookups { tuples, of, .. } = &self.lookups;
        for ((&(at, kind), &found), tuple) in of.iter().zip(&self.found).zip(tuples) {
            let at = usize::from(at);
            self.flow_states[at] = if tuple.wire.is_routed() {
                flow_state(&self.table, found, kind, packets[at].port)
            } else {
                state_of(found, kind)
            };
        }
        if !self.state.shared.owners.owns_all(self.state.worker) {
            self.lookup_owner(packets, layouts, origin);
        }
    }

    /// The lookup key of a packet that is not plain, if it has one. An error is its flow state if that is already known.
    fn lookup_key(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        place: Ingress,
        (snapshot, origin): (&Snapshot, Origin),
    ) -> Result<Option<LookupKey>, FlowState> {
        match extract(packet, layout, place) {
            ExtractedKey::None => Ok(None),
            ExtractedKey::Malformed(why) => Err(FlowState::Refused(DropReason::Malformed(why))),
            ExtractedKey::Key(key) => {
                // A fragmented ICMP error refers to no connection (`icmp`): it has no ports to pass on to later fragments.
                if layout.is_fragment() && !matches!(key.kind, PacketKind::IcmpError(_)) {
                    self.first_fragment(packet, layout, &key.tuple, origin)?;
                }
                Ok(Some(key))
            }
            ExtractedKey::Fragment(key) => self.later_fragment(packet, layout, key, (snapshot, origin)),
        }
    }

    /// Prefetches what packets that create connections need: the index buckets of the expected reply tuples, and for these slots the
    /// stateful rules and their rule sets.
    pub(crate) fn prefetch_new(&self, snapshot: &Snapshot, slots: &[RuleSlot]) {
        let sets = &self.state.sets;
        for &slot in slots {
            snapshot.fetch_stateful(slot);
            sets.fetch_place(slot);
        }
        for &slot in slots {
            snapshot.stateful(slot).into_iter().for_each(|rule| rule.fetch());
            sets.fetch_set(slot);
        }
        let of_each = self.lookups.of.iter().zip(&self.lookups.tuples);
        let new = of_each.filter(|((at, _), _)| matches!(self.flow_states[usize::from(*at)], FlowState::New));
        self.table.prefetch(new.map(|(_, tuple)| tuple.reversed()));
    }

    /// Finds the owning worker of packets for which no connection was found here.
    fn lookup_owner(&mut self, packets: &[Packet<'_>], layouts: &[Layout], origin: Origin) {
        for ((&(at, _), found), tuple) in self.lookups.of.iter().zip(&self.found).zip(&self.lookups.tuples) {
            let at = usize::from(at);
            // The worker that handed the packet over has already looked up its owner.
            let is_final = || origin != Origin::Wire && !self.is_at_home(&packets[at], &layouts[at], tuple);
            if found.is_some() || is_final() {
                continue;
            }
            let owner = self.state.shared.owners.of(tuple);
            if owner != self.state.worker {
                self.flow_states[at] = FlowState::OtherWorker(owner);
                self.some_cached = true;
            }
        }
    }

    /// The flow state of a packet that came in by a port, after the packets before it in the vector were processed.
    #[inline]
    pub(super) fn flow_state(&self, at: usize, port: PortId) -> FlowState {
        match self.flow_states[at] {
            known @ FlowState::OtherWorker(_) => known,
            known if self.stale => match self.lookups.of_packet(at) {
                Some(LookupKey { tuple, kind }) => {
                    flow_state(&self.table, self.table.find(&tuple), kind, port)
                }
                None => known,
            },
            // An earlier packet may have taken the last ingress port that this direction of the connection may learn.
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

    /// The flow state of a packet once its connection is closed.
    pub(super) fn recheck(&self, at: usize) -> FlowState {
        self.lookups.of_packet(at).map_or(FlowState::Untracked, |LookupKey { kind, .. }| state_of(None, kind))
    }

    /// The tuple by which a packet is looked up, if it is.
    pub(super) fn tuple(&self, at: usize) -> Option<Tuple> {
        self.lookups.of_packet(at).map(|key| key.tuple)
    }
}

/// The flow state of a packet that came in by a port, from the lookup result of its tuple. On a host that routes, the tuple does not tell
/// whether the packet came from the right side.
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
        // Both ends may send queries with the same identifier: a request is never the reply to another one, and a reply creates no
        // connection.
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

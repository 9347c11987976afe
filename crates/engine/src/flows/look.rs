//! The connections stage: how each packet of a vector stands to connections, and what was decided for it before.

use super::relate::{self, Relation, relation};
use super::{Decision, Flows, NO_TUPLE, QuotedAt, Standing};
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use crate::worker::Verdict;
use mmb_classify::prefetch;
use mmb_conn::fragment::{FragmentDrop, FragmentVerdict, Later};
use mmb_conn::{ConnId, Direction, Tuple};
use mmb_packet::checksum::{ICMP, ICMP6};
use mmb_packet::{Class, Layout, Malformed, Packet};

impl Flows {
    /// Finds out how each packet of a vector stands to connections.
    pub(crate) fn relate(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        verdicts: &[Verdict],
        handed: bool,
    ) {
        self.stale = false;
        self.asked.clear();
        self.of.clear();
        let rows = packets.iter().zip(layouts).zip(verdicts).enumerate();
        for (at, ((packet, layout), verdict)) in rows {
            self.standings[at] = Standing::Apart;
            self.tuples[at] = NO_TUPLE;
            let route = snapshot.route(packet.port);
            if !route.enabled || layout.class == Class::Other || matches!(verdict, Verdict::Drop(_)) {
                continue;
            }
            let wire = Tuple::wire(packet.port, route.peer.map(|(peer, _)| peer));
            let tuple = match relation(packet, layout, wire) {
                Relation::None => continue,
                Relation::Flow(tuple) => match self.first_fragment(packet, layout, &tuple) {
                    Some(reason) => {
                        self.standings[at] = Standing::Refused(reason);
                        continue;
                    }
                    None => tuple,
                },
                Relation::Fragment(key) => match self.later_fragment(packet, layout, key, snapshot) {
                    Ok(Some(ports)) => {
                        Tuple { addresses: key.addresses, ports, wire, proto: key.proto, family: key.family }
                    }
                    Ok(None) => continue,
                    Err(reason) => {
                        self.standings[at] = Standing::Refused(reason);
                        continue;
                    }
                },
                Relation::Error(quoted, _) => Tuple { wire, ..quoted.tuple }.reversed(),
            };
            self.tuples[at] = tuple;
            self.asked.push(tuple);
            // A vector's packets are numbered in a byte.
            self.of.push(at as u8);
        }
        self.found.clear();
        self.found.resize(self.asked.len(), None);
        self.table.find_all(&self.asked, &mut self.found);
        for number in 0..self.of.len() {
            let at = usize::from(self.of[number]);
            self.standings[at] =
                standing(self.found[number], &packets[at], &layouts[at], self.tuples[at].wire);
        }
        if self.keeper.common.owners.workers() > 1 && !handed {
            self.look_elsewhere();
        }
    }

    /// Finds the plans of packets under a policy that allows of them, and has fetched what they will touch. Returns how many packets
    /// have one.
    ///
    /// A planned packet's connection cannot end within the vector: half-open ones and those that are over, which may have to make
    /// room, are not planned, nor are packets that may begin anew.
    pub(crate) fn plan(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], layouts: &[Layout]) -> usize {
        self.planned[..packets.len()].fill(0);
        if !snapshot.is_constant() {
            return 0;
        }
        self.found.iter().flatten().for_each(|(id, _)| self.plans.fetch(*id));
        for &at in &self.of {
            let at = usize::from(at);
            let Standing::Member(id, direction) = self.standings[at] else { continue };
            let state = self.table.get(id).state;
            if state.is_half_open() || state.is_over() || layouts[at].is_fragment() {
                continue;
            }
            if let Some(plan) = self.plans.of(id, direction) {
                self.planned[at] = plan;
                if let Some(decision) = self.plans.decision(plan) {
                    prefetch(decision);
                }
            }
        }
        let cells = &snapshot.cells[self.keeper.worker];
        let mut planned = 0;
        for &at in &self.of {
            let at = usize::from(at);
            let Some(decision) = self.plans.decision(self.planned[at]) else { continue };
            let Standing::Member(id, _) = self.standings[at] else { continue };
            let begins = relate::begins(&packets[at], &layouts[at]);
            if decision.port != packets[at].port || begins || self.table.expires_ms(id, self.now_ms) == 0 {
                self.planned[at] = 0;
                continue;
            }
            planned += 1;
            self.plans.rules(decision).iter().take(4).for_each(|&slot| prefetch(cells.slot(slot)));
        }
        planned
    }

    /// The decision that is planned for a packet.
    #[inline]
    pub(crate) fn planned(&self, at: usize) -> Option<&Decision> {
        match self.planned[at] {
            0 => None,
            plan => self.plans.decision(plan),
        }
    }

    /// Finds out which of the packets that nothing was found for belong to other workers.
    fn look_elsewhere(&mut self) {
        for (&at, found) in self.of.iter().zip(&self.found) {
            let at = usize::from(at);
            if found.is_some() {
                continue;
            }
            let owner = self.keeper.common.owners.of(&self.tuples[at]);
            if owner != self.keeper.worker {
                self.standings[at] = Standing::Elsewhere(owner);
            }
        }
    }

    /// How a packet stands to connections now that those before it in the vector were worked on.
    #[inline]
    pub(crate) fn standing(&mut self, at: usize, packet: &Packet<'_>, layout: &Layout) -> Standing {
        let before = self.standings[at];
        let tuple = self.tuples[at];
        let looked_up = tuple.family != NO_TUPLE.family;
        if !self.stale || !looked_up || matches!(before, Standing::Elsewhere(_)) {
            return before;
        }
        standing(self.table.find(&tuple), packet, layout, tuple.wire)
    }

    /// How a packet stood to connections when the vector was looked up.
    #[inline]
    pub(crate) fn known(&self, at: usize) -> Standing {
        self.standings[at]
    }

    /// Remembers the ports of a first fragment.
    fn first_fragment(&mut self, packet: &Packet<'_>, layout: &Layout, tuple: &Tuple) -> Option<DropReason> {
        if !layout.is_fragment() {
            return None;
        }
        let bytes = packet.bytes();
        let key = relate::fragment_key(bytes, layout, tuple)?;
        let (_, len, _) = relate::fragment_place(bytes, layout)?;
        match self.fragments.first(self.now_ms, key, tuple.ports, len) {
            FragmentVerdict::Pass => None,
            FragmentVerdict::Drop(why) => Some(fragment_drop(why)),
        }
    }

    /// The ports of a later fragment; none if there is nothing to follow.
    fn later_fragment(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        key: mmb_conn::fragment::FragmentKey,
        snapshot: &Snapshot,
    ) -> Result<Option<[u16; 2]>, DropReason> {
        let Some((offset, len, last)) = relate::fragment_place(packet.bytes(), layout) else {
            return Ok(None);
        };
        match self.fragments.later(self.now_ms, key, offset, len, last) {
            Later::Ports(ports) => Ok(Some(ports)),
            Later::Unknown if snapshot.stateful_rules > 0 => Err(DropReason::FragmentEarly),
            Later::Unknown => Ok(None),
            Later::Drop(why) => Err(fragment_drop(why)),
        }
    }
}

/// What was found for a packet's tuple.
#[inline]
fn standing(found: Option<(ConnId, Direction)>, packet: &Packet<'_>, layout: &Layout, wire: u16) -> Standing {
    if layout.is_later_fragment() {
        return found.map_or(Standing::Apart, |(id, direction)| Standing::Fragment(id, direction));
    }
    if !matches!(layout.l4_kind, ICMP | ICMP6) {
        return found.map_or(Standing::New, |(id, direction)| Standing::Member(id, direction));
    }
    if let Relation::Error(quoted, at) = relation(packet, layout, wire) {
        let place = QuotedAt { proto: quoted.tuple.proto, ip: at + quoted.ip_at, l4: at + quoted.l4_at };
        return found.map_or(Standing::Apart, |(id, direction)| Standing::Error(id, direction, place));
    }
    // Both ends may ask under one identifier: a request is never the answer to one, and an answer begins nothing.
    match (found, relate::asks(packet, layout)) {
        (Some((id, direction @ Direction::Forward)), true) => Standing::Member(id, direction),
        (Some((id, direction @ Direction::Reply)), false) => Standing::Member(id, direction),
        (_, true) => Standing::New,
        (_, false) => Standing::Apart,
    }
}

fn fragment_drop(why: FragmentDrop) -> DropReason {
    match why {
        FragmentDrop::Overlap => DropReason::FragmentOverlap,
        FragmentDrop::Duplicate => DropReason::FragmentDuplicate,
        FragmentDrop::Tiny => DropReason::Malformed(Malformed::TinyFragment),
        FragmentDrop::BadLength => DropReason::FragmentBadLength,
        FragmentDrop::TooMany => DropReason::FragmentTooMany,
    }
}

//! Making connections: of packets, and of what another daemon saved.

use super::saved::Saved;
use super::{Flows, relate};
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use mmb_conn::nat::{self, Mapping, Nat, Translated};
use mmb_conn::{ConnId, Connection, DESTINATION, Direction, Segment, Tuple};
use mmb_packet::{Layout, LinkType, Packet};
use std::sync::atomic::Ordering;

impl Flows {
    /// Makes a connection of a packet that matched these stateful rules, given by slot in the order in which their targets are
    /// applied. `arrived` is the packet's tuple.
    ///
    /// # Errors
    /// Why there is none; the packet is not to pass then.
    pub(crate) fn open(
        &mut self,
        snapshot: &Snapshot,
        arrived: Tuple,
        slots: &[u32],
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(ConnId, Direction), DropReason> {
        let rules = || slots.iter().filter_map(|&slot| snapshot.stateful(slot));
        let mut mapping = Mapping::default();
        for rule in rules().filter(|rule| rule.maps) {
            merge(&mut mapping, &rule.mapping);
        }
        let segment = relate::segment(packet, layout);
        let Flows { table, keeper, .. } = self;
        if rules().all(|rule| !rule.maps) && keeper.common.bindings.load(Ordering::Relaxed) == 0 {
            let extra = keeper.extras.make(rules(), &arrived, segment.as_ref(), None);
            let set = keeper.sets.enter(snapshot, slots);
            return self.enter(packet, segment.as_ref(), [arrived, arrived.reversed()], [set, 0, extra]);
        }
        let first = rules().next().map_or(0, |rule| rule.stamp as u32);
        let owners = &keeper.common.owners;
        let elsewhere = |tuple: &Tuple| owners.workers() > 1 && owners.is_taken(tuple, keeper.worker);
        let taken = |tuple: &Tuple| table.find(tuple).is_some() || elsewhere(tuple);
        let mut hairpin = None;
        let mut nat = keeper.common.nat();
        let mut translated = nat.translate(first, &mapping, &arrived, &taken).map_err(refused)?;
        // A packet for an outside end of ours, from a side that has one itself, goes back to that side (RFC 4787 REQ-9).
        if let Some(inside) = owner(&nat, &translated.sent) {
            if snapshot.route(packet.port).is_routed() {
                translated = nat.enter(translated);
            } else if let (Some(to), Some(from)) =
                (keeper.extras.neighbour(arrived.wire, inside), source_mac(packet))
            {
                let outside = translated.sent;
                translated = nat.enter(translated);
                if translated.sent != outside && mapping.saddr.is_some() {
                    hairpin = Some([to, from]);
                }
            }
        }
        keeper.common.bindings.store(nat.len(), Ordering::Relaxed);
        drop(nat);
        let Translated { sent, binding } = translated;
        if mapping.saddr.is_some()
            && let Some(mac) = source_mac(packet)
        {
            keeper.extras.learn(arrived.wire, arrived.addresses[0], mac);
        }
        let extra = keeper.extras.make(rules(), &arrived, segment.as_ref(), hairpin);
        let set = keeper.sets.enter(snapshot, slots);
        self.enter(packet, segment.as_ref(), [arrived, sent.reversed()], [set, binding, extra])
    }

    /// Makes a connection of a packet that matched no stateful rule, but comes to an outside end of ours from whom it may (RFC 4787
    /// REQ-8); none if it does not.
    ///
    /// # Errors
    /// Why there is none though it may come; the packet is not to pass then.
    pub(crate) fn admit(
        &mut self,
        snapshot: &Snapshot,
        arrived: Tuple,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<Option<(ConnId, Direction)>, DropReason> {
        let common = &self.keeper.common;
        if common.bindings.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let Translated { sent, binding } = common.nat().enter(Translated { sent: arrived, binding: 0 });
        if sent == arrived {
            return Ok(None);
        }
        let segment = relate::segment(packet, layout);
        let set = self.keeper.sets.enter(snapshot, &[]);
        self.enter(packet, segment.as_ref(), [arrived, sent.reversed()], [set, binding, 0]).map(Some)
    }

    /// Puts a connection into the table with its first packet; `[set, binding, extra]` is what it has.
    fn enter(
        &mut self,
        packet: &Packet<'_>,
        segment: Option<&Segment>,
        [arrived, reply]: [Tuple; 2],
        [set, binding, extra]: [u32; 3],
    ) -> Result<(ConnId, Direction), DropReason> {
        let Flows { table, keeper, .. } = self;
        let made = table.insert(keeper.now_ms, arrived, reply, segment, &mut |connection, reason| {
            keeper.closed(connection, reason);
        });
        self.stale = true;
        let id = self.settle(made, [set, binding, extra])?;
        self.table.touch(id, Direction::Forward, self.keeper.now_ms, packet.len(), segment);
        self.keeper.tell(self.table.get(id), None);
        Ok((id, Direction::Forward))
    }

    /// A connection for a file.
    pub(crate) fn saved(&self, connection: &Connection) -> Saved {
        let rules = self.keeper.sets.rules(connection.rules).map(|rule| rule.id).collect();
        Saved::of(connection, self.keeper.now_ms, *self.keeper.extras.get(connection.extra), rules)
    }

    /// Makes a connection that another daemon had. `slots` are those of its rules that this one knows.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) fn restore(
        &mut self,
        snapshot: &Snapshot,
        saved: &Saved,
        slots: &[u32],
    ) -> Result<(), DropReason> {
        let [arrived, reply] = saved.connection.tuples;
        let mut mapping = Mapping::default();
        for rule in slots.iter().filter_map(|&slot| snapshot.stateful(slot)) {
            merge(&mut mapping, &rule.mapping);
        }
        let Flows { table, keeper, .. } = self;
        let mut nat = keeper.common.nat();
        let restored = nat.restore(&mapping, &arrived, reply.reversed()).map_err(refused)?;
        keeper.common.bindings.store(nat.len(), Ordering::Relaxed);
        drop(nat);
        let extra = keeper.extras.keep(saved.extra);
        let set = keeper.sets.enter(snapshot, slots);
        let made = table.restore(keeper.now_ms, &saved.connection, &mut |connection, reason| {
            keeper.closed(connection, reason);
        });
        self.stale = true;
        self.settle(made, [set, restored.binding, extra]).map(|_| ())
    }

    /// Hangs on a connection that was made what it has; gives that back if it was not.
    fn settle(
        &mut self,
        made: Result<ConnId, mmb_conn::Refused>,
        [set, binding, extra]: [u32; 3],
    ) -> Result<ConnId, DropReason> {
        let Flows { table, keeper, .. } = self;
        let claimed = made.map_err(|why| match why {
            mmb_conn::Refused::Full => DropReason::ConnFull,
            mmb_conn::Refused::Taken => DropReason::NatClash,
            mmb_conn::Refused::NotSyn => DropReason::ConnNotSyn,
        });
        let claimed = claimed.and_then(|id| {
            if keeper.common.claim(table.get(id), keeper.worker) {
                return Ok(id);
            }
            table.remove(id);
            Err(DropReason::NatClash)
        });
        let id = match claimed {
            Ok(id) => id,
            Err(reason) => {
                keeper.common.release(binding);
                keeper.extras.free(extra);
                keeper.sets.leave(set);
                return Err(reason);
            }
        };
        self.plans.begin(id);
        let connection = table.get_mut(id);
        (connection.rules, connection.binding, connection.extra) = (set, binding, extra);
        keeper.cells.connection_created();
        self.count();
        Ok(id)
    }
}

/// The inside address whose outside end a packet goes to.
fn owner(nat: &Nat, sent: &Tuple) -> Option<u128> {
    let Tuple { addresses, ports, wire, proto, family } = *sent;
    nat.owner(proto, family, wire, addresses[DESTINATION], ports[DESTINATION]).map(|(inside, _)| inside)
}

/// What a later rule maps goes before what an earlier one did.
fn merge(mapping: &mut Mapping, later: &Mapping) {
    let Mapping { saddr, daddr, sport, dport, balance } = later;
    if saddr.is_some() {
        mapping.saddr.clone_from(saddr);
    }
    if daddr.is_some() || dport.is_some() {
        mapping.balance = *balance;
    }
    if daddr.is_some() {
        mapping.daddr.clone_from(daddr);
    }
    if sport.is_some() {
        mapping.sport.clone_from(sport);
    }
    if dport.is_some() {
        mapping.dport.clone_from(dport);
    }
}

fn refused(why: nat::Refused) -> DropReason {
    match why {
        nat::Refused::NoAddress => DropReason::NatNoAddress,
        nat::Refused::NoPort => DropReason::NatNoPort,
        nat::Refused::Clash => DropReason::NatClash,
    }
}

/// The Ethernet address that a packet comes from.
fn source_mac(packet: &Packet<'_>) -> Option<[u8; 6]> {
    if packet.link != LinkType::Ethernet {
        return None;
    }
    packet.bytes().get(6..12)?.try_into().ok()
}

//! Making connections: of packets, and of what another daemon saved.

use super::ports::Made;
use super::saved::Saved;
use super::{Ends, Flows, Stateful, relate, sources};
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use mmb_conn::nat::{self, Mapping, Nat, Translated};
use mmb_conn::{Arrivals, ConnId, Connection, DESTINATION, Direction, Invalid, Signal, Tuple};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, LinkType, Packet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Flows {
    /// Makes a connection of a packet that matched these stateful rules, given by slot in the order in which their targets are
    /// applied. `arrived` is the packet's tuple. Another connection `ends` when this one begins.
    ///
    /// # Errors
    /// Why there is none; the packet is not to pass then.
    pub(crate) fn open(
        &mut self,
        snapshot: &Snapshot,
        (arrived, ends): (Tuple, Ends),
        slots: &[u32],
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(ConnId, Direction), DropReason> {
        self.keeper.reserve(slots.len())?;
        self.begin_source(&arrived, ends)?;
        let opened = self.open_counted(snapshot, (arrived, ends), slots, packet, layout);
        self.settle_source(&arrived, opened.as_ref().ok().map(|(id, _)| *id));
        opened
    }

    fn begin_source(&self, arrived: &Tuple, ends: Ends) -> Result<(), DropReason> {
        self.keeper.begin_source(arrived, ends.map(|(id, _)| self.table.get(id)))
    }

    fn settle_source(&mut self, arrived: &Tuple, made: Option<ConnId>) {
        let Flows { table, keeper, .. } = self;
        keeper.settle_source(arrived, made.map(|id| table.get_mut(id)));
    }

    fn open_counted(
        &mut self,
        snapshot: &Snapshot,
        (arrived, ends): (Tuple, Ends),
        slots: &[u32],
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(ConnId, Direction), DropReason> {
        let rules = || slots.iter().filter_map(|&slot| snapshot.stateful(slot));
        let mapping = merged(rules());
        let signal = relate::signal(packet, layout);
        let keeper = &mut self.keeper;
        if rules().all(|rule| !rule.maps) && keeper.common.bindings.load(Ordering::Relaxed) == 0 {
            let extra = keeper.extras.make(rules(), [&arrived; 2], signal.as_ref(), None);
            let set = keeper.sets.enter(snapshot, slots);
            let arrivals = arrivals(snapshot, packet, false);
            return self.enter(
                ends,
                packet,
                signal.as_ref(),
                [arrived, arrived.reversed()],
                arrivals,
                [set, 0, extra],
            );
        }
        let first = rules().next().map_or(0, |rule| rule.stamp as u32);
        let Made { translated, hairpin, turns_back } =
            self.translate(snapshot, packet, (first, &mapping), &arrived, ends)?;
        let keeper = &mut self.keeper;
        let Translated { sent, binding } = translated;
        if mapping.saddr.is_some()
            && let Some(mac) = source_mac(packet)
        {
            keeper.extras.neighbours.learn(keeper.now_ms, arrived.wire, arrived.addresses[0], mac);
        }
        let extra = keeper.extras.make(rules(), [&arrived, &sent], signal.as_ref(), hairpin);
        let set = keeper.sets.enter(snapshot, slots);
        let reply = if turns_back { sent.turned_back() } else { sent.reversed() };
        let arrivals = arrivals(snapshot, packet, turns_back);
        self.enter(ends, packet, signal.as_ref(), [arrived, reply], arrivals, [set, binding, extra])
    }

    /// Makes a connection of a packet that matched no stateful rule, but comes to an outside end of ours from whom it may (RFC 4787
    /// REQ-8); none if it does not. Another connection `ends` when this one begins.
    ///
    /// # Errors
    /// Why there is none though it may come; the packet is not to pass then.
    pub(crate) fn admit(
        &mut self,
        snapshot: &Snapshot,
        (arrived, ends): (Tuple, Ends),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<Option<(ConnId, Direction)>, DropReason> {
        if self.keeper.common.bindings.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        self.keeper.reserve(0)?;
        let entered = self.keeper.common.nat().enter(Translated { sent: arrived, binding: 0 });
        let Translated { sent, binding } = entered.map_err(refused)?;
        if sent == arrived {
            return Ok(None);
        }
        if transport_soundness(packet.bytes(), layout) == Soundness::Wrong {
            self.keeper.common.release(binding);
            self.keeper.cells.count_invalid(Invalid::BadChecksum);
            return Err(DropReason::ConnInvalid);
        }
        if let Err(refused) = self.begin_source(&arrived, ends) {
            self.keeper.common.release(binding);
            return Err(refused);
        }
        let signal = relate::signal(packet, layout);
        let set = self.keeper.sets.enter(snapshot, &[]);
        let arrivals = arrivals(snapshot, packet, false);
        let tuples = [arrived, sent.reversed()];
        let entered = self.enter(ends, packet, signal.as_ref(), tuples, arrivals, [set, binding, 0]);
        self.settle_source(&arrived, entered.as_ref().ok().map(|(id, _)| *id));
        entered.map(Some)
    }

    /// Puts a connection into the table with its first packet; `[set, binding, extra]` is what it has. Its tuples may be those of the one
    /// that `ends`: nothing but the table itself, which has room then, refuses it any more.
    fn enter(
        &mut self,
        ends: Ends,
        packet: &Packet<'_>,
        signal: Option<&Signal>,
        [arrived, reply]: [Tuple; 2],
        arrivals: Arrivals,
        [set, binding, extra]: [u32; 3],
    ) -> Result<(ConnId, Direction), DropReason> {
        // To make room in a pool, it may have ended before.
        if let Some((id, reason)) = ends
            && self.table.live(id).is_some()
        {
            self.end(id, reason);
        }
        let Flows { table, keeper, .. } = self;
        let made = table.insert(keeper.now_ms, arrived, reply, signal, &mut |connection, reason| {
            keeper.closed(connection, reason);
        });
        self.stale = true;
        let id = self.settle(made, [set, binding, extra])?;
        self.table.get_mut(id).arrivals = arrivals;
        self.table.touch(id, Direction::Forward, self.keeper.now_ms, packet.len(), signal);
        self.keeper.tell(self.table.get(id), None);
        Ok((id, Direction::Forward))
    }

    /// A connection for a file.
    pub(crate) fn saved(&self, connection: &Connection) -> Saved {
        let rules = self.keeper.sets.rules(sources::rule_set(connection)).map(|rule| rule.id).collect();
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
        self.keeper.reserve(slots.len())?;
        let [arrived, _] = saved.connection.tuples;
        let mapping = merged(slots.iter().filter_map(|&slot| snapshot.stateful(slot)));
        self.begin_source(&arrived, None)?;
        let restored = self.restore_counted(snapshot, saved, slots, &mapping);
        self.settle_source(&arrived, restored.as_ref().ok().copied());
        restored.map(|_| ())
    }

    fn restore_counted(
        &mut self,
        snapshot: &Snapshot,
        saved: &Saved,
        slots: &[u32],
        mapping: &Mapping,
    ) -> Result<ConnId, DropReason> {
        let [arrived, reply] = saved.connection.tuples;
        let Flows { table, keeper, .. } = self;
        let mut nat = keeper.common.nat();
        let restored = match nat.restore(mapping, &arrived, reply.reversed()) {
            // It had lent its port to another one by then, or has to now.
            Err(_) if saved.connection.state.is_over() => Translated { sent: reply.reversed(), binding: 0 },
            restored => restored.map_err(refused)?,
        };
        keeper.common.bindings.store(nat.len(), Ordering::Relaxed);
        drop(nat);
        let extra = keeper.extras.keep(saved.extra);
        let set = keeper.sets.enter(snapshot, slots);
        let made = table.restore(keeper.now_ms, &saved.connection, &mut |connection, reason| {
            keeper.closed(connection, reason);
        });
        self.stale = true;
        self.settle(made, [set, restored.binding, extra])
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
            mmb_conn::Refused::Invalid(Invalid::NotSyn) => DropReason::ConnNotSyn,
            mmb_conn::Refused::Invalid(_) => DropReason::ConnInvalid,
            mmb_conn::Refused::NoMemory => DropReason::ConnNoMemory,
        });
        let claimed = claimed.and_then(|id| {
            let claimed = keeper.common.claim(table.get(id), keeper.worker);
            claimed.map(|()| id).map_err(|unclaimed| {
                table.remove(id);
                unclaimed.into()
            })
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

/// By which ports a connection's packets come in, if its first one came to a host that routes. Replies come in by another port
/// unless its packets turn back to where they came from, or all do: there the policy says so.
fn arrivals(snapshot: &Snapshot, packet: &Packet<'_>, turns_back: bool) -> Arrivals {
    match snapshot.route(packet.port).is_routed() {
        true => Arrivals::new(packet.port, turns_back || snapshot.connections.same_port),
        false => Arrivals::default(),
    }
}

/// The inside address whose outside end a packet goes to.
pub(super) fn owner(nat: &Nat, sent: &Tuple) -> Option<u128> {
    let Tuple { addresses, wire, proto, family, .. } = *sent;
    nat.owner(proto, family, wire, addresses[DESTINATION], sent.port(DESTINATION)).map(|(inside, _)| inside)
}

/// What these rules map together.
fn merged<'r>(rules: impl Iterator<Item = &'r Arc<Stateful>>) -> Mapping {
    let mut mapping = Mapping::default();
    rules.filter(|rule| rule.maps).for_each(|rule| merge(&mut mapping, &rule.mapping));
    mapping
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

pub(super) fn refused(why: nat::Refused) -> DropReason {
    match why {
        nat::Refused::NoAddress => DropReason::NatNoAddress,
        nat::Refused::NoPort => DropReason::NatNoPort,
        nat::Refused::NoMemory => DropReason::ConnNoMemory,
        nat::Refused::HostLimit => DropReason::NatHostLimit,
        nat::Refused::Clash => DropReason::NatClash,
    }
}

/// The Ethernet address that a packet comes from.
pub(super) fn source_mac(packet: &Packet<'_>) -> Option<[u8; 6]> {
    if packet.link != LinkType::Ethernet {
        return None;
    }
    packet.bytes().get(6..12)?.try_into().ok()
}

//! Translates new connections, and reclaims outside ports when a pool has no free port.
//!
//! A new connection does not wait until other connections time out. It reclaims a port in this order:
//!
//! - From a closed connection. The closed connection keeps both its tuples and still translates late packets.
//!   Meanwhile its port may be bound to another inside endpoint for other destinations.
//! - From an unreplied connection, which is evicted. Its host uses the most ports among the hosts of the
//!   examined connections.
//!
//! Some hosts may not evict every unreplied connection:
//!
//! - A host that uses at least [`MANY_PORTS`] ports evicts only connections of hosts with as many or more, or
//!   connections of age [`STALE_MS`] or more.
//! - A host at its limit evicts only its own connections, and only those of age [`STALE_MS`] or more. If the
//!   limit depends on the ports that other hosts leave free, connections of any host that have been idle for
//!   [`STALE_MS`] are evicted as well.
//!
//! Connections that were replied to are never evicted. Only connections of this worker are examined, a
//! limited number per packet. After a search that found nothing, packets with the same shortage back off
//! (`backoffs`).

use super::flow_state::Replaced;
use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use arrayvec::ArrayVec;
use mmb_conn::{CloseReason, ConnId, Connection, ConnectionTable, DESTINATION, Direction, Tuple};
use mmb_nat::{Mapping, Nat, NatError, PortShortage, RuleVersion, Translated};
use mmb_packet::{LinkType, Packet};

/// The most ports that one new connection reclaims: a port that becomes free may still be in use towards the
/// destination of the new connection.
const ROUNDS: usize = 4;
/// How many connections of each queue are examined: closed ones until one is suitable, unreplied ones to find
/// the host that uses the most ports.
const CLOSED_EXAMINED: usize = 256;
const UNREPLIED_EXAMINED: usize = 64;
/// A port of a host with this many ports is reclaimed without a search for a host with more. Such a host
/// takes no port from a host with fewer.
const MANY_PORTS: u32 = 64;
/// From this age on, an unreplied connection may be evicted for any host: by then TCP has sent the first
/// packet three times (RFC 6298).
const STALE_MS: u64 = 5000;

/// A translation for a new connection.
pub(super) struct NewTranslation {
    pub(super) translated: Translated,
    /// The MAC addresses of both ends, if its packets hairpin on Ethernet.
    pub(super) hairpin: Option<[[u8; 6]; 2]>,
    /// Packets return to the side that they came from, and replies come from that side too.
    pub(super) turns_back: bool,
}

impl Conntrack {
    /// Translates a new connection. If a port is missing, reclaims one and retries. `first` is the
    /// version of the first rule of the connection. The translation may use the tuples of the connection
    /// `replaced`, which the new connection replaces.
    ///
    /// # Errors
    /// The reason why the translation fails, even after ports were reclaimed where possible.
    pub(super) fn translate(
        &mut self,
        snapshot: &Snapshot,
        packet: &Packet<'_>,
        (first, mapping): (RuleVersion, &Mapping),
        arrived: &Tuple,
        replaced: Replaced,
    ) -> Result<NewTranslation, DropReason> {
        let mut rounds = 0..ROUNDS;
        loop {
            match self.try_translate(snapshot, packet, (first, mapping), arrived, replaced) {
                Ok(translation) => return Ok(translation),
                Err(why) if rounds.next().is_none() || !self.free_port(mapping, arrived, why) => {
                    return Err(refused(why));
                }
                Err(_) => {}
            }
        }
    }

    fn try_translate(
        &self,
        snapshot: &Snapshot,
        packet: &Packet<'_>,
        (first, mapping): (RuleVersion, &Mapping),
        arrived: &Tuple,
        replaced: Replaced,
    ) -> Result<NewTranslation, NatError> {
        let Conntrack { table, state, .. } = self;
        let owners = &state.shared.owners;
        let elsewhere = |tuple: &Tuple| owners.owning() > 1 && owners.is_taken(tuple, state.worker);
        let stays = |(id, _): (ConnId, Direction)| replaced.is_none_or(|(ending, _)| ending != id);
        let taken = |tuple: &Tuple| table.find(tuple).is_some_and(stays) || elsewhere(tuple);
        let (mut hairpin, mut turns_back) = (None, false);
        let mut nat = state.shared.nat();
        let mut translated = nat.translate(first, mapping, arrived, &taken)?;
        // A routing host resolves the MAC addresses of its neighbours itself.
        if mapping.saddr.is_some()
            && !arrived.wire.is_routed()
            && let Some(mac) = source_mac(packet)
        {
            nat.learn_mac(translated.lease, state.now_ms, mac);
        }
        // A packet from the inside to an outside endpoint of another binding hairpins: it returns to the
        // inside (RFC 4787, REQ-9).
        if is_bound(&nat, &translated.sent) {
            let outside = translated.sent;
            if snapshot.route(packet.port).is_routed() {
                translated = nat.enter(translated)?;
                turns_back = translated.sent != outside;
            } else if let (Some(to), Some(from)) = (nat.inside_mac(&translated.sent), source_mac(packet)) {
                translated = nat.enter(translated)?;
                if translated.sent != outside && mapping.saddr.is_some() {
                    hairpin = Some([to, from]);
                    turns_back = true;
                }
            }
        }
        state.shared.note_bindings(&nat);
        Ok(NewTranslation { translated, hairpin, turns_back })
    }

    /// After a translation failed with `why`: takes the port of a closed connection, or evicts unreplied
    /// connections. Returns false if no port was reclaimed.
    fn free_port(&mut self, mapping: &Mapping, arrived: &Tuple, why: NatError) -> bool {
        let now_ms = self.state.now_ms;
        let Some(shortage) = self.state.shared.nat().shortage(mapping, arrived, why) else { return false };
        let backoff = self.backoffs.entry(self.table.hash(&shortage.key()), now_ms);
        if backoff.is_active(now_ms) {
            return false;
        }
        let found = match self.find_closed(mapping, arrived, &shortage) {
            Some((id, PortUse::None)) => return self.detach(id),
            found => found.map(|(id, _)| id).or_else(|| self.find_unreplied(arrived.proto, &shortage)),
        };
        match found {
            Some(id) => self.end(id, CloseReason::Evicted),
            None if self.end_idle(arrived.proto, &shortage) > 0 => return true,
            None => self.backoffs.entry(self.table.hash(&shortage.key()), now_ms).begin(now_ms),
        }
        found.is_some()
    }

    /// A closed connection whose port helps, preferably one whose port is not in use towards the destination
    /// of the new connection.
    fn find_closed(
        &mut self,
        mapping: &Mapping,
        arrived: &Tuple,
        shortage: &PortShortage<'_>,
    ) -> Option<(ConnId, PortUse)> {
        let Conntrack { table, state, cursor, .. } = self;
        let nat = state.shared.nat();
        let mut found = None;
        table.search_closed(cursor, (arrived.proto, CLOSED_EXAMINED), &mut |id, connection| {
            if connection.ids.lease.is_none_or(|lease| nat.would_free(lease, shortage).is_none()) {
                return false;
            }
            match use_of_port(table, connection, mapping, arrived) {
                PortUse::None => found = Some((id, PortUse::None)),
                PortUse::Own => found = found.or(Some((id, PortUse::Own))),
                PortUse::Others => {}
            }
            matches!(found, Some((_, PortUse::None)))
        });
        found
    }

    /// An unreplied connection whose port helps, of the host that uses the most ports among those examined.
    fn find_unreplied(&mut self, proto: u8, shortage: &PortShortage<'_>) -> Option<ConnId> {
        let Conntrack { table, state, cursor, cached_unreplied, .. } = self;
        let (nat, now_ms) = (state.shared.nat(), state.now_ms);
        let mut found: Option<(u32, ConnId)> = None;
        table.search_unreplied(cursor, (proto, UNREPLIED_EXAMINED), &mut |id, connection| {
            let Some(held) = connection.ids.lease.and_then(|lease| nat.would_free(lease, shortage)) else {
                return false;
            };
            let outranks =
                !shortage.is_host_limit() && (shortage.held() < MANY_PORTS || held >= shortage.held());
            let gives_way = outranks || connection.age_ms(now_ms) >= STALE_MS;
            let gives_way = gives_way && !cached_unreplied.may_have(id);
            if gives_way && found.is_none_or(|(max, _)| held > max) {
                found = Some((held, id));
            }
            gives_way && held >= MANY_PORTS
        });
        found.map(|(_, id)| id)
    }

    /// If the limit of the host depends on the ports that other hosts leave free, evicts idle unreplied
    /// connections of any host. Returns their number. The limit rises only after several ports become free.
    fn end_idle(&mut self, proto: u8, shortage: &PortShortage<'_>) -> usize {
        let Some(shortage) = shortage.pool_shortage() else { return 0 };
        let Conntrack { table, state, cursor, cached_unreplied, .. } = self;
        let (nat, now_ms) = (state.shared.nat(), state.now_ms);
        let mut idle = ArrayVec::<ConnId, UNREPLIED_EXAMINED>::new();
        table.search_unreplied(cursor, (proto, UNREPLIED_EXAMINED), &mut |id, connection| {
            if connection.idle_ms(now_ms) >= STALE_MS
                && !cached_unreplied.may_have(id)
                && connection.ids.lease.is_some_and(|lease| nat.would_free(lease, &shortage).is_some())
            {
                idle.push(id);
            }
            idle.is_full()
        });
        drop(nat);
        idle.iter().for_each(|id| self.end(*id, CloseReason::Evicted));
        idle.len()
    }

    /// Releases the port of a closed connection. The connection still translates packets.
    fn detach(&mut self, id: ConnId) -> bool {
        let lease = self.table.ids_mut(id).lease.take();
        self.state.shared.release(lease);
        true
    }
}

/// Which connection uses the outside endpoint of a closed connection towards the destination of a new
/// connection.
#[derive(Clone, Copy)]
enum PortUse {
    None,
    /// The closed connection itself.
    Own,
    Others,
}

fn use_of_port(table: &ConnectionTable, closed: &Connection, mapping: &Mapping, arrived: &Tuple) -> PortUse {
    if mapping.daddr.is_some() || mapping.dport.is_some() {
        // The destination is not chosen yet.
        return PortUse::None;
    }
    let reply = closed.tuple(Direction::Reply);
    let mut wanted = arrived.reversed();
    wanted.addresses[DESTINATION] = reply.addresses[DESTINATION];
    wanted.ports[DESTINATION] = reply.ports[DESTINATION];
    if wanted == reply {
        return PortUse::Own;
    }
    if table.find(&wanted).is_some() { PortUse::Others } else { PortUse::None }
}

/// Whether a packet with this tuple is addressed to the outside endpoint of a NAT binding.
fn is_bound(nat: &Nat, sent: &Tuple) -> bool {
    let Tuple { addresses, wire, proto, family, .. } = *sent;
    nat.owner(proto, family, wire, addresses[DESTINATION], sent.port(DESTINATION)).is_some()
}

/// The drop reason of a packet whose connection cannot be translated.
pub(super) fn refused(why: NatError) -> DropReason {
    match why {
        NatError::NoAddress => DropReason::NatNoAddress,
        NatError::NoServer => DropReason::LbNoServer,
        NatError::NoPort => DropReason::NatNoPort,
        NatError::NoMemory => DropReason::ConnNoMemory,
        NatError::HostLimit => DropReason::NatHostLimit,
        NatError::Clash => DropReason::NatClash,
    }
}

/// The source MAC address of a packet.
pub(super) fn source_mac(packet: &Packet<'_>) -> Option<[u8; 6]> {
    if packet.link != LinkType::Ethernet {
        return None;
    }
    packet.bytes().get(6..12)?.try_into().ok()
}

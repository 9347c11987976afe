//! Translations for new connections, and whose outside port is taken back where a pool has none left.
//!
//! A new connection does not wait for others' timeouts. First a connection that is over gives its port up: it keeps both its tuples
//! and goes on translating stragglers, while the port may become another inside end's towards other destinations. If there is none,
//! one that nobody answered ends, the oldest of the host that holds the most of those that are looked at; a host never loses a port to one that
//! holds more. A connection that both ends want is left alone. Only this worker's connections are asked, so many for a packet.

use super::{Flows, begin};
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use mmb_conn::nat::{Mapping, Refused, Translated};
use mmb_conn::{CloseReason, Connection, DESTINATION, Direction, Table, Tuple};
use mmb_packet::Packet;
use std::sync::atomic::Ordering;

/// How many ports one new connection may take back: one that is free may still be in use towards its destination.
const ROUNDS: usize = 4;
/// How many connections of each queue are looked at: such as are over, until one will do; unreplied ones, to find whose host holds the
/// most ports.
const OVER_LOOKED: usize = 256;
const UNREPLIED_LOOKED: usize = 64;
/// A host that holds so many ports loses one before more hosts are looked at.
const MANY: u32 = 64;
/// How long nothing is looked for after a search that found nothing: such packets may come in a flood.
const PAUSE_MS: u64 = 1;

/// A translation for a new connection.
pub(super) struct Made {
    pub(super) translated: Translated,
    /// The Ethernet addresses of both ends, if mmb sends its packets back.
    pub(super) hairpin: Option<[[u8; 6]; 2]>,
    /// Its packets go back to the side that they came from, and replies come from there too.
    pub(super) turns_back: bool,
}

impl Flows {
    /// The translation of a new connection; `first` is the stamp of the first of its rules.
    ///
    /// # Errors
    /// Why there is none, though room was made where it can be.
    pub(super) fn translate(
        &mut self,
        snapshot: &Snapshot,
        packet: &Packet<'_>,
        (first, mapping): (u32, &Mapping),
        arrived: &Tuple,
    ) -> Result<Made, DropReason> {
        let mut rounds = 0..ROUNDS;
        loop {
            match self.try_translate(snapshot, packet, (first, mapping), arrived) {
                Ok(made) => return Ok(made),
                Err(why) if rounds.next().is_none() || !self.free_port(mapping, arrived, why) => {
                    return Err(begin::refused(why));
                }
                Err(_) => {}
            }
        }
    }

    fn try_translate(
        &self,
        snapshot: &Snapshot,
        packet: &Packet<'_>,
        (first, mapping): (u32, &Mapping),
        arrived: &Tuple,
    ) -> Result<Made, Refused> {
        let Flows { table, keeper, .. } = self;
        let owners = &keeper.common.owners;
        let elsewhere = |tuple: &Tuple| owners.owning() > 1 && owners.is_taken(tuple, keeper.worker);
        let taken = |tuple: &Tuple| table.find(tuple).is_some() || elsewhere(tuple);
        let (mut hairpin, mut turns_back) = (None, false);
        let mut nat = keeper.common.nat();
        let mut translated = nat.translate(first, mapping, arrived, &taken)?;
        // A packet for an outside end of ours, from a side that has one itself, goes back to that side (RFC 4787 REQ-9).
        if let Some(inside) = begin::owner(&nat, &translated.sent) {
            let outside = translated.sent;
            if snapshot.route(packet.port).is_routed() {
                translated = nat.enter(translated)?;
                turns_back = translated.sent != outside;
            } else if let (Some(to), Some(from)) = (
                keeper.extras.neighbours.find(keeper.now_ms, arrived.wire, inside),
                begin::source_mac(packet),
            ) {
                translated = nat.enter(translated)?;
                if translated.sent != outside && mapping.saddr.is_some() {
                    hairpin = Some([to, from]);
                    turns_back = true;
                }
            }
        }
        keeper.common.bindings.store(nat.len(), Ordering::Relaxed);
        Ok(Made { translated, hairpin, turns_back })
    }

    /// Takes a port back from another connection for one that was refused. False if there is none to take.
    fn free_port(&mut self, mapping: &Mapping, arrived: &Tuple, why: Refused) -> bool {
        let pause = usize::from(why == Refused::HostLimit);
        let Flows { table, keeper, pauses, cursor, .. } = self;
        if keeper.now_ms < pauses[pause] {
            return false;
        }
        let mut nat = keeper.common.nat();
        let Some(lacking) = nat.shortage(mapping, arrived, why) else { return false };
        let (mut detached, mut ended) = (None, None);
        table.search_over(cursor, (arrived.proto, OVER_LOOKED), &mut |id, connection| {
            if nat.would_free(connection.binding, &lacking).is_none() {
                return false;
            }
            match use_of_port(table, connection, mapping, arrived) {
                PortUse::None => detached = Some(id),
                PortUse::Own => ended = ended.or(Some(id)),
                PortUse::Others => {}
            }
            detached.is_some()
        });
        if let Some(id) = detached {
            let binding = std::mem::take(&mut table.get_mut(id).binding);
            nat.release(binding);
            keeper.common.bindings.store(nat.len(), Ordering::Relaxed);
            return true;
        }
        let mut most = 0;
        if !lacking.is_own() {
            table.search_unreplied(cursor, (arrived.proto, UNREPLIED_LOOKED), &mut |id, connection| {
                let Some(held) = nat.would_free(connection.binding, &lacking) else { return false };
                if held > most {
                    (most, ended) = (held, Some(id));
                }
                held >= MANY
            });
        }
        drop(nat);
        match ended {
            Some(id) => self.end(id, CloseReason::Evicted),
            None => pauses[pause] = keeper.now_ms + PAUSE_MS,
        }
        ended.is_some()
    }
}

/// Who uses the outside end of a connection that is over towards the destination of a new one.
enum PortUse {
    None,
    /// The connection itself.
    Own,
    Others,
}

fn use_of_port(table: &Table, over: &Connection, mapping: &Mapping, arrived: &Tuple) -> PortUse {
    if mapping.daddr.is_some() || mapping.dport.is_some() {
        // It is not known yet which destination that will be.
        return PortUse::None;
    }
    let reply = over.tuple(Direction::Reply);
    let mut wanted = arrived.reversed();
    wanted.addresses[DESTINATION] = reply.addresses[DESTINATION];
    wanted.ports[DESTINATION] = reply.ports[DESTINATION];
    if wanted == reply {
        return PortUse::Own;
    }
    if table.find(&wanted).is_some() { PortUse::Others } else { PortUse::None }
}

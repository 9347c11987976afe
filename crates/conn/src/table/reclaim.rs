//! Connections whose outside port may be taken for a new one: the table's side of a pool that runs low.

use super::ConnectionTable;
use crate::slab::NONE;
use crate::timeouts::column;
use crate::wheel::{ORDERS, OVER, PROBATION, PROTECTED};
use crate::{ConnId, ConnState, Connection};

/// Where the last search of each queue came to. The next one goes on from there: what is of no use at a queue's front does not hide
/// what is behind it.
#[derive(Clone, Debug)]
pub struct ReclaimCursor([u32; ORDERS]);

impl Default for ReclaimCursor {
    fn default() -> ReclaimCursor {
        ReclaimCursor([NONE; ORDERS])
    }
}

impl ConnectionTable {
    /// Tells connections of a protocol that nobody has answered, from where the last search ended on, those that wait longer before
    /// others, so many of each queue at most; until `found` says so.
    pub fn search_unreplied(
        &self,
        cursor: &mut ReclaimCursor,
        (proto, most): (u8, usize),
        found: &mut dyn FnMut(ConnId, &Connection) -> bool,
    ) {
        let mut found =
            |id, connection: &Connection| connection.state != ConnState::SynReceived && found(id, connection);
        // Not those that were answered.
        self.search(PROBATION.chain(PROTECTED), cursor, (proto, most), &mut found);
    }

    /// Likewise connections that are only kept for stragglers.
    pub fn search_over(
        &self,
        cursor: &mut ReclaimCursor,
        (proto, most): (u8, usize),
        found: &mut dyn FnMut(ConnId, &Connection) -> bool,
    ) {
        self.search(OVER, cursor, (proto, most), found);
    }

    fn search(
        &self,
        orders: impl Iterator<Item = u8>,
        cursor: &mut ReclaimCursor,
        (proto, most): (u8, usize),
        found: &mut dyn FnMut(ConnId, &Connection) -> bool,
    ) {
        for order in orders {
            let Some(first) = self.queues.first(order) else { continue };
            if column(self.slab.at(first).proto()) != column(proto) {
                continue;
            }
            let next = &mut cursor.0[usize::from(order)];
            let waits = |place: u32| self.slab.live(place).filter(|connection| connection.queue == order);
            let mut has_begun_anew = false;
            for _ in 0..most {
                let Some(connection) = waits(*next) else {
                    if std::mem::replace(&mut has_begun_anew, true) {
                        break;
                    }
                    *next = first;
                    continue;
                };
                let id = ConnId(std::mem::replace(next, connection.links.next));
                if connection.proto() == proto && found(id, connection) {
                    return;
                }
            }
        }
    }
}

//! Searches for connections whose outside port may be reclaimed for a new one when a pool is exhausted.

use super::ConnectionTable;
use crate::slab::NONE;
use crate::timeouts::column;
use crate::wheel::{ORDERS, OVER, PROBATION, PROTECTED};
use crate::{ConnId, ConnState, Connection};

/// Where the last search of each queue stopped. The next one continues from there, so that unsuitable connections at a queue's front do not
/// hide those after them.
#[derive(Clone, Debug)]
pub struct ReclaimCursor([u32; ORDERS]);

impl Default for ReclaimCursor {
    fn default() -> ReclaimCursor {
        ReclaimCursor([NONE; ORDERS])
    }
}

impl ConnectionTable {
    /// Visits unreplied connections of a protocol from where the last search stopped, the longest idle first, at most `most` of each queue,
    /// until `found` returns true.
    pub fn search_unreplied(
        &self,
        cursor: &mut ReclaimCursor,
        (proto, most): (u8, usize),
        found: &mut dyn FnMut(ConnId, &Connection) -> bool,
    ) {
        let mut found =
            |id, connection: &Connection| connection.state != ConnState::SynReceived && found(id, connection);
        // Not those that the responder has answered.
        self.search(PROBATION.chain(PROTECTED), cursor, (proto, most), &mut found);
    }

    /// The same for closed connections.
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

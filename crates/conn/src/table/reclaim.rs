//! Searches for connections whose outside port may be reclaimed for a new one when a pool is exhausted.

use super::ConnectionTable;
use crate::timeouts::column;
use crate::wheel::{CLOSED, PROBATION, PROTECTED, ReclaimCursor};
use crate::{ConnId, ConnState, Connection};

impl ConnectionTable {
    /// Visits unreplied connections of a protocol until `found` returns true. Starts where the last search
    /// stopped, with the longest idle connections first, and visits at most `max` of each queue.
    pub fn search_unreplied(
        &self,
        cursor: &mut ReclaimCursor,
        (proto, max): (u8, usize),
        found: &mut dyn FnMut(ConnId, &Connection) -> bool,
    ) {
        let mut found =
            |id, connection: &Connection| connection.state != ConnState::SynReceived && found(id, connection);
        // Connections that the responder has answered are left out.
        self.search(PROBATION.chain(PROTECTED), cursor, (proto, max), &mut found);
    }

    /// [`ConnectionTable::search_unreplied`] for closed connections.
    pub fn search_closed(
        &self,
        cursor: &mut ReclaimCursor,
        (proto, max): (u8, usize),
        found: &mut dyn FnMut(ConnId, &Connection) -> bool,
    ) {
        self.search(CLOSED, cursor, (proto, max), found);
    }

    fn search(
        &self,
        lists: impl Iterator<Item = u8>,
        cursor: &mut ReclaimCursor,
        (proto, max): (u8, usize),
        found: &mut dyn FnMut(ConnId, &Connection) -> bool,
    ) {
        for list in lists {
            let Some(first) = self.queues.first(list) else { continue };
            if column(self.slab.line(first).proto) != column(proto) {
                continue;
            }
            let next = &mut cursor.0[usize::from(list)];
            let in_list = |id: ConnId| {
                (self.slab.is_live(id) && self.slab.cold(id).queue == list).then(|| (id, self.slab.get(id)))
            };
            let mut is_second_pass = false;
            for _ in 0..max {
                let Some((id, connection)) = next.and_then(in_list) else {
                    if std::mem::replace(&mut is_second_pass, true) {
                        break;
                    }
                    *next = Some(first);
                    continue;
                };
                *next = self.slab.cold(id).links.next;
                if connection.proto() == proto && found(id, &connection) {
                    return;
                }
            }
        }
    }
}

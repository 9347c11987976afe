//! The state of both directions of a stream with edits.

use super::map::{EditLists, EditMap};
use crate::rope::{ChunkPool, Rope};
use mmb_base::{Chunks, Slab, id_types};

id_types! {
    /// What edits need of a stream; valid while the stream lives.
    pub(crate) struct EditId;
}

/// The states of streams with edits.
pub(crate) type EditStreams = Slab<EditId, EditStream, Chunks<EditStream, 64>>;

/// Bytes that may be undecided in a direction: more than an editor ever asks for.
pub(crate) const MOST_HELD: usize = 80 << 10;

/// The most duplicate acknowledgments that are due to a sender: it takes three for a loss (RFC 5681 section 3.2).
pub(crate) const MOST_OWED: u8 = 3;

/// The payload that any path carries (RFC 9293 section 3.7.1: 576 bytes without headers), without options.
pub(crate) const LEAST_PAYLOAD: u16 = 500;

/// A stream of which at least one direction is edited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EditStream {
    pub(crate) sides: [EditSide; 2],
    /// It is in the queue of those that have packets to make.
    pub(crate) is_ready: bool,
}

/// One direction. Offsets of input are those of [`Side`](crate::side::Side); output is counted from the same first number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EditSide {
    /// Input before this is decided.
    pub(crate) decided: u64,
    /// The input from `decided` to the next byte.
    pub(crate) held: Rope,
    /// When the first of them came.
    pub(crate) held_since_ms: u64,
    /// It is in the queue of those that wait.
    pub(crate) waits: bool,
    /// The end of the output.
    pub(crate) out_next: u64,
    /// The end of the output that was let go, the FIN included.
    pub(crate) sent: u64,
    /// What the receiver has acknowledged of it.
    pub(crate) acked: u64,
    /// The end of the widest window that the receiver has offered.
    pub(crate) edge: u64,
    /// The output from `acked` to `out_next`.
    pub(crate) kept: Rope,
    pub(crate) map: EditMap,
    /// Output that the sender has sent again and that is still to be let go again; empty if `from` is not before `to`.
    pub(crate) again: (u64, u64),
    /// The FIN follows the output.
    pub(crate) has_ended: bool,
    /// The sender is to get an acknowledgment.
    pub(crate) owes_ack: bool,
    /// The first of the early bytes that came last.
    pub(crate) latest_early: u64,
    /// Duplicate acknowledgments that the sender is to get now.
    pub(crate) duplicates: u8,
    /// Those that it gets when the receiver has acknowledged all that was let go.
    pub(crate) owed: u8,
    /// A packet with a congestion mark was absorbed, and no packet has carried the mark on.
    pub(crate) is_marked: bool,
    /// The sender's SYN allowed SACK.
    pub(crate) knows_sack: bool,
    /// The largest segment that its SYN allows, if it says so.
    pub(crate) mss: Option<u16>,
    /// The largest payload that the sender has sent.
    pub(crate) largest: u16,
    /// The largest payload that the link has room for, if that is known.
    pub(crate) most: Option<u16>,
    /// The window field of the last packet of this end that went on.
    pub(crate) window: u16,
    /// TSval and TSecr of the last segment of this end, if it uses timestamps.
    pub(crate) timestamps: Option<[u32; 2]>,
    /// Edits, and bytes of input and output in them.
    pub(crate) edits: u64,
    pub(crate) removed: u64,
    pub(crate) added: u64,
}

impl EditSide {
    /// The end of the output that was let go, without the FIN.
    pub(crate) fn sent_data(&self) -> u64 {
        self.sent.min(self.out_next)
    }

    /// Whether the FIN was let go.
    pub(crate) fn has_sent_fin(&self) -> bool {
        self.sent > self.out_next
    }

    /// The receiver has acknowledged all that was let go.
    pub(crate) fn is_acked(&self) -> bool {
        self.acked >= self.sent
    }

    /// Up to where output may be let go.
    pub(crate) fn limit(&self) -> u64 {
        self.out_next.min(self.edge.max(self.acked))
    }

    /// The most payload of a segment that is let go; `receiver_mss` is what the receiver's SYN allows.
    pub(crate) fn most_payload(&self, receiver_mss: Option<u16>) -> u64 {
        let least = receiver_mss.unwrap_or(LEAST_PAYLOAD).min(LEAST_PAYLOAD);
        u64::from(self.largest.max(least).min(self.most.unwrap_or(u16::MAX)).max(1))
    }

    /// Records that the sender has sent output again.
    pub(crate) fn send_again(&mut self, from: u64, to: u64) {
        let (before_from, before_to) = self.again;
        self.again = match before_from < before_to {
            true => (before_from.min(from), before_to.max(to)),
            false => (from, to),
        };
    }

    /// The receiver acknowledges output.
    pub(crate) fn acknowledge(&mut self, pool: &mut ChunkPool, lists: &mut EditLists, acked: u64) {
        if acked > self.acked {
            let end = acked.min(self.out_next);
            self.kept.pop(pool, end.saturating_sub(self.acked) as usize);
            self.acked = acked;
        }
        self.again.0 = self.again.0.max(self.acked);
        self.map.acknowledge(lists, self.acked);
    }

    /// How many bytes of input are acknowledged when the receiver has acknowledged output up to `out`.
    pub(crate) fn input_floor(&self, lists: &EditLists, out: u64) -> u64 {
        self.map.input_floor(lists, out).min(self.decided)
    }

    /// Forgets all edits, of a datagram that goes on.
    pub(crate) fn acknowledge_edits(&mut self, lists: &mut EditLists) {
        self.map.acknowledge(lists, self.out_next);
    }

    /// Gives all memory back.
    pub(crate) fn clear(&mut self, pool: &mut ChunkPool, lists: &mut EditLists) {
        self.kept.clear(pool);
        self.held.clear(pool);
        self.map.clear(lists);
    }
}

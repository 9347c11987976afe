//! The state of both directions of a stream with edits.

use super::again::AgainRanges;
use super::map::{EditLists, EditMap};
use super::queue::Links;
use crate::rope::{ChunkPool, Rope};
use crate::segment::{Segment, StreamDrop};
use crate::side::{Level, Side};
use crate::table::StreamId;
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
const LEAST_PAYLOAD: u16 = 500;

/// No segment is cut into smaller ones, whatever a receiver's SYN says: that would make many packets of one.
const FLOOR: u16 = 64;

/// The bytes of the timestamps option in a segment (RFC 7323 appendix A).
const TIMESTAMPS: u16 = 12;

/// The bytes of output of a direction that packets are made of, for one packet that comes or one question that is asked again; the last packet
/// may exceed it.
pub(crate) const CREDIT: u32 = 64 << 10;

/// A stream of which at least one direction is edited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EditStream {
    pub(crate) sides: [EditSide; 2],
    pub(crate) stream: Option<StreamId>,
    /// Why it cannot go on: its editor has stopped, or there was no memory.
    pub(crate) over: Option<StreamDrop>,
}

/// One direction. Offsets of input are those of [`Side`]; output is counted from the same first number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EditSide {
    /// Input before this is decided.
    pub(crate) decided: u64,
    /// The input from `decided` to the next byte.
    pub(crate) held: Rope,
    /// When the first of them came.
    pub(crate) held_since_ms: u64,
    /// `held_since_ms` when it was queued.
    pub(crate) queued_since_ms: u64,
    /// When the direction is due, if it is in the queue of those that wait.
    pub(crate) due_ms: u64,
    /// Places in the queues.
    pub(crate) links: [Links; 2],
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
    /// The most bytes that are kept: a stream whose edits make more cannot go on.
    pub(crate) most_kept: usize,
    pub(crate) map: EditMap,
    pub(crate) again: AgainRanges,
    /// Bytes of output that packets may be made of before the next packet comes.
    pub(crate) credit: u32,
    /// An edit has changed the length: numbers of input and output have differed since.
    pub(crate) is_shifted: bool,
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
    /// The largest payload that the path carries, as far as is known.
    pub(crate) path: Option<u16>,
    /// The largest payload that the link has room for, if that is known.
    pub(crate) room: Option<u16>,
    /// The window field of the last packet of this end that went on.
    pub(crate) window: u16,
    /// TSval and TSecr of the last segment of this end, if it uses timestamps.
    pub(crate) timestamps: Option<[u32; 2]>,
    /// Edits, and bytes of input and output in them.
    pub(crate) edits: u64,
    pub(crate) removed: u64,
    pub(crate) added: u64,
}

/// A packet that is to be made of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// An acknowledgment for its sender.
    Acknowledgment,
    /// Output in these bounds, or at its end the FIN alone.
    Data(u64, u64),
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

    /// The receiver has no room for what is undecided. It loses nothing by a wait, and the sender may have no leave to send the rest of a match.
    pub(crate) fn is_shut(&self) -> bool {
        0 < self.edge && self.edge <= self.out_next
    }

    /// Up to where output may be let go.
    pub(crate) fn limit(&self) -> u64 {
        self.out_next.min(self.edge.max(self.acked))
    }

    /// The most payload of a segment that is let go: no more than the sender has put into one, or what any path carries; and no more than the
    /// receiver's SYN and the path allow.
    pub(crate) fn most_payload(&self, receiver_mss: Option<u16>) -> u64 {
        let options = if self.timestamps.is_some() { TIMESTAMPS } else { 0 };
        let receiver = receiver_mss.map_or(u16::MAX, |mss| mss.saturating_sub(options));
        let path = self.path.unwrap_or(u16::MAX);
        let most = self.largest.max(LEAST_PAYLOAD).min(receiver).min(path).max(FLOOR);
        u64::from(most.min(self.room.unwrap_or(u16::MAX)).max(1))
    }

    /// The same for the packet at hand: what options it has beyond those of all packets, such as SACK blocks, take from its payload (RFC 6691).
    pub(crate) fn most_payload_of(&self, segment: &Segment, receiver_mss: Option<u16>) -> u64 {
        let usual = if segment.timestamps.is_some() { TIMESTAMPS } else { 0 };
        let more = u64::from(u16::from(segment.options).saturating_sub(usual));
        let most = self.most_payload(receiver_mss).saturating_sub(more);
        most.min(segment.most_payload.map_or(u64::MAX, u64::from)).max(1)
    }

    /// The next packet to be made of a direction: what was sent again comes before what is new. `own` is its side; `other` and `receiver_mss` are those of the
    /// other end.
    pub(crate) fn work(&self, own: &Side, other: &Side, receiver_mss: Option<u16>) -> Option<Work> {
        // A packet would be the first acknowledgment of an end that has not answered yet, and perhaps never got what it acknowledges.
        if own.level != Level::Edit || own.told().is_none() || other.told().is_none() {
            return None;
        }
        if self.owes_ack || self.duplicates > 0 {
            return Some(Work::Acknowledgment);
        }
        if self.credit > 0 {
            let (most, limit) = (self.most_payload(receiver_mss), self.limit());
            let again = self.again.first().filter(|(from, _)| *from < limit);
            let (from, to) = again.unwrap_or((self.sent_data(), limit));
            if from < to.min(limit) {
                return Some(Work::Data(from, to.min(limit).min(from + most)));
            }
        }
        let has_fin = self.has_ended && !self.has_sent_fin() && self.sent == self.out_next;
        has_fin.then_some(Work::Data(self.out_next, self.out_next))
    }

    /// The receiver acknowledges output.
    pub(crate) fn acknowledge(&mut self, pool: &mut ChunkPool, lists: &mut EditLists, acked: u64) {
        if acked > self.acked {
            let end = acked.min(self.out_next);
            self.kept.pop(pool, end.saturating_sub(self.acked) as usize);
            self.acked = acked;
        }
        self.again.remove_before(self.acked);
        self.map.acknowledge(lists, self.acked);
    }

    /// Gives all memory back.
    pub(crate) fn clear(&mut self, pool: &mut ChunkPool, lists: &mut EditLists) {
        self.kept.clear(pool);
        self.held.clear(pool);
        self.map.clear(lists);
    }

    /// What holds between two packets of a stream whose editor has not broken.
    pub(crate) fn assert_sound(&self, side: &Side, lists: &EditLists) {
        if side.level != Level::Edit || !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(self.acked <= self.sent && self.sent <= self.out_next + u64::from(self.has_ended));
        debug_assert_eq!(self.kept.len() as u64, self.out_next.saturating_sub(self.acked));
        debug_assert_eq!(self.decided + self.held.len() as u64, side.next);
        debug_assert!(!self.has_ended || side.fin() == Some(self.decided));
        // No byte of input counts as acknowledged before all of its output is.
        debug_assert!(side.acked <= self.decided + u64::from(self.acked > self.out_next));
        debug_assert!(self.map.output_ceil(lists, side.acked.min(self.decided)) <= self.acked);
        debug_assert!(self.again.first().is_none_or(|(from, to)| self.acked <= from && to <= self.sent));
        debug_assert_eq!(self.map.output_ceil(lists, self.decided), self.out_next);
        self.map.assert_sound(lists, self.decided, self.out_next);
    }
}

//! The state of both directions of a stream with edits.

use super::again::AgainRanges;
use super::ends::DatagramEnds;
use super::links::{EditId, Links};
use super::map::{EditLists, EditMap};
use super::noted::{LEAST_PAYLOAD, Noted};
use super::patience::EditPatience;
use crate::id::StreamId;
use crate::rope::{ChunkPool, Rope};
use crate::segment::StreamDrop;
use mmb_base::{Chunks, Slab};

/// The states of streams with edits.
pub(crate) type EditStreams = Slab<EditId, EditStream, Chunks<EditStream, 64>>;

/// Bytes that may be undecided in a direction: more than an editor ever asks for.
pub(crate) const MOST_HELD: usize = 80 << 10;

/// The most duplicate acknowledgments that are due to a sender: it takes three for a loss (RFC 5681 section 3.2).
pub(crate) const MOST_OWED: u8 = 3;

/// The bytes of output of a direction that packets are made of, for one packet that comes or one question that is asked again; the last packet
/// may exceed it.
pub(crate) const CREDIT: u32 = 64 << 10;

/// What was edited in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditStats {
    /// Places.
    pub edits: u64,
    /// Bytes of input in them.
    pub removed: u64,
    /// Bytes of output in them.
    pub added: u64,
    /// Bytes that are held back now.
    pub held: usize,
    /// Bytes of output that wait for the receiver's window.
    pub waiting: u64,
}

/// What edits need of a stream that is not [plain](super::plain): at least one direction is edited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EditStream {
    pub(crate) sides: [EditSide; 2],
    pub(crate) stream: Option<StreamId>,
    /// It is not to become plain: its reader never lets bytes pass.
    pub(crate) stays: bool,
    /// Why it cannot go on: its editor has stopped, or there was no memory.
    pub(crate) over: Option<StreamDrop>,
}

/// One direction. Offsets of input are those of the plain direction (`crate::side::Side`); output is counted from the same first number.
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
    /// How long they wait, and that when they were queued.
    pub(crate) hold_patience: EditPatience,
    pub(crate) queued_patience: EditPatience,
    /// When the direction is due, if it is in the queue of those that wait.
    pub(crate) due_ms: u64,
    /// Places in the queues.
    pub(crate) links: [Links; 4],
    /// The end of the output.
    pub(crate) out_next: u64,
    /// The end of the output that was let go, the FIN included.
    pub(crate) sent: u64,
    /// What the receiver has acknowledged of it.
    pub(crate) acked: u64,
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
    /// Of datagrams: where those end that are to be made.
    pub(crate) ends: DatagramEnds,
    /// The FIN follows the output.
    pub(crate) has_ended: bool,
    /// Held bytes may be acknowledged.
    pub(crate) promises: bool,
    /// Input before this was acknowledged to the sender, though the receiver may not have acknowledged its output.
    pub(crate) promised: u64,
    /// When it is looked at next what became of it, and how often that was since the receiver made progress.
    pub(crate) poll_ms: u64,
    pub(crate) polls: u16,
    /// The receiver is to be asked for its window.
    pub(crate) owes_probe: bool,
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
    /// What a direction of a plain stream has too.
    pub(crate) noted: Noted,
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

    /// The receiver has no room for what is undecided. It loses nothing by a wait, and the sender may have no leave to send the rest of a match.
    pub(crate) fn is_shut(&self) -> bool {
        0 < self.noted.edge && self.noted.edge <= self.out_next
    }

    /// How many times as long as otherwise held bytes are waited for: senders are in no hurry to fill a small room (RFC 9293 section 3.8.6.2.1).
    pub(crate) fn patience(&self) -> u64 {
        let is_cramped = 0 < self.noted.edge && self.noted.edge < self.out_next + u64::from(LEAST_PAYLOAD);
        if is_cramped { 20 } else { 1 }
    }

    /// Up to where output may be let go.
    pub(crate) fn limit(&self) -> u64 {
        self.out_next.min(self.noted.edge.max(self.acked))
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
        self.ends.clear(pool);
        self.map.clear(lists);
    }

    /// What was edited in the direction.
    pub(crate) fn stats(&self) -> EditStats {
        let EditSide { edits, removed, added, .. } = *self;
        EditStats { edits, removed, added, held: self.held.len(), waiting: self.out_next - self.sent_data() }
    }
}

impl EditStream {
    /// Whether a direction keeps bytes.
    pub(crate) fn keeps(&self) -> bool {
        self.sides.iter().any(|edit| edit.kept.len() + edit.held.len() > 0)
    }
}

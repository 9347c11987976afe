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

/// The edit states of streams.
pub(crate) type EditStreams = Slab<EditId, EditStream, Chunks<EditStream, 64>>;

/// The most undecided bytes in a direction: more than an editor ever needs.
pub(crate) const MOST_HELD: usize = 80 << 10;

/// The most duplicate acknowledgments that are owed to a sender: three signal a loss (RFC 5681 section 3.2).
pub(crate) const MOST_OWED: u8 = 3;

/// The most bytes of output that a direction sends in generated packets, for each packet that arrives and
/// each repeated question to the editor. The last packet may exceed it.
pub(crate) const CREDIT: u32 = 64 << 10;

/// Edits in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditStats {
    /// Number of edits.
    pub edits: u64,
    /// Bytes of input that were replaced.
    pub removed: u64,
    /// Bytes of output in their place.
    pub added: u64,
    /// Bytes that are held now.
    pub held: usize,
    /// Bytes of output that wait for the receiver's window.
    pub waiting: u64,
}

/// The edit state of a stream that is not [plain](super::plain): at least one direction is edited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EditStream {
    pub(crate) sides: [EditSide; 2],
    pub(crate) stream: Option<StreamId>,
    /// The stream must not become plain: its reader never passes bytes without being asked to edit.
    pub(crate) stays: bool,
    /// Why the stream cannot continue: its reader has stopped it, a receiver did not answer, or there was no
    /// memory.
    pub(crate) over: Option<StreamDrop>,
}

/// The edit state of one direction. Offsets of input are those of `crate::side::Side`. Offsets of output
/// count from the same first sequence number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EditSide {
    /// Input before this offset is decided.
    pub(crate) decided: u64,
    /// The undecided input, from `decided` on.
    pub(crate) held: Rope,
    /// Since when the held bytes wait.
    pub(crate) held_since_ms: u64,
    /// `held_since_ms` when the direction was queued.
    pub(crate) queued_since_ms: u64,
    /// How long held bytes wait: now, and when the direction was queued.
    pub(crate) hold_patience: EditPatience,
    pub(crate) queued_patience: EditPatience,
    /// When the direction is due, if it is in a queue for held bytes.
    pub(crate) due_ms: u64,
    /// Positions in the queues.
    pub(crate) links: [Links; 4],
    /// End of the output.
    pub(crate) out_next: u64,
    /// End of the output that was sent, the FIN included (`snd_nxt`).
    pub(crate) sent: u64,
    /// End of the output that the receiver has acknowledged, the FIN included (`snd_una`).
    pub(crate) acked: u64,
    /// The buffered output, from `acked` to `out_next`.
    pub(crate) kept: Rope,
    /// The most bytes to buffer. A stream whose edits produce more cannot continue.
    pub(crate) most_kept: usize,
    pub(crate) map: EditMap,
    pub(crate) again: AgainRanges,
    /// Bytes of output that generated packets may carry before the next packet arrives.
    pub(crate) credit: u32,
    /// An edit has changed the length: input and output numbers differ since then.
    pub(crate) is_shifted: bool,
    /// For datagrams: the ends of those that are to be generated.
    pub(crate) ends: DatagramEnds,
    /// A FIN follows the output.
    pub(crate) has_ended: bool,
    /// Held bytes may be acknowledged to the sender.
    pub(crate) promises: bool,
    /// Input before this offset was acknowledged to the sender, although the receiver may not have
    /// acknowledged its output.
    pub(crate) promised: u64,
    /// When the promise is checked next, and the number of checks since the receiver made progress.
    pub(crate) poll_ms: u64,
    pub(crate) polls: u16,
    /// A window probe to the receiver is due.
    pub(crate) owes_probe: bool,
    /// An acknowledgment to the sender is due.
    pub(crate) owes_ack: bool,
    /// Offset of the latest out-of-order segment.
    pub(crate) latest_early: u64,
    /// Duplicate acknowledgments to send to the sender now.
    pub(crate) duplicates: u8,
    /// Duplicate acknowledgments to send when the receiver has acknowledged all output that was sent.
    pub(crate) owed: u8,
    /// A packet with the ECN mark CE was absorbed, and no generated packet has carried the mark yet.
    pub(crate) is_marked: bool,
    /// Header values of the end's packets. A plain stream records them too.
    pub(crate) noted: Noted,
    /// Number of edits, and bytes of input and output in them.
    pub(crate) edits: u64,
    pub(crate) removed: u64,
    pub(crate) added: u64,
}

impl EditSide {
    /// End of the output that was sent, without the FIN.
    pub(crate) fn sent_data(&self) -> u64 {
        self.sent.min(self.out_next)
    }

    /// Whether the FIN was sent.
    pub(crate) fn has_sent_fin(&self) -> bool {
        self.sent > self.out_next
    }

    /// Whether the receiver has acknowledged everything that was sent.
    pub(crate) fn is_acked(&self) -> bool {
        self.acked >= self.sent
    }

    /// Whether the receiver's window has no room for undecided bytes. A wait costs the receiver nothing, and
    /// the sender may not be allowed to send the rest of a match.
    pub(crate) fn is_shut(&self) -> bool {
        0 < self.noted.edge && self.noted.edge <= self.out_next
    }

    /// Factor for the time that held bytes wait. It is larger if the window is small: senders do not hurry to
    /// fill a small window (RFC 9293 section 3.8.6.2.1).
    pub(crate) fn patience(&self) -> u64 {
        let is_cramped = 0 < self.noted.edge && self.noted.edge < self.out_next + u64::from(LEAST_PAYLOAD);
        if is_cramped { 20 } else { 1 }
    }

    /// End of the output that may be sent.
    pub(crate) fn limit(&self) -> u64 {
        self.out_next.min(self.noted.edge.max(self.acked))
    }

    /// Records that the receiver has acknowledged output up to `acked`, and frees that output.
    pub(crate) fn acknowledge(&mut self, pool: &mut ChunkPool, lists: &mut EditLists, acked: u64) {
        if acked > self.acked {
            let end = acked.min(self.out_next);
            self.kept.pop(pool, end.saturating_sub(self.acked) as usize);
            self.acked = acked;
        }
        self.again.remove_before(self.acked);
        self.map.acknowledge(lists, self.acked);
    }

    /// Frees all memory.
    pub(crate) fn clear(&mut self, pool: &mut ChunkPool, lists: &mut EditLists) {
        self.kept.clear(pool);
        self.held.clear(pool);
        self.ends.clear(pool);
        self.map.clear(lists);
    }

    /// The counters of the direction.
    pub(crate) fn stats(&self) -> EditStats {
        let EditSide { edits, removed, added, .. } = *self;
        EditStats { edits, removed, added, held: self.held.len(), waiting: self.out_next - self.sent_data() }
    }
}

impl EditStream {
    /// Whether a direction has buffered output or held bytes.
    pub(crate) fn keeps(&self) -> bool {
        self.sides.iter().any(|edit| edit.kept.len() + edit.held.len() > 0)
    }
}

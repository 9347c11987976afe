//! The state of both directions of a stream with edits.

use super::datagram_ends::DatagramEnds;
use super::header_values::{HeaderValues, MIN_PAYLOAD};
use super::hold_time::HoldTime;
use super::links::{EditId, Links};
use super::map::{EditLists, EditMap};
use super::retransmit::RetransmitRanges;
use crate::id::StreamId;
use crate::rope::{ChunkPool, Rope};
use crate::segment::StreamDrop;
use mmb_base::{Chunks, Slab};

/// The edit states of streams.
pub(crate) type EditStreams = Slab<EditId, EditStream, Chunks<EditStream, 64>>;

/// The most undecided bytes in a direction: more than an editor ever needs.
pub(crate) const MAX_HELD_BYTES: usize = 80 << 10;

/// The most duplicate acknowledgments that are due to a sender: three signal a loss (RFC 5681 section 3.2).
pub(crate) const MAX_DUPLICATE_ACKS: u8 = 3;

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
    pub unsent: u64,
}

/// The edit state of a stream that is not [plain](super::plain): at least one direction is edited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EditStream {
    pub(crate) sides: [EditSide; 2],
    pub(crate) stream: Option<StreamId>,
    /// The stream must not become plain: its reader never passes bytes without being asked to edit.
    pub(crate) never_plain: bool,
    /// Why the stream cannot continue: its reader has stopped it, a receiver did not answer, or there was no
    /// memory.
    pub(crate) failure: Option<StreamDrop>,
}

/// The edit state of one direction. Offsets of input are those of `crate::side::Side`. Offsets of output
/// count from the same first sequence number: the output sequence number of an offset is `Side::seq`.
///
/// mmb is the sender of the output. `snd_una` ≤ `snd_nxt` ≤ `out_end` + 1 for the FIN; `decided` plus the
/// length of `held` is the side's `rcv_nxt`; the length of `buffered` is `out_end` - `snd_una`. The
/// receiver's window edge is in `header_values`.
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
    /// For how long held bytes wait: now, and when the direction was queued.
    pub(crate) hold_time: HoldTime,
    pub(crate) queued_hold_time: HoldTime,
    /// When the direction is due, if it is in a queue for held bytes.
    pub(crate) due_ms: u64,
    /// Positions in the queues.
    pub(crate) links: [Links; 4],
    /// End of the output, without the FIN.
    pub(crate) out_end: u64,
    /// End of the output that was sent, the FIN included: SND.NXT.
    pub(crate) snd_nxt: u64,
    /// End of the output that the receiver has acknowledged, the FIN included: SND.UNA.
    pub(crate) snd_una: u64,
    /// The buffered output, from `snd_una` to `out_end`.
    pub(crate) buffered: Rope,
    /// The most bytes to buffer. A stream whose edits produce more cannot continue.
    pub(crate) max_buffered: usize,
    pub(crate) map: EditMap,
    pub(crate) retransmit: RetransmitRanges,
    /// Bytes of output that generated packets may carry before the next packet arrives.
    pub(crate) credit: u32,
    /// An edit has changed the length: input and output numbers differ since then.
    pub(crate) is_shifted: bool,
    /// For datagrams: the ends of those that are to be generated.
    pub(crate) datagram_ends: DatagramEnds,
    /// A FIN follows the output.
    pub(crate) has_ended: bool,
    /// Held bytes may be acknowledged to the sender early.
    pub(crate) allows_early_acks: bool,
    /// End of the input that was acknowledged to the sender early: the receiver may not have acknowledged its
    /// output.
    pub(crate) early_acked: u64,
    /// When the retransmission timer of early-acknowledged bytes expires next, and how often it has expired
    /// since the receiver made progress.
    pub(crate) next_poll_ms: u64,
    pub(crate) polls: u16,
    /// A window probe to the receiver is due.
    pub(crate) is_probe_due: bool,
    /// An acknowledgment to the sender is due.
    pub(crate) is_ack_due: bool,
    /// Offset of the latest out-of-order segment.
    pub(crate) latest_out_of_order: u64,
    /// Duplicate acknowledgments to send to the sender now.
    pub(crate) duplicate_acks: u8,
    /// Duplicate acknowledgments to send when the receiver has acknowledged all output that was sent.
    pub(crate) deferred_duplicate_acks: u8,
    /// A packet with the ECN mark CE was absorbed, and no generated packet has carried the mark yet.
    pub(crate) has_ce_mark: bool,
    /// Header values of the end's packets. A plain stream records them too.
    pub(crate) header_values: HeaderValues,
    /// Number of edits, and bytes of input and output in them.
    pub(crate) edits: u64,
    pub(crate) removed: u64,
    pub(crate) added: u64,
}

impl EditSide {
    /// End of the output that was sent, without the FIN.
    pub(crate) fn sent_end(&self) -> u64 {
        self.snd_nxt.min(self.out_end)
    }

    /// Whether the FIN was sent.
    pub(crate) fn has_sent_fin(&self) -> bool {
        self.snd_nxt > self.out_end
    }

    /// Whether the receiver has acknowledged everything that was sent.
    pub(crate) fn is_all_acked(&self) -> bool {
        self.snd_una >= self.snd_nxt
    }

    /// Whether the receiver's window has no room for undecided bytes. A wait costs the receiver nothing, and
    /// the sender may not be allowed to send the rest of a match.
    pub(crate) fn is_window_closed(&self) -> bool {
        0 < self.header_values.window_edge && self.header_values.window_edge <= self.out_end
    }

    /// Factor for the time that held bytes wait. It is larger if the window is small: senders do not hurry to
    /// fill a small window (RFC 9293 section 3.8.6.2.1).
    pub(crate) fn hold_time_factor(&self) -> u64 {
        let is_cramped = 0 < self.header_values.window_edge
            && self.header_values.window_edge < self.out_end + u64::from(MIN_PAYLOAD);
        if is_cramped { 20 } else { 1 }
    }

    /// End of the output that may be sent.
    pub(crate) fn send_limit(&self) -> u64 {
        self.out_end.min(self.header_values.window_edge.max(self.snd_una))
    }

    /// Records that the receiver has acknowledged output up to `acked`, and frees that output.
    pub(crate) fn acknowledge(&mut self, pool: &mut ChunkPool, lists: &mut EditLists, acked: u64) {
        if acked > self.snd_una {
            let end = acked.min(self.out_end);
            self.buffered.pop(pool, end.saturating_sub(self.snd_una) as usize);
            self.snd_una = acked;
        }
        self.retransmit.remove_before(self.snd_una);
        self.map.acknowledge(lists, self.snd_una);
    }

    /// Frees all memory.
    pub(crate) fn clear(&mut self, pool: &mut ChunkPool, lists: &mut EditLists) {
        self.buffered.clear(pool);
        self.held.clear(pool);
        self.datagram_ends.clear(pool);
        self.map.clear(lists);
    }

    /// The counters of the direction.
    pub(crate) fn stats(&self) -> EditStats {
        let EditSide { edits, removed, added, .. } = *self;
        EditStats { edits, removed, added, held: self.held.len(), unsent: self.out_end - self.sent_end() }
    }
}

impl EditStream {
    /// Whether a direction has buffered output or held bytes.
    pub(crate) fn has_buffered(&self) -> bool {
        self.sides.iter().any(|edit| edit.buffered.len() + edit.held.len() > 0)
    }
}

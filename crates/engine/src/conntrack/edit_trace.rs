//! A trace of single edits, for a host that explains a run, such as a replay of a capture. Other hosts keep
//! it off, since it allocates memory.
//!
//! Life-cycle: [`Worker::trace_edits`](crate::Worker::trace_edits) starts it. While a packet is processed, an
//! editor notes its edits. Then the connection and the ids of the rules are added, and the edits wait until
//! the host takes them ([`Worker::take_edits`](crate::Worker::take_edits)).

use super::info::Endpoints;
use arrayvec::ArrayVec;
use mmb_classify::RuleSlot;
use mmb_httpedit::MAX_NAMED_RULES;
use mmb_policy::RuleId;

/// The most bytes that are kept of what an edit removes, and of its replacement.
const MAX_SHOWN_BYTES: usize = 128;

/// The bytes that an edit removes or inserts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditedBytes {
    /// The first bytes, at most 128.
    pub shown: Vec<u8>,
    /// The number of all bytes.
    pub len: u64,
}

impl EditedBytes {
    fn new(bytes: &[u8]) -> EditedBytes {
        EditedBytes { shown: bytes[..bytes.len().min(MAX_SHOWN_BYTES)].to_vec(), len: bytes.len() as u64 }
    }
}

/// One edit of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedEdit {
    /// The rules that demand the edit. Empty if the edit only frames HTTP messages or keeps them readable. Of
    /// an edit of a message's head or body, at most eight rules are named.
    pub rules: Vec<RuleId>,
    /// The IP protocol.
    pub proto: u8,
    /// The addresses and ports of the initiator's packets as they arrive.
    pub arrived: Endpoints,
    /// The bytes are those of the responder.
    pub is_reply: bool,
    /// The offset of the first removed byte, in the bytes that the sender sent.
    pub offset: u64,
    /// The bytes that the sender sent.
    pub removed: EditedBytes,
    /// The bytes that the receiver gets instead.
    pub put: EditedBytes,
    /// The index of the packet at which the edit was decided, in the last call. `None` if it was decided by
    /// time.
    pub packet: Option<usize>,
}

/// Totals of the edits of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditTotals {
    /// The number of edits.
    pub edits: u64,
    /// The bytes that they removed.
    pub removed: u64,
    /// The bytes that they inserted.
    pub put: u64,
}

/// An edit that is not yet assigned to a connection.
#[derive(Debug)]
pub(super) struct FreshEdit {
    pub(super) rules: ArrayVec<RuleSlot, MAX_NAMED_RULES>,
    pub(super) direction: usize,
    pub(super) offset: u64,
    pub(super) removed: EditedBytes,
    pub(super) put: EditedBytes,
}

/// The edits of a worker that the host has not taken yet.
#[derive(Debug)]
pub(super) struct EditTrace {
    /// The number of edits that may still be recorded.
    left: usize,
    pub(super) totals: EditTotals,
    /// The index of the vector's first packet in the call.
    pub(super) vector: usize,
    pub(super) packet: Option<usize>,
    pub(super) fresh: Vec<FreshEdit>,
    pub(super) edits: Vec<TracedEdit>,
}

impl EditTrace {
    /// A trace that records at most `max` edits. Totals include all edits.
    pub(super) fn new(max: usize) -> EditTrace {
        EditTrace {
            left: max,
            totals: EditTotals::default(),
            vector: 0,
            packet: None,
            fresh: Vec::new(),
            edits: Vec::new(),
        }
    }

    /// Records an edit in the bytes that are being processed: at an offset of a direction, `removed` is
    /// replaced by `put`.
    #[cold]
    pub(super) fn note(
        &mut self,
        rules: impl Iterator<Item = RuleSlot>,
        (direction, offset): (usize, u64),
        removed: &[u8],
        put: &[u8],
    ) {
        let EditTotals { edits, removed: all_removed, put: all_put } = &mut self.totals;
        *edits += 1;
        *all_removed += removed.len() as u64;
        *all_put += put.len() as u64;
        if self.left > 0 {
            self.left -= 1;
            let rules = rules.take(MAX_NAMED_RULES).collect();
            let (removed, put) = (EditedBytes::new(removed), EditedBytes::new(put));
            self.fresh.push(FreshEdit { rules, direction, offset, removed, put });
        }
    }
}

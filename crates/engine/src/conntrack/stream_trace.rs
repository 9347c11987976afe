//! What edits have changed, one by one: for a host that explains a run, as replays of captures do. Other hosts keep it off, since it allocates.
//!
//! Life-cycle: [`Worker::trace_edits`](crate::Worker::trace_edits) begins it. While a packet is taken, an editor notes its edits; then they get the
//! connection and the rules' ids, and wait until the host takes them ([`Worker::take_edits`](crate::Worker::take_edits)).

use super::info::Endpoints;
use arrayvec::ArrayVec;
use mmb_classify::RuleSlot;
use mmb_httpedit::MOST_NAMED;
use mmb_policy::RuleId;

/// The bytes that are kept of what an edit removes, and of what it puts in.
const MOST_SHOWN: usize = 128;

/// Bytes of an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditedBytes {
    /// The first of them, at most 128.
    pub shown: Vec<u8>,
    /// Number of all.
    pub len: u64,
}

impl EditedBytes {
    fn of(bytes: &[u8]) -> EditedBytes {
        EditedBytes { shown: bytes[..bytes.len().min(MOST_SHOWN)].to_vec(), len: bytes.len() as u64 }
    }
}

/// One edit of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedEdit {
    /// The rules that ask for it; none for what only frames messages of HTTP, or keeps them readable. Of one edit of a message's head or body, at
    /// most eight are named.
    pub rules: Vec<RuleId>,
    /// The IP protocol.
    pub proto: u8,
    /// The initiator's packets as they arrive.
    pub arrived: Endpoints,
    /// The bytes are the responder's.
    pub is_reply: bool,
    /// The place of the first byte that is removed, in the bytes that its end sent.
    pub offset: u64,
    /// What its end sent.
    pub removed: EditedBytes,
    /// What the other end gets in its place.
    pub put: EditedBytes,
    /// The place of the packet at which it was decided, in the last call; `None` if time has decided it.
    pub packet: Option<usize>,
}

/// Edits of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditTotals {
    /// Edits.
    pub edits: u64,
    /// Bytes that they removed.
    pub removed: u64,
    /// Bytes that they put in.
    pub put: u64,
}

/// An edit of the connection at hand.
#[derive(Debug)]
pub(super) struct FreshEdit {
    pub(super) rules: ArrayVec<RuleSlot, MOST_NAMED>,
    pub(super) direction: usize,
    pub(super) offset: u64,
    pub(super) removed: EditedBytes,
    pub(super) put: EditedBytes,
}

/// The edits of a worker that the host has not taken.
#[derive(Debug)]
pub(super) struct EditTrace {
    /// Edits that may still be told.
    left: usize,
    pub(super) totals: EditTotals,
    /// The place of the vector's first packet in the call.
    pub(super) vector: usize,
    pub(super) packet: Option<usize>,
    pub(super) fresh: Vec<FreshEdit>,
    pub(super) edits: Vec<TracedEdit>,
}

impl EditTrace {
    /// A trace that tells so many edits.
    pub(super) fn new(most: usize) -> EditTrace {
        EditTrace {
            left: most,
            totals: EditTotals::default(),
            vector: 0,
            packet: None,
            fresh: Vec::new(),
            edits: Vec::new(),
        }
    }

    /// Notes an edit of the connection at hand: at an offset of a direction, some bytes are replaced by others.
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
            let rules = rules.take(MOST_NAMED).collect();
            let (removed, put) = (EditedBytes::of(removed), EditedBytes::of(put));
            self.fresh.push(FreshEdit { rules, direction, offset, removed, put });
        }
    }
}

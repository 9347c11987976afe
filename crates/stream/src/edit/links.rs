//! Positions of directions in the queues.

use mmb_base::{Id, id_types};
use std::num::NonZeroU32;

id_types! {
    /// The edit state of a stream; valid until the stream ends or becomes plain.
    pub(crate) struct EditId;
}

/// A direction of a stream with edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectionId(NonZeroU32);

impl DirectionId {
    /// The id of a direction. Ids of streams are below 2^31, because each stream takes some hundred bytes.
    pub(crate) fn new(edit: EditId, direction: usize) -> Option<DirectionId> {
        NonZeroU32::new(edit.number() << 1 | (direction & 1) as u32).map(DirectionId)
    }

    pub(crate) fn edit(self) -> EditId {
        EditId::new(self.0.get() >> 1).unwrap_or(EditId::FIRST)
    }

    pub(crate) fn direction(self) -> usize {
        (self.0.get() & 1) as usize
    }
}

/// The position of a direction in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    pub(super) previous: Option<DirectionId>,
    pub(super) next: Option<DirectionId>,
    pub(super) is_queued: bool,
}

//! Borrowed edit state for taking one segment: both directions of its stream, and memory that streams share.

use super::links::EditId;
use super::map::EditLists;
use super::side::{EditSide, EditStream};
use super::table::{EditTable, NotesId};
use crate::id::StreamId;
use crate::limits::AckSpace;
use crate::segment::StreamDrop;
use crate::side::Side;

/// The edit state for taking a segment.
pub(crate) struct EditTake<'t> {
    pub(crate) lists: &'t mut EditLists,
    pub(crate) ours: &'t mut EditSide,
    pub(crate) theirs: &'t mut EditSide,
    /// Buffer for undecided bytes in one piece.
    pub(crate) scratch: &'t mut Vec<u8>,
    pub(crate) acks: AckSpace,
    /// The stream must not become plain.
    pub(crate) stays: &'t mut bool,
}

impl<'t> EditTake<'t> {
    /// The state for a segment of `direction`.
    pub(crate) fn new(
        table: &'t mut EditTable,
        id: EditId,
        direction: usize,
        acks: AckSpace,
    ) -> EditTake<'t> {
        let EditTable { streams, lists, scratch, .. } = table;
        let EditStream { sides: [first, second], stays, .. } = &mut streams[id];
        let (ours, theirs) = if direction == 0 { (first, second) } else { (second, first) };
        EditTake { lists, ours, theirs, scratch, acks, stays }
    }
}

/// The state for taking a segment of a stream with edits that may be plain.
pub(crate) struct PlainTake<'t> {
    pub(crate) table: &'t mut EditTable,
    pub(crate) edit: &'t mut Option<EditId>,
    pub(crate) stream: StreamId,
    pub(crate) notes: NotesId,
    pub(crate) window: u64,
    pub(crate) acks: AckSpace,
}

impl<'t> PlainTake<'t> {
    /// Converts the stream to an edited one. `ours` is the direction of the segment.
    pub(crate) fn make_edited(self, ours: &mut Side, theirs: &mut Side) -> Result<EditTake<'t>, StreamDrop> {
        let PlainTake { table, edit, stream, notes, window, acks } = self;
        let direction = ours.direction();
        let sides = if direction == 0 { [ours, theirs] } else { [theirs, ours] };
        let id = table.make_edited((stream, notes), sides, window, acks).map_err(|_| StreamDrop::Broken)?;
        *edit = Some(id);
        Ok(EditTake::new(table, id, direction, acks))
    }
}

//! Both directions of a stream with edits, as seen from a segment, and what it shares with other streams.

use super::links::EditId;
use super::map::EditLists;
use super::side::{EditSide, EditStream};
use super::table::{EditTable, NotesId};
use crate::id::StreamId;
use crate::limits::AckSpace;
use crate::segment::StreamDrop;
use crate::side::Side;

/// What a segment needs of a stream with edits.
pub(crate) struct EditTake<'t> {
    pub(crate) lists: &'t mut EditLists,
    pub(crate) ours: &'t mut EditSide,
    pub(crate) theirs: &'t mut EditSide,
    /// For undecided bytes in one piece.
    pub(crate) scratch: &'t mut Vec<u8>,
    pub(crate) acks: AckSpace,
    /// The stream is not to become plain.
    pub(crate) stays: &'t mut bool,
}

impl<'t> EditTake<'t> {
    /// For a segment of a direction.
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

/// What a segment of a plain stream needs, which any stream with edits may be.
pub(crate) struct PlainTake<'t> {
    pub(crate) table: &'t mut EditTable,
    pub(crate) edit: &'t mut Option<EditId>,
    pub(crate) stream: StreamId,
    pub(crate) notes: NotesId,
    pub(crate) window: u64,
    pub(crate) acks: AckSpace,
}

impl<'t> PlainTake<'t> {
    /// Makes an edited stream of it; `ours` is the direction of the segment.
    pub(crate) fn make_edited(self, ours: &mut Side, theirs: &mut Side) -> Result<EditTake<'t>, StreamDrop> {
        let PlainTake { table, edit, stream, notes, window, acks } = self;
        let direction = ours.direction();
        let sides = if direction == 0 { [ours, theirs] } else { [theirs, ours] };
        let id = table.make_edited((stream, notes), sides, window, acks).map_err(|_| StreamDrop::Broken)?;
        *edit = Some(id);
        Ok(EditTake::new(table, id, direction, acks))
    }
}

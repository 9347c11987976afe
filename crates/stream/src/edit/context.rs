//! Borrowed edit state for taking one segment: both directions of its stream, and memory that streams share.

use super::links::EditId;
use super::map::EditLists;
use super::side::{EditSide, EditStream};
use super::table::{EditTable, HeaderValuesId};
use crate::id::StreamId;
use crate::limits::AckSpace;
use crate::segment::StreamDrop;
use crate::side::Side;

/// The edit state for taking a segment.
pub(crate) struct EditContext<'t> {
    pub(crate) lists: &'t mut EditLists,
    pub(crate) ours: &'t mut EditSide,
    pub(crate) theirs: &'t mut EditSide,
    /// Buffer for undecided bytes in one piece.
    pub(crate) scratch: &'t mut Vec<u8>,
    pub(crate) ack_space: AckSpace,
    /// The stream must not become plain.
    pub(crate) never_plain: &'t mut bool,
}

impl<'t> EditContext<'t> {
    /// The state for a segment of `direction`.
    pub(crate) fn new(
        table: &'t mut EditTable,
        id: EditId,
        direction: usize,
        ack_space: AckSpace,
    ) -> EditContext<'t> {
        let EditTable { streams, lists, scratch, .. } = table;
        let EditStream { sides: [first, second], never_plain, .. } = &mut streams[id];
        let (ours, theirs) = if direction == 0 { (first, second) } else { (second, first) };
        EditContext { lists, ours, theirs, scratch, ack_space, never_plain }
    }
}

/// The state for taking a segment of a stream with edits that may be plain.
pub(crate) struct PlainContext<'t> {
    pub(crate) table: &'t mut EditTable,
    pub(crate) edit: &'t mut Option<EditId>,
    pub(crate) stream: StreamId,
    pub(crate) header_values: HeaderValuesId,
    pub(crate) window: u64,
    pub(crate) ack_space: AckSpace,
}

impl<'t> PlainContext<'t> {
    /// Converts the stream to an edited one. `ours` is the direction of the segment.
    pub(crate) fn convert_to_edited(
        self,
        ours: &mut Side,
        theirs: &mut Side,
    ) -> Result<EditContext<'t>, StreamDrop> {
        let PlainContext { table, edit, stream, header_values, window, ack_space } = self;
        let direction = ours.direction();
        let sides = if direction == 0 { [ours, theirs] } else { [theirs, ours] };
        let id = table
            .convert_to_edited((stream, header_values), sides, window, ack_space)
            .map_err(|_| StreamDrop::Broken)?;
        *edit = Some(id);
        Ok(EditContext::new(table, id, direction, ack_space))
    }
}

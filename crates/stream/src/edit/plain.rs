//! *Plain* streams: streams with edits in which nothing was edited yet, and nothing is held or owed.
//!
//! Most streams never have a match. While the output of each direction is its input and all of it was sent,
//! an edited direction is followed like a guarded one. Both ends use the same numbers, and
//! `crate::side::Side` buffers the unacknowledged bytes. Edits then need only
//! [recorded header values](super::noted). So the record of the stream is smaller, and a packet costs less.
//!
//! A plain stream becomes edited, and gets an [`EditStream`], in one of three cases:
//!
//! - A packet arrives that is not plain ([`is_plain`]).
//! - The reader does not [pass](crate::StreamReader::passes) the bytes of a packet.
//! - A packet finds no room.
//!
//! It becomes plain again with the first packet that leaves nothing held or owed, unless its reader never
//! lets bytes pass.

use super::links::EditId;
use super::pair::{EditTake, PlainTake};
use super::side::{CREDIT, EditSide, EditStream};
use super::table::{EditTable, NotesId};
use crate::id::StreamId;
use crate::limits::AckSpace;
use crate::reader::{Passes, StreamReader};
use crate::segment::{EditedSegment, InOrder, Segment, StreamDrop, flag};
use crate::side::{Level, Side};
use crate::tcp::{Place, TcpTake};
use std::ops::ControlFlow;

/// Whether a segment may leave a plain stream plain: it neither opens nor closes the connection, and its
/// bytes are in order and in the window.
fn is_plain(own: &Side, segment: &Segment) -> bool {
    let is_ordinary =
        segment.flags & (flag::SYN | flag::FIN | flag::RST | flag::URG | flag::ACK) == flag::ACK;
    let is_next = || own.seq(own.next) == segment.seq && own.next + u64::from(segment.payload) <= own.edge;
    is_ordinary && (segment.payload == 0 || own.level != Level::Edit || is_next())
}

impl<'t> PlainTake<'t> {
    /// The state for taking a segment. Both are `None` for a stream without edits. The first is set for an
    /// edited stream, the second for a stream that is plain and stays plain for now.
    pub(crate) fn begin(
        of: Option<PlainTake<'t>>,
        ours: &mut Side,
        theirs: &mut Side,
        segment: &Segment,
    ) -> Result<(Option<EditTake<'t>>, Option<PlainTake<'t>>), StreamDrop> {
        let Some(plain) = of else { return Ok((None, None)) };
        Ok(match *plain.edit {
            Some(id) => (Some(EditTake::new(plain.table, id, ours.direction(), plain.acks)), None),
            None if is_plain(ours, segment) => (None, Some(plain)),
            None => (Some(plain.make_edited(ours, theirs)?), None),
        })
    }
}

impl TcpTake<'_> {
    /// Converts a plain stream to an edited one, before the payload of the segment is taken.
    pub(crate) fn make_edited(&mut self) -> Result<(), StreamDrop> {
        if let Some(plain) = self.plain.take() {
            self.edit = Some(plain.make_edited(self.ours, self.theirs)?);
        }
        Ok(())
    }

    /// Takes the payload of an edited direction of a plain stream. Returns the segment to send, or `None` if
    /// the segment passes unchanged.
    pub(crate) fn take_plain(
        &mut self,
        segment: &Segment,
        place: Place,
        payload: &[u8],
        reader: &mut dyn StreamReader,
    ) -> Result<Option<EditedSegment>, StreamDrop> {
        if payload.is_empty() {
            return Ok(None);
        }
        let (direction, offset) = (self.ours.direction(), self.ours.next);
        let mut never_passes = false;
        if !self.is_full() {
            match reader.passes(InOrder { direction, offset, is_behind_gap: false, bytes: payload }) {
                ControlFlow::Continue(Passes::All) if self.ours.keep(self.pool, payload) => {
                    self.ours.take_input(payload);
                    if let Some(PlainTake { table, notes, .. }) = &mut self.plain {
                        table.notes[*notes][direction].note_payload(payload.len());
                    }
                    return Ok(None);
                }
                // The edit state records why the stream cannot continue.
                ControlFlow::Continue(Passes::All) => {
                    return Err(self.make_edited().err().unwrap_or(StreamDrop::Broken));
                }
                ControlFlow::Break(()) => {
                    let _ = self.make_edited();
                    return Err(StreamDrop::Stopped);
                }
                ControlFlow::Continue(Passes::Asks) => {}
                ControlFlow::Continue(Passes::Never) => never_passes = true,
            }
        }
        self.make_edited()?;
        if let Some(edit) = &mut self.edit {
            *edit.stays |= never_passes;
        }
        self.take_edited(segment, place, payload, reader).map(Some)
    }

    /// Whether the stream may become plain, if nothing is due for it.
    pub(crate) fn may_be_plain(&self) -> bool {
        let Some(EditTake { ours, theirs, stays, .. }) = &self.edit else { return false };
        !**stays && ours.is_plain(self.ours) && theirs.is_plain(self.theirs)
    }
}

impl EditTable {
    /// Converts a plain stream to an edited one.
    pub(super) fn make_edited(
        &mut self,
        (stream, notes): (StreamId, NotesId),
        sides: [&mut Side; 2],
        window: u64,
        acks: AckSpace,
    ) -> Result<EditId, std::collections::TryReserveError> {
        self.streams.try_reserve()?;
        let mut edits = EditTable::sides(window, acks == AckSpace::Wire);
        for ((edit, noted), side) in edits.iter_mut().zip(self.notes[notes]).zip(sides) {
            edit.noted = noted;
            if side.level == Level::Edit {
                edit.resume(side);
            }
        }
        Ok(self.streams.insert(EditStream { sides: edits, stream: Some(stream), ..EditStream::default() }))
    }

    /// Converts a stream that may be plain to a plain one.
    #[cold]
    pub(crate) fn make_plain(&mut self, id: EditId, notes: NotesId, sides: &mut [Side; 2]) {
        let EditStream { sides: edits, .. } = self.streams.remove(id);
        for ((edit, noted), side) in edits.into_iter().zip(&mut self.notes[notes]).zip(sides) {
            *noted = edit.noted;
            if side.level == Level::Edit {
                side.resume_guard(edit.kept);
            }
        }
    }
}

impl EditSide {
    /// Takes over the state of a direction of a plain stream.
    fn resume(&mut self, side: &mut Side) {
        (self.decided, self.out_next, self.sent) = (side.next, side.next, side.next);
        self.acked = side.acked;
        self.kept = side.end_guard();
        self.credit = CREDIT;
    }

    /// Whether a direction may belong to a plain stream, if nothing is due for it.
    fn is_plain(&self, side: &Side) -> bool {
        if side.level != Level::Edit {
            return side.has_begun;
        }
        let is_waiting = side.early.is_some() || side.fin().is_some() || self.has_ended || self.owed > 0;
        side.has_begun
            && self.edits == 0
            && !(self.is_marked | is_waiting)
            && self.acked == side.acked
            && self.out_next == side.next
            && side.edge <= self.noted.edge
    }
}

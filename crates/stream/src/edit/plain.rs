//! Streams with edits in which nothing was edited yet, and nothing is held or owed: they are *plain*.
//!
//! Most streams never have a match. As long as the output of each direction is its input, and all of it was let go, a direction that is edited is
//! followed as a guarded one is: the numbers of both ends are the same, and the bytes that are not acknowledged are kept there. Nothing else of edits
//! is needed but what is [noted](super::noted), so that the record of the stream is smaller and a packet costs less.
//!
//! A plain stream becomes edited, and gets an [`EditStream`], with a packet that is not plain ([`is_plain`]), or whose bytes the reader does not
//! [let pass](crate::StreamReader::passes), or that finds no room as it goes on. It becomes plain again with the first packet behind which nothing is held
//! or owed, unless its reader is one that never lets bytes pass.

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

/// Whether a segment may leave a plain stream plain: it neither begins nor ends anything, and its bytes are in order and in the window.
fn is_plain(own: &Side, segment: &Segment) -> bool {
    let is_ordinary =
        segment.flags & (flag::SYN | flag::FIN | flag::RST | flag::URG | flag::ACK) == flag::ACK;
    let is_next = || own.seq(own.next) == segment.seq && own.next + u64::from(segment.payload) <= own.edge;
    is_ordinary && (segment.payload == 0 || own.level != Level::Edit || is_next())
}

impl<'t> PlainTake<'t> {
    /// What a segment of a stream needs: nothing without edits, one for an edited stream, the other for one that is plain and stays so for now.
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
    /// Makes an edited stream of a plain one, before the payload of the segment is taken.
    pub(crate) fn make_edited(&mut self) -> Result<(), StreamDrop> {
        if let Some(plain) = self.plain.take() {
            self.edit = Some(plain.make_edited(self.ours, self.theirs)?);
        }
        Ok(())
    }

    /// Takes the payload of a plain stream's direction that is edited. Returns how it goes on, if not as it came.
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
                // The record of edits has why the stream is over.
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

    /// Whether the stream, for which nothing is due, may be plain.
    pub(crate) fn may_be_plain(&self) -> bool {
        let Some(EditTake { ours, theirs, stays, .. }) = &self.edit else { return false };
        !**stays && ours.is_plain(self.ours) && theirs.is_plain(self.theirs)
    }
}

impl EditTable {
    /// Makes an edited stream of a plain one.
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

    /// Makes a plain stream of one that may be plain.
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
    /// Goes on where a plain direction is.
    fn resume(&mut self, side: &mut Side) {
        (self.decided, self.out_next, self.sent) = (side.next, side.next, side.next);
        self.acked = side.acked;
        self.kept = side.end_guard();
        self.credit = CREDIT;
    }

    /// Whether a direction for which nothing is due is one of a plain stream.
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

//! *Plain* streams: streams with edits in which nothing was edited yet, and nothing is held or due.
//!
//! Most streams never have a match. While the output of each direction is its input and all of it was sent,
//! an edited direction is followed like a guarded one. Both ends use the same numbers, and
//! `crate::side::Side` buffers the unacknowledged bytes. Edits then need only [recorded header
//! values](super::header_values). So the record of the stream is smaller, and a packet costs less.
//!
//! A plain stream becomes edited, and gets an [`EditStream`], in one of three cases:
//!
//! - A packet arrives that is not plain ([`is_plain`]).
//! - The reader does not [pass](crate::StreamReader::scan_plain) the bytes of a packet.
//! - A packet finds no room.
//!
//! It returns to the plain state with the first packet that leaves nothing held or due, unless its reader
//! never passes bytes without being asked to edit.

use super::context::{EditContext, PlainContext};
use super::links::EditId;
use super::side::{CREDIT, EditSide, EditStream};
use super::table::{EditTable, HeaderValuesId};
use crate::id::StreamId;
use crate::limits::AckSpace;
use crate::reader::{ScanAnswer, StreamReader};
use crate::segment::{EditedSegment, InOrder, Segment, StreamDrop, flag};
use crate::side::{Level, Side};
use crate::tcp::{ByteRange, TcpContext};
use std::ops::ControlFlow;

/// Whether a segment may leave a plain stream plain: it neither opens nor closes the connection, and its
/// bytes are in order and in the window.
fn is_plain(own: &Side, segment: &Segment) -> bool {
    let is_ordinary =
        segment.flags & (flag::SYN | flag::FIN | flag::RST | flag::URG | flag::ACK) == flag::ACK;
    let is_next =
        || own.seq(own.rcv_nxt) == segment.seq && own.rcv_nxt + u64::from(segment.payload) <= own.window_edge;
    is_ordinary && (segment.payload == 0 || own.level != Level::Edit || is_next())
}

impl<'t> PlainContext<'t> {
    /// The state for taking a segment. Both are `None` for a stream without edits. The first is set for an
    /// edited stream, the second for a stream that is plain and stays plain for now.
    pub(crate) fn begin(
        plain: Option<PlainContext<'t>>,
        ours: &mut Side,
        theirs: &mut Side,
        segment: &Segment,
    ) -> Result<(Option<EditContext<'t>>, Option<PlainContext<'t>>), StreamDrop> {
        let Some(plain) = plain else { return Ok((None, None)) };
        Ok(match *plain.edit {
            Some(id) => (Some(EditContext::new(plain.table, id, ours.direction(), plain.ack_space)), None),
            None if is_plain(ours, segment) => (None, Some(plain)),
            None => (Some(plain.convert_to_edited(ours, theirs)?), None),
        })
    }
}

impl TcpContext<'_> {
    /// Converts a plain stream to an edited one, before the payload of the segment is taken.
    pub(crate) fn convert_to_edited(&mut self) -> Result<(), StreamDrop> {
        if let Some(plain) = self.plain.take() {
            self.edit = Some(plain.convert_to_edited(self.ours, self.theirs)?);
        }
        Ok(())
    }

    /// Takes the payload of an edited direction of a plain stream. Returns the segment to send, or `None` if
    /// the segment passes unchanged.
    pub(crate) fn take_plain(
        &mut self,
        segment: &Segment,
        range: ByteRange,
        payload: &[u8],
        reader: &mut dyn StreamReader,
    ) -> Result<Option<EditedSegment>, StreamDrop> {
        if payload.is_empty() {
            return Ok(None);
        }
        let (direction, offset) = (self.ours.direction(), self.ours.rcv_nxt);
        let mut never_plain = false;
        if !self.is_full() {
            match reader.scan_plain(InOrder { direction, offset, follows_gap: false, bytes: payload }) {
                ControlFlow::Continue(ScanAnswer::PassAll) if self.ours.buffer(self.pool, payload) => {
                    self.ours.take_input(payload);
                    if let Some(PlainContext { table, header_values, .. }) = &mut self.plain {
                        table.header_values[*header_values][direction].record_payload(payload.len());
                    }
                    return Ok(None);
                }
                // The edit state records why the stream cannot continue.
                ControlFlow::Continue(ScanAnswer::PassAll) => {
                    return Err(self.convert_to_edited().err().unwrap_or(StreamDrop::Broken));
                }
                ControlFlow::Break(()) => {
                    let _ = self.convert_to_edited();
                    return Err(StreamDrop::Stopped);
                }
                ControlFlow::Continue(ScanAnswer::AskToEdit) => {}
                ControlFlow::Continue(ScanAnswer::CannotScan) => never_plain = true,
            }
        }
        self.convert_to_edited()?;
        if let Some(edit) = &mut self.edit {
            *edit.never_plain |= never_plain;
        }
        self.take_edited(segment, range, payload, reader).map(Some)
    }

    /// Whether the stream may become plain, if nothing is due for it.
    pub(crate) fn can_be_plain(&self) -> bool {
        let Some(EditContext { ours, theirs, never_plain, .. }) = &self.edit else { return false };
        !**never_plain && ours.is_plain(self.ours) && theirs.is_plain(self.theirs)
    }
}

impl EditTable {
    /// Converts a plain stream to an edited one.
    pub(super) fn convert_to_edited(
        &mut self,
        (stream, header_values): (StreamId, HeaderValuesId),
        sides: [&mut Side; 2],
        window: u64,
        ack_space: AckSpace,
    ) -> Result<EditId, std::collections::TryReserveError> {
        self.streams.try_reserve()?;
        let mut edits = EditTable::sides(window, ack_space == AckSpace::Wire);
        for ((edit, header_values), side) in
            edits.iter_mut().zip(self.header_values[header_values]).zip(sides)
        {
            edit.header_values = header_values;
            if side.level == Level::Edit {
                edit.resume(side);
            }
        }
        Ok(self.streams.insert(EditStream { sides: edits, stream: Some(stream), ..EditStream::default() }))
    }

    /// Converts a stream that may be plain to a plain one.
    #[cold]
    pub(crate) fn convert_to_plain(
        &mut self,
        id: EditId,
        header_values: HeaderValuesId,
        sides: &mut [Side; 2],
    ) {
        let EditStream { sides: edits, .. } = self.streams.remove(id);
        for ((edit, header_values), side) in
            edits.into_iter().zip(&mut self.header_values[header_values]).zip(sides)
        {
            *header_values = edit.header_values;
            if side.level == Level::Edit {
                side.resume_guard(edit.buffered);
            }
        }
    }
}

impl EditSide {
    /// Takes over the state of a direction of a plain stream.
    fn resume(&mut self, side: &mut Side) {
        (self.decided, self.out_end, self.snd_nxt) = (side.rcv_nxt, side.rcv_nxt, side.rcv_nxt);
        self.snd_una = side.snd_una;
        self.buffered = side.end_guard();
        self.credit = CREDIT;
    }

    /// Whether a direction may belong to a plain stream, if nothing is due for it.
    fn is_plain(&self, side: &Side) -> bool {
        if side.level != Level::Edit {
            return side.has_begun;
        }
        let is_incomplete = side.out_of_order.is_some()
            || side.fin().is_some()
            || self.has_ended
            || self.deferred_duplicate_acks > 0;
        side.has_begun
            && self.edits == 0
            && !(self.has_ce_mark | is_incomplete)
            && self.snd_una == side.snd_una
            && self.out_end == side.rcv_nxt
            && side.window_edge <= self.header_values.window_edge
    }
}

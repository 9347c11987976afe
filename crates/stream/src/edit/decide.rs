//! Asks the editor about in-order bytes.

use super::hold_time::HoldTime;
use super::map::EditLists;
use super::side::{EditSide, MAX_HELD_BYTES};
use super::sink::{Datagrams, EditSink, Undecided};
use crate::out_of_order::OutOfOrderBytes;
use crate::reader::StreamReader;
use crate::rope::ChunkPool;
use crate::segment::StreamDrop;
use crate::side::Side;
use std::ops::ControlFlow;

/// Out-of-order bytes to decide at once. Between two such parts, mmb checks whether more output
/// fits. A part is as large as the held bytes if these are more, because the held bytes are copied each
/// time.
const OUT_OF_ORDER_PART: usize = 4 << 10;

/// The most bytes in one question to the editor: held bytes and new ones.
pub(crate) const MAX_UNDECIDED_BYTES: usize = MAX_HELD_BYTES + MAX_NEW_BYTES;

/// The most new bytes in one question: those of a packet.
const MAX_NEW_BYTES: usize = 64 << 10;

/// The state of one direction while its bytes are decided.
pub(crate) struct Decider<'d> {
    pub(crate) side: &'d mut Side,
    pub(crate) edit: &'d mut EditSide,
    pub(crate) pool: &'d mut ChunkPool,
    pub(crate) lists: &'d mut EditLists,
    /// Buffer for undecided bytes in one piece.
    pub(crate) scratch: &'d mut Vec<u8>,
    pub(crate) now_ms: u64,
    /// Only for directions of datagrams.
    pub(crate) datagrams: Option<Datagrams>,
}

impl Decider<'_> {
    /// A question about the direction, without bytes.
    pub(crate) fn question(&self) -> Undecided<'static> {
        let direction = self.side.direction();
        Undecided { direction, offset: 0, bytes: &[], known: 0, is_end: false, waited_ms: None }
    }

    /// Takes new bytes, and asks the editor about all undecided bytes. `asked` is the question without the
    /// bytes.
    pub(crate) fn decide(
        &mut self,
        new: &[u8],
        asked: Undecided<'_>,
        reader: &mut dyn StreamReader,
    ) -> Result<(), StreamDrop> {
        let known = self.edit.held.len();
        if known == 0 {
            return self.decide_all(new, Undecided { known, ..asked }, reader);
        }
        // The buffer is moved out while its bytes are borrowed.
        let mut scratch = self.held_bytes();
        scratch.extend_from_slice(new);
        let decided = self.decide_all(&scratch, Undecided { known, ..asked }, reader);
        *self.scratch = scratch;
        decided
    }

    /// Makes the editor decide the first `count` held bytes, as if no bytes followed.
    pub(crate) fn decide_first(
        &mut self,
        count: usize,
        reader: &mut dyn StreamReader,
    ) -> Result<(), StreamDrop> {
        let scratch = self.held_bytes();
        let bytes = &scratch[..count.min(scratch.len())];
        let asked = Undecided { bytes, known: bytes.len(), waited_ms: Some(u32::MAX), ..self.question() };
        let decided = self.ask(asked, reader);
        *self.scratch = scratch;
        self.edit.held.pop(self.pool, decided?);
        self.edit.held_since_ms = self.now_ms;
        Ok(())
    }

    /// Takes some of the out-of-order bytes that are in order now. Returns whether there were any.
    pub(crate) fn decide_out_of_order(
        &mut self,
        out_of_order: &mut OutOfOrderBytes,
        reader: &mut dyn StreamReader,
    ) -> Result<bool, StreamDrop> {
        let next = self.side.rcv_nxt;
        out_of_order.remove_before(self.pool, next);
        let Some(range) = out_of_order.first_ending_after(next).filter(|range| range.start <= next) else {
            return Ok(false);
        };
        let known = self.edit.held.len();
        let count = ((range.end - next) as usize).min(known.clamp(OUT_OF_ORDER_PART, MAX_NEW_BYTES));
        let mut scratch = self.held_bytes();
        out_of_order.slices(self.pool, next, count).for_each(|slice| scratch.extend_from_slice(slice));
        // Frees chunks for the output.
        out_of_order.remove_before(self.pool, next + count as u64);
        let decided = self.decide_all(&scratch, Undecided { known, ..self.question() }, reader);
        *self.scratch = scratch;
        decided.map(|()| true)
    }

    /// Copies the held bytes to the memory of `scratch`.
    fn held_bytes(&mut self) -> Vec<u8> {
        let mut scratch = std::mem::take(self.scratch);
        scratch.clear();
        let held = &self.edit.held;
        held.slices(self.pool, 0, held.len()).for_each(|slice| scratch.extend_from_slice(slice));
        scratch
    }

    /// Asks the editor about all undecided bytes. The first `asked.known` of them were asked about before.
    fn decide_all(
        &mut self,
        bytes: &[u8],
        asked: Undecided<'_>,
        reader: &mut dyn StreamReader,
    ) -> Result<(), StreamDrop> {
        let known = asked.known;
        let mut count = self.ask(Undecided { bytes, ..asked }, reader)?;
        if bytes.len() - count > MAX_HELD_BYTES {
            let bytes = &bytes[count..];
            let left = Undecided { bytes, known: bytes.len(), waited_ms: Some(u32::MAX), ..asked };
            count += self.ask(left, reader)?;
        }
        self.hold(count, bytes, known)
    }

    /// Asks the editor. Returns the number of bytes that it has decided.
    fn ask(&mut self, asked: Undecided<'_>, reader: &mut dyn StreamReader) -> Result<usize, StreamDrop> {
        let Decider { edit, pool, lists, datagrams, .. } = self;
        let undecided = Undecided { offset: edit.decided, ..asked };
        let must_decide = asked.is_end || asked.waited_ms == Some(u32::MAX);
        edit.hold_time = HoldTime::Configured;
        let mut sink =
            EditSink { pool, lists, side: edit, datagrams, bytes: asked.bytes, count: 0, is_broken: false };
        let flow = reader.edit(undecided, &mut sink);
        if must_decide && flow.is_continue() {
            let rest = sink.rest().len();
            sink.pass(rest);
        }
        match (flow, sink.is_broken) {
            (ControlFlow::Break(()), _) => Err(StreamDrop::Stopped),
            (_, true) => Err(StreamDrop::Broken),
            (ControlFlow::Continue(()), false) => Ok(sink.count),
        }
    }

    /// Holds the undecided bytes: those of `bytes` after the first `count`. The first `known` of `bytes` were
    /// held before.
    fn hold(&mut self, count: usize, bytes: &[u8], known: usize) -> Result<(), StreamDrop> {
        let Decider { side, edit, pool, now_ms, .. } = self;
        edit.held.pop(pool, count.min(known));
        let fresh = &bytes[count.max(known)..];
        if !edit.held.push(pool, fresh) {
            return Err(StreamDrop::Broken);
        }
        // If no byte was decided, the bytes that were held before continue to wait. Otherwise, the wait
        // starts now.
        if known == 0 || count > 0 {
            edit.held_since_ms = *now_ms;
        }
        side.take_input(&bytes[known..]);
        Ok(())
    }

    /// Ends the input: the editor decides all bytes, and the FIN follows.
    pub(crate) fn end(&mut self, reader: &mut dyn StreamReader) -> Result<(), StreamDrop> {
        let asked = Undecided { is_end: true, ..self.question() };
        self.decide(&[], asked, reader)?;
        self.edit.has_ended = true;
        Ok(())
    }
}

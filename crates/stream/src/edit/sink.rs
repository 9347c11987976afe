//! Questions to an editor, and its answers.

use super::hold_time::HoldTime;
use super::map::EditLists;
use super::side::EditSide;
use crate::rope::ChunkPool;

/// In-order bytes of a direction that are undecided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided<'b> {
    /// 0 for the initiator's bytes, 1 for the responder's.
    pub direction: usize,
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes: first those that were left undecided before, then new ones.
    pub bytes: &'b [u8],
    /// Number of bytes that were left undecided before.
    pub known: usize,
    /// No bytes follow: the editor must decide all bytes.
    pub is_end: bool,
    /// Milliseconds for which the first byte has been undecided, if the editor is asked again because time
    /// has passed. [`u32::MAX`] if the editor must decide all bytes: there are too many, or a match reaches
    /// beyond the next datagram.
    pub waited_ms: Option<u32>,
}

/// The datagrams whose bytes are undecided: the waiting one, if any, and a new one. The replacement
/// of a match over both goes into the first one. If the replacement is as long as the match, both datagrams
/// keep their lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagrams {
    /// End of the waiting datagram in the input.
    pub(crate) waiting_end: Option<u64>,
    /// End of the waiting datagram in the output, once it is decided.
    pub(crate) waiting_output_end: Option<u64>,
    /// End of the new datagram in the input.
    pub(crate) end: u64,
    /// Start of the output of the first datagram that is not fully decided.
    pub(crate) output_start: u64,
    /// The most bytes in a datagram.
    pub(crate) max_len: u64,
}

impl Datagrams {
    /// Whether the next `count` bytes may become `replacement_len` bytes, if the rest of their datagram
    /// passes unchanged.
    fn have_room(&self, side: &EditSide, count: usize, replacement_len: usize) -> bool {
        let end = self.waiting_end.filter(|_| self.waiting_output_end.is_none()).unwrap_or(self.end);
        let rest = end.saturating_sub(side.decided + count as u64);
        replacement_len <= count
            || side.out_end - self.output_start + replacement_len as u64 + rest <= self.max_len
    }

    /// Records the end of the waiting datagram in the output, if it is decided now. `output` gets the number
    /// of bytes decided after this end, and the end of the output.
    fn record_waiting_output_end(&mut self, side: &EditSide, output: impl FnOnce(u64, u64) -> u64) {
        if let (Some(waiting_end), None) = (self.waiting_end, self.waiting_output_end)
            && side.decided >= waiting_end
        {
            self.output_start = output(side.decided - waiting_end, side.out_end);
            self.waiting_output_end = Some(self.output_start);
        }
    }
}

/// Receives what an editor decides about undecided bytes, from the first one on. The other bytes stay
/// undecided.
#[derive(Debug)]
pub struct EditSink<'t> {
    pub(crate) pool: &'t mut ChunkPool,
    pub(crate) lists: &'t mut EditLists,
    pub(crate) side: &'t mut EditSide,
    /// Only for directions of datagrams.
    pub(crate) datagrams: &'t mut Option<Datagrams>,
    pub(crate) bytes: &'t [u8],
    /// Number of bytes that are decided.
    pub(crate) count: usize,
    /// There was no room for output: the stream cannot continue.
    pub(crate) is_broken: bool,
}

impl<'t> EditSink<'t> {
    /// Passes the next `count` bytes unchanged.
    pub fn pass(&mut self, count: usize) {
        let bytes = self.take(count);
        if !self.side.buffered.push(self.pool, bytes) {
            self.is_broken = true;
        }
        self.side.out_end += bytes.len() as u64;
        if let Some(datagrams) = self.datagrams {
            datagrams.record_waiting_output_end(self.side, |beyond, out_end| out_end - beyond);
        }
    }

    /// Replaces the next `count` bytes, at least one, with `replacement`. Returns false if the bytes pass
    /// unchanged instead, because their datagram would become too long.
    pub fn replace(&mut self, count: usize, replacement: &[u8]) -> bool {
        if self.datagrams.is_some_and(|datagrams| !datagrams.have_room(self.side, count, replacement.len())) {
            self.pass(count);
            return false;
        }
        let start = self.side.decided;
        let replaced = self.take(count).len();
        if replaced == 0 {
            return true;
        }
        let out_start = self.side.out_end;
        let is_too_much = self.side.buffered.len() + replacement.len() > self.side.max_buffered;
        if is_too_much
            || !self.side.buffered.push(self.pool, replacement)
            || !self.side.map.reserve(self.lists)
        {
            self.is_broken = true;
            return true;
        }
        // Both lengths fit in 32 bits: these are bytes of one packet or a few. The list is freed once the
        // receiver has acknowledged them.
        self.side.map.add(self.lists, (start, replaced as u32), (out_start, replacement.len() as u32));
        self.side.out_end += replacement.len() as u64;
        self.side.edits += 1;
        self.side.is_shifted |= replaced != replacement.len();
        self.side.removed += replaced as u64;
        self.side.added += replacement.len() as u64;
        let keeps_length = replaced == replacement.len();
        if let Some(datagrams) = self.datagrams {
            datagrams.record_waiting_output_end(self.side, |beyond, out_end| match keeps_length {
                true => out_end - beyond,
                false => out_end,
            });
        }
        true
    }

    /// Sets for how long the bytes that stay undecided may be held.
    pub fn set_hold_time(&mut self, hold_time: HoldTime) {
        self.side.hold_time = hold_time;
    }

    /// The bytes that are not decided yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.count..]
    }

    fn take(&mut self, count: usize) -> &'t [u8] {
        let end = (self.count + count).min(self.bytes.len());
        let taken = &self.bytes[self.count..end];
        self.side.decided += taken.len() as u64;
        self.count = end;
        taken
    }
}

//! Questions to an editor, and its answers.

use super::map::EditLists;
use super::patience::EditPatience;
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

/// The datagrams whose bytes are undecided: the waiting one, if there is one, and a new one. The replacement
/// of a match over both goes into the first one. If the replacement is as long as the match, both datagrams
/// keep their lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagrams {
    /// End of the waiting datagram in the input.
    pub(crate) border: Option<u64>,
    /// End of the waiting datagram in the output, once it is decided.
    pub(crate) border_out: Option<u64>,
    /// End of the new datagram in the input.
    pub(crate) end: u64,
    /// Start of the output of the first datagram that is not fully decided.
    pub(crate) from: u64,
    /// The most bytes in a datagram.
    pub(crate) most: u64,
}

impl Datagrams {
    /// Whether the next `count` bytes may become `by` bytes, if the rest of their datagram passes unchanged.
    fn have_room(&self, side: &EditSide, count: usize, by: usize) -> bool {
        let end = self.border.filter(|_| self.border_out.is_none()).unwrap_or(self.end);
        let behind = end.saturating_sub(side.decided + count as u64);
        by <= count || side.out_next - self.from + by as u64 + behind <= self.most
    }

    /// Records the border in the output, if it is decided now. `output` gets the number of bytes decided
    /// after the border, and the end of the output.
    fn note_border(&mut self, side: &EditSide, output: impl FnOnce(u64, u64) -> u64) {
        if let (Some(border), None) = (self.border, self.border_out)
            && side.decided >= border
        {
            self.from = output(side.decided - border, side.out_next);
            self.border_out = Some(self.from);
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
        if !self.side.kept.push(self.pool, bytes) {
            self.is_broken = true;
        }
        self.side.out_next += bytes.len() as u64;
        if let Some(datagrams) = self.datagrams {
            datagrams.note_border(self.side, |beyond, out_next| out_next - beyond);
        }
    }

    /// Replaces the next `count` bytes, at least one, with `by`. Returns false if the bytes pass unchanged
    /// instead, because their datagram would become too long.
    pub fn replace(&mut self, count: usize, by: &[u8]) -> bool {
        if self.datagrams.is_some_and(|datagrams| !datagrams.have_room(self.side, count, by.len())) {
            self.pass(count);
            return false;
        }
        let at = self.side.decided;
        let replaced = self.take(count).len();
        if replaced == 0 {
            return true;
        }
        let out = self.side.out_next;
        let is_too_much = self.side.kept.len() + by.len() > self.side.most_kept;
        if is_too_much || !self.side.kept.push(self.pool, by) || !self.side.map.reserve(self.lists) {
            self.is_broken = true;
            return true;
        }
        // Both lengths fit in 32 bits: these are bytes of one packet or a few. The list is freed once the
        // receiver has acknowledged them.
        self.side.map.add(self.lists, (at, replaced as u32), (out, by.len() as u32));
        self.side.out_next += by.len() as u64;
        self.side.edits += 1;
        self.side.is_shifted |= replaced != by.len();
        self.side.removed += replaced as u64;
        self.side.added += by.len() as u64;
        let keeps_length = replaced == by.len();
        if let Some(datagrams) = self.datagrams {
            datagrams.note_border(self.side, |beyond, out_next| match keeps_length {
                true => out_next - beyond,
                false => out_next,
            });
        }
        true
    }

    /// Sets how long the bytes that stay undecided may wait.
    pub fn wait(&mut self, patience: EditPatience) {
        self.side.hold_patience = patience;
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

//! What an editor is asked, and what it answers.

use super::map::EditLists;
use super::patience::EditPatience;
use super::side::EditSide;
use crate::rope::ChunkPool;

/// Bytes of a direction that are in order and about which nothing is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided<'b> {
    /// 0 for the initiator's bytes, 1 for the responder's.
    pub direction: usize,
    /// Bytes of the direction before them.
    pub offset: u64,
    /// The bytes: those that were left undecided before, and new ones behind them.
    pub bytes: &'b [u8],
    /// Number of the former.
    pub known: usize,
    /// No bytes follow: nothing may be left undecided.
    pub is_end: bool,
    /// For how long the first byte has been undecided, if the question is asked again because time has passed. [`u32::MAX`] if nothing may be left: there are too
    /// many undecided bytes, or a match reaches beyond the next datagram.
    pub waited_ms: Option<u32>,
}

/// The datagrams whose bytes are undecided: the one that waits, if one does, and a new one. What a match over both becomes is in the first, unless it is as
/// long as the match: then both keep their lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagrams {
    /// Where the one that waits ends in the input.
    pub(crate) border: Option<u64>,
    /// The same in the output, when it is decided.
    pub(crate) border_out: Option<u64>,
    /// Where the new one ends in the input.
    pub(crate) end: u64,
    /// Where the output of the first one begins that is not decided to its end.
    pub(crate) from: u64,
    /// The most bytes that one may have.
    pub(crate) most: u64,
}

impl Datagrams {
    /// Whether the next bytes may become longer, by so many: all behind them in their datagram goes on as it is.
    fn have_room(&self, side: &EditSide, count: usize, by: usize) -> bool {
        let end = self.border.filter(|_| self.border_out.is_none()).unwrap_or(self.end);
        let behind = end.saturating_sub(side.decided + count as u64);
        by <= count || side.out_next - self.from + by as u64 + behind <= self.most
    }

    /// Notes where the border is in the output, if what was decided now reaches it: of bytes `beyond` it, and the end of the output.
    fn note_border(&mut self, side: &EditSide, output: impl FnOnce(u64, u64) -> u64) {
        if let (Some(border), None) = (self.border, self.border_out)
            && side.decided >= border
        {
            self.from = output(side.decided - border, side.out_next);
            self.border_out = Some(self.from);
        }
    }
}

/// Takes what an editor decides about undecided bytes, from the first one on. What it leaves is undecided still.
#[derive(Debug)]
pub struct EditSink<'t> {
    pub(crate) pool: &'t mut ChunkPool,
    pub(crate) lists: &'t mut EditLists,
    pub(crate) side: &'t mut EditSide,
    /// Of a direction of datagrams.
    pub(crate) datagrams: &'t mut Option<Datagrams>,
    pub(crate) bytes: &'t [u8],
    /// Bytes that are decided.
    pub(crate) count: usize,
    /// There was no room for output: the stream cannot go on.
    pub(crate) is_broken: bool,
}

impl<'t> EditSink<'t> {
    /// The next `count` bytes go on as they are.
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

    /// The next `count` bytes, at least one, are replaced by others. False if they go on as they are, since their datagram would become too long.
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
        // A list of edits ends with the bytes that one packet or a few bring.
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

    /// What is left undecided waits for so long.
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

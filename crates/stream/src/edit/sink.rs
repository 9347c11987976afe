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
    /// For how long the first byte has been undecided, if the question is asked again because time has passed. [`u32::MAX`] if there are too
    /// many undecided bytes: nothing may be left then.
    pub waited_ms: Option<u32>,
}

/// A place between two datagrams: in the input, and, when it is decided, in the output. What a match over it becomes is in
/// the first of them, unless it is as long as the match: then both keep their lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Border {
    pub(crate) input: u64,
    pub(crate) output: Option<u64>,
}

/// Takes what an editor decides about undecided bytes, from the first one on. What it leaves is undecided still.
#[derive(Debug)]
pub struct EditSink<'t> {
    pub(crate) pool: &'t mut ChunkPool,
    pub(crate) lists: &'t mut EditLists,
    pub(crate) side: &'t mut EditSide,
    pub(crate) border: &'t mut Option<Border>,
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
        self.note_border(|beyond, out_next| out_next - beyond);
    }

    /// The next `count` bytes, at least one, are replaced by others.
    pub fn replace(&mut self, count: usize, by: &[u8]) {
        let at = self.side.decided;
        let replaced = self.take(count).len();
        if replaced == 0 {
            return;
        }
        let out = self.side.out_next;
        let is_too_much = self.side.kept.len() + by.len() > self.side.most_kept;
        if is_too_much || !self.side.kept.push(self.pool, by) || !self.side.map.reserve(self.lists) {
            self.is_broken = true;
            return;
        }
        // A list of edits ends with the bytes that one packet or a few bring.
        self.side.map.add(self.lists, (at, replaced as u32), (out, by.len() as u32));
        self.side.out_next += by.len() as u64;
        self.side.edits += 1;
        self.side.is_shifted |= replaced != by.len();
        self.side.removed += replaced as u64;
        self.side.added += by.len() as u64;
        let keeps_length = replaced == by.len();
        self.note_border(|beyond, out_next| if keeps_length { out_next - beyond } else { out_next });
    }

    /// Notes where the border is in the output, if what was decided now reaches it: of bytes `beyond` it, and the end of the output.
    #[inline]
    fn note_border(&mut self, output: impl FnOnce(u64, u64) -> u64) {
        if let Some(Border { input, output: to @ None }) = self.border
            && self.side.decided >= *input
        {
            *to = Some(output(self.side.decided - *input, self.side.out_next));
        }
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

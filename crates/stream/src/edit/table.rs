//! The state of a table for its streams with edits.
//!
//! Four queues have directions of such streams:
//!
//! - Two queues have directions with held bytes: one for a short wait and one for a long wait, in the order
//!   in which they are due.
//! - One queue has directions whose promises are to be polled, in the order in which they are due.
//! - One queue has directions with packets to generate. Each direction generates some packets in its turn, so
//!   that none waits for all packets of another.

use super::decide::MOST_UNDECIDED;
use super::links::{DirectionId, EditId};
use super::map::EditLists;
use super::noted::Noted;
use super::patience::{EditPatience, LONG_MS};
use super::promise::RETRY_MS;
use super::queue::{DirectionQueue, PATIENT, PROMISING, READY, WAITING};
use super::side::{EditSide, EditStream, EditStreams};
use crate::id::StreamId;
use crate::rope::ChunkPool;
use crate::segment::StreamDrop;
use crate::side::Side;
use mmb_base::{Chunks, Slab, id_types};
use std::collections::TryReserveError;

/// Bytes by which the output of one packet may exceed the usual bound of buffered output.
const MOST_GROWN: usize = 2 << 20;

id_types! {
    /// The header values of a stream; valid while the stream lives.
    pub(crate) struct NotesId;
}

/// The header values of both ends of a stream.
pub(crate) type Notes = [Noted; 2];

/// The state of a table for streams with edits.
#[derive(Debug, Default)]
pub(crate) struct EditTable {
    /// The edit states of streams that are not plain.
    pub(crate) streams: EditStreams,
    /// The header values of streams, from their start to their end. For a stream that is not plain, the
    /// current values are in `streams`, and those here are out of date.
    pub(crate) notes: Slab<NotesId, Notes, Chunks<Notes, 256>>,
    pub(crate) lists: EditLists,
    pub(super) waiting: DirectionQueue<WAITING>,
    pub(super) patient: DirectionQueue<PATIENT>,
    pub(super) ready: DirectionQueue<READY>,
    pub(super) promising: DirectionQueue<PROMISING>,
    /// Packets that the first direction of `ready` has generated in its turn.
    pub(super) made: u32,
    /// The direction whose datagram's output is buffered until the next packet arrives.
    pub(super) datagram: Option<(StreamId, DirectionId)>,
    /// Buffers for undecided bytes in one piece, and for the payload of a generated packet.
    pub(crate) scratch: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl EditTable {
    /// Allocates the edit state and the header values of a stream.
    pub(crate) fn open(&mut self, window: u64, promises: bool) -> Result<(EditId, NotesId), TryReserveError> {
        self.streams.try_reserve()?;
        self.notes.try_reserve()?;
        self.scratch.clear();
        self.payload.clear();
        self.scratch.try_reserve(MOST_UNDECIDED)?;
        self.payload.try_reserve(usize::from(u16::MAX))?;
        let stream = EditStream { sides: EditTable::sides(window, promises), ..EditStream::default() };
        Ok((self.streams.insert(stream), self.notes.insert(Notes::default())))
    }

    /// Both directions of a stream before its first packet.
    pub(super) fn sides(window: u64, promises: bool) -> [EditSide; 2] {
        // Twice the window, and what the edits of one packet may add.
        let most_kept = 2 * window as usize + MOST_GROWN;
        [EditSide { most_kept, promises, ..EditSide::default() }; 2]
    }

    /// Bytes of all records.
    pub(crate) fn memory(&self) -> usize {
        self.streams.memory() + self.notes.memory() + self.lists.memory()
    }

    /// Frees the edit state of a stream.
    pub(super) fn close(&mut self, id: EditId, pool: &mut ChunkPool) {
        self.stop(id, StreamDrop::Stopped);
        self.datagram = self.datagram.filter(|(_, direction)| direction.edit() != id);
        let EditStream { mut sides, .. } = self.streams.remove(id);
        sides.iter_mut().for_each(|side| side.clear(pool, &mut self.lists));
    }

    /// Why a stream cannot continue; `None` if it can.
    pub(crate) fn over(&self, id: Option<EditId>) -> Option<StreamDrop> {
        id.and_then(|id| self.streams[id].over)
    }

    /// Removes a stream that cannot continue from the queues.
    pub(super) fn stop(&mut self, id: EditId, why: StreamDrop) {
        self.streams[id].over = Some(why);
        for direction in [0, 1].into_iter().filter_map(|direction| DirectionId::new(id, direction)) {
            self.waiting.remove(&mut self.streams, direction);
            self.patient.remove(&mut self.streams, direction);
            self.ready.remove(&mut self.streams, direction);
            self.promising.remove(&mut self.streams, direction);
        }
    }

    /// Queues the directions of a stream for packets to generate, held bytes and promises.
    pub(super) fn queue_due(&mut self, id: EditId, sides: &[Side; 2], (hold_ms, now_ms): (u32, u64)) {
        for direction in [0, 1] {
            let Some(queued) = DirectionId::new(id, direction) else { continue };
            let EditStream { sides: edits, .. } = &mut self.streams[id];
            if edits[direction].is_quiet(&sides[direction]) {
                continue;
            }
            let mss = edits[1 - direction].noted.mss;
            let edit = &mut edits[direction];
            let (since_ms, patience) = (edit.held_since_ms, edit.hold_patience);
            let is_queued = (since_ms, patience) == (edit.queued_since_ms, edit.queued_patience);
            let due_ms =
                since_ms + u64::from(if patience == EditPatience::Long { LONG_MS } else { hold_ms.max(1) });
            let (holds, work) =
                (edit.held.len() > 0, edit.work(&sides[direction], &sides[1 - direction], mss));
            if !edit.owes_promised(&sides[direction]) {
                self.promising.remove(&mut self.streams, queued);
            } else if self.promising.push(&mut self.streams, queued) {
                let edit = &mut self.streams[id].sides[direction];
                (edit.poll_ms, edit.polls) = (now_ms + RETRY_MS, 0);
            }
            if work.is_some() {
                self.ready.push(&mut self.streams, queued);
            }
            if !holds || !is_queued {
                // The wait of the held bytes has just begun, so the direction moves to the end of the queue.
                self.waiting.remove(&mut self.streams, queued);
                self.patient.remove(&mut self.streams, queued);
            }
            let is_new = holds
                && match patience {
                    EditPatience::Hold => self.waiting.push(&mut self.streams, queued),
                    EditPatience::Long => self.patient.push(&mut self.streams, queued),
                    EditPatience::Unbounded => false,
                };
            if is_new {
                let edit = &mut self.streams[id].sides[direction];
                (edit.due_ms, edit.queued_since_ms, edit.queued_patience) = (due_ms, since_ms, patience);
            }
        }
    }
}

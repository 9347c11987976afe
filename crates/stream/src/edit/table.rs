//! The state of a table for its streams with edits.
//!
//! Four queues have directions of such streams:
//!
//! - Two queues have directions with held bytes: one for a short wait and one for a long wait, in the order
//!   in which they are due.
//! - One queue has directions with early-acknowledged bytes, in the order in which their retransmission
//!   timers expire.
//! - One queue has directions with packets to generate. Each direction generates some packets in its turn, so
//!   that none waits for all packets of another.

use super::decide::MAX_UNDECIDED_BYTES;
use super::early_ack::RETRY_MS;
use super::header_values::HeaderValues;
use super::hold_time::{HoldTime, LONG_HOLD_MS};
use super::links::{DirectionId, EditId};
use super::map::EditLists;
use super::queue::{DirectionQueue, POLLED, READY, WAITING, WAITING_LONG};
use super::side::{EditSide, EditStream, EditStreams};
use crate::id::StreamId;
use crate::rope::ChunkPool;
use crate::segment::StreamDrop;
use crate::side::Side;
use mmb_base::{Chunks, Slab, id_types};
use std::collections::TryReserveError;

/// Bytes by which the output of one packet may exceed the usual bound of buffered output.
const MAX_EXCESS_OUTPUT_BYTES: usize = 2 << 20;

id_types! {
    /// The header values of a stream; valid while the stream lives.
    pub(crate) struct HeaderValuesId;
}

/// The header values of both ends of a stream.
pub(crate) type HeaderValuesPair = [HeaderValues; 2];

/// The state of a table for streams with edits.
#[derive(Debug, Default)]
pub(crate) struct EditTable {
    /// The edit states of streams that are not plain.
    pub(crate) streams: EditStreams,
    /// The header values of streams, from their start to their end. For a stream that is not plain, the
    /// current values are in `streams`, and those here are out of date.
    pub(crate) header_values: Slab<HeaderValuesId, HeaderValuesPair, Chunks<HeaderValuesPair, 256>>,
    pub(crate) lists: EditLists,
    pub(super) waiting: DirectionQueue<WAITING>,
    pub(super) waiting_long: DirectionQueue<WAITING_LONG>,
    pub(super) ready: DirectionQueue<READY>,
    pub(super) polled: DirectionQueue<POLLED>,
    /// Packets that the first direction of `ready` has generated in its turn.
    pub(super) generated: u32,
    /// The direction whose datagram's output is buffered until the next packet arrives.
    pub(super) datagram: Option<(StreamId, DirectionId)>,
    /// Buffers for undecided bytes in one piece, and for the payload of a generated packet.
    pub(crate) scratch: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl EditTable {
    /// Allocates the edit state and the header values of a stream.
    pub(crate) fn open(
        &mut self,
        window: u64,
        allows_early_acks: bool,
    ) -> Result<(EditId, HeaderValuesId), TryReserveError> {
        self.streams.try_reserve()?;
        self.header_values.try_reserve()?;
        self.scratch.clear();
        self.payload.clear();
        self.scratch.try_reserve(MAX_UNDECIDED_BYTES)?;
        self.payload.try_reserve(usize::from(u16::MAX))?;
        let stream =
            EditStream { sides: EditTable::sides(window, allows_early_acks), ..EditStream::default() };
        Ok((self.streams.insert(stream), self.header_values.insert(HeaderValuesPair::default())))
    }

    /// Both directions of a stream before its first packet.
    pub(super) fn sides(window: u64, allows_early_acks: bool) -> [EditSide; 2] {
        // Twice the window, and what the edits of one packet may add.
        let max_buffered = 2 * window as usize + MAX_EXCESS_OUTPUT_BYTES;
        [EditSide { max_buffered, allows_early_acks, ..EditSide::default() }; 2]
    }

    /// Bytes of all records.
    pub(crate) fn memory(&self) -> usize {
        self.streams.memory() + self.header_values.memory() + self.lists.memory()
    }

    /// Frees the edit state of a stream.
    pub(super) fn close(&mut self, id: EditId, pool: &mut ChunkPool) {
        self.stop(id, StreamDrop::Stopped);
        self.datagram = self.datagram.filter(|(_, direction)| direction.edit() != id);
        let EditStream { mut sides, .. } = self.streams.remove(id);
        sides.iter_mut().for_each(|side| side.clear(pool, &mut self.lists));
    }

    /// Why a stream cannot continue; `None` if it can.
    pub(crate) fn failure(&self, id: Option<EditId>) -> Option<StreamDrop> {
        id.and_then(|id| self.streams[id].failure)
    }

    /// Removes a stream that cannot continue from the queues.
    pub(super) fn stop(&mut self, id: EditId, failure: StreamDrop) {
        self.streams[id].failure = Some(failure);
        for direction in [0, 1].into_iter().filter_map(|direction| DirectionId::new(id, direction)) {
            self.waiting.remove(&mut self.streams, direction);
            self.waiting_long.remove(&mut self.streams, direction);
            self.ready.remove(&mut self.streams, direction);
            self.polled.remove(&mut self.streams, direction);
        }
    }

    /// Queues the directions of a stream for packets to generate, held bytes and retransmission
    /// timers.
    pub(super) fn queue_due(&mut self, id: EditId, sides: &[Side; 2], (hold_ms, now_ms): (u32, u64)) {
        for direction in [0, 1] {
            let Some(queued) = DirectionId::new(id, direction) else { continue };
            let EditStream { sides: edits, .. } = &mut self.streams[id];
            if edits[direction].is_quiet(&sides[direction]) {
                continue;
            }
            let mss = edits[1 - direction].header_values.mss;
            let edit = &mut edits[direction];
            let (since_ms, hold_time) = (edit.held_since_ms, edit.hold_time);
            let is_queued = (since_ms, hold_time) == (edit.queued_since_ms, edit.queued_hold_time);
            let due_ms =
                since_ms + u64::from(if hold_time == HoldTime::Long { LONG_HOLD_MS } else { hold_ms.max(1) });
            let (has_held, packet) =
                (edit.held.len() > 0, edit.next_packet(&sides[direction], &sides[1 - direction], mss));
            if !edit.needs_retransmit_timer(&sides[direction]) {
                self.polled.remove(&mut self.streams, queued);
            } else if self.polled.push(&mut self.streams, queued) {
                let edit = &mut self.streams[id].sides[direction];
                (edit.next_poll_ms, edit.polls) = (now_ms + RETRY_MS, 0);
            }
            if packet.is_some() {
                self.ready.push(&mut self.streams, queued);
            }
            if !has_held || !is_queued {
                // The wait of the held bytes has just begun, so the direction moves to the end of the queue.
                self.waiting.remove(&mut self.streams, queued);
                self.waiting_long.remove(&mut self.streams, queued);
            }
            let is_new = has_held
                && match hold_time {
                    HoldTime::Configured => self.waiting.push(&mut self.streams, queued),
                    HoldTime::Long => self.waiting_long.push(&mut self.streams, queued),
                    HoldTime::Unbounded => false,
                };
            if is_new {
                let edit = &mut self.streams[id].sides[direction];
                (edit.due_ms, edit.queued_since_ms, edit.queued_hold_time) = (due_ms, since_ms, hold_time);
            }
        }
    }
}

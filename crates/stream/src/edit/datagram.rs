//! Datagrams whose bytes are edited.
//!
//! A match may begin in one datagram and end in the next. Its replacement goes into the first datagram, or
//! into both if it is as long as the match.
//!
//! A datagram at whose end a match begins *waits*: its packet is absorbed. A packet is generated for it when
//! the next datagram of its sender has arrived, or after
//! [`StreamLimits::hold_ms`](crate::StreamLimits::hold_ms). To keep the order, datagrams that arrive before
//! that packet is generated are absorbed and generated too.
//!
//! A match spans at most two datagrams. If a match begins in one datagram and is not complete in the next,
//! mmb abandons it.

use super::decide::Decider;
use super::map::EditLists;
use super::side::EditSide;
use super::sink::Datagrams;
use crate::reader::StreamReader;
use crate::rope::{CHUNK, ChunkPool};
use crate::segment::{EditedPayload, EditedSegment, Outcome, Segment, StreamDrop, StreamVerdict};
use crate::side::Side;

/// Edits a datagram. If its packet is forwarded with another payload, the output is buffered until
/// [`Decider::forget_output`]. If memory is short, no datagram waits.
pub(crate) fn edit_datagram(
    mut decider: Decider<'_>,
    (segment, payload): (&Segment, &[u8]),
    is_short: bool,
    reader: &mut dyn StreamReader,
) -> Outcome {
    if segment.is_corrupt {
        return Outcome::drop(StreamDrop::BadChecksum);
    }
    decider.edit.header_values.link_payload = segment.max_payload;
    // The datagram may be held and buffered. Without room, only this datagram is lost.
    let max_bytes = decider.edit.held.len() + payload.len() + usize::from(decider.edit.max_datagram());
    if decider.pool.chunks() - decider.pool.taken() < 2 * max_bytes.div_ceil(CHUNK) {
        return Outcome::drop(StreamDrop::NoRoom);
    }
    decider.side.has_begun = true;
    let (edits, start) = (decider.edit.edits, decider.edit.out_end);
    match decide(&mut decider, payload, is_short, reader) {
        Err(why) => Outcome::drop(why),
        Ok(true) => Outcome { verdict: StreamVerdict::Absorb, ..Outcome::PASS },
        Ok(false) => {
            let payload = if decider.edit.edits == edits {
                decider.forget_output();
                EditedPayload::Same
            } else {
                decider.edit.snd_nxt = decider.edit.out_end;
                EditedPayload::Buffered { offset: start, len: (decider.edit.out_end - start) as usize }
            };
            Outcome { edited: Some(EditedSegment { payload, ..EditedSegment::default() }), ..Outcome::PASS }
        }
    }
}

/// Decides about a datagram, and finally about the one that waits. Returns whether the new datagram is to be
/// generated, now or later.
fn decide(
    decider: &mut Decider<'_>,
    payload: &[u8],
    is_short: bool,
    reader: &mut dyn StreamReader,
) -> Result<bool, StreamDrop> {
    let follows_pending = decider.edit.held.len() > 0 || !decider.edit.datagram_ends.is_empty();
    decider.record_datagrams(payload.len());
    let asked = decider.question();
    decider.decide(payload, asked, reader)?;
    if let Some(Datagrams { waiting_end: Some(waiting_end), waiting_output_end: None, .. }) =
        decider.datagrams
    {
        decider.decide_first((waiting_end - decider.edit.decided) as usize, reader)?;
        let asked = decider.question();
        decider.decide(&[], asked, reader)?;
    }
    if let Some(Datagrams { waiting_output_end: Some(end), .. }) = decider.datagrams {
        push_end(decider, end)?;
    }
    let held = decider.edit.held.len();
    if is_short && held > 0 {
        // If memory is short, no datagram waits.
        decider.decide_first(held, reader)?;
    }
    let waits = decider.edit.held.len() > 0;
    if follows_pending && !waits {
        end_datagram(decider)?;
    }
    Ok(follows_pending || waits)
}

/// Records that a datagram is decided and is to be generated.
pub(crate) fn end_datagram(decider: &mut Decider<'_>) -> Result<(), StreamDrop> {
    push_end(decider, decider.edit.out_end)
}

fn push_end(decider: &mut Decider<'_>, end: u64) -> Result<(), StreamDrop> {
    let Decider { edit, pool, .. } = decider;
    if edit.datagram_ends.push(pool, end) { Ok(()) } else { Err(StreamDrop::Broken) }
}

/// Moves the output of the first datagram in the queue into a buffer.
pub(crate) fn pop_datagram(
    (side, edit): (&mut Side, &mut EditSide),
    pool: &mut ChunkPool,
    lists: &mut EditLists,
    buffer: &mut Vec<u8>,
) {
    buffer.clear();
    let Some(end) = edit.datagram_ends.pop(pool) else { return };
    let len = end.saturating_sub(edit.snd_una) as usize;
    edit.buffered.slices(pool, 0, len).for_each(|slice| buffer.extend_from_slice(slice));
    forget_output((side, edit), pool, lists, end);
}

/// The most payload of a datagram (RFC 768, RFC 791).
const MAX_PAYLOAD: u16 = u16::MAX - 20 - 8;

impl Decider<'_> {
    /// Records which datagrams are undecided: the waiting one, and a new one of `new` bytes.
    pub(crate) fn record_datagrams(&mut self, new: usize) {
        let Decider { side, edit, pool, .. } = self;
        let is_waiting = edit.held.len() > 0;
        self.datagrams = Some(Datagrams {
            waiting_end: is_waiting.then_some(side.rcv_nxt),
            waiting_output_end: None,
            end: side.rcv_nxt + new as u64,
            output_start: match is_waiting {
                true => edit.datagram_ends.last(pool).unwrap_or(edit.snd_una),
                false => edit.out_end,
            },
            max_len: u64::from(edit.max_datagram()),
        });
    }

    /// Frees all output, which was sent.
    pub(crate) fn forget_output(self) {
        let Decider { side, edit, pool, lists, .. } = self;
        let end = edit.out_end;
        forget_output((side, edit), pool, lists, end);
    }
}

impl EditSide {
    /// The most payload that a datagram may have.
    fn max_datagram(&self) -> u16 {
        let room = self.header_values.link_payload.into_iter().chain(self.header_values.path_payload).min();
        room.unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD)
    }

    /// Number of datagrams that are to be generated or wait.
    pub(crate) fn pending_datagrams(&self) -> usize {
        self.datagram_ends.len() + usize::from(self.held.len() > 0)
    }
}

/// Frees the output before `end`, which was sent.
fn forget_output(
    (side, edit): (&mut Side, &mut EditSide),
    pool: &mut ChunkPool,
    lists: &mut EditLists,
    end: u64,
) {
    let end = end.clamp(edit.snd_una, edit.out_end);
    edit.buffered.pop(pool, (end - edit.snd_una) as usize);
    (edit.snd_nxt, edit.snd_una) = (end, end);
    side.snd_una = edit.acked_input(side, lists, end);
    edit.map.acknowledge(lists, end);
}

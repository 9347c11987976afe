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
    decider.edit.noted.room = segment.most_payload;
    // The datagram may be held and buffered. Without room, only this datagram is lost.
    let most = decider.edit.held.len() + payload.len() + usize::from(decider.edit.most_datagram());
    if decider.pool.chunks() - decider.pool.taken() < 2 * most.div_ceil(CHUNK) {
        return Outcome::drop(StreamDrop::NoRoom);
    }
    decider.side.has_begun = true;
    let (edits, from) = (decider.edit.edits, decider.edit.out_next);
    match decide(&mut decider, payload, is_short, reader) {
        Err(why) => Outcome::drop(why),
        Ok(true) => Outcome { verdict: StreamVerdict::Absorb, ..Outcome::PASS },
        Ok(false) => {
            let payload = if decider.edit.edits == edits {
                decider.forget_output();
                EditedPayload::Same
            } else {
                decider.edit.sent = decider.edit.out_next;
                EditedPayload::Kept { offset: from, len: (decider.edit.out_next - from) as usize }
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
    let is_behind = decider.edit.held.len() > 0 || !decider.edit.ends.is_empty();
    decider.note_datagrams(payload.len());
    let asked = decider.question();
    decider.decide(payload, asked, reader)?;
    if let Some(Datagrams { border: Some(border), border_out: None, .. }) = decider.datagrams {
        decider.decide_first((border - decider.edit.decided) as usize, reader)?;
        let asked = decider.question();
        decider.decide(&[], asked, reader)?;
    }
    if let Some(Datagrams { border_out: Some(end), .. }) = decider.datagrams {
        push_end(decider, end)?;
    }
    let held = decider.edit.held.len();
    if is_short && held > 0 {
        // If memory is short, no datagram waits.
        decider.decide_first(held, reader)?;
    }
    let waits = decider.edit.held.len() > 0;
    if is_behind && !waits {
        end_datagram(decider)?;
    }
    Ok(is_behind || waits)
}

/// Records that a datagram is decided and is to be generated.
pub(crate) fn end_datagram(decider: &mut Decider<'_>) -> Result<(), StreamDrop> {
    push_end(decider, decider.edit.out_next)
}

fn push_end(decider: &mut Decider<'_>, end: u64) -> Result<(), StreamDrop> {
    let Decider { edit, pool, .. } = decider;
    if edit.ends.push(pool, end) { Ok(()) } else { Err(StreamDrop::Broken) }
}

/// Moves the output of the first datagram in the queue into a buffer.
pub(crate) fn pop_datagram(
    (side, edit): (&mut Side, &mut EditSide),
    pool: &mut ChunkPool,
    lists: &mut EditLists,
    into: &mut Vec<u8>,
) {
    into.clear();
    let Some(end) = edit.ends.pop(pool) else { return };
    let len = end.saturating_sub(edit.acked) as usize;
    edit.kept.slices(pool, 0, len).for_each(|slice| into.extend_from_slice(slice));
    forget_output((side, edit), pool, lists, end);
}

/// The most payload of a datagram (RFC 768, RFC 791).
const MOST_PAYLOAD: u16 = u16::MAX - 20 - 8;

impl Decider<'_> {
    /// Records which datagrams are undecided: the waiting one, and a new one of `new` bytes.
    pub(crate) fn note_datagrams(&mut self, new: usize) {
        let Decider { side, edit, pool, .. } = self;
        let is_waiting = edit.held.len() > 0;
        self.datagrams = Some(Datagrams {
            border: is_waiting.then_some(side.next),
            border_out: None,
            end: side.next + new as u64,
            from: match is_waiting {
                true => edit.ends.last(pool).unwrap_or(edit.acked),
                false => edit.out_next,
            },
            most: u64::from(edit.most_datagram()),
        });
    }

    /// Frees all output, which was sent.
    pub(crate) fn forget_output(self) {
        let Decider { side, edit, pool, lists, .. } = self;
        let end = edit.out_next;
        forget_output((side, edit), pool, lists, end);
    }
}

impl EditSide {
    /// The most payload that a datagram may have.
    fn most_datagram(&self) -> u16 {
        let room = self.noted.room.into_iter().chain(self.noted.path).min();
        room.unwrap_or(MOST_PAYLOAD).min(MOST_PAYLOAD)
    }

    /// Number of datagrams that are to be generated or wait.
    pub(crate) fn datagrams_behind(&self) -> usize {
        self.ends.len() + usize::from(self.held.len() > 0)
    }
}

/// Frees the output before `end`, which was sent.
fn forget_output(
    (side, edit): (&mut Side, &mut EditSide),
    pool: &mut ChunkPool,
    lists: &mut EditLists,
    end: u64,
) {
    let end = end.clamp(edit.acked, edit.out_next);
    edit.kept.pop(pool, (end - edit.acked) as usize);
    (edit.sent, edit.acked) = (end, end);
    side.acked = edit.acked_input(side, lists, end);
    edit.map.acknowledge(lists, end);
}

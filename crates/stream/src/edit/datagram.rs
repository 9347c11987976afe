//! Datagrams whose bytes are changed.
//!
//! A match may begin in one datagram and end in the next: then what it becomes is in the first, or, if it is as long as the match, in both. A datagram at whose end a match is begun *waits*:
//! its packet is absorbed, and it is made into a packet when the next datagram of its sender has come, or after the time of
//! [`StreamLimits::hold_ms`](crate::StreamLimits::hold_ms). So that datagrams keep their order, those that come behind one that is not made yet
//! are absorbed and made too. A match lies in two datagrams at most.

use super::decide::Decider;
use super::map::EditLists;
use super::side::EditSide;
use super::sink::{Border, Undecided};
use crate::reader::StreamReader;
use crate::rope::ChunkPool;
use crate::segment::{EditedPayload, EditedSegment, Outcome, StreamDrop, StreamVerdict};
use crate::side::Side;

/// Edits a datagram. If its packet goes on changed, its output is kept until [`Decider::forget_output`].
pub(crate) fn edit_datagram(
    mut decider: Decider<'_>,
    payload: &[u8],
    is_corrupt: bool,
    reader: &mut dyn StreamReader,
) -> Outcome {
    if is_corrupt {
        return Outcome::drop(StreamDrop::BadChecksum);
    }
    decider.side.has_begun = true;
    let (edits, from) = (decider.edit.edits, decider.edit.out_next);
    match decide(&mut decider, payload, reader) {
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

/// Decides about a datagram, and at last about the one that waits. Returns whether it is to be made, now or later.
fn decide(
    decider: &mut Decider<'_>,
    payload: &[u8],
    reader: &mut dyn StreamReader,
) -> Result<bool, StreamDrop> {
    let was_waiting = decider.edit.held.len() > 0;
    let is_behind = was_waiting || !decider.edit.ends.is_empty();
    if was_waiting {
        decider.border = Some(Border { input: decider.side.next, output: None });
    }
    let asked = decider.question();
    decider.decide(payload, asked, reader)?;
    if decider.border.is_some_and(|border| border.output.is_none()) {
        let last = Undecided { waited_ms: Some(u32::MAX), ..decider.question() };
        decider.decide(&[], last, reader)?;
    }
    if let Some(Border { output: Some(end), .. }) = decider.border {
        push_end(decider, end)?;
    }
    let waits = decider.edit.held.len() > 0;
    if is_behind && !waits {
        end_datagram(decider)?;
    }
    Ok(is_behind || waits)
}

/// All about a datagram is decided: it is to be made.
pub(crate) fn end_datagram(decider: &mut Decider<'_>) -> Result<(), StreamDrop> {
    push_end(decider, decider.edit.out_next)
}

fn push_end(decider: &mut Decider<'_>, end: u64) -> Result<(), StreamDrop> {
    let Decider { edit, pool, .. } = decider;
    if edit.ends.push(pool, end) { Ok(()) } else { Err(StreamDrop::Broken) }
}

/// Moves the output of the first datagram that is to be made into a buffer.
pub(crate) fn take_datagram(
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

impl Decider<'_> {
    /// Gives back the memory of all output, which was sent.
    pub(crate) fn forget_output(self) {
        let Decider { side, edit, pool, lists, .. } = self;
        let end = edit.out_next;
        forget_output((side, edit), pool, lists, end);
    }
}

/// Gives back the memory of output that was sent.
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

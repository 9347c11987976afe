//! Datagrams whose bytes are changed.
//!
//! A match may begin in one datagram and end in the next: then what it becomes is in the first. A datagram at whose end a match is begun *waits*: its packet
//! is absorbed, and its output is sent when the next datagram of its sender has come, or after the time of [`StreamLimits::hold_ms`](crate::StreamLimits::hold_ms).
//! So that datagrams keep their order, the packet that brings the next one carries the output of the one that waits, and the
//! next one waits in its place: for others that come with it, or to be made into a packet behind them. A packet that is too short for it leaves
//! both to be made. A match lies in two datagrams at most.

use super::decide::Decider;
use super::sink::Undecided;
use crate::reader::StreamReader;
use crate::segment::{EditedPayload, EditedSegment, Outcome, StreamDrop, StreamVerdict};

/// Edits a datagram. What is sent by its packet is kept until [`forget_output`] of the output that is returned.
pub(crate) fn edit_datagram(
    mut decider: Decider<'_>,
    payload: &[u8],
    is_corrupt: bool,
    reader: &mut dyn StreamReader,
) -> (Outcome, Option<u64>) {
    if is_corrupt {
        return (Outcome::drop(StreamDrop::BadChecksum), None);
    }
    decider.side.has_begun = true;
    let (edits, border, had_waiting) = (decider.edit.edits, decider.side.next, decider.edit.waits);
    let late_end = decider.edit.late_end;
    if let Err(why) = decide(&mut decider, payload, border, reader) {
        return (Outcome::drop(why), None);
    }
    let Decider { edit, lists, .. } = decider;
    let (from, all) = (edit.acked, edit.out_next);
    edit.waits = had_waiting || edit.held.len() > 0;
    let kept = |to: u64| EditedPayload::Kept { offset: from, len: (to - from) as usize };
    let (payload, sent) = match (had_waiting, edit.waits) {
        (true, _) => {
            let mut end = edit.map.output_ceil(lists, border).clamp(from, all);
            if let Some(late_end) = late_end {
                edit.late_end = Some(end);
                end = late_end;
            }
            (kept(end), end)
        }
        (false, true) => return (Outcome { verdict: StreamVerdict::Absorb, ..Outcome::PASS }, None),
        (false, false) if edit.edits == edits => (EditedPayload::Same, all),
        (false, false) => (kept(all), all),
    };
    let edited = EditedSegment { payload, is_late: had_waiting, ..EditedSegment::default() };
    (Outcome { edited: Some(edited), ..Outcome::PASS }, Some(sent))
}

/// Decides about a datagram, and at last about the one before it, of which the input ends at `border`.
fn decide(
    decider: &mut Decider<'_>,
    payload: &[u8],
    border: u64,
    reader: &mut dyn StreamReader,
) -> Result<(), StreamDrop> {
    let asked = decider.question();
    decider.decide(payload, asked, reader)?;
    if decider.edit.waits && decider.edit.decided < border {
        let last = Undecided { is_end: true, ..decider.question() };
        decider.decide(&[], last, reader)?;
    }
    Ok(())
}

/// Gives back the memory of output that was sent.
pub(crate) fn forget_output(decider: Decider<'_>, sent: u64) {
    let Decider { side, edit, pool, lists, .. } = decider;
    let end = sent.clamp(edit.acked, edit.out_next);
    edit.kept.pop(pool, (end - edit.acked) as usize);
    (edit.sent, edit.acked) = (end, end);
    side.acked = edit.acked_input(side, lists, end);
    edit.map.acknowledge(lists, end);
}

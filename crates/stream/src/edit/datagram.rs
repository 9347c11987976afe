//! Datagrams whose bytes are changed.

use super::decide::Decider;
use super::sink::Undecided;
use crate::reader::StreamReader;
use crate::segment::{EditedPayload, EditedSegment, Outcome, StreamDrop};

/// Edits a datagram. It is decided as a whole; if it is changed, its output is kept until [`forget_datagram`].
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
    let (edits, offset) = (decider.edit.edits, decider.edit.out_next);
    let asked = Undecided { is_end: true, ..decider.question() };
    if let Err(why) = decider.decide(payload, asked, reader) {
        forget_datagram(decider);
        return Outcome::drop(why);
    }
    let payload = match decider.edit.edits == edits {
        true => EditedPayload::Same,
        false => EditedPayload::Kept { offset, len: (decider.edit.out_next - offset) as usize },
    };
    if payload == EditedPayload::Same {
        forget_datagram(decider);
    }
    Outcome { edited: Some(EditedSegment { payload, ..EditedSegment::default() }), ..Outcome::PASS }
}

/// Gives back the memory of a datagram's output.
pub(crate) fn forget_datagram(decider: Decider<'_>) {
    let Decider { edit, pool, lists, .. } = decider;
    edit.kept.clear(pool);
    (edit.sent, edit.acked) = (edit.out_next, edit.out_next);
    edit.map.acknowledge(lists, edit.out_next);
}

//! Both directions of a stream with edits, as seen from a segment, and what it shares with other streams.

use super::map::EditLists;
use super::side::EditSide;
use crate::limits::AckSpace;

/// What a segment needs of a stream with edits.
pub(crate) struct EditTake<'t> {
    pub(crate) lists: &'t mut EditLists,
    pub(crate) ours: &'t mut EditSide,
    pub(crate) theirs: &'t mut EditSide,
    /// For undecided bytes in one piece.
    pub(crate) scratch: &'t mut Vec<u8>,
    pub(crate) acks: AckSpace,
}

//! The state of epochs: see `folding`.

use crate::ConnId;
use crate::record::LAST_EPOCH;

/// The first epoch of the second half. With the first epoch of each half a sweep begins that forgets those of the other half.
pub(super) const SECOND_HALF: u16 = LAST_EPOCH / 2 + 1;

/// The state of epochs.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    /// The last one that began; 0 at first.
    pub(super) last: u16,
    /// Where the sweep continues.
    pub(super) sweep: Option<ConnId>,
}

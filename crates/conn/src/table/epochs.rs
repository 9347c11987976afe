//! The state of epochs: see `folding`.

use crate::ConnId;
use crate::record::LAST_EPOCH;

/// The first epoch of the second half. The first epoch of each half starts a sweep, which removes the epochs
/// of the other half from all flow lines.
pub(super) const SECOND_HALF: u16 = LAST_EPOCH / 2 + 1;

/// The state of epochs.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    /// The last epoch that began; 0 before the first one.
    pub(super) last: u16,
    /// Where the sweep continues.
    pub(super) sweep: Option<ConnId>,
}

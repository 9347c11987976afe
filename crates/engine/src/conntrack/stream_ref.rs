//! The reference from a connection to its stream.

use mmb_base::id_types;

id_types! {
    /// The engine's record of a stream.
    pub(crate) struct FollowedId;
}

/// The stream of a connection. `serial` distinguishes it from later streams with the same `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamRef {
    pub(crate) id: FollowedId,
    pub(super) serial: u32,
    /// Some direction is at level edit.
    pub(super) is_edited: bool,
}

//! How a connection refers to its stream.

use mmb_base::id_types;

id_types! {
    /// What the engine knows of a worker's stream.
    pub(crate) struct FollowedId;
}

/// A connection's stream. Its number alone may belong to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamRef {
    pub(crate) id: FollowedId,
    pub(super) serial: u32,
    /// Some direction is edited.
    pub(super) is_edited: bool,
}

//! Connections with edited streams: header templates for the packets that mmb generates on them.

use crate::generated::HeaderTemplate;
use mmb_base::{Chunks, Slab, id_types};
use mmb_conn::ConnId;

id_types! {
    /// The id of an [`EditedConnection`].
    pub(super) struct EditedId;
}

/// A connection with an edited stream, and header templates for the packets that mmb generates on the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EditedConnection {
    /// The connection; `None` before its first packet reaches the stream.
    pub(super) member: Option<ConnId>,
    /// By direction: the headers of the last packet, as it came in.
    pub(super) headers: [Option<HeaderTemplate>; 2],
}

impl EditedConnection {
    /// The connection; `None` before its first packet reaches the stream.
    pub(super) fn member(&self) -> Option<ConnId> {
        self.member
    }
}

/// The connections of a worker whose streams are edited.
pub(super) type EditedConnections = Slab<EditedId, EditedConnection, Chunks<EditedConnection, 64>>;

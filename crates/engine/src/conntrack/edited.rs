//! What the packets that streams make need of their connections.

use crate::made::HeaderTemplate;
use mmb_base::{Chunks, Slab, id_types};
use mmb_conn::ConnId;

id_types! {
    /// What made packets need of a connection.
    pub(super) struct EditedId;
}

/// What made packets need of a connection with an edited stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EditedConnection {
    /// The connection, known from its first packet of a stream on.
    pub(super) member: Option<ConnId>,
    /// The headers of the packets of each direction when they come in.
    pub(super) headers: [Option<HeaderTemplate>; 2],
}

impl EditedConnection {
    /// The connection, if a packet of it was seen.
    pub(super) fn member(&self) -> Option<ConnId> {
        self.member
    }
}

/// The connections of a worker whose streams are edited.
pub(super) type EditedConnections = Slab<EditedId, EditedConnection, Chunks<EditedConnection, 64>>;

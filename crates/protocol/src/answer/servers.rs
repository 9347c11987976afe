//! Lines about servers of load balancers.

use serde::{Deserialize, Serialize};

/// A server of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerLine {
    /// The id of the rule.
    pub rule: u32,
    /// The server: an address or a port.
    pub server: String,
    /// Its weight; absent if it has left the list and still has connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// `up`, `drain`, `down`, `failed` or `removed`.
    pub state: String,
    /// It gets new connections. A failed server does where no other server is left.
    pub open: bool,
    /// When it got into this state, in milliseconds since 1970; absent: with its rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a check has last told: `healthy` or `failed`; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// When a check last told about it, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_ms: Option<u64>,
    /// Its open connections now, without those that are kept for late packets only.
    pub connections: u64,
    /// The connections that it has got.
    pub total: u64,
    /// Packets of these, in both directions; absent if they were not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Bytes of these packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The state of a server after a `server` command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerStateLine {
    /// The id of the rule.
    pub rule: u32,
    /// The server.
    pub server: String,
    /// Its state.
    pub state: String,
    /// It gets new connections.
    pub open: bool,
}

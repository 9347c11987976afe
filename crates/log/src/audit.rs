//! Changes of the policy, and other things that clients do to traffic, as the log tells them.

use serde::Serialize;

/// What somebody did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuditEvent {
    /// What was done, by one word.
    pub action: String,
    /// By which command; shortened.
    pub command: String,
    /// The user; none if the system does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The user's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The version of the policy that it made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Rules that were added.
    pub added: u64,
    /// Rules that were removed.
    pub removed: u64,
    /// Connections that were ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// The reason why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

//! The history of the policy: entries, and differences of versions.

use serde::{Deserialize, Serialize};

/// An entry of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HistoryLine {
    /// The version of the policy that it has made; absent if it has made none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The time in UTC, as RFC 3339 writes it.
    pub time: String,
    /// The user, by number; absent if the system did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The user's name in /etc/passwd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What was done: `start`, `change`, `rollback`, `confirm`, `kill` or `clear`.
    pub action: String,
    /// The command; shortened.
    pub command: String,
    /// Rules that were added.
    #[serde(default)]
    pub added: u64,
    /// Rules that were removed.
    #[serde(default)]
    pub removed: u64,
    /// Connections that were ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// The reason why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The version can be restored and compared.
    #[serde(default)]
    pub kept: bool,
    /// The version is in force.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_force: bool,
}

/// Two versions that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DiffVersions {
    /// The version whose lines have a `-`.
    pub from: u64,
    /// The version whose lines have a `+`.
    pub to: u64,
}

/// A line that one of two versions has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DifferenceLine {
    /// The version that has it.
    pub sign: DifferenceSign,
    /// A command of the language.
    pub line: String,
}

/// One of two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DifferenceSign {
    /// Only the second version has the line.
    #[serde(rename = "+")]
    Added,
    /// Only the first version has the line.
    #[serde(rename = "-")]
    Removed,
}

/// A change that waits for its confirmation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UnconfirmedLine {
    /// The version that it has made, which is in force.
    pub version: u64,
    /// The version that is in force again afterwards, if it is not confirmed.
    pub before: u64,
    /// The seconds that are left.
    pub seconds: u64,
    /// The user who made the change; absent if the system did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The user's name in /etc/passwd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The command; shortened.
    pub command: String,
}

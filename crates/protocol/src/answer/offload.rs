//! The lines of `show offload`.

use super::counters::TrafficLine;
use serde::{Deserialize, Serialize};

/// The flows that a host forwards by itself, over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OffloadLine {
    /// The value of the setting `offload`: `auto` or `off`.
    pub setting: String,
    /// Flows that are installed now.
    pub flows: u64,
    /// The most flows.
    pub capacity: u64,
    /// Flows that were installed since the counters were cleared.
    pub installed: u64,
    /// Flows whose places were given to others since then: they had been idle.
    pub evicted: u64,
    /// What the host forwarded or dropped since then.
    pub hits: TrafficLine,
    /// Packets that came to the workers since then by ports that have the offload.
    pub misses: u64,
}

/// The flow offload of a port: one of the two is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortOffloadLine {
    /// The port's name in rules.
    pub port: String,
    /// Where its device has the programs: `tcx`, `clsact` or `xdp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    /// Why its device has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How often a flow was to be installed since the counters were cleared, and stayed with the workers for a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeptFlowsLine {
    /// The reason's name.
    pub reason: String,
    /// The count.
    pub count: u64,
    /// What the reason means.
    #[serde(default)]
    pub meaning: String,
}

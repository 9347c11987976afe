//! The lines with the counters of ports, reasons and packet threads.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrafficLine {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortLine {
    /// Its name in rules.
    pub name: String,
    /// The device behind it.
    pub device: String,
    /// The driver of the device.
    pub driver: String,
    /// Its Ethernet address.
    pub mac: String,
    /// The largest IP packet that may leave by it, in bytes.
    pub mtu: u32,
    /// `up` or `down`.
    pub link: LinkLine,
    /// The port at the other end of its wire.
    pub peer: Option<String>,
    /// The rules apply to its packets.
    pub enabled: bool,
    /// Received.
    pub rx: TrafficLine,
    /// Sent.
    pub tx: TrafficLine,
    /// Packets that were lost because the receive queue was full.
    pub rx_missed: u64,
    /// Packets that arrived damaged.
    pub rx_errors: u64,
    /// Packets that the device failed to send.
    pub tx_errors: u64,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LinkLine {
    /// The link transmits packets.
    Up,
    /// The link transmits no packets.
    Down,
    /// The device does not exist any more.
    Gone,
}

/// A reason, or the kind of a made packet, and its count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReasonLine {
    /// The reason's name.
    pub reason: String,
    /// The count.
    pub count: u64,
}

/// The packets that the device of a port lost. They are not among the dropped packets: those that it lost on receive are not counted as
/// received, and those that it failed to send are counted as sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortLossLine {
    /// The port's name in rules.
    pub port: String,
    /// Packets that were lost because the receive queue was full, or no packet buffer was free.
    pub rx_missed: u64,
    /// Packets that arrived damaged.
    pub rx_errors: u64,
    /// Packets that the device failed to send.
    pub tx_errors: u64,
}

/// A packet thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WorkerLine {
    /// Its number.
    pub worker: u16,
    /// The core that it is pinned to.
    pub core: Option<u32>,
    /// The counters of its stages.
    pub stages: Vec<StageLine>,
    /// The counters of its flow cache.
    #[serde(default)]
    pub flow_cache: FlowCacheLine,
}

/// The packets of the stage `classify` by what the flow cache did for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FlowCacheLine {
    /// Packets whose rules it knew.
    pub hits: u64,
    /// Packets whose rules it did not know.
    pub misses: u64,
    /// Packets that passed it by, by reason, those above zero.
    pub bypassed: BTreeMap<String, u64>,
}

/// The counters of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StageLine {
    /// Its name.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// The number of calls with at least one packet.
    pub vectors: u64,
    /// Packets that it processed.
    pub packets: u64,
    /// The average number of packets in a vector.
    pub packets_per_vector: f64,
    /// The average number of cycles for a packet.
    pub cycles_per_packet: f64,
}

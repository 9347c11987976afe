//! The lines of connections and of their streams.

use super::counters::TrafficLine;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// A connection at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConnectionLine {
    /// Its protocol, by name if it has one.
    pub proto: String,
    /// Its state, `established` for instance.
    pub state: String,
    /// The tuple of the initiator's packets as they arrive.
    pub arrived: EndsLine,
    /// The tuple of the same packets as they leave.
    pub sent: EndsLine,
    /// Milliseconds since its creation.
    pub age_ms: u64,
    /// Milliseconds since its last packet.
    pub idle_ms: u64,
    /// Milliseconds until it times out without a packet.
    pub expires_ms: u64,
    /// Traffic of the initiator.
    pub forward: TrafficLine,
    /// Traffic of the responder.
    pub reply: TrafficLine,
    /// The stateful rules that it has.
    pub rules: Vec<u32>,
    /// The outermost two VLAN identifiers of its packets, outermost first; empty without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<u16>,
    /// The key, for GRE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
    /// The type of the request, for ICMP queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// Its stream, if rules follow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamLine>,
    /// Its location, if that was requested.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub place: Option<ConnectionPlace>,
}

/// The stream of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StreamLine {
    /// Why all packets are dropped now: the name of the drop reason. Its directions are no longer known then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The bytes of the initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<StreamSideLine>,
    /// The bytes of the responder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<StreamSideLine>,
}

/// One direction of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StreamSideLine {
    /// `none`, `watch`, `guard` or `edit`.
    pub level: String,
    /// Bytes in order, each counted once: the useful ones.
    pub bytes: u64,
    /// Bytes that were sent again.
    pub repeated: u64,
    /// Segments that came before the bytes in front of them.
    pub early: u32,
    /// Holes that were never filled.
    pub gaps: u32,
    /// Bytes of these holes, which were not searched.
    pub gap_bytes: u64,
    /// Bytes that were sent again with another value, and got the first one back.
    pub overwritten: u64,
    /// Bytes that are kept until the receiver acknowledges them.
    pub kept: u64,
    /// Bytes behind a hole that are kept.
    pub waiting: u64,
    /// Edits, of level `edit` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<StreamEditsLine>,
}

/// The edits of one direction of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StreamEditsLine {
    /// Places that were edited.
    pub edits: u64,
    /// How many bytes more than the sender sent the receiver gets; below 0 for fewer.
    pub delta: i64,
    /// Bytes that are held back since they may be the beginning of a match, or of a message's head.
    pub held: u64,
    /// Edited bytes that wait until the receiver's window has room for them.
    pub unsent: u64,
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StreamEventLine {
    /// When: RFC 3339, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// `alert`, `close`, `drop`, `http-unfit-closed`, `http-unfit-passed` or `digest`.
    pub what: String,
    /// The rule; none for messages that are not read as HTTP/1.x.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    /// Why a message is not read: a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The text of its `alert`, or the meaning of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The protocol, by name if it has one.
    pub proto: String,
    /// The tuple of the initiator's packets as they arrive.
    pub arrived: EndsLine,
    /// Whose bytes matched: `forward` for those of the initiator, `reply` for those of the responder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Bytes of this direction up to the end of the match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// `digest`: the bytes of the initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<DigestLine>,
    /// `digest`: the bytes of the responder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<DigestLine>,
}

/// The bytes of one direction of a connection that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DigestLine {
    /// Bytes in order, each counted once.
    pub bytes: u64,
    /// Their CRC-32C, in hexadecimal.
    pub crc32c: String,
}

/// The location of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConnectionPlace {
    /// The worker that owns it.
    pub worker: u16,
    /// Its id at the worker, while it exists.
    pub id: u32,
    /// Its wire: the smaller number of its two ports.
    pub wire: u16,
}

/// Addresses and ports of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EndsLine {
    /// Source address.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub src: IpAddr,
    /// Source port, or the identifier of an ICMP query; 0 for protocols without.
    pub sport: u16,
    /// Destination address.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub dst: IpAddr,
    /// Destination port, or the identifier of an ICMP query; 0 for protocols without.
    pub dport: u16,
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EventLine {
    /// When: RFC 3339, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The kind of the event.
    pub what: EventKind,
    /// The reason for the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The connection at the time of the event.
    pub connection: ConnectionLine,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The connection was created.
    Created,
    /// The connection ended.
    Closed,
}

/// A number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CountLine {
    /// The number.
    pub connections: u64,
}

/// The number of connections that were restored from a state, and of those that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LoadedLine {
    /// Connections that were restored.
    pub connections: u64,
    /// Those of them that have lost a rule.
    #[serde(default)]
    pub lost_rules: u64,
    /// Connections that were left out, by reason.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub left_out: Map<String, Value>,
}

/// A connection of a state that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LeftOutLine {
    /// The reason.
    pub reason: String,
    /// The connection as it would have been restored; its rules have the ids of the state.
    pub connection: ConnectionLine,
}

/// The totals of all connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SummaryLine {
    /// Connections that exist.
    pub connections: u64,
    /// Connections without an answer of the responder.
    pub half_open: u64,
    /// The limit of connections.
    pub max: u64,
    /// Connections created since the start.
    pub created: u64,
    /// Connections ended since the start, by reason.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub closed: Map<String, Value>,
    /// First packets and fragments that were dropped, by reason.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub refused: Map<String, Value>,
    /// Invalid packets, by kind.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub invalid: Map<String, Value>,
    /// Events that were lost because a client read too slowly.
    pub events_lost: u64,
    /// Packets that arrived at another worker than their connection's owner.
    #[serde(default)]
    pub handed: u64,
    /// Fragments that wait for the first fragment of their datagram.
    #[serde(default)]
    pub held: u64,
}

/// The streams of all connections in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StreamSummaryLine {
    /// Streams that are followed, by the higher of the levels of their directions.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub levels: Map<String, Value>,
    /// The same by the state of their connections.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub states: Map<String, Value>,
    /// Connections whose packets are all dropped, by the drop reason.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub ended: Map<String, Value>,
    /// Connections that pass although they have rules on streams, since they cannot be followed.
    pub unfit: u64,
    /// Bytes that are kept until the receivers acknowledge them.
    pub kept: u64,
    /// Bytes behind a hole that are kept.
    pub waiting: u64,
    /// Bytes that are held back since they may be the beginning of a match, or of a message's head.
    pub held: u64,
    /// Edited bytes that wait until the receivers have room for them.
    pub unsent: u64,
    /// The connections that helpers expect.
    #[serde(default)]
    pub expected: ExpectedLine,
    /// What each worker with connections has of the limits, which are equal parts of the settings.
    pub workers: Vec<StreamUsageLine>,
    /// The limits that are reached, and what becomes of new connections.
    pub warnings: Vec<String>,
}

/// What became of the connections that helpers expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExpectedLine {
    /// Expected now.
    pub now: u64,
    /// Ever expected.
    pub made: u64,
    /// Of these, those that began.
    pub used: u64,
    /// Of these, those that did not begin in time.
    pub expired: u64,
}

/// What a worker's streams use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StreamUsageLine {
    /// The worker.
    pub worker: u16,
    /// Streams.
    pub streams: u64,
    /// Their limit.
    pub max: u64,
    /// Bytes for what is kept, in chunks of 2 KiB.
    pub memory: u64,
    /// Their limit.
    pub memory_max: u64,
}

//! The lines of packets: what `trace` and `capture` see, and what became of it.

use super::connections::EndsLine;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What is looked at, before the first packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TapLine {
    /// The names of the ports, in their order.
    pub ports: Vec<String>,
    /// The most bytes of a packet that are sent.
    pub snaplen: u32,
    /// The answer ends after so many packets.
    pub count: u32,
    /// It ends after so many seconds.
    pub seconds: u64,
}

/// One end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EndLine {
    /// Its address.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub address: IpAddr,
    /// Its port, of TCP and UDP.
    pub port: Option<u16>,
}

/// The headers of a packet, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeadersLine {
    /// Its bytes.
    pub bytes: u64,
    /// `ip4`, `ip6`, or `other` for frames that are not IP or cannot be parsed.
    pub class: String,
    /// `TCP`, `UDP`, `ICMP`, `ICMPv6`, `IP` for other protocols, or `no IP`.
    pub proto: String,
    /// Where it comes from.
    pub source: Option<EndLine>,
    /// Where it goes to.
    pub destination: Option<EndLine>,
    /// Why it cannot be parsed: the name of the drop reason.
    pub malformed: Option<String>,
}

/// A rule that applied to a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TracedRuleLine {
    /// Its id.
    pub id: u32,
    /// The command that adds it, without its id; none of a capture, or if the rule is gone by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Its `accept` or `drop` decides.
    pub decides: bool,
}

/// The connection of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TracedConnectionLine {
    /// Its number at its worker.
    pub id: u32,
    /// The packet made it.
    pub new: bool,
    /// The packet goes to the initiator.
    pub reply: bool,
    /// Its state behind the packet.
    pub state: String,
    /// Its protocol, by name if it has one.
    pub proto: String,
    /// The initiator's packets as they arrive.
    pub arrived: EndsLine,
    /// The same packets as they leave.
    pub sent: EndsLine,
}

/// What became of a packet, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OutcomeLine {
    /// The worker that decided.
    pub worker: u16,
    /// `wire`: it came in by the port. Otherwise `worker`: another worker handed it over; `held`: it was held; `made`: mmb made it.
    pub origin: String,
    /// The rules that applied, in the order of priority and id: the first 16 of them.
    pub rules: Vec<TracedRuleLine>,
    /// How many more applied.
    pub more_rules: u32,
    /// The rule whose `accept` or `drop` decides.
    pub decisive: Option<u32>,
    /// Its connection.
    pub connection: Option<TracedConnectionLine>,
    /// Rules follow the bytes of its connection, and it came to them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// `passes`, `dropped`, `held`, `absorbed` or `handed`.
    pub verdict: String,
    /// The drop reason.
    pub reason: Option<String>,
    /// What it means; none of a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// The port by which it leaves.
    pub out: Option<String>,
    /// The worker that it is handed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_worker: Option<u16>,
}

/// A field that was rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EditedFieldLine {
    /// Its name in rules; `tcp-opt` for TCP options, `payload` for the bytes behind the headers.
    pub field: String,
    /// Its value as the packet was received, in the words of rules.
    pub before: String,
    /// Its value now.
    pub after: String,
}

/// A packet that `trace` saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TracedLine {
    /// Nanoseconds since 1970; none of a packet that was never on a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<u64>,
    /// The port that it came in by.
    pub port: String,
    /// Its headers as it was received.
    pub packet: HeadersLine,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: OutcomeLine,
    /// Its headers as it leaves, if its bytes are others.
    pub rewritten: Option<HeadersLine>,
    /// The fields that are others, but for checksums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<EditedFieldLine>,
}

/// A packet that `capture` saw at one point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CapturedLine {
    /// `rx`, `tx` or `drop`.
    pub at: String,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The port: by which it leaves at `tx`, otherwise by which it came in.
    pub port: String,
    /// The port by which it came in.
    #[serde(rename = "in")]
    pub ingress: String,
    /// Its link header: `ethernet`, `raw-ip`, `sll` or `sll2`.
    pub link: String,
    /// Its bytes at this point.
    pub len: u64,
    /// The first of them, in hexadecimal.
    pub bytes: String,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: OutcomeLine,
}

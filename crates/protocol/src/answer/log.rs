//! The lines of packets that rules with `log` tell of, and of the sinks of the log.

use super::connections::EndsLine;
use serde::{Deserialize, Serialize};

/// A packet that a rule tells of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogLine {
    /// When: RFC 3339, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// `log`.
    pub what: String,
    /// The rule.
    pub rule: u32,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The text of its `log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The name of the port by which the packet came in.
    #[serde(rename = "in")]
    pub ingress: String,
    /// `pass` or `drop`.
    pub verdict: String,
    /// The name of the port by which it is to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// The drop reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its bytes, the link header included.
    pub len: u32,
    /// The identifiers of its outermost two VLAN tags, outermost first; empty without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<u16>,
    /// Its ether type, by name if it has one; none of IP packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eth_type: Option<String>,
    /// Its IP protocol, by name if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proto: Option<String>,
    /// Its addresses and ports, as it arrived; the ports are 0 without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<EndsLine>,
    /// It is a fragment behind the first one, without a transport header.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fragment: bool,
    /// The flags of TCP that are set: `syn,ack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_flags: Option<String>,
    /// The type of ICMP or ICMPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// The code of ICMP or ICMPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
}

/// Packets that a rule did not tell of, since `log rate` was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SuppressedLine {
    /// When: RFC 3339, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// `suppressed`.
    pub what: String,
    /// The rule.
    pub rule: u32,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The text of its `log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Their number since the last such line.
    pub packets: u64,
}

/// A sink of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogSinkLine {
    /// The `--log` that it is of.
    pub log: String,
    /// Events that were written.
    pub written: u64,
    /// Events that wait.
    pub queued: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Attempts that failed.
    pub errors: u64,
    /// Why the last attempt failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

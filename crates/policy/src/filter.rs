//! Filters of connections, as `show connections` and `conn kill` take them, the names of connections' states, and filters of packets, as `trace` and
//! `capture` take them.

use crate::rule::{Match, RuleId};
use std::net::IpAddr;

/// Selects the connections that satisfy every condition. Source and destination are those of the packets of
/// the initiator, before or after translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFilter {
    /// The IP version, 4 or 6.
    pub family: Option<u8>,
    /// The protocol's number.
    pub proto: Option<u8>,
    /// The source address is one of these: first and last.
    pub src: Option<(IpAddr, IpAddr)>,
    /// The destination address is.
    pub dst: Option<(IpAddr, IpAddr)>,
    /// The source port is one of these: first and last.
    pub sport: Option<(u16, u16)>,
    /// The destination port is.
    pub dport: Option<(u16, u16)>,
    /// The state, by one of the names of [`STATES`].
    pub state: Option<&'static str>,
    /// A rule of the connection.
    pub rule: Option<RuleId>,
}

/// States of connections: name and meaning.
pub static STATES: &[(&str, &str)] = &[
    ("syn-sent", "TCP and, by its own chunks, SCTP: a SYN was sent, no answer was seen"),
    ("syn-received", "TCP: both SYNs were seen, not both are acknowledged"),
    ("established", "TCP: open in both directions"),
    ("fin-wait", "TCP: one end sent its FIN"),
    ("closing", "TCP: both ends sent a FIN, not both are acknowledged"),
    ("time-wait", "TCP: both FINs are acknowledged, late packets may arrive"),
    ("reset", "TCP: ended by a RST"),
    ("unreplied", "packets in one direction only; of TCP and SCTP, a connection that was picked up"),
    ("replied", "neither TCP nor SCTP: packets in both directions"),
];

impl ConnectionFilter {
    /// Every connection.
    pub const ALL: ConnectionFilter = ConnectionFilter {
        family: None,
        proto: None,
        src: None,
        dst: None,
        sport: None,
        dport: None,
        state: None,
        rule: None,
    };
}

/// Selects packets, as they were received: those that satisfy every constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketFilter {
    /// The constraints; none is about connections or their bytes.
    pub matches: Vec<Match>,
    /// `all`: every IP packet. Without constraints and without it: every frame.
    pub all: bool,
}

impl PacketFilter {
    /// Whether it selects every frame, also such as cannot be parsed.
    pub fn is_empty(&self) -> bool {
        self.matches.is_empty() && !self.all
    }
}

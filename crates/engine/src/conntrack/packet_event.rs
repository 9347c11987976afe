//! What rules with `log` tell: packets as they arrived, and how many of them the limit suppressed.

use super::info::Endpoints;
use super::key::{Ingress, addresses, ports};
use crate::compiled::LogRule;
use crate::verdict::Verdict;
use mmb_packet::flow::flow_ports;
use mmb_packet::proto::{GRE, ICMP, ICMP6, TCP, UDP};
use mmb_packet::{Layout, Packet, PortId};
use mmb_policy::RuleId;
use std::sync::Arc;

/// A packet that a rule tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketEvent {
    /// When, by the clock of the worker.
    pub at_ns: u64,
    /// The rule.
    pub rule: RuleId,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Its text.
    pub text: Option<Arc<str>>,
    /// The worker that saw the packet.
    pub worker: u16,
    /// The port by which it came in.
    pub port: PortId,
    /// Its bytes, the link header included.
    pub len: u32,
    /// The identifiers of its outermost two VLAN tags, 0 for none.
    pub vlans: [u16; 2],
    /// Its ether type.
    pub eth_type: u16,
    /// Its IP header; none of other frames.
    pub ip: Option<IpHeaderInfo>,
    /// The verdict of rules and connections. A later stage may still drop a packet that passes.
    pub verdict: Verdict,
}

/// What an event tells of the IP and transport headers of a packet, as they arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeaderInfo {
    /// The IP protocol.
    pub proto: u8,
    /// Addresses and ports; the ports are 0 without.
    pub ends: Endpoints,
    /// It is a fragment behind the first one: it has no transport header.
    pub is_later_fragment: bool,
    /// The flags of TCP, from CWR to FIN.
    pub tcp_flags: Option<u8>,
    /// Type and code of ICMP and ICMPv6.
    pub icmp: Option<[u8; 2]>,
}

/// Packets that a rule did not tell of, since the limit was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuppressedEvent {
    /// When, by the clock of the worker.
    pub at_ns: u64,
    /// The rule.
    pub rule: RuleId,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Its text.
    pub text: Option<Arc<str>>,
    /// The worker that saw them.
    pub worker: u16,
    /// Their number since the last such event of the rule and worker.
    pub packets: u64,
}

/// The rules of which a worker has suppressed packets.
#[derive(Debug, Default)]
pub(crate) struct SuppressedRules {
    /// With room for all rules that tell of packets.
    pub(super) rules: Vec<Arc<LogRule>>,
    /// When their numbers are told.
    pub(super) due_ms: u64,
}

impl SuppressedRules {
    /// Reserves memory for so many rules of a new policy.
    pub(super) fn configure(&mut self, rules: usize) {
        self.rules.reserve(rules);
    }
}

impl IpHeaderInfo {
    pub(super) fn of(packet: &Packet<'_>, layout: &Layout) -> Option<IpHeaderInfo> {
        let bytes = packet.bytes();
        let tuple = addresses(bytes, layout, Ingress::ANYWHERE)?;
        let header = bytes.get(usize::from(layout.l4)..).filter(|_| !layout.is_later_fragment());
        let header = header.unwrap_or_default();
        let ports = match layout.l4_kind {
            TCP | UDP => ports(bytes, layout),
            // The key of GRE is no port.
            _ if layout.proto == GRE => None,
            _ => flow_ports(layout.proto, header),
        };
        let [sport, dport] = ports.unwrap_or_default();
        let icmp = matches!(layout.l4_kind, ICMP | ICMP6);
        Some(IpHeaderInfo {
            proto: layout.proto,
            ends: Endpoints { sport, dport, ..Endpoints::of(&tuple) },
            is_later_fragment: layout.is_later_fragment(),
            tcp_flags: header.get(13).copied().filter(|_| layout.l4_kind == TCP),
            icmp: header.first_chunk().copied().filter(|_| icmp),
        })
    }
}

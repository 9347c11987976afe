//! Events of rules with `log`: packets as they arrived, and how many packets the limit suppressed.

use super::info::Endpoints;
use super::key::{Ingress, addresses, ports};
use crate::compiled::LogRule;
use crate::verdict::Verdict;
use mmb_packet::flow::flow_ports;
use mmb_packet::proto::{GRE, ICMP, ICMP6, TCP, UDP};
use mmb_packet::{Layout, Packet, PortId};
use mmb_policy::RuleId;
use std::sync::Arc;

/// A packet that a rule logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketEvent {
    /// The time of the worker's clock.
    pub at_ns: u64,
    /// The rule.
    pub rule: RuleId,
    /// The name of the rule.
    pub name: Option<Arc<str>>,
    /// The text of the rule.
    pub text: Option<Arc<str>>,
    /// The worker that saw the packet.
    pub worker: u16,
    /// The ingress port.
    pub port: PortId,
    /// The length of the packet in bytes, with the link header.
    pub len: u32,
    /// The identifiers of the outermost two VLAN tags, 0 if absent.
    pub vlans: [u16; 2],
    /// The ether type.
    pub eth_type: u16,
    /// The IP header; `None` for frames that are not IP.
    pub ip: Option<IpHeaderInfo>,
    /// The verdict of rules and connections. A later stage may still drop the packet.
    pub verdict: Verdict,
}

/// The IP and transport header fields of a packet as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeaderInfo {
    /// The IP protocol.
    pub proto: u8,
    /// Addresses and ports; the ports are 0 if there are none.
    pub ends: Endpoints,
    /// The packet is a fragment other than the first one: it has no transport header.
    pub is_later_fragment: bool,
    /// The TCP flags, from CWR to FIN.
    pub tcp_flags: Option<u8>,
    /// The type and code of ICMP or ICMPv6.
    pub icmp: Option<[u8; 2]>,
}

/// The number of packets that a rule did not log because the limit was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuppressedEvent {
    /// The time of the worker's clock.
    pub at_ns: u64,
    /// The rule.
    pub rule: RuleId,
    /// The name of the rule.
    pub name: Option<Arc<str>>,
    /// The text of the rule.
    pub text: Option<Arc<str>>,
    /// The worker that suppressed them.
    pub worker: u16,
    /// The number of packets since the last such event of this rule and worker.
    pub packets: u64,
}

/// The rules for which a worker has suppressed packets since the last report.
#[derive(Debug, Default)]
pub(crate) struct SuppressedRules {
    /// Has capacity for all rules with `log`.
    pub(super) rules: Vec<Arc<LogRule>>,
    /// When the numbers of suppressed packets are sent.
    pub(super) due_ms: u64,
}

impl SuppressedRules {
    /// Reserves memory for the rules with `log` of a new policy.
    pub(super) fn configure(&mut self, rules: usize) {
        self.rules.reserve(rules);
    }
}

impl IpHeaderInfo {
    pub(super) fn from_packet(packet: &Packet<'_>, layout: &Layout) -> Option<IpHeaderInfo> {
        let bytes = packet.bytes();
        let tuple = addresses(bytes, layout, Ingress::ANYWHERE)?;
        let header = bytes.get(usize::from(layout.l4)..).filter(|_| !layout.is_later_fragment());
        let header = header.unwrap_or_default();
        let ports = match layout.l4_kind {
            TCP | UDP => ports(bytes, layout),
            // The key of GRE is not a port.
            _ if layout.proto == GRE => None,
            _ => flow_ports(layout.proto, header),
        };
        let [sport, dport] = ports.unwrap_or_default();
        let icmp = matches!(layout.l4_kind, ICMP | ICMP6);
        Some(IpHeaderInfo {
            proto: layout.proto,
            ends: Endpoints { sport, dport, ..Endpoints::from_tuple(&tuple) },
            is_later_fragment: layout.is_later_fragment(),
            tcp_flags: header.get(13).copied().filter(|_| layout.l4_kind == TCP),
            icmp: header.first_chunk().copied().filter(|_| icmp),
        })
    }
}

//! Flow offload: after the engine has decided on a flow, the host forwards its packets without a worker.
//!
//! A host may forward packets before a worker sees them: in the kernel, or in a network card. Such a host
//! implements [`FlowOffload`]: a table of [`OffloadedFlow`]s. Each flow says what to do with the packets that
//! have its [`FlowKey`]. A worker installs a flow when its verdict is settled, and owns it: the worker reads
//! the host's counters, ends the flow, and reuses its place.
//!
//! The host never applies an outdated decision. Each flow has the epoch of the policy that decided on it, and
//! the host uses only flows of the epoch that [`OffloadEpoch`] set last. The engine sets the epoch of a
//! policy before it publishes the policy.
//!
//! The host forwards a packet of a flow only under these conditions. All other packets go to a worker.
//!
//! - The packet is not a fragment, and has no IP options or extension headers.
//! - The packet is no longer than [`OffloadedFlow::max_len`].
//! - A TCP segment has no SYN, FIN or RST, and is within the windows of both ends.

use crate::counters::Count;
pub use mmb_conn::EndNumbers;
use mmb_packet::PortId;

/// What identifies the packets of a flow. Numbers are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The port on which packets arrive.
    pub port: PortId,
    /// The identifier of the VLAN tag; `None`: packets have no tag.
    pub vlan: Option<u16>,
    /// 4 or 6.
    pub family: u8,
    /// TCP, UDP, or ICMP of the family.
    pub proto: u8,
    /// Source and destination address. An IPv4 address is in the lower 32 bits.
    pub addresses: [u128; 2],
    /// Source and destination port. Of an ICMP query or reply: first its type and code, then its identifier.
    pub ports: [u16; 2],
}

/// Bits of the traffic class: DSCP and ECN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass {
    /// The bits that are written.
    pub mask: u8,
    /// Their value.
    pub value: u8,
}

/// What the host writes to each packet of a flow. The host also updates the checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowWrites {
    /// Source and destination address, if one of them changes.
    pub addresses: Option<[u128; 2]>,
    /// Source and destination port, if one of them changes.
    pub ports: Option<[u16; 2]>,
    /// TTL or hop limit.
    pub ttl: Option<u8>,
    /// DSCP and ECN.
    pub traffic_class: TrafficClass,
    /// The flow label of IPv6.
    pub label: Option<u32>,
}

/// A flow, and what the host does with its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadedFlow {
    /// What identifies its packets.
    pub key: FlowKey,
    /// The epoch of its policy; not 0.
    pub epoch: u32,
    /// The port on which packets leave; `None`: packets are dropped.
    pub egress: Option<PortId>,
    /// The longest IP packet that may leave, in bytes.
    pub max_len: u32,
    /// What the host writes to each packet.
    pub writes: FlowWrites,
    /// For TCP: the sender's sequence numbers and window, and the place of the flow of the other direction,
    /// whose numbers bound these.
    pub tcp: Option<(EndNumbers, u32)>,
}

/// What a host has counted for a flow since the flow was installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowUsage {
    /// Packets and bytes. The segments of a merged frame are counted one by one.
    pub count: Count,
    /// The time since the last packet, in milliseconds.
    pub idle_ms: u64,
    /// For TCP: the sender's sequence numbers and window.
    pub numbers: EndNumbers,
}

/// One worker's part of a host's table of flows. The worker assigns places to flows, from 0 to
/// [`FlowOffload::capacity`], exclusive.
pub trait FlowOffload: Send {
    /// The number of places.
    fn capacity(&self) -> u32;

    /// Whether the host can forward packets from the port `ingress` to the port `egress`; `None`: whether it
    /// can drop them.
    fn can_forward(&self, ingress: PortId, egress: Option<PortId>) -> bool;

    /// Puts a flow in a place, which may have had another flow before. Its counters start at zero. No packet
    /// uses the flow before [`FlowOffload::enable`]. Returns false if the host cannot install it.
    fn install(&mut self, place: u32, flow: &OffloadedFlow) -> bool;

    /// Lets packets use the flow that was installed in a place.
    fn enable(&mut self, place: u32);

    /// Ends the flow in a place, if any: no further packet uses it. [`FlowOffload::usage`] may still
    /// grow for some milliseconds, by packets that are being forwarded. If another place already has a flow
    /// with the same key, that flow stays.
    fn end(&mut self, place: u32);

    /// The counters of the flow that was last installed in a place, also after its end. Zero for a place that
    /// never had a flow.
    fn usage(&self, place: u32) -> FlowUsage;

    /// Updates the sequence numbers and window of the flow in a place, from packets that a worker saw.
    fn update_numbers(&mut self, place: u32, numbers: EndNumbers);
}

/// Sets the epoch of the policy in force, for all flows of a host.
pub trait OffloadEpoch: Send {
    /// After this call returns, no arriving packet uses a flow of another epoch.
    fn set_epoch(&self, epoch: u32);
}

/// Why a flow stays with the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotOffloadedReason {
    /// The device of one of its ports has no flow offload, or does not accept what the other device's driver
    /// forwards.
    Device,
    /// The flow is neither TCP nor UDP nor an ICMP echo, or its packets have more than one VLAN tag.
    Protocol,
    /// A rule that may match the flow looks at more than addresses, ports and protocol, or decides by chance
    /// or by a rate.
    PerPacket,
    /// A rule does more to its packets than write constants to header fields.
    Rewrite,
    /// Its connection changes numbers that differ from packet to packet, such as sequence numbers.
    Numbers,
    /// Rules follow the bytes of its connection.
    Stream,
    /// Its connection is unreplied: it has no reply yet, or it was picked up midway and both ends are not
    /// confirmed yet.
    OneWay,
    /// The flow has no connection, while there are connections, stateful rules or rules on `ct`.
    Untracked,
    /// A trace or a capture selects its packets.
    Tapped,
    /// The table is full.
    Full,
}

impl NotOffloadedReason {
    /// Every reason, in the order in which counters are shown.
    pub const ALL: [NotOffloadedReason; 10] = [
        NotOffloadedReason::Device,
        NotOffloadedReason::Protocol,
        NotOffloadedReason::PerPacket,
        NotOffloadedReason::Rewrite,
        NotOffloadedReason::Numbers,
        NotOffloadedReason::Stream,
        NotOffloadedReason::OneWay,
        NotOffloadedReason::Untracked,
        NotOffloadedReason::Tapped,
        NotOffloadedReason::Full,
    ];

    /// The reason's name in counters. Names are stable.
    pub const fn name(self) -> &'static str {
        match self {
            NotOffloadedReason::Device => "device",
            NotOffloadedReason::Protocol => "protocol",
            NotOffloadedReason::PerPacket => "per-packet-rule",
            NotOffloadedReason::Rewrite => "rewrite",
            NotOffloadedReason::Numbers => "numbers",
            NotOffloadedReason::Stream => "stream",
            NotOffloadedReason::OneWay => "one-way",
            NotOffloadedReason::Untracked => "untracked",
            NotOffloadedReason::Tapped => "tapped",
            NotOffloadedReason::Full => "full",
        }
    }

    /// The meaning of the reason, in one line.
    pub const fn meaning(self) -> &'static str {
        match self {
            NotOffloadedReason::Device => {
                "the device of one of its ports has no flow offload, or does not take what the other's driver forwards"
            }
            NotOffloadedReason::Protocol => {
                "neither TCP nor UDP nor an ICMP echo, or packets with more than one VLAN tag"
            }
            NotOffloadedReason::PerPacket => {
                "a rule that may match it looks at more than addresses, ports and protocol, or decides by chance or by a rate"
            }
            NotOffloadedReason::Rewrite => "a rule rewrites more than header fields to constants",
            NotOffloadedReason::Numbers => "its connection changes numbers that differ from packet to packet",
            NotOffloadedReason::Stream => "rules follow the bytes of its connection",
            NotOffloadedReason::OneWay => {
                "its connection is not answered yet, or was picked up and is not understood yet"
            }
            NotOffloadedReason::Untracked => {
                "it is of no connection, while there are connections, stateful rules or rules on `ct`"
            }
            NotOffloadedReason::Tapped => "a trace or a capture looks at its packets",
            NotOffloadedReason::Full => "the table of flows is full",
        }
    }
}

/// The state of a host's flow offload, over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadSummary {
    /// Flows that are installed now.
    pub flows: u64,
    /// The maximum number of flows.
    pub capacity: u64,
    /// Flows that were installed since the counters were cleared.
    pub installed: u64,
    /// Idle flows that were ended since then because other flows needed their places.
    pub evicted: u64,
    /// Packets that the host forwarded or dropped since then.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that workers received on ports since then, while flow offload was on.
    pub missed: u64,
    /// How often a flow could not be installed since then, by reason, without zero counts.
    pub not_offloaded: Vec<(NotOffloadedReason, u64)>,
}

//! Flow offload: what a host forwards by itself once the engine has decided.
//!
//! A host may forward packets before a worker sees them: in the kernel, or in a network card. It implements [`FlowOffload`]: a table of
//! [`OffloadedFlow`]s, each with what becomes of the packets with one [`FlowKey`]. A worker installs a flow when its verdict is settled, and
//! owns it: it reads what the host has counted for it, ends it, and uses its place again.
//!
//! Never a stale decision: each flow has the epoch of the policy by which it was decided, and the host uses only flows of the epoch that
//! [`OffloadEpoch`] has set last. A policy is published after its epoch was set.
//!
//! The host forwards packets of a flow that are complete (no fragments), without IP options or extension headers, of TCP without SYN, FIN or RST
//! and within the windows of both ends, and no longer than [`OffloadedFlow::longest`]. All others go to a worker, as before.

use crate::counters::Count;
pub use mmb_conn::EndNumbers;
use mmb_packet::PortId;

/// What identifies the packets of a flow. Numbers are as people write them, not as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The port by which they come in.
    pub port: PortId,
    /// The identifier of their VLAN tag, if they have one.
    pub vlan: Option<u16>,
    /// 4 or 6.
    pub family: u8,
    /// TCP, UDP, or ICMP of the family.
    pub proto: u8,
    /// Source and destination; of IPv4 the lower 32 bits.
    pub addresses: [u128; 2],
    /// Source and destination. Of an ICMP query or answer: its type and code, and its identifier.
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

/// What is written in each packet of a flow. Checksums follow.
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

/// A flow, and what becomes of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadedFlow {
    /// Its packets.
    pub key: FlowKey,
    /// The epoch of its policy; not 0.
    pub epoch: u32,
    /// The port by which they leave; `None`: they are dropped.
    pub to: Option<PortId>,
    /// The longest IP packet that may leave, in bytes.
    pub longest: u32,
    /// What is written.
    pub writes: FlowWrites,
    /// Of TCP: the numbers of the sender, and the place of the flow of the other direction, whose numbers bound these.
    pub tcp: Option<(EndNumbers, u32)>,
}

/// What a host has done with the packets of a flow since it was installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowUsage {
    /// Its packets; those that a frame stands for are counted one by one.
    pub count: Count,
    /// How long ago the last one passed, in milliseconds.
    pub idle_ms: u64,
    /// Of TCP: the numbers of the sender.
    pub numbers: EndNumbers,
}

/// A worker's part of a host's table of flows. Flows have places from 0 to [`FlowOffload::capacity`], which the worker assigns.
pub trait FlowOffload: Send {
    /// The number of places.
    fn capacity(&self) -> u32;

    /// Whether packets that come in by a port may be forwarded, and leave by another.
    fn joins(&self, from: PortId, to: Option<PortId>) -> bool;

    /// Puts a flow in a place, in which another one may have been. Its counts begin at zero, and no packet takes it until it is enabled. Returns
    /// false if it cannot.
    fn install(&mut self, place: u32, flow: &OffloadedFlow) -> bool;

    /// Has packets take the flow that was installed in a place from now on.
    fn enable(&mut self, place: u32);

    /// Ends the flow in a place, if there is one: no packet takes it from now on. [`FlowOffload::usage`] may grow for some milliseconds by packets
    /// that are on their way. Another place may have a flow with its key by now, which stays.
    fn end(&mut self, place: u32);

    /// What was done with the packets of the flow that was installed in a place last, also after its end; nothing in a place that never had one.
    fn usage(&self, place: u32) -> FlowUsage;

    /// Tells the flow in a place how far its sender has come, by packets that a worker saw.
    fn follow(&mut self, place: u32, numbers: EndNumbers);
}

/// Where the epoch of the policy in force is set, for all flows of a host.
pub trait OffloadEpoch: Send {
    /// From the return of this call on, no packet that arrives takes a flow of another epoch.
    fn set_epoch(&self, epoch: u32);
}

/// Why a flow stays with the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeptReason {
    /// The device of one of its ports has no flow offload, or does not take what the other's driver forwards.
    Device,
    /// It is neither TCP nor UDP nor an ICMP echo, or has more than one VLAN tag.
    Protocol,
    /// A rule that may match it looks at more than addresses, ports and protocol, or decides by chance or by a rate.
    PerPacket,
    /// A rule rewrites more of its packets than header fields to constants.
    Rewrite,
    /// The connection changes numbers that differ from packet to packet.
    Numbers,
    /// Rules follow its bytes.
    Stream,
    /// Its connection is unreplied: not answered yet, or picked up and not understood yet.
    OneWay,
    /// It is of no connection, while there are stateful rules or connections.
    Untracked,
    /// Somebody looks at its packets, by a trace or a capture.
    Tapped,
    /// The table is full.
    Full,
}

impl KeptReason {
    /// Every reason, in the order in which counters are shown.
    pub const ALL: [KeptReason; 10] = [
        KeptReason::Device,
        KeptReason::Protocol,
        KeptReason::PerPacket,
        KeptReason::Rewrite,
        KeptReason::Numbers,
        KeptReason::Stream,
        KeptReason::OneWay,
        KeptReason::Untracked,
        KeptReason::Tapped,
        KeptReason::Full,
    ];

    /// The reason's name in counters: stable.
    pub const fn name(self) -> &'static str {
        match self {
            KeptReason::Device => "device",
            KeptReason::Protocol => "protocol",
            KeptReason::PerPacket => "per-packet-rule",
            KeptReason::Rewrite => "rewrite",
            KeptReason::Numbers => "numbers",
            KeptReason::Stream => "stream",
            KeptReason::OneWay => "one-way",
            KeptReason::Untracked => "untracked",
            KeptReason::Tapped => "tapped",
            KeptReason::Full => "full",
        }
    }

    /// What it means, in a line.
    pub const fn meaning(self) -> &'static str {
        match self {
            KeptReason::Device => {
                "the device of one of its ports has no flow offload, or does not take what the other's driver forwards"
            }
            KeptReason::Protocol => {
                "neither TCP nor UDP nor an ICMP echo, or packets with more than one VLAN tag"
            }
            KeptReason::PerPacket => {
                "a rule that may match it looks at more than addresses, ports and protocol, or decides by chance or by a rate"
            }
            KeptReason::Rewrite => "a rule rewrites more than header fields to constants",
            KeptReason::Numbers => "its connection changes numbers that differ from packet to packet",
            KeptReason::Stream => "rules follow the bytes of its connection",
            KeptReason::OneWay => {
                "its connection is not answered yet, or was picked up and is not understood yet"
            }
            KeptReason::Untracked => {
                "it is of no connection, while there are connections, stateful rules or rules on `ct`"
            }
            KeptReason::Tapped => "a trace or a capture looks at its packets",
            KeptReason::Full => "the table of flows is full",
        }
    }
}

/// The state of a host's flow offload, over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadSummary {
    /// Flows that are installed now.
    pub flows: u64,
    /// The most flows.
    pub capacity: u64,
    /// Flows that were installed since the counters were cleared.
    pub installed: u64,
    /// Flows whose places were given to others since then: they had been idle.
    pub evicted: u64,
    /// Packets that the host forwarded or dropped since then.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that came to workers by ports since then, while flows were offloaded.
    pub missed: u64,
    /// How often a flow was to be installed and was not, by reason, those above zero.
    pub kept: Vec<(KeptReason, u64)>,
}

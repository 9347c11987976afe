//! The structures that the BPF programs share with this process (`bpf/flow.h`).

/// `struct flow_key`: what identifies the packets of a flow. Addresses and ports are as in the packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawKey {
    /// The number of the ingress interface.
    pub ifindex: u32,
    /// The VLAN identifier with [`VLAN_PRESENT`], or 0.
    pub vlan: u16,
    /// 4 or 6.
    pub family: u8,
    /// The protocol.
    pub proto: u8,
    /// Source address; of IPv4 only the first word.
    pub saddr: [u32; 4],
    /// Destination address.
    pub daddr: [u32; 4],
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
}

/// The bit of [`RawKey::vlan`] of packets with a tag.
pub const VLAN_PRESENT: u16 = 0x1000;

/// The place of a flow that there is not.
pub const NO_FLOW: u32 = u32::MAX;

/// The bits of [`RawFlow::flags`].
pub mod flags {
    /// Packets are dropped.
    pub const DROP: u16 = 1;
    /// Both addresses are written.
    pub const ADDRESSES: u16 = 2;
    /// Both ports are written.
    pub const PORTS: u16 = 4;
    /// TTL or hop limit is written.
    pub const TTL: u16 = 8;
    /// Bits of the traffic class are written.
    pub const TRAFFIC_CLASS: u16 = 16;
    /// The flow label is written.
    pub const LABEL: u16 = 32;
    /// TCP windows are checked, by the numbers of both directions.
    pub const WINDOWS: u16 = 64;
}

/// What becomes of the packets of a flow: the first line of `struct flow`, and of the second one what user space writes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawFlow {
    /// The epoch of its policy; not 0.
    pub epoch: u32,
    /// The number of the egress interface.
    pub egress: u32,
    /// See [`flags`].
    pub flags: u16,
    /// The longest IP packet that may leave, in bytes.
    pub longest: u16,
    /// TTL or hop limit.
    pub ttl: u8,
    /// The bits of the traffic class.
    pub traffic_class: u8,
    /// Those that are written.
    pub traffic_mask: u8,
    /// The shift of the sender's windows.
    pub scale: u8,
    /// Source address.
    pub saddr: [u32; 4],
    /// Destination address.
    pub daddr: [u32; 4],
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Nothing.
    pub reserved: [u32; 3],
    /// TCP: the number after the last one that the sender has sent.
    pub end: u32,
    /// TCP: the last number that it acknowledged.
    pub ack: u32,
    /// TCP: its largest window, not scaled.
    pub window: u32,
    /// TCP: the flow of the other direction.
    pub peer: u32,
    /// The flow label.
    pub label: u32,
    /// The queue of the socket that gets its other packets.
    pub queue: u32,
    /// So long at most its packets go to this process because it has earlier ones, in units of 2^20 ns.
    pub overtake_after: u32,
}

/// Words of the first line.
pub(super) const CONFIG_WORDS: usize = 16;

const _: () = assert!(std::mem::offset_of!(RawFlow, end) == 4 * CONFIG_WORDS);
const _: () = assert!(size_of::<RawKey>() == 44 && size_of::<RawFlow>() == 4 * (CONFIG_WORDS + 7));

impl RawKey {
    pub(super) fn bytes(&self) -> &[u8; 44] {
        // SAFETY: plain numbers without padding between or behind them.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }
}

impl RawFlow {
    /// The words of the first line.
    pub(super) fn config(&self) -> [u32; CONFIG_WORDS] {
        // SAFETY: plain numbers without padding between them; the first line is the beginning of the structure.
        unsafe { std::ptr::from_ref(self).cast::<[u32; CONFIG_WORDS]>().read() }
    }
}

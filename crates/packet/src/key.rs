//! The header key: a packet's fields at fixed places.
//!
//! Classification works on keys alone. A key is 64 bytes (one cache line) for IPv4 and for frames that are not
//! IP, 80 bytes for IPv6; the first 40 bytes have the same layout in all of them, so that a rule about
//! transport fields compiles to the same masks for both families. Numbers are big-endian, as on the wire, so
//! that the header parts are plain copies and a prefix is a run of leading mask bits.
//!
//! | bytes | content |
//! | --- | --- |
//! | 0 | family: 4, 6, or 0 for frames that are not IP |
//! | 1 | kind of the transport header that lies at 16: its protocol number, or 0 if none is there |
//! | 2 | [`flags`] |
//! | 3 | zero |
//! | 4–5, 6–7 | numbers of the port that it came in by and the port that it leaves by |
//! | 8–9 | ether type behind all VLAN tags |
//! | 10–11 | outermost VLAN tag: 4 zero bits and the 12-bit VLAN id; 0 without a tag |
//! | 12 | IP protocol; on IPv6 the upper-layer protocol behind all extension headers |
//! | 13 | zero |
//! | 14–15 | IPv6 extension headers present, [`eh`] bits |
//! | 16–35 | the transport header as on the wire: TCP 20 bytes, UDP 8, ICMP and ICMPv6 8; zero behind that |
//! | 36–37 | bytes of payload behind the transport header |
//! | 38–39 | zero |
//! | 40–59 / 40–79 | the IPv4 header without options / the IPv6 header |
//! | 60–63 | zero (IPv4) |

/// A header key of `N` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct HeaderKey<const N: usize>(pub [u8; N]);

/// The key of an IPv4 packet, and of a frame that is not IP: one cache line.
pub type Key4 = HeaderKey<64>;
/// The key of an IPv6 packet.
pub type Key6 = HeaderKey<80>;

impl<const N: usize> Default for HeaderKey<N> {
    fn default() -> Self {
        HeaderKey([0; N])
    }
}

/// Bytes of a lane: the unit in which the classifier looks at keys.
pub const LANE: usize = 4;

/// Lanes of a key for IPv4 packets.
pub const LANES4: usize = 64 / LANE;
/// Lanes of a key for IPv6 packets.
pub const LANES6: usize = 80 / LANE;

/// A set of lanes of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes(pub u32);

impl Lanes {
    /// Every lane.
    pub const ALL: Lanes = Lanes(u32::MAX);

    /// The lanes from `first` to the one before `end`.
    pub const fn range(first: usize, end: usize) -> Lanes {
        Lanes((1 << end) - (1 << first))
    }

    /// Whether a lane is in the set.
    #[inline(always)]
    pub const fn has(self, lane: usize) -> bool {
        self.0 >> lane & 1 == 1
    }

    /// Whether the sets have a lane in common.
    #[inline(always)]
    pub const fn any_of(self, other: Lanes) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets' lanes.
    #[must_use]
    pub const fn with(self, other: Lanes) -> Lanes {
        Lanes(self.0 | other.0)
    }

    /// The lanes of the set, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..u32::BITS as usize).filter(move |&lane| self.has(lane))
    }
}

/// Byte offset of the address family.
pub const FAMILY: usize = 0;
/// Byte offset of the transport header's kind.
pub const L4_KIND: usize = 1;
/// Byte offset of the [`flags`].
pub const FLAGS: usize = 2;
/// Byte offset of the receiving port's number.
pub const IN_PORT: usize = 4;
/// Byte offset of the sending port's number.
pub const OUT_PORT: usize = 6;
/// Byte offset of the ether type.
pub const ETH_TYPE: usize = 8;
/// Byte offset of the VLAN id.
pub const VLAN: usize = 10;
/// Byte offset of the upper-layer protocol.
pub const PROTO: usize = 12;
/// Byte offset of the extension header bits.
pub const EH: usize = 14;
/// Byte offset of the transport header.
pub const L4: usize = 16;
/// Byte offset of the payload's length.
pub const PAYLOAD_LEN: usize = 36;
/// Byte offset of the IP header.
pub const IP: usize = 40;

/// Bits of the byte at [`FLAGS`].
pub mod flags {
    /// The frame has at least one VLAN tag.
    pub const VLAN_TAGGED: u8 = 0x01;
    /// The packet is a fragment, first or later.
    pub const FRAGMENT: u8 = 0x02;
    /// The packet is a fragment and not the first one: it has no transport header.
    pub const LATER_FRAGMENT: u8 = 0x04;
    /// `payload` has at least one byte.
    pub const HAS_PAYLOAD: u8 = 0x08;
    /// Bytes follow the IPv4 header, or the fixed IPv6 header.
    pub const HAS_IP_PAYLOAD: u8 = 0x10;
    /// TCP whose data offset is above 5: it has an options area.
    pub const TCP_OPTION_AREA: u8 = 0x20;
    /// The destination address is not the one that the transport checksum covers: a source route (IPv4) or a routing header (IPv6) still
    /// has hops to visit (RFC 8200 section 8.1).
    pub const ROUTED: u8 = 0x40;
}

/// Bits of the big-endian word at [`EH`]: which IPv6 extension headers the packet has.
pub mod eh {
    /// Any extension header.
    pub const ANY: u16 = 0x8000;
    /// Hop-by-hop options (0).
    pub const HOP_BY_HOP: u16 = 0x0001;
    /// Routing (43).
    pub const ROUTING: u16 = 0x0002;
    /// Fragment (44).
    pub const FRAGMENT: u16 = 0x0004;
    /// Encapsulating security payload (50).
    pub const ESP: u16 = 0x0008;
    /// Authentication header (51).
    pub const AH: u16 = 0x0010;
    /// Destination options (60).
    pub const DEST_OPT: u16 = 0x0020;
    /// Mobility (135).
    pub const MOBILITY: u16 = 0x0040;
    /// Host identity protocol (139).
    pub const HIP: u16 = 0x0080;
    /// Shim6 (140).
    pub const SHIM6: u16 = 0x0100;
}

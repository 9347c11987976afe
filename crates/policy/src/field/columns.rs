//! The types of the table's columns: what a row can say about a field.

use crate::stream_part::StreamPart;
use mmb_packet::key::{self, flags};

/// The kind of a field's values, which determines how they are written and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// An unsigned number of the field's width, decimal or hexadecimal, or one of the field's names.
    Number,
    /// An IPv4 address or prefix.
    Ip4,
    /// An IPv6 address or prefix.
    Ip6,
    /// The name of a port.
    Port,
    /// TCP option data: a big-endian number of at most 8 bytes, or bytes. `Some(n)`: the option's data has n
    /// bytes by its RFC.
    OptionData(Option<u8>),
    /// Bytes, compared as a prefix.
    Bytes,
    /// Some of the field's names; several may hold of one packet.
    State,
    /// The field takes no value: it is there or not.
    Nothing,
    /// Patterns that are searched for: texts, bytes, regexes, lists.
    Pattern,
    /// Names of servers: a text is a whole name, or with a leading dot a domain and all below it; regexes and lists.
    ServerName,
    /// Methods of HTTP: a text is the whole method; regexes and lists.
    Method,
    /// The name of a header field, alone or with patterns: a text is the whole value of the header field.
    Header,
}

impl ValueKind {
    /// Whether the values are patterns, and so may be regexes and lists.
    pub const fn has_patterns(self) -> bool {
        match self {
            ValueKind::Pattern | ValueKind::ServerName | ValueKind::Method | ValueKind::Header => true,
            ValueKind::Number
            | ValueKind::Ip4
            | ValueKind::Ip6
            | ValueKind::Port
            | ValueKind::OptionData(_) => false,
            ValueKind::Bytes | ValueKind::State | ValueKind::Nothing => false,
        }
    }
}

/// The meaning of a field that stands alone, without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BareMeaning {
    /// The packet is of the implied protocol: it always has the field.
    Protocol,
    /// The field's bits equal this (a flag that is set, an ECN codepoint, an extension header's bit).
    Equals(u64),
    /// The packet may have the field or not: an option, a payload, a VLAN tag.
    Optional,
}

/// The packets that a field implies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Implies {
    /// Any frame, IP or not.
    Frame,
    /// Any packet that a rule can match without naming an ether type: IP.
    Ip,
    /// IPv4.
    Ip4,
    /// IPv6.
    Ip6,
    /// ICMP over IPv4, with its header (not a later fragment).
    Icmp,
    /// ICMP over IPv6, with its header.
    Icmp6,
    /// UDP over either, with its header.
    Udp,
    /// TCP over either, with its header.
    Tcp,
    /// Any IP packet that is not a later fragment.
    Transport,
    /// TCP or UDP over either, with its header.
    TcpOrUdp,
}

impl Implies {
    /// The bytes of the header key that the implication requires, as (byte, mask, value) triples that all hold.
    /// `Ip` has no fixed byte: it is the classes IPv4 and IPv6. `TcpOrUdp` has one of two values at [`key::L4_KIND`], which no triple says.
    pub fn key_bytes(self) -> &'static [(usize, u8, u8)] {
        const FF: u8 = 0xff;
        match self {
            Implies::Frame | Implies::Ip => &[],
            Implies::Ip4 => &[(key::FAMILY, FF, 4)],
            Implies::Ip6 => &[(key::FAMILY, FF, 6)],
            Implies::Icmp => &[(key::FAMILY, FF, 4), (key::L4_KIND, FF, 1)],
            Implies::Icmp6 => &[(key::FAMILY, FF, 6), (key::L4_KIND, FF, 58)],
            Implies::Udp => &[(key::L4_KIND, FF, 17)],
            Implies::Tcp => &[(key::L4_KIND, FF, 6)],
            Implies::Transport | Implies::TcpOrUdp => &[(key::FLAGS, flags::LATER_FRAGMENT, 0)],
        }
    }
}

/// The place of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPlace {
    /// `width` bits at bit `bit` (0: the most significant bit of the first byte) of the header key.
    Key {
        /// Offset in bits from the key's start.
        bit: u16,
        /// Width in bits, 1 to 128.
        width: u8,
    },
    /// TCP options: any that is not padding.
    AnyOption,
    /// The TCP option of this kind.
    Option(u8),
    /// The TCP option whose kind the command names (`tcp-opt 22`).
    NamedOption,
    /// The bytes behind a header, to the end of the packet.
    Payload(Payload),
    /// In no packet: connection tracking determines it ([`crate::ct`]).
    Connection,
    /// In the bytes of a connection, over all its packets: it is decided later than the classifier decides, which sees only what it implies.
    Stream(StreamPart),
}

impl FieldPlace {
    /// The first bit and the width of a place in the header key; `None` for the others.
    #[inline]
    pub const fn key_bits(self) -> Option<(u16, u8)> {
        match self {
            FieldPlace::Key { bit, width } => Some((bit, width)),
            FieldPlace::AnyOption | FieldPlace::Option(_) | FieldPlace::NamedOption => None,
            FieldPlace::Payload(_) | FieldPlace::Connection | FieldPlace::Stream(_) => None,
        }
    }
}

/// The header that a payload field follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The IP header: IPv4 with its options, or the fixed IPv6 header (RFC 8200: extension headers are payload).
    Ip,
    /// The transport header; the IP headers where the protocol has none that mmb knows.
    Transport,
}

/// The way in which a target writes a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writable {
    /// It cannot be written; the text says why.
    No(&'static str),
    /// Written in place; checksums follow.
    InPlace,
    /// Written last and taken as it is: checksums, lengths, versions.
    Raw,
    /// A TCP option: rebuilt, added, stripped.
    Option,
    /// The payload's first bytes are overwritten.
    Payload,
    /// What is found of a stream or of a body is masked, replaced or removed.
    Stream,
    /// An HTTP header field: changed, added, stripped.
    Header,
    /// The whole of an HTTP message's part is replaced.
    Whole,
}

/// The stateful targets that take a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StatefulUses {
    /// The part of a connection's mapping that the field is; `None` if no stateful target takes it.
    pub part: Option<MappedPart>,
    /// `map` takes it.
    pub map: bool,
    /// `shuffle` takes it.
    pub shuffle: bool,
    /// `lb` takes it.
    pub lb: bool,
}

/// A part of the mapping of a connection, which its first packet determines and replies get reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MappedPart {
    /// The source address.
    SourceAddress,
    /// The destination address.
    DestinationAddress,
    /// The source port.
    SourcePort,
    /// The destination port.
    DestinationPort,
    /// The IPv4 identification.
    IpId,
    /// The IPv6 flow label.
    FlowLabel,
    /// The offset of TCP sequence numbers.
    SequenceNumber,
    /// The offset of TCP acknowledgment numbers.
    AckNumber,
}

/// The groups of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldGroup {
    /// Ports of mmb.
    Port,
    /// Connections.
    Connection,
    /// The link layer.
    Link,
    /// Any IP packet.
    Ip,
    /// IPv4.
    Ip4,
    /// IPv6.
    Ip6,
    /// IPv6 extension headers.
    Ip6Extension,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmp6,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// TCP options.
    TcpOption,
    /// The payload.
    Payload,
    /// The bytes of connections.
    Stream,
}

/// A number of `bits` one bits: the greatest value of a field of that width.
pub const fn ones(bits: u8) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

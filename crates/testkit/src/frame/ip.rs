//! IP headers, extension headers, and their payloads.

use super::checksum::{Checksum, internet_checksum};
use super::flow::{Dccp, UdpLite};
use super::transport::{Icmp, Tcp, Udp, pad_options};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The payload of an IP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upper {
    /// A TCP segment.
    Tcp(Tcp),
    /// A UDP datagram.
    Udp(Udp),
    /// An ICMP message over IPv4, an ICMPv6 message over IPv6.
    Icmp(Icmp),
    /// A UDP-Lite packet.
    UdpLite(UdpLite),
    /// A DCCP packet.
    Dccp(Dccp),
    /// The protocol number and the bytes: another protocol, or a later fragment of any protocol.
    Raw(u8, Vec<u8>),
}

/// An IPv4 packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ip4 {
    /// Version.
    pub version: u8,
    /// The header length in 4-byte words, if not the correct one.
    pub ihl: Option<u8>,
    /// DSCP and ECN.
    pub tos: u8,
    /// The total length, if not the correct one.
    pub total_len: Option<u16>,
    /// Identification.
    pub id: u16,
    /// Reserved 4, DF 2, MF 1.
    pub flags: u8,
    /// Fragment offset in 8-byte units.
    pub frag_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Header checksum.
    pub checksum: Checksum,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// The options area; padded with zeroes to a multiple of four bytes.
    pub options: Vec<u8>,
    /// The payload.
    pub upper: Upper,
}

/// An IPv6 packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ip6 {
    /// Version.
    pub version: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// The payload length, if not the correct one.
    pub payload_len: Option<u16>,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Extension headers in order.
    pub extensions: Vec<Extension>,
    /// The payload.
    pub upper: Upper,
}

/// An IPv6 extension header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    /// A header with a length in 8-byte units: its number, and `8 n + 6` bytes after the length field (other lengths are padded).
    Plain(u8, Vec<u8>),
    /// A routing header: its type and the segments left, with the one address 2001:db8::ff.
    Routing(u8, u8),
    /// A fragment header.
    Fragment(FragmentHeader),
    /// An authentication header with an integrity value of this number of 4-byte words (rounded up to even).
    Authentication(u8),
    /// An encapsulating security payload: the rest of the packet is encrypted, no header follows.
    EncapsulatingSecurity,
}

/// An IPv6 fragment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// The offset in 8-byte units.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
}

/// The address in routing headers.
const LAST_HOP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xff);

impl Upper {
    fn proto(&self, version: u8) -> u8 {
        match self {
            Upper::Tcp(_) => 6,
            Upper::Udp(_) => 17,
            Upper::Icmp(_) if version == 4 => 1,
            Upper::Icmp(_) => 58,
            Upper::UdpLite(_) => 136,
            Upper::Dccp(_) => 33,
            Upper::Raw(proto, _) => *proto,
        }
    }

    /// `pseudo`: addresses, and the protocol as the last byte.
    fn bytes(&self, pseudo: &[u8], version: u8) -> Vec<u8> {
        match self {
            Upper::Tcp(tcp) => tcp.bytes(pseudo),
            Upper::Udp(udp) => udp.bytes(pseudo),
            Upper::Icmp(icmp) if version == 4 => icmp.bytes(&[]),
            Upper::Icmp(icmp) => icmp.bytes(pseudo),
            Upper::UdpLite(lite) => lite.bytes(pseudo),
            Upper::Dccp(dccp) => dccp.bytes(pseudo),
            Upper::Raw(_, bytes) => bytes.clone(),
        }
    }
}

impl Ip4 {
    /// A packet from 10.0.0.1 to 10.0.0.2.
    pub fn new(upper: Upper) -> Ip4 {
        Ip4 {
            version: 4,
            ihl: None,
            tos: 0,
            total_len: None,
            id: 1,
            flags: 0,
            frag_offset: 0,
            ttl: 64,
            checksum: Checksum::Right,
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            options: Vec::new(),
            upper,
        }
    }

    /// The packet as it is on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let proto = self.upper.proto(4);
        let options = pad_options(self.options.clone());
        let mut pseudo = Vec::new();
        pseudo.extend(self.source.octets());
        pseudo.extend(self.destination.octets());
        pseudo.extend([0, proto]);
        let upper = self.upper.bytes(&pseudo, 4);

        let header_len = 20 + options.len();
        let ihl = self.ihl.unwrap_or((header_len / 4) as u8);
        let total_len = self.total_len.unwrap_or((header_len + upper.len()) as u16);
        let mut bytes = vec![self.version << 4 | ihl & 0x0f, self.tos];
        bytes.extend(total_len.to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend((u16::from(self.flags) << 13 | self.frag_offset & 0x1fff).to_be_bytes());
        bytes.extend([self.ttl, proto, 0, 0]);
        bytes.extend(self.source.octets());
        bytes.extend(self.destination.octets());
        bytes.extend(options);
        let checksum = self.checksum.value(internet_checksum(&bytes));
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend(upper);
        bytes
    }
}

impl Ip6 {
    /// A packet from 2001:db8::1 to 2001:db8::2.
    pub fn new(upper: Upper) -> Ip6 {
        Ip6 {
            version: 6,
            traffic_class: 0,
            flow_label: 0,
            payload_len: None,
            hop_limit: 64,
            source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
            destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
            extensions: Vec::new(),
            upper,
        }
    }

    /// The same with one more extension header.
    pub fn extension(mut self, extension: Extension) -> Ip6 {
        self.extensions.push(extension);
        self
    }

    /// The packet as it is on the wire. The transport checksum covers the last address of a source route.
    pub fn bytes(&self) -> Vec<u8> {
        let proto = self.upper.proto(6);
        let mut pseudo = Vec::new();
        pseudo.extend(self.source.octets());
        pseudo.extend(self.final_destination().octets());
        pseudo.extend([0, proto]);
        let upper = self.upper.bytes(&pseudo, 6);

        let numbers: Vec<u8> = self.extensions.iter().map(Extension::number).chain([proto]).collect();
        let mut behind = Vec::new();
        for (extension, next) in self.extensions.iter().zip(&numbers[1..]) {
            behind.extend(extension.bytes(*next));
        }
        behind.extend(upper);

        let word = u32::from(self.version) << 28
            | u32::from(self.traffic_class) << 20
            | self.flow_label & 0x000f_ffff;
        let mut bytes = word.to_be_bytes().to_vec();
        bytes.extend(self.payload_len.unwrap_or(behind.len() as u16).to_be_bytes());
        bytes.extend([numbers[0], self.hop_limit]);
        bytes.extend(self.source.octets());
        bytes.extend(self.destination.octets());
        bytes.extend(behind);
        bytes
    }

    fn final_destination(&self) -> Ipv6Addr {
        let routed = self.extensions.iter().any(|e| matches!(e, Extension::Routing(_, left) if *left > 0));
        if routed { LAST_HOP } else { self.destination }
    }
}

impl Extension {
    fn number(&self) -> u8 {
        match self {
            Extension::Plain(number, _) => *number,
            Extension::Routing(..) => 43,
            Extension::Fragment(_) => 44,
            Extension::Authentication(_) => 51,
            Extension::EncapsulatingSecurity => 50,
        }
    }

    fn bytes(&self, next: u8) -> Vec<u8> {
        match self {
            Extension::Plain(_, content) => {
                let mut bytes = vec![next, 0];
                bytes.extend(content);
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                bytes[1] = (bytes.len() / 8 - 1) as u8;
                bytes
            }
            Extension::Routing(routing_type, left) => {
                let mut bytes = vec![next, 2, *routing_type, *left, 0, 0, 0, 0];
                bytes.extend(LAST_HOP.octets());
                bytes
            }
            Extension::Fragment(fragment) => {
                let [high, low] = (fragment.offset << 3 | u16::from(fragment.more)).to_be_bytes();
                vec![next, 0, high, low, 0, 0, 0, 7]
            }
            Extension::Authentication(words) => {
                let words = words.next_multiple_of(2).max(2) - 1;
                let mut bytes = vec![next, words + 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
                bytes.resize(12 + usize::from(words) * 4, 0xa5);
                bytes
            }
            // Security parameters index and sequence number.
            Extension::EncapsulatingSecurity => vec![0, 0, 0, 1, 0, 0, 0, 1],
        }
    }
}

/// A GRE packet around something of 8 bytes, with a key or without (RFC 2890).
pub fn gre(key: Option<u32>) -> Upper {
    let mut bytes = vec![if key.is_some() { 0x20 } else { 0 }, 0, 8, 0];
    bytes.extend(key.into_iter().flat_map(u32::to_be_bytes));
    bytes.extend([3; 8]);
    Upper::Raw(47, bytes)
}

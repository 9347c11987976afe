//! Transport headers.

use super::checksum::{Checksum, internet_checksum};

/// A TCP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// The four bits between data offset and flags.
    pub reserved: u8,
    /// CWR to FIN.
    pub flags: u8,
    /// Window.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// The options area; padded with zeroes to a multiple of four bytes.
    pub options: Vec<u8>,
    /// The data offset, if not the correct one.
    pub offset: Option<u8>,
    /// The checksum.
    pub checksum: Checksum,
    /// The bytes after the header.
    pub payload: Vec<u8>,
}

impl Default for Tcp {
    fn default() -> Self {
        Tcp {
            sport: 1000,
            dport: 80,
            seq: 1,
            ack: 0,
            reserved: 0,
            flags: 0x02,
            window: 0xffff,
            urgent: 0,
            options: Vec::new(),
            offset: None,
            checksum: Checksum::Right,
            payload: Vec::new(),
        }
    }
}

/// A UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// The length field, if not the correct one.
    pub len: Option<u16>,
    /// The checksum.
    pub checksum: Checksum,
    /// The bytes after the header.
    pub payload: Vec<u8>,
}

impl Default for Udp {
    fn default() -> Self {
        Udp { sport: 1000, dport: 53, len: None, checksum: Checksum::Right, payload: Vec::new() }
    }
}

/// An ICMP or ICMPv6 message, depending on the IP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// Type.
    pub icmp_type: u8,
    /// Code.
    pub code: u8,
    /// The four bytes after the checksum.
    pub rest: [u8; 4],
    /// The checksum.
    pub checksum: Checksum,
    /// The bytes after the first eight.
    pub payload: Vec<u8>,
}

impl Default for Icmp {
    fn default() -> Self {
        Icmp { icmp_type: 8, code: 0, rest: [0, 1, 0, 1], checksum: Checksum::Right, payload: Vec::new() }
    }
}

/// One TCP option on the wire.
pub fn tcp_option(kind: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, data.len() as u8 + 2];
    bytes.extend(data);
    bytes
}

/// Pads an options area with end-of-list to a multiple of four bytes.
pub fn pad_options(mut area: Vec<u8>) -> Vec<u8> {
    area.resize(area.len().next_multiple_of(4), 0);
    area
}

impl Tcp {
    /// The same with this destination port.
    pub fn dport(mut self, port: u16) -> Tcp {
        self.dport = port;
        self
    }

    /// The same with these flags.
    pub fn flags(mut self, flags: u8) -> Tcp {
        self.flags = flags;
        self
    }

    /// The same with one more option.
    pub fn option(mut self, kind: u8, data: &[u8]) -> Tcp {
        self.options.extend(tcp_option(kind, data));
        self
    }

    /// The same with these bytes appended to the options area.
    pub fn raw_options(mut self, bytes: &[u8]) -> Tcp {
        self.options.extend(bytes);
        self
    }

    /// The same with this payload.
    pub fn payload(mut self, bytes: &[u8]) -> Tcp {
        self.payload = bytes.to_vec();
        self
    }

    /// The segment; its checksum also covers `pseudo` (without the length).
    pub(super) fn bytes(&self, pseudo: &[u8]) -> Vec<u8> {
        let options = pad_options(self.options.clone());
        let offset = self.offset.unwrap_or((5 + options.len() / 4) as u8);
        let mut bytes = Vec::new();
        bytes.extend(self.sport.to_be_bytes());
        bytes.extend(self.dport.to_be_bytes());
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend([offset << 4 | self.reserved & 0x0f, self.flags]);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.urgent.to_be_bytes());
        bytes.extend(options);
        bytes.extend(&self.payload);
        let right = with_pseudo_header(&bytes, pseudo, bytes.len());
        set_checksum(&mut bytes, 16, self.checksum.value(right));
        bytes
    }
}

impl Udp {
    /// The same with this destination port.
    pub fn dport(mut self, port: u16) -> Udp {
        self.dport = port;
        self
    }

    /// The same with this checksum.
    pub fn checksum(mut self, checksum: Checksum) -> Udp {
        self.checksum = checksum;
        self
    }

    /// The same with this payload.
    pub fn payload(mut self, bytes: &[u8]) -> Udp {
        self.payload = bytes.to_vec();
        self
    }

    pub(super) fn bytes(&self, pseudo: &[u8]) -> Vec<u8> {
        let len = self.len.unwrap_or((8 + self.payload.len()) as u16);
        let mut bytes = Vec::new();
        for word in [self.sport, self.dport, len, 0] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(&self.payload);
        let covered = bytes.len().min(usize::from(len).max(8));
        let right = match with_pseudo_header(&bytes[..covered], pseudo, usize::from(len)) {
            0 => 0xffff,
            other => other,
        };
        set_checksum(&mut bytes, 6, self.checksum.value(right));
        bytes
    }
}

impl Icmp {
    /// The message; `pseudo` is empty for ICMP over IPv4.
    pub(super) fn bytes(&self, pseudo: &[u8]) -> Vec<u8> {
        let mut bytes = vec![self.icmp_type, self.code, 0, 0];
        bytes.extend(self.rest);
        bytes.extend(&self.payload);
        let right = match pseudo {
            [] => internet_checksum(&bytes),
            _ => with_pseudo_header(&bytes, pseudo, bytes.len()),
        };
        set_checksum(&mut bytes, 2, self.checksum.value(right));
        bytes
    }
}

/// The checksum over a pseudo header (addresses and protocol, an even number of bytes), a length, and `bytes`.
pub(super) fn with_pseudo_header(bytes: &[u8], pseudo: &[u8], len: usize) -> u16 {
    let mut covered = pseudo.to_vec();
    covered.extend((len as u32).to_be_bytes());
    covered.extend(bytes);
    internet_checksum(&covered)
}

pub(super) fn set_checksum(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

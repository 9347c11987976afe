//! Items of captures, and their limits.

use mmb_packet::LinkType;

/// The most bytes of one packet: what libpcap allows.
pub const MAX_PACKET_BYTES: usize = 262_144;
/// The most bytes of one pcapng block.
pub const MAX_BLOCK_BYTES: usize = 16 << 20;
/// The most interfaces of one pcapng section.
pub const MAX_INTERFACES: usize = 65_536;
/// The most bytes by which mmb can lengthen a packet: all TCP options.
pub const MAX_GROWTH_BYTES: u32 = 40;

/// A capture's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcap, in microseconds or nanoseconds, of either byte order.
    Pcap,
    /// pcapng.
    PcapNg,
}

/// An item of a capture.
#[derive(Clone, Copy, Debug)]
pub enum CaptureItem<'a> {
    /// A packet.
    Packet(Captured<'a>),
    /// Anything else, whole: the pcap file header, a pcapng block.
    Block(&'a [u8]),
}

/// A packet with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// Everything but the bytes.
    pub meta: Meta,
    /// The bytes that were captured.
    pub data: &'a [u8],
    /// The options of its pcapng block, as they stand there.
    pub options: &'a [u8],
}

/// A capture's data about a packet, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its number in the file, from 1.
    pub number: u64,
    /// The time of its capture, in nanoseconds since 1970; a packet without a time has that of the packet before it.
    pub time_ns: u64,
    /// The type of its first header.
    pub link: LinkType,
    /// Bytes that were captured.
    pub captured_len: u32,
    /// Bytes that were on the wire.
    pub original_len: u32,
    pub(super) frame: Frame,
    pub(super) big_endian: bool,
}

/// The form of a packet's record in the file, with the time as written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A pcap record.
    Record { seconds: u32, fraction: u32 },
    /// A pcapng enhanced packet block.
    Enhanced { interface: u32, time_high: u32, time_low: u32 },
    /// A pcapng packet block, obsolete.
    Obsolete { interface: u16, drops: u16, time_high: u32, time_low: u32 },
    /// A pcapng simple packet block.
    Simple,
}

impl Meta {
    /// The description of a packet that is in no capture.
    pub fn made(link: LinkType, time_ns: u64, len: usize) -> Meta {
        let len = len as u32;
        Meta {
            number: 0,
            time_ns,
            link,
            captured_len: len,
            original_len: len,
            frame: Frame::Record { seconds: 0, fraction: 0 },
            big_endian: false,
        }
    }

    /// True if the capture holds only a part of the packet.
    pub fn is_cut(&self) -> bool {
        self.captured_len < self.original_len
    }

    /// The length on the wire of the packet when `len` bytes of it are left in the capture.
    pub(super) fn original_len_at(&self, len: usize) -> u32 {
        let grown = i64::from(self.original_len) + len as i64 - i64::from(self.captured_len);
        u32::try_from(grown.max(0)).unwrap_or(u32::MAX)
    }
}

/// The link type of a number of the tcpdump.org registry, if mmb knows it.
pub(super) fn link_type(code: u32) -> Option<LinkType> {
    match code {
        1 => Some(LinkType::Ethernet),
        // LINKTYPE_RAW, and DLT_RAW as some systems write it into files; IPv4 only; IPv6 only.
        101 | 12 | 14 | 228 | 229 => Some(LinkType::RawIp),
        113 => Some(LinkType::Sll),
        276 => Some(LinkType::Sll2),
        _ => None,
    }
}

//! Capture files: pcap and pcapng, read and written as streams.
//!
//! Purpose: `mmb replay` and `mmb bench` read packets from captures; replay writes them again, in the format in which
//! they came, with everything that a capture says beside packets (interfaces, names, comments, statistics) in its
//! place. A capture whose packets are left alone comes out byte for byte the same, but for the length of a section,
//! which is left open.
//!
//! Life-cycle: a [`CaptureReader`] recognises the format and hands out [`CaptureItem`]s, each borrowed until the next one is
//! asked for; a [`CaptureWriter`] takes the same items. Memory is bounded whatever a file says: one block
//! ([`MAX_BLOCK`]), [`MAX_INTERFACES`] interfaces.
//!
//! Captures come from strangers. Every length is checked against the bytes that are there before it is used, and
//! what is wrong is told with the packet's number and the offset in the file. After an error a reader yields nothing
//! more, since a stream of records has no marks to find the next one by.
//!
//! The formats are read here and not by a library: of those looked at, one hangs on bad records in its stable version,
//! and the other allocates for each packet, knows no obsolete packet blocks, misreads time resolutions that are powers
//! of two, and cannot tell a length that lies from a file that ends.

mod bytes;
mod classic;
mod error;
mod input;
mod ng;
mod reader;
mod writer;

pub use error::CaptureError;
pub use reader::CaptureReader;
pub use writer::CaptureWriter;

use mmb_packet::LinkType;

/// The most bytes of one packet: what libpcap allows.
pub const MAX_PACKET: usize = 262_144;
/// The most bytes of one pcapng block.
pub const MAX_BLOCK: usize = 16 << 20;
/// The most interfaces of one pcapng section.
pub const MAX_INTERFACES: usize = 65_536;
/// How far mmb can make a packet longer: a whole area of TCP options.
pub const MAX_GROWTH: u32 = 40;

/// A capture's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcap, in microseconds or nanoseconds, of either byte order.
    Pcap,
    /// pcapng.
    PcapNg,
}

/// What a capture consists of.
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

/// What a capture says about a packet beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its number in the file, from 1.
    pub number: u64,
    /// When it was captured, in nanoseconds since 1970; for a packet without a time that of the packet before it.
    pub time_ns: u64,
    /// What it begins with.
    pub link: LinkType,
    /// Bytes that were captured.
    pub captured_len: u32,
    /// Bytes that were on the wire.
    pub original_len: u32,
    frame: Frame,
    big_endian: bool,
}

/// How the packet stands in the file, with its time as written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
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
    /// Whether the capture holds less of the packet than was on the wire.
    pub fn is_cut(&self) -> bool {
        self.captured_len < self.original_len
    }

    /// The length on the wire of the packet when `len` bytes of it are left in the capture.
    fn original_len_at(&self, len: usize) -> u32 {
        let grown = i64::from(self.original_len) + len as i64 - i64::from(self.captured_len);
        u32::try_from(grown.max(0)).unwrap_or(u32::MAX)
    }
}

/// The link type of a number of the tcpdump.org registry, if mmb knows it.
fn link_type(code: u32) -> Option<LinkType> {
    match code {
        1 => Some(LinkType::Ethernet),
        // LINKTYPE_RAW, and DLT_RAW as some systems write it into files; IPv4 only; IPv6 only.
        101 | 12 | 14 | 228 | 229 => Some(LinkType::RawIp),
        113 => Some(LinkType::Sll),
        276 => Some(LinkType::Sll2),
        _ => None,
    }
}

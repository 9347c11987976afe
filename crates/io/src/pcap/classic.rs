//! pcap: a file header of 24 bytes, then records of a 16-byte header and the packet.

use super::bytes::ByteOrder;
use super::error::{CaptureError, CapturePlace};
use super::item::{Frame, MAX_PACKET_BYTES, Meta, link_type};
use mmb_packet::LinkType;

/// Length of the file header.
pub(super) const FILE_HEADER: usize = 24;
/// Length of a record's header.
pub(super) const RECORD_HEADER: usize = 16;
/// The offset of the snap length in the file header.
pub(super) const SNAPLEN_AT: usize = 16;

const MICRO: u32 = 0xa1b2_c3d4;
const NANO: u32 = 0xa1b2_3c4d;
/// Records of 24 bytes; written by a patched libpcap of the 1990s.
const MODIFIED: u32 = 0xa1b2_cd34;
/// The bits of the link type's word that hold the type; the others tell about frame check sequences.
const LINK_MASK: u32 = 0x03ff_ffff;

/// A parsed file header.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassicHeader {
    pub(super) order: ByteOrder,
    /// Nanoseconds of one unit of a record's fraction.
    fraction_ns: u64,
    link: LinkType,
}

/// The byte order of a file that begins with these 4 bytes, and its magic number, if it is pcap of any sort.
pub(super) fn recognise(magic: &[u8]) -> Option<(ByteOrder, u32)> {
    [ByteOrder::Little, ByteOrder::Big]
        .map(|order| (order, order.u32(magic, 0)))
        .into_iter()
        .find(|(_, magic)| [MICRO, NANO, MODIFIED].contains(magic))
}

impl ClassicHeader {
    /// Reads the [`FILE_HEADER`] bytes of a file that was recognised.
    pub(super) fn parse(header: &[u8], order: ByteOrder, magic: u32) -> Result<ClassicHeader, CaptureError> {
        if magic == MODIFIED {
            return Err(CaptureError::Unsupported("the modified pcap format (magic 0xa1b2cd34)".into()));
        }
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        if major != 2 {
            return Err(CaptureError::Unsupported(format!("pcap version {major}.{minor}")));
        }
        let code = order.u32(header, 20) & LINK_MASK;
        let link = link_type(code).ok_or(CaptureError::LinkType { what: CapturePlace::FileHeader, code })?;
        let fraction_ns = if magic == NANO { 1 } else { 1000 };
        Ok(ClassicHeader { order, fraction_ns, link })
    }

    /// The record of a packet of another capture in this one; `None` if it has another link type.
    pub(super) fn adopt(&self, meta: &Meta) -> Option<Meta> {
        let seconds = u32::try_from(meta.time_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let fraction = (meta.time_ns % 1_000_000_000 / self.fraction_ns) as u32;
        let frame = Frame::Record { seconds, fraction };
        (self.link == meta.link).then_some(Meta { frame, big_endian: self.order.is_big(), ..*meta })
    }

    /// The packet whose record's header is this; `number` and `offset` are the packet's.
    #[inline]
    pub(super) fn record(&self, header: &[u8], number: u64, offset: u64) -> Result<Meta, CaptureError> {
        let seconds = self.order.u32(header, 0);
        let fraction = self.order.u32(header, 4);
        let captured_len = self.order.u32(header, 8);
        let original_len = self.order.u32(header, 12);
        if captured_len as usize > MAX_PACKET_BYTES {
            let why = format!("it claims {captured_len} captured bytes, the most is {MAX_PACKET_BYTES}");
            return Err(CaptureError::Broken { what: CapturePlace::Packet(number), offset, why });
        }
        Ok(Meta {
            number,
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns,
            link: self.link,
            captured_len,
            original_len,
            frame: Frame::Record { seconds, fraction },
            big_endian: self.order.is_big(),
        })
    }
}

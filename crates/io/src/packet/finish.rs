//! What the kernel left undone on a frame, and told in the headers that came with it.

use crate::mbuf::{Burst, HEADROOM, Mbuf, Pool};
use mmb_packet::checksum::{Sum, UDP};
use mmb_packet::{Limits, LinkType, Packet, PortId, Segments, parse::parse};

/// `struct virtio_net_hdr`, in the machine's byte order as AF_PACKET has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

const NEEDS_CSUM: u8 = 1;
const GSO_ECN: u8 = 0x80;
/// Where a UDP header has its checksum.
const UDP_CHECKSUM: usize = 6;

impl Header {
    pub(super) const SIZE: usize = 10;

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: five fields without padding between them, for which any bytes will do.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), Header::SIZE) }
    }

    /// Whether the frame stands for several that were never cut, or were merged.
    pub(super) fn is_merged(&self) -> bool {
        self.gso_type & !GSO_ECN != 0
    }
}

const _: () = assert!(size_of::<Header>() == Header::SIZE);

/// `struct tpacket_auxdata`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct AuxData {
    status: u32,
    len: u32,
    snaplen: u32,
    mac: u16,
    net: u16,
    vlan_tci: u16,
    vlan_tpid: u16,
}

/// A VLAN tag as on the wire: its ether type, then what it says.
pub(super) type Tag = [u8; 4];

/// The tag that came beside a frame.
pub(super) fn tag(message: &libc::msghdr) -> Option<Tag> {
    // SAFETY: the kernel filled in the control messages of this header, whose memory is the receiver's; the macros
    // stay inside it. The structure is read as the kernel wrote it, whatever its alignment.
    let aux = unsafe {
        let control = libc::CMSG_FIRSTHDR(message);
        if control.is_null()
            || (*control).cmsg_level != libc::SOL_PACKET
            || (*control).cmsg_type != libc::PACKET_AUXDATA
            || (*control).cmsg_len < libc::CMSG_LEN(size_of::<AuxData>() as u32) as usize
        {
            return None;
        }
        libc::CMSG_DATA(control).cast::<AuxData>().read_unaligned()
    };
    if aux.status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = if aux.status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { aux.vlan_tpid } else { 0x8100 };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), aux.vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

/// Puts a tag back where it was: behind the addresses.
pub(super) fn insert_tag(mbuf: &mut Mbuf, tag: Option<Tag>) {
    if let Some(tag) = tag {
        mbuf.insert(12, &tag);
    }
}

/// Finishes a checksum that the sender left to its device.
pub(super) fn checksum(frame: &mut [u8], header: &Header) {
    if header.flags & NEEDS_CSUM == 0 {
        return;
    }
    let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
    let Some(covered) = frame.get_mut(start..) else { return };
    // The field stands for the pseudo header in this sum.
    let sum = match Sum::default().bytes(covered).checksum() {
        0 if offset == UDP_CHECKSUM => 0xffff,
        sum => sum,
    };
    if let Some(field) = covered.get_mut(offset..).and_then(|rest| rest.first_chunk_mut()) {
        *field = sum.to_be_bytes();
    }
}

/// Why a merged frame was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotCut {
    /// The burst has no room now.
    NoRoom,
    /// The pool has no buffers.
    NoBuffer,
    /// It is nothing that can be cut.
    Oversized,
}

/// Cuts a merged frame into those that it stands for, and appends them to the burst.
pub(super) fn cut(
    frame: &mut [u8],
    header: &Header,
    tag: Option<Tag>,
    pool: &Pool,
    burst: &mut Burst,
) -> Result<(), NotCut> {
    let len = frame.len();
    let packet = Packet::new(frame, 0, len, PortId(0), LinkType::Ethernet).ok_or(NotCut::Oversized)?;
    let layout = parse(&packet, &Limits::default()).map_err(|_| NotCut::Oversized)?;
    let size = usize::from(header.gso_size);
    let segments = match layout.l4_kind {
        UDP => Segments::datagrams(&packet, &layout, size),
        _ => Segments::new(&packet, &layout, usize::from(layout.payload - layout.ip) + size),
    };
    let mut segments = segments.map_err(|_| NotCut::Oversized)?;
    let (count, longest) = (segments.count(), segments.next_len().unwrap_or_default());
    let room = usize::from(pool.data_room()) - HEADROOM;
    if count > burst.capacity() || longest > room {
        return Err(NotCut::Oversized);
    }
    if count > burst.remaining_capacity() {
        return Err(NotCut::NoRoom);
    }
    let first = burst.len();
    if !pool.alloc(burst, count) {
        return Err(NotCut::NoBuffer);
    }
    for mbuf in &mut burst[first..] {
        let written = segments.write_next(&mut mbuf.buffer()[HEADROOM..HEADROOM + room]);
        if let Ok(Some(len)) = written {
            mbuf.place(HEADROOM, len);
            insert_tag(mbuf, tag);
        }
    }
    Ok(())
}

//! Completes frames from the metadata that the kernel delivers with them: tags, checksums, segments.

use crate::mbuf::{Burst, CutFrom, HEADROOM, Mbuf, MbufPool};
use mmb_packet::checksum::ChecksumSum;
use mmb_packet::offload::finish_sctp;
use mmb_packet::proto::{TCP, UDP};
use mmb_packet::{
    Layout, LinkType, Packet, ParserLimits, PortId, SegmentError, Segments, Superframe, Tunnels, parse::parse,
};

/// `struct virtio_net_hdr`, in the machine's byte order as AF_PACKET has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VirtioNetHdr {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

const NEEDS_CSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;
/// The offset of the checksum in an SCTP header.
const SCTP_CHECKSUM: usize = 8;
/// The offset of the checksum in a UDP header.
const UDP_CHECKSUM: usize = 6;
/// The offset of the checksum in a TCP header.
const TCP_CHECKSUM: usize = 16;

impl VirtioNetHdr {
    pub(super) const SIZE: usize = 10;

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: five fields without padding between them, for which any bytes will do.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), VirtioNetHdr::SIZE) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), VirtioNetHdr::SIZE) }
    }

    /// The metadata by which the kernel, or the device, cuts a superframe. Of one in a tunnel they are those of the inner packet, in a frame
    /// without the tunnel.
    pub(super) fn of(superframe: &Superframe) -> VirtioNetHdr {
        let (gso_type, csum_offset) = match (superframe.transport(), superframe.is_ip6()) {
            (UDP, _) => (GSO_UDP_L4, UDP_CHECKSUM),
            (_, false) => (GSO_TCP4, TCP_CHECKSUM),
            (_, true) => (GSO_TCP6, TCP_CHECKSUM),
        };
        let around = superframe.tunnel().map_or(0, |tunnel| tunnel.len);
        VirtioNetHdr {
            flags: NEEDS_CSUM,
            gso_type,
            hdr_len: superframe.headers().len() as u16 - around,
            gso_size: superframe.segment_payload(),
            csum_start: superframe.l4() - around,
            csum_offset: csum_offset as u16,
        }
    }

    /// True if the frame consists of several that were never cut, or were merged.
    pub(super) fn is_merged(&self) -> bool {
        self.gso_type & !GSO_ECN != 0
    }
}

const _: () = assert!(size_of::<VirtioNetHdr>() == VirtioNetHdr::SIZE);

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

/// A VLAN tag as on the wire: its ether type, then its value.
pub(super) type Tag = [u8; 4];

/// The tag that the kernel delivered beside a frame.
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
    tag_of(aux.status, aux.vlan_tpid, aux.vlan_tci)
}

/// The tag of a frame with these metadata.
pub(super) fn tag_of(status: u32, vlan_tpid: u16, vlan_tci: u16) -> Option<Tag> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { vlan_tpid } else { 0x8100 };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

/// Puts a tag back where it was: behind the addresses.
pub(super) fn insert_tag(mbuf: &mut Mbuf, tag: Option<Tag>) {
    if let Some(tag) = tag {
        mbuf.insert(12, &tag);
    }
}

/// Finishes a checksum that the sender left to its device.
pub(super) fn checksum(frame: &mut [u8], header: &VirtioNetHdr) {
    if header.flags & NEEDS_CSUM == 0 {
        return;
    }
    let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
    let Some(covered) = frame.get_mut(start..) else { return };
    if offset == SCTP_CHECKSUM {
        finish_sctp(covered);
        return;
    }
    // The field stands for the pseudo header in this sum.
    let sum = match ChecksumSum::default().bytes(covered).checksum() {
        0 if offset == UDP_CHECKSUM => 0xffff,
        sum => sum,
    };
    if let Some(field) = covered.get_mut(offset..).and_then(|rest| rest.first_chunk_mut()) {
        *field = sum.to_be_bytes();
    }
}

/// A reason for which a merged frame was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotCut {
    /// The burst has no room now.
    NoRoom,
    /// The pool has no buffers.
    NoBuffer,
    /// It cannot be cut.
    Oversized,
}

/// Cuts a merged frame into its parts, and appends them to the burst.
pub(super) fn cut(
    frame: &mut [u8],
    header: &VirtioNetHdr,
    tag: Option<Tag>,
    pool: &MbufPool,
    burst: &mut Burst,
) -> Result<(), NotCut> {
    let len = frame.len();
    let packet = Packet::new(frame, 0, len, PortId(0), LinkType::Ethernet).ok_or(NotCut::Oversized)?;
    let layout = parse(&packet, &ParserLimits::default()).map_err(|_| NotCut::Oversized)?;
    let (mut segments, from) = segments(&packet, &layout, header).map_err(|_| NotCut::Oversized)?;
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
            mbuf.note_cut(from);
            insert_tag(mbuf, tag);
        }
    }
    Ok(())
}

/// Prepares to cut a merged frame. To a packet socket, Linux describes no tunnel: it only says, by `csum_start`, where
/// the transport header of the packet to cut begins. That header may lie in tunnels. Returns also the kind of the frame.
fn segments<'p>(
    packet: &'p Packet<'_>,
    layout: &Layout,
    header: &VirtioNetHdr,
) -> Result<(Segments<'p>, CutFrom), SegmentError> {
    let l4 = if header.flags & NEEDS_CSUM != 0 { header.csum_start } else { layout.l4 };
    let tunnels = Tunnels::around(packet.bytes(), layout, l4.into()).ok_or(SegmentError::NoTunnel)?;
    let transport = tunnels.inner().l4_kind;
    let from = match header.gso_type & !GSO_ECN {
        GSO_TCP4 | GSO_TCP6 if transport != TCP => return Err(SegmentError::NotTcp(transport)),
        GSO_UDP_L4 if transport != UDP => return Err(SegmentError::NotUdp(transport)),
        GSO_TCP4 | GSO_TCP6 | GSO_UDP_L4 if !tunnels.outer().is_empty() => CutFrom::Tunnel,
        GSO_TCP4 | GSO_TCP6 => CutFrom::Tcp,
        GSO_UDP_L4 => CutFrom::Udp,
        _ => return Err(SegmentError::UnknownKind),
    };
    Ok((Segments::in_tunnels(packet, &tunnels, header.gso_size.into())?, from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_packet::checksum::{pseudo_header, transport_sum};
    use mmb_packet::{Layout, parse::parse};
    use mmb_testkit::{Frame, Tcp, Udp};

    fn layout(frame: &mut [u8]) -> Layout {
        let len = frame.len();
        let packet =
            Packet::new(frame, 0, len, PortId(0), LinkType::Ethernet).expect("a packet in its buffer");
        parse(&packet, &ParserLimits::default()).expect("a sound packet")
    }

    /// The frame as a sender with checksum offload leaves it, and the kernel's metadata about it.
    fn unfinished(frame: &Frame) -> (Vec<u8>, VirtioNetHdr) {
        let mut bytes = frame.bytes();
        let layout = layout(&mut bytes);
        let offset = if layout.l4_kind == UDP { UDP_CHECKSUM } else { TCP_CHECKSUM };
        let sum = pseudo_header(&bytes, &layout).expect("a transport header").fold();
        let at = usize::from(layout.l4) + offset;
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let header = VirtioNetHdr {
            flags: NEEDS_CSUM,
            csum_start: layout.l4,
            csum_offset: offset as u16,
            ..VirtioNetHdr::default()
        };
        (bytes, header)
    }

    #[test]
    fn checksums_are_finished_where_the_kernel_says() {
        for frame in [Tcp::default().payload(b"odd").over_ip4(), Udp::default().payload(b"even").over_ip6()] {
            let (mut bytes, header) = unfinished(&frame);
            assert_ne!(bytes, frame.bytes());
            checksum(&mut bytes, &header);
            assert_eq!(bytes, frame.bytes());
        }
    }

    #[test]
    fn whole_checksums_and_impossible_places_are_left_alone() {
        let frame = Tcp::default().over_ip4();
        let mut bytes = frame.bytes();
        checksum(&mut bytes, &VirtioNetHdr::default());
        for (csum_start, csum_offset) in [(u16::MAX, 16), (34, u16::MAX), (34, 19)] {
            checksum(
                &mut bytes,
                &VirtioNetHdr { flags: NEEDS_CSUM, csum_start, csum_offset, ..VirtioNetHdr::default() },
            );
        }
        assert_eq!(bytes, frame.bytes());
    }

    #[cfg(dpdk)]
    mod cutting {
        use super::*;
        use crate::mbuf::testing::pool;

        fn merged(frame: &Frame, gso_type: u8, gso_size: u16) -> (Vec<u8>, VirtioNetHdr) {
            let (bytes, header) = unfinished(frame);
            (bytes, VirtioNetHdr { gso_type, gso_size, ..header })
        }

        /// The payloads of the frames, each of which has to be sound.
        fn payloads(burst: &mut Burst) -> Vec<Vec<u8>> {
            let payload = |mbuf: &mut Mbuf| {
                let layout = layout(mbuf.frame_mut());
                assert_eq!(transport_sum(mbuf.bytes(), &layout).map(ChecksumSum::fold), Some(0xffff));
                mbuf.bytes()[layout.payload_range()].to_vec()
            };
            burst.iter_mut().map(payload).collect()
        }

        #[test]
        fn a_merged_segment_becomes_those_that_it_stands_for() {
            let data: Vec<u8> = (0..60_000u32).map(|byte| (byte % 251) as u8).collect();
            let frame = Tcp::default().flags(0x10).payload(&data).over_ip4();
            let (mut bytes, header) = merged(&frame, 1, 1448);
            let mut burst = Burst::new();
            let tag = Some([0x88, 0xa8, 0x20, 0x05]);
            cut(&mut bytes, &header, tag, pool(), &mut burst).expect("cut");
            assert_eq!(burst.len(), 60_000usize.div_ceil(1448));
            assert!(burst.iter().all(|mbuf| mbuf.bytes()[12..16] == [0x88, 0xa8, 0x20, 0x05]));
            assert_eq!(payloads(&mut burst).concat(), data);
        }

        #[test]
        fn a_train_of_datagrams_is_cut_by_the_size_that_the_kernel_tells() {
            let frame = Udp::default().payload(&[7; 3000]).over_ip6();
            let (mut bytes, header) = merged(&frame, 5, 1200);
            let mut burst = Burst::new();
            cut(&mut bytes, &header, None, pool(), &mut burst).expect("cut");
            let sizes: Vec<usize> = payloads(&mut burst).iter().map(Vec::len).collect();
            assert_eq!(sizes, [1200, 1200, 600]);
        }

        /// A frame in a VXLAN, as Linux describes it: nothing but the place of the inner transport header (a capture of Linux 6.18 has the same).
        fn in_vxlan(frame: &Frame, gso_type: u8, gso_size: u16) -> (Vec<u8>, VirtioNetHdr) {
            const OUTER: usize = 14 + 20 + 8 + 8;
            let (bytes, header) = merged(frame, gso_type, gso_size);
            let vxlan = [&[8, 0, 0, 0, 0, 0, 5, 0], &bytes[..]].concat();
            let udp = Udp { dport: 4789, ..Udp::default() };
            let csum_start = header.csum_start + OUTER as u16;
            (udp.payload(&vxlan).over_ip4().bytes(), VirtioNetHdr { csum_start, ..header })
        }

        #[test]
        fn a_merged_segment_in_a_tunnel_is_cut_where_the_kernel_says() {
            let data: Vec<u8> = (0..7000u32).map(|byte| (byte % 251) as u8).collect();
            let tcp = Tcp::default().flags(0x10).payload(&data);
            for (frame, gso_type) in
                [(tcp.clone().over_ip4(), GSO_TCP4), (tcp.over_ip6(), GSO_TCP6 | GSO_ECN)]
            {
                let (mut bytes, header) = in_vxlan(&frame, gso_type, 1398);
                let mut burst = Burst::new();
                cut(&mut bytes, &header, None, pool(), &mut burst).expect("cut");
                let mut inner: Burst =
                    burst.iter().filter_map(|mbuf| pool().copy(&mbuf.bytes()[50..])).collect();
                assert_eq!(
                    payloads(&mut inner).iter().map(Vec::len).collect::<Vec<_>>(),
                    [1398, 1398, 1398, 1398, 1398, 10]
                );
                assert_eq!(payloads(&mut inner).concat(), data);
                assert_eq!(payloads(&mut burst).len(), 6, "the outer datagrams are sound");
            }
        }

        #[test]
        fn what_the_kernel_says_must_fit_the_frame() {
            let tcp = Tcp::default().flags(0x10).payload(&[7; 5000]).over_ip4();
            let (bytes, header) = in_vxlan(&tcp, GSO_TCP4, 1000);
            for wrong in [
                VirtioNetHdr { gso_type: GSO_UDP_L4, ..header },
                VirtioNetHdr { gso_type: 3, ..header },
                VirtioNetHdr { csum_start: 34, ..header },
                VirtioNetHdr { csum_start: header.csum_start - 20, ..header },
                VirtioNetHdr { csum_start: u16::MAX, ..header },
                VirtioNetHdr { flags: 0, ..header },
                VirtioNetHdr { gso_size: 0, ..header },
            ] {
                let cut = cut(&mut bytes.clone(), &wrong, None, pool(), &mut Burst::new());
                assert_eq!(cut, Err(NotCut::Oversized), "{wrong:?}");
            }
        }

        #[test]
        fn what_does_not_fit_now_waits_and_what_never_fits_is_told() {
            let frame = Tcp::default().flags(0x10).payload(&[7; 20_000]).over_ip4();
            let (bytes, header) = merged(&frame, 1, 1000);
            let mut burst = Burst::new();
            assert!(pool().alloc(&mut burst, 250));
            assert_eq!(cut(&mut bytes.clone(), &header, None, pool(), &mut burst), Err(NotCut::NoRoom));
            assert_eq!(burst.len(), 250);
            let tiny = VirtioNetHdr { gso_size: 10, ..header };
            assert_eq!(cut(&mut bytes.clone(), &tiny, None, pool(), &mut burst), Err(NotCut::Oversized));
            let huge = VirtioNetHdr { gso_size: 9000, ..header };
            assert_eq!(
                cut(&mut bytes.clone(), &huge, None, pool(), &mut Burst::new()),
                Err(NotCut::Oversized)
            );
            assert_eq!(
                cut(&mut bytes[..20].to_vec(), &header, None, pool(), &mut burst),
                Err(NotCut::Oversized)
            );
        }
    }
}

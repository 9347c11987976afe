//! Unfinished checksums, as Linux leaves them to the device behind a veth, and oversized segments.

use mmb_packet::checksum::{pseudo_header, transport_sum};
use mmb_packet::parse::parse;
use mmb_packet::{Layout, LinkType, Packet, ParserLimits, PortId, SegmentError, Segments, finish_checksum};
use mmb_testkit::{Checksum, Extension, FragmentHeader, Frame, Icmp, Ip4, Ip6, Tcp, Udp, Upper};
use proptest::collection::vec;
use proptest::prelude::*;

fn with<T>(bytes: &mut [u8], link: LinkType, run: impl FnOnce(&mut Packet<'_>, &Layout) -> T) -> T {
    let len = bytes.len();
    let mut packet = Packet::new(bytes, 0, len, PortId(0), link).expect("a packet in its buffer");
    let layout = parse(&packet, &ParserLimits::default()).expect("a sound packet");
    run(&mut packet, &layout)
}

/// The frame with its transport checksum left unfinished.
fn unfinished(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.bytes();
    with(&mut bytes, frame.link, |packet, layout| {
        let sum = pseudo_header(packet.bytes(), layout).expect("a transport header").fold();
        let at = usize::from(layout.l4) + if layout.l4_kind == 6 { 16 } else { 6 };
        packet.bytes_mut()[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    });
    bytes
}

fn frames(tcp: &Tcp, udp: &Udp) -> Vec<Frame> {
    let options = || Ip4 { options: vec![148, 4, 0, 0], ..Ip4::new(Upper::Tcp(tcp.clone())) };
    let extended = Ip6::new(Upper::Udp(udp.clone())).extension(Extension::Plain(60, vec![1, 2, 3]));
    vec![
        tcp.clone().over_ip4(),
        tcp.clone().over_ip6().vlan(7),
        udp.clone().over_ip4().vlan(1).service_vlan(2),
        udp.clone().over_ip6().trailer(&[9; 5]),
        options().frame(),
        extended.frame(),
    ]
}

proptest! {
    #[test]
    fn an_unfinished_checksum_becomes_the_right_one(payload in vec(any::<u8>(), 0..100), ports in any::<(u16, u16)>()) {
        let tcp = Tcp { sport: ports.0, dport: ports.1, ..Tcp::default() }.payload(&payload);
        let udp = Udp { sport: ports.0, dport: ports.1, ..Udp::default() }.payload(&payload);
        for frame in frames(&tcp, &udp) {
            let mut bytes = unfinished(&frame);
            prop_assert!(with(&mut bytes, frame.link, finish_checksum));
            prop_assert_eq!(&bytes, &frame.bytes());
            // Finished once, it is not touched again, or comes out the same.
            with(&mut bytes, frame.link, finish_checksum);
            prop_assert_eq!(&bytes, &frame.bytes());
        }
    }

    #[test]
    fn any_other_checksum_is_left(off in 1u16..0xffff) {
        let tcp = Tcp { checksum: Checksum::Off(off), ..Tcp::default() };
        let udp = Udp { checksum: Checksum::Off(off), ..Udp::default() };
        for frame in frames(&tcp, &udp) {
            let bytes = frame.bytes();
            prop_assume!(bytes != unfinished(&frame));
            let mut after = bytes.clone();
            prop_assert!(!with(&mut after, frame.link, finish_checksum));
            prop_assert_eq!(after, bytes);
        }
    }
}

#[test]
fn only_whole_tcp_and_udp_is_finished() {
    let fragment = Extension::Fragment(FragmentHeader { offset: 0, more: true });
    let udp = || Upper::Udp(Udp { checksum: Checksum::Is(0), ..Udp::default() });
    for frame in [
        Ip4 { flags: 1, ..Ip4::new(Upper::Tcp(Tcp::default())) }.frame(),
        Ip6::new(Upper::Tcp(Tcp::default())).extension(fragment).frame(),
        Ip6::new(Upper::Tcp(Tcp::default())).extension(Extension::Routing(0, 1)).frame(),
    ] {
        let mut bytes = unfinished(&frame);
        assert!(!with(&mut bytes, frame.link, finish_checksum));
    }
    for frame in
        [Ip4::new(udp()).frame(), Icmp::default().over_ip4(), Icmp::default().over_ip6(), Frame::arp()]
    {
        assert!(!with(&mut frame.bytes(), frame.link, finish_checksum));
    }
}

/// Cuts a frame and returns the frames.
fn cut(frame: &Frame, mtu: usize) -> Result<Vec<Vec<u8>>, SegmentError> {
    let mut bytes = frame.bytes();
    with(&mut bytes, frame.link, |packet, layout| {
        let mut segments = Segments::new(packet, layout, mtu)?;
        let mut frames = Vec::new();
        let mut buffer = vec![0xa5; mtu + 64];
        while let Some(expected) = segments.next_len() {
            let len = segments.write_next(&mut buffer)?.expect("one more frame");
            assert_eq!(len, expected);
            frames.push(buffer[..len].to_vec());
        }
        assert_eq!(segments.write_next(&mut buffer), Ok(None));
        assert_eq!(frames.len(), segments.count());
        Ok(frames)
    })
}

/// A TCP header's sequence number and flags, IPv4's identification, and the payload.
fn read(bytes: &[u8], link: LinkType) -> (u32, u8, u16, Vec<u8>, Layout) {
    let mut bytes = bytes.to_vec();
    with(&mut bytes, link, |packet, layout| {
        let bytes = packet.bytes();
        assert_eq!(transport_sum(bytes, layout).map(|sum| sum.fold()), Some(0xffff));
        let l4 = usize::from(layout.l4);
        let seq = u32::from_be_bytes(bytes[l4 + 4..l4 + 8].try_into().expect("four bytes"));
        let ip = usize::from(layout.ip);
        let id = u16::from_be_bytes([bytes[ip + 4], bytes[ip + 5]]);
        (seq, bytes[l4 + 13], id, bytes[layout.payload_range()].to_vec(), *layout)
    })
}

proptest! {
    #[test]
    fn segments_put_together_are_the_packet(
        payload in vec(any::<u8>(), 0..5000),
        mtu in 120usize..1500,
        six in any::<bool>(),
        seq in prop_oneof![any::<u32>(), Just(u32::MAX - 100)],
        flags in any::<u8>().prop_map(|flags| flags & !0x26),
        options in vec(any::<u8>(), 0..40),
    ) {
        let tcp = Tcp { seq, flags, ..Tcp::default() }.raw_options(&options).payload(&payload);
        let frame = if six {
            Ip6::new(Upper::Tcp(tcp)).extension(Extension::Plain(0, vec![])).frame()
        } else {
            Ip4 { id: 0xfffe, options: vec![148, 4, 0, 0], ..Ip4::new(Upper::Tcp(tcp)) }.frame().vlan(3)
        };
        let whole = frame.bytes();
        let (_, _, _, _, original) = read(&whole, frame.link);
        let segments = cut(&frame, mtu).expect("a TCP packet");
        let mut together = Vec::new();
        for (i, segment) in segments.iter().enumerate() {
            let (segment_seq, segment_flags, id, bytes, layout) = read(segment, frame.link);
            let last = i + 1 == segments.len();
            prop_assert_eq!(segment_seq, seq.wrapping_add(together.len() as u32));
            let left_out = if last { 0 } else { 0x09 } | if i > 0 { 0x80 } else { 0 };
            prop_assert_eq!(segment_flags, flags & !left_out);
            prop_assert!(six || id == 0xfffeu16.wrapping_add(i as u16));
            let size = layout.end as usize - usize::from(layout.ip);
            prop_assert!(size == mtu || last && size < mtu);
            // All that is not length, sequence, flags, identification and checksum is the packet's.
            prop_assert_eq!(&segment[..original.ip as usize], &whole[..original.ip as usize]);
            prop_assert_eq!(layout.tcp_options(), original.tcp_options());
            prop_assert_eq!(&segment[layout.tcp_options()], &whole[original.tcp_options()]);
            together.extend(bytes);
        }
        prop_assert_eq!(together, payload);
        if segments.len() == 1 {
            prop_assert_eq!(&segments[0], &whole);
        }
    }
}

#[test]
fn urgent_data_keeps_its_end() {
    let tcp = Tcp { flags: 0x30, urgent: 150, ..Tcp::default() }.payload(&[7; 300]);
    let frame = tcp.over_ip4();
    let urgent: Vec<(bool, u16)> = cut(&frame, 140)
        .expect("a TCP packet")
        .iter()
        .map(|bytes| (bytes[47] & 0x20 != 0, u16::from_be_bytes([bytes[52], bytes[53]])))
        .collect();
    assert_eq!(urgent, [(true, 150), (true, 50), (false, 0)]);
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let refusal = |frame: &Frame, mtu| cut(frame, mtu).err();
    let segment = || Tcp::default().flags(0x10).payload(&[1; 100]);
    assert_eq!(refusal(&Udp::default().payload(&[1; 100]).over_ip4(), 60), Some(SegmentError::Udp));
    assert_eq!(refusal(&Icmp::default().over_ip4(), 60), Some(SegmentError::NotTcp(1)));
    assert_eq!(refusal(&segment().flags(0x02).over_ip6(), 80), Some(SegmentError::Handshake));
    let fragment = Ip4 { flags: 1, ..Ip4::new(Upper::Tcp(segment())) }.frame();
    assert_eq!(refusal(&fragment, 60), Some(SegmentError::Fragment));
    let routed = Ip6::new(Upper::Tcp(segment())).extension(Extension::Routing(0, 1)).frame();
    assert_eq!(refusal(&routed, 100), Some(SegmentError::SourceRouted));
    let small = SegmentError::MtuTooSmall { mtu: 40, headers: 40 };
    assert_eq!(refusal(&segment().over_ip4(), 40), Some(small));
    assert_eq!(cut(&segment().over_ip4(), 41).map(|frames| frames.len()), Ok(100));
}

#[test]
fn a_short_buffer_loses_no_segment() {
    let frame = Tcp::default().flags(0x10).payload(&[1; 100]).over_ip4();
    let mut bytes = frame.bytes();
    with(&mut bytes, frame.link, |packet, layout| {
        let mut segments = Segments::new(packet, layout, 90).expect("a TCP packet");
        let mut buffer = [0; 200];
        let short = segments.write_next(&mut buffer[..103]);
        assert_eq!(short, Err(SegmentError::BufferTooSmall { frame: 104, buffer: 103 }));
        assert_eq!(segments.write_next(&mut buffer), Ok(Some(104)));
        assert_eq!(segments.write_next(&mut buffer), Ok(Some(104)));
        assert_eq!(segments.write_next(&mut buffer), Ok(None));
    });
}

#[test]
fn datagrams_of_a_train_are_whole_packets() {
    let payload: Vec<u8> = (0..2500u32).map(|byte| byte as u8).collect();
    let udp = Udp::default().payload(&payload);
    for frame in [udp.clone().over_ip4().vlan(3), udp.over_ip6()] {
        let mut whole = frame.bytes();
        let cut = with(&mut whole, frame.link, |packet, layout| {
            let mut datagrams = Segments::datagrams(packet, layout, 1200).expect("a UDP packet");
            assert_eq!(datagrams.count(), 3);
            let mut cut = Vec::new();
            while let Some(len) = datagrams.next_len() {
                let mut frame = vec![0; len];
                assert_eq!(datagrams.write_next(&mut frame), Ok(Some(len)));
                cut.push(frame);
            }
            cut
        });
        let mut together: Vec<u8> = Vec::new();
        for mut datagram in cut {
            with(&mut datagram, frame.link, |packet, layout| {
                let sum = transport_sum(packet.bytes(), layout).expect("a transport header");
                assert_eq!(sum.fold(), 0xffff);
                let header = &packet.bytes()[usize::from(layout.l4)..];
                let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
                assert_eq!(length, layout.end as usize - usize::from(layout.l4));
                together.extend(&packet.bytes()[layout.payload_range()]);
            });
        }
        assert_eq!(together, payload);
    }
    let mut tcp = Tcp::default().payload(&payload).over_ip4().bytes();
    let refused =
        with(&mut tcp, LinkType::Ethernet, |packet, layout| Segments::datagrams(packet, layout, 9).err());
    assert_eq!(refused, Some(SegmentError::NotUdp(6)));
}

#[test]
fn an_sctp_checksum_of_zero_is_unfinished() {
    let mut sctp = vec![0x0b, 0x59, 0x0b, 0x59, 0, 0, 0, 1, 0, 0, 0, 0, 4, 0, 0, 8, 0, 1, 0, 4];
    let right = mmb_packet::crc::crc32c(&sctp).to_le_bytes();
    for frame in [
        Ip4::new(Upper::Raw(132, sctp.clone())).frame().trailer(&[9; 7]),
        Ip6::new(Upper::Raw(132, sctp.clone())).extension(Extension::Plain(0, vec![])).frame().vlan(5),
    ] {
        let mut bytes = frame.bytes();
        let before = bytes.clone();
        assert!(with(&mut bytes, frame.link, finish_checksum));
        let at = before.windows(20).position(|window| window == sctp).expect("the packet") + 8;
        assert_eq!(bytes[at..at + 4], right);
        assert_eq!((&bytes[..at], &bytes[at + 4..]), (&before[..at], &before[at + 4..]));
        let finished = bytes.clone();
        assert!(!with(&mut bytes, frame.link, finish_checksum));
        assert_eq!(bytes, finished);
    }
    // Too short to hold a checksum: left alone.
    sctp.truncate(11);
    let short = Ip4::new(Upper::Raw(132, sctp)).frame();
    assert!(!with(&mut short.bytes(), short.link, finish_checksum));
}

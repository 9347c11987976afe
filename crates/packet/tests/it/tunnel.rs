//! Segmentation of packets in tunnels: each segment is byte for byte the packet that its sender would have built, with outer headers of its own.

use mmb_packet::checksum::pseudo_header;
use mmb_packet::parse::parse;
use mmb_packet::{
    Joinable, LinkType, Packet, ParserLimits, PortId, SegmentError, Segments, Superframe, TunnelHeaders,
    TunnelKind, Tunnels, finish_checksum,
};
use mmb_testkit::{Checksum, Extension, Frame, Ip4, Ip6, Tcp, Udp, Upper};
use proptest::prelude::*;

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const ALL: Joinable = Joinable { tcp: true, udp: true, tunnels: true };
/// The identification of the first segment in outer IPv4 headers. It wraps after two segments.
const OUTER_ID: u16 = 0xfffe;

/// A kind of tunnel around a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tunnel {
    /// RFC 7348, with an outer UDP checksum or none; the inner frame has a VLAN tag or none.
    Vxlan { checksum: bool, vlan: bool },
    /// RFC 8926, with this number of option words.
    Geneve { checksum: bool, words: u8 },
    /// RFC 2784 and RFC 2890, with these of a checksum, a key and a sequence number, and an inner Ethernet frame or an inner packet.
    Gre { flags: u8, ethernet: bool },
    /// IP in IP (RFC 2003, RFC 2473, RFC 4213).
    Ip,
    /// UDP with the inner packet right after it (GUE variant 1).
    Udp,
}

const TUNNELS: [Tunnel; 10] = [
    Tunnel::Vxlan { checksum: false, vlan: false },
    Tunnel::Vxlan { checksum: true, vlan: true },
    Tunnel::Geneve { checksum: true, words: 0 },
    Tunnel::Geneve { checksum: false, words: 63 },
    Tunnel::Gre { flags: 0, ethernet: true },
    Tunnel::Gre { flags: 0xb0, ethernet: false },
    Tunnel::Gre { flags: 0x80, ethernet: true },
    Tunnel::Gre { flags: 0x20, ethernet: false },
    Tunnel::Ip,
    Tunnel::Udp,
];

/// An IP packet of either version.
fn ip(six: bool, id: u16, upper: Upper) -> Frame {
    match six {
        true => Ip6 { flow_label: 77, ..Ip6::new(upper) }.frame(),
        false => Ip4 { id, flags: 2, ..Ip4::new(upper) }.frame(),
    }
}

impl Tunnel {
    /// The packet in this tunnel, over IPv4 or IPv6.
    fn around(self, inner: &Frame, six: bool, id: u16) -> Frame {
        let packet = inner.clone().link(LinkType::RawIp).bytes();
        let is_six = packet[0] >> 4 == 6;
        let ethernet = |vlan: bool| if vlan { inner.clone().vlan(9).bytes() } else { inner.bytes() };
        let udp = |checksum: bool, header: &[u8], payload: &[u8]| {
            let checksum = if checksum { Checksum::Right } else { Checksum::Is(0) };
            let udp = Udp { dport: 5555, checksum, ..Udp::default() };
            Upper::Udp(udp.payload(&[header, payload].concat()))
        };
        let upper = match self {
            Tunnel::Vxlan { checksum, vlan } => udp(checksum, &[8, 0, 0, 0, 0, 0, 5, 0], &ethernet(vlan)),
            Tunnel::Geneve { checksum, words } => {
                let mut header = vec![words, 0, 0x65, 0x58, 0, 0, 5, 0];
                // Options that look like the first byte of an IP header.
                header.extend(vec![0x45; usize::from(words) * 4]);
                udp(checksum, &header, &ethernet(false))
            }
            Tunnel::Gre { flags, ethernet: true } => gre(flags, 0x6558, &ethernet(false)),
            Tunnel::Gre { flags, ethernet: false } => {
                gre(flags, if is_six { 0x86dd } else { 0x0800 }, &packet)
            }
            Tunnel::Ip => Upper::Raw(if is_six { 41 } else { 4 }, packet),
            Tunnel::Udp => udp(true, &[], &packet),
        };
        ip(six, id, upper)
    }
}

/// The sum of 16-bit words, folded and inverted (RFC 1071).
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn gre(flags: u8, protocol: u16, payload: &[u8]) -> Upper {
    let mut bytes = vec![flags, 0];
    bytes.extend(protocol.to_be_bytes());
    if flags & 0x80 != 0 {
        bytes.extend([0; 4]);
    }
    for option in [0x20, 0x10] {
        if flags & option != 0 {
            bytes.extend([option, 1, 2, 3]);
        }
    }
    bytes.extend(payload);
    if flags & 0x80 != 0 {
        let checksum = internet_checksum(&bytes);
        bytes[4..6].copy_from_slice(&checksum.to_be_bytes());
    }
    Upper::Raw(47, bytes)
}

/// Payload whose bytes tell offsets apart.
fn data(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at >> 8) as u8).collect()
}

/// Tunnels around an inner packet.
#[derive(Clone, Debug)]
struct Nest {
    /// Innermost first; true for an outer IPv6 header.
    tunnels: Vec<(Tunnel, bool)>,
    six: bool,
    is_tcp: bool,
}

impl Nest {
    /// Segment number `index`, with this payload, which begins `start` bytes into the whole payload.
    fn piece(&self, payload: &[u8], start: usize, index: u16, flags: u8) -> Frame {
        let upper = match self.is_tcp {
            true => {
                let seq = (u32::MAX - 2000).wrapping_add(start as u32);
                let tcp =
                    Tcp { seq, flags, ..Tcp::default() }.raw_options(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
                Upper::Tcp(tcp.payload(payload))
            }
            false => Upper::Udp(Udp::default().payload(payload)),
        };
        let mut frame = ip(self.six, index, upper);
        for &(tunnel, six) in &self.tunnels {
            frame = tunnel.around(&frame, six, OUTER_ID.wrapping_add(index));
        }
        frame
    }

    fn pieces(&self, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
        let last = payload.len().div_ceil(size) - 1;
        let flags = |index| if index == last { ACK | PSH } else { ACK };
        let chunks = payload.chunks(size).enumerate();
        chunks.map(|(at, chunk)| self.piece(chunk, at * size, at as u16, flags(at)).bytes()).collect()
    }

    /// The offset of the inner transport header: where its bytes begin.
    fn l4(&self, whole: &[u8], payload: &[u8]) -> usize {
        whole.len() - payload.len() - if self.is_tcp { 32 } else { 8 }
    }
}

fn packet(bytes: &mut [u8]) -> Packet<'_> {
    let len = bytes.len();
    Packet::new(bytes, 0, len, PortId(0), LinkType::Ethernet).expect("a packet in its buffer")
}

/// Cuts the packet whose transport header lies at `l4`.
fn cut(bytes: &mut [u8], l4: usize, size: usize) -> Result<Vec<Vec<u8>>, SegmentError> {
    let packet = packet(bytes);
    let layout = parse(&packet, &ParserLimits::default()).expect("a sound packet");
    let tunnels = Tunnels::around(packet.bytes(), &layout, l4).ok_or(SegmentError::NoTunnel)?;
    let mut segments = Segments::in_tunnels(&packet, &tunnels, size)?;
    let mut frames = Vec::new();
    while let Some(len) = segments.next_len() {
        let mut frame = vec![0xa5; len];
        assert_eq!(segments.write_next(&mut frame), Ok(Some(len)));
        frames.push(frame);
    }
    Ok(frames)
}

fn nest() -> impl Strategy<Value = Nest> {
    let tunnel = (prop::sample::select(TUNNELS.to_vec()), any::<bool>());
    (prop::collection::vec(tunnel, 0..4), any::<(bool, bool)>()).prop_map(|(tunnels, (six, is_tcp))| Nest {
        tunnels,
        six,
        is_tcp,
    })
}

#[test]
fn a_packet_in_any_tunnel_is_cut_into_what_its_sender_would_have_sent() {
    let payload = data(5001);
    for tunnel in TUNNELS {
        for number in 0..8u8 {
            let [outer_six, six, is_tcp] = [1, 2, 4].map(|bit| number & bit != 0);
            let nest = Nest { tunnels: vec![(tunnel, outer_six)], six, is_tcp };
            let mut whole = nest.piece(&payload, 0, 0, ACK | PSH).bytes();
            let l4 = nest.l4(&whole, &payload);
            assert_eq!(cut(&mut whole, l4, 1398), Ok(nest.pieces(&payload, 1398)), "{nest:?}");
        }
    }
}

/// What Linux does with a superframe of TCP (`skb_udp_tunnel_segment`, `inet_gso_segment`, `tcp_gso_segment`): it copies the headers, and writes lengths,
/// identifications, the checksums of IPv4, and of TCP the number, the flags and the checksum. A checksum of UDP stays as it is.
fn cut_as_linux(superframe: &Superframe, whole: &[u8]) -> Vec<Vec<u8>> {
    fn write(frame: &mut [u8], at: usize, number: usize) {
        frame[at..at + 2].copy_from_slice(&(number as u16).to_be_bytes());
    }
    let word = |frame: &[u8], at: usize| usize::from(frame[at]) << 8 | usize::from(frame[at + 1]);
    let (headers, payload) = whole.split_at(superframe.headers().len());
    let (tunnel, l4, size) =
        (superframe.tunnel(), usize::from(superframe.l4()), usize::from(superframe.segment_payload()));
    let inner = 14 + tunnel.map_or(0, |tunnel| usize::from(tunnel.len));
    let ip = |frame: &mut [u8], at: usize, number: usize| {
        let len = frame.len() - at;
        if frame[at] >> 4 == 6 {
            write(frame, at + 4, len - 40);
            return;
        }
        write(frame, at + 2, len);
        write(frame, at + 4, word(frame, at + 4) + number);
        write(frame, at + 10, 0);
        let checksum = internet_checksum(&frame[at..at + 20]);
        write(frame, at + 10, checksum.into());
    };
    let segment = |(number, chunk): (usize, &[u8])| {
        let mut frame = [headers, chunk].concat();
        let len = frame.len();
        ip(&mut frame, inner, number);
        if let Some(tunnel) = tunnel {
            ip(&mut frame, 14, number);
            let udp = 14 + if tunnel.is_ip6 { 40 } else { 20 };
            if tunnel.kind == TunnelKind::Udp {
                write(&mut frame, udp + 4, len - udp);
            }
        }
        let seq = u32::from_be_bytes(frame[l4 + 4..l4 + 8].try_into().expect("four bytes"));
        frame[l4 + 4..l4 + 8].copy_from_slice(&seq.wrapping_add((number * size) as u32).to_be_bytes());
        if (number + 1) * size < payload.len() {
            frame[l4 + 13] &= !0x09;
        }
        write(&mut frame, l4 + 16, 0);
        let addresses = if superframe.is_ip6() { 32 } else { 8 };
        let mut summed = frame[l4 - addresses..l4].to_vec();
        summed.extend([0, 6]);
        summed.extend(((len - l4) as u16).to_be_bytes());
        summed.extend(&frame[l4..]);
        write(&mut frame, l4 + 16, internet_checksum(&summed).into());
        frame
    };
    payload.chunks(size).enumerate().map(segment).collect()
}

/// How many pieces are joined, if any, and the tunnel. What is joined must be these pieces again when it is cut.
#[track_caller]
fn joined(pieces: &[Vec<u8>]) -> (usize, Option<TunnelHeaders>) {
    let Some(superframe) = Superframe::join(pieces.iter().map(Vec::as_slice), ALL) else { return (0, None) };
    let headers = superframe.headers();
    let joined = &pieces[..superframe.frames()];
    let payloads = joined.iter().map(|piece| &piece[headers.len()..]);
    let mut whole: Vec<u8> = std::iter::once(headers).chain(payloads).collect::<Vec<_>>().concat();
    let again = cut(&mut whole, superframe.l4().into(), superframe.segment_payload().into());
    assert_eq!(again, Ok(joined.to_vec()));
    if superframe.transport() == 6 {
        assert_eq!(cut_as_linux(&superframe, &whole), joined);
    }
    (superframe.frames(), superframe.tunnel())
}

/// All segments of TCP in one tunnel become one, which says what the tunnel is.
#[test]
fn segments_in_a_tunnel_are_joined() {
    let kinds = [
        (Tunnel::Vxlan { checksum: false, vlan: false }, Some((TunnelKind::Udp, true, 8 + 8 + 14))),
        (Tunnel::Vxlan { checksum: false, vlan: true }, Some((TunnelKind::Udp, true, 8 + 8 + 18))),
        (Tunnel::Vxlan { checksum: true, vlan: false }, Some((TunnelKind::Udp, true, 8 + 8 + 14))),
        (Tunnel::Geneve { checksum: false, words: 2 }, Some((TunnelKind::Udp, true, 8 + 16 + 14))),
        (Tunnel::Geneve { checksum: false, words: 63 }, None),
        (Tunnel::Gre { flags: 0, ethernet: true }, Some((TunnelKind::Gre, true, 4 + 14))),
        (Tunnel::Gre { flags: 0x20, ethernet: false }, Some((TunnelKind::Gre, false, 8))),
        (Tunnel::Gre { flags: 0x80, ethernet: true }, None),
        (Tunnel::Ip, Some((TunnelKind::Ip, false, 0))),
    ];
    for (tunnel, expected) in kinds {
        for [is_ip6, six] in [[false, false], [false, true], [true, false], [true, true]] {
            let nest = Nest { tunnels: vec![(tunnel, is_ip6)], six, is_tcp: true };
            let network = if is_ip6 { 40 } else { 20 };
            let expected = expected.map(|(kind, has_ethernet, len)| TunnelHeaders {
                kind,
                is_ip6,
                has_ethernet,
                len: network + len,
            });
            let count = if expected.is_some() { 5 } else { 0 };
            assert_eq!(joined(&nest.pieces(&data(5000), 1000)), (count, expected), "{nest:?}");
        }
    }
}

#[test]
fn segments_in_a_tunnel_with_a_checksum_have_one_length() {
    let checked = |six, is_ip6| Nest {
        tunnels: vec![(Tunnel::Vxlan { checksum: true, vlan: false }, is_ip6)],
        six,
        is_tcp: true,
    };
    for [six, is_ip6] in [[false, false], [false, true], [true, false], [true, true]] {
        let pieces = checked(six, is_ip6).pieces(&data(4001), 1000);
        assert_eq!(joined(&pieces).0, 4);
        // With another checksum than the others, or with a wrong one.
        let at = if is_ip6 { 60 } else { 40 };
        let mut odd = pieces.clone();
        odd[2][at] ^= 1;
        assert_eq!(joined(&odd).0, 2);
        let mut wrong = pieces;
        wrong.iter_mut().for_each(|piece| piece[at] ^= 1);
        assert_eq!(joined(&wrong).0, 0);
    }
}

#[test]
fn other_datagrams_in_a_tunnel_with_a_checksum_leave_as_a_train() {
    let tunnel = Tunnel::Vxlan { checksum: true, vlan: false };
    let pieces = Nest { tunnels: vec![(tunnel, false)], six: false, is_tcp: false }.pieces(&data(4001), 1000);
    assert_eq!(joined(&pieces), (5, None));
}

#[test]
fn a_difference_in_the_headers_of_a_tunnel_ends_what_is_joined() {
    let nest = |tunnel| Nest { tunnels: vec![(tunnel, false)], six: false, is_tcp: true };
    let vxlan = nest(Tunnel::Vxlan { checksum: false, vlan: false }).pieces(&data(5000), 1000);
    // Outer addresses of Ethernet, the source port, the VNI, inner addresses of Ethernet, the type of the inner packet.
    for at in [0, 11, 34, 46, 50, 62] {
        let mut pieces = vxlan.clone();
        pieces[3][at] ^= 1;
        assert_eq!(joined(&pieces).0, 3, "byte {at}");
    }
    let gre = nest(Tunnel::Gre { flags: 0x30, ethernet: false }).pieces(&data(5000), 1000);
    assert_eq!(joined(&gre).0, 5);
    let counted = gre.into_iter().zip(0..).map(|(mut piece, number)| {
        piece[45] = number;
        piece
    });
    assert_eq!(joined(&counted.collect::<Vec<_>>()).0, 0, "sequence numbers of GRE");
}

proptest! {
    #[test]
    fn tunnels_in_tunnels_are_cut(nest in nest(), len in 2usize..4000, size in 100usize..1400) {
        let payload = data(len);
        let mut whole = nest.piece(&payload, 0, 0, ACK | PSH).bytes();
        let l4 = nest.l4(&whole, &payload);
        prop_assert_eq!(cut(&mut whole, l4, size), Ok(nest.pieces(&payload, size)));
    }

    #[test]
    fn pieces_that_are_joined_are_cut_into_the_same_pieces(nest in nest(), len in 200usize..9000, size in 100usize..1400) {
        joined(&nest.pieces(&data(len), size));
    }

    /// A change of any byte ends what is joined, or the cut pieces have it too.
    #[test]
    fn changed_bytes_are_never_lost(
        nest in nest(),
        piece in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        by in 1u8..,
    ) {
        let mut pieces = nest.pieces(&data(3000), 700);
        let piece = piece.get_mut(&mut pieces);
        *at.get_mut(piece) ^= by;
        joined(&pieces);
    }

    #[test]
    fn the_unfinished_checksum_in_a_tunnel_becomes_the_right_one(nest in nest(), len in 0usize..300) {
        let frame = nest.piece(&data(len), 0, 0, ACK).bytes();
        let mut unfinished = frame.clone();
        let l4 = nest.l4(&frame, &data(len));
        let packet = packet(&mut unfinished);
        let layout = parse(&packet, &ParserLimits::default()).expect("a sound packet");
        let tunnels = Tunnels::around(packet.bytes(), &layout, l4).expect("the way to the header");
        let sum = pseudo_header(packet.bytes(), tunnels.inner()).expect("a transport header").fold();
        let at = l4 + if nest.is_tcp { 16 } else { 6 };
        unfinished[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let mut packet = self::packet(&mut unfinished);
        prop_assert!(finish_checksum(&mut packet, &layout));
        prop_assert_eq!(unfinished, frame);
    }

    /// Lengths and offsets that lie: no panic, and nothing is cut that ends elsewhere.
    #[test]
    fn no_bytes_are_impossible(
        nest in nest(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        l4 in 0usize..400,
        right in any::<bool>(),
        size in 0usize..300,
    ) {
        let payload = data(400);
        let mut whole = nest.piece(&payload, 0, 0, ACK).bytes();
        let l4 = if right { nest.l4(&whole, &payload) } else { l4 };
        let headers = nest.l4(&whole, &payload) + 8;
        for (at, byte) in changes {
            whole[at.index(headers)] = byte;
        }
        let mut packet = self::packet(&mut whole);
        let Ok(layout) = parse(&packet, &ParserLimits::default()) else { return Ok(()) };
        finish_checksum(&mut packet, &layout);
        let pieces = cut(&mut whole.clone(), l4, size);
        let cut: usize = pieces.map_or(0, |pieces| pieces.iter().map(Vec::len).sum());
        prop_assert!(cut == 0 || cut + 400 >= whole.len());
    }
}

#[test]
fn what_leads_nowhere_is_refused() {
    let payload = data(300);
    let nest = |tunnel| Nest { tunnels: vec![(tunnel, false)], six: false, is_tcp: true };
    for tunnel in TUNNELS {
        let nest = nest(tunnel);
        let whole = nest.piece(&payload, 0, 0, ACK).bytes();
        let l4 = nest.l4(&whole, &payload);
        for wrong in [0, l4 - 2, l4 + 2, l4 + 20, 0xffff] {
            assert_eq!(
                cut(&mut whole.clone(), wrong, 100),
                Err(SegmentError::NoTunnel),
                "{tunnel:?} {wrong}"
            );
        }
        // One byte more than the inner packet says.
        let mut longer = whole.clone();
        longer.push(0);
        let total = (longer.len() - 14) as u16;
        longer[16..18].copy_from_slice(&total.to_be_bytes());
        longer[24..26].fill(0);
        let checksum = internet_checksum(&longer[14..34]);
        longer[24..26].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(cut(&mut longer, l4, 100), Err(SegmentError::NoTunnel), "{tunnel:?}");
    }
    let syn = nest(Tunnel::Ip).piece(&payload, 0, 0, 0x02).bytes();
    assert_eq!(cut(&mut syn.clone(), 54, 100), Err(SegmentError::Handshake));
    let mut routed = Ip6::new(Upper::Raw(4, Ip4::new(Upper::Tcp(Tcp::default().payload(&payload))).bytes()))
        .extension(Extension::Routing(4, 1))
        .frame()
        .bytes();
    assert_eq!(cut(&mut routed, 14 + 40 + 24 + 20, 100), Err(SegmentError::SourceRouted));
}

/// Linux's IPv6 tunnels have a header of destination options (RFC 2473 section 4.1.1).
#[test]
fn extension_headers_of_the_outer_packet_are_kept() {
    let payload = data(1000);
    let piece = |payload: &[u8], start: u32| {
        let inner = Ip6::new(Upper::Tcp(Tcp { seq: start, flags: ACK, ..Tcp::default() }.payload(payload)));
        let outer = Ip6::new(Upper::Raw(41, inner.bytes()));
        outer.extension(Extension::Plain(60, vec![4, 1, 4, 1, 1, 0])).frame().vlan(3).bytes()
    };
    let mut whole = piece(&payload, 0);
    let expected = vec![piece(&payload[..600], 0), piece(&payload[600..], 600)];
    assert_eq!(cut(&mut whole, 18 + 40 + 8 + 40, 600), Ok(expected));
}

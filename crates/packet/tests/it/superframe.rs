//! Superframes: frames that were cut from one become that one again, and nothing is joined that would be cut otherwise.

use mmb_packet::checksum::pseudo_header;
use mmb_packet::parse::parse;
use mmb_packet::{
    Joinable, Layout, LinkType, Packet, ParserLimits, PortId, Segments, Superframe, finish_checksum,
};
use mmb_testkit::{Checksum, Extension, Frame, Ip4, Ip6, Tcp, Udp, Upper};
use proptest::collection::vec;
use proptest::prelude::*;

const ACK: u8 = 0x10;
const ALL: Joinable = Joinable { tcp: true, udp: true, tunnels: true };

fn with<T>(bytes: &mut [u8], run: impl FnOnce(&mut Packet<'_>, &Layout) -> T) -> T {
    let len = bytes.len();
    let mut packet =
        Packet::new(bytes, 0, len, PortId(0), LinkType::Ethernet).expect("a packet in its buffer");
    let layout = parse(&packet, &ParserLimits::default()).expect("a sound packet");
    run(&mut packet, &layout)
}

/// Cuts a frame into ones with `size` bytes of payload.
fn cut(bytes: &mut [u8], size: usize) -> Vec<Vec<u8>> {
    with(bytes, |packet, layout| {
        let mut segments = match layout.l4_kind {
            6 => Segments::new(packet, layout, usize::from(layout.payload - layout.ip) + size),
            _ => Segments::datagrams(packet, layout, size),
        }
        .expect("it can be cut");
        let mut frames = Vec::new();
        while let Some(len) = segments.next_len() {
            let mut frame = vec![0; len];
            segments.write_next(&mut frame).expect("there is room");
            frames.push(frame);
        }
        frames
    })
}

fn join(frames: &[Vec<u8>]) -> Option<Superframe> {
    Superframe::join(frames.iter().map(Vec::as_slice), ALL)
}

/// The whole superframe of frames.
fn whole(superframe: &Superframe, frames: &[Vec<u8>]) -> Vec<u8> {
    let headers = superframe.headers();
    let payloads = frames[..superframe.frames()].iter().map(|frame| &frame[headers.len()..]);
    std::iter::once(headers).chain(payloads).collect::<Vec<_>>().concat()
}

/// What is joined must be these frames again when it is cut. Returns how many are joined.
#[track_caller]
fn joined(frames: &[Vec<u8>]) -> usize {
    let Some(superframe) = join(frames) else { return 0 };
    let mut bytes = whole(&superframe, frames);
    assert!(bytes.len() - 14 <= 65_535);
    assert!(with(&mut bytes, finish_checksum), "the checksum is unfinished");
    let again = cut(&mut bytes, superframe.segment_payload().into());
    assert_eq!(again, frames[..superframe.frames()]);
    superframe.frames()
}

fn over(six: bool, id: u16, upper: Upper) -> Frame {
    match six {
        true => Ip6::new(upper).frame(),
        false => Ip4 { id, flags: 2, ..Ip4::new(upper) }.frame(),
    }
}

/// Payload that tells every place from any other.
fn data(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at >> 8) as u8).collect()
}

proptest! {
    #[test]
    fn frames_that_were_cut_from_one_become_that_one(
        len in 2usize..9000,
        size in 1usize..1500,
        (six, is_tcp) in any::<(bool, bool)>(),
        id in prop_oneof![any::<u16>(), Just(u16::MAX)],
        seq in prop_oneof![any::<u32>(), Just(u32::MAX - 100)],
        ends in prop::sample::select(vec![0u8, 1, 8, 9, 0x40, 0x48]),
        options in vec(any::<u8>(), 0..40),
    ) {
        // At least two pieces, and not more than a train of datagrams may have.
        let size = (size % (len - 1) + 1).max(len.div_ceil(64));
        let upper = match is_tcp {
            true => Upper::Tcp(Tcp { seq, flags: ACK | ends, ..Tcp::default() }.raw_options(&options).payload(&data(len))),
            false => Upper::Udp(Udp::default().payload(&data(len))),
        };
        let mut original = over(six, id, upper).bytes();
        let frames = cut(&mut original.clone(), size);
        let superframe = join(&frames).expect("they go together");
        prop_assert_eq!(superframe.frames(), frames.len());
        prop_assert_eq!(usize::from(superframe.segment_payload()), size);
        with(&mut original, |packet, layout| {
            let sum = pseudo_header(packet.bytes(), layout).expect("a transport header").fold();
            let at = usize::from(layout.l4) + if is_tcp { 16 } else { 6 };
            packet.bytes_mut()[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        });
        prop_assert_eq!(whole(&superframe, &frames), original);
        prop_assert_eq!(joined(&frames), frames.len());
    }

    /// Frames that mostly follow each other.
    #[test]
    fn whatever_is_joined_is_cut_into_the_same_frames(
        six in any::<bool>(),
        steps in vec((0u8..40, 1usize..4), 2..8),
    ) {
        let (mut seq, mut id) = (1u32, 7u16);
        let frames: Vec<Vec<u8>> = steps.iter().map(|&(odd, len)| {
            let mut tcp = Tcp { seq, flags: ACK, ..Tcp::default() }.payload(&data(if odd > 8 { 3 } else { len }));
            seq += tcp.payload.len() as u32;
            id += 1;
            match odd {
                0 => tcp.seq += 1,
                1 => id += 1,
                2 => tcp.flags |= 8,
                3 => tcp.flags |= 0x80,
                4 => tcp.window -= 1,
                5 => tcp.ack += 1,
                6 => tcp.checksum = Checksum::Off(1),
                7 => tcp.options = vec![1; 4],
                _ => {}
            }
            over(six, id, Upper::Tcp(tcp)).bytes()
        }).collect();
        joined(&frames);
    }

    #[test]
    fn changed_bytes_are_never_lost(six in any::<bool>(), is_tcp in any::<bool>(), frame in 0usize..4, at in 0usize..200, by in 1u8..) {
        let upper = match is_tcp {
            true => Upper::Tcp(Tcp::default().flags(ACK).payload(&data(390))),
            false => Upper::Udp(Udp::default().payload(&data(390))),
        };
        let mut frames = cut(&mut over(six, 9, upper).bytes(), 100);
        let place = at % frames[frame].len();
        frames[frame][place] ^= by;
        prop_assert!(joined(&frames) <= frame);
    }

    #[test]
    fn no_bytes_are_impossible(frames in vec(vec(any::<u8>(), 0..80), 0..4)) {
        prop_assert!(join(&frames).is_none());
    }
}

/// Four segments of 100 bytes, of which the third differs.
fn with_odd_third(change: impl Fn(&mut Ip4, &mut Tcp)) -> Vec<Vec<u8>> {
    let segment = |number: u32| {
        let mut tcp = Tcp { seq: 500 + number * 100, flags: ACK, ..Tcp::default() }.payload(&data(100));
        let mut ip = Ip4 { id: number as u16, ..Ip4::new(Upper::Tcp(tcp.clone())) };
        if number == 2 {
            change(&mut ip, &mut tcp);
        }
        Ip4 { upper: Upper::Tcp(tcp), ..ip }.frame().bytes()
    };
    (0..4).map(segment).collect()
}

#[test]
fn a_frame_that_differs_ends_what_is_joined() {
    type Change = fn(&mut Ip4, &mut Tcp);
    let changes: [(&str, Change, usize); 18] = [
        ("nothing", |_, _| {}, 4),
        ("the last one may be shorter", |_, tcp| tcp.payload.truncate(99), 3),
        ("no other one may be longer", |_, tcp| tcp.payload.push(0), 2),
        ("PSH is the last one's", |_, tcp| tcp.flags |= 0x08, 3),
        ("FIN is the last one's", |_, tcp| tcp.flags |= 0x01, 3),
        ("CWR", |_, tcp| tcp.flags |= 0x80, 2),
        ("ECE", |_, tcp| tcp.flags |= 0x40, 2),
        ("SYN", |_, tcp| tcp.flags |= 0x02, 2),
        ("no ACK", |_, tcp| tcp.flags = 0, 2),
        ("sequence number", |_, tcp| tcp.seq += 1, 2),
        ("acknowledgment", |_, tcp| tcp.ack += 1, 2),
        ("window", |_, tcp| tcp.window -= 1, 2),
        ("options", |_, tcp| tcp.options = vec![1; 4], 2),
        ("port", |_, tcp| tcp.sport += 1, 2),
        ("checksum", |_, tcp| tcp.checksum = Checksum::Off(1), 2),
        ("identification", |ip, _| ip.id = 0, 2),
        ("TTL", |ip, _| ip.ttl -= 1, 2),
        ("checksum of the header", |ip, _| ip.checksum = Checksum::Off(1), 2),
    ];
    for (what, change, expected) in changes {
        assert_eq!(joined(&with_odd_third(change)), expected, "{what}");
    }
}

#[test]
fn what_is_no_plain_frame_is_left_alone() {
    let segment = |number: u32| Tcp { seq: number * 10, flags: ACK, ..Tcp::default() }.payload(&data(10));
    let frames = |make: &dyn Fn(u32, Tcp) -> Frame| -> Vec<Vec<u8>> {
        (0..3).map(|number| make(number, segment(number)).bytes()).collect()
    };
    let ip4 = |number: u32, tcp| Ip4 { id: number as u16, ..Ip4::new(Upper::Tcp(tcp)) };
    assert_eq!(joined(&frames(&|number, tcp| ip4(number, tcp).frame())), 3);
    assert_eq!(joined(&frames(&|number, tcp| ip4(number, tcp).frame().vlan(5))), 0, "a tag");
    assert_eq!(joined(&frames(&|number, tcp| ip4(number, tcp).frame().trailer(&[0; 6]))), 0, "padding");
    let options = |number, tcp| Ip4 { options: vec![148, 4, 0, 0], ..ip4(number, tcp) }.frame();
    assert_eq!(joined(&frames(&options)), 0, "options");
    assert_eq!(joined(&frames(&|number, tcp| Ip4 { flags: 1, ..ip4(number, tcp) }.frame())), 0, "fragments");
    let extended = |_, tcp| Ip6::new(Upper::Tcp(tcp)).extension(Extension::Plain(60, vec![])).frame();
    assert_eq!(joined(&frames(&extended)), 0, "an extension header");
    assert_eq!(joined(&frames(&|number, tcp| ip4(number, tcp.payload(&[])).frame())), 0, "no payload");
    let udp = |checksum: Checksum| -> Vec<Vec<u8>> {
        (0..3u16)
            .map(|id| {
                over(false, id, Upper::Udp(Udp::default().checksum(checksum).payload(&[7; 10]))).bytes()
            })
            .collect()
    };
    assert_eq!(joined(&udp(Checksum::Right)), 3);
    assert_eq!(joined(&udp(Checksum::Is(0))), 0, "datagrams without a checksum");
}

#[test]
fn only_what_the_sender_takes_is_joined() {
    let tcp = cut(&mut over(true, 0, Upper::Tcp(Tcp::default().flags(ACK).payload(&data(500)))).bytes(), 100);
    let udp = cut(&mut over(true, 0, Upper::Udp(Udp::default().payload(&data(500)))).bytes(), 100);
    let takes = |frames: &[Vec<u8>], tcp, udp| {
        let joinable = Joinable { tcp, udp, tunnels: true };
        Superframe::join(frames.iter().map(Vec::as_slice), joinable).is_some()
    };
    assert!(takes(&tcp, true, false) && !takes(&tcp, false, true));
    assert!(takes(&udp, false, true) && !takes(&udp, true, false));
}

#[test]
fn a_superframe_is_no_longer_than_a_packet_may_be() {
    let tcp = Tcp::default().flags(ACK).payload(&data(60_000));
    let mut frames = cut(&mut over(false, 0, Upper::Tcp(tcp)).bytes(), 1448);
    frames.pop();
    let more =
        Tcp { seq: Tcp::default().seq + 41 * 1448, flags: ACK, ..Tcp::default() }.payload(&data(30_000));
    frames.extend(cut(&mut over(false, 41, Upper::Tcp(more)).bytes(), 1448));
    assert_eq!(joined(&frames), 45);
    let datagrams: Vec<Vec<u8>> =
        (0..100).map(|id| over(false, id, Upper::Udp(Udp::default().payload(&[7; 10]))).bytes()).collect();
    assert_eq!(joined(&datagrams), 64);
}

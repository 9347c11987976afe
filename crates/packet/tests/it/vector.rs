//! The parse stage against the parser of single packets.

use mmb_base::VECTOR;
use mmb_packet::columns::{KeyColumns, WantedLanes};
use mmb_packet::key::{LANE, Lanes};
use mmb_packet::parse::parse;
use mmb_packet::parse::vector::{ParseVector, VectorKeys};
use mmb_packet::{Class, Key4, Key6, Layout, Malformed, Packet, ParserLimits, PortId, fill_key4, fill_key6};
use mmb_testkit::strategy::{PacketBytes, wire};
use proptest::collection::vec;
use proptest::prelude::*;

/// Where a packet leaves that came in by a port.
fn out(port: PortId) -> PortId {
    PortId(port.0 ^ 1)
}

/// Every key of a class has its packet's lanes, and every packet of the class has a key.
fn holds<const L: usize>(
    columns: &KeyColumns<L>,
    wanted: Lanes,
    expected: &[Option<(Class, Vec<u8>)>],
    class: Class,
) {
    let mut seen: Vec<u8> = columns.packets()[..columns.count()].to_vec();
    for (key, &at) in seen.iter().enumerate() {
        let (of, bytes) = expected[usize::from(at)].as_ref().expect("only sound packets have keys");
        assert_eq!(*of, class);
        for lane in wanted.iter().filter(|&lane| lane < L) {
            let value = columns.lanes()[lane][key].to_ne_bytes();
            assert_eq!(value, bytes[lane * LANE..][..LANE], "lane {lane} of packet {at}");
        }
    }
    seen.sort_unstable();
    let of_class = |at: &u8| expected[usize::from(*at)].as_ref().is_some_and(|(of, _)| *of == class);
    let packets = u8::try_from(expected.len()).expect("fewer than a vector");
    assert_eq!(seen, (0..packets).filter(of_class).collect::<Vec<_>>());
}

fn holds_for(wires: &[(PacketBytes, u16)], wanted: [u32; 3]) {
    let mut buffers: Vec<Vec<u8>> = wires.iter().map(|(wire, _)| wire.bytes.clone()).collect();
    let packets: Vec<Packet<'_>> = buffers
        .iter_mut()
        .zip(wires)
        .map(|(buffer, (wire, port))| {
            let len = buffer.len();
            Packet::new(buffer, 0, len, PortId(*port), wire.link).expect("fits its buffer")
        })
        .collect();
    let limits = ParserLimits::default();
    let walked: Vec<Result<Layout, Malformed>> =
        packets.iter().map(|packet| parse(packet, &limits)).collect();
    let [ip4, ip6, other] = wanted.map(Lanes);
    let wanted = WantedLanes { ip4, ip6, other };
    let mut keys = VectorKeys::default();
    // Twice: nothing of a vector may be left for the next.
    for _ in 0..2 {
        let mut layouts = [Layout::default(); VECTOR];
        let mut found: Vec<Result<(), Malformed>> = vec![Ok(()); packets.len()];
        keys.clear();
        keys.take(0, &packets);
        let sound = keys.parse(ParseVector {
            wanted,
            limits,
            packets: &packets,
            layouts: &mut layouts,
            out: |at: usize| out(packets[at].port),
            malformed: |at: usize, why| found[at] = Err(why),
        });
        let found: Vec<_> =
            found.into_iter().zip(layouts).map(|(found, layout)| found.map(|()| layout)).collect();
        assert_eq!(found, walked);
        assert_eq!(sound, walked.iter().filter(|walked| walked.is_ok()).count());
    }
    let bytes = |(packet, layout): (&Packet<'_>, &Result<Layout, Malformed>)| {
        let layout = layout.ok()?;
        let (mut short, mut long) = (Key4::default(), Key6::default());
        if layout.class == Class::Ip6 {
            fill_key6(packet, &layout, packet.port, out(packet.port), &mut long);
            return Some((layout.class, long.0.to_vec()));
        }
        fill_key4(packet, &layout, packet.port, out(packet.port), &mut short);
        Some((layout.class, short.0.to_vec()))
    };
    let expected: Vec<_> = packets.iter().zip(&walked).map(bytes).collect();
    holds(&keys.ip4, wanted.ip4, &expected, Class::Ip4);
    holds(&keys.ip6, wanted.ip6, &expected, Class::Ip6);
    holds(&keys.other, wanted.other, &expected, Class::Other);
}

proptest! {
    #[test]
    fn vectors_are_parsed_like_packets_alone(
        wires in vec((wire(), 0..4u16), 0..100),
        wanted in prop_oneof![Just([u32::MAX; 3]), any::<[u32; 3]>()],
    ) {
        holds_for(&wires, wanted);
    }
}

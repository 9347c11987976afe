//! Captures that somebody made to do harm: whatever the bytes, a reader ends, and nothing panics.

use crate::build::{Order, data, every_block, pcap_header, record};
use mmb_io::pcap::{CaptureItem, CaptureReader, CaptureWriter};
use proptest::prelude::*;

/// Reads to the end and writes everything again. Returns how many items there were.
fn pass_through(bytes: &[u8]) -> usize {
    let Ok(mut reader) = CaptureReader::open(bytes) else { return 0 };
    let mut writer = CaptureWriter::new(std::io::sink(), reader.format(), true);
    let mut items = 0;
    while let Ok(Some(item)) = reader.next_item() {
        items += 1;
        match item {
            CaptureItem::Block(block) => writer.block(block).expect("a sink takes all"),
            CaptureItem::Packet(packet) => {
                assert!(packet.data.len() + packet.options.len() <= bytes.len());
                assert_eq!(packet.data.len(), packet.meta.captured_len as usize);
                writer.packet(&packet.meta, packet.data, packet.options).expect("a sink takes all");
            }
        }
    }
    items
}

fn captures() -> impl Strategy<Value = Vec<u8>> {
    let order = prop_oneof![Just(Order::Little), Just(Order::Big)];
    prop_oneof![
        order.clone().prop_map(every_block),
        (order, prop_oneof![Just(0xa1b2_c3d4), Just(0xa1b2_3c4d_u32)], 0usize..4).prop_map(
            |(order, magic, packets)| {
                let mut capture = pcap_header(order, magic, 65535, 1);
                (0..packets).for_each(|n| capture.extend(record(order, n as u32, 0, &data(40 + n), 60)));
                capture
            }
        ),
    ]
}

/// One change to a capture.
#[derive(Clone, Debug)]
enum Mutation {
    Byte(prop::sample::Index, u8),
    Word(prop::sample::Index, u32),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Repeat(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let at = any::<prop::sample::Index>;
    let lengths =
        prop_oneof![any::<u32>(), 0u32..300, Just(u32::MAX), Just(1 << 31), Just(16 << 20), Just(262_145)];
    let swapped = lengths.clone().prop_map(u32::swap_bytes);
    let one = prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Byte(at, byte)),
        (at(), prop_oneof![lengths, swapped]).prop_map(|(at, word)| Mutation::Word(at, word)),
        at().prop_map(Mutation::Cut),
        (at(), 1usize..40).prop_map(|(at, len)| Mutation::Remove(at, len)),
        (at(), 1usize..200).prop_map(|(at, len)| Mutation::Repeat(at, len)),
        (at(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
    ];
    prop::collection::vec(one, 1..6)
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    if bytes.is_empty() {
        return;
    }
    match mutation {
        Mutation::Byte(at, byte) => *at.get_mut(bytes) = *byte,
        Mutation::Word(at, word) => {
            let start = at.index(bytes.len()) & !3;
            bytes.iter_mut().skip(start).zip(word.to_le_bytes()).for_each(|(byte, new)| *byte = new);
        }
        Mutation::Cut(at) => bytes.truncate(at.index(bytes.len())),
        Mutation::Remove(at, len) => {
            let start = at.index(bytes.len());
            bytes.drain(start..(start + len).min(bytes.len()));
        }
        Mutation::Repeat(at, len) => {
            let start = at.index(bytes.len());
            let again = bytes[start..(start + len).min(bytes.len())].to_vec();
            bytes.splice(start..start, again);
        }
        Mutation::Insert(at, new) => {
            let start = at.index(bytes.len());
            bytes.splice(start..start, new.iter().copied());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_mutated_capture_ends_and_does_not_panic(mut capture in captures(), changes in mutations()) {
        changes.iter().for_each(|change| mutate(&mut capture, change));
        // The smallest block has 12 bytes, the smallest record 16.
        prop_assert!(pass_through(&capture) <= capture.len() / 12 + 1);
    }

    #[test]
    fn random_bytes_behind_a_good_beginning_do_not_panic(
        capture in captures(),
        keep in any::<prop::sample::Index>(),
        tail in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut bytes = capture[..keep.index(capture.len())].to_vec();
        bytes.extend(tail);
        prop_assert!(pass_through(&bytes) <= bytes.len() / 12 + 1);
    }
}

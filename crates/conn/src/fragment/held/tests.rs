//! Held packets are returned unchanged, the oldest first, or are counted as lost.

use super::*;
use crate::fragment::tests::key;
use mmb_random::Seed;
use proptest::prelude::*;
use std::collections::VecDeque;

const AGE_MS: u64 = 1000;

fn held(slots: u16, max_bytes: usize) -> HeldFragments {
    let mut held = HeldFragments::new(Seed::repeatable(7), AGE_MS, slots, max_bytes);
    held.prepare();
    held
}

/// Holds a packet of `bytes` that arrived on port 3.
fn hold(held: &mut HeldFragments, now_ms: u64, id: u32, bytes: &[u8]) -> Result<u16, FragmentDrop> {
    let (mut buffer, len) = (bytes.to_vec(), bytes.len());
    let packet = Packet::new(&mut buffer, 0, len, PortId(3), LinkType::Sll).expect("it fits");
    held.hold(now_ms, &key(id), &packet)
}

fn take(held: &mut HeldFragments) -> Option<(u16, Vec<u8>)> {
    let mut taken = None;
    held.take(|released| {
        assert_eq!((released.port, released.link), (PortId(3), LinkType::Sll));
        taken = Some((released.slot, released.bytes.to_vec()));
    });
    taken
}

#[test]
fn a_datagram_waits_until_it_is_released_and_comes_out_in_order() {
    let mut held = held(8, 100);
    let slots: Vec<_> = [(1, b"one"), (2, b"two"), (1, b"six")]
        .map(|(id, bytes)| hold(&mut held, 0, id, bytes).expect("there is room"))
        .into();
    assert_eq!(take(&mut held), None);
    held.release(&key(3));
    assert_eq!((take(&mut held), held.len()), (None, 3));
    held.release(&key(1));
    assert_eq!(take(&mut held), Some((slots[0], b"one".to_vec())));
    assert_eq!(take(&mut held), Some((slots[2], b"six".to_vec())));
    assert_eq!((take(&mut held), held.len()), (None, 1));
    held.release_all();
    assert_eq!(take(&mut held), Some((slots[1], b"two".to_vec())));
    assert_eq!((held.len(), held.losses()), (0, HeldLosses::default()));
}

#[test]
fn what_waits_for_too_long_is_lost() {
    let mut held = held(8, 100);
    hold(&mut held, 0, 1, b"old").expect("there is room");
    hold(&mut held, 600, 1, b"young").expect("there is room");
    held.age(AGE_MS);
    assert_eq!(held.len(), 2);
    held.age(AGE_MS + 1);
    assert_eq!((held.len(), held.losses()), (1, HeldLosses { aged: 1, evicted: 0 }));
    held.release(&key(1));
    assert_eq!(take(&mut held).expect("it is released").1, b"young");
    // Released packets that are never taken age too.
    hold(&mut held, 700, 1, b"late").expect("there is room");
    held.release(&key(1));
    held.age(5000);
    assert_eq!((take(&mut held), held.losses().aged), (None, 1));
    hold(&mut held, 6000, 1, b"last").expect("there is room");
    held.drop_all();
    assert_eq!((held.len(), held.losses().aged), (0, 1));
}

#[test]
fn a_flood_takes_the_place_of_its_oldest() {
    for (slots, max_bytes) in [(16, 1 << 20), (4096, 1600)] {
        let mut held = held(slots, max_bytes);
        for id in 0..10_000 {
            hold(&mut held, 0, id, &[id as u8; 100]).expect("the oldest makes room");
        }
        assert_eq!((held.len(), held.losses().evicted), (16, 9984), "{slots} {max_bytes}");
        held.release(&key(9983));
        assert_eq!(take(&mut held), None, "it made room");
        held.release(&key(9984));
        assert_eq!(take(&mut held).expect("it stayed").1, [(9984 % 256) as u8; 100]);
    }
}

#[test]
fn one_datagram_has_so_many_at_most() {
    let mut held = held(4000, 1 << 20);
    for _ in 0..MAX_FRAGMENTS {
        hold(&mut held, 0, 1, b"piece").expect("not too many");
    }
    assert_eq!(hold(&mut held, 0, 1, b"piece"), Err(FragmentDrop::TooMany));
    hold(&mut held, 0, 2, b"piece").expect("another datagram");
}

#[test]
fn nothing_is_held_before_there_is_memory_nor_what_is_larger_than_it() {
    let mut held = HeldFragments::new(Seed::repeatable(7), AGE_MS, 8, 100);
    assert_eq!(hold(&mut held, 0, 1, b"early"), Err(FragmentDrop::NoRoom));
    held.prepare();
    assert_eq!(hold(&mut held, 0, 1, &[1; 101]), Err(FragmentDrop::NoRoom));
    hold(&mut held, 0, 1, &[1; 100]).expect("all of the room");
    hold(&mut held, 0, 1, &[2; 100]).expect("again");
    assert_eq!((held.len(), held.losses().evicted), (1, 1));
    held.release(&key(1));
    assert_eq!(take(&mut held).expect("it is released").1, [2; 100]);
}

/// Numbers of slots and bytes. The bits of 12 slots are one word, those of 70 slots are two.
const SIZES: [(usize, usize); 2] = [(12, 256), (70, 1024)];
const LONGEST: usize = 60;

#[derive(Clone, Debug)]
enum Step {
    Hold(u32, usize),
    Release(u32),
    ReleaseAll,
    Take,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6_u32, 1..LONGEST).prop_map(|(id, len)| Step::Hold(id, len)),
        2 => (0..6_u32).prop_map(Step::Release),
        1 => Just(Step::ReleaseAll),
        4 => Just(Step::Take),
        1 => (0..700_u64).prop_map(Step::Pass),
    ]
}

/// A packet that must be held.
struct Plain {
    id: u32,
    slot: u16,
    bytes: Vec<u8>,
    arrived_ms: u64,
    released: bool,
}

proptest! {
    #[test]
    fn nothing_is_changed_or_lost_uncounted(
        steps in prop::collection::vec(step(), 1..300),
        (slots, max_bytes) in prop::sample::select(&SIZES[..]),
    ) {
        let mut held = held(slots as u16, max_bytes);
        let (mut plain, mut now_ms) = (VecDeque::<Plain>::new(), 0);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Hold(id, len) => {
                    let bytes: Vec<u8> = (0..len).map(|at| (number * 7 + at) as u8).collect();
                    let gaps = (held.next - held.oldest) as usize - plain.len();
                    let slot = hold(&mut held, now_ms, id, &bytes).expect("the oldest makes room");
                    let evicted = held.losses().evicted as usize;
                    let used: usize = plain.iter().map(|other| other.bytes.len()).sum();
                    // Packets that were taken out of order still occupy their bytes. The end of the ring may
                    // be unused, too.
                    let roomy = gaps == 0 && plain.len() < slots && used + 2 * LONGEST < max_bytes;
                    prop_assert!(evicted == 0 || !roomy, "{evicted} made room without need");
                    drop(plain.drain(..evicted));
                    prop_assert!(plain.iter().all(|other| other.slot != slot));
                    plain.push_back(Plain { id, slot, bytes, arrived_ms: now_ms, released: false });
                }
                Step::Release(id) => {
                    held.release(&key(id));
                    plain.iter_mut().filter(|other| other.id == id).for_each(|other| other.released = true);
                }
                Step::ReleaseAll => {
                    held.release_all();
                    plain.iter_mut().for_each(|other| other.released = true);
                }
                Step::Take => {
                    let expected = plain.iter().position(|other| other.released).and_then(|at| plain.remove(at));
                    prop_assert_eq!(take(&mut held), expected.map(|other| (other.slot, other.bytes)));
                }
                Step::Pass(ms) => {
                    now_ms += ms;
                    held.age(now_ms);
                    let aged = plain.iter().take_while(|other| now_ms - other.arrived_ms > AGE_MS).count();
                    prop_assert_eq!(held.losses(), HeldLosses { aged: aged as u64, evicted: 0 });
                    drop(plain.drain(..aged));
                }
            }
            prop_assert_eq!(held.len(), plain.len());
            prop_assert_eq!(held.released(), plain.iter().filter(|other| other.released).count());
        }
    }
}

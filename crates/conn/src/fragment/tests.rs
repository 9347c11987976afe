//! Fragments in order and out of order.

use super::*;
use crate::{Side, Vlans, Wire};
use mmb_random::Seed;
use proptest::prelude::*;

const HEAD: DatagramHead = head([1000, 53]);

const fn head(ports: [u16; 2]) -> DatagramHead {
    DatagramHead { proto: proto::UDP, ports }
}

fn of(later: LaterFragment) -> Option<DatagramHead> {
    match later {
        LaterFragment::Known(head, _) => Some(head),
        LaterFragment::Unknown | LaterFragment::Drop(_) => None,
    }
}

pub(super) fn key(id: u32) -> FragmentKey {
    FragmentKey {
        addresses: [1, 2],
        id,
        proto: proto::UDP,
        family: 4,
        wire: Wire::default(),
        side: Side::Low,
    }
}

fn fragments() -> FragmentTable {
    FragmentTable::new(Seed::repeatable(7), 4, 5000)
}

/// A table that has seen the first 1480 bytes of datagram 1.
fn begun() -> FragmentTable {
    let mut fragments = fragments();
    assert_eq!(fragments.first(0, key(1), HEAD, 1480), FragmentVerdict::Pass);
    fragments
}

/// The fragment that completes a datagram need not be its last one.
#[test]
fn a_datagram_is_complete_once_all_of_it_was_seen() {
    for seq in [None, Some(77)] {
        let mut fragments = begun();
        seq.into_iter().for_each(|seq| fragments.record_seq(&key(1), seq));
        assert_eq!(fragments.later(1, key(1), 2960, 100, true), LaterFragment::Known(HEAD, None));
        let complete = Complete { len: 3060, seq };
        assert_eq!(fragments.later(2, key(1), 1480, 1480, false), LaterFragment::Known(HEAD, Some(complete)));
        fragments.record_seq(&key(1), 78);
        assert!(fragments.is_empty());
    }
}

#[test]
fn later_fragments_get_the_ports_until_the_last_byte_was_seen() {
    let mut fragments = begun();
    assert_eq!(of(fragments.later(1, key(1), 2960, 100, true)), Some(HEAD));
    assert_eq!(fragments.len(), 1);
    assert_eq!(of(fragments.later(2, key(1), 1480, 1480, false)), Some(HEAD));
    assert!(fragments.is_empty());
    assert_eq!(fragments.later(3, key(1), 1480, 1480, false), LaterFragment::Unknown);
}

#[test]
fn a_fragment_before_its_first_one_is_unknown() {
    let mut fragments = fragments();
    assert_eq!(fragments.later(0, key(1), 1480, 1480, false), LaterFragment::Unknown);
    assert!(fragments.is_empty());
    assert_eq!(fragments.first(1, key(1), HEAD, 1480), FragmentVerdict::Pass);
    assert_eq!(of(fragments.later(2, key(1), 2960, 8, true)), Some(HEAD));
}

#[test]
fn a_refused_datagram_has_no_ports_until_its_number_is_used_again() {
    let mut fragments = begun();
    fragments.refuse(&key(2));
    fragments.refuse(&key(1));
    for _ in 0..2 {
        assert_eq!(fragments.later(1, key(1), 1480, 1480, true), LaterFragment::Drop(FragmentDrop::Refused));
    }
    assert_eq!(fragments.first(1 + REUSED_MS, key(1), HEAD, 1480), FragmentVerdict::Pass);
    assert_eq!(of(fragments.later(1 + REUSED_MS, key(1), 1480, 1480, true)), Some(HEAD));
}

#[test]
fn an_overlap_poisons_the_datagram() {
    for (offset, len, last) in
        [(1472, 16, false), (8, 8, false), (0, 8, false), (1480, 4000, false), (2000, 8, true)]
    {
        let mut fragments = begun();
        assert_eq!(of(fragments.later(1, key(1), 4000, 800, false)), Some(HEAD));
        assert_eq!(
            fragments.later(1, key(1), offset, len, last),
            LaterFragment::Drop(FragmentDrop::Overlap),
            "{offset} {len}"
        );
        assert_eq!(fragments.later(1, key(1), 8000, 800, true), LaterFragment::Drop(FragmentDrop::Overlap));
        assert_eq!(fragments.first(2, key(1), HEAD, 1480), FragmentVerdict::Drop(FragmentDrop::Overlap));
        assert_eq!(fragments.first(4000, key(1), HEAD, 1480), FragmentVerdict::Drop(FragmentDrop::Overlap));
        assert_eq!(fragments.first(5001, key(1), HEAD, 1480), FragmentVerdict::Pass);
    }
}

#[test]
fn the_end_of_a_datagram_stays_where_it_is() {
    for (offset, len, last) in [(2000, 8, true), (4000, 8, false), (2992, 16, false)] {
        let mut fragments = begun();
        assert_eq!(of(fragments.later(1, key(1), 2960, 40, true)), Some(HEAD));
        assert_eq!(
            fragments.later(1, key(1), offset, len, last),
            LaterFragment::Drop(FragmentDrop::Overlap),
            "{offset} {len}"
        );
    }
}

#[test]
fn a_duplicate_is_dropped_alone() {
    let mut fragments = begun();
    assert_eq!(fragments.first(1, key(1), HEAD, 1480), FragmentVerdict::Drop(FragmentDrop::Duplicate));
    assert_eq!(of(fragments.later(1, key(1), 2960, 1480, false)), Some(HEAD));
    assert_eq!(fragments.later(1, key(1), 2960, 1480, false), LaterFragment::Drop(FragmentDrop::Duplicate));
    assert_eq!(of(fragments.later(1, key(1), 1480, 1480, false)), Some(HEAD));
    // The same bytes with the more-fragments flag clear would move the end of the datagram.
    assert_eq!(fragments.later(1, key(1), 2960, 1480, true), LaterFragment::Drop(FragmentDrop::Overlap));
}

#[test]
fn another_first_fragment_is_an_overlap_or_after_a_while_another_datagram() {
    assert_eq!(begun().first(1, key(1), head([1, 2]), 1480), FragmentVerdict::Drop(FragmentDrop::Overlap));
    assert_eq!(begun().first(1, key(1), HEAD, 1472), FragmentVerdict::Drop(FragmentDrop::Overlap));
    let mut fragments = begun();
    assert_eq!(fragments.first(REUSED_MS, key(1), head([1, 2]), 1480), FragmentVerdict::Pass);
    assert_eq!(of(fragments.later(REUSED_MS, key(1), 1480, 8, false)), Some(head([1, 2])));
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    let mut fragments = begun();
    for (offset, len, last) in
        [(1480, 0, true), (1480, 12, false), (65_528, 8, true), (65_528, 65_528, false)]
    {
        assert_eq!(
            fragments.later(1, key(1), offset, len, last),
            LaterFragment::Drop(FragmentDrop::BadLength),
            "{offset} {len}"
        );
    }
    assert_eq!(
        fragments.later(1, key(1), u32::MAX, u32::MAX, true),
        LaterFragment::Drop(FragmentDrop::BadLength)
    );
    assert_eq!(of(fragments.later(1, key(1), 65_528, 7, true)), Some(HEAD));
    assert_eq!(fragments.first(1, key(2), HEAD, 1479), FragmentVerdict::Drop(FragmentDrop::BadLength));
}

#[test]
fn tiny_fragments_are_refused() {
    let mut fragments = fragments();
    let tcp = FragmentKey { proto: proto::TCP, ..key(3) };
    assert_eq!(fragments.first(0, tcp, HEAD, 16), FragmentVerdict::Drop(FragmentDrop::Tiny));
    assert_eq!(fragments.first(0, tcp, HEAD, 24), FragmentVerdict::Pass);
    assert_eq!(fragments.later(0, tcp, 8, 80, false), LaterFragment::Drop(FragmentDrop::Tiny));
    assert_eq!(fragments.first(0, key(3), HEAD, 0), FragmentVerdict::Drop(FragmentDrop::Tiny));
    assert_eq!(fragments.first(0, key(3), HEAD, 8), FragmentVerdict::Pass);
}

#[test]
fn a_datagram_in_too_many_pieces_goes_no_further() {
    let mut fragments = begun();
    for piece in 1..MAX_FRAGMENTS as u32 {
        assert_eq!(of(fragments.later(1, key(1), 1480 + piece * 16, 8, false)), Some(HEAD));
    }
    assert_eq!(fragments.later(1, key(1), 8000, 8, false), LaterFragment::Drop(FragmentDrop::TooMany));
}

#[test]
fn a_flood_takes_the_places_of_the_oldest() {
    let mut fragments = begun();
    for id in 2..=10_000 {
        assert_eq!(fragments.first(1, key(id), HEAD, 1480), FragmentVerdict::Pass);
        assert!(fragments.len() <= 4 && fragments.datagrams.len() <= 4);
    }
    assert_eq!(fragments.later(1, key(1), 1480, 8, true), LaterFragment::Unknown);
    assert_eq!(of(fragments.later(1, key(9_997), 1480, 8, true)), Some(HEAD));
}

#[test]
fn what_is_too_old_is_let_go() {
    let mut fragments = begun();
    assert_eq!(of(fragments.later(5000, key(1), 1480, 8, false)), Some(HEAD));
    assert_eq!(fragments.later(5001, key(1), 1488, 8, false), LaterFragment::Unknown);
    assert!(fragments.is_empty());
}

#[test]
fn protocols_wires_and_versions_keep_datagrams_apart() {
    let mut fragments = begun();
    let other = FragmentKey { proto: 132, ..key(1) };
    assert_eq!(fragments.later(1, other, 1480, 8, false), LaterFragment::Unknown);
    assert_eq!(
        fragments.later(
            1,
            FragmentKey { wire: Wire { port: 2, vlans: Vlans::NONE }, ..key(1) },
            1480,
            8,
            false
        ),
        LaterFragment::Unknown
    );
    let six = FragmentKey { family: 6, ..key(1) };
    assert_eq!(fragments.first(1, six, head([5, 6]), 1480), FragmentVerdict::Pass);
    // A later fragment names the header that follows the fragment header, which may be an extension header.
    assert_eq!(of(fragments.later(1, FragmentKey { proto: 60, ..six }, 1480, 8, false)), Some(head([5, 6])));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A datagram passes as a whole and leaves no state, in whatever order its later fragments arrive.
    #[test]
    fn any_order_behind_the_first_passes(cuts in proptest::collection::btree_set(1_u32..200, 1..40), tail in 1_u32..8, seed: u64) {
        let mut ends: Vec<u32> = cuts.iter().map(|cut| cut * 8).collect();
        let total = ends[ends.len() - 1] + tail;
        ends.push(total);
        let mut pieces: Vec<(u32, u32)> = ends.windows(2).map(|pair| (pair[0], pair[1])).collect();
        pieces.sort_by_key(|(start, _)| (seed ^ u64::from(*start)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut fragments = fragments();
        prop_assert_eq!(fragments.first(0, key(1), HEAD, ends[0]), FragmentVerdict::Pass);
        for (start, end) in pieces {
            prop_assert_eq!(of(fragments.later(1, key(1), start, end - start, end == total)), Some(HEAD));
        }
        prop_assert!(fragments.is_empty());
    }

    /// With arbitrary fragments, no byte passes twice, memory is bounded, and the list of datagrams stays
    /// sorted by age.
    #[test]
    fn no_byte_passes_twice(steps in proptest::collection::vec((0_u32..6, 0_u32..12, 1_u32..6, any::<bool>(), 0_u64..400), 0..300)) {
        let mut fragments = fragments();
        let mut passed: std::collections::HashMap<u32, Vec<bool>> = Default::default();
        let mut now = 0;
        for (id, start, len, last, pause) in steps {
            now += pause;
            let (from, to) = (start as usize, (start + len) as usize);
            let went = if start == 0 {
                let verdict = fragments.first(now, key(id), HEAD, len * 8);
                if verdict == FragmentVerdict::Pass {
                    passed.insert(id, vec![false; 32]);
                }
                verdict == FragmentVerdict::Pass
            } else {
                of(fragments.later(now, key(id), start * 8, len * 8, last)) == Some(HEAD)
            };
            if went {
                let bytes = &mut passed.get_mut(&id).expect("its first fragment passed")[from..to];
                prop_assert!(bytes.iter().all(|seen| !seen));
                bytes.fill(true);
            }
            prop_assert!(fragments.len() <= 4 && fragments.datagrams.len() <= 4);
            let mut ages = Vec::new();
            let mut at = fragments.oldest;
            while let Some(id) = at {
                ages.push(fragments.datagrams[id].first_ms);
                at = fragments.datagrams[id].younger;
            }
            prop_assert_eq!(ages.len(), fragments.len());
            prop_assert!(ages.is_sorted());
        }
    }
}

//! TCP options: the walk and the table against a list of what was put in.

use mmb_packet::options::{OptionArea, OptionTable, WalkStop, number, usual_kinds, walk};
use mmb_testkit::frame::tcp_option;
use proptest::collection::vec;
use proptest::prelude::*;

/// Kinds and data of the options that an area has, by the plainest reading.
fn model(area: &[u8]) -> (Vec<(u8, Vec<u8>)>, WalkStop, usize) {
    let mut options = Vec::new();
    let mut at = 0;
    while at < area.len() {
        match area[at] {
            0 => {
                options.push((0, vec![]));
                return (options, WalkStop::EndOfList, at + 1);
            }
            1 => {
                options.push((1, vec![]));
                at += 1;
            }
            kind => {
                let len = area.get(at + 1).map_or(0, |len| usize::from(*len));
                if len < 2 || at + len > area.len() {
                    return (options, WalkStop::Malformed, at);
                }
                options.push((kind, area[at + 2..at + len].to_vec()));
                at += len;
            }
        }
    }
    (options, WalkStop::AreaEnd, at)
}

fn area() -> impl Strategy<Value = Vec<u8>> {
    let option = (0u8..8, vec(any::<u8>(), 0..9)).prop_map(|(kind, data)| match kind {
        0 | 1 => vec![kind],
        _ => tcp_option(kind, &data),
    });
    let pieces = vec(prop_oneof![9 => option, 1 => vec(any::<u8>(), 1..4)], 0..10);
    pieces.prop_map(|pieces| {
        let mut area = pieces.concat();
        area.truncate(40);
        area
    })
}

proptest! {
    #[test]
    fn a_walk_reads_what_is_there(area in area()) {
        let (options, stop, end) = model(&area);
        let mut walk = walk(&area);
        let mut at = 0;
        for (kind, data) in options {
            prop_assert_eq!(walk.stop(), None);
            let option = walk.next().expect("an option more");
            prop_assert_eq!((option.kind, option.offset, option.data), (kind, at, &data[..]));
            at = walk.offset();
        }
        prop_assert_eq!(walk.next(), None);
        prop_assert_eq!((walk.stop(), walk.offset()), (Some(stop), end));
        prop_assert_eq!(walk.next(), None);
    }

    #[test]
    fn a_table_holds_every_instance(first in area(), second in area()) {
        // A table is filled again and again.
        let mut table = OptionTable::default();
        for area in [first, second] {
            table.fill(&area);
            let (options, ..) = model(&area);
            for kind in 0..=255 {
                let mut expected: Vec<&[u8]> =
                    options.iter().filter(|option| option.0 == kind).map(|option| &option.1[..]).collect();
                if kind < 2 {
                    expected.truncate(1);
                }
                prop_assert_eq!(table.has(kind), !expected.is_empty());
                prop_assert_eq!(table.first(kind), expected.first().copied());
                prop_assert_eq!(table.data(kind).collect::<Vec<_>>(), expected);
                prop_assert_eq!(table.present()[usize::from(kind / 64)] >> (kind % 64) & 1 != 0, table.has(kind));
            }
            prop_assert_eq!(table.any(), options.iter().any(|option| option.0 > 1));
        }
    }

    #[test]
    fn a_copied_area_has_the_same_options(area in prop_oneof![area(), vec(any::<u8>(), 0..=40)]) {
        let expected: Vec<_> = walk(&area).map(|option| (option.kind, number(option.data))).collect();
        let mut found = Vec::new();
        OptionArea::new(&area).each(|kind, is_number, value| found.push((kind, is_number.then_some(value))));
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn usual_areas_have_these_kinds(
        usual in prop_oneof![Just(vec![]), Just(vec![1, 1, 8, 10]), Just(vec![2, 4, 5, 180, 4, 2, 8, 10])],
        numbers in any::<[u8; 8]>(),
        change in prop::option::of((0..20usize, any::<u8>())),
    ) {
        let mut area = usual.clone();
        if !usual.is_empty() {
            area.extend(numbers);
        }
        if usual.len() > 4 {
            area.extend([1, 3, 3, numbers[0]]);
        }
        prop_assert!(usual_kinds(&area).is_some());
        if let Some((at, to)) = change && let Some(byte) = area.get_mut(at) {
            *byte = to;
        }
        let (options, ..) = model(&area);
        let kinds = options.iter().fold(0u64, |kinds, option| kinds | 1 << (option.0 % 64));
        prop_assert!(usual_kinds(&area).is_none_or(|usual| usual == kinds), "{area:?}");
    }

    #[test]
    fn noise_is_walked_without_panic(area in vec(any::<u8>(), 0..100)) {
        let mut table = OptionTable::default();
        table.fill(&area);
        prop_assert_eq!(walk(&area).count(), model(&area).0.len());
    }
}

#[test]
fn an_area_full_of_the_smallest_options_fits_the_table() {
    let mut table = OptionTable::default();
    table.fill(&[[9, 2]; 20].concat());
    assert_eq!(table.data(9).count(), 20);
    table.fill(&[1; 40]);
    assert_eq!((table.data(1).count(), table.data(9).count(), table.any()), (1, 0, false));
}

#[test]
fn data_of_one_to_eight_bytes_is_a_number() {
    assert_eq!(number(&[]), None);
    assert_eq!(number(&[5, 180]), Some(1460));
    assert_eq!(number(&[0xff; 8]), Some(u64::MAX));
    assert_eq!(number(&[0; 9]), None);
}

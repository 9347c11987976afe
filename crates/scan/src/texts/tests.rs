//! Texts by samples, whatever a division would do with them, against a comparison at every place.

use super::division::{DividedPattern, Division};
use super::samples::MAX_PER_SAMPLE;
use super::set::LONGEST;
use super::{Pending, TextScan, TextSet};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::ControlFlow;

/// A text, whether it ignores case, and its id.
type Text = (Vec<u8>, bool, u32);

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

fn patterns(texts: &[Text]) -> Vec<DividedPattern<'_>> {
    texts
        .iter()
        .map(|(text, ignores_case, id)| DividedPattern {
            text: Some(text),
            ignores_case: *ignores_case,
            id: *id,
        })
        .collect()
}

/// Ends of matches with ids, in the order in which they are told.
fn scan(set: &TextSet, stream: &[u8], lengths: &[usize]) -> Vec<(u64, u32)> {
    let (mut state, mut pending) = (vec![0xff; set.state_bytes()], Pending::new().expect("memory"));
    TextScan::open(&mut state);
    let (mut found, mut rest) = (Vec::new(), stream);
    for length in lengths.iter().cycle() {
        let (piece, behind) = rest.split_at(rest.len().min(*length));
        let mut scan = TextScan::new(set, &mut state, &mut pending, piece).expect("nobody said stop");
        assert!(
            scan.tell_until(u64::MAX, &mut |id, end| {
                found.push((end, id));
                GO_ON
            })
            .is_continue()
        );
        scan.finish();
        rest = behind;
        if rest.is_empty() {
            return found;
        }
    }
    found
}

/// The same by a comparison at every place; ids of one end ascend.
fn expected(texts: &[Text], stream: &[u8]) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    for (text, ignores_case, id) in texts {
        for (start, bytes) in stream.windows(text.len()).enumerate() {
            if bytes == text || *ignores_case && bytes.eq_ignore_ascii_case(text) {
                found.push(((start + text.len()) as u64, *id));
            }
        }
    }
    found.sort_unstable();
    found
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = || proptest::sample::select(b"abAB@`\0".as_slice());
    prop_oneof![4 => vec(byte(), 4..14), 1 => vec(byte(), 4..=LONGEST)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn pieces_of_any_size_match_as_the_whole(
        texts in vec((text(), any::<bool>(), 0..30_u32), 1..40),
        shortest in proptest::sample::select(vec![4_usize, 5, 7, 8, 12]),
        filling in vec(vec(proptest::sample::select(b"abAB@`\0x".as_slice()), 0..40), 1..20),
        chosen in vec(any::<proptest::sample::Index>(), 20),
        lengths in vec(prop_oneof![1..20_usize, 1..700_usize], 1..6)
    ) {
        let division = Division::by_samples(&patterns(&texts), shortest);
        let found_here = |index: &usize| !division.others.contains(index);
        let here: Vec<Text> = (0..texts.len()).filter(found_here).map(|index| texts[index].clone()).collect();
        prop_assert!(texts.iter().all(|(text, ..)| text.len() >= shortest) || !division.others.is_empty());
        let Some(set) = division.texts else {
            prop_assert!(here.is_empty());
            return Ok(());
        };
        let mut stream = Vec::new();
        for (filling, index) in filling.iter().zip(&chosen) {
            stream.extend_from_slice(filling);
            stream.extend_from_slice(&index.get(&here).0);
        }
        let expected = expected(&here, &stream);
        prop_assert!(!expected.is_empty());
        for lengths in [&lengths[..], &[1], &[usize::MAX], &[3, 64]] {
            let mut found = scan(&set, &stream, lengths);
            prop_assert!(found.is_sorted_by_key(|(end, _)| *end), "{found:?}");
            found.sort_unstable();
            prop_assert!(found == expected, "{} of {} in pieces of {lengths:?}", found.len(), expected.len());
        }
    }
}

#[test]
fn texts_that_share_all_samples_are_left_to_others() {
    let all_of =
        |byte, lengths: std::ops::Range<usize>| lengths.map(move |len| (vec![byte; len], false, len as u32));
    let texts: Vec<Text> = all_of(b'a', 8..40).chain(all_of(b'b', 8..10)).collect();
    let division = Division::by_samples(&patterns(&texts), 8);
    // Each has one sample at four offsets.
    assert_eq!(texts.len() - division.others.len(), MAX_PER_SAMPLE / 4 + 2);
    let numbers: Vec<Text> = (0..5000_u32).map(|id| (format!("{id:016}").into_bytes(), false, id)).collect();
    assert_eq!(Division::by_samples(&patterns(&numbers), 8).others.len(), 0, "of one length, at one offset");
}

#[test]
fn one_text_among_many_that_are_longer_decides_nothing() {
    let mut texts: Vec<Text> = (0..5000_u32).map(|id| (format!("{id:08}").into_bytes(), false, id)).collect();
    let of = |texts: &[Text]| {
        let Division { texts, others } = Division::of(&patterns(texts));
        (texts.is_some(), others.len())
    };
    assert_eq!(of(&texts), (true, 0));
    texts.push((b"abcd".to_vec(), false, 5000));
    assert_eq!(of(&texts), (true, 1), "the short one is found by Vectorscan");
    assert_eq!(of(&texts[..5]), (false, 5), "few are");
    assert_eq!(of(&texts[..1]), (true, 0), "one alone is not");
}

#[test]
fn a_caller_that_says_stop_hears_no_more() {
    let texts: Vec<Text> = vec![(b"abcd".to_vec(), false, 1)];
    let set = Division::by_samples(&patterns(&texts), 4).texts.expect("a text");
    let (mut state, mut pending) = (vec![0; set.state_bytes()], Pending::new().expect("memory"));
    let mut scan = TextScan::new(&set, &mut state, &mut pending, b"abcdabcd").expect("a beginning");
    let mut told = 0;
    let stop = &mut |_, _| {
        told += 1;
        ControlFlow::Break(())
    };
    assert!(scan.tell_until(u64::MAX, stop).is_break());
    assert_eq!(told, 1);
    assert!(TextScan::new(&set, &mut state, &mut pending, b"abcd").is_none());
    TextScan::open(&mut state);
    assert!(TextScan::new(&set, &mut state, &mut pending, b"abcd").is_some());
}

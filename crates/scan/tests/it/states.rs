//! Many streams, several sets, several threads; bounds; what callers may do wrong.

use crate::oracle::{Matches, matches};
use mmb_scan::{POOL_PAGE, Pattern, PatternSet, PreparedSet, ScanEnd, ScanState, Scanner};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

fn texts(texts: &[&str]) -> PatternSet {
    let patterns: Vec<_> = texts.iter().zip(0..).map(|(text, id)| Pattern::text(id, *text)).collect();
    PatternSet::compile(&patterns).expect("texts")
}

fn scanner(sets: &[&PatternSet], pool_bytes: usize) -> Scanner {
    let mut scanner = Scanner::new(pool_bytes).expect("memory");
    sets.iter().for_each(|set| scanner.prepare(set).expect("memory"));
    scanner
}

fn count(scanner: &mut Scanner, state: &mut ScanState, bytes: &[u8]) -> usize {
    let mut found = 0;
    let end = scanner.scan(state, bytes, &mut |_, _| {
        found += 1;
        GO_ON
    });
    assert_eq!(end, ScanEnd::AllScanned);
    found
}

/// Sets whose states have sizes from a line to many.
fn several_sets() -> Vec<Vec<Pattern>> {
    vec![
        vec![Pattern::text(1, "ab"), Pattern::text(2, "b").ignoring_case()],
        vec![Pattern::regex(3, "a.{300}b"), Pattern::text(1, "cab")],
        vec![Pattern::regex(4, "(?s)c[ab]{2,40}c"), Pattern::regex(5, "a(b|cc){2,5}a")],
        (0..500).map(|id| Pattern::text(id, format!("{}x{}", "a".repeat(id as usize % 7), id))).collect(),
    ]
}

fn compiled_sets() -> &'static [PatternSet] {
    static SETS: OnceLock<Vec<PatternSet>> = OnceLock::new();
    let compile = |list: &Vec<Pattern>| PatternSet::compile(list).expect("patterns");
    SETS.get_or_init(|| several_sets().iter().map(compile).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn streams_of_several_sets_do_not_disturb_each_other(
        steps in vec((0..24_usize, vec(proptest::sample::select(b"abcx1".as_slice()), 0..60), 0..20_u8), 1..400)
    ) {
        let (lists, sets) = (several_sets(), compiled_sets());
        let mut scanner = scanner(&sets.iter().collect::<Vec<_>>(), 24 * POOL_PAGE);
        // Of each stream its state, bytes and matches.
        let mut streams: Vec<Option<(ScanState, Vec<u8>, Matches)>> = (0..24).map(|_| None).collect();
        for (number, bytes, action) in steps {
            let (list, set) = (&lists[number % 4], &sets[number % 4]);
            let stream = &mut streams[number];
            let (state, all, found) = stream.get_or_insert_with(|| {
                (scanner.open(set).expect("room"), Vec::new(), Matches::new())
            });
            all.extend(&bytes);
            let end = scanner.scan(state, &bytes, &mut |id, end| {
                found.insert((end, id));
                GO_ON
            });
            prop_assert_eq!(end, ScanEnd::AllScanned);
            if action < 3 {
                prop_assert_eq!(&*found, &matches(list, all, false));
            }
            match action {
                0 => scanner.close(stream.take().expect("open").0),
                1 => *stream = None,
                2 => {
                    scanner.restart(state);
                    all.clear();
                    found.clear();
                }
                _ => {}
            }
        }
        for (number, stream) in streams.iter().enumerate() {
            if let Some((_, all, found)) = stream {
                prop_assert_eq!(found, &matches(&lists[number % 4], all, false));
            }
        }
        let open = streams.iter().flatten().count();
        prop_assert_eq!(scanner.open_states(), open);
        drop(streams);
        prop_assert_eq!(scanner.open_states(), 0);
    }
}

#[test]
fn a_full_pool_has_room_again_when_states_are_closed_or_dropped() {
    let set = texts(&["attack"]);
    let mut scanner = scanner(&[&set], set.pool_bytes(100));
    let mut states = Vec::new();
    while let Some(state) = scanner.open(&set) {
        states.push(state);
    }
    assert!((100..100 + POOL_PAGE / set.state_bytes()).contains(&states.len()), "{} states", states.len());
    let max = states.len();
    scanner.close(states.swap_remove(max / 2));
    drop(states.swap_remove(max / 3));
    std::thread::scope(|scope| scope.spawn(|| drop(states.swap_remove(0))).join())
        .expect("dropped elsewhere");
    for _ in 0..3 {
        let mut state = scanner.open(&set).expect("room again");
        assert_eq!(count(&mut scanner, &mut state, b"an attack"), 1);
        states.push(state);
    }
    assert!(scanner.open(&set).is_none());
    drop(states);
    assert_eq!(scanner.open_states(), 0);
    let states: Vec<_> = std::iter::from_fn(|| scanner.open(&set)).collect();
    assert_eq!(states.len(), max);
}

#[test]
fn matches_are_told_with_the_offset_in_the_stream() {
    let set = texts(&["attack", "tac"]);
    let mut scanner = scanner(&[&set], 1);
    let mut state = scanner.open(&set).expect("room");
    let mut found = Vec::new();
    let mut add = |id, end| {
        found.push((id, end));
        GO_ON
    };
    for piece in ["an at", "", "tac", "k"] {
        assert_eq!(scanner.scan(&mut state, piece.as_bytes(), &mut add), ScanEnd::AllScanned);
    }
    assert_eq!(found, [(1, 8), (0, 9)]);
}

#[test]
fn a_scan_that_is_stopped_stays_stopped_until_it_begins_anew() {
    let set = texts(&["a"]);
    let mut scanner = scanner(&[&set], 1);
    let mut state = scanner.open(&set).expect("room");
    let mut calls = 0;
    let mut stop = |_, _| {
        calls += 1;
        ControlFlow::Break(())
    };
    assert_eq!(scanner.scan(&mut state, b"xaaa", &mut stop), ScanEnd::Stopped);
    assert_eq!(scanner.scan(&mut state, b"aaa", &mut stop), ScanEnd::Stopped);
    assert_eq!(calls, 1);
    scanner.restart(&mut state);
    assert_eq!(count(&mut scanner, &mut state, b"aaa"), 3);
}

#[test]
fn a_panic_of_the_caller_passes_by_the_library() {
    let set = texts(&["a"]);
    let mut scanner = scanner(&[&set], 1);
    let mut state = scanner.open(&set).expect("room");
    let mut panic = |_, _| -> ControlFlow<()> { panic!("of the caller") };
    let result = catch_unwind(AssertUnwindSafe(|| scanner.scan(&mut state, b"aaa", &mut panic)));
    let payload = result.expect_err("it goes on");
    assert_eq!(payload.downcast_ref(), Some(&"of the caller"));
    assert_eq!(scanner.scan(&mut state, b"a", &mut |_, _| GO_ON), ScanEnd::Stopped);
    let mut other = scanner.open(&set).expect("room");
    assert_eq!(count(&mut scanner, &mut other, b"aaa"), 3, "the working memory is sound");

    let set = PatternSet::compile(&[Pattern::regex(0, "a$")]).expect("a regex");
    scanner.prepare(&set).expect("memory");
    let mut state = scanner.open(&set).expect("room");
    assert_eq!(count(&mut scanner, &mut state, b"a"), 0);
    let result = catch_unwind(AssertUnwindSafe(|| scanner.finish(state, &mut panic)));
    result.expect_err("it goes on here too");
    assert_eq!(scanner.open_states(), 2, "the state that was finished is closed");
}

#[test]
fn the_end_of_a_stream_is_told_when_it_is_finished() {
    let set =
        PatternSet::compile(&[Pattern::regex(0, "end$"), Pattern::regex(1, "^[a-z]+\\z")]).expect("regexes");
    let mut scanner = scanner(&[&set], 1);
    for (pieces, expected) in
        [(["the", "end"], vec![(6, 0), (6, 1)]), (["end ", "end\n"], vec![]), (["the end", ""], vec![(7, 0)])]
    {
        let mut state = scanner.open(&set).expect("room");
        for piece in pieces {
            assert_eq!(count(&mut scanner, &mut state, piece.as_bytes()), 0);
        }
        let mut found = Vec::new();
        let end = scanner.finish(state, &mut |id, end| {
            found.push((end, id));
            GO_ON
        });
        found.sort_unstable();
        assert_eq!((end, found), (ScanEnd::AllScanned, expected));
    }
    assert_eq!(scanner.open_states(), 0);
}

#[test]
fn a_state_is_scanned_by_its_own_scanner_only() {
    let (set, other) = (texts(&["a"]), texts(&["a"]));
    let mut first = scanner(&[&set], 1);
    let mut second = scanner(&[&set], 1);
    let mut state = first.open(&set).expect("room");
    assert_eq!(second.scan(&mut state, b"a", &mut |_, _| GO_ON), ScanEnd::NotPrepared);
    assert!(first.open(&other).is_none(), "an equal set is not the same");
    // Its memory goes back to where it came from.
    second.close(state);
    assert_eq!((first.open_states(), second.open_states()), (0, 0));
    let mut state = first.open(&set).expect("room");
    drop(first);
    assert_eq!(second.scan(&mut state, b"a", &mut |_, _| GO_ON), ScanEnd::NotPrepared);
    second.restart(&mut state);
    drop(set);
    drop(state);
}

#[test]
fn sets_are_released_when_their_states_are_closed() {
    let (old, new) = (texts(&["a"]), texts(&["b"]));
    let mut scanner = scanner(&[&old], 1);
    let mut state = scanner.open(&old).expect("room");
    let prepared = std::thread::scope(|scope| scope.spawn(|| PreparedSet::new(&new)).join());
    scanner.adopt(prepared.expect("no panic").expect("memory")).expect("a new set");
    assert!(scanner.adopt(PreparedSet::new(&new).expect("memory")).is_err(), "it is there already");
    assert!(scanner.release(&old).is_none(), "a state is open");
    assert_eq!(count(&mut scanner, &mut state, b"ab"), 1, "the old set is still used");
    let mut newer = scanner.open(&new).expect("room");
    assert_eq!(count(&mut scanner, &mut newer, b"abb"), 2);
    scanner.close(state);
    assert!(scanner.release(&old).is_some());
    assert!(scanner.open(&old).is_none());
    assert_eq!(scanner.sets().count(), 1);
    for _ in 1..16 {
        scanner.prepare(&texts(&["c"])).expect("room for a set");
    }
    assert!(scanner.prepare(&texts(&["c"])).is_err(), "sixteen at a time");
    assert!(scanner.prepare(&new).is_ok(), "this one is prepared");
}

#[test]
fn workers_scan_one_set_at_the_same_time() {
    let (lists, sets) = (several_sets(), compiled_sets());
    std::thread::scope(|scope| {
        for worker in 0..4_usize {
            let lists = &lists;
            scope.spawn(move || {
                let mut scanner = scanner(&sets.iter().collect::<Vec<_>>(), 8 * POOL_PAGE);
                for round in 0..300_usize {
                    let which = (round + worker) % sets.len();
                    let stream: Vec<u8> =
                        (0..200).map(|at| b"abcx1"[(at * at + round + worker) % 5]).collect();
                    let mut state = scanner.open(&sets[which]).expect("room");
                    let mut found = Matches::new();
                    for piece in stream.chunks(1 + round % 50) {
                        let end = scanner.scan(&mut state, piece, &mut |id, end| {
                            found.insert((end, id));
                            GO_ON
                        });
                        assert_eq!(end, ScanEnd::AllScanned);
                    }
                    if round % 10 == 0 {
                        assert_eq!(found, matches(&lists[which], &stream, false));
                    }
                }
            });
        }
    });
}

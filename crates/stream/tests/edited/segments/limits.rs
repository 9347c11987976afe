//! Memory, datagrams, and the end of streams in any state.

use super::*;
use mmb_stream::{
    EditedPayload, Level, StreamDrop, StreamId, StreamLimits, StreamTable, StreamVerdict, Unfit,
};
use proptest::prelude::*;

/// A table under limits, and a stream of datagrams that is edited in both directions.
fn datagrams(limits: StreamLimits) -> (StreamTable, StreamId, Words) {
    let mut table = StreamTable::default();
    assert!(table.configure(limits));
    let id = table.open([Level::Edit; 2], true, None, 0).expect("room");
    (table, id, Words::new(&WORDS))
}

/// The payload of a datagram as it goes on.
fn datagram(
    table: &mut StreamTable,
    (id, direction): (StreamId, usize),
    editor: &mut Words,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    let outcome = table.take(id, direction, &mmb_stream::Segment::default(), &mut bytes, 0, editor);
    assert_eq!(outcome.verdict, StreamVerdict::Pass);
    if let EditedPayload::Buffered { offset, len } = outcome.edited.expect("a payload").payload {
        bytes = vec![0; len];
        table.copy_buffered(id, direction, offset, &mut bytes);
    }
    bytes
}

#[test]
fn datagrams_are_edited_and_keep_their_borders() {
    let (mut table, id, mut editor) = datagrams(LIMITS);
    let mut take = |direction, payload: &str| {
        let bytes = datagram(&mut table, (id, direction), &mut editor, payload.as_bytes());
        String::from_utf8(bytes).expect("a text")
    };
    assert_eq!(take(0, "an up"), "an UPPER");
    assert_eq!(take(1, "cut"), "");
    let info = table.info(id);
    assert_eq!((info.edits[0].edits, info.edits[0].removed, info.edits[0].added), (1, 2, 5));
    assert_eq!(info.edits.map(|edits| (edits.held, edits.unsent)), [(0, 0); 2]);
    assert_eq!(info.crc32c[0], crc32c::crc32c(b"an up"), "of what came");
    assert_eq!([0, 1].map(|end| table.reset_target(id, end)), [None; 2]);
    table.end(id);
    assert_eq!((table.payload_memory(), table.edit_records()), (0, 0));
}

/// Datagrams in, at these times, and those that go on, in their order. What is left is let go by time.
fn go_on(words: &[(&str, &str)], datagrams: &[(u64, Vec<u8>)]) -> Vec<Vec<u8>> {
    let (mut table, id, _) = self::datagrams(LIMITS);
    let (mut editor, mut out, header) = (Words::new(words), Vec::new(), mmb_stream::Segment::default());
    let hold = u64::from(LIMITS.hold_ms);
    let pass_time =
        |table: &mut StreamTable, editor: &mut Words, now_ms: u64, taken: usize, out: &mut Vec<Vec<u8>>| {
            while let Some((id, direction)) = table.next_due(now_ms) {
                table.release(id, direction, now_ms, editor).expect("it goes on");
            }
            while let Some(generated) = table.generate() {
                // Its identification is taken from that of the last one that came.
                let pending = taken - 1 - out.len();
                assert_eq!(
                    (generated.purpose, generated.direction),
                    (mmb_stream::SegmentPurpose::Datagram { pending }, 0)
                );
                out.push(generated.payload.to_vec());
            }
        };
    let mut now = 0;
    for (taken, (pause, payload)) in datagrams.iter().enumerate() {
        now += pause;
        if *pause > 0 {
            pass_time(&mut table, &mut editor, now, taken, &mut out);
        }
        let mut bytes = payload.clone();
        let outcome = table.take(id, 0, &header, &mut bytes, now, &mut editor);
        match outcome.verdict {
            StreamVerdict::Absorb => {}
            StreamVerdict::Pass => {
                if let EditedPayload::Buffered { offset, len } = outcome.edited.expect("a payload").payload {
                    bytes = vec![0; len];
                    table.copy_buffered(id, 0, offset, &mut bytes);
                }
                out.push(bytes);
            }
            StreamVerdict::Drop(why) => panic!("{why:?}"),
        }
    }
    pass_time(&mut table, &mut editor, now + hold, datagrams.len(), &mut out);
    assert_eq!(out.len(), datagrams.len());
    let info = table.info(id);
    assert_eq!((info.edits[0].held, info.edits[0].unsent), (0, 0));
    table.next_due(now + hold);
    assert_eq!(table.payload_memory(), 0);
    table.end(id);
    assert_eq!((table.payload_memory(), table.edit_records()), (0, 0));
    out
}

#[test]
fn a_match_over_two_datagrams_is_edited_in_the_first() {
    let hold = u64::from(LIMITS.hold_ms);
    let texts = |datagrams: &[(u64, &str)]| {
        let datagrams: Vec<_> =
            datagrams.iter().map(|(pause, text)| (*pause, text.as_bytes().to_vec())).collect();
        let out = go_on(&[("ATTACK", "(gone!)"), ("cut", ""), ("one", "two"), ("aab", "X")], &datagrams);
        out.into_iter().map(|bytes| String::from_utf8(bytes).expect("a text")).collect::<Vec<_>>()
    };
    assert_eq!(texts(&[(0, "an ATT"), (0, "ACK here"), (0, "more")]), ["an (gone!)", " here", "more"]);
    assert_eq!(texts(&[(0, "an ATT"), (1, "ACK here"), (1, "more")]), ["an (gone!)", " here", "more"]);
    assert_eq!(texts(&[(0, "an ATT"), (0, "ic"), (0, "more")]), ["an ATT", "ic", "more"]);
    assert_eq!(texts(&[(0, "cu"), (0, "t")]), ["", ""]);
    // One behind the other: each ends with what the next one may go on with.
    assert_eq!(texts(&[(0, "c"), (0, "ut c"), (0, "ut AT"), (0, "TACK")]), ["", " ", " (gone!)", ""]);
    assert_eq!(texts(&[(0, "on"), (0, "e")]), ["tw", "o"], "as long as the word");
    // What does not come in time goes on as it is, and so does what spans more than two.
    assert_eq!(texts(&[(0, "an ATT"), (hold, "ACK here")]), ["an ATT", "ACK here"]);
    assert_eq!(texts(&[(0, "A"), (0, "T"), (0, "TACK")]), ["A", "T", "TACK"]);
    // One that is given up hides none in the next two.
    assert_eq!(texts(&[(0, "a"), (0, "a"), (0, "ab!")]), ["a", "X", "!"]);
}

/// No datagram gets longer than its packet may be: what has no room goes on as it is.
#[test]
fn datagrams_grow_to_what_there_is_room_for() {
    let (mut table, id, _) = datagrams(LIMITS);
    let mut editor = Words::new(&[("up", "UPPER"), ("ATTACK", "(gone!!!)")]);
    let header = mmb_stream::Segment { max_payload: Some(10), ..mmb_stream::Segment::default() };
    let mut take = |table: &mut StreamTable, payload: &[u8]| {
        let mut bytes = payload.to_vec();
        let outcome = table.take(id, 0, &header, &mut bytes, 0, &mut editor);
        if let EditedPayload::Buffered { offset, len } = outcome.edited(&header).payload {
            bytes = vec![0; len];
            table.copy_buffered(id, 0, offset, &mut bytes);
        }
        (outcome.verdict == StreamVerdict::Pass).then(|| String::from_utf8(bytes).expect("a text"))
    };
    assert_eq!(
        take(&mut table, b"up up xx").as_deref(),
        Some("up up xx"),
        "both would be 11 with what is behind"
    );
    assert_eq!(take(&mut table, b"up up x").as_deref(), Some("UPPER up x"));
    // The same of those that are generated.
    for (payloads, expected) in
        [(["up ATT", "ACK up"], ["UPPER ATT", "ACK UPPER"]), (["ATT", "ACK up"], ["(gone!!!)", " UPPER"])]
    {
        payloads.iter().for_each(|payload| assert_eq!(take(&mut table, payload.as_bytes()), None));
        let generated: Vec<String> = std::iter::from_fn(|| {
            table.generate().map(|generated| String::from_utf8_lossy(generated.payload).into_owned())
        })
        .collect();
        assert_eq!(generated, expected);
    }
}

/// Where the border is of a match over two datagrams, however many are in them.
#[test]
fn datagrams_keep_their_borders_with_many_edits() {
    let many = "up ".repeat(200);
    let all = [format!("{many}AT"), format!("TACK{many}"), "end".into()];
    let out = go_on(&[("ATTACK", "(gone!)"), ("up", "UPPER")], &all.map(|text| (0, text.into_bytes())));
    let edited = "UPPER ".repeat(200);
    assert_eq!(out, [format!("{edited}(gone!)").into_bytes(), edited.into_bytes(), b"end".to_vec()]);
}

proptest! {
    #[test]
    fn datagrams_are_edited_as_their_stream(
        datagrams in prop::collection::vec(
            (0..3_u64, prop::collection::vec(prop::sample::select(b"abcutpone".as_slice()), 2..9)), 1..40
        )
    ) {
        // No word has more bytes than a datagram and one of the next.
        let words = [("up", "UPPER"), ("cut", ""), ("one", "two"), ("abc", "a")];
        let out = go_on(&words, &datagrams);
        prop_assert_eq!(out.len(), datagrams.len());
        prop_assert_eq!(out, edited_by_datagram(&words, &datagrams));
    }
}

/// Edits datagrams. The replacement of a word over two datagrams goes into the first one, or into both if it
/// is as long as the word.
fn edited_by_datagram(words: &[(&str, &str)], datagrams: &[(u64, Vec<u8>)]) -> Vec<Vec<u8>> {
    let all: Vec<u8> = datagrams.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    let owner: Vec<usize> = (0..).zip(datagrams).flat_map(|(i, (_, bytes))| vec![i; bytes.len()]).collect();
    let mut out = vec![vec![]; datagrams.len()];
    let mut at = 0;
    while at < all.len() {
        let word = words.iter().find(|(word, _)| all[at..].starts_with(word.as_bytes()));
        let (count, new_text) =
            word.map_or((1, &all[at..=at]), |(word, new_text)| (word.len(), new_text.as_bytes()));
        for (i, byte) in new_text.iter().enumerate() {
            out[owner[if count == new_text.len() { at + i } else { at }]].push(*byte);
        }
        at += count;
    }
    out
}

#[test]
fn idle_streams_of_datagrams_keep_no_memory() {
    let (mut table, id, mut editor) = datagrams(LIMITS);
    let other = table.open([Level::Edit; 2], false, None, 0).expect("room");
    let mut others = editor.clone();
    datagram(&mut table, (id, 0), &mut editor, b"unchanged");
    assert_eq!(table.payload_memory(), 0);
    datagram(&mut table, (id, 0), &mut editor, b"an up");
    assert!(table.payload_memory() > 0, "until it was copied");
    datagram(&mut table, (other, 0), &mut others, b"unchanged");
    assert_eq!(table.payload_memory(), 0);
    datagram(&mut table, (id, 0), &mut editor, b"an up");
    table.end(id);
    assert_eq!(table.payload_memory(), 0);
    datagram(&mut table, (other, 0), &mut others, b"an up");
    table.end(other);
    assert_eq!((table.payload_memory(), table.edit_records()), (0, 0));
}

#[test]
fn corrupt_datagrams_are_dropped() {
    let (mut table, id, _) = datagrams(LIMITS);
    let header = mmb_stream::Segment { is_corrupt: true, ..mmb_stream::Segment::default() };
    let outcome = table.take(id, 0, &header, &mut [b'a'; 3], 0, &mut Words::new(&WORDS));
    assert_eq!(outcome.verdict, StreamVerdict::Drop(StreamDrop::BadChecksum));
    table.end(id);
}

#[test]
fn a_datagram_for_which_there_is_no_memory_is_lost_alone() {
    let (mut table, id, _) = datagrams(chunks(1));
    let mut editor = Words::new(&WORDS);
    let header = mmb_stream::Segment { max_payload: Some(1000), ..mmb_stream::Segment::default() };
    for _ in 0..2 {
        let outcome = table.take(id, 0, &header, &mut b"up".to_vec(), 0, &mut editor);
        assert_eq!(outcome.verdict, StreamVerdict::Drop(StreamDrop::NoRoom), "it may be held and kept");
    }
    assert_eq!(table.payload_memory(), 0);
    table.end(id);
}

#[test]
fn datagrams_that_wait_leave_memory_for_others() {
    let (mut table, id, mut editor) = datagrams(StreamLimits { streams: 20, ..chunks(16) });
    let header = mmb_stream::Segment { max_payload: Some(1000), ..mmb_stream::Segment::default() };
    let take = |table: &mut StreamTable, id, editor: &mut Words, payload: &[u8]| {
        table.take(id, 0, &header, &mut payload.to_vec(), 0, editor).verdict
    };
    let others: Vec<StreamId> =
        (0..7).map(|_| table.open([Level::Edit; 2], false, None, 0).expect("room")).collect();
    for other in &others {
        assert_eq!(take(&mut table, *other, &mut Words::new(&WORDS), b"an u"), StreamVerdict::Absorb);
    }
    assert!(table.usage().is_short);
    assert_eq!(table.open([Level::Edit; 2], false, None, 0), Err(Unfit::NoRoom));
    // Who has a stream goes on; nothing waits, and no match is missed in one datagram.
    assert_eq!(take(&mut table, id, &mut editor, b"an u"), StreamVerdict::Pass);
    assert_eq!(take(&mut table, id, &mut editor, b"p"), StreamVerdict::Pass);
    assert_eq!(take(&mut table, id, &mut editor, b"up"), StreamVerdict::Pass);
    assert_eq!(table.info(id).edits[0].edits, 1);
}

/// Limits with so many chunks of 2 KiB.
fn chunks(count: usize) -> StreamLimits {
    StreamLimits { memory: count * 2048, ..LIMITS }
}

#[test]
fn bytes_for_which_there_is_no_room_are_dropped_and_come_again() {
    let mut conn = EditedConn::established_with(chunks(8), &WORDS, &|segment| segment);
    let mut at = 0;
    while conn.take(seg(0, at, &[b'a'; 1000])).is_some() {
        at += 1000;
        assert!(at < 16_000);
    }
    assert_eq!(conn.outcome.verdict, StreamVerdict::Drop(StreamDrop::NoRoom));
    assert!(at >= 14_000, "{at} of 16,384 bytes of memory");
    // What the receiver lacks goes again meanwhile.
    assert_eq!(conn.send(seg(0, 0, &[b'a'; 1000])).len(), 1);
    conn.send(ack(1, 0, 4000));
    assert!(conn.take(seg(0, at, &[b'a'; 1000])).is_some());
    conn.end();
}

#[test]
fn output_that_is_too_long_for_the_memory_breaks_the_stream() {
    let word = "w".repeat(20_000);
    let mut conn = EditedConn::established_with(chunks(8), &[("up", &word)], &|segment| segment);
    conn.drops(seg(0, 0, b"up"), StreamDrop::Broken);
    // It is over, whatever comes.
    conn.drops(seg(0, 2, b"more"), StreamDrop::Broken);
    conn.drops(ack(1, 0, 0), StreamDrop::Broken);
    assert_eq!(conn.generated(), NOTHING);
    conn.end();
}

#[test]
fn held_bytes_for_which_there_is_no_room_break_the_stream() {
    let word = "w".repeat(60_000);
    let mut conn = EditedConn::established_with(chunks(16), &[(&word, "x")], &|segment| segment);
    let mut at = 0;
    while conn.take(seg(0, at, &word.as_bytes()[..1000])).is_none() && at < 40_000 {
        if conn.outcome.verdict == StreamVerdict::Drop(StreamDrop::NoRoom) {
            break;
        }
        at += 1000;
    }
    // 16 chunks of 2,048 bytes.
    assert_eq!(at, 31_000);
    // To let them go takes memory, too.
    conn.now_ms = 100;
    assert_eq!(conn.table.next_due(100), Some((conn.id, 0)));
    let released = conn.table.release(conn.id, 0, 100, &mut conn.editor);
    assert_eq!(released, Err(StreamDrop::Broken));
    assert_eq!(conn.table.release(conn.id, 0, 100, &mut conn.editor), Err(StreamDrop::Broken));
    assert_eq!((conn.table.due_ms(), conn.generated()), (None, vec![]));
    conn.end();
}

#[test]
fn kept_output_is_bounded_whatever_it_grows_to() {
    let word = "w".repeat(1000);
    let limits = StreamLimits { window: 10_000, ..LIMITS };
    let mut conn = EditedConn::established_with(limits, &[("up", &word)], &|segment| segment.window(5000));
    let mut at = 0;
    for _ in 0..100 {
        if conn.take(seg(0, at, b"upup")).is_some() || conn.outcome.verdict == StreamVerdict::Absorb {
            at += 4;
        }
        while conn.table.generate().is_some() {}
        // Twice the window, and the output of one packet.
        assert!(conn.info().buffered[0] <= 22_000, "{}", conn.info().buffered[0]);
    }
    assert_eq!(conn.outcome.verdict, StreamVerdict::Drop(StreamDrop::NoRoom));
    conn.end();
}

#[test]
fn early_bytes_are_bounded() {
    let limits = StreamLimits { reorder: 2000, ..LIMITS };
    let mut conn = EditedConn::established_with(limits, &WORDS, &|segment| segment);
    conn.take(seg(0, 1000, &[b'a'; 1000]));
    conn.take(seg(0, 3000, &[b'a'; 1000]));
    conn.drops(seg(0, 5000, &[b'a'; 1000]), StreamDrop::NoRoom);
    assert_eq!(conn.info().out_of_order[0], 2000);
    conn.end();
}

#[test]
fn the_longest_idle_stream_with_held_or_kept_bytes_is_the_one_to_give_up() {
    let mut conn = conn();
    assert_eq!(conn.table.longest_idle(1_000_000), None);
    conn.send(seg(0, 0, b"u"));
    assert_eq!(conn.table.longest_idle(1_000_000), Some(conn.id), "it holds a byte");
    conn.send(seg(0, 1, b"p"));
    assert_eq!(conn.table.longest_idle(1_000_000), Some(conn.id), "it keeps five");
    conn.send(ack(1, 0, 5));
    assert_eq!(conn.table.longest_idle(1_000_000), None);
    conn.end();
}

#[test]
fn little_memory_makes_new_streams_unfit() {
    let mut conn = EditedConn::established_with(chunks(8), &WORDS, &|segment| segment);
    conn.send(seg(0, 0, &[b'a'; 14_000]));
    let opened = conn.table.open([Level::Edit, Level::None], false, Some(&syn(b"").header), 0);
    assert_eq!(opened, Err(Unfit::NoRoom));
    assert_eq!(conn.table.edit_records(), 1);
    conn.end();
}

#[test]
fn a_stream_ends_in_any_state() {
    let steps: [&dyn Fn(&mut EditedConn); 9] = [
        &|conn| drop(conn.take(seg(0, 0, b"up"))),
        &|conn| drop(conn.take(seg(0, 2, b"u"))),
        &|conn| drop(conn.take(seg(0, 100, b"early"))),
        &|conn| drop(conn.take(ack(1, 0, 3))),
        &|conn| drop(conn.take(seg(0, 3, &[b'a'; 60]))),
        &|conn| drop(conn.release(100)),
        &|conn| drop(conn.take(seg(0, 0, b"upu"))),
        &|conn| drop(conn.take(seg(0, 63, b"cut").fin())),
        &|conn| assert_ne!(conn.table.next_due(0), Some((conn.id, 1))),
    ];
    for makes in [false, true] {
        for count in 0..=steps.len() {
            let mut conn = EditedConn::established_with(LIMITS, &WORDS, &|segment| segment.window(40));
            for step in &steps[..count] {
                step(&mut conn);
                if makes {
                    conn.generated();
                }
            }
            conn.end();
        }
    }
}

#[test]
fn a_stream_that_takes_the_place_of_another_inherits_nothing() {
    let mut conn = conn();
    for _ in 0..5 {
        conn.take(seg(0, 0, b"up"));
        conn.take(seg(0, 2, b"u"));
        let before = conn.id;
        conn.table.end(before);
        conn.id = conn.table.open([Level::Edit, Level::None], false, Some(&syn(b"").header), 0).unwrap();
        assert_eq!(conn.id, before, "the same place");
        assert_eq!((conn.table.due_ms(), conn.generated()), (None, vec![]));
        conn.editor = Words::new(&WORDS);
        conn.send(syn(b""));
        conn.send(syn_ack());
        conn.send(ack(0, 0, 0));
        // What it holds is due a hold after it came, not before.
        conn.now_ms += 50;
        assert_eq!(conn.send(seg(0, 0, b"u")), ["+< 0 \"\" ack 1"]);
        assert_eq!(conn.table.due_ms(), Some(conn.now_ms + 100));
        assert_eq!(conn.send(seg(0, 0, b"up")), ["> 0 \"UPPER\" ack 0"]);
        conn.send(ack(1, 0, 5));
        conn.table.end(conn.id);
        conn.id = conn.table.open([Level::Edit, Level::None], false, Some(&syn(b"").header), 0).unwrap();
        conn.editor = Words::new(&WORDS);
        conn.send(syn(b""));
        conn.send(syn_ack());
        conn.send(ack(0, 0, 0));
    }
    conn.end();
}

#[test]
fn what_a_packet_could_not_carry_is_made() {
    let mut conn = conn();
    let shown = conn.take(seg(0, 0, b"up").fin());
    assert_eq!(shown.as_deref(), Some("> 0 \"UPPER\" ack 0 fin"));
    let edited = conn.outcome.edited.expect("numbers");
    conn.table.requeue(conn.id, 0, &edited);
    assert_eq!(conn.generated(), ["+> 0 \"UPPER\" ack 0 fin"]);
    conn.end();
}

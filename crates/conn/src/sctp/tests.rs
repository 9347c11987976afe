use super::*;
use Direction::{Forward, Reply};

/// Tags of forward and reply packets.
const TO_SERVER: u32 = 0x2222;
const TO_CLIENT: u32 = 0x1111;

fn with(kinds: u16, tag: u32) -> SctpChunks {
    SctpChunks { tag, kinds, count: 1, ..SctpChunks::default() }
}

fn init(kind: u16, tag: u32, initiate_tag: u32) -> SctpChunks {
    SctpChunks { initiate_tag, ..with(kind, tag) }
}

/// An association whose packets are tracked.
struct SctpScript(ConnTracker, ConnState);

impl SctpScript {
    fn begin() -> SctpScript {
        let (tracker, state) =
            ConnTracker::associate(&init(INIT, 0, TO_CLIENT), Pickup::Strict).expect("an INIT begins");
        assert_eq!(state, ConnState::SynSent);
        SctpScript(tracker, state)
    }

    fn open() -> SctpScript {
        let mut play = SctpScript::begin();
        play.goes(Reply, init(INIT_ACK, TO_CLIENT, TO_SERVER), ConnState::SynReceived);
        play.goes(Forward, with(COOKIE_ECHO, TO_SERVER), ConnState::SynReceived);
        play.goes(Reply, with(COOKIE_ACK, TO_CLIENT), ConnState::Established);
        play
    }

    #[track_caller]
    fn goes(&mut self, direction: Direction, chunks: SctpChunks, next: ConnState) {
        match self.0.chunks(self.1, direction, &chunks) {
            TrackOutcome::Moves(state) => self.1 = state,
            TrackOutcome::Stays | TrackOutcome::Noted => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(self.1, next);
    }

    #[track_caller]
    fn not(&mut self, direction: Direction, chunks: SctpChunks, why: Invalid) {
        let before = self.0;
        assert_eq!(self.0.chunks(self.1, direction, &chunks), TrackOutcome::Invalid(why));
        assert_eq!(self.0, before);
    }
}

#[test]
fn an_association_opens_and_is_shut_down() {
    let mut play = SctpScript::open();
    for (direction, tag) in [(Forward, TO_SERVER), (Reply, TO_CLIENT)] {
        play.goes(direction, with(0, tag), ConnState::Established);
        play.not(direction, with(0, tag + 1), Invalid::BadTag);
        play.not(direction, with(0, 0), Invalid::BadTag);
    }
    play.goes(Forward, with(SHUTDOWN, TO_SERVER), ConnState::FinWait);
    play.goes(Reply, with(SHUTDOWN_ACK, TO_CLIENT), ConnState::Closing);
    play.goes(Forward, with(SHUTDOWN_COMPLETE, TO_SERVER), ConnState::TimeWait);
    assert_eq!(play.0.chunks(play.1, Forward, &init(INIT, 0, 9)), TrackOutcome::Reopens);
}

#[test]
fn an_abort_names_a_tag_or_reflects_the_other_one() {
    let reflected = |tag| SctpChunks { reflected: true, ..with(ABORT, tag) };
    for abort in [with(ABORT, TO_CLIENT), reflected(TO_SERVER)] {
        let mut play = SctpScript::open();
        play.not(Reply, with(ABORT, TO_SERVER), Invalid::BadTag);
        play.not(Reply, reflected(TO_CLIENT), Invalid::BadTag);
        play.goes(Reply, abort, ConnState::Reset);
    }
    // An INIT that is answered with an ABORT: there is no such endpoint.
    SctpScript::begin().goes(Reply, with(ABORT, TO_CLIENT), ConnState::Reset);
}

#[test]
fn chunks_that_must_be_alone_are() {
    let mut play = SctpScript::open();
    for kinds in [INIT, INIT_ACK, SHUTDOWN_COMPLETE] {
        let bundled = SctpChunks { count: 2, ..init(kinds, TO_SERVER, 5) };
        play.not(Forward, bundled, Invalid::BadFlags);
    }
    play.not(Forward, SctpChunks { count: 0, ..with(0, TO_SERVER) }, Invalid::BadFlags);
    play.not(Forward, init(INIT, TO_SERVER, 5), Invalid::BadTag);
    play.not(Forward, init(INIT, 0, 0), Invalid::BadTag);
}

#[test]
fn only_an_init_begins_strictly_and_nothing_begins_that_answers() {
    let begins = |chunks, pickup| ConnTracker::associate(&chunks, pickup).map(|(_, state)| state);
    assert_eq!(begins(with(0, 5), Pickup::Strict), Err(Invalid::NotSyn));
    assert_eq!(begins(with(0, 5), Pickup::Loose), Ok(ConnState::Unreplied));
    assert_eq!(begins(with(0, 0), Pickup::Loose), Err(Invalid::BadTag));
    for kinds in [ABORT, SHUTDOWN, SHUTDOWN_ACK, SHUTDOWN_COMPLETE, COOKIE_ACK] {
        assert_eq!(begins(with(kinds, 5), Pickup::Loose), Err(Invalid::NotSyn));
    }
    assert_eq!(begins(init(INIT_ACK, 5, 6), Pickup::Loose), Err(Invalid::NotSyn));
}

#[test]
fn what_is_picked_up_takes_each_direction_s_first_tag() {
    let (tracker, state) = ConnTracker::associate(&with(0, TO_SERVER), Pickup::Loose).expect("data");
    let mut play = SctpScript(tracker, state);
    play.not(Forward, with(0, TO_CLIENT), Invalid::BadTag);
    play.not(Reply, with(ABORT, 77), Invalid::BadTag);
    play.goes(Reply, with(0, TO_CLIENT), ConnState::Established);
    play.not(Reply, with(0, TO_SERVER), Invalid::BadTag);
}

/// The other end's tag is not known yet. Its first packet sets the tag, even one that a restart has
/// announced.
#[test]
fn what_was_picked_up_takes_a_tag_that_a_restart_named() {
    let (tracker, state) = ConnTracker::associate(&with(0, TO_SERVER), Pickup::Loose).expect("data");
    let mut play = SctpScript(tracker, state);
    play.goes(Forward, init(INIT, 0, TO_CLIENT), ConnState::Unreplied);
    play.goes(Reply, init(INIT_ACK, TO_CLIENT, 0x4444), ConnState::Unreplied);
    play.goes(Reply, with(0, TO_CLIENT), ConnState::Established);
    play.not(Reply, with(0, 0x4444), Invalid::BadTag);
    assert!(play.0.is_association());
}

#[test]
fn an_end_may_restart_and_nobody_else_may_say_so() {
    let mut play = SctpScript::open();
    play.goes(Forward, init(INIT, 0, 0x3333), ConnState::Established);
    play.goes(Reply, with(0, TO_CLIENT), ConnState::Established);
    play.not(Forward, with(COOKIE_ECHO, 0x3333), Invalid::BadTag);
    play.goes(Reply, init(INIT_ACK, 0x3333, 0x4444), ConnState::Established);
    play.goes(Reply, with(ABORT, 0x3333), ConnState::Established);
    play.not(Forward, with(0, 0x4444), Invalid::BadTag);
    play.goes(Forward, with(COOKIE_ECHO, 0x4444), ConnState::Established);
    play.goes(Reply, with(COOKIE_ACK, 0x3333), ConnState::Established);
    play.not(Reply, with(0, TO_CLIENT), Invalid::BadTag);
    assert!(play.0.is_association());
}

/// A sender that knows only the tuple may send an INIT with a tag of its choice. No packet with that tag
/// becomes valid.
#[test]
fn an_init_makes_its_tag_known_to_nobody() {
    let reflected = SctpChunks { reflected: true, ..with(ABORT, 0x6666) };
    let quoted = |tag: u32| [&[0, 1, 0, 2][..], &tag.to_be_bytes()].concat();
    let mut opening = SctpScript::begin();
    assert!(!opening.0.may_have_sent(Forward, &quoted(0x6666)), "an INIT has none");
    opening.goes(Reply, init(INIT, 0, 0x6666), ConnState::SynSent);
    opening.not(Reply, reflected, Invalid::BadTag);
    assert!(!opening.0.may_have_sent(Forward, &quoted(0x6666)));
    opening.goes(Reply, init(INIT_ACK, TO_CLIENT, TO_SERVER), ConnState::SynReceived);
    opening.goes(Forward, with(COOKIE_ECHO, TO_SERVER), ConnState::SynReceived);
    opening.goes(Reply, with(COOKIE_ACK, TO_CLIENT), ConnState::Established);
    let mut open = SctpScript::open();
    open.goes(Reply, init(INIT, 0, 0x6666), ConnState::Established);
    open.not(Reply, reflected, Invalid::BadTag);
    assert!(!open.0.may_have_sent(Forward, &quoted(0x6666)));
    assert!(open.0.may_have_sent(Forward, &quoted(TO_SERVER)));
}

#[test]
fn a_stranger_s_init_replaces_no_tag_that_an_answer_confirmed() {
    let mut play = SctpScript::open();
    play.goes(Forward, init(INIT, 0, 0x3333), ConnState::Established);
    play.goes(Reply, init(INIT_ACK, 0x3333, 0x4444), ConnState::Established);
    for direction in [Forward, Reply] {
        assert_eq!(play.0.chunks(play.1, direction, &init(INIT, 0, 0x7777)), TrackOutcome::Noted);
    }
    play.goes(Forward, with(COOKIE_ECHO, 0x4444), ConnState::Established);
    play.goes(Reply, with(COOKIE_ACK, 0x3333), ConnState::Established);
    play.not(Reply, with(0, 0x7777), Invalid::BadTag);
    assert!(play.0.is_association());
}

#[test]
fn what_an_init_in_an_association_leads_to_is_noted_alone() {
    let mut play = SctpScript::open();
    let noted = [
        (Reply, init(INIT, 0, 0x7777)),
        (Forward, init(INIT_ACK, 0x7777, 0x8888)),
        (Forward, with(ABORT, 0x7777)),
    ];
    for (direction, chunks) in noted {
        assert_eq!(play.0.chunks(play.1, direction, &chunks), TrackOutcome::Noted);
        assert!(play.0.is_association());
    }
    play.not(Forward, with(0, 0x7777), Invalid::BadTag);
    play.goes(Forward, with(0, TO_SERVER), ConnState::Established);
    play.goes(Reply, with(0, TO_CLIENT), ConnState::Established);
}

#[test]
fn each_answer_to_an_init_may_be_the_one_that_counts() {
    for tag in [TO_SERVER, 0x5555] {
        let mut play = SctpScript::begin();
        play.goes(Reply, init(INIT_ACK, TO_CLIENT, TO_SERVER), ConnState::SynReceived);
        play.goes(Forward, init(INIT, 0, TO_CLIENT), ConnState::SynReceived);
        play.goes(Reply, init(INIT_ACK, TO_CLIENT, 0x5555), ConnState::SynReceived);
        play.goes(Forward, with(COOKIE_ECHO, tag), ConnState::SynReceived);
        play.goes(Reply, with(COOKIE_ACK, TO_CLIENT), ConnState::Established);
    }
}

#[test]
fn both_ends_may_ask_at_once() {
    let mut play = SctpScript::begin();
    play.goes(Reply, init(INIT, 0, TO_SERVER), ConnState::SynSent);
    play.goes(Reply, init(INIT_ACK, TO_CLIENT, TO_SERVER), ConnState::SynReceived);
    play.goes(Forward, init(INIT_ACK, TO_SERVER, TO_CLIENT), ConnState::SynReceived);
    play.goes(Reply, with(COOKIE_ECHO, TO_CLIENT), ConnState::SynReceived);
    play.goes(Forward, with(COOKIE_ACK, TO_SERVER), ConnState::Established);
}

#[test]
fn chunks_are_read_as_far_as_they_go() {
    let mut packet = vec![0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0];
    packet.extend([3, 0, 0, 5, 1, 0, 0, 0]);
    packet.extend([6, 1, 0, 4]);
    packet.extend([0, 3, 0, 16]);
    packet.extend([7, 0, 0, 4]);
    let chunks = SctpChunks::read(&packet).expect("it has a tag");
    let expected = SctpChunks { tag: 9, kinds: ABORT, count: 3, reflected: true, ..SctpChunks::default() };
    assert_eq!(chunks, expected, "what stands behind data does not count");
    assert_eq!(SctpChunks::read(&packet[..7]), None);
    let empty: Vec<u8> = packet[..12].iter().copied().chain([9, 0, 0, 4].repeat(1000)).collect();
    assert_eq!(SctpChunks::read(&empty).map(|chunks| chunks.count), Some(MAX_CHUNKS));
    packet[14..16].copy_from_slice(&[0, 3]);
    assert_eq!(
        SctpChunks::read(&packet).and_then(|chunks| chunks.fault()),
        Some(Invalid::BadFlags),
        "a chunk of 3 bytes"
    );
}

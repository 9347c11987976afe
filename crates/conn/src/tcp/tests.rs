//! Scripts of segments, with the outcome of each.

use super::*;
use Direction::{Forward, Reply};
use TrackOutcome::{Moves, Noted, Reopens, Stays};

mod properties;
mod resuming;

/// A connection under test: takes segments and checks their outcomes.
struct TcpScript {
    tracker: ConnTracker,
    state: ConnState,
}

impl TcpScript {
    fn open(first: TcpSegment) -> TcpScript {
        let (tracker, state) = ConnTracker::open(&first, Pickup::Loose).expect("a beginning");
        TcpScript { tracker, state }
    }

    #[track_caller]
    fn comes(&mut self, direction: Direction, segment: TcpSegment, expected: TrackOutcome) -> &mut TcpScript {
        let before = self.tracker;
        let outcome = self.tracker.segment(self.state, direction, &segment);
        assert_eq!(outcome, expected, "{segment:?} in {} with {before:?}", self.state.name());
        match outcome {
            Moves(next) => {
                assert_ne!(next, self.state, "a move to where it is");
                self.state = next;
            }
            TrackOutcome::Invalid(_) | Reopens => assert_eq!(self.tracker, before, "it changes nothing"),
            Stays | Noted => {}
        }
        self
    }
}

/// A segment with a window of a thousand.
fn segment(flags: u8, seq: u32, ack: u32) -> TcpSegment {
    TcpSegment { flags, seq, ack, window: 1000, ..TcpSegment::default() }
}

impl TcpSegment {
    fn with(self, payload: u32) -> TcpSegment {
        TcpSegment { payload, ..self }
    }

    fn window(self, window: u16) -> TcpSegment {
        TcpSegment { window, ..self }
    }

    fn scaled(self, shift: u8) -> TcpSegment {
        TcpSegment { window_scale: Some(shift), ..self }
    }
}

/// Initial sequence numbers of both ends. The initiator's numbers wrap within the first window.
const ISS: u32 = u32::MAX - 99;
const IRS: u32 = 5_000_000;

/// A number of the initiator, as an offset from its SYN.
fn f(octets: i32) -> u32 {
    ISS.wrapping_add_signed(octets)
}

/// A number of the responder, as an offset from its SYN.
fn r(octets: i32) -> u32 {
    IRS.wrapping_add_signed(octets)
}

/// After the handshake of RFC 9293 figure 6, without window scales.
fn established() -> TcpScript {
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    assert_eq!(script.state, ConnState::SynSent);
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Moves(ConnState::SynReceived));
    script.comes(Forward, segment(ACK, f(1), r(1)), Moves(ConnState::Established));
    script
}

/// Both ends have closed.
fn time_wait() -> TcpScript {
    let mut script = established();
    script.comes(Forward, segment(FIN | ACK, f(1), r(1)), Moves(ConnState::FinWait));
    script.comes(Reply, segment(ACK, r(1), f(2)), Stays);
    script.comes(Reply, segment(FIN | ACK, r(1), f(2)), Moves(ConnState::Closing));
    script.comes(Forward, segment(ACK, f(2), r(2)), Moves(ConnState::TimeWait));
    script
}

#[test]
fn a_tracker_is_as_small_as_its_place() {
    assert_eq!(size_of::<ConnTracker>(), 22);
}

#[test]
fn a_tracker_goes_through_bytes() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0).scaled(7));
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)).scaled(3), Moves(ConnState::SynReceived));
    assert_eq!(ConnTracker::from_bytes(script.tracker.to_bytes()), script.tracker);
    assert_eq!(ConnTracker::from_bytes([0xff; 22]).announced(FORWARD), 65_535 << 14, "no shift is larger");
}

#[test]
fn a_connection_opens_carries_data_and_closes() {
    let mut script = established();
    script.comes(Forward, segment(ACK, f(1), r(1)).with(500), Stays);
    script.comes(Reply, segment(ACK, r(1), f(501)).with(1000), Stays);
    script.comes(Forward, segment(ACK, f(501), r(1001)).with(500), Stays);
    script.comes(Reply, segment(FIN | ACK, r(1001), f(1001)), Moves(ConnState::FinWait));
    script.comes(Forward, segment(ACK, f(1001), r(1002)), Stays);
    script.comes(Forward, segment(FIN | ACK, f(1001), r(1002)), Moves(ConnState::Closing));
    script.comes(Reply, segment(ACK, r(1002), f(1002)), Moves(ConnState::TimeWait));
}

#[test]
fn retransmitted_handshakes_stay_where_they_are() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    script.comes(Forward, segment(SYN, f(0), 0), Stays);
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Moves(ConnState::SynReceived));
    script.comes(Forward, segment(SYN, f(0), 0), Stays);
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Stays);
    script.comes(Forward, segment(ACK, f(1), r(1)), Moves(ConnState::Established));
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Stays);
    script.comes(Forward, segment(ACK, f(1), r(1)), Stays);
}

#[test]
fn a_client_that_starts_over_is_followed() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    script.comes(Forward, segment(SYN, 77, 0), Stays);
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Noted);
    script.comes(Reply, segment(SYN | ACK, r(0), 78), Moves(ConnState::SynReceived));
}

/// RFC 9293 figure 7.
#[test]
fn both_ends_may_open_at_once() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    script.comes(Reply, segment(SYN, r(0), 0), Moves(ConnState::SynReceived));
    script.comes(Forward, segment(SYN | ACK, f(0), r(1)), Stays);
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Moves(ConnState::Established));
    script.comes(Forward, segment(ACK, f(1), r(1)).with(10), Stays);
    script.comes(Reply, segment(ACK, r(1), f(11)).with(10), Stays);
}

/// RFC 5382 REQ-2, with acknowledgements instead of SYN-ACKs: each end has seen the other's SYN after it sent
/// its own.
#[test]
fn a_simultaneous_open_may_end_with_plain_acknowledgements() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    script.comes(Reply, segment(SYN, r(0), 0), Moves(ConnState::SynReceived));
    script.comes(Forward, segment(ACK, f(1), r(1)), Stays);
    script.comes(Reply, segment(ACK, r(1), f(1)), Moves(ConnState::Established));
}

/// RFC 9293 figure 9: an end that still has an old connection answers the SYN, and the initiator's RST ends
/// the old connection. Linux passes both segments (`sSS -> sIG`, and `last_ack` in nf_conntrack_proto_tcp.c).
#[test]
fn answers_for_an_old_connection_do_not_open_the_new_one() {
    for payload in [0, 100] {
        let mut script = TcpScript::open(segment(SYN, f(0), 0));
        script.comes(Forward, segment(RST, f(-5000), 0), OUT_OF_WINDOW);
        script.comes(Reply, segment(ACK, r(300), f(-5000)).with(payload), Noted);
        script.comes(Forward, segment(RST, f(-4999), 0), OUT_OF_WINDOW);
        script.comes(Forward, segment(RST, f(-5000), 0), Noted);
        script.comes(Reply, segment(FIN | ACK, r(300), f(-5000)), OUT_OF_WINDOW);
        script.comes(Forward, segment(SYN, f(0), 0), Stays);
        script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Moves(ConnState::SynReceived));
        script.comes(Forward, segment(RST, f(-5000), 0), OUT_OF_WINDOW);
        script.comes(Forward, segment(ACK, f(1), r(1)), Moves(ConnState::Established));
        script.comes(Reply, segment(ACK, r(1), f(1)).with(500), Stays);
        script.comes(Forward, segment(ACK, f(1), r(501)).with(500), Stays);
    }
}

/// RFC 9293 section 3.10.7.3: the initiator answers a SYN-ACK that does not acknowledge its SYN with a RST.
#[test]
fn syn_acks_must_acknowledge_the_syn() {
    for ack in [f(0), f(2), 0, f(1) ^ 1 << 31] {
        let mut script = TcpScript::open(segment(SYN, f(0), 0));
        script.comes(Reply, segment(SYN | ACK, r(0), ack), Noted);
        script.comes(Forward, segment(RST, ack, 0), Noted);
        assert_eq!(script.state, ConnState::SynSent);
        script.comes(Reply, segment(SYN | ACK, r(9), f(1)), Moves(ConnState::SynReceived));
        script.comes(Forward, segment(ACK, f(1), r(10)), Moves(ConnState::Established));
    }
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    script.comes(Forward, segment(SYN | ACK, f(0), r(1)), OUT_OF_WINDOW);
}

/// RFC 7413: the SYN-ACK need not acknowledge the data.
#[test]
fn data_in_a_syn_may_be_acknowledged_or_not() {
    for acknowledged in [f(1), f(101)] {
        let mut script = TcpScript::open(segment(SYN, f(0), 0).with(100));
        script.comes(Reply, segment(SYN | ACK, r(0), acknowledged).with(300), Moves(ConnState::SynReceived));
        script.comes(Reply, segment(ACK, r(301), acknowledged).with(300), Stays);
        script.comes(Forward, segment(ACK, acknowledged, r(301)).with(100), Moves(ConnState::Established));
    }
}

#[test]
fn a_refused_connection_ends() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    script.comes(Reply, segment(RST | ACK, 0, f(2)), OUT_OF_WINDOW);
    script.comes(Reply, segment(RST, 0, 0), OUT_OF_WINDOW);
    script.comes(Reply, segment(RST, 0, f(1)), OUT_OF_WINDOW);
    script.comes(Reply, segment(RST | ACK, 0, f(1)), Moves(ConnState::Reset));
    script.comes(Forward, segment(SYN, f(40), 0), Reopens);
}

/// The half-open attempts of RFC 5382 REQ-4: the client ends them itself.
#[test]
fn a_client_may_withdraw() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    script.comes(Forward, segment(RST, f(1), 0), Moves(ConnState::Reset));
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Moves(ConnState::SynReceived));
    script.comes(Forward, segment(RST, f(1), 0), Moves(ConnState::Reset));
}

/// RFC 5961 section 3.2, from either end.
#[test]
fn only_the_awaited_reset_ends_a_connection() {
    for inside in [-1, 1, 500, 999] {
        established().comes(Forward, segment(RST, f(1 + inside), 0), OUT_OF_WINDOW);
        established().comes(Reply, segment(RST | ACK, r(1 + inside), f(1)), OUT_OF_WINDOW);
    }
    for far in [f(5000), f(-5000), r(1), 0, f(1) ^ 1 << 31] {
        established().comes(Forward, segment(RST, far, 0), OUT_OF_WINDOW);
    }
    established().comes(Forward, segment(RST, f(1), 0), Moves(ConnState::Reset));
    established().comes(Forward, segment(RST | ACK, f(1), r(1)), Moves(ConnState::Reset));
    established().comes(Reply, segment(RST, r(1), 0), Moves(ConnState::Reset));
}

/// With data in flight, the receiver expects the number that it acknowledged last, and the sender uses the
/// highest number that it has sent.
#[test]
fn resets_with_data_in_flight_name_either_end_of_it() {
    let in_flight = || {
        let mut script = established();
        script.comes(Forward, segment(ACK, f(1), r(1)).with(700), Stays);
        script
    };
    in_flight().comes(Forward, segment(RST, f(701), 0), Moves(ConnState::Reset));
    in_flight().comes(Forward, segment(RST, f(1), 0), Moves(ConnState::Reset));
    in_flight().comes(Forward, segment(RST, f(350), 0), OUT_OF_WINDOW);
}

#[test]
fn what_follows_a_reset_keeps_its_entry_and_a_syn_begins_another() {
    let mut script = established();
    script.comes(Reply, segment(RST, r(1), 0), Moves(ConnState::Reset));
    script.comes(Reply, segment(RST, r(1), 0), Stays);
    script.comes(Forward, segment(ACK, f(1), r(1)).with(10), Stays);
    script.comes(Forward, segment(FIN | ACK, f(11), r(1)), Stays);
    script.comes(Reply, segment(SYN, r(9000), 0), Reopens);
}

#[test]
fn half_closed_connections_carry_data_the_other_way() {
    let mut script = established();
    script.comes(Forward, segment(FIN | ACK, f(1), r(1)).with(100), Moves(ConnState::FinWait));
    script.comes(Reply, segment(ACK, r(1), f(102)), Stays);
    for thousand in 0..100 {
        let at = 1 + thousand * 1000;
        script.comes(Reply, segment(ACK, r(at), f(102)).with(1000), Stays);
        script.comes(Forward, segment(ACK, f(102), r(at + 1000)), Stays);
    }
    script.comes(Reply, segment(FIN | ACK, r(100_001), f(102)), Moves(ConnState::Closing));
    script.comes(Forward, segment(ACK, f(102), r(100_002)), Moves(ConnState::TimeWait));
}

/// RFC 9293 figure 13.
#[test]
fn both_ends_may_close_at_once() {
    let mut script = established();
    script.comes(Forward, segment(FIN | ACK, f(1), r(1)), Moves(ConnState::FinWait));
    script.comes(Reply, segment(FIN | ACK, r(1), f(1)), Moves(ConnState::Closing));
    script.comes(Forward, segment(ACK, f(2), r(2)), Stays);
    script.comes(Reply, segment(ACK, r(2), f(2)), Moves(ConnState::TimeWait));
}

#[test]
fn retransmitted_fins_stay_where_they_are() {
    let mut script = established();
    script.comes(Forward, segment(FIN | ACK, f(1), r(1)), Moves(ConnState::FinWait));
    script.comes(Forward, segment(FIN | ACK, f(1), r(1)), Stays);
    script.comes(Reply, segment(FIN | ACK, r(1), f(2)), Moves(ConnState::Closing));
    script.comes(Reply, segment(FIN | ACK, r(1), f(2)), Stays);
    script.comes(Forward, segment(ACK, f(2), r(2)), Moves(ConnState::TimeWait));
    script.comes(Reply, segment(FIN | ACK, r(1), f(2)), Stays);
    script.comes(Forward, segment(ACK, f(2), r(2)), Stays);
}

#[test]
fn data_lost_behind_us_is_sent_again_after_the_fin() {
    let mut script = established();
    script.comes(Forward, segment(ACK, f(1), r(1)).with(400), Stays);
    script.comes(Forward, segment(FIN | ACK, f(401), r(1)).with(100), Moves(ConnState::FinWait));
    script.comes(Forward, segment(ACK, f(1), r(1)).with(400), Stays);
    script.comes(Reply, segment(ACK, r(1), f(502)), Stays);
}

/// No end sends data after its FIN.
#[test]
fn a_fin_that_was_not_its_own_is_taken_back() {
    let mut script = established();
    script.comes(Forward, segment(FIN | ACK, f(200), r(1)), Moves(ConnState::FinWait));
    script.comes(Forward, segment(ACK, f(1), r(1)).with(100), Stays);
    script.comes(Forward, segment(ACK, f(101), r(1)).with(400), Moves(ConnState::Established));
}

#[test]
fn a_fin_of_the_past_does_not_close() {
    let mut script = established();
    script.comes(Forward, segment(ACK, f(1), r(1)).with(500), Stays);
    script.comes(Forward, segment(FIN | ACK, f(1), r(1)).with(100), Stays);
    assert_eq!(script.state, ConnState::Established);
}

/// RFC 5961 section 4, RFC 9293 section 3.10.7.4: an end answers a SYN with an acknowledgement. Linux passes
/// SYNs of the initiator and SYN-ACKs of the responder (`tcp_conntracks` in nf_conntrack_proto_tcp.c: `sIG`
/// for them, `sIV` for SYNs of the responder).
#[test]
fn syns_do_not_disturb_an_open_connection() {
    let states: [(ConnState, &[Direction]); 4] = [
        (ConnState::SynReceived, &[]),
        (ConnState::Established, &[]),
        (ConnState::FinWait, &[Reply]),
        (ConnState::Closing, &[Reply, Forward]),
    ];
    for (state, closed) in states {
        let mut script = established();
        if state == ConnState::SynReceived {
            script = TcpScript::open(segment(SYN, f(0), 0));
            script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Moves(ConnState::SynReceived));
        }
        for (direction, next) in closed.iter().zip([ConnState::FinWait, ConnState::Closing]) {
            let (seq, ack) = if *direction == Reply { (r(1), f(1)) } else { (f(1), r(1)) };
            script.comes(*direction, segment(FIN | ACK, seq, ack), Moves(next));
        }
        let before = script.tracker;
        for seq in [f(1), f(500), 12345] {
            script.comes(Forward, segment(SYN, seq, 0), Noted);
            script.comes(Reply, segment(SYN, seq, 0), OUT_OF_WINDOW);
            script.comes(Reply, segment(SYN | ACK, seq, seq.wrapping_add(1)), Noted);
            script.comes(Forward, segment(SYN | ACK, seq, r(9000)), OUT_OF_WINDOW);
        }
        assert_eq!((script.state, script.tracker), (state, before));
    }
}

/// An end has restarted. Its SYN is answered with an acknowledgement, which it answers with a RST of the
/// acknowledged number (RFC 5961 section 4.2).
#[test]
fn an_end_that_restarted_comes_back_by_a_challenge() {
    let mut script = established();
    script.comes(Forward, segment(SYN, 777, 0), Noted);
    script.comes(Reply, segment(ACK, r(1), f(1)), Stays);
    script.comes(Forward, segment(RST, f(1), 0), Moves(ConnState::Reset));
    script.comes(Forward, segment(SYN, 777, 0), Reopens);
    // The same before the connection is open.
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Moves(ConnState::SynReceived));
    script.comes(Forward, segment(SYN, 777, 0), Noted);
    script.comes(Reply, segment(ACK, r(1), f(1)), Stays);
    script.comes(Forward, segment(RST, f(1), 0), Moves(ConnState::Reset));
    script.comes(Forward, segment(SYN, 777, 0), Reopens);
}

/// Linux begins a new connection whatever the number of the SYN is. An end in TIME-WAIT decides by its own
/// rules (RFC 6191, RFC 9293 section 3.10.7.4).
#[test]
fn syns_reopen_what_is_over_and_nothing_before() {
    for distance in [1, 100_000, -(1 << 20), i32::MIN] {
        time_wait().comes(Forward, segment(SYN, f(1).wrapping_add_signed(distance), 0), Reopens);
        time_wait().comes(Reply, segment(SYN, r(1).wrapping_add_signed(distance), 0), Reopens);
    }
    let mut closing = established();
    closing.comes(Forward, segment(FIN | ACK, f(1), r(1)), Moves(ConnState::FinWait));
    closing.comes(Reply, segment(FIN | ACK, r(1), f(1)), Moves(ConnState::Closing));
    // RFC 5961 section 4: an end that still acknowledges a FIN answers a SYN with an acknowledgement.
    closing.comes(Forward, segment(SYN, f(100_000), 0), Noted);
    closing.comes(Reply, segment(SYN, r(100_000), 0), OUT_OF_WINDOW);
}

/// RFC 1337.
#[test]
fn time_wait_is_not_cut_short() {
    time_wait().comes(Reply, segment(RST, r(2), 0), Stays);
    time_wait().comes(Forward, segment(RST, f(2), 0), Stays);
    time_wait().comes(Forward, segment(RST, f(900), 0), OUT_OF_WINDOW);
}

#[test]
fn data_beyond_the_window_is_invalid() {
    // A segment may begin at the window's last octet or at the octet after it (a probe), but not later.
    established().comes(Forward, segment(ACK, f(1001), r(1)).with(1), Stays);
    established().comes(Forward, segment(ACK, f(1002), r(1)).with(1), OUT_OF_WINDOW);
    established().comes(Reply, segment(ACK, r(1002), f(1)).with(1), OUT_OF_WINDOW);
    established().comes(Reply, segment(ACK, r(1) ^ 1 << 31, f(1)).with(1), OUT_OF_WINDOW);
}

#[test]
fn acknowledgements_of_unsent_data_are_invalid() {
    established().comes(Forward, segment(ACK, f(1), r(2)), OUT_OF_WINDOW);
    established().comes(Forward, segment(ACK, f(1), r(1) ^ 1 << 31), OUT_OF_WINDOW);
    established().comes(Reply, segment(ACK, r(1), f(1) - MIN_ACK_WINDOW - 1), OUT_OF_WINDOW);
    established().comes(Reply, segment(ACK, r(1), f(-2000)), Stays);
}

#[test]
fn segments_without_an_acknowledgement_are_invalid() {
    let bad = TrackOutcome::Invalid(Invalid::BadFlags);
    established().comes(Forward, segment(0, f(1), r(1)).with(1), bad);
    established().comes(Forward, segment(FIN, f(1), r(1)), bad);
}

/// RFC 1122 section 4.2.3.6, with and without an octet.
#[test]
fn keep_alives_are_in_window() {
    let mut script = established();
    for _ in 0..3 {
        script.comes(Forward, segment(ACK, f(0), r(1)), Stays);
        script.comes(Reply, segment(ACK, r(1), f(1)), Stays);
        script.comes(Forward, segment(ACK, f(0), r(1)).with(1), Stays);
        script.comes(Reply, segment(ACK, r(1), f(1)), Stays);
    }
}

/// RFC 9293 section 3.8.6.1. The receiver never opened its window.
#[test]
fn zero_window_probes_are_in_window() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0).window(0));
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)).window(0), Moves(ConnState::SynReceived));
    script.comes(Forward, segment(ACK, f(1), r(1)).window(0), Moves(ConnState::Established));
    script.comes(Forward, segment(ACK, f(1), r(1)).with(1).window(0), Stays);
    script.comes(Reply, segment(ACK, r(1), f(1)).window(0), Stays);
    script.comes(Forward, segment(ACK, f(0), r(1)).window(0), Stays);
    script.comes(Forward, segment(ACK, f(2), r(1)).with(1).window(0), OUT_OF_WINDOW);
    script.comes(Reply, segment(ACK, r(1), f(1)).window(500), Stays);
    script.comes(Forward, segment(ACK, f(1), r(1)).with(500).window(0), Stays);
}

#[test]
fn a_window_that_closes_leaves_what_is_on_its_way() {
    let mut script = established();
    script.comes(Reply, segment(ACK, r(1), f(1)).window(0), Stays);
    script.comes(Forward, segment(ACK, f(1), r(1)).with(900), Stays);
}

#[test]
fn windows_are_scaled_after_the_handshake() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0).scaled(7));
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)).scaled(4), Moves(ConnState::SynReceived));
    // The windows of the SYNs are not scaled.
    script.comes(Reply, segment(ACK, r(1 + 1300), f(1)).with(1), OUT_OF_WINDOW);
    script.comes(Forward, segment(ACK, f(1), r(1)), Moves(ConnState::Established));
    script.comes(Forward, segment(ACK, f(1 + 1100), r(1)).with(1), OUT_OF_WINDOW);
    script.comes(Reply, segment(ACK, r(1 + 127_000), f(1)).with(1), Stays);
    script.comes(Forward, segment(ACK, f(1 + 16_001), r(1)).with(1), OUT_OF_WINDOW);
    script.comes(Forward, segment(ACK, f(1 + 16_000), r(1)).with(1), Stays);
}

#[test]
fn one_option_alone_scales_nothing() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0).scaled(7));
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)), Moves(ConnState::SynReceived));
    script.comes(Forward, segment(ACK, f(1), r(1)), Moves(ConnState::Established));
    script.comes(Reply, segment(ACK, r(1 + 2000), f(1)).with(1), OUT_OF_WINDOW);
    script.comes(Reply, segment(ACK, r(1 + 1000), f(1)).with(1), Stays);
}

#[test]
fn shifts_above_fourteen_are_fourteen() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0).scaled(255));
    script.comes(Reply, segment(SYN | ACK, r(0), f(1)).scaled(15), Moves(ConnState::SynReceived));
    script.comes(Forward, segment(ACK, f(1), r(1)).window(u16::MAX), Moves(ConnState::Established));
    script.comes(Reply, segment(ACK, r(1 + (65_535 << 14)), f(1)), Stays);
}

#[test]
fn numbers_wrap_for_megabytes() {
    let mut script = established();
    let (mut at, mut reply) = (1, 1);
    for _ in 0..5000 {
        script.comes(Forward, segment(ACK, f(at), r(reply)).with(1000).window(60_000), Stays);
        at += 1000;
        script.comes(Reply, segment(ACK, r(reply), f(at)).with(1000), Stays);
        reply += 1000;
    }
}

#[test]
fn strict_connections_begin_with_a_syn() {
    for flags in 0..=u8::MAX {
        let opened = ConnTracker::open(&segment(flags, 1, 1), Pickup::Strict);
        assert_eq!(opened.is_ok(), flags & (SYN | ACK | RST | FIN) == SYN, "{flags:#x}");
    }
}

/// The flags of the table `tcp_valid_flags` in Linux's nf_conntrack_proto_tcp.c, and the flags that it
/// ignores.
const SENT_TOGETHER: [u8; 9] = [0x02, 0x22, 0x12, 0x04, 0x14, 0x11, 0x31, 0x10, 0x30];
const UNASKED: u8 = 0xc8;

/// The first column of Linux's `tcp_conntracks`: without a connection only a SYN and an acknowledgement are
/// accepted.
#[test]
fn no_connection_begins_by_a_reset_a_fin_or_a_syn_ack() {
    for flags in 0..=u8::MAX {
        let opened = ConnTracker::open(&segment(flags, 1, 1), Pickup::Loose).map(|(_, state)| state);
        let expected = match flags & !UNASKED & !URG {
            SYN => Ok(ConnState::SynSent),
            ACK => Ok(ConnState::Unreplied),
            _ if SENT_TOGETHER.contains(&(flags & !UNASKED)) => Err(Invalid::NotSyn),
            _ => Err(Invalid::BadFlags),
        };
        assert_eq!(opened, expected, "{flags:#x}");
    }
}

/// In every state and from both ends, with numbers in window: only the flags are wrong.
#[test]
fn flags_that_no_end_sends_change_nothing() {
    let syn_sent = || TcpScript::open(segment(SYN, f(0), 0));
    let closing: [fn() -> TcpScript; 2] = [established, time_wait];
    for flags in (0..=u8::MAX).filter(|flags| !SENT_TOGETHER.contains(&(flags & !UNASKED))) {
        let bad = TrackOutcome::Invalid(Invalid::BadFlags);
        syn_sent().comes(Reply, segment(flags, r(0), f(1)), bad);
        syn_sent().comes(Forward, segment(flags, f(0), 0), bad);
        for begin in closing {
            begin().comes(Forward, segment(flags, f(1), r(1)).with(1), bad);
            begin().comes(Reply, segment(flags, r(1), f(1)).with(1), bad);
        }
    }
}

/// The window scales (RFC 7323) are unknown here, so windows are assumed to be large. Acknowledgements are
/// checked nevertheless.
#[test]
fn a_connection_is_picked_up_in_mid_flow() {
    let mut script = TcpScript::open(segment(ACK, f(1), r(1)).with(500));
    assert_eq!(script.state, ConnState::Unreplied);
    script.comes(Forward, segment(ACK, f(501), r(1)).with(500), Stays);
    script.comes(Reply, segment(ACK, r(1), f(1002)), OUT_OF_WINDOW);
    script.comes(Reply, segment(ACK, r(1 << 30), f(1001)), OUT_OF_WINDOW);
    script.comes(Reply, segment(ACK, r(1), f(501)), Moves(ConnState::Established));
    // A window of 1000 may stand for up to 16 megabytes.
    script.comes(Reply, segment(ACK, r(3_000_000), f(1001)).with(1000), Stays);
    script.comes(Forward, segment(ACK, f(1001), r(3_001_000)), Stays);
    script.comes(Reply, segment(RST, r(3_000_500), 0), OUT_OF_WINDOW);
    script.comes(Reply, segment(FIN | ACK, r(3_001_000), f(1001)), Moves(ConnState::FinWait));
}

/// No end is known to have a connection that was picked up, until there is an answer.
#[test]
fn a_syn_begins_anew_what_was_picked_up_and_not_answered() {
    let mut script = TcpScript::open(segment(ACK, f(1), r(1)).with(500));
    script.comes(Forward, segment(SYN, f(1 << 30), 0), Reopens);
    script.comes(Reply, segment(SYN, r(77), 0), Reopens);
    script.comes(Reply, segment(ACK, r(1), f(501)), Moves(ConnState::Established));
    script.comes(Forward, segment(SYN, f(1 << 30), 0), Noted);
}

/// Replies take another path: the connection never counts as open.
#[test]
fn one_direction_alone_does_not_open() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0));
    script.comes(Forward, segment(ACK, f(1), r(1)), Stays);
    script.comes(Forward, segment(ACK, f(1), r(1)).with(1000), Stays);
    script.comes(Forward, segment(ACK, f(1001), r(1)).with(1000), Stays);
    script.comes(Forward, segment(ACK, f(900_000), r(1)).with(1000), OUT_OF_WINDOW);
}

#[test]
fn the_first_segment_changes_nothing_when_told_twice() {
    let beginnings = [segment(SYN, f(0), 0).with(20).scaled(3), segment(ACK, f(1), r(1)).with(1000)];
    for first in beginnings {
        let mut script = TcpScript::open(first);
        let before = script.tracker;
        script.comes(Forward, first, Stays);
        assert_eq!(script.tracker, before);
    }
}

//! Connections whose packets were missed for a while.

use super::*;

/// A connection whose sequence numbers advanced unseen by ten million octets in both directions, and its next
/// segments.
fn missed() -> (TcpScript, [TcpSegment; 2]) {
    let far = 10_000_000;
    let next = [segment(ACK, f(far), r(far)).with(10), segment(ACK, r(far), f(far + 10)).with(20)];
    let mut script = established();
    script.comes(Forward, next[0], OUT_OF_WINDOW).comes(Reply, next[1], OUT_OF_WINDOW);
    (script, next)
}

impl TcpScript {
    #[track_caller]
    fn resumes(
        &mut self,
        direction: Direction,
        segment: TcpSegment,
        expected: TrackOutcome,
    ) -> &mut TcpScript {
        assert_eq!(self.tracker.resume(self.state, direction, &segment), expected, "{segment:?}");
        self
    }
}

#[test]
fn numbers_that_moved_on_unseen_are_taken_anew_from_both_ends() {
    for first in [0, 1] {
        let (mut script, next) = missed();
        let directions = [Forward, Reply];
        script.resumes(directions[first], next[first], Stays);
        script.comes(directions[1 - first], next[1 - first], Stays);
        // The numbers of both ends agree, so windows are checked, and `track_ordinary` accepts segments.
        script.comes(Forward, segment(ACK, f(1), r(1)), OUT_OF_WINDOW);
        script.comes(Forward, segment(RST, f(1), 0), OUT_OF_WINDOW);
        assert!(script.tracker.track_ordinary(Forward, || segment(ACK, f(10_000_010), r(10_000_020))));
        script.comes(Forward, segment(FIN | ACK, f(10_000_010), r(10_000_020)), Moves(ConnState::FinWait));
    }
}

/// Segments that were lost after they passed here are retransmitted. Their numbers are below what the other
/// end acknowledged.
#[test]
fn an_old_segment_does_not_keep_a_connection_from_resuming() {
    let (mut script, [next, answer]) = missed();
    script.resumes(Forward, segment(ACK, f(9_000_000), r(9_999_000)).with(10), Stays);
    script.comes(Reply, answer, Stays).comes(Forward, next, Stays);
    assert!(script.tracker.track_ordinary(Reply, || segment(ACK, r(10_000_020), f(10_000_010))));
}

#[test]
fn an_off_path_sender_gains_nothing_from_a_connection_that_resumes() {
    let (mut script, next) = missed();
    let forged = segment(ACK, 0x1234_5678, 0x9abc_def0).with(1);
    script.resumes(Forward, forged, Stays);
    // The off-path sender knows the number that it set. Neither a RST nor a FIN with it ends the connection.
    script.comes(Forward, segment(RST, 0x1234_5679, 0), OUT_OF_WINDOW);
    script.comes(Forward, segment(FIN | ACK, 0x1234_5679, 0x9abc_def0), Stays);
    script.comes(Forward, segment(SYN, 0x1234_5679, 0), Noted);
    // The ends continue.
    script.comes(Reply, next[1], Stays).comes(Forward, next[0], Stays);
    assert_eq!(script.state, ConnState::Established);
    script.comes(Forward, forged, OUT_OF_WINDOW);
    assert!(script.tracker.track_ordinary(Forward, || segment(ACK, f(10_000_010), r(10_000_020))));
}

#[test]
fn only_established_connections_resume() {
    let mut script = TcpScript::open(segment(SYN, f(0), 0).with(5));
    script.resumes(Forward, segment(ACK, f(1), r(1)), OUT_OF_WINDOW);
    // Data in a SYN does not make a connection resume.
    script.comes(Reply, segment(SYN | ACK, r(0), f(6)), Moves(ConnState::SynReceived));
    script.comes(Forward, segment(ACK, f(6), r(1)), Moves(ConnState::Established));
    assert!(script.tracker.track_ordinary(Forward, || segment(ACK, f(6), r(1))));
    time_wait().resumes(Forward, segment(ACK, f(9999), r(9999)), OUT_OF_WINDOW);
    let (mut script, _) = missed();
    for flags in [SYN, SYN | ACK, RST, RST | ACK] {
        script.resumes(Forward, segment(flags, f(10_000_000), r(10_000_000)), OUT_OF_WINDOW);
    }
}

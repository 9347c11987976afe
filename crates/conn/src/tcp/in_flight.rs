//! Whether a segment that an ICMP error quotes may still be in flight (RFC 5927 section 4.1).
//!
//! A host accepts an error only about data that it sent and that is not acknowledged: SND.UNA <= SEG.SEQ <
//! SND.NXT. The tracker knows only the segments of an end that passed here. So two more numbers are accepted:
//! SND.NXT itself, which a segment without data has, and one below SND.UNA, which a keep-alive has (RFC 1122
//! section 4.2.3.6). If one of the bounds was never seen, it is estimated from the other one and a window.

use super::{ACKED, ConnTracker, MIN_ACK_WINDOW, SENT};
use crate::{ConnState, Direction};
use mmb_packet::Seq;

/// More than every window that an end can announce (RFC 7323 section 2.3).
const ANY_WINDOW: u32 = 1 << 30;

impl ConnTracker {
    /// Whether the sender of a direction may have a segment with this number in flight.
    pub fn is_in_flight(&self, state: ConnState, sender: Direction, seq: u32) -> bool {
        let sender = sender as usize;
        let receiver = 1 - sender;
        let room = self.announced(receiver).max(MIN_ACK_WINDOW);
        let sent = self.has_flag(sender, SENT).then_some(Seq(self.snd_nxt[sender]));
        let acked = self.has_flag(receiver, ACKED).then_some(Seq(self.ack[receiver]));
        // Of an end that sent no packet here, only what the other end acknowledged is known.
        let is_seen = self.has_flag(sender, ACKED) || self.window[sender] > 0;
        let ahead = |end: Seq| if is_seen { end } else { end + room };
        let (first, last) = match (acked, sent) {
            (Some(acked), Some(end)) => (acked - 1, ahead(end)),
            (Some(acked), None) => (acked - 1, acked + room),
            (None, Some(end)) => {
                let behind = match state {
                    // Only the SYN, and data that comes with it or directly after it.
                    ConnState::SynSent | ConnState::SynReceived => MIN_ACK_WINDOW,
                    _ => ANY_WINDOW,
                };
                (end - behind, ahead(end))
            }
            (None, None) => return true,
        };
        Seq(seq).distance(first) >= 0 && Seq(seq).distance(last) <= 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::{ACK, SYN};
    use super::*;
    use crate::Direction::{Forward, Reply};
    use crate::{TcpSegment, TrackOutcome};
    use mmb_policy::settings::Pickup;

    /// Initial sequence numbers of both ends. The initiator's numbers wrap within the data that it sends.
    const ISS: u32 = u32::MAX - 49;
    const IRS: u32 = 5_000_000;

    fn segment(flags: u8, seq: u32, ack: u32, payload: u32) -> TcpSegment {
        TcpSegment { flags, seq, ack, payload, window: 8000, ..TcpSegment::default() }
    }

    /// A connection after segments of both ends.
    fn after(first: TcpSegment, segments: &[(Direction, TcpSegment)]) -> (ConnTracker, ConnState) {
        let (mut tracker, mut state) = ConnTracker::open(&first, Pickup::Loose).expect("a beginning");
        for (direction, segment) in segments {
            match tracker.segment(state, *direction, segment) {
                TrackOutcome::Moves(next) => state = next,
                TrackOutcome::Stays => {}
                other => panic!("{other:?}"),
            }
        }
        (tracker, state)
    }

    #[track_caller]
    fn holds(connection: (ConnTracker, ConnState), sender: Direction, seqs: &[(u32, bool)]) {
        for (seq, expected) in seqs {
            assert_eq!(connection.0.is_in_flight(connection.1, sender, *seq), *expected, "{seq}");
        }
    }

    #[test]
    fn what_was_sent_and_not_acknowledged_is_in_flight_and_nothing_else() {
        let handshake = [
            (Reply, segment(SYN | ACK, IRS, ISS.wrapping_add(1), 0)),
            (Forward, segment(ACK, ISS.wrapping_add(1), IRS + 1, 0)),
            (Forward, segment(ACK, ISS.wrapping_add(1), IRS + 1, 100)),
            (Forward, segment(ACK, ISS.wrapping_add(101), IRS + 1, 100)),
            (Reply, segment(ACK, IRS + 1, ISS.wrapping_add(101), 0)),
        ];
        let connection = after(segment(SYN, ISS, 0, 0), &handshake);
        let number = |octets: u32| ISS.wrapping_add(octets);
        let acknowledged = [(number(0), false), (number(1), false), (number(99), false)];
        let in_flight = [
            (number(100), true),
            (number(101), true),
            (number(150), true),
            (number(200), true),
            (number(201), true),
        ];
        let never_sent = [(number(202), false), (number(8000), false), (0x8000_0000, false)];
        for numbers in [&acknowledged[..], &in_flight, &never_sent] {
            holds(connection, Forward, numbers);
        }
        holds(connection, Reply, &[(IRS - 1, false), (IRS, true), (IRS + 1, true), (IRS + 2, false)]);
    }

    #[test]
    fn an_unanswered_syn_is_in_flight() {
        let connection = after(segment(SYN, ISS, 0, 0), &[]);
        let numbers = [(ISS, true), (ISS.wrapping_add(1), true), (ISS.wrapping_add(2), false)];
        holds(connection, Forward, &numbers);
        holds(connection, Forward, &[(ISS.wrapping_sub(1 << 20), false), (ISS.wrapping_add(1 << 31), false)]);
    }

    #[test]
    fn one_bound_stands_for_both_where_only_one_end_is_seen() {
        let connection = after(segment(ACK, 7000, 90_000, 500), &[]);
        holds(connection, Forward, &[(6000, true), (7000, true), (7500, true), (7501, false)]);
        // Only the number that the initiator acknowledged is known of the responder. The responder may have
        // sent data for a window of the largest scale after it.
        holds(connection, Reply, &[(89_998, false), (89_999, true), (90_000, true), (98_000, true)]);
        holds(connection, Reply, &[(90_000 + (8000 << 14), true), (90_001 + (8000 << 14), false)]);
    }

    #[test]
    fn nothing_known_refutes_nothing() {
        holds((ConnTracker::default(), ConnState::Unreplied), Forward, &[(0, true), (u32::MAX, true)]);
    }
}

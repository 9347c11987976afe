//! Properties of all segments: of honest ends, of off-path attackers, and arbitrary ones.

use super::*;
use proptest::prelude::*;

/// An end that follows the RFCs, for [`segments_of_conforming_ends_are_in_window`].
#[derive(Clone, Copy, Debug)]
struct End {
    next: u32,
    expects: u32,
    /// The highest number that the other end's window allows.
    may_reach: u32,
    window: u16,
    scale: u8,
}

impl End {
    fn sends(&mut self, wanted: u32, window: u16) -> TcpSegment {
        let payload = wanted.min(self.may_reach.wrapping_sub(self.next).min(1 << 30));
        self.window = window;
        let sent = TcpSegment { window, ..segment(ACK, self.next, self.expects) }.with(payload);
        self.next = self.next.wrapping_add(payload);
        sent
    }

    fn takes(&mut self, from: &TcpSegment, scale: u8) {
        if Seq(from.seq).distance(Seq(self.expects)) <= 0 && from.end().after(Seq(self.expects)) {
            self.expects = from.end().0;
        }
        let reach = Seq(from.ack) + (u32::from(from.window) << scale);
        if reach.after(Seq(self.may_reach)) {
            self.may_reach = reach.0;
        }
    }
}

proptest! {
    /// All segments of two ends that follow the RFCs are valid, with any windows, losses and retransmissions
    /// beyond the middlebox.
    #[test]
    fn segments_of_conforming_ends_are_in_window(
        starts in any::<[u32; 2]>(),
        scales in [0u8..15, 0u8..15],
        steps in prop::collection::vec((any::<bool>(), 0u32..100_000, any::<u16>(), any::<bool>()), 1..200),
    ) {
        let window = 10_000;
        let mut script = TcpScript::open(segment(SYN, starts[0], 0).window(window).scaled(scales[0]));
        script.comes(Reply, segment(SYN | ACK, starts[1], starts[0].wrapping_add(1)).window(window).scaled(scales[1]),
            Moves(ConnState::SynReceived));
        let mut ends = [0, 1].map(|side: usize| End {
            next: starts[side].wrapping_add(1),
            expects: starts[1 - side].wrapping_add(1),
            may_reach: starts[side].wrapping_add(1 + u32::from(window)),
            window,
            scale: scales[side],
        });
        script.comes(Forward, ends[0].sends(0, 100), Moves(ConnState::Established));
        // Sent and lost segments, to be retransmitted.
        let mut lost: [Option<TcpSegment>; 2] = [None, None];
        for (forward, wanted, window, arrives) in steps {
            let (side, direction) = if forward { (0, Forward) } else { (1, Reply) };
            let sent = match lost[side].take() {
                Some(again) => TcpSegment { ack: ends[side].expects, ..again },
                None => ends[side].sends(wanted, window),
            };
            script.comes(direction, sent, Stays);
            if arrives {
                let scale = ends[side].scale;
                ends[1 - side].takes(&sent, scale);
            } else {
                lost[side] = Some(sent);
            }
        }
        script.comes(Forward, segment(RST, ends[0].next, 0), Moves(ConnState::Reset));
    }

    /// Random guesses are ineffective: a RST must hit one of two numbers of 2^32, any other segment a window
    /// for `seq` and one for `ack`. A SYN of the initiator and a SYN-ACK of the responder pass, and change
    /// nothing.
    #[test]
    fn forged_segments_change_nothing(
        guesses in prop::collection::vec((any::<u8>(), any::<u32>(), any::<u32>(), any::<bool>()), 1..100),
    ) {
        let mut script = established();
        for (flags, seq, ack, forward) in guesses {
            let direction = if forward { Forward } else { Reply };
            let (sent, acked) = if forward { (f(1), r(1)) } else { (r(1), f(1)) };
            let near = |number: u32, guess: u32| Seq(guess).distance(Seq(number)).unsigned_abs() <= MIN_ACK_WINDOW;
            prop_assume!(!near(sent, seq) || !near(acked, ack) && flags & RST == 0);
            let kind = if SENT_TOGETHER.contains(&(flags & !UNASKED)) { Invalid::OutOfWindow } else { Invalid::BadFlags };
            let is_noted = match direction {
                Forward => [SYN, SYN | URG].contains(&(flags & !UNASKED)),
                Reply => flags & !UNASKED == SYN | ACK,
            };
            let before = script.tracker;
            script.comes(direction, segment(flags, seq, ack), if is_noted { Noted } else { TrackOutcome::Invalid(kind) });
            prop_assert_eq!(script.tracker, before);
        }
        script.comes(Forward, segment(ACK, f(1), r(1)).with(100), Stays);
    }

    /// Arbitrary segments cause no panic, and invalid ones change nothing.
    #[test]
    fn any_segment_has_an_outcome(
        first in (any::<u8>(), any::<u32>(), any::<u32>(), any::<u16>(), any::<u32>(), any::<Option<u8>>()),
        others in prop::collection::vec(
            (0u8..64, any::<u32>(), any::<u32>(), any::<u16>(), any::<u32>(), any::<Option<u8>>(), any::<bool>(), any::<bool>()),
            1..100),
    ) {
        let (flags, seq, ack, window, payload, window_scale) = first;
        let opened = ConnTracker::open(&TcpSegment { flags, seq, ack, window, payload, window_scale }, Pickup::Loose);
        let Ok((mut tracker, mut state)) = opened else { return Ok(()) };
        for (flags, seq, ack, window, payload, window_scale, forward, close) in others {
            let direction = if forward { Forward } else { Reply };
            let (own, other) = (direction as usize, 1 - direction as usize);
            let mut segment = TcpSegment { flags, seq, ack, window, payload, window_scale };
            if close {
                segment.seq = tracker.snd_nxt[own].wrapping_add(seq % 8);
                segment.ack = tracker.snd_nxt[other].wrapping_sub(ack % 8);
                segment.payload %= 100;
            }
            let before = tracker;
            let mut went_on = tracker;
            let may_go_on = state == ConnState::Established
                || state == ConnState::Unreplied && direction == Direction::Forward;
            let is_ordinary = may_go_on && went_on.track_ordinary(direction, || segment);
            match tracker.segment(state, direction, &segment) {
                Moves(next) => {
                    prop_assert_ne!(next, state);
                    prop_assert!(!is_ordinary);
                    state = next;
                }
                Stays => prop_assert!(!is_ordinary || tracker == went_on),
                TrackOutcome::Invalid(_) | Reopens => prop_assert!(!is_ordinary && tracker == before),
                // In SYN-SENT, a noted segment may record a challenge.
                Noted => prop_assert!(!is_ordinary && (tracker == before || state == ConnState::SynSent)),
            }
            prop_assert!(is_ordinary || went_on == before);
        }
    }
}

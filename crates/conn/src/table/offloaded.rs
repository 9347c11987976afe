//! Packets of connections that pass without the table: the host forwards them itself, and the owner reports
//! them.

use super::ConnectionTable;
use crate::offloaded::{EndNumbers, OffloadedPackets};
use crate::tcp::{ACKED, SENT};
use crate::{ConnId, ConnState, Direction, proto};
use mmb_packet::Seq;

impl ConnectionTable {
    /// Whether packets of a connection may pass without the table. Both ends have confirmed it, and neither
    /// has begun to end it.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn may_be_offloaded(&self, id: ConnId) -> bool {
        match (self.proto(id), self.state(id)) {
            (proto::TCP, ConnState::Established) => self.slab.line(id).tracker.numbers().is_some(),
            (proto::UDP, ConnState::Replied) => true,
            _ => false,
        }
    }

    /// The sequence numbers of both ends of a TCP connection, if all are known.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn numbers(&self, id: ConnId) -> Option<[EndNumbers; 2]> {
        if self.proto(id) == proto::TCP { self.slab.line(id).tracker.numbers() } else { None }
    }

    /// The packets of a connection, by direction.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn packets(&self, id: ConnId) -> [u64; 2] {
        self.slab.record(id).packets()
    }

    /// Records whether packets of a connection pass without the table. If they do, the table does not time
    /// the connection out, and the owner reports the packets ([`ConnectionTable::follow_offloaded`]).
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn set_offloaded(&mut self, id: ConnId, offloaded: bool) {
        self.slab.line_mut(id).set_offloaded(offloaded);
    }

    /// Whether packets of a connection pass without the table.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn is_offloaded(&self, id: ConnId) -> bool {
        self.slab.line(id).is_offloaded()
    }

    /// Counts packets of a connection that have passed without the table.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn follow_offloaded(&mut self, id: ConnId, direction: Direction, passed: &OffloadedPackets) {
        self.slab.cold_mut(id).add(direction, passed.packets, passed.bytes);
        let now_ms = self.now_ms;
        let line = self.slab.line_mut(id);
        let idle_ms = now_ms.saturating_sub(passed.last_ms);
        if idle_ms < line.idle_ms(now_ms) {
            line.last_ms = (now_ms - idle_ms) as u32;
        }
        if let Some(numbers) = &passed.numbers {
            line.tracker.follow(direction, numbers);
        }
    }
}

impl crate::ConnTracker {
    /// The sequence numbers of both ends, if all are known and neither end has sent a FIN.
    fn numbers(&self) -> Option<[EndNumbers; 2]> {
        let numbers = |side: usize| {
            let (scale, flags) = self.scale_and_flags(side);
            (flags == SENT | ACKED).then(|| EndNumbers {
                snd_nxt: self.snd_nxt[side],
                ack: self.ack[side],
                window: self.window[side],
                scale,
            })
        };
        Some([numbers(0)?, numbers(1)?])
    }

    /// Advances the sequence numbers of an end to those that the owner reports.
    fn follow(&mut self, direction: Direction, numbers: &EndNumbers) {
        let sender = direction as usize;
        if Seq(numbers.snd_nxt).after(Seq(self.snd_nxt[sender])) {
            self.snd_nxt[sender] = numbers.snd_nxt;
        }
        if Seq(numbers.ack).after(Seq(self.ack[sender])) {
            self.ack[sender] = numbers.ack;
        }
        self.window[sender] = self.window[sender].max(numbers.window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Connection, TcpSegment, TrackOutcome, TrackedHeader, Tuple, Wire, flags};
    use mmb_random::Seed;

    fn segment(flags: u8, seq: u32, ack: u32, payload: u32) -> TrackedHeader {
        TrackedHeader::Tcp(TcpSegment { flags, seq, ack, payload, window: 1000, ..TcpSegment::default() })
    }

    fn established(table: &mut ConnectionTable) -> ConnId {
        let forward = Tuple {
            addresses: [1, 2],
            ports: [1000, 80],
            wire: Wire::ROUTED,
            family: 4,
            proto: proto::TCP,
            ..Tuple::default()
        };
        let mut owner = |_: &Connection, _| {};
        let syn = segment(flags::SYN, 100, 0, 0);
        let id = table.insert(0, forward, forward.reversed(), Some(&syn), &mut owner).expect("a place");
        for (direction, header) in [
            (Direction::Reply, segment(flags::SYN | flags::ACK, 500, 101, 0)),
            (Direction::Forward, segment(flags::ACK, 101, 501, 0)),
        ] {
            assert!(!table.may_be_offloaded(id));
            table.touch(id, direction, 1, 60, Some(&header));
        }
        id
    }

    #[test]
    fn a_connection_goes_on_from_what_passed_unseen() {
        let mut table = ConnectionTable::new(Seed::repeatable(1));
        let id = established(&mut table);
        assert!(table.may_be_offloaded(id));
        table.set_offloaded(id, true);
        let [first, second] = table.numbers(id).expect("all are known");
        assert_eq!((first.snd_nxt, first.ack, second.snd_nxt, second.ack), (101, 501, 501, 101));
        // The FIN is far ahead, and out of window until the owner has reported the packets before it.
        let fin = segment(flags::FIN | flags::ACK, 1_000_101, 501, 0);
        assert!(matches!(table.touch(id, Direction::Forward, 2, 60, Some(&fin)), TrackOutcome::Invalid(_)));
        let passed = OffloadedPackets { packets: 700, bytes: 1_000_000, last_ms: 2, numbers: None };
        let sent = EndNumbers { snd_nxt: 1_000_101, ..first };
        table.follow_offloaded(id, Direction::Forward, &OffloadedPackets { numbers: Some(sent), ..passed });
        let answers = EndNumbers { ack: 1_000_101, ..second };
        table.follow_offloaded(
            id,
            Direction::Reply,
            &OffloadedPackets { packets: 1, bytes: 60, numbers: Some(answers), ..passed },
        );
        assert_eq!(table.get(id).packets, [701, 2]);
        assert_eq!(
            table.touch(id, Direction::Forward, 2, 60, Some(&fin)),
            TrackOutcome::Moves(ConnState::FinWait)
        );
        assert!(!table.may_be_offloaded(id));
    }

    #[test]
    fn a_connection_with_unseen_packets_is_not_timed_out() {
        let mut table = ConnectionTable::new(Seed::repeatable(1));
        let id = established(&mut table);
        table.set_offloaded(id, true);
        let week = 7 * 24 * 3_600_000;
        let mut owner = |_: &Connection, _| {};
        table.advance(week, &mut owner);
        table.advance(week + 1000, &mut owner);
        assert_eq!(table.len(), 1);
        table.set_offloaded(id, false);
        table.advance(week + 2000, &mut owner);
        assert_eq!(table.len(), 0);
    }
}

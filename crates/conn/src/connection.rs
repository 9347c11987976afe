//! One connection, as a record of 160 bytes.

use crate::hash::{packed_ports, packed_rest};
use crate::timeouts::{LONGEST_S, Limits};
use crate::{Direction, State, Tracker, Tuple};

/// A connection's place in its table; good until the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId(pub u32);

impl ConnId {
    /// Its number.
    #[inline]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// A connection.
///
/// Both tuples share wire, protocol and family, and are kept without padding; [`Connection::tuples`] puts them together.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub struct Connection {
    /// Source and destination of both tuples, as high and low halves.
    addresses: [[[u64; 2]; 2]; 2],
    /// Packets by direction.
    pub packets: [u64; 2],
    /// Bytes by direction.
    pub bytes: [u64; 2],
    /// Ports of both tuples as [`packed_ports`] puts them.
    ports: [u32; 2],
    /// Wire, protocol and family as [`packed_rest`] puts them.
    rest: u32,
    /// When the last packet passed that was believed: milliseconds, the lower 32 bits.
    pub(crate) last_ms: u32,
    /// When it was made, in units of 16 ms, the lower 32 bits.
    created: u32,
    /// The engine's number of its set of rules.
    pub rules: u32,
    /// Its translation's binding, plus one; zero for none.
    pub binding: u32,
    /// The engine's own; zero for none.
    pub extra: u32,
    /// Its neighbours in the queue that it waits in.
    pub(crate) links: crate::wheel::Links,
    pub(crate) tracker: Tracker,
    /// Its state. Whoever else writes it does not move the connection to another queue.
    pub state: State,
    /// The queue that it waits in.
    pub(crate) queue: u8,
}

const _: () = assert!(size_of::<Connection>() == 160);

/// What `created` counts in, as a shift of milliseconds: its circle is two years long.
const CREATED_SHIFT: u32 = 4;

impl Connection {
    pub(crate) fn new(now_ms: u64, tuples: [&Tuple; 2], state: State, tracker: Tracker) -> Connection {
        Connection {
            addresses: tuples.map(|tuple| tuple.addresses.map(halves)),
            packets: [0; 2],
            bytes: [0; 2],
            ports: tuples.map(packed_ports),
            rest: packed_rest(tuples[0]),
            last_ms: now_ms as u32,
            created: (now_ms >> CREATED_SHIFT) as u32,
            rules: 0,
            binding: 0,
            extra: 0,
            links: Default::default(),
            tracker,
            state,
            queue: 0,
        }
    }

    /// As it was at some time before now.
    pub(crate) fn restored(now_ms: u64, was: &Snapshot) -> Connection {
        let [forward, reply] = &was.tuples;
        let in_order = was.state.is_half_open() || was.state.is_over();
        let idle_ms = if in_order { 0 } else { was.idle_ms.min(u64::from(LONGEST_S) * 1000) };
        Connection {
            packets: was.packets,
            bytes: was.bytes,
            last_ms: (now_ms as u32).wrapping_sub(idle_ms as u32),
            created: ((now_ms >> CREATED_SHIFT) as u32).wrapping_sub((was.age_ms >> CREATED_SHIFT) as u32),
            ..Connection::new(now_ms, [forward, reply], was.state, was.tracker)
        }
    }

    /// What outlives its table.
    pub fn snapshot(&self, now_ms: u64) -> Snapshot {
        Snapshot {
            tuples: self.tuples(),
            state: self.state,
            tracker: self.tracker,
            packets: self.packets,
            bytes: self.bytes,
            age_ms: self.age_ms(now_ms),
            idle_ms: self.idle_ms(now_ms),
        }
    }

    /// The tuple of packets that go a way, as they arrive, before translation.
    #[inline]
    pub fn tuple(&self, direction: Direction) -> Tuple {
        let side = direction as usize;
        let ports = self.ports[side];
        Tuple {
            addresses: self.addresses[side].map(|[high, low]| u128::from(high) << 64 | u128::from(low)),
            ports: [ports as u16, (ports >> 16) as u16],
            wire: self.rest as u16,
            proto: self.proto(),
            family: (self.rest >> 24) as u8,
        }
    }

    /// The tuples of packets as they arrive, before translation, from whom sent the first and from whom replies.
    pub fn tuples(&self) -> [Tuple; 2] {
        Direction::ALL.map(|direction| self.tuple(direction))
    }

    /// Its protocol.
    #[inline]
    pub fn proto(&self) -> u8 {
        (self.rest >> 16) as u8
    }

    /// What is known of both ends, if it is TCP.
    pub fn tracker(&self) -> Tracker {
        self.tracker
    }

    /// Milliseconds since it was made. Comes around after two years.
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        let ticks = ((now_ms >> CREATED_SHIFT) as u32).wrapping_sub(self.created);
        (u64::from(ticks) << CREATED_SHIFT).max(self.idle_ms(now_ms))
    }

    /// Milliseconds since the last packet that was believed.
    #[inline]
    pub fn idle_ms(&self, now_ms: u64) -> u64 {
        u64::from((now_ms as u32).wrapping_sub(self.last_ms))
    }

    /// Milliseconds until it ends if no packet comes.
    #[inline]
    pub(crate) fn expires_ms(&self, now_ms: u64, limits: &Limits) -> u64 {
        limits.ms(self.proto(), self.state).saturating_sub(self.idle_ms(now_ms))
    }

    /// What packets of a direction say when they leave: the other direction's tuple, reversed. `None` if they leave as they came.
    #[inline]
    pub fn translated(&self, direction: Direction) -> Option<Tuple> {
        let [[from, to], [back_from, back_to]] = self.addresses;
        let differs = |one: [u64; 2], other: [u64; 2]| (one[0] ^ other[0]) | (one[1] ^ other[1]);
        let addresses = differs(from, back_to) | differs(to, back_from);
        let ports = self.ports[0] ^ self.ports[1].rotate_left(16);
        let is_translated = addresses | u64::from(ports) != 0;
        is_translated.then(|| self.tuple(direction.turned()).reversed())
    }

    /// Whether packets of a tuple go this way. Without a branch, since hundreds are compared in a row.
    #[inline]
    pub(crate) fn is(&self, tuple: &Tuple, direction: Direction) -> bool {
        let side = direction as usize;
        let [from, to] = self.addresses[side];
        let [want_from, want_to] = tuple.addresses.map(halves);
        let addresses =
            (from[0] ^ want_from[0]) | (from[1] ^ want_from[1]) | (to[0] ^ want_to[0]) | (to[1] ^ want_to[1]);
        let rest = (self.ports[side] ^ packed_ports(tuple)) | (self.rest ^ packed_rest(tuple));
        addresses | u64::from(rest) == 0
    }

    /// Something of each of its three lines, wherever these begin: who asks early has them at hand later.
    #[inline]
    pub(crate) fn touch(&self) -> u32 {
        self.addresses[0][0][0] as u32 | self.packets[0] as u32 | u32::from(self.queue)
    }

    /// Counts a packet.
    #[inline]
    pub(crate) fn count(&mut self, direction: Direction, bytes: usize) {
        self.packets[direction as usize] += 1;
        self.bytes[direction as usize] += bytes as u64;
    }
}

/// A connection as one table leaves it to another: [`Table::restore`](crate::Table::restore) makes it anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// See [`Connection::tuples`].
    pub tuples: [Tuple; 2],
    /// Its state.
    pub state: State,
    /// What is known of both ends, if it is TCP.
    pub tracker: Tracker,
    /// Packets by direction.
    pub packets: [u64; 2],
    /// Bytes by direction.
    pub bytes: [u64; 2],
    /// Milliseconds since it was made.
    pub age_ms: u64,
    /// Milliseconds since the last packet that was believed.
    pub idle_ms: u64,
}

#[inline]
fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_come_back_as_they_went_in() {
        let forward = Tuple {
            addresses: [u128::MAX - 7, 1 << 70 | 9],
            ports: [65535, 1],
            wire: 513,
            proto: 6,
            family: 6,
        };
        let reply = Tuple { ports: [7, 65534], ..forward.reversed() };
        let connection = Connection::new(0, [&forward, &reply], State::SynSent, Tracker::default());
        assert_eq!(connection.tuples(), [forward, reply]);
        assert!(connection.is(&forward, Direction::Forward) && connection.is(&reply, Direction::Reply));
        assert!(!connection.is(&forward, Direction::Reply) && !connection.is(&reply, Direction::Forward));
        assert!(!connection.is(&Tuple { wire: 512, ..forward }, Direction::Forward));
    }

    #[test]
    fn ages_hold_across_the_wrap_of_milliseconds() {
        let tuple = Tuple::default();
        let made = u64::from(u32::MAX) - 5;
        let connection = Connection::new(made, [&tuple, &tuple], State::Unreplied, Tracker::default());
        assert_eq!(connection.idle_ms(made + 10), 10);
        assert_eq!(connection.age_ms(made + 10), 16, "in units of 16, and never less than idle");
        assert_eq!(connection.age_ms(made + (1 << 34)), 1 << 34);
    }
}

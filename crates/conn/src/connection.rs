//! A connection as one value, for listing, saving and ending. A table stores it as a record (`record`).

use crate::timeouts::LONGEST_S;
use crate::{ConnId, ConnState, ConnTracker, Direction, ResourceIds, Tuple};
use mmb_packet::PortId;

/// Packets of a connection that its rules' counters do not include yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfolded {
    /// The connection.
    pub id: ConnId,
    /// Packets by direction.
    pub packets: [u16; 2],
    /// Bytes by direction.
    pub bytes: [u32; 2],
}

/// A copy of a connection's record, assembled from its parts.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    pub(crate) tuples: [Tuple; 2],
    /// Packets by direction.
    pub packets: [u64; 2],
    /// Bytes by direction.
    pub bytes: [u64; 2],
    /// The time of the last valid packet: the lower 32 bits, in milliseconds.
    pub(crate) last_ms: u32,
    /// On a host that routes: the ports on which packets of each direction arrived.
    pub arrivals: IngressPorts,
    /// Whether its source's count of connections includes it.
    pub is_counted: bool,
    /// Whether another connection has announced it.
    pub is_expected: bool,
    /// Whether the connection no longer counts as an open connection of its server.
    pub has_left_server: bool,
    /// The time of creation: the lower 32 bits, in units of 16 ms.
    pub(crate) created: u32,
    /// The ids of its rules, its NAT lease and its extension.
    pub ids: ResourceIds,
    pub(crate) tracker: ConnTracker,
    /// Its state.
    pub state: ConnState,
    /// Packets that the counters of its rules do not include yet.
    pub unfolded: Option<Unfolded>,
    /// The connection's id, if it is offloaded: packets of it pass without the table.
    pub offloaded: Option<ConnId>,
}

/// The unit of `created`, as a shift of milliseconds. `created` wraps after two years.
const CREATED_SHIFT: u32 = 4;

impl Connection {
    pub(crate) fn new(
        now_ms: u64,
        tuples: [&Tuple; 2],
        state: ConnState,
        tracker: ConnTracker,
    ) -> Connection {
        Connection {
            tuples: tuples.map(|tuple| *tuple),
            last_ms: now_ms as u32,
            packets: [0; 2],
            bytes: [0; 2],
            arrivals: IngressPorts::default(),
            is_counted: false,
            is_expected: false,
            has_left_server: false,
            created: (now_ms >> CREATED_SHIFT) as u32,
            ids: ResourceIds::default(),
            tracker,
            state,
            unfolded: None,
            offloaded: None,
        }
    }

    /// Restores a connection from a snapshot. A half-open or closed connection counts as used now, since its
    /// eviction order is sorted by the last packet.
    pub(crate) fn restored(now_ms: u64, snapshot: &ConnectionSnapshot) -> Connection {
        let [forward, reply] = &snapshot.tuples;
        let in_eviction_list = snapshot.state.is_half_open() || snapshot.state.is_closed();
        let idle_ms = if in_eviction_list { 0 } else { snapshot.idle_ms.min(u64::from(LONGEST_S) * 1000) };
        Connection {
            packets: snapshot.packets,
            bytes: snapshot.bytes,
            arrivals: snapshot.arrivals,
            is_expected: snapshot.is_expected,
            last_ms: (now_ms as u32).wrapping_sub(idle_ms as u32),
            created: ((now_ms >> CREATED_SHIFT) as u32)
                .wrapping_sub((snapshot.age_ms >> CREATED_SHIFT) as u32),
            ..Connection::new(now_ms, [forward, reply], snapshot.state, snapshot.tracker)
        }
    }

    /// The part of a connection that another table can restore.
    pub fn snapshot(&self, now_ms: u64) -> ConnectionSnapshot {
        ConnectionSnapshot {
            tuples: self.tuples(),
            state: self.state,
            tracker: self.tracker,
            packets: self.packets,
            bytes: self.bytes,
            arrivals: self.arrivals,
            is_expected: self.is_expected,
            age_ms: self.age_ms(now_ms),
            idle_ms: self.idle_ms(now_ms),
        }
    }

    /// The tuple of packets of a direction, as they arrive, before translation.
    #[inline]
    pub fn tuple(&self, direction: Direction) -> Tuple {
        self.tuples[direction as usize]
    }

    /// The tuples of packets as they arrive, before translation: the initiator's, then the responder's.
    pub fn tuples(&self) -> [Tuple; 2] {
        self.tuples
    }

    /// Its protocol.
    #[inline]
    pub fn proto(&self) -> u8 {
        self.tuples[0].proto
    }

    /// The tracking state of both ends of a TCP connection or an SCTP association.
    pub fn tracker(&self) -> ConnTracker {
        self.tracker
    }

    /// Milliseconds since it was created. Wraps after two years.
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        age_ms(self.created, now_ms).max(self.idle_ms(now_ms))
    }

    /// Milliseconds since the last valid packet.
    #[inline]
    pub fn idle_ms(&self, now_ms: u64) -> u64 {
        u64::from((now_ms as u32).wrapping_sub(self.last_ms))
    }

    /// Whether NAT changes the addresses or ports of the connection's packets.
    pub fn is_translated(&self) -> bool {
        let [forward, reply] = &self.tuples;
        let plain = forward.hairpinned();
        (plain.addresses, plain.ports) != (reply.addresses, reply.ports)
    }

    /// The tuple with which packets of a direction leave: the other direction's tuple, reversed. `None` if
    /// they are not translated.
    pub fn translated(&self, direction: Direction) -> Option<Tuple> {
        self.is_translated().then(|| self.tuple(direction.opposite()).reversed())
    }
}

/// Milliseconds since `created`, which is in units of 16 ms.
pub(crate) fn age_ms(created: u32, now_ms: u64) -> u64 {
    u64::from(((now_ms >> CREATED_SHIFT) as u32).wrapping_sub(created)) << CREATED_SHIFT
}

/// The ports on which packets of each direction arrived, for a connection on a host that routes. Each
/// direction has at most two ports, since its packets may be rerouted once. A connection on a wire does not
/// use this: its tuples contain the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IngressPorts {
    pub(crate) ports: [[u16; 2]; 2],
    /// Whether both directions may use the same port.
    pub shared: bool,
}

/// No port.
pub(crate) const NO_PORT: u16 = u16::MAX;

impl Default for IngressPorts {
    fn default() -> IngressPorts {
        IngressPorts { ports: [[NO_PORT; 2]; 2], shared: false }
    }
}

impl IngressPorts {
    /// The ports of a connection whose first packet arrived on `port`. If `shared`, replies may arrive on
    /// that port too.
    pub fn new(port: PortId, shared: bool) -> IngressPorts {
        IngressPorts { ports: [[port.0, NO_PORT], [NO_PORT; 2]], shared }
    }

    /// Whether packets of a direction may arrive on a port. A port on which earlier packets arrived is
    /// admitted. While the direction has fewer than two ports, any other port is admitted too, unless ports
    /// are not shared and the other direction uses it.
    #[inline]
    pub fn admit(&self, direction: Direction, PortId(port): PortId) -> bool {
        let [first, second] = self.ports[direction as usize];
        let known = port == first || port == second;
        known
            || second == NO_PORT
                && (self.shared || !self.ports[direction.opposite() as usize].contains(&port))
    }

    /// The first port on which packets of a direction arrived.
    pub fn first(&self, direction: Direction) -> Option<PortId> {
        let [first, _] = self.ports[direction as usize];
        (first != NO_PORT).then_some(PortId(first))
    }

    /// Records that a valid packet of a direction arrived on a port, if the port [is
    /// admitted](IngressPorts::admit).
    #[inline]
    pub fn record(&mut self, direction: Direction, port: PortId) {
        // On a wire there is nothing to record.
        if self.ports[0][0] != NO_PORT {
            self.record_routed(direction, port);
        }
    }

    fn record_routed(&mut self, direction: Direction, port: PortId) {
        let is_admitted = self.admit(direction, port);
        let [first, second] = &mut self.ports[direction as usize];
        if is_admitted && *first != port.0 && *second != port.0 {
            let free = if *first == NO_PORT { first } else { second };
            *free = port.0;
        }
    }

    /// The ports with the numbers that `number` returns for them. `None` if `number` returns `None` for a
    /// port.
    #[must_use]
    pub fn renumbered(mut self, number: impl Fn(PortId) -> Option<PortId>) -> Option<IngressPorts> {
        for port in self.ports.as_flattened_mut().iter_mut().filter(|port| **port != NO_PORT) {
            *port = number(PortId(*port))?.0;
        }
        Some(self)
    }

    /// The ports as bytes for a state file.
    pub fn to_bytes(self) -> [u8; 9] {
        let mut bytes = [0; 9];
        let ports = self.ports.as_flattened().iter().flat_map(|port| port.to_be_bytes());
        bytes.iter_mut().zip(ports).for_each(|(byte, port)| *byte = port);
        bytes[8] = u8::from(self.shared);
        bytes
    }

    /// Reverses [`IngressPorts::to_bytes`]. `None` for bytes that it does not return.
    pub fn from_bytes(bytes: [u8; 9]) -> Option<IngressPorts> {
        let port = |offset: usize| u16::from_be_bytes([bytes[offset], bytes[offset + 1]]);
        let ports = [[port(0), port(2)], [port(4), port(6)]];
        (bytes[8] < 2).then_some(IngressPorts { ports, shared: bytes[8] == 1 })
    }
}

/// The saved form of a connection, which [`ConnectionTable::restore`](crate::ConnectionTable::restore) adds
/// to another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSnapshot {
    /// See [`Connection::tuples`].
    pub tuples: [Tuple; 2],
    /// Its state.
    pub state: ConnState,
    /// The tracking state of both ends of a TCP connection or an SCTP association.
    pub tracker: ConnTracker,
    /// Packets by direction.
    pub packets: [u64; 2],
    /// Bytes by direction.
    pub bytes: [u64; 2],
    /// See [`Connection::arrivals`].
    pub arrivals: IngressPorts,
    /// See [`Connection::is_expected`].
    pub is_expected: bool,
    /// Milliseconds since it was created.
    pub age_ms: u64,
    /// Milliseconds since the last valid packet.
    pub idle_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Forward, Reply};

    #[test]
    fn replies_do_not_come_in_where_the_first_packet_did() {
        let mut arrivals = IngressPorts::new(PortId(1), false);
        assert!(!arrivals.admit(Reply, PortId(1)));
        arrivals.record(Reply, PortId(2));
        assert!(!arrivals.admit(Reply, PortId(1)) && !arrivals.admit(Forward, PortId(2)));
        assert!(arrivals.admit(Reply, PortId(2)) && arrivals.admit(Forward, PortId(1)));
        assert!(IngressPorts::new(PortId(1), true).admit(Reply, PortId(1)), "unless both may share ports");
    }

    #[test]
    fn each_direction_is_rerouted_once() {
        let mut arrivals = IngressPorts::new(PortId(1), false);
        arrivals.record(Reply, PortId(2));
        for (direction, old, new) in [(Forward, PortId(1), PortId(3)), (Reply, PortId(2), PortId(4))] {
            assert!(arrivals.admit(direction, new));
            arrivals.record(direction, new);
            assert!(!arrivals.admit(direction, PortId(5)), "a third port");
            assert!(arrivals.admit(direction, old), "it may go back");
        }
        assert!(!arrivals.admit(Reply, PortId(3)));
        let before = arrivals;
        // The lookup of a vector admits several new ports before the first one is recorded.
        arrivals.record(Reply, PortId(5));
        assert_eq!(arrivals, before, "a third port takes no place");
        assert_eq!(IngressPorts::from_bytes(arrivals.to_bytes()), Some(arrivals));
        let mut on_a_wire = IngressPorts::default();
        on_a_wire.record(Forward, PortId(7));
        assert_eq!(on_a_wire, IngressPorts::default());
    }

    #[test]
    fn ages_hold_across_the_wrap_of_milliseconds() {
        let tuple = Tuple::default();
        let made = u64::from(u32::MAX) - 5;
        let connection =
            Connection::new(made, [&tuple, &tuple], ConnState::Unreplied, ConnTracker::default());
        assert_eq!(connection.idle_ms(made + 10), 10);
        assert_eq!(connection.age_ms(made + 10), 16, "in units of 16, and never less than idle");
        assert_eq!(connection.age_ms(made + (1 << 34)), 1 << 34);
    }
}

//! The record of a connection: a *flow line* with the data that each of its packets needs, and a *cold line*
//! with the rest.
//!
//! Each is one cache line. A flow line contains both tuples of an IPv4 connection of which NAT changes at
//! most one end. Other connections have their addresses in [`WideTuples`]: those of IPv6, those with two
//! translated ends, and translated ones of protocols with common ports. [`Connection`] is the form of a
//! record outside the table.
//!
//! The quick pass (`table/quick.rs`) counts the packets of an established connection in its flow line.
//! *Folding* moves these counts to the totals in the cold line, and the table's owner adds them to the
//! counters of the connection's rules.

use crate::connection::{Connection, IngressPorts, NO_PORT, Unfolded};
use crate::ends::Ends;
use crate::ids::WideId;
use crate::links::QueueLinks;
use crate::tuple::has_common_ports;
use crate::wide::{WideTuples, changed_end};
use crate::{ConnId, ConnState, ConnTracker, Direction, ResourceIds, Side, Tuple, Vlans, Wire};
use mmb_base::Id;

/// The part of a record that each packet of the connection needs.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct FlowLine {
    /// Addresses and ports of the initiator's packets, as they arrive. With [`WideTuples`], `addresses` is
    /// the id of these.
    addresses: u64,
    ports: u32,
    /// The bits that NAT changes in the port of the end that it translates. Not used for protocols with
    /// common ports.
    changed_port: u16,
    /// See [`kind`].
    kind: u8,
    pub(crate) proto: u8,
    /// The bits that NAT changes in the address of that end. With [`WideTuples`], the ports of the
    /// responder's packets.
    changed_address: u32,
    /// The time of the last valid packet: the lower 32 bits, in milliseconds.
    pub(crate) last_ms: u32,
    /// Packets by direction that were not folded yet.
    packets: [u16; 2],
    /// Their bytes.
    bytes: [u32; 2],
    /// For each direction, the ingress port for which the verdict is cached, or [`NO_PORT`].
    ingress: [u16; 2],
    /// The epoch for which verdicts are cached; the lower four bits are the connection's state.
    epoch_and_state: u16,
    pub(crate) tracker: ConnTracker,
}

const _: () = assert!(size_of::<FlowLine>() == 64);

/// The bits of [`FlowLine::kind`].
mod kind {
    /// NAT changes one end.
    pub(super) const TRANSLATED: u8 = 1;
    /// The addresses are in `WideTuples`.
    pub(super) const WIDE: u8 = 2;
    /// An IPv6 connection.
    pub(super) const IP6: u8 = 4;
    /// The quick pass lists its packets: see
    /// [`ConnectionTable::set_followed`](crate::ConnectionTable::set_followed).
    pub(super) const FOLLOWED: u8 = 8;
    /// Packets of it pass without the table: see
    /// [`ConnectionTable::set_offloaded`](crate::ConnectionTable::set_offloaded).
    pub(super) const OFFLOADED: u8 = 16;
    /// NAT changes the second end of [`Ends`](super::Ends). The value of this bit is the number of bits by
    /// which the address of that end is shifted there.
    pub(super) const SECOND: u8 = 32;
    /// The record is in the list of records to be folded. This bit belongs to the slot of the record, and
    /// outlives the connection.
    pub(super) const LISTED: u8 = 64;
}

/// The number of bits of the state in `epoch_and_state`.
const STATE_BITS: u32 = 4;
/// The largest epoch; 0 means none.
pub(crate) const LAST_EPOCH: u16 = u16::MAX >> STATE_BITS;

/// A connection with these counts must be folded early: they are half of the maximum of a flow line.
const MAX_UNFOLDED_PACKETS: u16 = 1 << 15;
const MAX_UNFOLDED_BYTES: u32 = 1 << 31;

/// The largest total of packets: 48 bits.
const MAX_TOTAL_PACKETS: u64 = (1 << 48) - 1;

/// The part of a record that not every packet of the connection needs.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct ColdLine {
    /// Bytes by direction.
    bytes: [u64; 2],
    /// Packets by direction, the lower 32 bits.
    packets: [u32; 2],
    /// Its neighbours in its expiry queue.
    pub(crate) links: QueueLinks,
    /// The time of creation: the lower 32 bits, in units of 16 ms.
    pub(crate) created: u32,
    pub(crate) ids: ResourceIds,
    /// Packets by direction, the upper 16 bits.
    more_packets: [u16; 2],
    /// The port of its wire.
    wire: u16,
    /// On a host that routes: the ports on which packets arrived. Otherwise: the VLAN tags of both
    /// directions.
    ports_or_vlans: [[u16; 2]; 2],
    /// Its expiry queue.
    pub(crate) queue: u8,
    /// See [`mark`].
    marks: u8,
}

const _: () = assert!(size_of::<ColdLine>() == 64);

/// The bits of [`ColdLine::marks`].
mod mark {
    /// The number of bits for the side of the initiator's packets. The bits for the responder's packets
    /// follow.
    pub(super) const SIDE_BITS: u32 = 2;
    /// Both directions may use the same ingress port.
    pub(super) const SHARED: u8 = 16;
    /// Its source's count of connections includes it.
    pub(super) const COUNTED: u8 = 32;
    /// Another connection has announced it.
    pub(super) const EXPECTED: u8 = 64;
    /// The connection no longer counts as an open connection of its server.
    pub(super) const LEFT_SERVER: u8 = 128;
}

/// The value of an unused slot of the slab.
impl Default for FlowLine {
    #[inline]
    fn default() -> FlowLine {
        FlowLine {
            addresses: 0,
            ports: 0,
            changed_port: 0,
            kind: 0,
            proto: 0,
            changed_address: 0,
            last_ms: 0,
            packets: [0; 2],
            bytes: [0; 2],
            ingress: [NO_PORT; 2],
            epoch_and_state: ConnState::Unreplied as u16,
            tracker: ConnTracker::default(),
        }
    }
}

/// The value of an unused slot of the slab.
impl Default for ColdLine {
    fn default() -> ColdLine {
        ColdLine {
            bytes: [0; 2],
            packets: [0; 2],
            links: QueueLinks::default(),
            created: 0,
            ids: ResourceIds::default(),
            more_packets: [0; 2],
            wire: 0,
            ports_or_vlans: [[0; 2]; 2],
            queue: 0,
            marks: 0,
        }
    }
}

impl FlowLine {
    /// The flow line of a new connection; `wide` is the id of its [`wide_tuples`](crate::wide::wide_tuples).
    pub(crate) fn new(connection: &Connection, wide: Option<WideId>) -> FlowLine {
        let tuples = connection.tuples();
        let [forward, reply] = &tuples;
        let arriving = Ends::from_tuple(forward);
        let mut line = FlowLine {
            addresses: arriving.addresses,
            ports: arriving.ports,
            changed_port: 0,
            kind: if forward.family == 6 { kind::IP6 } else { 0 },
            proto: forward.proto,
            changed_address: 0,
            last_ms: connection.last_ms,
            packets: [0; 2],
            bytes: [0; 2],
            ingress: [NO_PORT; 2],
            epoch_and_state: connection.state as u16,
            tracker: connection.tracker(),
        };
        if let Some(wide) = wide {
            line.addresses = u64::from(wide.number());
            line.changed_address = Ends::from_tuple(reply).ports;
            line.kind |= kind::WIDE;
        } else if let Ok(Some(_)) = changed_end(&tuples) {
            let leaving = Ends::from_tuple(reply).swapped();
            let (addresses, ports) = (arriving.addresses ^ leaving.addresses, arriving.ports ^ leaving.ports);
            let second = addresses >> 32 != 0 || ports >> 16 != 0;
            line.changed_address = (addresses >> if second { 32 } else { 0 }) as u32;
            line.changed_port = (ports >> if second { 16 } else { 0 }) as u16;
            line.kind |= kind::TRANSLATED | if second { kind::SECOND } else { 0 };
        }
        line
    }

    /// The id of its [`WideTuples`], if it has them.
    #[inline]
    pub(crate) fn wide(&self) -> Option<WideId> {
        if self.kind & kind::WIDE == 0 { None } else { WideId::new(self.addresses as u32) }
    }

    /// The ends of packets of a direction as they arrive. For replies of a protocol with common ports, the
    /// ports are exchanged, and the caller must correct that. Not for a connection with [`WideTuples`].
    #[inline]
    pub(crate) fn ends(&self, direction: Direction) -> Ends {
        let arriving = Ends { addresses: self.addresses, ports: self.ports };
        match direction {
            Direction::Forward => arriving,
            Direction::Reply => arriving.changed(self.change()).swapped(),
        }
    }

    /// The bits that NAT changes in packets from the initiator to the responder.
    #[inline(always)]
    fn change(&self) -> Ends {
        let shift = self.kind & kind::SECOND;
        Ends {
            addresses: u64::from(self.changed_address) << shift,
            ports: u32::from(self.changed_port) << (shift / 2),
        }
    }

    /// Whether packets of a direction arrive with these ends. Not for a connection with [`WideTuples`]. It
    /// does not branch on the direction, since consecutive packets are of both directions.
    #[inline(always)]
    pub(crate) fn matches(&self, ends: Ends, direction: Direction) -> bool {
        // The ends as in a packet of the initiator.
        let ours = ends.swapped_if_reply(direction);
        let (mut addresses, mut ports) = (ours.addresses ^ self.addresses, ours.ports ^ self.ports);
        if self.is_translated() {
            let (change, is_reply) = (self.change(), u64::from(direction as u8).wrapping_neg());
            addresses ^= change.addresses & is_reply;
            ports ^= change.ports & is_reply as u32;
        }
        addresses | u64::from(ports) == 0
    }

    /// The ends with which packets of a direction leave that arrive with these ends. Not for a connection
    /// with [`WideTuples`].
    #[inline(always)]
    pub(crate) fn leaving(&self, ends: Ends, direction: Direction) -> Ends {
        ends.swapped_if_reply(direction).changed(self.change()).swapped_if_reply(direction)
    }

    /// Whether NAT changes its packets. Not for a connection with [`WideTuples`].
    #[inline]
    pub(crate) fn is_translated(&self) -> bool {
        self.kind & kind::TRANSLATED != 0
    }

    #[inline]
    pub(crate) fn state(&self) -> ConnState {
        ConnState::ALL
            [usize::from(self.epoch_and_state & ((1 << STATE_BITS) - 1)).min(ConnState::ALL.len() - 1)]
    }

    /// The number of its state.
    #[inline(always)]
    pub(crate) fn state_number(&self) -> usize {
        usize::from(self.epoch_and_state & ((1 << STATE_BITS) - 1))
    }

    pub(crate) fn set_state(&mut self, state: ConnState) {
        self.epoch_and_state = self.epoch_and_state >> STATE_BITS << STATE_BITS | state as u16;
    }

    /// Milliseconds since the last valid packet.
    #[inline]
    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        u64::from((now_ms as u32).wrapping_sub(self.last_ms))
    }

    /// The epoch for which its verdicts are cached.
    #[inline]
    pub(crate) fn epoch(&self) -> u16 {
        self.epoch_and_state >> STATE_BITS
    }

    /// Whether the verdict is cached in this epoch for packets of a direction that arrive on a port.
    #[inline]
    pub(crate) fn has_verdict(&self, direction: Direction, port: u16, epoch: u16) -> bool {
        (self.ingress[direction as usize] == port) & (self.epoch() == epoch)
    }

    /// Caches the verdict in this epoch for packets of a direction that arrive on a port.
    pub(crate) fn cache_verdict(&mut self, direction: Direction, port: u16, epoch: u16) {
        if self.epoch() != epoch {
            self.clear_verdicts();
            self.epoch_and_state |= epoch << STATE_BITS;
        }
        self.ingress[direction as usize] = port;
    }

    /// Clears the cached verdict of packets of a direction.
    pub(crate) fn clear_verdict(&mut self, direction: Direction) {
        self.ingress[direction as usize] = NO_PORT;
    }

    /// Clears all cached verdicts.
    pub(crate) fn clear_verdicts(&mut self) {
        self.ingress = [NO_PORT; 2];
        self.epoch_and_state &= (1 << STATE_BITS) - 1;
    }

    /// Counts a packet whose verdict is cached.
    #[inline]
    pub(crate) fn count(&mut self, direction: Direction, bytes: u32) {
        self.packets[direction as usize] += 1;
        self.bytes[direction as usize] += bytes;
    }

    /// Whether a packet that was just counted needs more work: it is the first one since counts were folded,
    /// it fills the counts, or its connection is followed.
    #[inline(always)]
    pub(crate) fn needs_listing(&self, direction: Direction) -> bool {
        self.kind & (kind::LISTED | kind::FOLLOWED) != kind::LISTED || self.is_full(direction)
    }

    /// Whether the quick pass lists its packets.
    #[inline]
    pub(crate) fn is_followed(&self) -> bool {
        self.kind & kind::FOLLOWED != 0
    }

    pub(crate) fn set_followed(&mut self) {
        self.kind |= kind::FOLLOWED;
    }

    /// Whether packets of it pass without the table.
    #[inline]
    pub(crate) fn is_offloaded(&self) -> bool {
        self.kind & kind::OFFLOADED != 0
    }

    pub(crate) fn set_offloaded(&mut self, offloaded: bool) {
        self.kind = self.kind & !kind::OFFLOADED | if offloaded { kind::OFFLOADED } else { 0 };
    }

    /// Whether its counts must be folded soon.
    #[inline]
    pub(crate) fn is_full(&self, direction: Direction) -> bool {
        self.packets[direction as usize] >= MAX_UNFOLDED_PACKETS
            || self.bytes[direction as usize] >= MAX_UNFOLDED_BYTES
    }

    /// Marks the record as listed for folding. Returns whether it was listed already.
    #[inline]
    pub(crate) fn list(&mut self) -> bool {
        let was_listed = self.kind & kind::LISTED != 0;
        self.kind |= kind::LISTED;
        was_listed
    }

    /// Records that it is not listed any more.
    pub(crate) fn unlist(&mut self) {
        self.kind &= !kind::LISTED;
    }

    /// Replaces the connection by another one. A slot that is listed for folding stays listed.
    pub(crate) fn replace(&mut self, new: FlowLine) {
        let listed = self.kind & kind::LISTED;
        *self = FlowLine { kind: new.kind | listed, ..new };
    }

    /// The counts that are not folded yet.
    #[inline]
    pub(crate) fn unfolded(&self, id: ConnId) -> Option<Unfolded> {
        let &FlowLine { packets, bytes, .. } = self;
        (packets != [0; 2]).then_some(Unfolded { id, packets, bytes })
    }

    /// Moves its counts to the totals.
    pub(crate) fn fold(&mut self, cold: &mut ColdLine) {
        for direction in Direction::ALL {
            let side = direction as usize;
            cold.add(direction, u64::from(self.packets[side]), u64::from(self.bytes[side]));
        }
        (self.packets, self.bytes) = ([0; 2], [0; 2]);
    }
}

impl ColdLine {
    /// The cold line of a new connection, which is in no queue.
    pub(crate) fn new(connection: &Connection) -> ColdLine {
        let [forward, reply] = connection.tuples();
        let vlans = |Tuple { wire: Wire { vlans, .. }, .. }: Tuple| [vlans.outer, vlans.inner];
        let sides = forward.side as u8 | (reply.side as u8) << mark::SIDE_BITS;
        let mut cold = ColdLine {
            bytes: [0; 2],
            packets: [0; 2],
            links: QueueLinks::default(),
            created: connection.created,
            ids: connection.ids,
            more_packets: [0; 2],
            wire: forward.wire.port,
            ports_or_vlans: [vlans(forward), vlans(reply)],
            queue: 0,
            marks: sides
                | if connection.is_counted { mark::COUNTED } else { 0 }
                | if connection.is_expected { mark::EXPECTED } else { 0 },
        };
        cold.set_arrivals(connection.arrivals);
        for direction in Direction::ALL {
            cold.add(direction, connection.packets[direction as usize], connection.bytes[direction as usize]);
        }
        cold
    }

    /// Adds to the totals.
    #[inline]
    pub(crate) fn add(&mut self, direction: Direction, packets: u64, bytes: u64) {
        let side = direction as usize;
        // A state file may have any count.
        let packets = self.packets(side).saturating_add(packets).min(MAX_TOTAL_PACKETS);
        (self.packets[side], self.more_packets[side]) = (packets as u32, (packets >> 32) as u16);
        self.bytes[side] = self.bytes[side].saturating_add(bytes);
    }

    fn packets(&self, side: usize) -> u64 {
        u64::from(self.packets[side]) | u64::from(self.more_packets[side]) << 32
    }

    /// Whether the host routes its packets.
    #[inline]
    fn is_routed(&self) -> bool {
        self.wire == Wire::ROUTED.port
    }

    /// The ports on which its packets arrived.
    #[inline]
    pub(crate) fn arrivals(&self) -> IngressPorts {
        match self.is_routed() {
            true => IngressPorts { ports: self.ports_or_vlans, shared: self.marks & mark::SHARED != 0 },
            false => IngressPorts::default(),
        }
    }

    pub(crate) fn set_arrivals(&mut self, arrivals: IngressPorts) {
        if self.is_routed() {
            self.ports_or_vlans = arrivals.ports;
            self.marks = self.marks & !mark::SHARED | if arrivals.shared { mark::SHARED } else { 0 };
        }
    }

    /// Records that a valid packet of a direction arrived on a port.
    #[inline]
    pub(crate) fn record_arrival(&mut self, direction: Direction, port: mmb_packet::PortId) {
        if self.is_routed() {
            let mut arrivals = self.arrivals();
            arrivals.record(direction, port);
            self.set_arrivals(arrivals);
        }
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.marks & mark::COUNTED != 0
    }

    pub(crate) fn set_counted(&mut self, is_counted: bool) {
        self.marks = self.marks & !mark::COUNTED | if is_counted { mark::COUNTED } else { 0 };
    }

    pub(crate) fn set_expected(&mut self) {
        self.marks |= mark::EXPECTED;
    }

    #[inline]
    pub(crate) fn is_expected(&self) -> bool {
        self.marks & mark::EXPECTED != 0
    }

    pub(crate) fn set_left_server(&mut self) {
        self.marks |= mark::LEFT_SERVER;
    }

    pub(crate) fn has_left_server(&self) -> bool {
        self.marks & mark::LEFT_SERVER != 0
    }

    /// The wire and the side on which packets of a direction arrive.
    fn ingress(&self, direction: Direction) -> (Wire, Side) {
        let side = match self.marks >> (mark::SIDE_BITS * direction as u32) & ((1 << mark::SIDE_BITS) - 1) {
            0 => Side::Low,
            1 => Side::High,
            _ => Side::Any,
        };
        let [outer, inner] = self.ports_or_vlans[direction as usize];
        let vlans = if self.is_routed() { Vlans::NONE } else { Vlans { outer, inner } };
        (Wire { port: self.wire, vlans }, side)
    }

    /// Whether the scope of the connection contains no VLAN tags of a direction's packets.
    pub(crate) fn is_untagged(&self, direction: Direction) -> bool {
        self.ingress(direction).0.vlans == Vlans::NONE
    }
}

/// The parts of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'r> {
    pub(crate) line: &'r FlowLine,
    pub(crate) cold: &'r ColdLine,
    pub(crate) wide: Option<&'r WideTuples>,
}

impl Record<'_> {
    /// The tuple of packets of a direction, as they arrive.
    #[inline]
    pub(crate) fn tuple(&self, direction: Direction) -> Tuple {
        let Record { line, cold, wide } = *self;
        let (wire, side) = cold.ingress(direction);
        let family = if line.kind & kind::IP6 != 0 { 6 } else { 4 };
        let others = Tuple { wire, side, proto: line.proto, family, ..Tuple::default() };
        let Some(wide) = wide else {
            let ends = line.ends(direction);
            // Common ports are the same in both directions.
            let is_common = direction == Direction::Reply && has_common_ports(line.proto);
            return Ends { ports: if is_common { line.ports } else { ends.ports }, ..ends }.tuple(&others);
        };
        let ports = match direction {
            Direction::Forward => line.ports,
            Direction::Reply => line.changed_address,
        };
        Tuple { addresses: wide.addresses(direction), ..Ends { addresses: 0, ports }.tuple(&others) }
    }

    /// Whether a tuple is that of this direction.
    #[inline]
    pub(crate) fn matches(&self, tuple: &Tuple, direction: Direction) -> bool {
        self.tuple(direction) == *tuple
    }

    /// Whether NAT changes its packets.
    #[inline]
    pub(crate) fn is_translated(&self) -> bool {
        match self.wide {
            None => self.line.is_translated(),
            Some(_) => changed_end(&Direction::ALL.map(|direction| self.tuple(direction))) != Ok(None),
        }
    }

    /// Its packets, by direction.
    #[inline]
    pub(crate) fn packets(&self) -> [u64; 2] {
        [0, 1].map(|side| self.cold.packets(side) + u64::from(self.line.packets[side]))
    }

    /// The record as a [`Connection`].
    pub(crate) fn unpack(&self, id: ConnId) -> Connection {
        let Record { line, cold, .. } = *self;
        let total = |side: usize| {
            let (packets, bytes) = (u64::from(line.packets[side]), u64::from(line.bytes[side]));
            (cold.packets(side) + packets, cold.bytes[side] + bytes)
        };
        let [(sent, sent_bytes), (answered, answered_bytes)] = [total(0), total(1)];
        Connection {
            tuples: Direction::ALL.map(|direction| self.tuple(direction)),
            packets: [sent, answered],
            bytes: [sent_bytes, answered_bytes],
            last_ms: line.last_ms,
            arrivals: cold.arrivals(),
            is_counted: cold.is_counted(),
            is_expected: cold.is_expected(),
            has_left_server: cold.has_left_server(),
            created: cold.created,
            ids: cold.ids,
            tracker: line.tracker,
            state: line.state(),
            unfolded: line.unfolded(id),
            offloaded: line.is_offloaded().then_some(id),
        }
    }
}

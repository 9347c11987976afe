//! The quick pass: packets in the middle of an IPv4 connection whose verdict is cached. They need only the
//! connection's flow line.
//!
//! The table's owner caches the verdicts of connections ([`ConnectionTable::cache_verdict`]): packets of a
//! direction that arrive on one port pass without an edit. This is valid for an *epoch*, until the owner
//! begins another one. The pass looks up all IPv4 packets of TCP and UDP. It takes those in the middle of
//! such a connection: it tracks and counts them, and returns their translation. It leaves all other packets
//! to the owner, with the result of their lookup.
//!
//! Packets of a connection stay in order: after the pass has left one to the owner, it leaves all later ones
//! of that connection in the vector. The packets that it takes are processed before the others of the vector,
//! which may create connections. So it takes packets of a connection that may be evicted only while the table
//! has room for as many new connections as the vector has packets.
//!
//! The pass first hashes the tuples of a vector side by side. Then it works on blocks of packets, in three
//! steps:
//!
//! 1. It prefetches the index buckets of a block.
//! 2. It prefetches the flow lines of the block two blocks before.
//! 3. It takes the packets of the block two blocks before that.
//!
//! A block is small, since a core has some two dozen outstanding misses, and a longer burst of prefetches
//! would wait for them.

use super::follow::EVICTION_TICK_SHIFT;
use super::{ConnectionTable, member};
use crate::ends::Ends;
use crate::hash::{HashSums, TupleHasher};
use crate::index::{ABSENT, EMPTY, IndexBucket, TupleIndex};
use crate::queue::IdQueue;
use crate::quick::{QuickLookup, QuickPort, QuickResult, QuickTranslation, QuickVector, WORDS};
use crate::slab::ConnectionSlab;
use crate::timeouts::StateTimeouts;
use crate::{ConnId, ConnState, Direction, Side, TcpSegment, Wire, proto};
use mmb_base::simd::{Kernel, SimdLevel};
use mmb_base::{Id, VECTOR, prefetch};
use mmb_packet::columns::{Column, FlowColumns};
use mmb_packet::flow::vlan_ids;

/// Packets per block.
const BLOCK: usize = 8;

/// The number of blocks between a step and the step that prefetches its data.
const BLOCKS_BEHIND: usize = 2;

/// The number of flags that keep packets of a connection in order. Several connections may share a flag.
const LEFT_FLAGS: usize = 256;

/// What the pass needs to know about a packet besides its sequence numbers, in one word: the kind of its
/// transport header, and its [`flags`](mmb_packet::key::flags).
mod fact {
    use mmb_packet::key::flags;

    /// It is neither TCP nor UDP.
    pub(super) const NEITHER: u32 = 1;
    /// It has VLAN tags.
    pub(super) const TAGGED: u32 = (flags::VLAN_TAGGED as u32) << 8;
    /// It is a fragment, or still has hops of a source route to visit: the pass does not take it.
    pub(super) const NOT_TAKEN: u32 = ((flags::FRAGMENT | flags::ROUTED) as u32) << 8;

    /// The kind of its transport header.
    #[inline(always)]
    pub(super) fn proto(facts: u32) -> u8 {
        (facts >> 16) as u8
    }
}

/// The timeouts in milliseconds of connections whose packets the pass may take. The first index is 0 for UDP
/// and 1 for TCP, the second one is the state. Other states have 0.
struct QuickTimeouts([[u32; STATES]; 2]);

const STATES: usize = 16;

impl QuickTimeouts {
    fn new(limits: &StateTimeouts, has_room: bool) -> QuickTimeouts {
        let mut timeouts = [[0; STATES]; 2];
        for (proto, states) in [
            (proto::UDP, [ConnState::Replied, ConnState::Unreplied]),
            (proto::TCP, [ConnState::Established, ConnState::Unreplied]),
        ] {
            for state in states.into_iter().filter(|state| has_room || !state.is_half_open()) {
                // Timeouts have at most 31 bits.
                timeouts[usize::from(proto == proto::TCP)][state as usize] = limits.ms(proto, state) as u32;
            }
        }
        QuickTimeouts(timeouts)
    }
}

impl ConnectionTable {
    /// The lookup of packets that arrive on a side of a wire. With `tagged`, VLAN tags are part of their
    /// tuples, and packets with a VLAN are left to the owner.
    pub fn quick_port(&self, wire: Wire, side: Side, tagged: bool) -> QuickPort {
        let port = QuickPort {
            wire,
            side,
            left: fact::NEITHER | if tagged { fact::TAGGED } else { 0 },
            ..QuickPort::LEFT
        };
        QuickPort { sums: self.hasher.ingress_sums(&port.tuple(0)), ..port }
    }

    /// Takes the packets of a vector that are in the middle of a connection whose verdict is cached. Looks up
    /// the other TCP and UDP packets of IPv4.
    pub fn pass_quickly(&mut self, vector: QuickVector<'_, '_>, result: &mut QuickResult) {
        result.clear();
        self.now_ms = self.now_ms.max(vector.now_ms);
        let timeouts = QuickTimeouts::new(&self.limits, self.has_room_for_a_vector());
        let ConnectionTable { hasher, index, slab, unfolded, epoch, now_ms, .. } = self;
        SimdLevel::detect().run(QuickPass {
            hasher,
            index,
            slab,
            unfolded,
            epoch: *epoch,
            now_ms: *now_ms as u32,
            timeouts,
            left: LeftConnections::default(),
            left_packets: (!vector.left.is_empty()).then(|| {
                vector.left.iter().fold([0; WORDS], |mut left: [u64; WORDS], packet| {
                    left[usize::from(*packet) / 64] |= 1 << (packet % 64);
                    left
                })
            }),
            flows: vector.keys.flows(),
            count: vector.keys.count(),
            order: (!vector.keys.is_in_order() || vector.keys.count() < vector.packets.len())
                .then(|| in_order(vector.keys.packets(), vector.keys.count())),
            vector,
            result,
        });
    }
}

/// The keys of a vector in the order of their packets, for a vector that does not consist of plain IPv4
/// packets only.
#[inline(never)]
fn in_order(packets: &[u8; VECTOR], count: usize) -> [QuickKey; VECTOR] {
    let mut places = [None; VECTOR];
    for (&packet, key) in packets.iter().zip(0..=u8::MAX).take(count) {
        places[usize::from(packet)] = Some(QuickKey { key, packet });
    }
    let mut keys = [QuickKey::default(); VECTOR];
    keys.iter_mut().zip(places.into_iter().flatten()).for_each(|(place, key)| *place = key);
    keys
}

/// The work of a pass.
struct QuickPass<'t, 'v, 'p> {
    hasher: &'t TupleHasher,
    index: &'t TupleIndex,
    slab: &'t mut ConnectionSlab,
    unfolded: &'t mut IdQueue,
    epoch: u16,
    now_ms: u32,
    timeouts: QuickTimeouts,
    left: LeftConnections,
    /// A bit for each packet that is left in any case. `None` without such a packet.
    left_packets: Option<[u64; WORDS]>,
    flows: FlowColumns<'v>,
    /// Number of keys.
    count: usize,
    /// The keys in the order of their packets. `None` if each packet has the key with its number.
    order: Option<[QuickKey; VECTOR]>,
    vector: QuickVector<'v, 'p>,
    result: &'t mut QuickResult,
}

/// A packet of the pass: the index of its key, and its index in the vector.
#[derive(Clone, Copy, Default)]
struct QuickKey {
    key: u8,
    packet: u8,
}

/// The results of the steps of a pass, for later steps.
struct QuickSteps<'t> {
    /// By key; 0 for packets that are not looked up.
    facts: Column,
    /// By key.
    sums: [[u64; VECTOR]; 2],
    /// This field and the following ones: by key in the order of packets.
    hashes: [u64; VECTOR],
    buckets: [&'t IndexBucket; VECTOR],
    likely: [u32; VECTOR],
}

impl Kernel for QuickPass<'_, '_, '_> {
    #[inline(always)]
    fn run(mut self) {
        match self.order {
            None => self.run_steps::<true>(),
            Some(_) => self.run_steps::<false>(),
        }
    }
}

impl<'t> QuickPass<'t, '_, '_> {
    /// `SAME`: each packet has the key with its number.
    #[inline(always)]
    fn run_steps<const SAME: bool>(&mut self) {
        let mut steps = QuickSteps {
            facts: [0; VECTOR],
            sums: [[0; VECTOR]; 2],
            hashes: [0; VECTOR],
            buckets: [&IndexBucket::NEW; VECTOR],
            likely: [EMPTY; VECTOR],
        };
        self.sum(&mut steps);
        let blocks = self.count.div_ceil(BLOCK);
        for step in 0..blocks + 2 * BLOCKS_BEHIND {
            let block = |behind: usize| {
                let start = step.saturating_sub(behind) * BLOCK;
                if step < behind { 0..0 } else { start..(start + BLOCK).min(self.count) }
            };
            let [hashed, found, passed] = [block(0), block(BLOCKS_BEHIND), block(2 * BLOCKS_BEHIND)];
            for position in hashed {
                self.hash::<SAME>(position % VECTOR, &mut steps);
            }
            for position in found {
                let position = position % VECTOR;
                steps.likely[position] = steps.buckets[position].likely(steps.hashes[position]);
                if let Some((id, _)) = member(steps.likely[position]) {
                    prefetch(self.slab.line(id));
                }
            }
            for position in passed {
                let position = position % VECTOR;
                let key = self.key::<SAME>(position);
                let facts = steps.facts[usize::from(key.key)];
                if facts != 0 {
                    self.pass(key, facts, steps.hashes[position], steps.likely[position]);
                }
            }
        }
    }

    /// Computes the facts of packets, and the partial hash sums over their addresses, ports and protocols.
    #[inline(always)]
    fn sum(&self, steps: &mut QuickSteps<'_>) {
        let FlowColumns { heads, addresses, ports, .. } = self.flows;
        let count = self.count.next_multiple_of(SUMMED).min(VECTOR);
        let mut protos = [0; VECTOR];
        let facts = protos[..count].iter_mut().zip(&mut steps.facts[..count]);
        for ((proto, facts), &head) in facts.zip(&heads[..count]) {
            // The bytes are the family, the kind, the flags, and zero.
            let head = u32::from_be(head);
            *proto = head >> 16 & 0xff;
            let is_either = (*proto == u32::from(proto::TCP)) | (*proto == u32::from(proto::UDP));
            *facts = head | if is_either { 0 } else { fact::NEITHER };
        }
        self.hasher.sum_flows(addresses, ports, &protos, count, &mut steps.sums);
    }

    /// Hashes a packet's tuple and prefetches its bucket.
    #[inline(always)]
    fn hash<const SAME: bool>(&self, position: usize, steps: &mut QuickSteps<'t>) {
        let key = self.key::<SAME>(position);
        let place = usize::from(key.key);
        let (facts, port) = (steps.facts[place], self.port_of(key));
        if facts & port.left != 0 && !(facts & port.left == fact::TAGGED && self.has_no_vlan(key)) {
            steps.facts[place] = 0;
            return;
        }
        let [first, second] = &steps.sums;
        let hash = self.hasher.hash_of(HashSums([first[place], second[place]]).plus(port.sums));
        steps.hashes[position] = hash;
        steps.buckets[position] = self.index.first(hash);
        prefetch(steps.buckets[position]);
    }

    #[inline(always)]
    fn key<const SAME: bool>(&self, position: usize) -> QuickKey {
        match &self.order {
            Some(keys) if !SAME => keys[position],
            _ => QuickKey { key: position as u8, packet: position as u8 },
        }
    }

    /// Whether a packet has no VLAN tag, or only priority tags.
    #[cold]
    fn has_no_vlan(&self, key: QuickKey) -> bool {
        let packet = usize::from(key.packet);
        let packets = &self.vector.packets;
        packets.get(packet).map(|view| vlan_ids(view.bytes(), &self.vector.layouts[packet])) == Some([0; 2])
    }

    #[inline(always)]
    fn port_of(&self, key: QuickKey) -> &QuickPort {
        let packet = self.vector.packets.get(usize::from(key.packet));
        packet
            .and_then(|packet| self.vector.ports.get(usize::from(packet.port.0)))
            .unwrap_or(&QuickPort::LEFT)
    }

    /// Takes a packet, or leaves it with the result of its lookup.
    #[inline(always)]
    fn pass(&mut self, key: QuickKey, facts: u32, hash: u64, likely: u32) {
        let Some(packet) = self.vector.packets.get(usize::from(key.packet)) else { return };
        let (port, len) = (packet.port.0, packet.len() as u32);
        // A cached verdict is for one port, and so for one wire and side, which need not be compared.
        if let Some((id, direction)) = member(likely)
            && let line = self.slab.line(id)
            && line.has_verdict(direction, port, self.epoch)
            && line.proto == fact::proto(facts)
            && line.matches(ends(&self.flows, key.key), direction)
        {
            return self.pass_cached((id, direction), key, (facts, len));
        }
        self.pass_unlikely(key, facts, hash, likely, (port, len));
    }

    /// [`QuickPass::pass`] for a packet whose likely entry is wrong, or whose verdict is not cached.
    #[inline(never)]
    fn pass_unlikely(&mut self, key: QuickKey, facts: u32, hash: u64, likely: u32, (port, len): (u16, u32)) {
        let Some((id, direction)) = self.find(key, fact::proto(facts), hash, likely) else {
            self.result.lookups[usize::from(key.packet)] = QuickLookup::Absent;
            return;
        };
        let line = self.slab.line(id);
        match line.has_verdict(direction, port, self.epoch)
            && line.matches(ends(&self.flows, key.key), direction)
        {
            true => self.pass_cached((id, direction), key, (facts, len)),
            false => self.leave((id, direction), key),
        }
    }

    /// Takes a packet of a connection whose verdict is cached, if the packet is in the middle of the
    /// connection.
    #[inline(always)]
    fn pass_cached(&mut self, (id, direction): (ConnId, Direction), key: QuickKey, (facts, len): (u32, u32)) {
        let (line, flows) = (self.slab.line_mut(id), &self.flows);
        let (state, is_tcp) = (line.state_number(), fact::proto(facts) == proto::TCP);
        let idle_ms = self.now_ms.wrapping_sub(line.last_ms);
        let is_taken = (facts & fact::NOT_TAKEN == 0)
            & !self.left.may_have(id)
            & (idle_ms < self.timeouts.0[usize::from(is_tcp)][state % STATES])
            && self.left_packets.is_none_or(|left| left[usize::from(key.packet) / 64] >> (key.packet % 64) & 1 == 0)
            // A packet changes the connection's place in its eviction list at most once per tick.
            && (state != ConnState::Unreplied as usize
                || direction == Direction::Forward
                    && line.last_ms >> EVICTION_TICK_SHIFT == self.now_ms >> EVICTION_TICK_SHIFT)
            && (!is_tcp || line.tracker.track_ordinary(direction, || segment(flows, key.key)));
        if !is_taken {
            return self.leave((id, direction), key);
        }
        line.last_ms = self.now_ms;
        line.count(direction, len);
        let (is_translated, needs_listing) = (line.is_translated(), line.needs_listing(direction));
        if is_translated {
            let ends = line.leaving(ends(&self.flows, key.key), direction);
            self.result.translations.push(QuickTranslation { ends, packet: key.packet });
        }
        if needs_listing {
            self.add_to_lists((id, direction), key.packet);
        }
        self.result.take(key.packet);
    }

    /// Lists a packet if its connection is followed, and its connection for folding.
    #[cold]
    fn add_to_lists(&mut self, (id, direction): (ConnId, Direction), packet: u8) {
        let line = self.slab.line_mut(id);
        if line.is_followed() {
            self.result.followed.push((packet, id, direction));
        }
        if line.is_full(direction) && self.result.full.last() != Some(&id) {
            // The list cannot be full: a vector has at most one connection per packet.
            _ = self.result.full.try_push(id);
        }
        if !line.list() {
            self.unfolded.push(id);
        }
    }

    /// Leaves a packet and the later packets of its connection to the owner.
    #[inline]
    fn leave(&mut self, (id, direction): (ConnId, Direction), key: QuickKey) {
        self.left.add(id);
        self.result.lookups[usize::from(key.packet)] = QuickLookup::Found(id, direction);
    }

    /// The connection of a packet.
    fn find(&self, key: QuickKey, proto: u8, hash: u64, likely: u32) -> Option<(ConnId, Direction)> {
        if likely == ABSENT && !self.index.has_stash() {
            return None;
        }
        let tuple = ends(&self.flows, key.key).tuple(&self.port_of(key).tuple(proto));
        let is = |entry| {
            member(entry).is_some_and(|(id, direction)| self.slab.record(id).matches(&tuple, direction))
        };
        if is(likely) { member(likely) } else { self.index.find(hash, is).and_then(member) }
    }
}

/// Tuples are summed in groups of this size.
const SUMMED: usize = 16;

/// The ends of the packet of a key.
#[inline(always)]
fn ends(flows: &FlowColumns<'_>, key: u8) -> Ends {
    let FlowColumns { addresses: [from, to], ports, .. } = flows;
    let key = usize::from(key);
    Ends { addresses: u64::from(from[key]) | u64::from(to[key]) << 32, ports: ports[key] }
}

/// The TCP segment of a packet without SYN.
#[inline(always)]
fn segment(flows: &FlowColumns<'_>, key: u8) -> TcpSegment {
    let FlowColumns { numbers: [seq, ack], window, payloads, .. } = flows;
    let key = usize::from(key);
    let [_, flags, window @ ..] = window[key].to_ne_bytes();
    TcpSegment {
        flags,
        seq: u32::from_be(seq[key]),
        ack: u32::from_be(ack[key]),
        window: u16::from_be_bytes(window),
        payload: u32::from_be(payloads[key]) >> 16,
        ..TcpSegment::default()
    }
}

/// A superset of the connections of which the pass left a packet to the owner.
struct LeftConnections([bool; LEFT_FLAGS]);

impl Default for LeftConnections {
    fn default() -> LeftConnections {
        LeftConnections([false; LEFT_FLAGS])
    }
}

impl LeftConnections {
    #[inline]
    fn add(&mut self, id: ConnId) {
        self.0[id.index() % LEFT_FLAGS] = true;
    }

    #[inline(always)]
    fn may_have(&self, id: ConnId) -> bool {
        self.0[id.index() % LEFT_FLAGS]
    }
}

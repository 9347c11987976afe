//! The quick pass: packets in the middle of an IPv4 connection whose verdict is known need the connection's flow line and nothing else.
//!
//! The table's owner says for which connections it knows the verdict ([`ConnectionTable::know`]): packets of a direction that come in by one
//! port pass without an edit. This holds for an *epoch*, until the owner begins another one. The pass looks up all TCP and UDP packets of
//! IPv4, and takes those that are in the middle of such a connection: it tracks and counts them, and returns their translation. All others
//! are left to the owner, with the result of their look-up.
//!
//! Packets of a connection stay in order: once the pass leaves one to the owner, it leaves all later ones of that connection in the vector.
//! Those that it takes come before the others of the vector, so it takes packets of connections that may be evicted only while the table has
//! room for as many new connections as the vector has packets.
//!
//! The pass prefetches a packet's bucket, 16 packets later its flow line, and works on it 16 packets later: evenly, since a core has some two
//! dozen outstanding misses, and a burst of prefetches would wait for them.

use super::follow::ORDER_TICK_SHIFT;
use super::{ConnectionTable, member};
use crate::hash::{TupleHasher, tuple_of, with_proto};
use crate::index::{ABSENT, EMPTY, IndexBucket, TupleIndex};
use crate::queue::IdQueue;
use crate::quick::{QuickLookup, QuickPort, QuickResult, QuickTranslation, QuickVector, WORDS};
use crate::record::Ends;
use crate::slab::ConnectionSlab;
use crate::timeouts::StateTimeouts;
use crate::{ConnId, ConnState, Direction, TcpSegment, proto};
use arrayvec::ArrayVec;
use mmb_base::simd::{Kernel, SimdLevel};
use mmb_base::{Id, VECTOR, prefetch};
use mmb_packet::columns::FlowColumns;
use mmb_packet::flow::vlan_ids;
use mmb_packet::{Layout, Packet};

/// How many packets behind the prefetch of what it needs a step works.
const BEHIND: usize = 16;

/// Connections whose packets of the vector are kept in order together.
const ORDERS: usize = 256;

/// The timeouts in milliseconds of connections whose packets the pass may take: by state, first of UDP, then of TCP; 0 for other states.
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
    /// Takes the packets of a vector that are in the middle of a connection whose verdict is known; looks up the other TCP and UDP packets
    /// of IPv4.
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
            left_packets: vector.left.iter().fold([0; WORDS], |mut left: [u64; WORDS], packet| {
                left[usize::from(*packet) / 64] |= 1 << (packet % 64);
                left
            }),
            flows: vector.keys.flows(),
            vector,
            result,
        });
    }
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
    /// A bit for each packet that is left in any case.
    left_packets: [u64; WORDS],
    flows: FlowColumns<'v>,
    vector: QuickVector<'v, 'p>,
    result: &'t mut QuickResult,
}

/// A packet of the pass: the numbers of its key and in the vector.
#[derive(Clone, Copy, Default)]
struct QuickKey {
    key: u8,
    packet: u8,
}

impl Kernel for QuickPass<'_, '_, '_> {
    #[inline(always)]
    fn run(mut self) {
        const NEW: &IndexBucket = &IndexBucket::NEW;
        let (mut keys, mut hashes) = ([QuickKey::default(); VECTOR], [0; VECTOR]);
        let sorted = if self.vector.keys.is_in_order() { ArrayVec::new() } else { self.sorted() };
        let mut count = 0;
        for (&packet, key) in
            self.vector.keys.packets().iter().zip(0..=u8::MAX).take(self.vector.keys.count())
        {
            let at = sorted.get(usize::from(key)).copied().unwrap_or(QuickKey { key, packet });
            if let Some(hash) = self.hash(at) {
                (keys[count % VECTOR], hashes[count % VECTOR]) = (at, hash);
                count += 1;
            }
        }
        let (mut buckets, mut likely) = ([NEW; VECTOR], [EMPTY; VECTOR]);
        for step in 0..count + 2 * BEHIND {
            if step < count {
                let at = step % VECTOR;
                buckets[at] = self.index.first(hashes[at]);
                prefetch(buckets[at]);
            }
            let located = step.wrapping_sub(BEHIND);
            if located < count {
                let at = located % VECTOR;
                likely[at] = buckets[at].likely(hashes[at]);
                if let Some((id, _)) = member(likely[at]) {
                    prefetch(self.slab.line(id));
                }
            }
            if let Some(passed) = step.checked_sub(2 * BEHIND) {
                let at = passed % VECTOR;
                self.pass(keys[at], hashes[at], likely[at]);
            }
        }
    }
}

impl QuickPass<'_, '_, '_> {
    /// The keys in the order of their packets: those of a vector that has packets with VLAN tags or IP options beside others.
    #[inline(never)]
    fn sorted(&self) -> ArrayVec<QuickKey, VECTOR> {
        let mut places = [None; VECTOR];
        let packets = self.vector.keys.packets().iter().zip(0..=u8::MAX);
        for (&packet, key) in packets.take(self.vector.keys.count()) {
            places[usize::from(packet)] = Some(QuickKey { key, packet });
        }
        places.into_iter().flatten().collect()
    }

    /// The hash of a packet's tuple, if the pass looks it up.
    #[inline(always)]
    fn hash(&self, at: QuickKey) -> Option<u64> {
        let layout = &self.vector.layouts[usize::from(at.packet)];
        let port = self.port_of(at)?;
        let is_meant = matches!(layout.l4_kind, proto::TCP | proto::UDP) & port.is_meant
            && !(port.tagged && layout.vlan_tags > 0 && self.has_vlan(at));
        let [first, second] = port.others;
        is_meant.then(|| self.hasher.hash_of(self.ends(at), [first, with_proto(second, layout.l4_kind)]))
    }

    /// Whether a packet has VLAN tags that are more than a priority.
    #[inline(never)]
    fn has_vlan(&self, at: QuickKey) -> bool {
        let packet = usize::from(at.packet);
        let ids = |of: &Packet<'_>| vlan_ids(of.bytes(), &self.vector.layouts[packet]);
        self.vector.packets.get(packet).map(ids) != Some([0; 2])
    }

    #[inline(always)]
    fn port_of(&self, at: QuickKey) -> Option<&QuickPort> {
        let packet = self.vector.packets.get(usize::from(at.packet))?;
        self.vector.ports.get(usize::from(packet.port.0))
    }

    #[inline(always)]
    fn ends(&self, QuickKey { key, .. }: QuickKey) -> Ends {
        let FlowColumns { addresses: [from, to], ports, .. } = self.flows;
        let key = usize::from(key);
        Ends { addresses: u64::from(from[key]) | u64::from(to[key]) << 32, ports: ports[key] }
    }

    /// The TCP segment of a packet that is no SYN.
    #[inline(always)]
    fn segment(&self, QuickKey { key, .. }: QuickKey, layout: &Layout) -> TcpSegment {
        let FlowColumns { numbers: [seq, ack], window, .. } = self.flows;
        let key = usize::from(key);
        let [_, flags, window @ ..] = window[key].to_ne_bytes();
        TcpSegment {
            flags,
            seq: u32::from_be(seq[key]),
            ack: u32::from_be(ack[key]),
            window: u16::from_be_bytes(window),
            payload: layout.payload_end.wrapping_sub(u32::from(layout.payload)),
            ..TcpSegment::default()
        }
    }

    /// Takes a packet, or leaves it with the result of its look-up.
    #[inline(always)]
    fn pass(&mut self, at: QuickKey, hash: u64, likely: u32) {
        let Some(packet) = self.vector.packets.get(usize::from(at.packet)) else { return };
        let (port, len) = (packet.port.0, packet.len() as u32);
        let layout = &self.vector.layouts[usize::from(at.packet)];
        // A known verdict is that of one port, and so of one wire and side.
        if let Some((id, direction)) = member(likely)
            && let line = self.slab.line(id)
            && line.knows(direction, port, self.epoch)
            && line.proto == layout.l4_kind
            && let Some(leaving) = line.leaving(self.ends(at), direction)
        {
            return self.pass_known((id, direction), at, (layout, len), leaving);
        }
        self.pass_unlikely(at, hash, likely, (port, len));
    }

    /// [`QuickPass::pass`] for a packet whose likely entry is not its own, or whose verdict is not known.
    #[inline(never)]
    fn pass_unlikely(&mut self, at: QuickKey, hash: u64, likely: u32, (port, len): (u16, u32)) {
        let Some((id, direction)) = self.find(at, hash, likely) else {
            self.result.lookups[usize::from(at.packet)] = QuickLookup::Absent;
            return;
        };
        let layout = &self.vector.layouts[usize::from(at.packet)];
        let line = self.slab.line(id);
        match line.leaving(self.ends(at), direction) {
            Some(leaving) if line.knows(direction, port, self.epoch) => {
                self.pass_known((id, direction), at, (layout, len), leaving);
            }
            _ => self.leave((id, direction), at),
        }
    }

    /// Takes a packet of a connection whose verdict is known, if it is in its middle.
    #[inline(always)]
    fn pass_known(
        &mut self,
        (id, direction): (ConnId, Direction),
        at: QuickKey,
        (layout, len): (&Layout, u32),
        leaving: Ends,
    ) {
        let segment = self.segment(at, layout);
        let line = self.slab.line_mut(id);
        let (state, is_tcp) = (line.state_number(), layout.l4_kind == proto::TCP);
        let idle_ms = self.now_ms.wrapping_sub(line.last_ms);
        let is_left = self.left_packets[usize::from(at.packet) / 64] >> (at.packet % 64) & 1 == 1;
        let is_plain = !layout.is_fragment() & !layout.routed & !is_left;
        let goes_on = is_plain
            & !self.left.may_have(id)
            & (idle_ms < self.timeouts.0[usize::from(is_tcp)][state % STATES])
            // Its place in its order changes at most once in a tick.
            && (state != ConnState::Unreplied as usize
                || direction == Direction::Forward
                    && line.last_ms >> ORDER_TICK_SHIFT == self.now_ms >> ORDER_TICK_SHIFT)
            && (!is_tcp || line.tracker.goes_on(direction, &segment));
        if !goes_on {
            return self.leave((id, direction), at);
        }
        line.last_ms = self.now_ms;
        line.count(direction, len);
        if line.is_translated() {
            self.result.translations.push(QuickTranslation { ends: leaving, packet: at.packet });
        }
        if line.needs_care(direction) {
            self.care((id, direction));
        }
        self.result.take(at.packet);
    }

    /// Lists a connection for folding.
    #[cold]
    fn care(&mut self, (id, direction): (ConnId, Direction)) {
        let line = self.slab.line_mut(id);
        if line.is_full(direction) && self.result.full.last() != Some(&id) {
            // There are no more than packets.
            _ = self.result.full.try_push(id);
        }
        if !line.list() {
            self.unfolded.push(id);
        }
    }

    /// Leaves a packet to the owner, and those of its connection that follow.
    #[inline]
    fn leave(&mut self, (id, direction): (ConnId, Direction), at: QuickKey) {
        self.left.add(id);
        self.result.lookups[usize::from(at.packet)] = QuickLookup::Found(id, direction);
    }

    /// The connection of a packet.
    fn find(&self, at: QuickKey, hash: u64, likely: u32) -> Option<(ConnId, Direction)> {
        if likely == ABSENT && !self.index.has_stash() {
            return None;
        }
        let proto = self.vector.layouts[usize::from(at.packet)].l4_kind;
        let tuple = self.ends(at).tuple(&tuple_of(self.port_of(at)?.others, proto));
        let is =
            |entry| member(entry).is_some_and(|(id, direction)| self.slab.record(id).is(&tuple, direction));
        if is(likely) { member(likely) } else { self.index.find(hash, is).and_then(member) }
    }
}

/// A superset of the connections of which the pass left a packet to the owner.
struct LeftConnections([bool; ORDERS]);

impl Default for LeftConnections {
    fn default() -> LeftConnections {
        LeftConnections([false; ORDERS])
    }
}

impl LeftConnections {
    #[inline]
    fn add(&mut self, id: ConnId) {
        self.0[id.index() % ORDERS] = true;
    }

    #[inline(always)]
    fn may_have(&self, id: ConnId) -> bool {
        self.0[id.index() % ORDERS]
    }
}

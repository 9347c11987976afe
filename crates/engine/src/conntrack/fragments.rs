//! Fragments: selects the worker that collects the fragments of a datagram, gives the ports of the first
//! fragment to later ones, and holds fragments that arrive before the first one.

use super::flow_state::FlowState;
use super::key::{self, Ingress, LookupKey, PacketKind};
use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use crate::verdict::Origin;
use mmb_conn::fragment::{
    DatagramHead, FragmentDrop, FragmentKey, FragmentVerdict, HeldLosses, LaterFragment, Released,
};
use mmb_conn::{Tuple, flags};
use mmb_packet::{Layout, Malformed, Packet};

/// The flow state of a fragment whose datagram cannot be identified.
const UNKNOWN: FlowState = FlowState::Refused(DropReason::Malformed(Malformed::Ip6HeaderTruncated));

impl Conntrack {
    /// Whether this worker is the home of a datagram: the worker that gets all fragments first. If it is not,
    /// the home has handed this fragment over.
    ///
    /// # Errors
    /// The fragment must go to its home first.
    fn is_home(&self, datagram: &FragmentKey, origin: Origin) -> Result<bool, FlowState> {
        let owners = &self.state.shared.owners;
        if owners.owns_all(self.state.worker) {
            return Ok(true);
        }
        match owners.home(datagram) {
            home if home == self.state.worker => Ok(true),
            home if origin == Origin::Wire => Err(FlowState::OtherWorker(home)),
            _ => Ok(false),
        }
    }

    /// Whether a packet with this tuple is a fragment, and this worker is the home of its datagram.
    pub(super) fn is_at_home(&self, packet: &Packet<'_>, layout: &Layout, tuple: &Tuple) -> bool {
        layout.is_fragment()
            && key::fragment_key(packet.bytes(), layout, Ingress::from_tuple(tuple))
                .is_some_and(|key| self.state.shared.owners.home(&key) == self.state.worker)
    }

    /// Records the ports of a first fragment and releases the fragments that were held for it.
    ///
    /// # Errors
    /// The flow state of the fragment, if the fragment must not be looked up.
    pub(super) fn first_fragment(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        tuple: &Tuple,
        origin: Origin,
    ) -> Result<(), FlowState> {
        let bytes = packet.bytes();
        let key = key::fragment_key(bytes, layout, Ingress::from_tuple(tuple));
        let (Some(key), Some((_, len, _))) = (key, key::fragment_place(bytes, layout)) else {
            return Err(UNKNOWN);
        };
        self.is_home(&key, origin)?;
        let head = DatagramHead { proto: tuple.proto, ports: tuple.ports };
        match self.fragments.first(self.state.now_ms, key, head, len) {
            FragmentVerdict::Pass => {
                self.held.release(&key);
                Ok(())
            }
            FragmentVerdict::Drop(why) => Err(refused(why)),
        }
    }

    /// Records that a packet is valid for its connection, or created it. If the packet is the first fragment
    /// of a TCP segment, its header gives the sequence numbers of the data in later fragments. An invalid
    /// first fragment is not recorded. Later fragments have no acknowledgment number to check, so a sender
    /// who does not know the sequence numbers could otherwise move the window of the connection.
    pub(super) fn note_valid(&mut self, index: usize, packet: &Packet<'_>, layout: &Layout) {
        if !layout.is_fragment() || layout.is_later_fragment() {
            return;
        }
        let bytes = packet.bytes();
        if let Some(segment) = key::segment(packet, layout)
            && let Some((_, len, _)) = key::fragment_place(bytes, layout)
            && let Some(key) = self.datagram(index, packet, layout)
        {
            let headers = len.saturating_sub(segment.payload);
            // A FIN takes one sequence number after the data, so the end of the datagram moves by one.
            let fin = u32::from(segment.flags & flags::FIN != 0);
            let seq = segment.seq.wrapping_sub(headers).wrapping_add(fin);
            self.fragments.record_seq(&key, seq);
            self.noted_seqs.push((key, seq));
        }
    }

    /// The sequence number that [`Conntrack::note_valid`] recorded in this vector for the datagram of a
    /// fragment.
    pub(super) fn seq_of(&self, index: usize, packet: &Packet<'_>, layout: &Layout) -> Option<u32> {
        let key = self.datagram(index, packet, layout).filter(|_| !self.noted_seqs.is_empty())?.packed();
        self.noted_seqs.iter().rev().find(|(noted, _)| noted.packed() == key).map(|(_, seq)| *seq)
    }

    /// The key of a fragment's datagram.
    fn datagram(&self, index: usize, packet: &Packet<'_>, layout: &Layout) -> Option<FragmentKey> {
        key::fragment_key(packet.bytes(), layout, Ingress::from_tuple(&self.tuple(index)?))
    }

    /// The lookup key of a later fragment; `None` if no rule needs its ports.
    ///
    /// # Errors
    /// The flow state of the fragment, if the fragment must not be looked up.
    pub(super) fn later_fragment(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        key: FragmentKey,
        (snapshot, origin): (&Snapshot, Origin),
    ) -> Result<Option<LookupKey>, FlowState> {
        let Some((offset, len, last)) = key::fragment_place(packet.bytes(), layout) else {
            return Err(UNKNOWN);
        };
        let is_home = self.is_home(&key, origin)?;
        match self.fragments.later(self.state.now_ms, key, offset, len, last) {
            LaterFragment::Known(DatagramHead { proto, ports }, complete) => {
                let FragmentKey { addresses, family, wire, side, .. } = key;
                let tuple = Tuple { addresses, ports, wire, side, proto, family };
                Ok(Some(LookupKey { tuple, kind: PacketKind::Fragment(complete) }))
            }
            LaterFragment::Unknown if snapshot.stateful_rules == 0 => Ok(None),
            LaterFragment::Unknown if is_home && origin != Origin::Held => Err(self.hold(&key, packet)),
            LaterFragment::Unknown => Err(FlowState::Refused(DropReason::FragmentEarly)),
            LaterFragment::Drop(why) => Err(refused(why)),
        }
    }

    /// Records that a packet of the vector is dropped. If the packet is a fragment, later fragments of its
    /// datagram are dropped too: they must not pass untranslated.
    pub(crate) fn refuse(&mut self, index: usize, packet: &Packet<'_>, layout: &Layout) {
        if layout.is_fragment()
            && let Some(key) = self.datagram(index, packet, layout)
        {
            self.fragments.refuse(&key);
            self.refused.push(key);
        }
    }

    /// Whether a packet is a later fragment of a datagram of which a fragment was dropped in this vector,
    /// after the lookup.
    #[inline]
    pub(super) fn is_refused(&self, index: usize, packet: &Packet<'_>, layout: &Layout) -> bool {
        !self.refused.is_empty()
            && layout.is_later_fragment()
            && self
                .datagram(index, packet, layout)
                .is_some_and(|key| self.refused.iter().any(|refused| refused.packed() == key.packed()))
    }

    fn hold(&mut self, datagram: &FragmentKey, packet: &Packet<'_>) -> FlowState {
        let held = self.held.hold(self.state.now_ms, datagram, packet);
        self.count_held();
        held.map_or_else(refused, FlowState::Held)
    }

    /// Limits the number and the bytes of held packets. Must be called before any packet is held.
    pub(crate) fn limit_held(&mut self, packets: u16, bytes: usize) {
        self.held.limit(packets, bytes);
    }

    /// Whether held packets were released.
    #[inline]
    pub(crate) fn has_released(&self) -> bool {
        self.held.released() > 0
    }

    /// Passes one of the released packets to `out`. Returns false if no packet is left.
    pub(crate) fn take_released(&mut self, out: impl FnOnce(Released<'_>)) -> bool {
        let taken = self.held.take(out);
        self.count_held();
        taken
    }

    /// Drops all held packets.
    pub(crate) fn drop_held(&mut self) {
        self.held.drop_all();
        self.count_held();
    }

    /// Updates the counters of held packets and of those that were lost.
    pub(super) fn count_held(&mut self) {
        let HeldLosses { aged, evicted } = self.held.losses();
        self.lost.aged += aged;
        self.lost.evicted += evicted;
        let cells = &self.state.cells;
        cells.held_now(self.held.len() as u64);
        for (reason, packets) in [(DropReason::FragmentEarly, aged), (DropReason::FragmentNoRoom, evicted)] {
            if packets > 0 {
                cells.count_drop(reason, packets);
            }
        }
    }
}

fn refused(why: FragmentDrop) -> FlowState {
    FlowState::Refused(match why {
        FragmentDrop::Overlap => DropReason::FragmentOverlap,
        FragmentDrop::Duplicate => DropReason::FragmentDuplicate,
        FragmentDrop::Tiny => DropReason::Malformed(Malformed::TinyFragment),
        FragmentDrop::BadLength => DropReason::FragmentBadLength,
        FragmentDrop::TooMany => DropReason::FragmentTooMany,
        FragmentDrop::NoRoom => DropReason::FragmentNoRoom,
        FragmentDrop::Refused => DropReason::FragmentRefused,
    })
}

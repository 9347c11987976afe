//! Fragments: where those of a datagram come together, what the first one tells of the others, and their wait for it.

use super::key::{self, Ingress, LookupKey, PacketKind};
use super::{Conntrack, FlowState};
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use crate::worker::Origin;
use mmb_conn::fragment::{
    DatagramHead, FragmentDrop, FragmentKey, FragmentVerdict, HeldLosses, LaterFragment, Released,
};
use mmb_conn::{TcpOutcome, Tuple, flags};
use mmb_packet::checksum::Soundness;
use mmb_packet::{Layout, Malformed, Packet};

/// How a fragment stands whose datagram cannot be told.
const UNKNOWN: FlowState = FlowState::Refused(DropReason::Malformed(Malformed::Ip6HeaderTruncated));

impl Conntrack {
    /// Whether the fragments of a datagram come together here; else this one was sent on from there.
    ///
    /// # Errors
    /// It has to go there first.
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

    /// Whether a packet with this tuple is a fragment whose datagram comes together here.
    pub(super) fn is_at_home(&self, packet: &Packet<'_>, layout: &Layout, tuple: &Tuple) -> bool {
        layout.is_fragment()
            && key::fragment_key(packet.bytes(), layout, Ingress::of(tuple))
                .is_some_and(|key| self.state.shared.owners.home(&key) == self.state.worker)
    }

    /// Remembers what a first fragment tells; those that wait for it wait no more.
    ///
    /// # Errors
    /// How it stands if it is not to be looked up.
    pub(super) fn first_fragment(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        tuple: &Tuple,
        origin: Origin,
    ) -> Result<(), FlowState> {
        let bytes = packet.bytes();
        let key = key::fragment_key(bytes, layout, Ingress::of(tuple));
        let (Some(key), Some((_, len, _))) = (key, key::fragment_place(bytes, layout)) else {
            return Err(UNKNOWN);
        };
        self.is_home(&key, origin)?;
        let head = DatagramHead { ports: tuple.ports, seq: self.datagram_seq(packet, layout, tuple, len) };
        match self.fragments.first(self.state.now_ms, key, head, len) {
            FragmentVerdict::Pass => {
                self.held.release(&key);
                Ok(())
            }
            FragmentVerdict::Drop(why) => Err(refused(why)),
        }
    }

    /// The sequence number at offset 0 of the datagram that begins with this fragment of so many bytes, if it is a TCP segment and its
    /// connection believes it: else who knows no numbers could have the connection wait for any by the other fragments, which say nothing
    /// of what they acknowledge.
    fn datagram_seq(&self, packet: &Packet<'_>, layout: &Layout, tuple: &Tuple, len: u32) -> Option<u32> {
        let segment = key::segment(packet, layout)?;
        let (id, direction) = self.table.find(tuple)?;
        let signal = self.signal(id, direction, packet, layout)?;
        let unchecked = || Soundness::Unknown;
        let judged = self.table.judge(id, direction, self.state.now_ms, Some(&signal), unchecked);
        let headers = len.saturating_sub(segment.payload);
        // A FIN takes the number behind the data, whose end is not here.
        let fin = u32::from(segment.flags & flags::FIN != 0);
        (judged == TcpOutcome::Stays).then(|| segment.seq.wrapping_sub(headers).wrapping_add(fin))
    }

    /// What a later fragment is looked up by; nothing if nobody asks whose it is.
    ///
    /// # Errors
    /// How it stands if it is not to be looked up.
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
            LaterFragment::Of(DatagramHead { ports, seq }) => {
                let FragmentKey { addresses, proto, family, wire, side, .. } = key;
                let tuple = Tuple { addresses, ports, wire, side, proto, family };
                Ok(Some(LookupKey { tuple, kind: PacketKind::Fragment(seq) }))
            }
            LaterFragment::Unknown if snapshot.stateful_rules == 0 => Ok(None),
            LaterFragment::Unknown if is_home && origin != Origin::Held => Err(self.hold(&key, packet)),
            LaterFragment::Unknown => Err(FlowState::Refused(DropReason::FragmentEarly)),
            LaterFragment::Drop(why) => Err(refused(why)),
        }
    }

    /// A packet of the vector does not pass. If it is a first fragment, the others of its datagram must not leave as they came.
    pub(crate) fn refuse(&mut self, at: usize, packet: &Packet<'_>, layout: &Layout) {
        if layout.is_fragment()
            && let Some(tuple) = self.tuple(at)
            && let Some(key) = key::fragment_key(packet.bytes(), layout, Ingress::of(&tuple))
        {
            self.fragments.refuse(&key);
            self.refused.push(key);
        }
    }

    /// Whether a packet is a later fragment of a datagram whose first one did not pass in this vector. When it was looked up, that was
    /// not known.
    #[inline]
    pub(crate) fn is_refused(&self, at: usize, packet: &Packet<'_>, layout: &Layout) -> bool {
        !self.refused.is_empty()
            && layout.is_later_fragment()
            && self
                .tuple(at)
                .and_then(|tuple| key::fragment_key(packet.bytes(), layout, Ingress::of(&tuple)))
                .is_some_and(|key| self.refused.contains(&key))
    }

    fn hold(&mut self, datagram: &FragmentKey, packet: &Packet<'_>) -> FlowState {
        let held = self.held.hold(self.state.now_ms, datagram, packet);
        self.count_held();
        held.map_or_else(refused, FlowState::Held)
    }

    /// Bounds how many packets are held, and their bytes, before any can be.
    pub(crate) fn limit_held(&mut self, packets: u16, bytes: usize) {
        self.held.limit(packets, bytes);
    }

    /// Whether packets that were held can go on.
    #[inline]
    pub(crate) fn has_released(&self) -> bool {
        self.held.released() > 0
    }

    /// Gives out one of the packets that can go on. False if there is none.
    pub(crate) fn take_released(&mut self, out: impl FnOnce(Released<'_>)) -> bool {
        let taken = self.held.take(out);
        self.count_held();
        taken
    }

    /// Drops all packets that are held.
    pub(crate) fn give_up_held(&mut self) {
        self.held.give_up();
        self.count_held();
    }

    /// Counts what is held, and what was lost of it.
    pub(super) fn count_held(&mut self) {
        let HeldLosses { aged, crowded_out } = self.held.losses();
        self.lost.aged += aged;
        self.lost.crowded_out += crowded_out;
        let cells = &self.state.cells;
        cells.held_now(self.held.len() as u64);
        for (reason, packets) in
            [(DropReason::FragmentEarly, aged), (DropReason::FragmentNoRoom, crowded_out)]
        {
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

//! Fragments: where those of a datagram come together, what the first one tells of the others, and their wait for it.

use super::relate::{self, Place, Sort, Sought};
use super::{Flows, Standing};
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use crate::worker::Origin;
use mmb_conn::fragment::{FragmentDrop, FragmentKey, FragmentVerdict, Head, Later, Losses, Released};
use mmb_conn::{Tuple, flags};
use mmb_packet::{Layout, Malformed, Packet};

/// How a fragment stands whose datagram cannot be told.
const UNKNOWN: Standing = Standing::Refused(DropReason::Malformed(Malformed::Ip6HeaderTruncated));

impl Flows {
    /// Whether the fragments of a datagram come together here; else this one was sent on from there.
    ///
    /// # Errors
    /// It has to go there first.
    fn is_home(&self, datagram: &FragmentKey, origin: Origin) -> Result<bool, Standing> {
        let owners = &self.keeper.common.owners;
        if owners.owns_all(self.keeper.worker) {
            return Ok(true);
        }
        match owners.home(datagram) {
            home if home == self.keeper.worker => Ok(true),
            home if origin == Origin::Wire => Err(Standing::Elsewhere(home)),
            _ => Ok(false),
        }
    }

    /// Whether a packet with this tuple is a fragment whose datagram comes together here.
    pub(super) fn is_at_home(&self, packet: &Packet<'_>, layout: &Layout, tuple: &Tuple) -> bool {
        layout.is_fragment()
            && relate::fragment_key(packet.bytes(), layout, Place::of(tuple))
                .is_some_and(|key| self.keeper.common.owners.home(&key) == self.keeper.worker)
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
    ) -> Result<(), Standing> {
        let bytes = packet.bytes();
        let key = relate::fragment_key(bytes, layout, Place::of(tuple));
        let (Some(key), Some((_, len, _))) = (key, relate::fragment_place(bytes, layout)) else {
            return Err(UNKNOWN);
        };
        self.is_home(&key, origin)?;
        let head = Head { proto: tuple.proto, ports: tuple.ports };
        match self.fragments.first(self.keeper.now_ms, key, head, len) {
            FragmentVerdict::Pass => {
                self.held.release(&key);
                Ok(())
            }
            FragmentVerdict::Drop(why) => Err(refused(why)),
        }
    }

    /// A packet was believed, or began a connection. If it is the first fragment of a TCP segment, it tells which numbers the data of the
    /// others have. Of one that is not believed it does not: who knows no numbers could have the connection wait for any, since the others
    /// say nothing of what they acknowledge.
    pub(crate) fn note_believed(&mut self, at: usize, packet: &Packet<'_>, layout: &Layout) {
        if !layout.is_fragment() || layout.is_later_fragment() {
            return;
        }
        let bytes = packet.bytes();
        if let Some(segment) = relate::segment(packet, layout)
            && let Some((_, len, _)) = relate::fragment_place(bytes, layout)
            && let Some(key) = self.datagram(at, packet, layout)
        {
            let headers = len.saturating_sub(segment.payload);
            // The number behind the data is a FIN's, wherever the data end.
            let fin = u32::from(segment.flags & flags::FIN != 0);
            let seq = segment.seq.wrapping_sub(headers).wrapping_add(fin);
            self.fragments.note_seq(&key, seq);
            self.numbered.push((key, seq));
        }
    }

    /// What [`Flows::note_believed`] noted in this vector of a fragment's datagram.
    pub(super) fn seq_of(&self, at: usize, packet: &Packet<'_>, layout: &Layout) -> Option<u32> {
        let key = self.datagram(at, packet, layout).filter(|_| !self.numbered.is_empty())?.packed();
        self.numbered.iter().rev().find(|(noted, _)| noted.packed() == key).map(|(_, seq)| *seq)
    }

    /// The datagram of a fragment.
    fn datagram(&self, at: usize, packet: &Packet<'_>, layout: &Layout) -> Option<FragmentKey> {
        relate::fragment_key(packet.bytes(), layout, Place::of(&self.tuple(at)?))
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
    ) -> Result<Option<Sought>, Standing> {
        let Some((offset, len, last)) = relate::fragment_place(packet.bytes(), layout) else {
            return Err(UNKNOWN);
        };
        let is_home = self.is_home(&key, origin)?;
        match self.fragments.later(self.keeper.now_ms, key, offset, len, last) {
            Later::Of(Head { proto, ports }, complete) => {
                let FragmentKey { addresses, family, wire, side, .. } = key;
                let tuple = Tuple { addresses, ports, wire, side, proto, family };
                Ok(Some(Sought { tuple, sort: Sort::Fragment(complete) }))
            }
            Later::Unknown if snapshot.stateful_rules == 0 => Ok(None),
            Later::Unknown if is_home && origin != Origin::Held => Err(self.hold(&key, packet)),
            Later::Unknown => Err(Standing::Refused(DropReason::FragmentEarly)),
            Later::Drop(why) => Err(refused(why)),
        }
    }

    /// A packet of the vector does not pass. If it is a first fragment, the others of its datagram must not leave as they came.
    pub(crate) fn refuse(&mut self, at: usize, packet: &Packet<'_>, layout: &Layout) {
        if layout.is_fragment()
            && let Some(key) = self.datagram(at, packet, layout)
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
                .datagram(at, packet, layout)
                .is_some_and(|key| self.refused.iter().any(|refused| refused.packed() == key.packed()))
    }

    fn hold(&mut self, datagram: &FragmentKey, packet: &Packet<'_>) -> Standing {
        let held = self.held.hold(self.keeper.now_ms, datagram, packet);
        self.count_held();
        held.map_or_else(refused, Standing::Held)
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
        let Losses { aged, crowded_out } = self.held.losses();
        self.lost.aged += aged;
        self.lost.crowded_out += crowded_out;
        let cells = &self.keeper.cells;
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

fn refused(why: FragmentDrop) -> Standing {
    Standing::Refused(match why {
        FragmentDrop::Overlap => DropReason::FragmentOverlap,
        FragmentDrop::Duplicate => DropReason::FragmentDuplicate,
        FragmentDrop::Tiny => DropReason::Malformed(Malformed::TinyFragment),
        FragmentDrop::BadLength => DropReason::FragmentBadLength,
        FragmentDrop::TooMany => DropReason::FragmentTooMany,
        FragmentDrop::NoRoom => DropReason::FragmentNoRoom,
        FragmentDrop::Refused => DropReason::FragmentRefused,
    })
}

//! The connections stage: how each packet of a vector stands to connections, and what was decided for it before.

use super::relate::{self, Relation, Sort, Sought, relation};
use super::{Decision, Flows, Standing};
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use crate::worker::Verdict;
use mmb_classify::prefetch;
use mmb_conn::fragment::{FragmentDrop, FragmentKey, FragmentVerdict, Later};
use mmb_conn::{ConnId, Direction, Tuple};
use mmb_packet::{Class, Layout, Malformed, Packet};

impl Flows {
    /// Finds out how each packet of a vector stands to connections.
    pub(crate) fn relate(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        verdicts: &[Verdict],
        handed: bool,
    ) {
        (self.stale, self.some_settled) = (false, false);
        self.asked.clear();
        self.of.clear();
        let rows = packets.iter().zip(layouts).zip(verdicts).enumerate();
        for (at, ((packet, layout), verdict)) in rows {
            (self.standings[at], self.sought[at]) = (Standing::Apart, None);
            let route = snapshot.route(packet.port);
            if !route.enabled || layout.class == Class::Other || matches!(verdict, Verdict::Drop(_)) {
                continue;
            }
            let wire = Tuple::wire(packet.port, route.peer.map(|(peer, _)| peer));
            match self.seek(packet, layout, wire, snapshot) {
                Ok(None) => {}
                Ok(Some(sought)) => {
                    self.sought[at] = Some(sought);
                    self.asked.push(sought.tuple);
                    // A vector's packets are numbered in a byte.
                    self.of.push(at as u8);
                }
                Err(reason) => {
                    self.standings[at] = Standing::Refused(reason);
                    self.some_settled = true;
                }
            }
        }
        self.found.clear();
        self.found.resize(self.asked.len(), None);
        self.table.find_all(&self.asked, &mut self.found);
        for (&at, &found) in self.of.iter().zip(&self.found) {
            let at = usize::from(at);
            let Some(sought) = &self.sought[at] else { continue };
            self.standings[at] = standing(found, sought);
        }
        if self.keeper.common.owners.workers() > 1 && !handed {
            self.look_elsewhere();
        }
    }

    /// What a packet is to be looked up by, if by anything.
    #[inline]
    fn seek(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        wire: u16,
        snapshot: &Snapshot,
    ) -> Result<Option<Sought>, DropReason> {
        match relation(packet, layout, wire) {
            Relation::None => Ok(None),
            Relation::Sought(sought) => {
                if layout.is_fragment() {
                    self.first_fragment(packet, layout, &sought.tuple)?;
                }
                Ok(Some(sought))
            }
            Relation::Fragment(key) => {
                let FragmentKey { addresses, proto, family, .. } = key;
                let ports = self.later_fragment(packet, layout, key, snapshot)?;
                let tuple = ports.map(|ports| Tuple { addresses, ports, wire, proto, family });
                Ok(tuple.map(|tuple| Sought { tuple, sort: Sort::Fragment, steady: false }))
            }
        }
    }

    /// Finds the plans of packets under a policy that allows of them, and has fetched what they will touch. Returns whether there
    /// are packets that need no classifying ([`Flows::is_settled`]).
    ///
    /// A planned packet's connection cannot end within the vector: half-open ones and those that are over, which may have to make
    /// room, are not planned, nor are packets that may begin anew.
    pub(crate) fn plan(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>]) -> bool {
        self.planned[..packets.len()].fill(0);
        if !snapshot.is_constant() {
            return self.some_settled;
        }
        self.found.iter().flatten().for_each(|(id, _)| self.plans.fetch(*id));
        for &at in &self.of {
            let at = usize::from(at);
            let Standing::Member(id, direction) = self.standings[at] else { continue };
            let state = self.table.get(id).state;
            if state.is_half_open() || state.is_over() || !self.is_steady(at) {
                continue;
            }
            if let Some(plan) = self.plans.of(id, direction) {
                self.planned[at] = plan;
                if let Some(decision) = self.plans.decision(plan) {
                    prefetch(decision);
                }
            }
        }
        let cells = &snapshot.cells[self.keeper.worker];
        for &at in &self.of {
            let at = usize::from(at);
            let Some(decision) = self.plans.decision(self.planned[at]) else { continue };
            let Standing::Member(id, _) = self.standings[at] else { continue };
            if decision.port != packets[at].port || self.table.expires_ms(id, self.keeper.now_ms) == 0 {
                self.planned[at] = 0;
                continue;
            }
            self.some_settled = true;
            self.plans.rules(decision).iter().take(4).for_each(|&slot| prefetch(cells.slot(slot)));
        }
        self.some_settled
    }

    /// Whether a packet needs no classifying: its plan says what it gets, or it is another worker's, or does not pass.
    #[inline]
    pub(crate) fn is_settled(&self, at: usize) -> bool {
        self.planned[at] != 0 || matches!(self.standings[at], Standing::Elsewhere(_) | Standing::Refused(_))
    }

    /// Whether a packet matches what others match that go its way, where rules ask for nothing but ends.
    #[inline]
    pub(crate) fn is_steady(&self, at: usize) -> bool {
        self.sought[at].is_some_and(|sought| sought.steady)
    }

    /// The decision that is planned for a packet.
    #[inline]
    pub(crate) fn planned(&self, at: usize) -> Option<&Decision> {
        match self.planned[at] {
            0 => None,
            plan => self.plans.decision(plan),
        }
    }

    /// Finds out which of the packets that nothing was found for belong to other workers.
    fn look_elsewhere(&mut self) {
        for ((&at, found), tuple) in self.of.iter().zip(&self.found).zip(&self.asked) {
            if found.is_some() {
                continue;
            }
            let owner = self.keeper.common.owners.of(tuple);
            if owner != self.keeper.worker {
                self.standings[usize::from(at)] = Standing::Elsewhere(owner);
                self.some_settled = true;
            }
        }
    }

    /// How a packet stood to connections when the vector was looked up.
    #[inline]
    pub(crate) fn known(&self, at: usize) -> Standing {
        self.standings[at]
    }

    /// How a packet stands to connections now that those before it in the vector were worked on.
    #[inline]
    pub(crate) fn standing(&self, at: usize) -> Standing {
        match (self.known(at), &self.sought[at]) {
            (elsewhere @ Standing::Elsewhere(_), _) => elsewhere,
            (_, Some(sought)) if self.stale => standing(self.table.find(&sought.tuple), sought),
            (known, _) => known,
        }
    }

    /// How a packet stands to connections if its own one is over.
    pub(crate) fn anew(&self, at: usize) -> Standing {
        self.sought[at].map_or(Standing::Apart, |sought| standing(None, &sought))
    }

    /// Remembers the ports of a first fragment.
    fn first_fragment(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        tuple: &Tuple,
    ) -> Result<(), DropReason> {
        let bytes = packet.bytes();
        let key = relate::fragment_key(bytes, layout, tuple);
        let (Some(key), Some((_, len, _))) = (key, relate::fragment_place(bytes, layout)) else {
            return Ok(());
        };
        match self.fragments.first(self.keeper.now_ms, key, tuple.ports, len) {
            FragmentVerdict::Pass => Ok(()),
            FragmentVerdict::Drop(why) => Err(fragment_drop(why)),
        }
    }

    /// The ports of a later fragment; none if there is nothing to follow.
    fn later_fragment(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        key: FragmentKey,
        snapshot: &Snapshot,
    ) -> Result<Option<[u16; 2]>, DropReason> {
        let Some((offset, len, last)) = relate::fragment_place(packet.bytes(), layout) else {
            return Ok(None);
        };
        match self.fragments.later(self.keeper.now_ms, key, offset, len, last) {
            Later::Ports(ports) => Ok(Some(ports)),
            Later::Unknown if snapshot.stateful_rules > 0 => Err(DropReason::FragmentEarly),
            Later::Unknown => Ok(None),
            Later::Drop(why) => Err(fragment_drop(why)),
        }
    }
}

/// How a packet stands to what was found for its tuple.
#[inline]
fn standing(found: Option<(ConnId, Direction)>, sought: &Sought) -> Standing {
    match (sought.sort, found) {
        // Both ends may ask under one identifier: a request is never the answer to one, and an answer begins nothing.
        (Sort::Packet, None) | (Sort::Request, None | Some((_, Direction::Reply))) => {
            Standing::New(sought.tuple)
        }
        (Sort::Answer, Some((_, Direction::Forward))) => Standing::Apart,
        (Sort::Packet | Sort::Request | Sort::Answer, Some((id, direction))) => {
            Standing::Member(id, direction)
        }
        (Sort::Fragment, Some((id, direction))) => Standing::Fragment(id, direction),
        (Sort::Error(quoted), Some((id, direction))) => Standing::Error(id, direction, quoted),
        (Sort::Answer | Sort::Fragment | Sort::Error(_), None) => Standing::Apart,
    }
}

fn fragment_drop(why: FragmentDrop) -> DropReason {
    match why {
        FragmentDrop::Overlap => DropReason::FragmentOverlap,
        FragmentDrop::Duplicate => DropReason::FragmentDuplicate,
        FragmentDrop::Tiny => DropReason::Malformed(Malformed::TinyFragment),
        FragmentDrop::BadLength => DropReason::FragmentBadLength,
        FragmentDrop::TooMany => DropReason::FragmentTooMany,
    }
}

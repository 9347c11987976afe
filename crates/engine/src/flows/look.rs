//! The connections stage: how each packet of a vector stands to connections, and what was decided for it before.

use super::relate::{Place, Relation, Sort, Sought, plain, relation};
use super::{Flows, Standing};
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use crate::worker::{Origin, VECTOR, Verdict};
use mmb_classify::prefetch;
use mmb_conn::{ConnId, Direction, Table, Tuple};
use mmb_packet::{Class, Layout, Packet, PortId};
use mmb_policy::policy::Zone;

/// What the packets of a vector are looked up by, in columns, without those that are not.
#[derive(Debug)]
pub(super) struct Lookups {
    tuples: Vec<Tuple>,
    /// The packets' places in the vector, and what they are.
    of: Vec<(u8, Sort)>,
    /// By the packets' places: the place here, plus one; 0 for none.
    places: Box<[u16; VECTOR]>,
}

impl Lookups {
    pub(super) fn new() -> Lookups {
        Lookups {
            tuples: Vec::with_capacity(VECTOR),
            of: Vec::with_capacity(VECTOR),
            places: Box::new([0; VECTOR]),
        }
    }

    fn clear(&mut self) {
        self.tuples.clear();
        self.of.clear();
        self.places.fill(0);
    }

    #[inline]
    fn push(&mut self, at: usize, Sought { tuple, sort }: Sought) {
        self.tuples.push(tuple);
        // A vector's packets are numbered in a byte.
        self.of.push((at as u8, sort));
        self.places[at] = self.of.len() as u16;
    }

    #[inline]
    fn of_packet(&self, at: usize) -> Option<Sought> {
        let place = usize::from(self.places[at]).checked_sub(1)?;
        Some(Sought { tuple: self.tuples[place], sort: self.of[place].1 })
    }
}

impl Flows {
    /// Finds out how the packets of a vector stand to connections.
    pub(crate) fn relate(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        verdicts: &[Verdict],
        origin: Origin,
    ) {
        (self.stale, self.some_settled) = (false, false);
        self.sought.clear();
        self.refused.clear();
        self.numbered.clear();
        self.standings[..packets.len()].fill(Standing::Apart);
        let zone = snapshot.connections.zone;
        let mut start = 0;
        for run in packets.chunk_by(|a, b| a.port == b.port) {
            let route = snapshot.route(run[0].port);
            let tagged = zone == Zone::Vlan && !route.is_routed();
            let place = Place { wire: route.wire, side: route.side, tagged };
            let ends = if route.enabled { start + run.len() } else { start };
            for at in start..ends {
                let (packet, layout) = (&packets[at], &layouts[at]);
                if layout.class == Class::Other || matches!(verdicts[at], Verdict::Drop(_)) {
                    continue;
                }
                if let Some(sought) = plain(packet, layout, place) {
                    self.sought.push(at, sought);
                    continue;
                }
                match self.seek(packet, layout, place, (snapshot, origin)) {
                    Ok(None) => {}
                    Ok(Some(sought)) => self.sought.push(at, sought),
                    Err(standing) => {
                        self.standings[at] = standing;
                        self.some_settled = true;
                    }
                }
            }
            start += run.len();
        }
        self.found.clear();
        self.found.resize(self.sought.of.len(), None);
        self.table.find_all(&self.sought.tuples, &mut self.found);
        let Lookups { tuples, of, .. } = &self.sought;
        for ((&(at, sort), &found), tuple) in of.iter().zip(&self.found).zip(tuples) {
            let at = usize::from(at);
            self.standings[at] = if tuple.wire.is_routed() {
                standing(&self.table, found, sort, packets[at].port)
            } else {
                of_found(found, sort)
            };
        }
        if !self.keeper.common.owners.owns_all(self.keeper.worker) {
            self.look_elsewhere(packets, layouts, origin);
        }
    }

    /// What a packet that is not plain is to be looked up by, if by anything. An error is how it stands if that is clear already.
    fn seek(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        place: Place,
        (snapshot, origin): (&Snapshot, Origin),
    ) -> Result<Option<Sought>, Standing> {
        match relation(packet, layout, place) {
            Relation::None => Ok(None),
            Relation::Malformed(why) => Err(Standing::Refused(DropReason::Malformed(why))),
            Relation::Sought(sought) => {
                // An error in pieces is about nothing (`errors`): it has no ports to lend.
                if layout.is_fragment() && !matches!(sought.sort, Sort::Error(_)) {
                    self.first_fragment(packet, layout, &sought.tuple, origin)?;
                }
                Ok(Some(sought))
            }
            Relation::Fragment(key) => self.later_fragment(packet, layout, key, (snapshot, origin)),
        }
    }

    /// Finds the plans of packets under a policy that allows of them, and has fetched what they will touch. Returns whether there
    /// are packets that need no classifying ([`Flows::is_settled`]).
    ///
    /// A planned packet's connection lasts when the vector is looked up. Packets before it may still end it: a RST and a SYN behind that,
    /// or a RST and a full table. [`Flows::is_plan_current`] tells when the packet's turn has come.
    pub(crate) fn plan(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>]) -> bool {
        self.planned[..packets.len()].fill(0);
        if !snapshot.is_constant() {
            return self.some_settled;
        }
        self.found.iter().flatten().for_each(|(id, _)| self.plans.fetch(*id));
        for &(at, sort) in &self.sought.of {
            if let Standing::Member(id, direction) = self.standings[usize::from(at)]
                && sort.is_steady()
                && self.table.is_lasting(id, self.keeper.now_ms)
                && let Some(plan) = self.plans.of(id, direction)
            {
                self.planned[usize::from(at)] = plan;
                if let Some(decision) = self.plans.decision(plan) {
                    prefetch(decision);
                }
            }
        }
        let cells = &snapshot.cells[self.keeper.worker];
        for (plan, packet) in self.planned.iter_mut().zip(packets) {
            let Some(decision) = self.plans.decision(*plan) else { continue };
            if decision.port != packet.port {
                *plan = 0;
                continue;
            }
            self.some_settled = true;
            self.plans.rules(*plan).iter().take(4).for_each(|&slot| prefetch(cells.slot(slot)));
        }
        self.some_settled
    }

    /// Asks for what packets need that make connections: where replies will be looked for, and of these rules what they are and
    /// their sets.
    pub(crate) fn fetch_for_new(&self, snapshot: &Snapshot, slots: &[u32]) {
        let sets = &self.keeper.sets;
        for &slot in slots {
            snapshot.fetch_stateful(slot);
            sets.fetch_place(slot);
        }
        for &slot in slots {
            snapshot.stateful(slot).into_iter().for_each(|rule| rule.fetch());
            sets.fetch_set(slot);
        }
        let of_each = self.sought.of.iter().zip(&self.sought.tuples);
        let new = of_each.filter(|((at, _), _)| matches!(self.standings[usize::from(*at)], Standing::New));
        self.table.fetch(new.map(|(_, tuple)| tuple.reversed()));
    }

    /// Whether a packet needs no classifying: its plan says what it gets, or it is another worker's, or does not pass now.
    #[inline]
    pub(crate) fn is_settled(&self, at: usize) -> bool {
        self.planned[at] != 0
            || matches!(self.standings[at], Standing::Elsewhere(_) | Standing::Refused(_) | Standing::Held(_))
    }

    /// Whether a packet matches what others match that go its way, where rules ask for nothing but ends.
    #[inline]
    pub(crate) fn is_steady(&self, at: usize) -> bool {
        let place = usize::from(self.sought.places[at]);
        place > 0 && self.sought.of[place - 1].1.is_steady()
    }

    /// Whether the connection that a packet's plan is about is still there, after what the packets before it in the vector did.
    #[inline]
    pub(crate) fn is_plan_current(
        &self,
        at: usize,
        (id, direction): (ConnId, Direction),
        port: PortId,
    ) -> bool {
        !self.stale
            || (self.plans.of(id, direction) == Some(self.planned[at])
                && matches!(self.standing(at, port), Standing::Member(now, way) if (now, way) == (id, direction)))
    }

    /// The number of a packet's plan; 0 for none.
    #[inline]
    pub(crate) fn planned(&self, at: usize) -> u32 {
        self.planned[at]
    }

    /// Finds out which of the packets that nothing was found for belong to other workers.
    fn look_elsewhere(&mut self, packets: &[Packet<'_>], layouts: &[Layout], origin: Origin) {
        for ((&(at, _), found), tuple) in self.sought.of.iter().zip(&self.found).zip(&self.sought.tuples) {
            let at = usize::from(at);
            // Whoever handed it over knew.
            let is_final = || origin != Origin::Wire && !self.is_at_home(&packets[at], &layouts[at], tuple);
            if found.is_some() || is_final() {
                continue;
            }
            let owner = self.keeper.common.owners.of(tuple);
            if owner != self.keeper.worker {
                self.standings[at] = Standing::Elsewhere(owner);
                self.some_settled = true;
            }
        }
    }

    /// How a packet stood to connections when the vector was looked up.
    #[inline]
    pub(crate) fn known(&self, at: usize) -> Standing {
        self.standings[at]
    }

    /// How a packet that came in by a port stands to connections now that those before it in the vector were worked on.
    #[inline]
    pub(crate) fn standing(&self, at: usize, port: PortId) -> Standing {
        match self.known(at) {
            known @ Standing::Elsewhere(_) => known,
            known if self.stale => match self.sought.of_packet(at) {
                Some(Sought { tuple, sort }) => standing(&self.table, self.table.find(&tuple), sort, port),
                None => known,
            },
            // A packet before it may have come in by the last port that its direction has room for.
            Standing::Member(id, direction)
            | Standing::Fragment(id, direction, _)
            | Standing::Error(id, direction, _)
                if !self.table.get(id).arrivals.admit(direction, port) =>
            {
                Standing::Apart
            }
            known => known,
        }
    }

    /// How a packet stands to connections if its own one is over.
    pub(crate) fn anew(&self, at: usize) -> Standing {
        self.sought.of_packet(at).map_or(Standing::Apart, |Sought { sort, .. }| of_found(None, sort))
    }

    /// The tuple that a packet is looked up by, if it is.
    pub(crate) fn tuple(&self, at: usize) -> Option<Tuple> {
        self.sought.of_packet(at).map(|sought| sought.tuple)
    }
}

/// How a packet that came in by a port stands to what was found for its tuple. Where the host routes, the tuple does not say whether
/// it came from the right side.
#[inline]
fn standing(table: &Table, found: Option<(ConnId, Direction)>, sort: Sort, port: PortId) -> Standing {
    match found {
        Some((id, direction)) if !table.get(id).arrivals.admit(direction, port) => Standing::Apart,
        found => of_found(found, sort),
    }
}

/// How a packet stands to a connection whose packets come in where it did.
#[inline]
fn of_found(found: Option<(ConnId, Direction)>, sort: Sort) -> Standing {
    match (sort, found) {
        (Sort::Steady | Sort::Packet, Some((id, direction))) => Standing::Member(id, direction),
        (Sort::Steady | Sort::Packet, None) => Standing::New,
        // Both ends may ask under one identifier: a request is never the answer to one, and an answer begins nothing.
        (Sort::Request, Some((id, direction @ Direction::Forward)))
        | (Sort::Answer, Some((id, direction @ Direction::Reply))) => Standing::Member(id, direction),
        (Sort::Request, _) => Standing::New,
        (Sort::Fragment(complete), Some((id, direction))) => Standing::Fragment(id, direction, complete),
        (Sort::Error(quoted), Some((id, direction))) => Standing::Error(id, direction, quoted),
        (Sort::Answer | Sort::Fragment(_) | Sort::Error(_), _) => Standing::Apart,
    }
}

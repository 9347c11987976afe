//! The verdict where packets may be of connections: those get their connection's rules too.

use super::ballot::Ballot;
use super::work::{Edits, Rewrite, Turned, Work};
use super::{FEW_RULES, Pipeline};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::flows::{QuotedAt, Standing};
use crate::snapshot::Snapshot;
use crate::worker::Verdict;
use arrayvec::ArrayVec;
use mmb_conn::{CloseReason, ConnId, Direction};
use mmb_packet::Packet;

/// The most stateful rules that one connection has: the first in order.
const MOST_RULES: usize = 64;

impl Pipeline {
    /// [`Pipeline::decide`] where packets may be of connections: those get their connection's rules too. What passes keeps its
    /// connection going, or makes one if it matched stateful rules.
    pub(super) fn decide_by_connection(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        self.work.clear();
        self.fetch_rules(snapshot);
        let slots = if snapshot.stateful_rules < FEW_RULES { &[] } else { self.scratch.all_handles() };
        self.flows.fetch_for_new(snapshot, slots);
        for (at, packet) in packets.iter().enumerate() {
            if self.follow_plan(snapshot, at, packet, verdicts) {
                continue;
            }
            if let Err(verdict) = self.decide_one(snapshot, at, packet, verdicts) {
                verdicts[at] = verdict;
            }
        }
    }

    /// Decides on a packet for which nothing is planned. An error is its verdict.
    fn decide_one(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<(), Verdict> {
        if self.flows.is_refused(at, packet, &self.work.layouts[at]) {
            return Err(Verdict::Drop(DropReason::FragmentRefused));
        }
        let (standing, ends) = match self.flows.standing(at) {
            Standing::Refused(reason) => return Err(Verdict::Drop(reason)),
            Standing::Held(place) => return Err(Verdict::Held(place)),
            Standing::Elsewhere(worker) => {
                self.handed += 1;
                return Err(Verdict::Hand(worker as u16));
            }
            // The packet begins anew: it gets the rules that it matches itself.
            Standing::Member(id, direction)
                if self.flows.reopens(at, (id, direction), packet, &self.work.layouts[at]) =>
            {
                (self.flows.anew(at), Some(id))
            }
            standing => (standing, None),
        };
        self.gather(snapshot, at, standing);
        if self.due.is_empty() && ends.is_none() && matches!(standing, Standing::Apart) {
            return Ok(());
        }
        let drops = self.hear(snapshot, packet).drops();
        if let Standing::Member(id, direction) = standing
            && snapshot.is_constant()
            && self.flows.is_steady(at)
        {
            let edits = self.due.iter().any(|&slot| snapshot.actions.at(slot as usize).edit_number() > 0);
            self.flows.plans.set((id, direction), packet.port, &self.due, drops, edits);
        }
        if drops {
            self.flows.refuse(at, packet, &self.work.layouts[at]);
            return Err(Verdict::Drop(DropReason::Rule));
        }
        if matches!(verdicts[at], Verdict::Drop(_)) {
            return Ok(());
        }
        if let Some(id) = ends {
            self.flows.end(id, CloseReason::Finished);
        }
        if let Err(reason) = self.turn(snapshot, at, standing, packet, verdicts) {
            self.flows.refuse(at, packet, &self.work.layouts[at]);
            return Err(Verdict::Drop(reason));
        }
        let start = self.work.listed.len();
        let numbers = self.due.iter().map(|&slot| snapshot.actions.at(slot as usize).edit_number());
        self.work.listed.extend(numbers.filter(|&number| number > 0));
        self.rewrite_listed(at, start);
        Ok(())
    }

    /// Has a packet rewritten by the edits that are listed from `start` on, if there are any.
    #[inline]
    fn rewrite_listed(&mut self, at: usize, start: usize) {
        let end = self.work.listed.len();
        if end > start {
            // A vector's packets are numbered in a byte.
            let edits = Edits::Listed(start as u32, end as u32);
            self.work.rewrites.push(Rewrite { packet: at as u8, edits });
        }
    }

    /// Does with a packet what was decided for those before it in its connection. False if nothing was.
    #[inline]
    fn follow_plan(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> bool {
        let Some(decision) = self.flows.planned(at) else { return false };
        let cells = &snapshot.cells[self.worker];
        let count = Count { packets: 1, bytes: packet.len() as u64 };
        let (drops, edits) = (decision.drops, decision.edits);
        let start = self.work.listed.len();
        for &slot in self.flows.plans.rules(decision) {
            cells.slot(slot).add(count);
            if edits && !drops {
                self.work.listed.push(snapshot.actions.at(slot as usize).edit_number());
            }
        }
        if drops {
            verdicts[at] = Verdict::Drop(DropReason::Rule);
            return true;
        }
        let Standing::Member(id, direction) = self.flows.known(at) else { return false };
        self.flows.touch(id, direction, packet, &self.work.layouts[at]);
        self.follow(at, (id, direction), None, packet, verdicts);
        self.rewrite_listed(at, start);
        true
    }

    /// Puts the slots of the rules that a packet gets into `due`.
    pub(super) fn gather(&mut self, snapshot: &Snapshot, at: usize, standing: Standing) {
        self.due.clear();
        let matched = self.scratch.handles(at).iter().copied();
        match standing {
            Standing::New => self.due.extend(matched),
            _ => {
                let stateless = |slot: &u32| !snapshot.actions.at(*slot as usize).is_stateful();
                self.due.extend(matched.filter(stateless));
            }
        }
        if let Standing::Member(id, _) | Standing::Fragment(id, _) | Standing::Error(id, ..) = standing {
            self.due.extend_from_slice(self.flows.rules(snapshot, id));
        }
    }

    /// Puts the rules that a packet gets in order, counts them, and hears what they say about dropping it.
    fn hear(&mut self, snapshot: &Snapshot, packet: &Packet<'_>) -> Ballot {
        let cells = &snapshot.cells[self.worker];
        let count = Count { packets: 1, bytes: packet.len() as u64 };
        let action = |slot: u32| snapshot.actions.at(slot as usize);
        if self.due.len() > 1 {
            self.due.sort_unstable_by_key(|&slot| action(slot).rank());
        }
        let mut ballot = Ballot::default();
        for &slot in &self.due {
            cells.slot(slot).add(count);
            ballot.cast(action(slot), || Some(self.random.draw()));
        }
        ballot
    }

    /// Keeps a packet's connection going, and notes what it does to the packet; a packet that matched stateful rules and has no
    /// connection makes one.
    fn turn(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        standing: Standing,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<(), DropReason> {
        let Pipeline { flows, work: Work { layouts, .. }, due, .. } = self;
        let layout = &layouts[at];
        let mut quoted = None;
        let member = match standing {
            Standing::Apart | Standing::Elsewhere(_) | Standing::Refused(_) | Standing::Held(_) => {
                return Ok(());
            }
            Standing::Member(id, direction) => {
                flows.touch(id, direction, packet, layout);
                (id, direction)
            }
            Standing::Fragment(id, direction) => {
                flows.touch_fragment(id, direction, packet);
                (id, direction)
            }
            Standing::Error(id, direction, place) => {
                quoted = Some(place);
                (id, direction)
            }
            Standing::New => {
                let Some(arrived) = flows.tuple(at) else { return Ok(()) };
                let stateful = |slot: &u32| snapshot.actions.at(*slot as usize).is_stateful();
                let slots: ArrayVec<u32, MOST_RULES> =
                    due.iter().copied().filter(stateful).take(MOST_RULES).collect();
                if !slots.is_empty() {
                    flows.open(snapshot, arrived, &slots, packet, layout)?
                } else if let Some(admitted) = flows.admit(snapshot, arrived, packet, layout)? {
                    admitted
                } else {
                    return Ok(());
                }
            }
        };
        self.follow(at, member, quoted, packet, verdicts);
        Ok(())
    }

    /// Notes what a connection does to a packet of one direction.
    #[inline]
    fn follow(
        &mut self,
        at: usize,
        (id, direction): (ConnId, Direction),
        quoted: Option<QuotedAt>,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) {
        let Some(turn) = self.flows.turn(id, direction) else { return };
        if turn.hairpin.is_some() {
            verdicts[at] = Verdict::Send(packet.port);
        }
        // A vector's packets are numbered in a byte.
        self.work.turned.push(Turned { packet: at as u8, turn, quoted });
    }
}

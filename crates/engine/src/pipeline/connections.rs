//! The verdict where packets may be of connections: those get their connection's rules too.

use super::ballot::Ballot;
use super::{Edits, Pipeline, Rewrite, Turned};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::flows::Standing;
use crate::snapshot::Snapshot;
use crate::worker::Verdict;
use arrayvec::ArrayVec;
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
        self.rewrites.clear();
        self.listed.clear();
        self.turned.clear();
        self.fetch_rules(snapshot);
        for (at, packet) in packets.iter().enumerate() {
            if self.follow_plan(snapshot, at, packet, verdicts) {
                continue;
            }
            let mut standing = self.flows.standing(at, packet, &self.layouts[at]);
            match standing {
                Standing::Refused(reason) => {
                    verdicts[at] = Verdict::Drop(reason);
                    continue;
                }
                Standing::Elsewhere(worker) => {
                    verdicts[at] = Verdict::Hand(worker as u16);
                    self.handed += 1;
                    continue;
                }
                _ => {}
            }
            self.gather(snapshot, at, standing);
            if self.due.is_empty() && matches!(standing, Standing::Apart) {
                continue;
            }
            let drops = self.hear(snapshot, packet, true).drops();
            if let Standing::Member(id, direction) = standing
                && snapshot.is_constant()
                && !self.layouts[at].is_fragment()
            {
                let edits = self.due.iter().any(|&slot| snapshot.actions.at(slot as usize).edit_number() > 0);
                self.flows.plans.set((id, direction), packet.port, &self.due, drops, edits);
            }
            if drops {
                verdicts[at] = Verdict::Drop(DropReason::Rule);
                continue;
            }
            if matches!(verdicts[at], Verdict::Drop(_)) {
                continue;
            }
            if let Standing::Member(id, direction) = standing
                && !self.flows.touch(id, direction, packet, &self.layouts[at])
            {
                // The packet begins anew: it gets the rules that it matches itself.
                standing = Standing::New;
                self.gather(snapshot, at, standing);
                if self.hear(snapshot, packet, false).drops() {
                    verdicts[at] = Verdict::Drop(DropReason::Rule);
                    continue;
                }
            }
            if let Err(reason) = self.turn(snapshot, at, standing, packet, verdicts) {
                verdicts[at] = Verdict::Drop(reason);
                continue;
            }
            let start = self.listed.len() as u32;
            let numbers = self.due.iter().map(|&slot| snapshot.actions.at(slot as usize).edit_number());
            self.listed.extend(numbers.filter(|&number| number > 0));
            let end = self.listed.len() as u32;
            if end > start {
                // A vector's packets are numbered in a byte.
                self.rewrites.push(Rewrite { packet: at as u8, edits: Edits::Listed(start, end) });
            }
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
        let start = self.listed.len() as u32;
        for &slot in self.flows.plans.rules(decision) {
            cells.slot(slot).add(count);
            if edits {
                self.listed.push(snapshot.actions.at(slot as usize).edit_number());
            }
        }
        if drops {
            verdicts[at] = Verdict::Drop(DropReason::Rule);
            return true;
        }
        let Standing::Member(id, direction) = self.flows.known(at) else { return false };
        self.flows.touch(id, direction, packet, &self.layouts[at]);
        let turn = self.flows.turn(id, direction);
        if turn.hairpin.is_some() {
            verdicts[at] = Verdict::Send(packet.port);
        }
        // A vector's packets are numbered in a byte.
        if !turn.translation.is_none() || turn.hairpin.is_some() {
            self.turned.push(Turned { packet: at as u8, turn, quoted: None });
        }
        if edits {
            let end = self.listed.len() as u32;
            self.rewrites.push(Rewrite { packet: at as u8, edits: Edits::Listed(start, end) });
        }
        true
    }

    /// Puts the slots of the rules that a packet gets into `due`.
    fn gather(&mut self, snapshot: &Snapshot, at: usize, standing: Standing) {
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

    /// Puts the rules that a packet gets in order, hears what they say about dropping it, and counts them if they are to count.
    fn hear(&mut self, snapshot: &Snapshot, packet: &Packet<'_>, counts: bool) -> Ballot {
        let cells = &snapshot.cells[self.worker];
        let count = Count { packets: 1, bytes: packet.len() as u64 };
        let action = |slot: u32| snapshot.actions.at(slot as usize);
        if self.due.len() > 1 {
            self.due.sort_unstable_by_key(|&slot| action(slot).rank());
        }
        let mut ballot = Ballot::default();
        for &slot in &self.due {
            if counts {
                cells.slot(slot).add(count);
            }
            ballot.cast(action(slot), || Some(self.random.draw()));
        }
        ballot
    }

    /// Notes what a packet's connection does to it; a packet that matched stateful rules and has no connection makes one.
    fn turn(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        standing: Standing,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<(), DropReason> {
        let Pipeline { flows, layouts, due, .. } = self;
        let layout = &layouts[at];
        let (id, direction, quoted) = match standing {
            Standing::Apart | Standing::Elsewhere(_) | Standing::Refused(_) => return Ok(()),
            Standing::Member(id, direction) => (id, direction, None),
            Standing::Error(id, direction, quoted) => (id, direction, Some(quoted)),
            Standing::Fragment(id, direction) => {
                flows.touch_fragment(id, direction, packet);
                (id, direction, None)
            }
            Standing::New => {
                let stateful = |slot: &u32| snapshot.actions.at(*slot as usize).is_stateful();
                let slots: ArrayVec<u32, MOST_RULES> =
                    due.iter().copied().filter(stateful).take(MOST_RULES).collect();
                let (id, direction) = if slots.is_empty() {
                    let Some(admitted) = flows.admit(snapshot, at, packet, layout) else { return Ok(()) };
                    admitted
                } else {
                    flows.open(snapshot, at, &slots, packet, layout)?
                };
                (id, direction, None)
            }
        };
        let turn = flows.turn(id, direction);
        if turn.hairpin.is_some() {
            verdicts[at] = Verdict::Send(packet.port);
        }
        if !turn.translation.is_none() || turn.hairpin.is_some() {
            self.turned.push(Turned { packet: at as u8, turn, quoted });
        }
        Ok(())
    }
}

//! The verdict where packets may be of connections: those get their connection's rules too.

use super::ballot::Ballot;
use super::work::{Edits, Rewrite, Turned, Work};
use super::{FEW_RULES, Pipeline};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::flows::{Decision, Ends, Judgement, QuotedAt, Standing, is_link_scope};
use crate::snapshot::Snapshot;
use crate::worker::Verdict;
use arrayvec::ArrayVec;
use mmb_conn::{CloseReason, ConnId, Direction, Invalid};
use mmb_packet::Packet;
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_policy::CtState;
use mmb_policy::policy::Pickup;

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
        let judgement = self.judge(snapshot, at, packet)?;
        let Judgement { standing, ends, invalid } = self.see_judged(snapshot, at, judgement, packet);
        let is_unsolicited = matches!(standing, Standing::Apart) && self.is_mapped(snapshot, at, packet);
        if self.due.is_empty() && ends.is_none() && !is_unsolicited && matches!(standing, Standing::Apart) {
            return Ok(());
        }
        let plans = self.member_to_plan(snapshot, at, (standing, invalid));
        let drops = self.hear(snapshot, packet).drops();
        if drops {
            plans.into_iter().for_each(|member| self.plan(snapshot, at, member, packet, drops));
            if let Some(kind) = invalid {
                self.flows.count_invalid(kind);
            }
            if let Some((id, CloseReason::Evicted)) = ends {
                self.flows.end(id, CloseReason::Evicted);
            }
            return Err(self.refuse(at, packet, DropReason::Rule));
        }
        if matches!(verdicts[at], Verdict::Drop(_)) {
            return Ok(());
        }
        if is_unsolicited {
            return Err(self.refuse(at, packet, DropReason::NatUnsolicited));
        }
        let ends = self.flows.end_if_up(ends);
        let turned = self.turn(snapshot, at, (standing, ends), packet, verdicts);
        let is_believed = turned.map_err(|reason| self.refuse(at, packet, reason))?;
        plans
            .filter(|_| is_believed)
            .into_iter()
            .for_each(|member| self.plan(snapshot, at, member, packet, drops));
        self.rewrite_due(snapshot, at);
        Ok(())
    }

    /// How a packet stands to connections. An error is its verdict, if that is clear whatever the rules say.
    fn judge(&mut self, snapshot: &Snapshot, at: usize, packet: &Packet<'_>) -> Result<Judgement, Verdict> {
        let early = self.is_judged_early(snapshot);
        let layout = &self.work.layouts[at];
        if self.flows.is_refused(at, packet, layout) {
            return Err(Verdict::Drop(DropReason::FragmentRefused));
        }
        let judgement = self.flows.judge(at, packet, layout, early);
        match judgement.standing {
            Standing::Refused(reason) => return Err(Verdict::Drop(reason)),
            Standing::Held(place) => return Err(Verdict::Held(place)),
            Standing::Elsewhere(worker) => {
                self.handed += 1;
                return Err(Verdict::Hand(worker as u16));
            }
            Standing::Error(id, direction, quoted)
                if !self.flows.is_related(at, (id, direction), quoted, packet, layout) =>
            {
                return Err(Verdict::Drop(DropReason::IcmpUnrelated));
            }
            Standing::Apart
            | Standing::New
            | Standing::Invalid(_)
            | Standing::Member(..)
            | Standing::Fragment(..)
            | Standing::Error(..) => {}
        }
        match judgement.invalid {
            Some(kind) if self.flows.drops_invalid() => {
                self.flows.count_invalid(kind);
                Err(self.refuse(at, packet, DropReason::ConnInvalid))
            }
            _ => Ok(judgement),
        }
    }

    /// Finds out which rules a packet gets that was judged, and with these, how it stands to connections at last.
    fn see_judged(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        mut judgement: Judgement,
        packet: &Packet<'_>,
    ) -> Judgement {
        if let Judgement { standing: Standing::Member(id, Direction::Forward), invalid: None, .. } = judgement
            && self.flows.is_repeated_syn(id, packet, &self.work.layouts[at])
            && self.begins_otherwise(snapshot, at, id)
        {
            // Its connection was made under rules that are not in force any more, and nobody answered.
            (judgement.standing, judgement.ends) = (Standing::New, Some((id, CloseReason::Evicted)));
        }
        self.see(snapshot, at, (judgement.standing, judgement.invalid), packet);
        if matches!(judgement.standing, Standing::New)
            && self.due.iter().any(|&slot| snapshot.actions.at(slot as usize).is_stateful())
            && transport_soundness(packet.bytes(), &self.work.layouts[at]) == Soundness::Wrong
        {
            judgement.standing = self.flows.disbelieve(at, Invalid::BadChecksum);
            self.see(snapshot, at, (judgement.standing, judgement.invalid), packet);
        }
        judgement
    }

    /// The verdict of a packet that does not pass.
    fn refuse(&mut self, at: usize, packet: &Packet<'_>, reason: DropReason) -> Verdict {
        self.flows.refuse(at, packet, &self.work.layouts[at]);
        Verdict::Drop(reason)
    }

    /// The connection and direction of a packet if others that go its way are decided on likewise.
    fn member_to_plan(
        &self,
        snapshot: &Snapshot,
        at: usize,
        (standing, invalid): (Standing, Option<Invalid>),
    ) -> Option<(ConnId, Direction)> {
        let Standing::Member(id, direction) = standing else { return None };
        let is_alike = snapshot.is_constant()
            && self.flows.is_steady(at)
            && invalid.is_none()
            && (snapshot.ct_rules == 0 || self.flows.is_lasting(id));
        is_alike.then_some((id, direction))
    }

    /// Remembers what was decided for a packet, for those that go its way.
    fn plan(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        member: (ConnId, Direction),
        packet: &Packet<'_>,
        drops: bool,
    ) {
        let candidates = if snapshot.ct_rules > 0 { self.scratch.handles(at) } else { &[] };
        let edits = self.due.iter().any(|&slot| snapshot.actions.at(slot as usize).edit_number() > 0);
        self.flows.plans.set(member, packet.port, (&self.due, candidates), drops, edits);
    }

    /// Whether it matters before the rules that a connection does not believe a packet.
    #[inline]
    fn is_judged_early(&self, snapshot: &Snapshot) -> bool {
        self.flows.drops_invalid() || snapshot.ct_rules > 0
    }

    /// Whether the first packet of a connection would make it by other stateful rules now than when it was made.
    fn begins_otherwise(&mut self, snapshot: &Snapshot, at: usize, id: ConnId) -> bool {
        let action = |slot: u32| snapshot.actions.at(slot as usize);
        let makes = |slot: &u32| action(*slot).is_stateful() && action(*slot).wants(CtState::New);
        self.due.clear();
        self.due.extend(self.scratch.handles(at).iter().copied().filter(makes));
        self.due.sort_unstable_by_key(|&slot| action(slot).rank());
        !self.flows.is_made_by(snapshot, id, self.due.iter().copied().take(MOST_RULES))
    }

    /// Finds out how rules see a packet, and which of those that it matched it gets.
    fn see(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        (standing, invalid): (Standing, Option<Invalid>),
        packet: &Packet<'_>,
    ) {
        let state = match snapshot.ct_rules {
            0 => CtState::Untracked,
            _ => self.flows.ct_state(at, (standing, invalid), packet, &self.work.layouts[at]),
        };
        self.gather(snapshot, at, standing, state);
    }

    /// Has a packet rewritten by the rules that it gets.
    fn rewrite_due(&mut self, snapshot: &Snapshot, at: usize) {
        let start = self.work.listed.len();
        let numbers = self.due.iter().map(|&slot| snapshot.actions.at(slot as usize).edit_number());
        self.work.listed.extend(numbers.filter(|&number| number > 0));
        self.rewrite_listed(at, start);
    }

    /// Whether a packet matched a stateful rule that maps. If it is of no connection and makes none, it must not leave: it would show
    /// what the rule hides. Messages that no router passes on are for the link, which has the same addresses on both sides.
    fn is_mapped(&self, snapshot: &Snapshot, at: usize, packet: &Packet<'_>) -> bool {
        // Only slots that were given to stateful rules have a place among these.
        let maps = |slot: &u32| {
            snapshot.actions.at(*slot as usize).is_stateful()
                && snapshot.stateful(*slot).is_some_and(|rule| rule.maps)
        };
        self.scratch.handles(at).iter().any(maps) && !is_link_scope(packet.bytes(), &self.work.layouts[at])
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
        let plan = self.flows.planned(at);
        let Some(&Decision { drops, edits, .. }) = self.flows.plans.decision(plan) else { return false };
        let Standing::Member(id, direction) = self.flows.known(at) else { return false };
        if !self.flows.is_plan_current(at, (id, direction), packet.port) {
            // Its connection ended behind a packet of this vector, and nobody classified this one: it is a straggler.
            verdicts[at] = Verdict::Drop(DropReason::ConnInvalid);
            return true;
        }
        let layout = &self.work.layouts[at];
        let believed = match drops {
            false => self.flows.touch(id, direction, packet, layout),
            true if self.is_judged_early(snapshot) => self.flows.believe((id, direction), packet, layout),
            true => Ok(()),
        };
        if believed.is_err() {
            if self.flows.drops_invalid() {
                verdicts[at] = Verdict::Drop(DropReason::ConnInvalid);
                return true;
            }
            if snapshot.ct_rules > 0 {
                self.decide_invalid(snapshot, at, (id, direction), packet, verdicts);
                return true;
            }
            self.flows.pass_invalid((id, direction), packet);
        }
        let cells = &snapshot.cells[self.worker];
        let count = Count { packets: 1, bytes: packet.len() as u64 };
        let start = self.work.listed.len();
        for &slot in self.flows.plans.rules(plan) {
            cells.slot(slot).add(count);
            if edits && !drops {
                self.work.listed.push(snapshot.actions.at(slot as usize).edit_number());
            }
        }
        if drops {
            verdicts[at] = Verdict::Drop(DropReason::Rule);
            return true;
        }
        if self.flows.turns(id) {
            self.follow(at, (id, direction), None, packet, verdicts);
        }
        self.rewrite_listed(at, start);
        true
    }

    /// Decides on a packet that its connection does not believe, of the rules that all packets match which go its way.
    #[cold]
    fn decide_invalid(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        (id, direction): (ConnId, Direction),
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) {
        let action = |slot: u32| snapshot.actions.at(slot as usize);
        let gets = |slot: &u32| !action(*slot).is_stateful() && action(*slot).wants(CtState::Invalid);
        self.due.clear();
        self.due.extend(self.flows.plans.candidates(self.flows.planned(at)).iter().copied().filter(gets));
        self.due.extend_from_slice(self.flows.rules(snapshot, id));
        if self.hear(snapshot, packet).drops() {
            verdicts[at] = Verdict::Drop(DropReason::Rule);
            return;
        }
        self.flows.pass_invalid((id, direction), packet);
        if self.flows.turns(id) {
            self.follow(at, (id, direction), None, packet, verdicts);
        }
        self.rewrite_due(snapshot, at);
    }

    /// Puts the slots of the rules that a packet gets into `due`.
    pub(super) fn gather(&mut self, snapshot: &Snapshot, at: usize, standing: Standing, state: CtState) {
        self.due.clear();
        let action = |slot: u32| snapshot.actions.at(slot as usize);
        let matched = self.scratch.handles(at).iter().copied().filter(|&slot| action(slot).wants(state));
        match standing {
            Standing::New => self.due.extend(matched),
            _ => self.due.extend(matched.filter(|&slot| !action(slot).is_stateful())),
        }
        if let Standing::Member(id, _) | Standing::Fragment(id, ..) | Standing::Error(id, ..) = standing {
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
    /// connection makes one. Returns whether it is a packet of a connection that believes it.
    fn turn(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        (standing, ends): (Standing, Ends),
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<bool, DropReason> {
        let Pipeline { flows, work: Work { layouts, .. }, .. } = self;
        let (mut quoted, mut is_believed) = (None, false);
        let member = match standing {
            Standing::Invalid(kind) => {
                self.refuse_beginning(snapshot, at, kind)?;
                return Ok(false);
            }
            Standing::Apart | Standing::Elsewhere(_) | Standing::Refused(_) | Standing::Held(_) => {
                return Ok(false);
            }
            Standing::Member(id, direction) => {
                is_believed = flows.touch(id, direction, packet, &layouts[at]).is_ok();
                match is_believed {
                    true => flows.note_believed(at, packet, &layouts[at]),
                    // What is invalid and does not pass was dropped before.
                    false => flows.pass_invalid((id, direction), packet),
                }
                (id, direction)
            }
            Standing::Fragment(id, direction, complete) => {
                flows.touch_fragment((id, direction), (at, complete), packet, &layouts[at]);
                (id, direction)
            }
            Standing::Error(id, direction, place) => {
                quoted = Some(place);
                (id, direction)
            }
            Standing::New => match self.begin(snapshot, at, ends, packet)? {
                Some(member) => {
                    self.flows.note_believed(at, packet, &self.work.layouts[at]);
                    member
                }
                None => return Ok(false),
            },
        };
        if self.flows.turns(member.0) {
            self.follow(at, member, quoted, packet, verdicts);
        }
        Ok(is_believed)
    }

    /// Makes a connection of a packet that has none, if rules or an outside end of ours ask for one.
    fn begin(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        ends: Ends,
        packet: &Packet<'_>,
    ) -> Result<Option<(ConnId, Direction)>, DropReason> {
        let Pipeline { flows, work: Work { layouts, .. }, due, .. } = self;
        let Some(arrived) = flows.tuple(at) else { return Ok(None) };
        let stateful = |slot: &u32| snapshot.actions.at(*slot as usize).is_stateful();
        let slots: ArrayVec<u32, MOST_RULES> =
            due.iter().copied().filter(stateful).take(MOST_RULES).collect();
        if !slots.is_empty() {
            return flows.open(snapshot, (arrived, ends), &slots, packet, &layouts[at]).map(Some);
        }
        let admitted = flows.admit(snapshot, (arrived, ends), packet, &layouts[at])?;
        if let (None, Some((id, CloseReason::Evicted))) = (admitted, ends) {
            // The rules that made it are gone, and nobody answered.
            flows.end(id, CloseReason::Evicted);
        }
        Ok(admitted)
    }

    /// What becomes of a packet that can make no connection. One that a rule would map does not leave with an address that it should
    /// not have, and one for an inside end does not go to the outside one.
    fn refuse_beginning(&self, snapshot: &Snapshot, at: usize, kind: Invalid) -> Result<(), DropReason> {
        let handles = self.scratch.handles(at).iter();
        let mut stateful =
            handles.copied().filter(|&slot| snapshot.actions.at(slot as usize).is_stateful()).peekable();
        let is_asked_for = stateful.peek().is_some();
        let maps = stateful.any(|slot| snapshot.stateful(slot).is_some_and(|rule| rule.maps))
            || self.flows.tuple(at).is_some_and(|arrived| self.flows.is_admitted(arrived));
        if !is_asked_for && !maps {
            return Ok(());
        }
        let strict = snapshot.connections.pickup == Pickup::Strict;
        self.flows.refuse_beginning(kind, maps, strict)
    }

    /// Notes what a connection that [changes](crate::flows::Flows::turns) its packets does to one of a direction.
    fn follow(
        &mut self,
        at: usize,
        (id, direction): (ConnId, Direction),
        quoted: Option<QuotedAt>,
        packet: &Packet<'_>,
        verdicts: &mut [Verdict],
    ) {
        let turn = self.flows.turn(id, direction);
        if turn.hairpin.is_some() {
            verdicts[at] = Verdict::Send(packet.port);
        }
        // A vector's packets are numbered in a byte.
        self.work.turned.push(Turned { packet: at as u8, turn, quoted });
    }
}

//! The flows of a worker that its host forwards by itself: which place each has, and what has been collected of its counts.
//!
//! A flow that is *prepared* has a place and is not installed: one direction of a TCP connection waits there for the other one, and all flows do
//! after a change of the policy, until a packet shows their new verdict. The place of a flow that has ended rests for [`REST_MS`], since packets
//! that took it may still be counted.

use super::cache::VerdictId;
use crate::counters::Count;
use crate::offload::{EndNumbers, FlowKey, FlowOffload, OffloadedFlow};
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, Direction};
use mmb_packet::PortId;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

/// How long a place is not given to another flow.
const REST_MS: u64 = 50;

/// Connections whose last refusal is remembered, and for how long.
const REFUSALS: usize = 1024;
const REFUSED_MS: u64 = 1000;

/// Flows without a connection that are watched for being worth a place: buckets of two.
const WATCHED: usize = 8192;
/// The packet of such a flow with which it is offered.
const WORTH: u32 = 4;

/// Whose flow it is.
#[derive(Clone, Debug)]
pub(crate) enum FlowOwner {
    /// One direction of a connection, whose packets match the rules of this cached verdict.
    Connection(ConnId, Direction, VerdictId),
    /// None: packets match these rules.
    Rules(Box<[RuleSlot]>),
}

/// A flow in its place.
#[derive(Clone, Debug)]
pub(crate) struct PlacedFlow {
    pub(crate) flow: OffloadedFlow,
    pub(crate) owner: FlowOwner,
    /// The rule that drops its packets.
    pub(crate) dropped_by: Option<RuleSlot>,
    is_installed: bool,
    /// No packet takes it any more.
    is_stopped: bool,
    /// What the host had counted in its place when it was collected last.
    seen: Count,
    /// When it was collected last that it had packets.
    pub(crate) used_ms: u64,
}

/// What has passed of a flow since it was collected last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collected {
    pub(crate) count: Count,
    pub(crate) idle_ms: u64,
    pub(crate) numbers: EndNumbers,
}

/// The place of a flow that has ended.
#[derive(Clone, Copy, Debug)]
struct RestingPlace {
    place: u32,
    until_ms: u64,
    from: PortId,
    to: Option<PortId>,
    seen: Count,
}

/// Packets of a flow that were counted after its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateCount {
    pub(crate) from: PortId,
    pub(crate) to: Option<PortId>,
    pub(crate) count: Count,
}

/// The flows of a worker.
#[derive(Default)]
pub(crate) struct OffloadedFlows {
    host: Option<Box<dyn FlowOffload>>,
    /// The epoch of the policy in use; 0 if it offloads nothing.
    epoch: u32,
    places: Vec<Option<PlacedFlow>>,
    free: Vec<u32>,
    resting: VecDeque<RestingPlace>,
    /// What was counted for flows of an earlier policy after the last look at them.
    late: Vec<LateCount>,
    connections: HashMap<(ConnId, Direction), u32>,
    others: HashMap<FlowKey, u32>,
    installed: usize,
    /// Where the next walk over the places begins, and when.
    next: usize,
    pub(crate) next_ms: u64,
    refused: Vec<(Option<ConnId>, u64)>,
    watched: Vec<[(u32, u32); 2]>,
    /// Hashes the keys of watched flows.
    hasher: RandomState,
}

impl OffloadedFlows {
    /// Gives flows to a host from now on.
    pub(crate) fn set_host(&mut self, host: Box<dyn FlowOffload>) {
        let capacity = host.capacity() as usize;
        self.connections.reserve(capacity);
        self.others.reserve(capacity);
        self.refused = vec![(None, 0); REFUSALS];
        self.watched = vec![[(0, 0); 2]; WATCHED];
        self.places.reserve(capacity);
        self.free.reserve(capacity);
        self.resting.reserve(capacity);
        self.host = Some(host);
    }

    /// Whether flows are offloaded under the policy in use.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.epoch != 0
    }

    /// Whether there are flows in places.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.others.is_empty() && self.resting.is_empty()
    }

    /// Begins an epoch, or none with 0. No flow is installed then. What the flows have counted must have been collected.
    pub(crate) fn begin_epoch(&mut self, epoch: u32) {
        if self.host.is_none() {
            return;
        }
        self.epoch = epoch;
        for placed in self.places.iter_mut().flatten() {
            placed.is_installed = false;
        }
        self.installed = 0;
        self.refused.fill((None, 0));
        self.watched.fill([(0, 0); 2]);
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The number of installed flows, and of places.
    pub(crate) fn sizes(&self) -> (usize, u32) {
        (self.installed, self.host.as_ref().map_or(0, |host| host.capacity()))
    }

    /// Whether few places are free.
    pub(crate) fn is_crowded(&self) -> bool {
        let (_, capacity) = self.sizes();
        let unused = capacity as usize - self.places.len();
        unused + self.free.len() + self.resting.len() < capacity as usize / 16
    }

    /// Whether packets may pass from a port to another without a worker.
    pub(crate) fn joins(&self, from: PortId, to: Option<PortId>) -> bool {
        self.host.as_ref().is_some_and(|host| host.joins(from, to))
    }

    /// Whether a flow of a connection was refused a moment ago.
    #[inline]
    pub(crate) fn was_refused(&self, id: ConnId, now_ms: u64) -> bool {
        let (refused, at_ms) = self.refused[id.index() % REFUSALS];
        refused == Some(id) && now_ms < at_ms + REFUSED_MS
    }

    pub(crate) fn refuse(&mut self, id: ConnId, now_ms: u64) {
        self.refused[id.index() % REFUSALS] = (Some(id), now_ms);
    }

    /// Counts a packet of a flow without a connection. True if the flow is worth a place: with its fourth packet, and if it was refused, with
    /// each that doubles its number. A flow that finds both entries of its bucket taken wears down the smaller one: a flood of flows with a packet
    /// each keeps none from being seen that sends more than they do together there.
    #[inline]
    pub(crate) fn is_worth(&mut self, key: &FlowKey) -> bool {
        let hash = self.hasher.hash_one(key);
        let (bucket, tag) = (&mut self.watched[hash as usize % WATCHED], (hash >> 32) as u32 | 1);
        if let Some((_, count)) = bucket.iter_mut().find(|(of, _)| *of == tag) {
            *count = count.saturating_add(1);
            return *count >= WORTH && count.is_power_of_two();
        }
        let [first, second] = bucket;
        let smaller = if first.1 <= second.1 { first } else { second };
        if smaller.1 <= 1 {
            *smaller = (tag, 1);
        } else {
            smaller.1 -= 1;
        }
        false
    }

    /// The place of a direction of a connection.
    pub(crate) fn of_connection(&self, id: ConnId, direction: Direction) -> Option<u32> {
        self.connections.get(&(id, direction)).copied()
    }

    /// The place of the flow with a key that has no connection.
    pub(crate) fn of_key(&self, key: &FlowKey) -> Option<u32> {
        self.others.get(key).copied()
    }

    pub(crate) fn get(&self, place: u32) -> Option<&PlacedFlow> {
        self.places.get(place as usize)?.as_ref()
    }

    /// Whether the flow in a place is prepared under the policy in use, or installed.
    pub(crate) fn is_prepared(&self, place: u32) -> bool {
        self.get(place).is_some_and(|placed| placed.flow.epoch == self.epoch)
    }

    /// Prepares a flow: in its place, or in a new one. `None` if all places are taken. A flow of the same owner with another key must have been
    /// ended.
    pub(crate) fn prepare(
        &mut self,
        flow: OffloadedFlow,
        owner: FlowOwner,
        dropped_by: Option<RuleSlot>,
        now_ms: u64,
    ) -> Option<u32> {
        let before = match &owner {
            FlowOwner::Connection(id, direction, _) => self.of_connection(*id, *direction),
            FlowOwner::Rules(_) => self.of_key(&flow.key),
        };
        let place = match before {
            Some(place) => place,
            None => self.take_place()?,
        };
        match &owner {
            FlowOwner::Connection(id, direction, _) => self.connections.insert((*id, *direction), place),
            FlowOwner::Rules(_) => self.others.insert(flow.key, place),
        };
        // The host's counts are still those of the flow that was installed there last.
        let seen = self.host.as_ref()?.usage(place).count;
        if let Some(former) = &self.places[place as usize] {
            let count = seen - former.seen;
            if count.packets > 0 {
                self.late.push(LateCount { from: former.flow.key.port, to: former.flow.to, count });
            }
        }
        let placed = PlacedFlow {
            flow,
            owner,
            dropped_by,
            is_installed: false,
            is_stopped: false,
            seen,
            used_ms: now_ms,
        };
        self.places[place as usize] = Some(placed);
        Some(place)
    }

    fn take_place(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let (_, capacity) = self.sizes();
        let place = u32::try_from(self.places.len()).ok().filter(|place| *place < capacity)?;
        self.places.push(None);
        Some(place)
    }

    /// Installs a prepared flow, of TCP with these numbers and the place of the other direction, to be enabled. Returns whether it is installed.
    pub(crate) fn install(&mut self, place: u32, tcp: Option<(EndNumbers, u32)>) -> bool {
        let (Some(host), Some(Some(placed))) = (&mut self.host, self.places.get_mut(place as usize)) else {
            return false;
        };
        placed.flow.tcp = tcp;
        if !host.install(place, &placed.flow) {
            placed.seen = host.usage(place).count;
            return false;
        }
        self.installed += usize::from(!placed.is_installed);
        placed.is_installed = true;
        placed.is_stopped = false;
        placed.seen = Count::default();
        true
    }

    /// Has packets take an installed flow.
    pub(crate) fn enable(&mut self, place: u32) {
        self.host.iter_mut().for_each(|host| host.enable(place));
    }

    /// Collects what has passed of an installed flow.
    pub(crate) fn collect(&mut self, place: u32, now_ms: u64) -> Option<Collected> {
        let host = self.host.as_ref()?;
        let placed = self.places.get_mut(place as usize)?.as_mut().filter(|placed| placed.is_installed)?;
        let usage = host.usage(place);
        let count = usage.count - std::mem::replace(&mut placed.seen, usage.count);
        if count.packets == 0 {
            return None;
        }
        placed.used_ms = now_ms.saturating_sub(usage.idle_ms);
        Some(Collected { count, idle_ms: usage.idle_ms, numbers: usage.numbers })
    }

    /// Tells an installed flow of TCP how far its sender has come.
    pub(crate) fn follow(&mut self, place: u32, numbers: EndNumbers) {
        if let Some(host) = &mut self.host
            && self.places.get(place as usize).is_some_and(|placed| {
                placed.as_ref().is_some_and(|placed| placed.is_installed && placed.flow.tcp.is_some())
            })
        {
            host.follow(place, numbers);
        }
    }

    /// Has no packet take the flow in a place from now on: its last packets can be collected.
    pub(crate) fn stop(&mut self, place: u32) {
        if let Some(host) = &mut self.host
            && let Some(placed) = self.places.get_mut(place as usize).and_then(Option::as_mut)
            && !std::mem::replace(&mut placed.is_stopped, true)
        {
            // One that is not installed may be there from an epoch before.
            host.end(place);
        }
    }

    /// Ends the flow in a place. What it has counted must have been collected, after [`OffloadedFlows::stop`].
    pub(crate) fn end(&mut self, place: u32, now_ms: u64) {
        self.stop(place);
        let Some(placed) = self.places.get_mut(place as usize).and_then(Option::take) else { return };
        self.installed -= usize::from(placed.is_installed);
        match placed.owner {
            FlowOwner::Connection(id, direction, _) => self.connections.remove(&(id, direction)),
            FlowOwner::Rules(_) => self.others.remove(&placed.flow.key),
        };
        let PlacedFlow { flow: OffloadedFlow { key, to, .. }, seen, .. } = placed;
        let until_ms = now_ms + REST_MS;
        self.resting.push_back(RestingPlace { place, until_ms, from: key.port, to, seen });
    }

    /// The next place that has rested, which is free then, with what was counted meanwhile.
    pub(crate) fn next_rested(&mut self, now_ms: u64) -> Option<LateCount> {
        if let Some(late) = self.late.pop() {
            return Some(late);
        }
        let resting = self.resting.pop_front_if(|resting| resting.until_ms <= now_ms)?;
        let count = self.host.as_ref()?.usage(resting.place).count - resting.seen;
        self.free.push(resting.place);
        Some(LateCount { from: resting.from, to: resting.to, count })
    }

    /// The places that the next step of the walk over all of them visits: all are visited in so many steps.
    pub(crate) fn next_places(&mut self, steps: usize) -> std::ops::Range<u32> {
        let all = self.places.len();
        let first = if self.next >= all { 0 } else { self.next };
        self.next = all.min(first + all.div_ceil(steps.max(1)));
        first as u32..self.next as u32
    }

    /// All places.
    pub(crate) fn all_places(&self) -> std::ops::Range<u32> {
        0..self.places.len() as u32
    }
}

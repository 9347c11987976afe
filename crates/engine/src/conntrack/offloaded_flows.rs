//! The flows of a worker that the host forwards by itself: the place of each flow in the host's table, and
//! the counts that were already collected.
//!
//! A *prepared* flow has a place but is not installed. One direction of a TCP connection stays prepared until
//! the other direction has a flow too. After a change of policy every flow is only prepared, until a packet
//! shows its new verdict. After a flow ends, its place rests for [`REST_MS`], since packets that already took
//! the flow may still be counted there.

use super::verdict_cache::VerdictId;
use crate::counters::Count;
use crate::offload::{EndNumbers, FlowKey, FlowOffload, OffloadedFlow};
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, Direction};
use mmb_packet::PortId;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

/// How long the place of an ended flow is not assigned to another flow.
const REST_MS: u64 = 50;

/// The number of connections whose last refusal is remembered, and the time for which it is remembered.
const REFUSALS: usize = 1024;
const REFUSED_MS: u64 = 1000;

/// The number of buckets of watched flows. A watched flow has no connection and is not worth a place yet. A
/// bucket has two entries.
const WATCHED: usize = 8192;
/// A watched flow is offered with this packet.
const OFFERED_WITH: u32 = 4;

/// The owner of a flow.
#[derive(Clone, Debug)]
pub(crate) enum FlowOwner {
    /// One direction of a connection. Its packets match the rules of this cached verdict.
    Connection(ConnId, Direction, VerdictId),
    /// No connection. Its packets match these rules.
    Rules(Box<[RuleSlot]>),
}

/// A flow and its state in its place.
#[derive(Clone, Debug)]
pub(crate) struct PlacedFlow {
    pub(crate) flow: OffloadedFlow,
    pub(crate) owner: FlowOwner,
    /// The rule that drops the packets of the flow.
    pub(crate) dropped_by: Option<RuleSlot>,
    is_installed: bool,
    /// Packets do not take the flow any more.
    is_stopped: bool,
    /// The host's count at the last collection.
    seen: Count,
    /// The time of the last packet, as of the last collection.
    pub(crate) used_ms: u64,
}

/// The packets of a flow since the last collection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectedUsage {
    pub(crate) count: Count,
    pub(crate) idle_ms: u64,
    pub(crate) numbers: EndNumbers,
}

/// The place of a flow that has ended.
#[derive(Clone, Copy, Debug)]
struct RestingPlace {
    place: u32,
    until_ms: u64,
    ingress: PortId,
    egress: Option<PortId>,
    seen: Count,
}

/// Packets of a flow that were counted after the flow ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateCount {
    pub(crate) ingress: PortId,
    pub(crate) egress: Option<PortId>,
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
    /// Packets that the host counted for flows of an earlier policy after their last collection.
    late: Vec<LateCount>,
    connections: HashMap<(ConnId, Direction), u32>,
    others: HashMap<FlowKey, u32>,
    installed: usize,
    /// The place where the next step of the walk starts, and the time of that step.
    next: usize,
    pub(crate) next_ms: u64,
    refused: Vec<(Option<ConnId>, u64)>,
    watched: Vec<[(u32, u32); 2]>,
    /// Hashes the keys of watched flows.
    hasher: RandomState,
}

impl OffloadedFlows {
    /// Sets the host that forwards flows from now on.
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

    /// Whether no place is in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.others.is_empty() && self.resting.is_empty()
    }

    /// Starts an epoch; 0 turns flow offload off. Afterwards no flow is installed. The caller must have
    /// collected all counts before.
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

    /// The number of installed flows, and the number of places.
    pub(crate) fn sizes(&self) -> (usize, u32) {
        (self.installed, self.host.as_ref().map_or(0, |host| host.capacity()))
    }

    /// Whether fewer than a sixteenth of the places are free.
    pub(crate) fn is_crowded(&self) -> bool {
        let (_, capacity) = self.sizes();
        let unused = capacity as usize - self.places.len();
        unused + self.free.len() + self.resting.len() < capacity as usize / 16
    }

    /// Whether packets may pass from one port to another without a worker.
    pub(crate) fn can_forward(&self, ingress: PortId, egress: Option<PortId>) -> bool {
        self.host.as_ref().is_some_and(|host| host.can_forward(ingress, egress))
    }

    /// Whether a flow of a connection was refused within the last [`REFUSED_MS`].
    #[inline]
    pub(crate) fn was_refused(&self, id: ConnId, now_ms: u64) -> bool {
        let (refused, at_ms) = self.refused[id.index() % REFUSALS];
        refused == Some(id) && now_ms < at_ms + REFUSED_MS
    }

    pub(crate) fn refuse(&mut self, id: ConnId, now_ms: u64) {
        self.refused[id.index() % REFUSALS] = (Some(id), now_ms);
    }

    /// Counts a packet of a flow without a connection. Returns true if the flow should be offered: with its
    /// fourth packet, and after a refusal each time that its number of packets has doubled.
    ///
    /// If both entries of the bucket belong to other flows, the smaller count of the two is decremented. So a
    /// flood of flows with one packet each does not hide a flow that sends more than all of them together in
    /// its bucket.
    #[inline]
    pub(crate) fn should_offer(&mut self, key: &FlowKey) -> bool {
        let hash = self.hasher.hash_one(key);
        let (bucket, tag) = (&mut self.watched[hash as usize % WATCHED], (hash >> 32) as u32 | 1);
        if let Some((_, count)) = bucket.iter_mut().find(|(known, _)| *known == tag) {
            *count = count.saturating_add(1);
            return *count >= OFFERED_WITH && count.is_power_of_two();
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

    /// The place of the flow of one direction of a connection.
    pub(crate) fn place_of_connection(&self, id: ConnId, direction: Direction) -> Option<u32> {
        self.connections.get(&(id, direction)).copied()
    }

    /// The place of the flow with this key and without a connection.
    pub(crate) fn place_of_key(&self, key: &FlowKey) -> Option<u32> {
        self.others.get(key).copied()
    }

    pub(crate) fn get(&self, place: u32) -> Option<&PlacedFlow> {
        self.places.get(place as usize)?.as_ref()
    }

    /// Whether the flow in a place is prepared or installed under the policy in use.
    pub(crate) fn is_prepared(&self, place: u32) -> bool {
        self.get(place).is_some_and(|placed| placed.flow.epoch == self.epoch)
    }

    /// Prepares a flow, in the place that its owner already has or in a new one. Returns `None` if all places
    /// are taken. If the owner has a flow with another key, the caller must have ended that flow before.
    pub(crate) fn prepare(
        &mut self,
        flow: OffloadedFlow,
        owner: FlowOwner,
        dropped_by: Option<RuleSlot>,
        now_ms: u64,
    ) -> Option<u32> {
        let known_place = match &owner {
            FlowOwner::Connection(id, direction, _) => self.place_of_connection(*id, *direction),
            FlowOwner::Rules(_) => self.place_of_key(&flow.key),
        };
        let place = match known_place {
            Some(place) => place,
            None => self.take_place()?,
        };
        match &owner {
            FlowOwner::Connection(id, direction, _) => self.connections.insert((*id, *direction), place),
            FlowOwner::Rules(_) => self.others.insert(flow.key, place),
        };
        // The host still counts for the flow that was last installed in this place.
        let seen = self.host.as_ref()?.usage(place).count;
        if let Some(former) = &self.places[place as usize] {
            let count = seen - former.seen;
            if count.packets > 0 {
                self.late.push(LateCount {
                    ingress: former.flow.key.port,
                    egress: former.flow.egress,
                    count,
                });
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

    /// Installs a prepared flow, but does not enable it. For TCP, `tcp` has the numbers of the sender and the
    /// place of the other direction. Returns false if the host refuses.
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

    /// Makes packets take an installed flow.
    pub(crate) fn enable(&mut self, place: u32) {
        self.host.iter_mut().for_each(|host| host.enable(place));
    }

    /// Returns the packets of an installed flow since the last collection; `None` if there were none.
    pub(crate) fn collect(&mut self, place: u32, now_ms: u64) -> Option<CollectedUsage> {
        let host = self.host.as_ref()?;
        let placed = self.places.get_mut(place as usize)?.as_mut().filter(|placed| placed.is_installed)?;
        let usage = host.usage(place);
        let count = usage.count - std::mem::replace(&mut placed.seen, usage.count);
        if count.packets == 0 {
            return None;
        }
        placed.used_ms = now_ms.saturating_sub(usage.idle_ms);
        Some(CollectedUsage { count, idle_ms: usage.idle_ms, numbers: usage.numbers })
    }

    /// Updates the numbers of an installed TCP flow with those of its sender, which a worker has tracked.
    pub(crate) fn update_numbers(&mut self, place: u32, numbers: EndNumbers) {
        if let Some(host) = &mut self.host
            && self.places.get(place as usize).is_some_and(|placed| {
                placed.as_ref().is_some_and(|placed| placed.is_installed && placed.flow.tcp.is_some())
            })
        {
            host.update_numbers(place, numbers);
        }
    }

    /// Makes packets no longer take the flow in a place. Afterwards its last packets can be collected.
    pub(crate) fn stop(&mut self, place: u32) {
        if let Some(host) = &mut self.host
            && let Some(placed) = self.places.get_mut(place as usize).and_then(Option::as_mut)
            && !std::mem::replace(&mut placed.is_stopped, true)
        {
            // A flow that is not installed may still be in the host's table, from an earlier epoch.
            host.end(place);
        }
    }

    /// Ends the flow in a place. The caller must have called [`OffloadedFlows::stop`] and then collected the
    /// counts.
    pub(crate) fn end(&mut self, place: u32, now_ms: u64) {
        self.stop(place);
        let Some(placed) = self.places.get_mut(place as usize).and_then(Option::take) else { return };
        self.installed -= usize::from(placed.is_installed);
        match placed.owner {
            FlowOwner::Connection(id, direction, _) => self.connections.remove(&(id, direction)),
            FlowOwner::Rules(_) => self.others.remove(&placed.flow.key),
        };
        let PlacedFlow { flow: OffloadedFlow { key, egress, .. }, seen, .. } = placed;
        let until_ms = now_ms + REST_MS;
        self.resting.push_back(RestingPlace { place, until_ms, ingress: key.port, egress, seen });
    }

    /// Frees the next place that has rested long enough. Returns the packets that were counted there while it
    /// rested.
    pub(crate) fn next_rested(&mut self, now_ms: u64) -> Option<LateCount> {
        if let Some(late) = self.late.pop() {
            return Some(late);
        }
        let resting = self.resting.pop_front_if(|resting| resting.until_ms <= now_ms)?;
        let count = self.host.as_ref()?.usage(resting.place).count - resting.seen;
        self.free.push(resting.place);
        Some(LateCount { ingress: resting.ingress, egress: resting.egress, count })
    }

    /// The places that the next step of the walk visits. The walk visits all places in `steps` steps.
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

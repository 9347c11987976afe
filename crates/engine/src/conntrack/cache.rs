//! Caches the verdict for packets of a connection, so that they need no classification.
//!
//! If rules match only on fields that cannot change within a connection, all packets of one direction match the same rules. A connection
//! then has a cached verdict for each direction: the number of a [`CachedVerdict`] that many connections may share. Numbers belong to one
//! policy: they only grow, and those below the first number of the current policy are out of date.

use super::rule_sets::SetAllocError;
use hashbrown::HashTable;
use mmb_base::{Id, prefetch};
use mmb_conn::{ConnId, Direction};
use mmb_packet::PortId;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Verdicts cached for one policy, at most; further packets are classified.
const MOST: usize = 8 << 20;
/// Rules that a verdict stores inline.
const INLINE: usize = 4;
/// Connections in a chunk.
const CHUNK: usize = 4096;

/// The verdict for packets of some connections in one direction.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct CachedVerdict {
    /// The first rules.
    inline: [u32; INLINE],
    len: u32,
    /// Number of rules after those: rules that invalid packets match, or packets of the connection in another `ct` state.
    candidates: u32,
    /// The index in [`FlowCache::more`] where all of them are stored, if there are more than [`INLINE`].
    more: u32,
    /// The ingress port: rules may match on it, and it is not part of a connection.
    pub(crate) port: PortId,
    /// The packets are dropped.
    pub(crate) drops: bool,
    /// Some of the rules rewrite.
    pub(crate) edits: bool,
}

impl CachedVerdict {
    /// The rules, and the candidates after them.
    fn parts<'s>(&'s self, more: &'s [u32]) -> (&'s [u32], &'s [u32]) {
        let count = (self.len + self.candidates) as usize;
        let behind = || more.get(self.more as usize..)?.get(..count);
        let all = self.inline.get(..count).or_else(behind).unwrap_or_default();
        all.split_at_checked(self.len as usize).unwrap_or((all, &[]))
    }
}

/// A chunk of connections without cached verdicts, if there is memory.
fn chunk() -> Option<Box<[[u32; 2]; CHUNK]>> {
    let mut chunk = Vec::new();
    chunk.try_reserve_exact(CHUNK).ok()?;
    chunk.resize(CHUNK, [0; 2]);
    chunk.into_boxed_slice().try_into().ok()
}

/// Slots are assigned by the engine, never by a sender, so the hash needs no key.
fn hash(port: PortId, rules: (&[u32], &[u32])) -> u64 {
    let mut hasher = DefaultHasher::new();
    (port.0, rules).hash(&mut hasher);
    hasher.finish()
}

/// The cached verdicts of a worker's connections.
#[derive(Debug, Default)]
pub(crate) struct FlowCache {
    generation: Option<u64>,
    /// The number of the current policy's first verdict; from 1.
    first: u32,
    decisions: Vec<CachedVerdict>,
    /// The rules of verdicts that cannot store them inline, concatenated.
    more: Vec<u32>,
    /// Numbers of verdicts by a hash of their port and rules.
    numbers: HashTable<u32>,
    /// Numbers of verdicts by connection and direction.
    plans: Vec<Box<[[u32; 2]; CHUNK]>>,
}

impl FlowCache {
    /// Starts with an empty cache for a policy.
    pub(crate) fn begin_epoch(&mut self, generation: u64) {
        if self.generation == Some(generation) {
            return;
        }
        self.generation = Some(generation);
        // After four thousand million verdicts numbers would repeat: from then on nothing is cached.
        self.first = self.first.saturating_add(self.decisions.len() as u32).max(1);
        self.decisions.clear();
        self.more.clear();
        self.numbers.clear();
    }

    /// Clears the entry of a new connection. Without memory for its entry, nothing is cached for it.
    pub(crate) fn begin(&mut self, id: ConnId) {
        let place = id.index();
        while self.plans.len() <= place / CHUNK {
            let Some(chunk) = chunk() else { return };
            if self.plans.try_reserve(1).is_err() {
                return;
            }
            self.plans.push(chunk);
        }
        self.plans[place / CHUNK][place % CHUNK] = [0; 2];
    }

    /// Prefetches the entry of a connection.
    #[inline]
    pub(crate) fn prefetch(&self, id: ConnId) {
        let place = id.index();
        if let Some(chunk) = self.plans.get(place / CHUNK) {
            prefetch(&chunk[place % CHUNK]);
        }
    }

    /// The number of a connection's cached verdict, if it belongs to the current policy.
    #[inline]
    pub(crate) fn of(&self, id: ConnId, direction: Direction) -> Option<u32> {
        let place = id.index();
        let plan = self.plans.get(place / CHUNK)?[place % CHUNK][direction as usize];
        (plan >= self.first && plan != 0).then_some(plan)
    }

    /// The verdict with a number, if it belongs to the current policy.
    #[inline]
    pub(crate) fn verdict(&self, plan: u32) -> Option<&CachedVerdict> {
        self.decisions.get(plan.wrapping_sub(self.first) as usize)
    }

    /// The slots of a verdict's rules, in the order in which they are applied; none if it belongs to another policy.
    #[inline]
    pub(crate) fn rules(&self, plan: u32) -> &[u32] {
        match self.verdict(plan) {
            Some(decision) => match decision.inline.get(..decision.len as usize) {
                Some(rules) => rules,
                None => decision.parts(&self.more).0,
            },
            None => &[],
        }
    }

    /// The slots of rules that the packets match if their `ct` conditions are ignored, if some rule has one.
    pub(crate) fn candidates(&self, plan: u32) -> &[u32] {
        self.verdict(plan).map_or(&[], |decision| decision.parts(&self.more).1)
    }

    /// Caches a verdict for a connection's packets that come in by a port: the rules that they match, in the order in which they are
    /// applied, and the candidates.
    pub(crate) fn set(
        &mut self,
        (id, direction): (ConnId, Direction),
        port: PortId,
        rules: (&[u32], &[u32]),
        drops: bool,
        edits: bool,
    ) {
        // A connection that may not last is decided on anew each time.
        if self.of(id, direction).and_then(|plan| self.verdict(plan)).is_some_and(|known| {
            (known.port, known.drops, known.edits) == (port, drops, edits) && known.parts(&self.more) == rules
        }) {
            return;
        }
        let hash = hash(port, rules);
        let same = |number: &u32| {
            self.verdict(*number).is_some_and(|other| other.port == port && other.parts(&self.more) == rules)
        };
        let number = match self.numbers.find(hash, same) {
            Some(&number) => number,
            None if self.decisions.len() >= MOST => return,
            None => {
                let Some(number) = self.first.checked_add(self.decisions.len() as u32) else { return };
                let all = || rules.0.iter().chain(rules.1).copied();
                let behind = if all().count() > INLINE { all().count() } else { 0 };
                if self.reserve(behind).is_err() {
                    return;
                }
                let mut decision = CachedVerdict {
                    inline: [0; INLINE],
                    len: rules.0.len() as u32,
                    candidates: rules.1.len() as u32,
                    more: self.more.len() as u32,
                    port,
                    drops,
                    edits,
                };
                decision.inline.iter_mut().zip(all()).for_each(|(to, from)| *to = from);
                self.more.extend(all().take(behind));
                self.decisions.push(decision);
                let FlowCache { first, decisions, more, numbers, .. } = self;
                numbers.insert_unique(hash, number, |number| {
                    let decision = &decisions[(number - *first) as usize];
                    self::hash(decision.port, decision.parts(more))
                });
                number
            }
        };
        let place = id.index();
        if let Some(chunk) = self.plans.get_mut(place / CHUNK) {
            chunk[place % CHUNK][direction as usize] = number;
        }
    }

    /// Reserves memory for one more verdict, and for this number of rules that it cannot store inline.
    fn reserve(&mut self, rules: usize) -> Result<(), SetAllocError> {
        let FlowCache { first, decisions, more, numbers, .. } = self;
        decisions.try_reserve(1).map_err(|_| SetAllocError)?;
        more.try_reserve(rules).map_err(|_| SetAllocError)?;
        u32::try_from(more.len()).map_err(|_| SetAllocError)?;
        let hash_of = |number: &u32| {
            let decision = &decisions[(number - *first) as usize];
            hash(decision.port, decision.parts(more))
        };
        numbers.try_reserve(1, hash_of).map_err(|_| SetAllocError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Forward, Reply};

    #[test]
    fn plans_are_shared_and_end_with_their_policy() {
        let mut plans = FlowCache::default();
        plans.begin_epoch(1);
        let ids = [1, 9001].map(|number| ConnId::new(number).expect("it is not 0"));
        ids.iter().for_each(|id| plans.begin(*id));
        assert_eq!(plans.of(ids[0], Forward), None);
        let long = [7, 6, 5, 4, 3];
        let candidates = [9, 8, 7];
        plans.set((ids[0], Forward), PortId(0), (&[3, 4], &[]), false, true);
        plans.set((ids[1], Forward), PortId(0), (&[3, 4], &[]), false, true);
        plans.set((ids[0], Reply), PortId(1), (&[3, 4], &candidates), false, true);
        plans.set((ids[1], Reply), PortId(1), (&long, &[]), true, false);
        assert_eq!(plans.of(ids[0], Forward), plans.of(ids[1], Forward));
        let rules = |plan: Option<u32>| {
            let plan = plan.expect("it has a plan");
            let decision = plans.verdict(plan).expect("of this policy");
            (plans.rules(plan).to_vec(), plans.candidates(plan).to_vec(), decision.drops, decision.edits)
        };
        assert_eq!(rules(plans.of(ids[0], Forward)), (vec![3, 4], vec![], false, true));
        assert_eq!(rules(plans.of(ids[0], Reply)), (vec![3, 4], candidates.to_vec(), false, true));
        assert_eq!(rules(plans.of(ids[1], Reply)), (long.to_vec(), vec![], true, false));
        plans.begin_epoch(2);
        assert_eq!(plans.of(ids[0], Forward), None);
        plans.set((ids[0], Forward), PortId(0), (&[], &[]), false, false);
        assert_eq!(plans.of(ids[1], Forward), None);
        assert!(plans.rules(plans.of(ids[0], Forward).expect("a plan")).is_empty());
        // Another connection in the same place.
        plans.begin(ids[0]);
        assert_eq!(plans.of(ids[0], Forward), None);
    }
}

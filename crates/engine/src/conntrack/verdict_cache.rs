//! Caches the verdicts of connections, so that most of their packets need no classification.
//!
//! All packets of one direction of a connection match the same rules, except per-packet rules, which are
//! found for each packet. A connection therefore has one cached verdict for each direction: the id of a
//! [`CachedVerdict`], which many connections may share. Each id belongs to one policy. Ids only grow: those
//! below the first id of the current policy are out of date.

use super::rule_sets::SetAllocError;
use crate::cells::RuleCells;
use crate::compiled::Snapshot;
use crate::counters::Count;
use mmb_base::{Chunks, Id, ShardedIndex, SlabStorage, id_types, prefetch};
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, Direction, Unfolded};
use mmb_packet::PortId;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

/// The most verdicts that are cached for one policy. Packets with further verdicts are classified.
const MAX_VERDICTS: usize = 8 << 20;
/// Rules that a verdict stores inline.
const INLINE: usize = 4;
/// Connections in a chunk.
const CHUNK: usize = 4096;

/// Verdicts are stored in chunks of this many: growing copies none of them.
const VERDICTS: usize = 4096;

id_types! {
    /// A cached verdict.
    pub(crate) struct VerdictId;
}

impl VerdictId {
    /// The id that is `more` after this one; `None` if ids are used up.
    fn plus(self, more: usize) -> Option<VerdictId> {
        self.0.checked_add(u32::try_from(more).ok()?).map(VerdictId)
    }

    /// The distance of this id from `first`. For an id before `first`, the distance wraps and is out of
    /// range.
    #[inline]
    fn after(self, first: VerdictId) -> usize {
        self.number().wrapping_sub(first.number()) as usize
    }
}

/// The cached verdicts of a connection, by direction.
type VerdictPair = [Option<VerdictId>; 2];

/// The verdict for packets of some connections in one direction.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct CachedVerdict {
    /// The first rules, or the first candidates after them.
    inline: [RuleSlot; INLINE],
    len: u32,
    /// Number of candidates, which follow the rules: all rules that match if `ct` conditions are ignored. The
    /// rules of invalid packets, and of packets in another `ct` state, are among them.
    candidates: u32,
    /// If there are more than [`INLINE`] rules and candidates: the index in [`CachedVerdicts::more`] of all
    /// of them.
    more: u32,
    /// The ingress port. It is not part of a connection, but rules may match on it.
    pub(crate) port: PortId,
    /// The packets are dropped.
    pub(crate) drops: bool,
    /// Some of the rules rewrite.
    pub(crate) edits: bool,
}

impl CachedVerdict {
    /// The rules, and the candidates. `more` is that of the verdict's policy.
    fn parts<'s>(&'s self, more: &'s [RuleSlot]) -> (&'s [RuleSlot], &'s [RuleSlot]) {
        let count = (self.len + self.candidates) as usize;
        let in_more = || more.get(self.more as usize..)?.get(..count);
        let all = self.inline.get(..count).or_else(in_more).unwrap_or_default();
        all.split_at_checked(self.len as usize).unwrap_or((all, &[]))
    }
}

/// A chunk of connections without cached verdicts; `None` without memory.
fn chunk() -> Option<Box<[VerdictPair; CHUNK]>> {
    let mut chunk = Vec::new();
    chunk.try_reserve_exact(CHUNK).ok()?;
    chunk.resize(CHUNK, [None; 2]);
    chunk.into_boxed_slice().try_into().ok()
}

/// The hash of a verdict. It needs no key: the engine assigns slots, never a sender.
fn hash(port: PortId, rules: (&[RuleSlot], &[RuleSlot])) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let words =
        [rules.0, rules.1].into_iter().flat_map(|part| part.iter().map(|slot| u64::from(slot.number())));
    let begin = u64::from(port.0) | (rules.0.len() as u64) << 16;
    let mixed = words
        .fold(begin.wrapping_mul(FACTOR), |mixed, word| (mixed.rotate_left(29) ^ word).wrapping_mul(FACTOR));
    (mixed ^ mixed >> 32).wrapping_mul(FACTOR)
}

/// The verdicts that were cached for one policy.
#[derive(Debug)]
struct CachedVerdicts {
    /// The id of the first verdict.
    first: VerdictId,
    list: Chunks<CachedVerdict, VERDICTS>,
    /// The rules and candidates of verdicts that cannot store them inline, concatenated.
    more: Vec<RuleSlot>,
}

impl CachedVerdicts {
    fn new(first: VerdictId) -> CachedVerdicts {
        CachedVerdicts { first, list: Chunks::small(), more: Vec::new() }
    }

    /// The verdict with an id, if it belongs to this policy.
    #[inline]
    fn get(&self, id: VerdictId) -> Option<&CachedVerdict> {
        let index = id.after(self.first);
        (index < self.list.count()).then(|| self.list.at(index))
    }

    /// The slots of a verdict's rules, in the order in which they are applied. None if the verdict belongs to
    /// another policy.
    #[inline]
    fn rules(&self, id: VerdictId) -> &[RuleSlot] {
        match self.get(id) {
            Some(verdict) => match verdict.inline.get(..verdict.len as usize) {
                Some(rules) => rules,
                None => verdict.parts(&self.more).0,
            },
            None => &[],
        }
    }
}

/// The verdicts of an earlier policy, kept until the packets that were counted under it are folded.
#[derive(Debug)]
struct FormerVerdicts {
    verdicts: CachedVerdicts,
    /// Keeps the slots of that policy's rules from being reused.
    snapshot: Arc<Snapshot>,
    /// The verdicts are needed until this number of connections has been folded.
    needed_until: u64,
}

/// The cached verdicts of a worker's connections.
#[derive(Debug)]
pub(crate) struct VerdictCache {
    /// The current policy.
    snapshot: Option<Arc<Snapshot>>,
    /// The verdicts of the current policy.
    verdicts: CachedVerdicts,
    former: VecDeque<FormerVerdicts>,
    /// Ids of verdicts by a hash of their port and rules.
    ids: ShardedIndex<VerdictId>,
    /// Ids of verdicts by connection and direction.
    connections: Vec<Box<[VerdictPair; CHUNK]>>,
}

impl Default for VerdictCache {
    fn default() -> VerdictCache {
        VerdictCache {
            snapshot: None,
            verdicts: CachedVerdicts::new(VerdictId::FIRST),
            former: VecDeque::new(),
            ids: ShardedIndex::new(),
            connections: Vec::new(),
        }
    }
}

impl VerdictCache {
    /// Starts an empty cache for a policy. Returns false if the policy is already the current one. `kept` is
    /// the previous policy, and the number of folded connections up to which its verdicts are kept. Without
    /// it, these verdicts are freed.
    pub(crate) fn begin_epoch(
        &mut self,
        snapshot: &Arc<Snapshot>,
        kept: Option<(Arc<Snapshot>, u64)>,
    ) -> bool {
        if self.snapshot.as_ref().is_some_and(|current| current.generation == snapshot.generation) {
            return false;
        }
        self.snapshot = Some(Arc::clone(snapshot));
        self.renew(kept);
        true
    }

    fn renew(&mut self, kept: Option<(Arc<Snapshot>, u64)>) {
        // Ids must not repeat: after 2^32 verdicts, nothing more is cached.
        let next = self.verdicts.first.plus(self.verdicts.list.count()).unwrap_or(VerdictId(NonZeroU32::MAX));
        match kept.filter(|_| self.verdicts.list.count() > 0) {
            Some((snapshot, needed_until)) => {
                let verdicts = std::mem::replace(&mut self.verdicts, CachedVerdicts::new(next));
                self.former.push_back(FormerVerdicts { verdicts, snapshot, needed_until });
            }
            None => {
                self.verdicts.first = next;
                self.verdicts.list.clear();
                self.verdicts.more.clear();
            }
        }
        self.ids.clear();
    }

    /// Frees the verdicts of earlier policies that are not needed after this number of connections has been
    /// folded.
    pub(crate) fn free_former(&mut self, folded: u64) {
        while self.former.front().is_some_and(|former| former.needed_until <= folded) {
            self.former.pop_front();
        }
    }

    /// Adds folded packets of a connection to the counters of its rules.
    pub(crate) fn credit(&self, cells: &RuleCells, Unfolded { id, packets, bytes }: Unfolded) {
        for direction in Direction::ALL {
            let side = direction as usize;
            let count = Count { packets: packets[side].into(), bytes: bytes[side].into() };
            if count.packets > 0
                && let Some(verdict) = self.last_verdict_id(id, direction)
            {
                if verdict >= self.verdicts.first {
                    self.verdicts.rules(verdict).iter().for_each(|&slot| cells.slot(slot).add(count));
                } else {
                    self.credit_former(cells, verdict, count);
                }
            }
        }
    }

    /// Adds packets that were counted under an earlier policy to the counters of its rules. Stateful rules
    /// that the current policy has removed or replaced are not credited.
    #[cold]
    fn credit_former(&self, cells: &RuleCells, verdict: VerdictId, count: Count) {
        let following = self.former.partition_point(|former| former.verdicts.first <= verdict);
        let Some(FormerVerdicts { verdicts, snapshot, .. }) =
            following.checked_sub(1).and_then(|index| self.former.get(index))
        else {
            return;
        };
        for &slot in verdicts.rules(verdict) {
            let version = |snapshot: &Snapshot| snapshot.stateful(slot).map(|rule| rule.version);
            if self.snapshot.as_ref().is_none_or(|current| version(current) == version(snapshot)) {
                cells.slot(slot).add(count);
            }
        }
    }

    /// Clears the entry of a new connection. Without memory for its entry, nothing is cached for it.
    pub(crate) fn clear_entry(&mut self, id: ConnId) {
        let place = id.index();
        while self.connections.len() <= place / CHUNK {
            let Some(chunk) = chunk() else { return };
            if self.connections.try_reserve(1).is_err() {
                return;
            }
            self.connections.push(chunk);
        }
        self.connections[place / CHUNK][place % CHUNK] = [None; 2];
    }

    /// Prefetches the entry of a connection.
    #[inline]
    pub(crate) fn prefetch(&self, id: ConnId) {
        let place = id.index();
        if let Some(chunk) = self.connections.get(place / CHUNK) {
            prefetch(&chunk[place % CHUNK]);
        }
    }

    /// The id of a connection's cached verdict, of the current policy or an earlier one.
    #[inline]
    fn last_verdict_id(&self, id: ConnId, direction: Direction) -> Option<VerdictId> {
        let place = id.index();
        self.connections.get(place / CHUNK)?[place % CHUNK][direction as usize]
    }

    /// The id of a connection's cached verdict, if it belongs to the current policy.
    #[inline]
    pub(crate) fn verdict_id(&self, id: ConnId, direction: Direction) -> Option<VerdictId> {
        self.last_verdict_id(id, direction).filter(|id| *id >= self.verdicts.first)
    }

    /// The verdict with an id, if it belongs to the current policy.
    #[inline]
    pub(crate) fn verdict(&self, id: VerdictId) -> Option<&CachedVerdict> {
        self.verdicts.get(id)
    }

    /// The slots of a verdict's rules, in the order in which they are applied. None if the verdict belongs to
    /// another policy.
    #[inline]
    pub(crate) fn rules(&self, id: VerdictId) -> &[RuleSlot] {
        self.verdicts.rules(id)
    }

    /// The slots of the rules that the packets match if `ct` conditions are ignored. None if no rule has such
    /// a condition.
    pub(crate) fn candidates(&self, id: VerdictId) -> &[RuleSlot] {
        self.verdict(id).map_or(&[], |verdict| verdict.parts(&self.verdicts.more).1)
    }

    /// Caches the verdict for packets of a connection and direction that come in by `port`. `rules` are the
    /// slots of the rules that these packets match, in the order in which they are applied, and of the
    /// candidates. Without memory, or beyond [`MAX_VERDICTS`] verdicts, nothing is cached.
    pub(crate) fn set(
        &mut self,
        (id, direction): (ConnId, Direction),
        port: PortId,
        rules: (&[RuleSlot], &[RuleSlot]),
        drops: bool,
        edits: bool,
    ) {
        // The packets of a connection that may still be evicted are classified each time, mostly with the
        // same result.
        if self.verdict_id(id, direction).and_then(|cached| self.verdict(cached)).is_some_and(|known| {
            (known.port, known.drops, known.edits) == (port, drops, edits)
                && known.parts(&self.verdicts.more) == rules
        }) {
            return;
        }
        let hash = hash(port, rules);
        let same = |id: &VerdictId| {
            self.verdict(*id)
                .is_some_and(|other| other.port == port && other.parts(&self.verdicts.more) == rules)
        };
        let cached = match self.ids.find(hash, same) {
            Some(&cached) => cached,
            None if self.verdicts.list.count() >= MAX_VERDICTS => return,
            None => {
                let Some(new) = self.verdicts.first.plus(self.verdicts.list.count()) else { return };
                let all = || rules.0.iter().chain(rules.1).copied();
                let in_more = if all().count() > INLINE { all().count() } else { 0 };
                if self.reserve(hash, in_more).is_err() {
                    return;
                }
                let mut verdict = CachedVerdict {
                    inline: [RuleSlot::FIRST; INLINE],
                    len: rules.0.len() as u32,
                    candidates: rules.1.len() as u32,
                    more: self.verdicts.more.len() as u32,
                    port,
                    drops,
                    edits,
                };
                verdict.inline.iter_mut().zip(all()).for_each(|(to, from)| *to = from);
                self.verdicts.more.extend(all().take(in_more));
                self.verdicts.list.push(verdict);
                let VerdictCache { verdicts: CachedVerdicts { first, list, more }, ids, .. } = self;
                let rehash = |id: &VerdictId| {
                    let verdict = list.at(id.after(*first));
                    self::hash(verdict.port, verdict.parts(more))
                };
                ids.entry(hash, |_| false, rehash, || new);
                new
            }
        };
        let place = id.index();
        if let Some(chunk) = self.connections.get_mut(place / CHUNK) {
            chunk[place % CHUNK][direction as usize] = Some(cached);
        }
    }

    /// Reserves memory for one more verdict, and for this number of rules that it cannot store inline.
    fn reserve(&mut self, hash: u64, rules: usize) -> Result<(), SetAllocError> {
        let VerdictCache { verdicts: CachedVerdicts { first, list, more }, ids, .. } = self;
        list.try_reserve().map_err(|_| SetAllocError)?;
        more.try_reserve(rules).map_err(|_| SetAllocError)?;
        u32::try_from(more.len()).map_err(|_| SetAllocError)?;
        let rehash = |id: &VerdictId| {
            let verdict = list.at(id.after(*first));
            self::hash(verdict.port, verdict.parts(more))
        };
        if ids.reserve(hash, rehash) { Ok(()) } else { Err(SetAllocError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Forward, Reply};

    #[test]
    fn cached_verdicts_are_shared_and_end_with_their_policy() {
        let mut cache = VerdictCache::default();
        cache.renew(None);
        let ids = [1, 9001].map(|number| ConnId::new(number).expect("it is not 0"));
        ids.iter().for_each(|id| cache.clear_entry(*id));
        assert_eq!(cache.verdict_id(ids[0], Forward), None);
        let slots = |numbers: &[u32]| numbers.iter().copied().filter_map(RuleSlot::new).collect::<Vec<_>>();
        let (two, long) = (slots(&[3, 4]), slots(&[7, 6, 5, 4, 3]));
        let candidates = slots(&[9, 8, 7]);
        cache.set((ids[0], Forward), PortId(0), (&two, &[]), false, true);
        cache.set((ids[1], Forward), PortId(0), (&two, &[]), false, true);
        cache.set((ids[0], Reply), PortId(1), (&two, &candidates), false, true);
        cache.set((ids[1], Reply), PortId(1), (&long, &[]), true, false);
        assert_eq!(cache.verdict_id(ids[0], Forward), cache.verdict_id(ids[1], Forward));
        let rules = |id: Option<VerdictId>| {
            let id = id.expect("it has a verdict");
            let verdict = cache.verdict(id).expect("of this policy");
            (cache.rules(id).to_vec(), cache.candidates(id).to_vec(), verdict.drops, verdict.edits)
        };
        assert_eq!(rules(cache.verdict_id(ids[0], Forward)), (two.clone(), vec![], false, true));
        assert_eq!(rules(cache.verdict_id(ids[0], Reply)), (two, candidates, false, true));
        assert_eq!(rules(cache.verdict_id(ids[1], Reply)), (long, vec![], true, false));
        cache.renew(None);
        assert_eq!(cache.verdict_id(ids[0], Forward), None);
        cache.set((ids[0], Forward), PortId(0), (&[], &[]), false, false);
        assert_eq!(cache.verdict_id(ids[1], Forward), None);
        assert!(cache.rules(cache.verdict_id(ids[0], Forward).expect("a verdict")).is_empty());
        // Another connection with the same id.
        cache.clear_entry(ids[0]);
        assert_eq!(cache.verdict_id(ids[0], Forward), None);
    }
}

//! The elements of a set as they were given, sorted, with the times at which they expire.
//!
//! They may overlap, and [`IntervalIndex`] has their union. Chunks of neighbours are shared with clones; a change copies the one that has the element, and the
//! list of chunks.

use super::element::{Element, NEVER, Number};
use super::intervals::IntervalIndex;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

/// The most elements of a chunk.
const CHUNK: usize = 256;
/// A change of more elements than one in so many makes everything anew.
const MANY: usize = 16;

/// Elements of one kind, and their union.
#[derive(Clone, Debug)]
pub struct Elements<N> {
    /// Not empty, in the order of their elements.
    chunks: Vec<Arc<Chunk<N>>>,
    len: usize,
    index: IntervalIndex<N>,
}

/// Neighbours.
#[derive(Clone, Debug)]
struct Chunk<N> {
    /// By first and last number, each pair once.
    elements: Vec<Element<N>>,
    /// The greatest of their last numbers.
    last: N,
    /// The time at which the first of them expires.
    expires_ms: u64,
}

impl<N: Number> Default for Elements<N> {
    fn default() -> Self {
        Elements { chunks: Vec::new(), len: 0, index: IntervalIndex::default() }
    }
}

impl<N: Number> Elements<N> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The union of the elements.
    pub fn index(&self) -> &IntervalIndex<N> {
        &self.index
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Element<N>> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.elements.iter().copied())
    }

    /// What leads from one set to another one, in order. Chunks that both share are passed over.
    pub(super) fn changes<'a>(before: &'a Elements<N>, after: &'a Elements<N>) -> Changes<'a, N> {
        Changes { before: Cursor::new(before), after: Cursor::new(after) }
    }

    /// The time at which the first element expires.
    pub(super) fn expires_ms(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.expires_ms).min().unwrap_or(NEVER)
    }

    /// About the bytes that they and their union take.
    pub(super) fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|chunk| chunk.bytes()).sum();
        chunks + self.chunks.len() * size_of::<Arc<Chunk<N>>>() + self.index.bytes()
    }

    /// About the bytes of what they do not share with others in memory.
    pub(super) fn bytes_beyond(&self, others: &Elements<N>) -> usize {
        let shared: HashSet<*const Chunk<N>> = others.chunks.iter().map(Arc::as_ptr).collect();
        let own = self.chunks.iter().filter(|chunk| !shared.contains(&Arc::as_ptr(chunk)));
        own.map(|chunk| chunk.bytes()).sum::<usize>() + self.index.bytes_beyond(&others.index)
    }

    /// Adds elements; of those with equal ends the last one stays.
    pub(super) fn add(&mut self, added: &[Element<N>]) {
        if added.len() <= self.len / MANY {
            added.iter().for_each(|element| self.insert(*element));
            self.add_to_index(added);
            return;
        }
        let mut all: Vec<Element<N>> = self.iter().chain(added.iter().copied()).collect();
        // Stable: of equal ones the last stays.
        all.sort_by_key(|element| (element.first, element.last));
        all.reverse();
        all.dedup_by_key(|element| (element.first, element.last));
        all.reverse();
        *self = Elements::of_sorted(&all);
    }

    /// The first of some ends that no element has.
    pub(super) fn missing(&self, ends: &[(N, N)]) -> Option<(N, N)> {
        ends.iter().copied().find(|ends| self.place(*ends).is_err())
    }

    /// Removes the elements with these ends.
    pub(super) fn remove(&mut self, removed: &[(N, N)]) {
        // One by one, each looks at all chunks.
        if removed.len().saturating_mul(self.chunks.len().max(MANY)) <= self.len {
            for ends in removed {
                // One that is named twice is gone the second time.
                if let Ok((chunk, at)) = self.place(*ends) {
                    self.take_out(chunk, at);
                }
                self.renew_index(*ends);
            }
            return;
        }
        let mut gone = removed.to_vec();
        gone.sort_unstable();
        let stays = |element: &Element<N>| gone.binary_search(&(element.first, element.last)).is_err();
        let left: Vec<_> = self.iter().filter(stays).collect();
        *self = Elements::of_sorted(&left);
    }

    /// Removes the elements that have expired. Returns how many.
    pub(super) fn expire(&mut self, now_ms: u64) -> usize {
        let due = self.chunks.iter().filter(|chunk| chunk.expires_ms <= now_ms);
        let expired =
            due.flat_map(|chunk| chunk.elements.iter()).filter(|element| element.expires_ms <= now_ms);
        let expired: Vec<_> = expired.map(|element| (element.first, element.last)).collect();
        self.remove(&expired);
        expired.len()
    }

    /// The same elements, by another clock.
    pub(super) fn restart_clock(&mut self, before_ms: u64, now_ms: u64) {
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.expires_ms != NEVER) {
            let chunk = Arc::make_mut(chunk);
            let timed = chunk.elements.iter_mut().filter(|element| element.expires_ms != NEVER);
            timed.for_each(|element| {
                let left = element.expires_ms.saturating_sub(before_ms);
                element.expires_ms = now_ms.saturating_add(left).min(NEVER - 1);
            });
            chunk.summarize();
        }
    }

    /// Elements in order, each pair of ends once.
    fn of_sorted(elements: &[Element<N>]) -> Elements<N> {
        let chunks = elements.chunks(CHUNK * 3 / 4).map(|chunk| Arc::new(Chunk::new(chunk.to_vec())));
        Elements {
            chunks: chunks.collect(),
            len: elements.len(),
            index: IntervalIndex::of_sorted(elements.iter().map(|element| (element.first, element.last))),
        }
    }

    /// The chunk and the place in it where the element with these ends is, or is to be inserted.
    fn place(&self, ends: (N, N)) -> Result<(usize, usize), (usize, usize)> {
        let begins = |chunk: &Arc<Chunk<N>>| (chunk.elements[0].first, chunk.elements[0].last) <= ends;
        let chunk = self.chunks.partition_point(begins).saturating_sub(1);
        let Some(found) = self.chunks.get(chunk) else { return Err((0, 0)) };
        let at = found.elements.binary_search_by_key(&ends, |element| (element.first, element.last));
        at.map(|at| (chunk, at)).map_err(|at| (chunk, at))
    }

    /// Adds an element, or replaces the one with the same ends.
    fn insert(&mut self, element: Element<N>) {
        let place = self.place((element.first, element.last));
        let (chunk, at) = place.unwrap_or_else(|place| place);
        if self.chunks.is_empty() {
            self.chunks.push(Arc::new(Chunk::new(vec![element])));
            self.len = 1;
            return;
        }
        let lower = Arc::make_mut(&mut self.chunks[chunk]);
        match place {
            Ok(_) => lower.elements[at] = element,
            Err(_) => {
                lower.elements.insert(at, element);
                self.len += 1;
            }
        }
        lower.summarize();
        if lower.elements.len() > CHUNK {
            let upper = lower.elements.split_off(CHUNK / 2);
            lower.summarize();
            self.chunks.insert(chunk + 1, Arc::new(Chunk::new(upper)));
        }
    }

    fn take_out(&mut self, chunk: usize, at: usize) {
        self.len -= 1;
        if self.chunks[chunk].elements.len() == 1 {
            self.chunks.remove(chunk);
            return;
        }
        let place = Arc::make_mut(&mut self.chunks[chunk]);
        place.elements.remove(at);
        place.summarize();
        let len = |chunk: usize| self.chunks.get(chunk).map_or(CHUNK, |chunk| chunk.elements.len());
        if len(chunk) + len(chunk + 1) <= CHUNK / 2 {
            let upper = self.chunks.remove(chunk + 1);
            let place = Arc::make_mut(&mut self.chunks[chunk]);
            place.elements.extend(&upper.elements);
            place.summarize();
        }
    }

    /// Adds a few elements to the union: at once where none is between them, as when a set comes in pieces.
    fn add_to_index(&mut self, added: &[Element<N>]) {
        let mut sorted: Vec<(N, N)> = added.iter().map(|element| (element.first, element.last)).collect();
        sorted.sort_unstable();
        let last = sorted.iter().map(|ends| ends.1).max();
        match (sorted.first(), last) {
            (Some(&(first, _)), Some(last)) if !self.index.meets(first, last) => {
                self.index.replace(first, last, &sorted);
            }
            _ => sorted.iter().for_each(|ends| self.index.add(ends.0, ends.1)),
        }
    }

    /// Makes the union right again where an element was removed: others may overlap it.
    fn renew_index(&mut self, (first, last): (N, N)) {
        let chunks = self.chunks.iter().take_while(|chunk| chunk.elements[0].first <= last);
        let near = chunks.filter(|chunk| chunk.last >= first).flat_map(|chunk| chunk.elements.iter());
        let near = near.filter(|element| element.first <= last && element.last >= first);
        let left: Vec<_> = near.map(|element| (element.first.max(first), element.last.min(last))).collect();
        self.index.replace(first, last, &left);
    }
}

impl<N: Number> PartialEq for Elements<N> {
    fn eq(&self, other: &Elements<N>) -> bool {
        self.len == other.len && Elements::changes(self, other).next().is_none()
    }
}

impl<N: Number> Eq for Elements<N> {}

/// A step from one set to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementChange<N> {
    Removed(Element<N>),
    /// It is new, or expires at this time now.
    Added(Element<N>),
}

/// The steps from one set to another one.
pub(super) struct Changes<'a, N> {
    before: Cursor<'a, N>,
    after: Cursor<'a, N>,
}

impl<N: Number> Iterator for Changes<'_, N> {
    type Item = ElementChange<N>;

    fn next(&mut self) -> Option<ElementChange<N>> {
        loop {
            if self.before.is_at_same_chunk(&self.after) {
                self.before.pass_chunk();
                self.after.pass_chunk();
                continue;
            }
            let (old, new) = (self.before.element(), self.after.element());
            let ends = |element: Element<N>| (element.first, element.last);
            let order = match (old, new) {
                (None, None) => return None,
                (Some(old), Some(new)) => ends(old).cmp(&ends(new)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
            };
            if order.is_le() {
                self.before.pass_element();
            }
            if order.is_ge() {
                self.after.pass_element();
            }
            match order {
                Ordering::Less => return old.map(ElementChange::Removed),
                Ordering::Equal if old == new => {}
                Ordering::Equal | Ordering::Greater => return new.map(ElementChange::Added),
            }
        }
    }
}

/// A place among the elements.
struct Cursor<'a, N> {
    /// The chunk that it is in, and those behind.
    chunks: &'a [Arc<Chunk<N>>],
    /// The place in the first of them.
    at: usize,
}

impl<'a, N: Number> Cursor<'a, N> {
    fn new(elements: &'a Elements<N>) -> Cursor<'a, N> {
        Cursor { chunks: &elements.chunks, at: 0 }
    }

    /// Whether both are at the beginning of the same chunk in memory.
    fn is_at_same_chunk(&self, other: &Cursor<'_, N>) -> bool {
        let is_same = |ours: &Arc<Chunk<N>>, theirs| Arc::ptr_eq(ours, theirs);
        let chunks = self.chunks.first().zip(other.chunks.first());
        self.at == other.at && chunks.is_some_and(|(ours, theirs)| is_same(ours, theirs))
    }

    fn element(&self) -> Option<Element<N>> {
        self.chunks.first().map(|chunk| chunk.elements[self.at])
    }

    fn pass_element(&mut self) {
        self.at += 1;
        if self.chunks.first().is_some_and(|chunk| chunk.elements.len() == self.at) {
            self.pass_chunk();
        }
    }

    fn pass_chunk(&mut self) {
        self.chunks = self.chunks.get(1..).unwrap_or_default();
        self.at = 0;
    }
}

impl<N: Number> Chunk<N> {
    fn new(elements: Vec<Element<N>>) -> Chunk<N> {
        let mut chunk = Chunk { elements, last: N::MIN, expires_ms: NEVER };
        chunk.summarize();
        chunk
    }

    /// Bytes, with the count of its clones.
    fn bytes(&self) -> usize {
        size_of::<Chunk<N>>() + 2 * size_of::<usize>() + self.elements.capacity() * size_of::<Element<N>>()
    }

    fn summarize(&mut self) {
        self.last = self.elements.iter().map(|element| element.last).max().unwrap_or(N::MIN);
        self.expires_ms = self.elements.iter().map(|element| element.expires_ms).min().unwrap_or(NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn element() -> impl Strategy<Value = Element<u32>> {
        let expires = prop_oneof![Just(NEVER), 1u64..50];
        (0u32..300, 0u32..20, expires).prop_map(|(first, more, expires_ms)| Element {
            first,
            last: first + more,
            expires_ms,
        })
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(Vec<Element<u32>>),
        Remove(Vec<prop::sample::Index>),
        Expire(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => prop::collection::vec(element(), 1..4).prop_map(Step::Add),
            1 => prop::collection::vec(element(), 1..60).prop_map(Step::Add),
            2 => prop::collection::vec(any::<prop::sample::Index>(), 1..6).prop_map(Step::Remove),
            1 => (1u64..50).prop_map(Step::Expire),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn elements_and_their_union_follow_every_change(steps in prop::collection::vec(step(), 1..40)) {
            let mut model = BTreeMap::new();
            let mut elements = Elements::<u32>::default();
            for step in steps {
                let before = elements.clone();
                let listed: Vec<_> = before.iter().collect();
                match step {
                    Step::Add(added) => {
                        elements.add(&added);
                        model.extend(added.iter().map(|one| ((one.first, one.last), one.expires_ms)));
                    }
                    Step::Remove(places) if !model.is_empty() => {
                        let keys: Vec<_> = model.keys().copied().collect();
                        let ends: Vec<_> = places.iter().map(|place| keys[place.index(keys.len())]).collect();
                        prop_assert_eq!(elements.missing(&ends), None);
                        elements.remove(&ends);
                        prop_assert_eq!(elements.missing(&[ends[0]]), Some(ends[0]));
                        ends.iter().for_each(|ends| _ = model.remove(ends));
                    }
                    Step::Remove(_) => {}
                    Step::Expire(now_ms) => {
                        let due = model.values().filter(|expires| **expires <= now_ms).count();
                        prop_assert_eq!(elements.expire(now_ms), due);
                        model.retain(|_, expires| *expires > now_ms);
                    }
                }
                let expected = model.iter().map(|(&(first, last), &expires_ms)| Element { first, last, expires_ms });
                prop_assert!(elements.iter().eq(expected));
                prop_assert_eq!(elements.len(), model.len());
                prop_assert_eq!(elements.expires_ms(), model.values().min().copied().unwrap_or(NEVER));
                for n in 0..330 {
                    let has = model.keys().any(|(first, last)| (*first..=*last).contains(&n));
                    prop_assert_eq!(elements.index().contains(n), has, "{}", n);
                }
                // What was handed out before does not change.
                prop_assert!(before.iter().eq(listed.iter().copied()));
                let now: Vec<_> = elements.iter().collect();
                let gone = listed.iter().filter(|one| !model.contains_key(&(one.first, one.last)));
                let gone = gone.map(|one| ElementChange::Removed(*one));
                let new = now.iter().filter(|one| !listed.contains(one)).map(|one| ElementChange::Added(*one));
                let mut changes: Vec<_> = Elements::changes(&before, &elements).collect();
                prop_assert_eq!(before == elements, changes.is_empty());
                changes.sort_by_key(|change| matches!(change, ElementChange::Added(_)));
                prop_assert_eq!(changes, gone.chain(new).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn one_of_many_is_changed_by_itself() {
        let many: Vec<_> = (0..100_000u32).map(|n| Element::of(n * 8, n * 8 + 3)).collect();
        let mut elements = Elements::default();
        elements.add(&many);
        let before = elements.clone();
        elements.add(&[Element::of(8 * 500 + 2, 8 * 501)]);
        assert!(elements.index().contains(8 * 500 + 5) && !before.index().contains(8 * 500 + 5));
        let shared =
            elements.chunks.iter().filter(|chunk| before.chunks.iter().any(|old| Arc::ptr_eq(chunk, old)));
        assert_eq!(shared.count(), before.chunks.len() - 1);
        let changes: Vec<_> = Elements::changes(&before, &elements).collect();
        assert_eq!(changes, [ElementChange::Added(Element::of(8 * 500 + 2, 8 * 501))]);
        elements.remove(&[(8 * 500 + 2, 8 * 501)]);
        assert!(elements == before && elements.index().iter().eq(before.index().iter()));
        elements.restart_clock(0, 5);
        assert!(elements == before, "elements without a timeout expire never");
    }
}

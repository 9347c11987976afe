//! Ports: the request of a mapping, the ports in use on an outside address, and the search for a free one.

use crate::addresses::ValueSet;
use crate::random::NatRandom;
use mmb_base::prefetch;
use mmb_policy::Intervals;
use std::ops::Deref;
use std::sync::Arc;

/// The ports or identifiers that a mapping allows. Copies share the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping {
    kind: PortMappingKind,
    ranges: PortRanges,
    /// The same as a set of values, for load balancing.
    values: ValueSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortMappingKind {
    Fixed,
    Within,
    Shuffled,
}

/// Ranges of ports, both ends included, in order and disjoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PortRanges(Arc<[(u16, u16)]>);

impl Deref for PortRanges {
    type Target = [(u16, u16)];

    fn deref(&self) -> &[(u16, u16)] {
        &self.0
    }
}

impl PortMapping {
    /// Always this port.
    pub fn fixed(port: u16) -> PortMapping {
        PortMapping::new(PortMappingKind::Fixed, &[(port, port)])
    }

    /// A port of these ranges, both ends included: the packet's own if it is in range and free, otherwise a
    /// random free one.
    pub fn within(ranges: &[(u16, u16)]) -> PortMapping {
        PortMapping::new(PortMappingKind::Within, ranges)
    }

    /// A port of these ranges, for load balancing by the weights of the ports.
    pub fn weighted(ranges: &[((u128, u128), u8)]) -> PortMapping {
        let ports: Vec<_> = ranges.iter().map(|((low, high), _)| (*low as u16, *high as u16)).collect();
        PortMapping { values: ValueSet::weighted(ranges), ..PortMapping::within(&ports) }
    }

    /// A random free port of this range, both ends included.
    pub fn shuffled(low: u16, high: u16) -> PortMapping {
        PortMapping::new(PortMappingKind::Shuffled, &[(low, high)])
    }

    fn new(kind: PortMappingKind, ranges: &[(u16, u16)]) -> PortMapping {
        let ranges = ranges.iter().filter(|(low, high)| low <= high);
        let joined: Intervals = ranges.map(|&(low, high)| (u128::from(low), u128::from(high))).collect();
        let ranges = joined.as_slice().iter().map(|&(low, high)| (low as u16, high as u16)).collect();
        PortMapping { kind, ranges: PortRanges(ranges), values: ValueSet::new(joined.as_slice().to_vec()) }
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.kind == PortMappingKind::Fixed
    }

    pub(super) fn is_shuffled(&self) -> bool {
        self.kind == PortMappingKind::Shuffled
    }

    /// Whether the packet's own port is kept if possible.
    pub(super) fn keeps_own_port(&self) -> bool {
        self.kind == PortMappingKind::Within
    }

    pub(super) fn ranges(&self) -> &PortRanges {
        &self.ranges
    }

    pub(super) fn values(&self) -> &ValueSet {
        &self.values
    }
}

/// The port that a new binding requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortRequest<'a> {
    /// The allowed ranges, in order and disjoint.
    pub(super) ranges: &'a [(u16, u16)],
    /// Preferred ports, in this order, if they are within the ranges and free.
    pub(super) preferred: [Option<u16>; 2],
    /// Whether an odd or an even port is preferred. If no port of that parity is free, any port is taken.
    pub(super) odd: Option<bool>,
}

/// The result of a search for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortSearch {
    Port(u16),
    /// All ports of the ranges are in use.
    Full,
    /// There are free ports, but connections without a binding use those that were tried.
    Taken,
}

/// The maximum number of free ports of a parity that a search checks with its caller.
const TRIES: usize = 64;

impl PortRequest<'_> {
    /// A free port: a preferred one, otherwise a random one (RFC 6056, section 3.3.1).
    pub(super) fn find(
        &self,
        used: &UsedPorts,
        secrets: &mut NatRandom,
        taken: &mut dyn FnMut(u16) -> bool,
    ) -> PortSearch {
        for port in self.preferred.into_iter().flatten() {
            if within(self.ranges, port) && !used.contains(port) && !taken(port) {
                return PortSearch::Port(port);
            }
        }
        let Some(start) = random(self.ranges, secrets) else { return PortSearch::Full };
        let mut seen = false;
        for odd in [self.odd, None] {
            let (mut from, mut first) = (start, None);
            for _ in 0..TRIES {
                let Some(port) = free_from(used, self.ranges, from, odd) else { break };
                if first == Some(port) {
                    break;
                }
                if !taken(port) {
                    return PortSearch::Port(port);
                }
                seen = true;
                first.get_or_insert(port);
                from = port.wrapping_add(1);
            }
            if odd.is_none() {
                break;
            }
        }
        if seen { PortSearch::Taken } else { PortSearch::Full }
    }
}

/// Whether a port is in one of the ranges.
pub(super) fn within(ranges: &[(u16, u16)], port: u16) -> bool {
    ranges.iter().any(|(low, high)| (*low..=*high).contains(&port))
}

/// A random port of disjoint ranges.
pub(super) fn random(ranges: &[(u16, u16)], secrets: &mut NatRandom) -> Option<u16> {
    let len = |(low, high): &(u16, u16)| u64::from(high - low) + 1;
    let total = ranges.iter().map(len).sum::<u64>();
    let mut rank = if total == 0 { return None } else { secrets.below(total) };
    ranges.iter().find_map(|range| {
        let port = (rank < len(range)).then(|| range.0 + rank as u16);
        rank = rank.saturating_sub(len(range));
        port
    })
}

/// Number of ports in disjoint ranges.
pub(super) fn size(ranges: &[(u16, u16)]) -> usize {
    ranges.iter().map(|(low, high)| usize::from(high - low) + 1).sum()
}

/// Number of bits that are set in a range.
fn ones(words: &[u64; WORDS], (low, high): (u16, u16)) -> usize {
    let (first, last) = (usize::from(low / 64), usize::from(high / 64));
    let count_word = |place: usize| {
        let above = if place == first { u64::MAX << (low % 64) } else { u64::MAX };
        let below = if place == last { u64::MAX >> (63 - high % 64) } else { u64::MAX };
        (words[place] & above & below).count_ones() as usize
    };
    (first..=last).map(count_word).sum()
}

/// The first free port at or after `start`, otherwise before it.
fn free_from(used: &UsedPorts, ranges: &[(u16, u16)], start: u16, odd: Option<bool>) -> Option<u16> {
    let after =
        ranges.iter().filter(|(_, high)| *high >= start).map(|(low, high)| ((*low).max(start), *high));
    let before =
        ranges.iter().filter(|(low, _)| *low < start).map(|(low, high)| (*low, (*high).min(start - 1)));
    after.chain(before).find_map(|(low, high)| used.first_free(low, high, odd))
}

/// The ports of one outside address and protocol that bindings use.
#[derive(Debug)]
pub(super) enum UsedPorts {
    /// Sorted.
    Sorted(Vec<u16>),
    /// A bit for each port, and the number of ports.
    Bitmap(Box<[u64; WORDS]>, u32),
}

impl Default for UsedPorts {
    fn default() -> UsedPorts {
        UsedPorts::new()
    }
}

const WORDS: usize = 1024;
/// From this number of ports on, a bit per port is cheaper to search.
const MAX_LISTED: usize = 96;

impl UsedPorts {
    pub(super) fn new() -> UsedPorts {
        UsedPorts::Sorted(Vec::new())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            UsedPorts::Sorted(ports) => ports.len(),
            UsedPorts::Bitmap(_, count) => *count as usize,
        }
    }

    /// Number of ports in use in disjoint ranges.
    pub(super) fn count_within(&self, ranges: &[(u16, u16)]) -> usize {
        match self {
            UsedPorts::Sorted(ports) => ports.iter().filter(|port| within(ranges, **port)).count(),
            UsedPorts::Bitmap(words, _) => ranges.iter().map(|range| ones(words, *range)).sum(),
        }
    }

    /// Prefetches the record of a port.
    #[inline]
    pub(super) fn prefetch(&self, port: u16) {
        if let UsedPorts::Bitmap(words, _) = self {
            prefetch(&words[usize::from(port / 64)]);
        }
    }

    pub(super) fn contains(&self, port: u16) -> bool {
        match self {
            UsedPorts::Sorted(ports) => ports.binary_search(&port).is_ok(),
            UsedPorts::Bitmap(words, _) => words[usize::from(port / 64)] >> (port % 64) & 1 == 1,
        }
    }

    /// Reserves memory for one more port. Returns false if memory is exhausted.
    #[must_use]
    pub(super) fn reserve(&mut self) -> bool {
        let UsedPorts::Sorted(ports) = self else { return true };
        if ports.len() < MAX_LISTED {
            return ports.try_reserve(1).is_ok();
        }
        let mut words = Vec::new();
        if words.try_reserve_exact(WORDS).is_err() {
            return false;
        }
        words.resize(WORDS, 0_u64);
        let Ok(mut words) = <Box<[u64; WORDS]>>::try_from(words.into_boxed_slice()) else { return false };
        for port in ports.iter() {
            words[usize::from(port / 64)] |= 1 << (port % 64);
        }
        *self = UsedPorts::Bitmap(words, ports.len() as u32);
        true
    }

    /// Takes a free port. [`UsedPorts::reserve`] must be called before.
    pub(super) fn insert(&mut self, port: u16) {
        match self {
            UsedPorts::Sorted(ports) => {
                let place = ports.partition_point(|other| *other < port);
                ports.insert(place, port);
            }
            UsedPorts::Bitmap(words, count) => {
                words[usize::from(port / 64)] |= 1 << (port % 64);
                *count += 1;
            }
        }
    }

    /// Releases a port.
    pub(super) fn remove(&mut self, port: u16) {
        match self {
            UsedPorts::Sorted(ports) => {
                if let Ok(place) = ports.binary_search(&port) {
                    ports.remove(place);
                }
            }
            UsedPorts::Bitmap(words, count) => {
                words[usize::from(port / 64)] &= !(1 << (port % 64));
                *count -= 1;
                // This is half of the size at which the set was converted. So a port that is taken and
                // released does not convert the set back and forth.
                let mut list = Vec::new();
                if *count as usize == MAX_LISTED / 2 && list.try_reserve(MAX_LISTED / 2).is_ok() {
                    list.extend(ports_of(words));
                    *self = UsedPorts::Sorted(list);
                }
            }
        }
    }

    /// The lowest free port between the two, both included.
    pub(super) fn first_free(&self, low: u16, high: u16, odd: Option<bool>) -> Option<u16> {
        match self {
            UsedPorts::Sorted(ports) => first_gap(ports, low, high, odd),
            UsedPorts::Bitmap(words, _) => first_clear(words, low, high, odd),
        }
    }
}

/// The ports whose bits are set, in order.
fn ports_of(words: &[u64; WORDS]) -> impl Iterator<Item = u16> + '_ {
    (0..).zip(words).flat_map(|(index, &word): (u16, _)| {
        let mut left: u64 = word;
        std::iter::from_fn(move || {
            let bit = left.trailing_zeros() as u16;
            left &= left.checked_sub(1)?;
            Some(index * 64 + bit)
        })
    })
}

fn first_gap(ports: &[u16], low: u16, high: u16, odd: Option<bool>) -> Option<u16> {
    let (mut port, step) = match odd {
        Some(odd) => (u32::from(low) + u32::from((low % 2 == 1) != odd), 2),
        None => (u32::from(low), 1),
    };
    let mut rest = &ports[ports.partition_point(|used| u32::from(*used) < port)..];
    while port <= u32::from(high) {
        while rest.first().is_some_and(|used| u32::from(*used) < port) {
            rest = &rest[1..];
        }
        if rest.first().is_none_or(|used| u32::from(*used) != port) {
            return Some(port as u16);
        }
        port += step;
    }
    None
}

fn first_clear(words: &[u64; WORDS], low: u16, high: u16, odd: Option<bool>) -> Option<u16> {
    let wanted = match odd {
        Some(false) => 0x5555_5555_5555_5555,
        Some(true) => 0xAAAA_AAAA_AAAA_AAAA,
        None => u64::MAX,
    };
    let (from, to) = (low / 64, high / 64);
    (from..=to).find_map(|index| {
        let mut free = !words[usize::from(index)] & wanted;
        if index == from {
            free &= u64::MAX << (low % 64);
        }
        if index == to {
            free &= u64::MAX >> (63 - high % 64);
        }
        (free != 0).then(|| index * 64 + free.trailing_zeros() as u16)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn few_and_many_are_one_set(steps in proptest::collection::vec((any::<bool>(), 1000_u16..1300), 0..600), low in 990_u16..1310, more in 0_u16..300) {
            let (mut used, mut plain) = (UsedPorts::new(), BTreeSet::new());
            for (take, port) in steps {
                match take {
                    true if plain.insert(port) => { assert!(used.reserve()); used.insert(port) },
                    false if plain.remove(&port) => used.remove(port),
                    _ => {}
                }
                prop_assert_eq!(used.contains(port), plain.contains(&port));
                prop_assert_eq!(used.len(), plain.len());
            }
            prop_assert_eq!(
                used.count_within(&[(low, low + more)]),
                (low..=low + more).filter(|port| plain.contains(port)).count()
            );
            for odd in [None, Some(true), Some(false)] {
                let expected = (low..=low + more).find(|port| !plain.contains(port) && odd.is_none_or(|odd| (port % 2 == 1) == odd));
                prop_assert_eq!(used.first_free(low, low + more, odd), expected);
            }
        }
    }

    #[test]
    fn the_last_free_port_is_found_from_anywhere() {
        let mut used = UsedPorts::new();
        (0..=u16::MAX).filter(|port| *port != 7).for_each(|port| {
            assert!(used.reserve());
            used.insert(port)
        });
        let mut secrets = NatRandom::new(mmb_random::Seed::repeatable(1));
        let request = |ranges| PortRequest { ranges, preferred: [None; 2], odd: Some(false) };
        assert_eq!(request(&[(0, u16::MAX)]).find(&used, &mut secrets, &mut |_| false), PortSearch::Port(7));
        assert_eq!(request(&[(0, u16::MAX)]).find(&used, &mut secrets, &mut |_| true), PortSearch::Taken);
        assert_eq!(
            request(&[(0, 6), (8, u16::MAX)]).find(&used, &mut secrets, &mut |_| false),
            PortSearch::Full
        );
        assert!(used.reserve());
        used.insert(7);
        assert_eq!(request(&[(0, u16::MAX)]).find(&used, &mut secrets, &mut |_| false), PortSearch::Full);
    }

    #[test]
    fn ranges_are_put_in_order_and_joined() {
        assert_eq!(**PortMapping::within(&[(9, 12), (5, 3), (1, 4), (5, 6)]).ranges(), [(1, 6), (9, 12)]);
        assert_eq!(**PortMapping::within(&[(0, u16::MAX), (u16::MAX, u16::MAX)]).ranges(), [(0, u16::MAX)]);
    }
}

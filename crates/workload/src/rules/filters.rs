//! Filter sets like those of ClassBench (Taylor and Turner, INFOCOM 2005): clustered addresses, few distinct prefixes that recur,
//! ports in the paper's five classes, order as priority. Three kinds as there: access lists, firewalls, IP chains. The shares are
//! our own, modelled on the published sets; this is no reimplementation of their generator.

use super::{RuleIter, TRANSPORTS, between, equal, ports_of, prefix, rule};
use crate::allocation::Allocation;
use mmb_packet::proto::{ICMP, TCP, UDP};
use mmb_policy::{FieldId, Match, Rule};
use mmb_random::RepeatableRandom;

/// The kind of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Access lists: towards servers, mostly exact destination ports.
    AccessList,
    /// Firewalls: many wildcards, many ranges.
    Firewall,
    /// IP chains: a mixture.
    Chain,
}

/// The classes of ports of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortClass {
    Wildcard,
    High,
    Low,
    Range,
    Exact,
}

/// The properties of a kind, in shares.
struct FlavourShares {
    source: &'static [(u8, u32)],
    destination: &'static [(u8, u32)],
    sport: &'static [(PortClass, u32)],
    dport: &'static [(PortClass, u32)],
}

use PortClass::{Exact, High, Low, Range, Wildcard};

const ACCESS_LIST: FlavourShares = FlavourShares {
    source: &[
        (0, 4),
        (16, 4),
        (20, 4),
        (21, 3),
        (22, 5),
        (23, 6),
        (24, 14),
        (25, 4),
        (26, 4),
        (27, 6),
        (28, 10),
        (30, 6),
        (32, 30),
    ],
    destination: &[
        (16, 1),
        (20, 2),
        (22, 2),
        (24, 6),
        (26, 2),
        (27, 3),
        (28, 4),
        (29, 3),
        (30, 3),
        (31, 2),
        (32, 72),
    ],
    sport: &[(Wildcard, 97), (High, 1), (Exact, 2)],
    dport: &[(Wildcard, 12), (High, 3), (Range, 10), (Exact, 75)],
};
const FIREWALL: FlavourShares = FlavourShares {
    source: &[
        (0, 40),
        (8, 2),
        (16, 6),
        (20, 3),
        (22, 3),
        (24, 14),
        (26, 2),
        (27, 3),
        (28, 3),
        (30, 2),
        (32, 22),
    ],
    destination: &[(0, 30), (8, 2), (16, 6), (20, 3), (24, 16), (25, 2), (27, 3), (28, 4), (29, 2), (32, 32)],
    sport: &[(Wildcard, 40), (High, 30), (Low, 1), (Range, 4), (Exact, 25)],
    dport: &[(Wildcard, 22), (High, 16), (Low, 2), (Range, 10), (Exact, 50)],
};
const CHAIN: FlavourShares = FlavourShares {
    source: &[
        (0, 6),
        (8, 2),
        (16, 8),
        (19, 3),
        (20, 4),
        (22, 5),
        (23, 4),
        (24, 16),
        (26, 4),
        (28, 8),
        (30, 4),
        (32, 36),
    ],
    destination: &[
        (0, 6),
        (8, 2),
        (16, 6),
        (20, 4),
        (21, 3),
        (23, 4),
        (24, 18),
        (26, 4),
        (28, 8),
        (29, 5),
        (32, 40),
    ],
    sport: &[(Wildcard, 58), (High, 12), (Low, 1), (Range, 4), (Exact, 25)],
    dport: &[(Wildcard, 28), (High, 8), (Low, 1), (Range, 8), (Exact, 55)],
};
const PROTOCOLS: [(u8, u32); 5] = [(TCP, 68), (UDP, 22), (ICMP, 4), (47, 1), (0, 5)];
const SERVICES: [u16; 16] =
    [80, 443, 53, 25, 22, 110, 143, 123, 1521, 1433, 6000, 3306, 5540, 8080, 31_000, 69];

/// The share of filters that may be wide on both sides, among those that are wide on one.
const WIDE: f64 = 0.003;

/// Addresses and prefix lengths that filters share.
type PrefixPool = Vec<(u32, u8)>;

/// `size` filters.
pub(crate) fn rules(flavour: Flavour, size: usize, mut random: RepeatableRandom) -> RuleIter {
    let style = match flavour {
        Flavour::AccessList => &ACCESS_LIST,
        Flavour::Firewall => &FIREWALL,
        Flavour::Chain => &CHAIN,
    };
    let allocation = Allocation::new(&mut random);
    let pool = |lengths: &[(u8, u32)], random: &mut RepeatableRandom| -> PrefixPool {
        (0..size.div_ceil(8)).map(|_| (allocation.address(random), random.weighted(lengths))).collect()
    };
    let (sources, destinations) = (pool(style.source, &mut random), pool(style.destination, &mut random));
    Box::new((0..size).map(move |number| {
        let matches = matches(style, &sources, &destinations, &mut random);
        Rule { prio: number as u32, ..rule(matches) }
    }))
}

fn matches(
    style: &FlavourShares,
    sources: &PrefixPool,
    destinations: &PrefixPool,
    random: &mut RepeatableRandom,
) -> Vec<Match> {
    let one = |pool: &PrefixPool, random: &mut RepeatableRandom| {
        // Half by popularity, half uniformly, because the published sets use a few prefixes in most filters.
        let count = pool.len() as u64;
        pool[if random.chance(0.5) { random.zipf(count) } else { random.below(count) } as usize]
    };
    let source = one(sources, random);
    let mut destination = one(destinations, random);
    // Filters that are wide on both sides are few: they come last and match the remaining packets.
    while source.1 < 16 && destination.1 < 16 && !random.chance(WIDE) {
        destination = one(destinations, random);
    }
    let mut matches: Vec<Match> = Vec::new();
    matches.extend(prefix(FieldId::IpSaddr, source.0.into(), source.1, 32));
    matches.extend(prefix(FieldId::IpDaddr, destination.0.into(), destination.1, 32));
    let proto = random.weighted(&PROTOCOLS);
    if !TRANSPORTS.contains(&proto) {
        // 0 means any protocol; a rule without constraints would match everything.
        if proto != 0 || matches.is_empty() {
            matches.push(equal(FieldId::IpProto, if proto == 0 { ICMP } else { proto }.into()));
        }
        return matches;
    }
    let (sport, dport) = ports_of(proto);
    let before = matches.len();
    matches.extend(ports(sport, random.weighted(style.sport), random));
    matches.extend(ports(dport, random.weighted(style.dport), random));
    if matches.len() == before {
        matches.push(equal(FieldId::IpProto, proto.into()));
    }
    matches
}

fn ports(field: FieldId, class: PortClass, random: &mut RepeatableRandom) -> Option<Match> {
    match class {
        Wildcard => None,
        High => Some(between(field, 1024, 65_535)),
        Low => Some(between(field, 0, 1023)),
        Range => {
            let width = random.log_uniform(2, 2048);
            let first = random.below(65_536 - width);
            Some(between(field, first.into(), (first + width - 1).into()))
        }
        Exact if random.chance(0.7) => Some(equal(field, random.of(&SERVICES).into())),
        Exact => Some(equal(field, random.below(65_536).into())),
    }
}

//! Outside addresses: which one an inside address gets, and which ports of them are free.
//!
//! An inside address keeps its outside address while it has any binding (RFC 4787, REQ-2). Addresses on which a kind of
//! request found no port are shut for that kind until a port of theirs is given back, so that an exhausted pool is known as
//! such at once, however large it is.

use super::addresses::Addresses;
use super::bindings::{Inside, Outside};
use super::interned::Interned;
use super::open::Open;
use super::ports::{Found, Used, Wish};
use super::random::{Secrets, scale};
use super::shards::Shards;
use crate::Tuple;
use crate::hash::Hasher;
use std::collections::HashMap;

/// What the source side of a mapping asks for. Rules that ask for the same share their bindings.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) addresses: Option<Addresses>,
    pub(super) ranges: Option<Vec<(u16, u16)>>,
}

/// Requests that find the same ports free or none: see [`Pools`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    target: u32,
    wire: u16,
    proto: u8,
    family: u8,
    /// Which of the range classes the port has to stay in.
    class: u8,
}

/// Why there is no outside end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exhausted {
    /// The pool has no address.
    NoAddress,
    /// No address that the inside end may have has a free port.
    NoPort,
}

/// An outside address that bindings use.
struct End {
    outside: Outside,
    used: Used,
    /// For whom the address is shut, and its number there.
    shut_for: Vec<(Kind, u64)>,
}

/// Which outside address an inside address has.
struct Pair {
    inside: Place,
    index: u64,
    bindings: u32,
}

/// An inside address as one target sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    address: u128,
    target: u32,
    wire: u16,
    family: u8,
}

impl Place {
    fn of(inside: &Inside) -> Place {
        Place { address: inside.address, target: inside.target, wire: inside.wire, family: inside.family }
    }

    fn hash(&self, hasher: &Hasher) -> u64 {
        let Place { address, target, wire, family } = *self;
        hasher.hash(&Tuple {
            addresses: [address, u128::from(target)],
            ports: [0; 2],
            wire,
            proto: 0,
            family,
        })
    }
}

/// All outside ends.
pub(super) struct Pools {
    hasher: Hasher,
    ends: Shards<End>,
    pairs: Shards<Pair>,
    /// What ends in use were asked for with, and kinds for which an address is shut.
    pub(super) targets: Interned<Target, ()>,
    /// Kinds for which some address is shut.
    kinds: HashMap<Kind, Open>,
}

/// How many addresses one request looks at.
const ADDRESSES: usize = 64;
/// Of how many all free ports may be taken by connections without a binding.
const TAKEN: usize = 4;

impl Pools {
    pub(super) fn new(hasher: Hasher) -> Pools {
        Pools {
            hasher,
            ends: Shards::new(),
            pairs: Shards::new(),
            targets: Interned::new(),
            kinds: HashMap::new(),
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.ends.memory() + self.pairs.memory()
    }

    /// How many outside addresses, inside addresses and kinds are known.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> (usize, usize, usize) {
        (self.ends.len(), self.pairs.len(), self.kinds.len())
    }

    /// A free end for an inside end that has none, with a port that `taken` does not object to, in use from now on.
    pub(super) fn take(
        &mut self,
        inside: &Inside,
        addresses: &Addresses,
        (class, wish): (u8, &Wish<'_>),
        secrets: &mut Secrets,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Result<(u128, u16), Exhausted> {
        if addresses.is_empty() {
            return Err(Exhausted::NoAddress);
        }
        let Inside { target, wire, proto, family, .. } = *inside;
        let kind = Kind { target, wire, proto, family, class };
        let place = Place::of(inside);
        let hash = place.hash(&self.hasher);
        let (mut index, tries) = match self.pair_of(&place, hash) {
            Some(index) => (index, 1),
            None => (self.favourite(hash, &kind, addresses.len()).ok_or(Exhausted::NoPort)?, ADDRESSES),
        };
        let mut objections = 0;
        for _ in 0..tries {
            if self.open(&kind).is_some_and(|open| !open.is_open(index)) {
                return Err(Exhausted::NoPort);
            }
            let outside = Outside { address: addresses.nth(index), wire, proto, family };
            match self.port(outside, wish, secrets, taken) {
                Found::Port(port) => {
                    self.targets.hold_number(target);
                    self.pair(place, hash, index);
                    return Ok((outside.address, port));
                }
                Found::Full => self.shut(kind, outside, index, addresses.len()),
                Found::Taken => objections += 1,
            }
            let open = self.open(&kind).map_or(addresses.len(), Open::count);
            if open == 0 || objections == TAKEN {
                break;
            }
            let rank = secrets.below(open);
            index = self.open(&kind).map_or(rank, |open| open.nth(rank));
        }
        Err(Exhausted::NoPort)
    }

    /// A free port of the inside end's own address, which belongs to no pool.
    pub(super) fn take_own(
        &mut self,
        inside: &Inside,
        wish: &Wish<'_>,
        secrets: &mut Secrets,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Result<(u128, u16), Exhausted> {
        let Inside { address, target, wire, proto, family, .. } = *inside;
        match self.port(Outside { address, wire, proto, family }, wish, secrets, taken) {
            Found::Port(port) => {
                self.targets.hold_number(target);
                Ok((address, port))
            }
            Found::Full | Found::Taken => Err(Exhausted::NoPort),
        }
    }

    /// Takes the end that an inside end had, of a pool or, without `addresses`, its own address. False if it is in use, or no
    /// end of the pool.
    pub(super) fn take_again(
        &mut self,
        inside: &Inside,
        addresses: Option<&Addresses>,
        address: u128,
        port: u16,
        secrets: &mut Secrets,
    ) -> bool {
        let place = Place::of(inside);
        let hash = place.hash(&self.hasher);
        let index = match addresses {
            None if address == inside.address => None,
            None => return false,
            Some(addresses) => match (addresses.index_of(address), self.pair_of(&place, hash)) {
                (Some(index), None) => Some(index),
                (Some(index), Some(pair)) if pair == index => Some(index),
                _ => return false,
            },
        };
        let Inside { target, wire, proto, family, .. } = *inside;
        let wish = Wish { ranges: &[(port, port)], first: [Some(port), None], odd: None };
        let outside = Outside { address, wire, proto, family };
        if !matches!(self.port(outside, &wish, secrets, &|_, _| false), Found::Port(_)) {
            return false;
        }
        self.targets.hold_number(target);
        if let Some(index) = index {
            self.pair(place, hash, index);
        }
        true
    }

    /// Gives an end back.
    pub(super) fn give_back(&mut self, inside: &Inside, outside: &Outside, port: u16) {
        let hasher = &self.hasher;
        let hash = outside.hash(0, hasher);
        let Some(end) = self.ends.find_mut(hash, |end| end.outside == *outside) else { return };
        end.used.remove(port);
        for (kind, index) in end.shut_for.drain(..) {
            let Some(open) = self.kinds.get_mut(&kind) else { continue };
            open.reopen(index);
            if open.all_open() {
                self.kinds.remove(&kind);
                self.targets.release(kind.target);
            }
        }
        if end.used.len() == 0 {
            self.ends.remove(hash, |end| end.outside == *outside, |end| end.outside.hash(0, hasher));
        }
        let place = Place::of(inside);
        let hash = place.hash(&self.hasher);
        if let Some(pair) = self.pairs.find_mut(hash, |pair| pair.inside == place) {
            pair.bindings -= 1;
            if pair.bindings == 0 {
                self.pairs.remove(hash, |pair| pair.inside == place, |pair| pair.inside.hash(hasher));
            }
        }
        self.targets.release(inside.target);
    }

    /// The number of the outside address that an inside address has, or would have.
    pub(super) fn index_for(&self, inside: &Inside, addresses: &Addresses) -> u64 {
        let place = Place::of(inside);
        let hash = place.hash(&self.hasher);
        self.pair_of(&place, hash).unwrap_or_else(|| scale(hash, addresses.len()))
    }

    fn pair_of(&self, place: &Place, hash: u64) -> Option<u64> {
        Some(self.pairs.find(hash, |pair| pair.inside == *place)?.index)
    }

    fn pair(&mut self, place: Place, hash: u64, index: u64) {
        let hasher = &self.hasher;
        let pair = self.pairs.entry(
            hash,
            |pair| pair.inside == place,
            |pair| pair.inside.hash(hasher),
            || Pair { inside: place, index, bindings: 0 },
        );
        pair.bindings += 1;
    }

    /// An address that is not shut; the same one for an inside address, of this `hash`, whenever it comes while none is.
    fn favourite(&self, hash: u64, kind: &Kind, addresses: u64) -> Option<u64> {
        let index = scale(hash, addresses);
        match self.open(kind) {
            None => Some(index),
            Some(open) if open.count() == 0 => None,
            Some(open) if open.is_open(index) => Some(index),
            Some(open) => Some(open.nth(scale(hash, open.count()))),
        }
    }

    /// Which addresses are open for a kind, unless all are.
    fn open(&self, kind: &Kind) -> Option<&Open> {
        if self.kinds.is_empty() { None } else { self.kinds.get(kind) }
    }

    fn port(
        &mut self,
        outside: Outside,
        wish: &Wish<'_>,
        secrets: &mut Secrets,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Found {
        let (hash, hasher) = (outside.hash(0, &self.hasher), &self.hasher);
        let mut taken = |port| taken(outside.address, port);
        if let Some(end) = self.ends.find_mut(hash, |end| end.outside == outside) {
            let found = wish.find(&end.used, secrets, &mut taken);
            if let Found::Port(port) = found {
                end.used.insert(port);
            }
            return found;
        }
        let mut used = Used::new();
        let found = wish.find(&used, secrets, &mut taken);
        if let Found::Port(port) = found {
            used.insert(port);
            self.ends
                .insert(hash, End { outside, used, shut_for: Vec::new() }, |end| end.outside.hash(0, hasher));
        }
        found
    }

    fn shut(&mut self, kind: Kind, outside: Outside, index: u64, addresses: u64) {
        // What is full has an end: only an address without ports in the ranges has none, and that is asked for by no one.
        if let Some(end) = self.ends.find_mut(outside.hash(0, &self.hasher), |end| end.outside == outside) {
            end.shut_for.push((kind, index));
            let open = self.kinds.entry(kind).or_insert_with(|| {
                self.targets.hold_number(kind.target);
                Open::new(addresses)
            });
            open.shut(index);
        }
    }
}

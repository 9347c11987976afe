//! Outside addresses: which one an inside address gets, and which ports of them are free.
//!
//! An inside address keeps its outside address while it has any binding (RFC 4787, REQ-2). Addresses on which a kind of
//! request found no port are shut for that kind until a port of theirs is given back, so that an exhausted pool is known as
//! such at once, however large it is.

use super::addresses::Addresses;
use super::bindings::{Inside, Outside};
use super::open::Open;
use super::ports::{Found, Used, Wish};
use super::random::{Key, Secrets, scale};
use super::shards::Shards;
use std::collections::HashMap;

/// Requests that find the same ports free or none: see [`Pools`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) target: u32,
    pub(super) wire: u16,
    pub(super) proto: u8,
    /// Which of the range classes the port has to stay in.
    pub(super) class: u8,
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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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
}

/// All outside ends.
pub(super) struct Pools {
    key: Key,
    ends: Shards<End>,
    pairs: Shards<Pair>,
    /// Kinds for which some address is shut.
    kinds: HashMap<Kind, Open>,
}

/// How many addresses one request looks at.
const ADDRESSES: usize = 64;
/// Of how many all free ports may be taken by connections without a binding.
const TAKEN: usize = 4;

impl Pools {
    pub(super) fn new(key: Key) -> Pools {
        Pools { key, ends: Shards::new(), pairs: Shards::new(), kinds: HashMap::new() }
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
        let kind = Kind { target: inside.target, wire: inside.wire, proto: inside.proto, class };
        let paired = self.pair_of(inside);
        let (mut index, tries) = match paired {
            Some(index) => (index, 1),
            None => (self.favourite(inside, &kind, addresses)?, ADDRESSES),
        };
        let mut objections = 0;
        for _ in 0..tries {
            if self.kinds.get(&kind).is_some_and(|open| !open.is_open(index)) {
                return Err(Exhausted::NoPort);
            }
            let outside = Outside {
                address: addresses.nth(index),
                wire: inside.wire,
                proto: inside.proto,
                family: inside.family,
            };
            match self.port(outside, wish, secrets, taken) {
                Found::Port(port) => {
                    self.pair(inside, index);
                    return Ok((outside.address, port));
                }
                Found::Full => self.shut(kind, outside, index, addresses.len()),
                Found::Taken => objections += 1,
            }
            let open = self.kinds.get(&kind).map_or(addresses.len(), Open::count);
            if open == 0 || objections == TAKEN {
                break;
            }
            let rank = secrets.below(open);
            index = self.kinds.get(&kind).map_or(rank, |open| open.nth(rank));
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
        let Inside { address, wire, proto, family, .. } = *inside;
        match self.port(Outside { address, wire, proto, family }, wish, secrets, taken) {
            Found::Port(port) => Ok((address, port)),
            Found::Full | Found::Taken => Err(Exhausted::NoPort),
        }
    }

    /// Gives an end back.
    pub(super) fn give_back(&mut self, inside: &Inside, outside: &Outside, port: u16) {
        let hash = self.key.of(outside);
        let Some(end) = self.ends.find_mut(hash, |end| end.outside == *outside) else { return };
        end.used.remove(port);
        for (kind, index) in end.shut_for.drain(..) {
            let Some(open) = self.kinds.get_mut(&kind) else { continue };
            open.reopen(index);
            if open.all_open() {
                self.kinds.remove(&kind);
            }
        }
        if end.used.len() == 0 {
            self.ends.remove(hash, |end| end.outside == *outside);
        }
        let place = Place::of(inside);
        let hash = self.key.of(&place);
        if let Some(pair) = self.pairs.find_mut(hash, |pair| pair.inside == place) {
            pair.bindings -= 1;
            if pair.bindings == 0 {
                self.pairs.remove(hash, |pair| pair.inside == place);
            }
        }
    }

    /// The number of the outside address that an inside address has, or would have: its favourite.
    pub(super) fn index_for(&self, inside: &Inside, addresses: &Addresses) -> u64 {
        self.pair_of(inside).unwrap_or_else(|| scale(self.key.of(&Place::of(inside)), addresses.len()))
    }

    fn pair_of(&self, inside: &Inside) -> Option<u64> {
        let place = Place::of(inside);
        Some(self.pairs.find(self.key.of(&place), |pair| pair.inside == place)?.index)
    }

    fn pair(&mut self, inside: &Inside, index: u64) {
        let (place, key) = (Place::of(inside), &self.key);
        let pair = self.pairs.entry(
            key.of(&place),
            |pair| pair.inside == place,
            |pair| key.of(&pair.inside),
            || Pair { inside: place, index, bindings: 0 },
        );
        pair.bindings += 1;
    }

    /// An address that is not shut, the same one for an inside address whenever it comes while none is.
    fn favourite(&self, inside: &Inside, kind: &Kind, addresses: &Addresses) -> Result<u64, Exhausted> {
        let Some(open) = self.kinds.get(kind) else { return Ok(self.index_for(inside, addresses)) };
        match open.count() {
            0 => Err(Exhausted::NoPort),
            count => {
                let index = self.index_for(inside, addresses);
                let rank = scale(self.key.of(&Place::of(inside)), count);
                Ok(if open.is_open(index) { index } else { open.nth(rank) })
            }
        }
    }

    fn port(
        &mut self,
        outside: Outside,
        wish: &Wish<'_>,
        secrets: &mut Secrets,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Found {
        let (hash, key) = (self.key.of(&outside), &self.key);
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
            self.ends.insert(hash, End { outside, used, shut_for: Vec::new() }, |end| key.of(&end.outside));
        }
        found
    }

    fn shut(&mut self, kind: Kind, outside: Outside, index: u64, addresses: u64) {
        // What is full has an end: only an address without ports in the ranges has none, and that is asked for by no one.
        if let Some(end) = self.ends.find_mut(self.key.of(&outside), |end| end.outside == outside) {
            end.shut_for.push((kind, index));
            self.kinds.entry(kind).or_insert_with(|| Open::new(addresses)).shut(index);
        }
    }
}

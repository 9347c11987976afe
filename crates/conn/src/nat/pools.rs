//! Outside addresses: which one an inside address gets, and which of their ports are free.
//!
//! An inside address keeps its outside address while it has any binding (RFC 4787, REQ-2). Addresses on which a kind of request found no
//! port are marked exhausted for that kind until one of their ports is released, so that an exhausted pool is detected at once, however
//! large it is.
//!
//! [`PortsPerHost`] limits the ports of a protocol that a host holds in a pool (RFC 6888 REQ-4). An IPv4 host is an inside address. An IPv6
//! host may use 2^64 addresses, so the ports of all inside addresses with the same first 64 bits are counted together. Each of these
//! addresses keeps an outside address of its own, and under [`PortsPerHost::Share`] holds no more than is left to its network, so that one
//! of them does not use up its neighbours' share.

use super::addresses::ValueSet;
use super::available::AvailableIndices;
use super::bindings::{Binding, InsideEnd, OutsideAddress, TargetId};
use super::interned::Interned;
use super::mapping::NatError;
use super::ports::{PortRanges, PortRequest, PortSearch, UsedPorts, size};
use super::random::{NatRandom, scale};
use super::shards::ShardedIndex;
use crate::hash::TupleHasher;
use crate::{Tuple, Wire, proto};
use mmb_base::Id;
use mmb_policy::settings::PortsPerHost;
use mmb_random::Prf;
use std::collections::HashMap;

/// The request of the source side of a mapping. Rules with the same request share their bindings.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct SourceTarget {
    pub(super) addresses: Option<ValueSet>,
    pub(super) ranges: Option<PortRanges>,
}

/// A kind of request: all requests of a kind find the same ports free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PoolKind {
    target: TargetId,
    wire: Wire,
    proto: u8,
    family: u8,
    /// The class of ranges that the port must stay in.
    class: u8,
}

/// Why there is no outside endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolExhausted {
    /// The pool has no address.
    NoAddress,
    /// No address that the inside endpoint may have has a free port.
    NoPort,
    /// The host has reached its limit of ports.
    HostLimit,
    /// There is no memory to record the port.
    NoMemory,
}

/// An outside address that bindings use.
struct PoolAddress {
    outside: OutsideAddress,
    used: UsedPorts,
    /// The kinds for which the address is exhausted, and its index there.
    exhausted_for: Vec<(PoolKind, u64)>,
}

/// The outside address of an inside address.
struct PairedAddress {
    inside: InsideHost,
    index: u64,
    /// Number of ports that it holds, by column.
    ports: [u32; COLUMNS],
}

/// The ports that an IPv6 network holds, by column.
struct NetworkUsage {
    prefix: InsideHost,
    ports: [u32; COLUMNS],
}

/// Counters of an inside address's ports: two columns per protocol, the second one for privileged ports.
const COLUMNS: usize = 7;
/// No ports are held.
const NONE: [u32; COLUMNS] = [0; COLUMNS];

/// The column that counts ports of a protocol and a class of ranges.
pub(super) fn column(proto: u8, class: u8) -> u8 {
    let column = match proto {
        proto::TCP => 0,
        proto::UDP => 2,
        proto::ICMP | proto::ICMP6 => return 6,
        _ => 4,
    };
    column + u8::from(class == 1)
}

/// An inside address for one target.
#[derive(Clone, Copy, PartialEq, Eq)]
struct InsideHost {
    address: u128,
    target: TargetId,
    wire: Wire,
    family: u8,
}

impl InsideHost {
    fn of(inside: &InsideEnd) -> InsideHost {
        InsideHost {
            address: inside.address,
            target: inside.target,
            wire: inside.wire,
            family: inside.family,
        }
    }

    /// The network that an inside address of IPv6 counts for.
    fn network(self) -> Option<InsideHost> {
        (self.family == 6).then(|| InsideHost { address: host_of(self.address, self.family), ..self })
    }

    fn hash(&self, hasher: &TupleHasher) -> u64 {
        hasher.hash(&self.tuple())
    }

    /// The hash that selects its outside address, which is visible outside.
    fn choice(&self, pairing: &Prf) -> u64 {
        pairing.hash(&self.tuple().to_bytes())
    }

    fn tuple(&self) -> Tuple {
        let InsideHost { address, target, wire, family } = *self;
        // Counted from zero: the outside addresses of `replay --seed` depend on it.
        let target = u128::from(target.number()) - 1;
        Tuple { addresses: [address, target], wire, family, ..Tuple::default() }
    }
}

/// The host of an address: for IPv6 its first 64 bits.
pub(super) fn host_of(address: u128, family: u8) -> u128 {
    if family == 6 { address >> 64 << 64 } else { address }
}

/// The outside addresses and ports of all pools.
pub(super) struct NatPools {
    hasher: TupleHasher,
    pairing: Prf,
    ends: ShardedIndex<PoolAddress>,
    pairs: ShardedIndex<PairedAddress>,
    networks: ShardedIndex<NetworkUsage>,
    /// The requests of endpoints in use, and of kinds with exhausted addresses.
    pub(super) targets: Interned<TargetId, SourceTarget, ()>,
    /// Kinds for which some address is exhausted.
    available: HashMap<PoolKind, AvailableIndices>,
    pub(super) ports_per_host: PortsPerHost,
}

/// How many addresses one request tries.
const ADDRESSES: usize = 64;
/// Under [`PortsPerHost::Share`], the minimum that an inside address may hold whatever it leaves to others: a number of ports, or a
/// fraction of those that a rule allows, whichever is more.
const LEAST_PORTS: usize = 64;
const LEAST_PART: usize = 256;
/// The number of addresses on which connections without a binding may use all tried ports before a search gives up.
const TAKEN: usize = 4;

impl NatPools {
    /// Pools without ports in use. `pairing` selects the outside addresses of inside addresses.
    pub(super) fn new(hasher: TupleHasher, pairing: Prf) -> NatPools {
        NatPools {
            hasher,
            pairing,
            ends: ShardedIndex::new(),
            pairs: ShardedIndex::new(),
            networks: ShardedIndex::new(),
            targets: Interned::new(),
            available: HashMap::new(),
            ports_per_host: PortsPerHost::default(),
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.ends.memory() + self.pairs.memory() + self.networks.memory()
    }

    /// The number of outside addresses, inside addresses and kinds in use.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> (usize, usize, usize) {
        (self.ends.len(), self.pairs.len(), self.available.len())
    }

    /// Takes a free outside endpoint for an inside endpoint without one; `taken` may reject ports.
    pub(super) fn take(
        &mut self,
        inside: &InsideEnd,
        addresses: &ValueSet,
        (class, request): (u8, &PortRequest<'_>),
        secrets: &mut NatRandom,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Result<(u128, u16), PoolExhausted> {
        if addresses.is_empty() {
            return Err(PoolExhausted::NoAddress);
        }
        let InsideEnd { target, wire, proto, family, .. } = *inside;
        let kind = PoolKind { target, wire, proto, family, class };
        let host = InsideHost::of(inside);
        let hash = host.hash(&self.hasher);
        let (mut index, own, tries) = match self.pair_of(&host, hash) {
            Some(pair) => (pair.index, pair.ports, 1),
            None => {
                let index = self.preferred(&host, &kind, addresses.len());
                (index.ok_or(PoolExhausted::NoPort)?, NONE, ADDRESSES)
            }
        };
        let outside = OutsideAddress { address: addresses.nth(index), wire, proto, family };
        let held = [own, self.ports_of_host(&host).unwrap_or(own)];
        if !self.may_hold_more(held, column(proto, class), &outside, request.ranges) {
            return Err(PoolExhausted::HostLimit);
        }
        if !self.reserve_pair(&host, hash) {
            return Err(PoolExhausted::NoMemory);
        }
        let mut objections = 0;
        for _ in 0..tries {
            if self.available(&kind).is_some_and(|available| !available.is_available(index)) {
                return Err(PoolExhausted::NoPort);
            }
            let outside = OutsideAddress { address: addresses.nth(index), wire, proto, family };
            match self.port(outside, request, secrets, taken)? {
                PortSearch::Port(port) => {
                    self.targets.hold_id(target);
                    self.pair(host, hash, index, column(proto, class));
                    return Ok((outside.address, port));
                }
                PortSearch::Full => self.mark_exhausted(kind, outside, index, addresses.len()),
                PortSearch::Taken => objections += 1,
            }
            let available = self.available(&kind).map_or(addresses.len(), AvailableIndices::count);
            if available == 0 || objections == TAKEN {
                break;
            }
            let rank = secrets.below(available);
            index = self.available(&kind).map_or(rank, |available| available.nth(rank));
        }
        Err(PoolExhausted::NoPort)
    }

    /// Whether an inside address that holds `own` ports, of a host that holds `of_host`, may take another one of an outside address, within
    /// these ranges.
    fn may_hold_more(
        &self,
        [own, of_host]: [[u32; COLUMNS]; 2],
        column: u8,
        outside: &OutsideAddress,
        ranges: &[(u16, u16)],
    ) -> bool {
        let column = usize::from(column);
        if let PortsPerHost::AtMost(most) = self.ports_per_host {
            let of_proto = 2 * (column / 2);
            return of_host.iter().skip(of_proto).take(2).sum::<u32>() < most;
        }
        let (own, of_host, all) = (own[column] as usize, of_host[column] as usize, size(ranges));
        let least = LEAST_PORTS.max(all / LEAST_PART);
        if of_host < least {
            return true;
        }
        let end = self.ends.find(outside.hash(0, &self.hasher), |end| end.outside == *outside);
        let free = all - end.map_or(0, |end| end.used.count_within(ranges));
        of_host < free && (outside.family != 6 || own < least || own < free - of_host)
    }

    /// Takes a free port of the inside endpoint's own address, which belongs to no pool.
    pub(super) fn take_own(
        &mut self,
        inside: &InsideEnd,
        request: &PortRequest<'_>,
        secrets: &mut NatRandom,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Result<(u128, u16), PoolExhausted> {
        let InsideEnd { address, target, wire, proto, family, .. } = *inside;
        match self.port(OutsideAddress { address, wire, proto, family }, request, secrets, taken)? {
            PortSearch::Port(port) => {
                self.targets.hold_id(target);
                Ok((address, port))
            }
            PortSearch::Full | PortSearch::Taken => Err(PoolExhausted::NoPort),
        }
    }

    /// Takes the outside endpoint that an inside endpoint had before, from a pool or, without `addresses`, from its own address.
    ///
    /// # Errors
    /// It is in use, or not an endpoint of the pool; or there is no memory.
    pub(super) fn take_again(
        &mut self,
        inside: &InsideEnd,
        addresses: Option<&ValueSet>,
        (address, port): (u128, u16),
        column: u8,
        secrets: &mut NatRandom,
    ) -> Result<(), NatError> {
        let host = InsideHost::of(inside);
        let hash = host.hash(&self.hasher);
        let index = match addresses {
            None if address == inside.address => None,
            None => return Err(NatError::Clash),
            Some(addresses) => {
                match (addresses.index_of(address), self.pair_of(&host, hash).map(|pair| pair.index)) {
                    (Some(index), None) => Some(index),
                    (Some(index), Some(pair)) if pair == index => Some(index),
                    _ => return Err(NatError::Clash),
                }
            }
        };
        let InsideEnd { target, wire, proto, family, .. } = *inside;
        let request = PortRequest { ranges: &[(port, port)], first: [Some(port), None], odd: None };
        let outside = OutsideAddress { address, wire, proto, family };
        if !self.reserve_pair(&host, hash) {
            return Err(NatError::NoMemory);
        }
        match self.port(outside, &request, secrets, &|_, _| false) {
            Ok(PortSearch::Port(_)) => {}
            Err(PoolExhausted::NoMemory) => return Err(NatError::NoMemory),
            Ok(_) | Err(_) => return Err(NatError::Clash),
        }
        self.targets.hold_id(target);
        if let Some(index) = index {
            self.pair(host, hash, index, column);
        }
        Ok(())
    }

    /// Releases the outside endpoint of a binding.
    pub(super) fn give_back(&mut self, gone: &Binding) {
        let (inside, outside, hasher) = (&gone.inside, gone.outside(), &self.hasher);
        let hash = outside.hash(0, hasher);
        let Some(end) = self.ends.find_mut(hash, |end| end.outside == outside) else { return };
        end.used.remove(gone.port);
        for (kind, index) in end.exhausted_for.drain(..) {
            let Some(available) = self.available.get_mut(&kind) else { continue };
            available.put_back(index);
            if available.all_available() {
                self.available.remove(&kind);
                self.targets.release(kind.target);
            }
        }
        if end.used.len() == 0 {
            self.ends.remove(hash, |end| end.outside == outside, |end| end.outside.hash(0, hasher));
        }
        let host = InsideHost::of(inside);
        let hash = host.hash(hasher);
        if let Some(pair) = self.pairs.find_mut(hash, |pair| pair.inside == host) {
            pair.ports[usize::from(gone.column)] -= 1;
            if pair.ports == NONE {
                self.pairs.remove(hash, |pair| pair.inside == host, |pair| pair.inside.hash(hasher));
            }
            if let Some(prefix) = host.network() {
                let (hash, same) = (prefix.hash(hasher), |network: &NetworkUsage| network.prefix == prefix);
                if let Some(network) = self.networks.find_mut(hash, same) {
                    network.ports[usize::from(gone.column)] -= 1;
                    if network.ports == NONE {
                        self.networks.remove(hash, same, |network| network.prefix.hash(hasher));
                    }
                }
            }
        }
        self.targets.release(inside.target);
    }

    /// The index of the outside address that an inside address has, or would get.
    pub(super) fn index_for(&self, inside: &InsideEnd, addresses: &ValueSet) -> u64 {
        let host = InsideHost::of(inside);
        let hash = host.hash(&self.hasher);
        let preferred = || scale(host.choice(&self.pairing), addresses.len());
        self.pair_of(&host, hash).map_or_else(preferred, |pair| pair.index)
    }

    /// The index of the outside address that an inside address has.
    pub(super) fn paired(&self, inside: &InsideEnd) -> Option<u64> {
        let host = InsideHost::of(inside);
        self.pair_of(&host, host.hash(&self.hasher)).map(|pair| pair.index)
    }

    /// Number of ports that the host of an inside address holds in a column.
    pub(super) fn held(&self, inside: &InsideEnd, column: u8) -> u32 {
        self.ports_of_host(&InsideHost::of(inside)).map_or(0, |ports| ports[usize::from(column)])
    }

    fn ports_of_host(&self, host: &InsideHost) -> Option<[u32; COLUMNS]> {
        let Some(prefix) = host.network() else {
            return self.pair_of(host, host.hash(&self.hasher)).map(|pair| pair.ports);
        };
        let network = self.networks.find(prefix.hash(&self.hasher), |network| network.prefix == prefix);
        network.map(|network| network.ports)
    }

    fn pair_of(&self, host: &InsideHost, hash: u64) -> Option<&PairedAddress> {
        self.pairs.find(hash, |pair| pair.inside == *host)
    }

    fn reserve_pair(&mut self, host: &InsideHost, hash: u64) -> bool {
        let hasher = &self.hasher;
        let is_there = self.pairs.find(hash, |pair| pair.inside == *host).is_some();
        let for_network = |prefix: InsideHost| {
            self.networks.reserve(prefix.hash(hasher), |network| network.prefix.hash(hasher))
        };
        is_there
            || host.network().is_none_or(for_network)
                && self.pairs.reserve(hash, |pair| pair.inside.hash(hasher))
    }

    /// Counts a port of an inside address; [`NatPools::reserve_pair`] comes before.
    fn pair(&mut self, host: InsideHost, hash: u64, index: u64, column: u8) {
        let hasher = &self.hasher;
        let pair = self.pairs.entry(
            hash,
            |pair| pair.inside == host,
            |pair| pair.inside.hash(hasher),
            || PairedAddress { inside: host, index, ports: NONE },
        );
        pair.ports[usize::from(column)] += 1;
        if let Some(prefix) = host.network() {
            let network = self.networks.entry(
                prefix.hash(hasher),
                |network| network.prefix == prefix,
                |network| network.prefix.hash(hasher),
                || NetworkUsage { prefix, ports: NONE },
            );
            network.ports[usize::from(column)] += 1;
        }
    }

    /// An address that is not exhausted; while none is, always the same one for an inside address.
    fn preferred(&self, host: &InsideHost, kind: &PoolKind, addresses: u64) -> Option<u64> {
        let choice = host.choice(&self.pairing);
        let index = scale(choice, addresses);
        match self.available(kind) {
            None => Some(index),
            Some(available) if available.count() == 0 => None,
            Some(available) if available.is_available(index) => Some(index),
            Some(available) => Some(available.nth(scale(choice, available.count()))),
        }
    }

    /// The available addresses of a kind, unless all are.
    fn available(&self, kind: &PoolKind) -> Option<&AvailableIndices> {
        if self.available.is_empty() { None } else { self.available.get(kind) }
    }

    fn port(
        &mut self,
        outside: OutsideAddress,
        request: &PortRequest<'_>,
        secrets: &mut NatRandom,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Result<PortSearch, PoolExhausted> {
        let (hash, hasher) = (outside.hash(0, &self.hasher), &self.hasher);
        let mut taken = |port| taken(outside.address, port);
        if let Some(end) = self.ends.find_mut(hash, |end| end.outside == outside) {
            if !end.used.reserve() {
                return Err(PoolExhausted::NoMemory);
            }
            let found = request.find(&end.used, secrets, &mut taken);
            if let PortSearch::Port(port) = found {
                end.used.insert(port);
            }
            return Ok(found);
        }
        let mut used = UsedPorts::new();
        if !used.reserve() {
            return Err(PoolExhausted::NoMemory);
        }
        let found = request.find(&used, secrets, &mut taken);
        if let PortSearch::Port(port) = found {
            used.insert(port);
            let end = PoolAddress { outside, used, exhausted_for: Vec::new() };
            if !self.ends.insert(hash, end, |end| end.outside.hash(0, hasher)) {
                return Err(PoolExhausted::NoMemory);
            }
        }
        Ok(found)
    }

    fn mark_exhausted(&mut self, kind: PoolKind, outside: OutsideAddress, index: u64, addresses: u64) {
        // An exhausted address has ports in use: only one without ports in the ranges has none, and no request asks for that.
        if let Some(end) = self.ends.find_mut(outside.hash(0, &self.hasher), |end| end.outside == outside) {
            // An address that is not marked is merely searched again.
            if end.exhausted_for.try_reserve(1).is_err() || self.available.try_reserve(1).is_err() {
                return;
            }
            if let Some(available) = self.available.get_mut(&kind) {
                if available.reserve() {
                    available.remove(index);
                    end.exhausted_for.push((kind, index));
                }
                return;
            }
            let mut available = AvailableIndices::new(addresses);
            if available.reserve() {
                available.remove(index);
                end.exhausted_for.push((kind, index));
                self.available.insert(kind, available);
                self.targets.hold_id(kind.target);
            }
        }
    }
}

//! Outside addresses: which one an inside address gets, and which of their ports are free.
//!
//! An inside address keeps its outside address while it has any binding (RFC 4787, REQ-2). If a kind of
//! request finds no port on an address, the address is marked exhausted for that kind until one of its ports
//! is released. So an exhausted pool is detected at once, however large it is.
//!
//! [`PortsPerHost`] limits the ports of a protocol that a host uses in a pool (RFC 6888 REQ-4). An IPv4 host
//! is an inside address. An IPv6 host may use 2^64 addresses, so the ports of all inside addresses with the
//! same first 64 bits are counted together. Each of these addresses has its own outside address. Under
//! [`PortsPerHost::Share`], an address may use no more ports than are left to its network, so that one
//! address does not use up its neighbours' share.

use crate::addresses::ValueSet;
use crate::available::AvailableIndices;
use crate::bindings::{InsideEnd, OutsideAddress, OutsideEnd, OutsideId, PairId, TargetId};
use crate::ids::IdIndex;
use crate::inside_host::InsideHost;
use crate::interned::Interned;
use crate::mapping::NatError;
use crate::paired_address::{COLUMNS, NONE, NetworkUsage, PairedAddress, column};
use crate::ports::{PortRanges, PortRequest, PortSearch, UsedPorts, size};
use crate::random::{NatRandom, scale};
use mmb_base::{Chunks, ShardedIndex, Slab, prefetch};
use mmb_conn::{TupleHasher, Wire};
use mmb_policy::settings::PortsPerHost;
use mmb_random::Prf;
use std::collections::HashMap;

/// The request of the source side of a mapping. Rules with the same request share their bindings.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct SourceTarget {
    pub(super) addresses: Option<ValueSet>,
    pub(super) ranges: Option<PortRanges>,
}

impl SourceTarget {
    /// Whether the request is for these addresses and ranges.
    #[inline]
    pub(super) fn matches(&self, addresses: Option<&ValueSet>, ranges: Option<&PortRanges>) -> bool {
        (self.addresses.as_ref(), self.ranges.as_ref()) == (addresses, ranges)
    }
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
    /// No address that the inside endpoint may use has a free port.
    NoPort,
    /// The host has reached its limit of ports.
    HostLimit,
    /// There is no memory to record the port.
    NoMemory,
}

/// An outside address that bindings use.
#[derive(Default)]
struct PoolAddress {
    outside: OutsideAddress,
    used: UsedPorts,
    /// The kinds for which the address is exhausted, each with the index of the address in the pool.
    exhausted_for: Vec<(PoolKind, u64)>,
}

/// The outside addresses and ports of all pools.
pub(super) struct NatPools {
    hasher: TupleHasher,
    pairing: Prf,
    outside: Slab<OutsideId, PoolAddress, Chunks<PoolAddress, CHUNK>>,
    outside_ids: IdIndex<OutsideId>,
    pairs: Slab<PairId, PairedAddress, Chunks<PairedAddress, CHUNK>>,
    pair_ids: IdIndex<PairId>,
    networks: ShardedIndex<NetworkUsage>,
    /// The requests of endpoints in use, and of kinds with exhausted addresses.
    pub(super) targets: Interned<TargetId, SourceTarget, ()>,
    /// The available addresses of the kinds for which some address is exhausted.
    available: HashMap<PoolKind, AvailableIndices>,
    pub(super) ports_per_host: PortsPerHost,
    /// The latest choices that were computed for inside addresses, by the lowest bits of their hashes.
    choices: Box<[Option<(InsideHost, u64)>; CHOICES]>,
}

/// The number of choices that are kept: those of a vector.
const CHOICES: usize = 256;

/// Addresses per chunk. Growing copies no address.
const CHUNK: usize = 1024;

/// The maximum number of addresses that one request tries.
const MAX_ADDRESSES: usize = 64;
/// Under [`PortsPerHost::Share`], an inside address may always use a number of ports, or a fraction of the
/// ports that a rule allows, whichever is more.
const MIN_PORTS: usize = 64;
const MIN_PORTS_PART: usize = 256;
/// A search fails after this number of addresses where connections without a binding use all ports that were
/// tried.
const MAX_TAKEN_ADDRESSES: usize = 4;

impl NatPools {
    /// Pools without ports in use. `pairing` selects the outside addresses of inside addresses.
    pub(super) fn new(hasher: TupleHasher, pairing: Prf) -> NatPools {
        NatPools {
            hasher,
            pairing,
            outside: Slab::default(),
            outside_ids: IdIndex::new(),
            pairs: Slab::default(),
            pair_ids: IdIndex::new(),
            networks: ShardedIndex::new(),
            targets: Interned::new(),
            available: HashMap::new(),
            ports_per_host: PortsPerHost::default(),
            choices: Box::new([None; CHOICES]),
        }
    }

    pub(super) fn memory(&self) -> usize {
        let indices = self.outside_ids.memory() + self.pair_ids.memory();
        self.outside.memory() + self.pairs.memory() + indices + self.networks.memory()
    }

    /// The number of outside addresses, inside addresses and kinds in use.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> (usize, usize, usize) {
        (self.outside.len(), self.pairs.len(), self.available.len())
    }

    /// Takes a free outside endpoint for an inside endpoint that has none. `taken` may reject ports.
    pub(super) fn take(
        &mut self,
        inside: &InsideEnd,
        addresses: &ValueSet,
        (class, request): (u8, &PortRequest<'_>),
        secrets: &mut NatRandom,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Result<OutsideEnd, PoolExhausted> {
        if addresses.is_empty() {
            return Err(PoolExhausted::NoAddress);
        }
        let InsideEnd { target, wire, proto, family, .. } = *inside;
        let kind = PoolKind { target, wire, proto, family, class };
        let host = InsideHost::from_end(inside);
        let hash = host.hash(&self.hasher);
        let pair = self.pair_of(&host, hash);
        let (mut index, own_ports, tries) = match pair.map(|pair| &self.pairs[pair]) {
            Some(pair) => (pair.index, pair.ports, 1),
            None => {
                let index = self.preferred((&host, hash), &kind, addresses.len());
                (index.ok_or(PoolExhausted::NoPort)?, NONE, MAX_ADDRESSES)
            }
        };
        let column = column(proto, class);
        let host_ports = if family == 6 { self.ports_of_host(&host).unwrap_or(own_ports) } else { own_ports };
        let outside = |index| OutsideAddress { address: addresses.nth(index), wire, proto, family };
        if !self.may_hold_more([own_ports, host_ports], column, &outside(index), request.ranges) {
            return Err(PoolExhausted::HostLimit);
        }
        let mut taken_addresses = 0;
        for _ in 0..tries {
            if self.available(&kind).is_some_and(|available| !available.is_available(index)) {
                return Err(PoolExhausted::NoPort);
            }
            let outside = outside(index);
            match self.port(outside, request, secrets, taken)? {
                (PortSearch::Port(port), Some(outside_id)) => {
                    let Some(pair) = self.pair((host, hash), pair, index, column) else {
                        self.free_port(outside_id, port);
                        return Err(PoolExhausted::NoMemory);
                    };
                    self.targets.hold_id(target);
                    return Ok(OutsideEnd {
                        address: outside.address,
                        port,
                        outside_id,
                        pair: Some(pair),
                        column,
                    });
                }
                (PortSearch::Taken, _) => taken_addresses += 1,
                (PortSearch::Port(_) | PortSearch::Full, outside_id) => {
                    self.mark_exhausted(kind, outside_id, index, addresses.len());
                }
            }
            let available = self.available(&kind).map_or(addresses.len(), AvailableIndices::count);
            if available == 0 || taken_addresses == MAX_TAKEN_ADDRESSES {
                break;
            }
            let rank = secrets.below(available);
            index = self.available(&kind).map_or(rank, |available| available.nth(rank));
        }
        Err(PoolExhausted::NoPort)
    }

    /// Whether an inside address may take another port of an outside address, within these ranges. The inside
    /// address uses `own_ports`, and its host uses `host_ports`.
    fn may_hold_more(
        &self,
        [own_ports, host_ports]: [[u32; COLUMNS]; 2],
        column: u8,
        outside: &OutsideAddress,
        ranges: &[(u16, u16)],
    ) -> bool {
        let column = usize::from(column);
        if let PortsPerHost::AtMost(max) = self.ports_per_host {
            let first_column = 2 * (column / 2);
            return host_ports.iter().skip(first_column).take(2).sum::<u32>() < max;
        }
        let (own_ports, host_ports, all) =
            (own_ports[column] as usize, host_ports[column] as usize, size(ranges));
        let min = MIN_PORTS.max(all / MIN_PORTS_PART);
        if host_ports < min {
            return true;
        }
        let used = self.outside_of(outside).map(|id| &self.outside[id].used);
        let free = all - used.map_or(0, |used| used.count_within(ranges));
        host_ports < free && (outside.family != 6 || own_ports < min || own_ports < free - host_ports)
    }

    /// Takes a free port of the inside endpoint's own address, which belongs to no pool.
    pub(super) fn take_own(
        &mut self,
        inside: &InsideEnd,
        (class, request): (u8, &PortRequest<'_>),
        secrets: &mut NatRandom,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Result<OutsideEnd, PoolExhausted> {
        let InsideEnd { address, target, wire, proto, family, .. } = *inside;
        match self.port(OutsideAddress { address, wire, proto, family }, request, secrets, taken)? {
            (PortSearch::Port(port), Some(outside_id)) => {
                self.targets.hold_id(target);
                Ok(OutsideEnd { address, port, outside_id, pair: None, column: column(proto, class) })
            }
            _ => Err(PoolExhausted::NoPort),
        }
    }

    /// Takes the outside endpoint that an inside endpoint had before, from a pool or, without `addresses`,
    /// from its own address.
    ///
    /// # Errors
    /// The endpoint is in use or does not belong to the pool, or memory is exhausted.
    pub(super) fn retake(
        &mut self,
        inside: &InsideEnd,
        addresses: Option<&ValueSet>,
        (address, port): (u128, u16),
        column: u8,
        secrets: &mut NatRandom,
    ) -> Result<OutsideEnd, NatError> {
        let host = InsideHost::from_end(inside);
        let hash = host.hash(&self.hasher);
        let pair = self.pair_of(&host, hash);
        let index = match addresses {
            None if address == inside.address => None,
            None => return Err(NatError::Clash),
            Some(addresses) => match (addresses.index_of(address), pair.map(|pair| self.pairs[pair].index)) {
                (Some(index), None) => Some(index),
                (Some(index), Some(pair)) if pair == index => Some(index),
                _ => return Err(NatError::Clash),
            },
        };
        let InsideEnd { target, wire, proto, family, .. } = *inside;
        let request = PortRequest { ranges: &[(port, port)], preferred: [Some(port), None], odd: None };
        let outside = OutsideAddress { address, wire, proto, family };
        let outside_id = match self.port(outside, &request, secrets, &|_, _| false) {
            Ok((PortSearch::Port(_), Some(outside_id))) => outside_id,
            Err(PoolExhausted::NoMemory) => return Err(NatError::NoMemory),
            Ok(_) | Err(_) => return Err(NatError::Clash),
        };
        let pair = match index.map(|index| self.pair((host, hash), pair, index, column)) {
            Some(None) => {
                self.free_port(outside_id, port);
                return Err(NatError::NoMemory);
            }
            pair => pair.flatten(),
        };
        self.targets.hold_id(target);
        Ok(OutsideEnd { address, port, outside_id, pair, column })
    }

    /// Prefetches the records of the addresses of an outside end, which [`NatPools::prefetch_keys`] reads.
    #[inline]
    pub(super) fn prefetch(&self, end: &OutsideEnd) {
        end.pair.into_iter().for_each(|pair| prefetch(&self.pairs[pair]));
        prefetch(&self.outside[end.outside_id]);
    }

    /// Prefetches the index bucket of the inside address of an outside end, and the record of the end's port.
    #[inline]
    pub(super) fn prefetch_keys(&self, end: &OutsideEnd) {
        if let Some(pair) = end.pair {
            self.pair_ids.prefetch(self.pairs[pair].inside().hash(&self.hasher));
        }
        self.outside[end.outside_id].used.prefetch(end.port);
    }

    /// Releases an outside end that was taken for an inside end.
    pub(super) fn release(
        &mut self,
        inside: &InsideEnd,
        OutsideEnd { port, outside_id, pair, column, .. }: OutsideEnd,
    ) {
        self.free_port(outside_id, port);
        if let Some(pair) = pair {
            self.unpair(pair, column);
        }
        self.targets.release(inside.target);
    }

    /// Frees a port of an outside address. The address is then no longer exhausted.
    fn free_port(&mut self, outside_id: OutsideId, port: u16) {
        let end = &mut self.outside[outside_id];
        end.used.remove(port);
        for (kind, index) in end.exhausted_for.drain(..) {
            let Some(available) = self.available.get_mut(&kind) else { continue };
            available.put_back(index);
            if available.all_available() {
                self.available.remove(&kind);
                self.targets.release(kind.target);
            }
        }
        if end.used.len() == 0 {
            self.outside_ids.remove(end.outside.hash(0, &self.hasher), outside_id);
            self.outside.remove(outside_id);
        }
    }

    fn unpair(&mut self, id: PairId, column: u8) {
        let (pair, hasher) = (&mut self.pairs[id], &self.hasher);
        pair.ports[usize::from(column)] -= 1;
        let host = pair.inside();
        if pair.ports == NONE {
            self.pair_ids.remove(host.hash(hasher), id);
            self.pairs.free(id);
        }
        if let Some(prefix) = host.network() {
            let (hash, same) = (prefix.hash(hasher), |network: &NetworkUsage| network.prefix == prefix);
            if let Some(network) = self.networks.find_mut(hash, same) {
                network.ports[usize::from(column)] -= 1;
                if network.ports == NONE {
                    self.networks.remove(hash, same, |network| network.prefix.hash(hasher));
                }
            }
        }
    }

    /// The index of the outside address that an inside address has, or would get.
    pub(super) fn index_for(&mut self, inside: &InsideEnd, addresses: &ValueSet) -> u64 {
        let host = InsideHost::from_end(inside);
        let hash = host.hash(&self.hasher);
        match self.pair_of(&host, hash) {
            Some(pair) => self.pairs[pair].index,
            None => scale(self.choice(&host, hash), addresses.len()),
        }
    }

    /// The index of the outside address that an inside address has.
    pub(super) fn paired(&self, inside: &InsideEnd) -> Option<u64> {
        let host = InsideHost::from_end(inside);
        self.pair_of(&host, host.hash(&self.hasher)).map(|pair| self.pairs[pair].index)
    }

    /// Number of ports that the host of an inside address holds in a column.
    pub(super) fn held(&self, inside: &InsideEnd, column: u8) -> u32 {
        self.ports_of_host(&InsideHost::from_end(inside)).map_or(0, |ports| ports[usize::from(column)])
    }

    fn ports_of_host(&self, host: &InsideHost) -> Option<[u32; COLUMNS]> {
        let Some(prefix) = host.network() else {
            return self.pair_of(host, host.hash(&self.hasher)).map(|pair| self.pairs[pair].ports);
        };
        let network = self.networks.find(prefix.hash(&self.hasher), |network| network.prefix == prefix);
        network.map(|network| network.ports)
    }

    #[inline]
    fn pair_of(&self, host: &InsideHost, hash: u64) -> Option<PairId> {
        self.pair_ids.find(hash, |id| self.pairs[id].inside() == *host)
    }

    fn outside_of(&self, outside: &OutsideAddress) -> Option<OutsideId> {
        self.outside_ids.find(outside.hash(0, &self.hasher), |id| self.outside[id].outside == *outside)
    }

    /// Counts a port of an inside address. Creates the pair if it has no id yet. Returns `None` and changes
    /// nothing if memory is exhausted.
    fn pair(
        &mut self,
        (host, hash): (InsideHost, u64),
        known: Option<PairId>,
        index: u64,
        column: u8,
    ) -> Option<PairId> {
        let hasher = &self.hasher;
        let prefix = host.network().map(|prefix| (prefix, prefix.hash(hasher)));
        if let Some((_, hash)) = prefix
            && !self.networks.reserve(hash, |network| network.prefix.hash(hasher))
        {
            return None;
        }
        let id = match known {
            Some(id) => id,
            None => {
                self.pairs.try_reserve().ok()?;
                let InsideHost { address, target, wire, family } = host;
                let id =
                    self.pairs.insert(PairedAddress { address, index, ports: NONE, target, wire, family });
                let pairs = &self.pairs;
                if !self.pair_ids.insert(hash, id, |id| &pairs[id], |pair| pair.inside().hash(hasher)) {
                    self.pairs.free(id);
                    return None;
                }
                id
            }
        };
        self.pairs[id].ports[usize::from(column)] += 1;
        if let Some((prefix, hash)) = prefix {
            let network = self.networks.entry(
                hash,
                |network| network.prefix == prefix,
                |network| network.prefix.hash(hasher),
                || NetworkUsage { prefix, ports: NONE },
            );
            network.ports[usize::from(column)] += 1;
        }
        Some(id)
    }

    /// The index of an address that is not exhausted, if any. While no address is exhausted, an
    /// inside address always gets the same one.
    fn preferred(
        &mut self,
        (host, hash): (&InsideHost, u64),
        kind: &PoolKind,
        addresses: u64,
    ) -> Option<u64> {
        let choice = self.choice(host, hash);
        let index = scale(choice, addresses);
        match self.available(kind) {
            None => Some(index),
            Some(available) if available.count() == 0 => None,
            Some(available) if available.is_available(index) => Some(index),
            Some(available) => Some(available.nth(scale(choice, available.count()))),
        }
    }

    /// The hash that selects the outside address of an inside address.
    #[inline]
    fn choice(&mut self, host: &InsideHost, hash: u64) -> u64 {
        let kept = &mut self.choices[hash as usize % CHOICES];
        match kept {
            Some((other, choice)) if other == host => *choice,
            _ => kept.insert((*host, host.choice(&self.pairing))).1,
        }
    }

    /// Prefetches the index bucket of the pair of an inside address. Returns the hash of the address.
    #[inline]
    pub(super) fn prefetch_inside(&self, inside: &InsideEnd) -> u64 {
        let hash = InsideHost::from_end(inside).hash(&self.hasher);
        self.pair_ids.prefetch(hash);
        hash
    }

    /// Prefetches the likely pair of an inside address with this hash.
    #[inline]
    pub(super) fn prefetch_pair(&self, hash: u64) {
        self.pair_ids.likely(hash).into_iter().for_each(|pair| prefetch(&self.pairs[pair]));
    }

    /// Prefetches the slots of the next `count` new pairs.
    pub(super) fn prefetch_slots(&self, count: usize) {
        self.pairs.next_ids(count).for_each(|pair| prefetch(&self.pairs[pair]));
    }

    /// The outside address that an inside address with this hash will likely get. Prefetches the record of
    /// the inside port on it.
    #[inline]
    pub(super) fn likely_outside(
        &mut self,
        inside: &InsideEnd,
        hash: u64,
        addresses: &ValueSet,
    ) -> OutsideAddress {
        let index = match self.pair_ids.likely(hash) {
            Some(pair) => self.pairs[pair].index.min(addresses.len() - 1),
            None => scale(self.choice(&InsideHost::from_end(inside), hash), addresses.len()),
        };
        let InsideEnd { wire, proto, family, .. } = *inside;
        let outside = OutsideAddress { address: addresses.nth(index), wire, proto, family };
        self.prefetch_port(&outside, inside.port);
        outside
    }

    /// Prefetches the record of a port.
    #[inline]
    pub(super) fn prefetch_port(&self, outside: &OutsideAddress, port: u16) {
        if let Some(id) = self.outside_of(outside) {
            self.outside[id].used.prefetch(port);
        }
    }

    /// The available addresses of a kind; `None` if all addresses are.
    fn available(&self, kind: &PoolKind) -> Option<&AvailableIndices> {
        if self.available.is_empty() { None } else { self.available.get(kind) }
    }

    /// Searches for a free port of an outside address, and takes it. Also returns the id of the address, if
    /// it has ports in use.
    fn port(
        &mut self,
        outside: OutsideAddress,
        request: &PortRequest<'_>,
        secrets: &mut NatRandom,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Result<(PortSearch, Option<OutsideId>), PoolExhausted> {
        let mut taken = |port| taken(outside.address, port);
        let known = self.outside_of(&outside);
        if let Some(id) = known {
            let end = &mut self.outside[id];
            if !end.used.reserve() {
                return Err(PoolExhausted::NoMemory);
            }
            let found = request.find(&end.used, secrets, &mut taken);
            if let PortSearch::Port(port) = found {
                end.used.insert(port);
            }
            return Ok((found, known));
        }
        let mut used = UsedPorts::new();
        let found = request.find(&used, secrets, &mut taken);
        let PortSearch::Port(port) = found else { return Ok((found, None)) };
        if !used.reserve() || self.outside.try_reserve().is_err() {
            return Err(PoolExhausted::NoMemory);
        }
        used.insert(port);
        let id = self.outside.insert(PoolAddress { outside, used, exhausted_for: Vec::new() });
        let (addresses, hasher) = (&self.outside, &self.hasher);
        if !self.outside_ids.insert(
            outside.hash(0, hasher),
            id,
            |id| &addresses[id],
            |address| address.outside.hash(0, hasher),
        ) {
            self.outside.remove(id);
            return Err(PoolExhausted::NoMemory);
        }
        Ok((found, Some(id)))
    }

    fn mark_exhausted(&mut self, kind: PoolKind, outside: Option<OutsideId>, index: u64, addresses: u64) {
        // An exhausted address has ports in use, unless the request has no ports. Then no address is
        // marked.
        if let Some(end) = outside.map(|id| &mut self.outside[id]) {
            // Without memory, the address is not marked, and later requests search it again.
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

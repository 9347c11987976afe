//! The translation of new connections: see [`Nat::translate`].

use crate::addresses::ValueSet;
use crate::bindings::{BindingId, BindingTable, InsideEnd, OutsideAddress, OutsideEnd};
use crate::destinations::{CountedServer, DestinationTable};
use crate::leases::{BindingPeers, Lease, LeaseTable};
use crate::mapping::{CLASSES, Mapping, NatError, RuleVersion, class, maps_destination_port};
use crate::open_servers::OpenServers;
use crate::pools::{NatPools, PoolExhausted, SourceTarget};
use crate::ports::{PortMapping, PortRanges, PortRequest};
use crate::random::NatRandom;
use arrayvec::ArrayVec;
use mmb_conn::{DESTINATION, LeaseId, SOURCE, Side, Tuple, TupleHasher, Wire, proto};
use mmb_policy::settings::{ConnectionSettings, NatFiltering};
use mmb_random::{Prf, Purpose, SeedTree};

/// The translation of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// The tuple of its packets after translation; replies arrive with it reversed.
    pub sent: Tuple,
    /// The argument of [`Nat::release`] when the connection ends.
    pub lease: Option<LeaseId>,
}

/// All bindings, pools and load balancing state.
pub struct Nat {
    settings: ConnectionSettings,
    pub(super) secrets: NatRandom,
    pub(super) bindings: BindingTable,
    pub(super) pools: NatPools,
    pub(super) destinations: DestinationTable,
    pub(super) leases: LeaseTable,
    pub(super) peers: BindingPeers,
}

/// The maximum number of connections that [`Nat::prefetch_new`] prefetches for.
pub const MAX_PREFETCHED: usize = 32;

/// How many destinations are tried if a connection's reply tuple is already in use.
const MAX_DESTINATIONS: u64 = 4;
/// How many outside addresses are tried for a connection that has no ports, or keeps them.
const MAX_ADDRESSES: u64 = 16;

impl Nat {
    /// A NAT without bindings.
    pub fn new(seeds: &SeedTree) -> Nat {
        let hasher = TupleHasher::new(seeds.shared(Purpose::NatIndex));
        Nat {
            settings: ConnectionSettings::default(),
            bindings: BindingTable::new(hasher),
            pools: NatPools::new(hasher, Prf::new(seeds.shared(Purpose::NatPairing))),
            destinations: DestinationTable::new(Prf::new(seeds.shared(Purpose::Balancing))),
            leases: LeaseTable::default(),
            peers: BindingPeers::new(hasher),
            secrets: NatRandom::new(seeds.shared(Purpose::NatChoices)),
        }
    }

    /// Reseeds the generator, so that later ports are independent of earlier ones, in case its state leaked.
    /// Bindings stay.
    pub fn reseed(&mut self, fresh: &SeedTree) {
        self.secrets.reseed(fresh.shared(Purpose::NatChoices));
    }

    /// Changes the NAT settings for later connections. Peers are recorded only under
    /// [`NatFiltering::AddressDependent`], so peers of connections that were created under another filtering
    /// are not admitted by address.
    pub fn configure(&mut self, settings: &ConnectionSettings) {
        self.settings = *settings;
        self.pools.ports_per_host = settings.nat_ports_per_host;
    }

    /// Translates a new connection. `taken` returns whether a reply tuple is already a key of some
    /// connection.
    pub fn translate(
        &mut self,
        rule: RuleVersion,
        mapping: &Mapping,
        arrived: &Tuple,
        taken: &dyn Fn(&Tuple) -> bool,
    ) -> Result<Translated, NatError> {
        for attempt in 0..MAX_DESTINATIONS {
            let destination = self.destinations.choose(rule, mapping, arrived, attempt, &mut self.secrets)?;
            let mut sent = *arrived;
            sent.addresses[DESTINATION] = destination.address;
            if maps_destination_port(arrived.proto) {
                sent.ports[DESTINATION] = destination.port;
            }
            match self.source(mapping, sent, taken) {
                Ok((sent, binding)) => return self.lease(sent, binding, destination.counted),
                Err(NatError::Clash) if mapping.has_choice() => {}
                Err(refused) => return Err(refused),
            }
        }
        Err(NatError::Clash)
    }

    /// Prefetches what [`Nat::translate`] reads for connections that will likely be created next. `new` has
    /// the tuples of their first packets, and the mappings that they will likely get. Calls `expect` with
    /// each tuple, and with the tuple as which its packet will likely leave.
    pub fn prefetch_new<'m>(
        &mut self,
        new: impl Iterator<Item = (Tuple, &'m Mapping)>,
        mut expect: impl FnMut(&Tuple, &Tuple),
    ) {
        let mut ends = ArrayVec::<(Tuple, InsideEnd, [u64; 2], &'m ValueSet), MAX_PREFETCHED>::new();
        for (arrived, mapping) in new.take(MAX_PREFETCHED) {
            let Some(addresses) = mapping.saddr.as_ref().filter(|addresses| !addresses.is_empty()) else {
                continue;
            };
            let ranges = mapping.sport.as_ref().map(PortMapping::ranges);
            let is = |target: &SourceTarget| target.matches(Some(addresses), ranges);
            let Some(target) = self.pools.targets.last(is).filter(|_| arrived.may_map_ports()) else {
                continue;
            };
            let inside = InsideEnd::new(&arrived, target);
            let hashes = [self.bindings.prefetch_inside(&inside), self.pools.prefetch_inside(&inside)];
            if self.settings.nat_contiguity {
                self.bindings.prefetch_inside(&inside.neighbour());
            }
            ends.push((arrived, inside, hashes, addresses));
        }
        for (_, _, [inside_hash, host_hash], _) in &ends {
            self.bindings.prefetch_binding(*inside_hash);
            self.pools.prefetch_pair(*host_hash);
        }
        self.bindings.prefetch_slots(ends.len()).for_each(|id| self.peers.prefetch(id));
        self.pools.prefetch_slots(ends.len());
        for (arrived, inside, [_, host_hash], addresses) in &ends {
            let outside = self.pools.likely_outside(inside, *host_hash, addresses);
            self.bindings.prefetch_outside(&outside, inside.port);
            expect(arrived, &with_source(*arrived, outside.address, inside.port));
        }
    }

    /// Redirects a connection whose destination is the outside endpoint of a binding to the inside endpoint.
    /// This is a connection from outside that filtering admits, or a connection between two inside endpoints
    /// (hairpinning, RFC 4787, REQ-9). Other connections are returned unchanged. For a packet that no rule
    /// translates, `sent` is its own tuple and `lease` is `None`.
    ///
    /// These are not redirected:
    ///
    /// - A host to itself. It could otherwise create connections alone that look confirmed by both ends.
    /// - A host without a binding to its own side of the wire, because the packet would leave by the other
    ///   side.
    /// - ICMP queries between inside endpoints. They are addressed to hosts, and a binding with the same
    ///   identifier is chance (RFC 5508, REQ-7, requires hairpinning for them only of a NAT without ports).
    ///
    /// # Errors
    /// The connection is redirected, but memory for its state is exhausted. The state of `translated` is
    /// released.
    pub fn enter(&mut self, translated: Translated) -> Result<Translated, NatError> {
        let Tuple { addresses, wire, side, proto, family, .. } = translated.sent;
        let outside = OutsideAddress { address: addresses[DESTINATION], wire, proto, family };
        let [sport, dport] = [SOURCE, DESTINATION].map(|end| translated.sent.port(end));
        let query = translated.sent.is_query();
        let itself = addresses[SOURCE] == addresses[DESTINATION] && sport == dport;
        if itself || query && translated.lease.is_some() {
            return Ok(translated);
        }
        let Some(number) = self.bindings.find_outside(&outside, dport) else {
            return Ok(translated);
        };
        let inside = self.bindings.get(number).inside;
        if (inside.address, inside.port) == (addresses[DESTINATION], dport) {
            // The inside endpoint is its own outside endpoint.
            return Ok(translated);
        }
        // Filtering applies to outside hosts only.
        let from = translated
            .lease
            .and_then(|lease| self.leases.source(lease))
            .map(|source| self.bindings.get(source).inside.address);
        let admitted = match self.settings.nat_filtering {
            _ if from.unwrap_or(addresses[SOURCE]) == inside.address => false,
            _ if from.is_some() => true,
            _ if side == inside.side && side != Side::Any => false,
            NatFiltering::EndpointIndependent => true,
            NatFiltering::AddressDependent => self.peers.has(number, addresses[SOURCE]),
            NatFiltering::AddressAndPortDependent => false,
        };
        if !admitted {
            return Ok(translated);
        }
        if !self.leases.reserve() {
            self.release(translated.lease);
            return Err(NatError::NoMemory);
        }
        self.bindings.hold(number);
        let mut sent = translated.sent;
        sent.addresses[DESTINATION] = inside.address;
        sent.ports[if query { SOURCE } else { DESTINATION }] = inside.port;
        let mut lease = self.leases.take(translated.lease);
        lease.bindings[DESTINATION] = Some(number);
        Ok(Translated { sent, lease: self.leases.store(lease) })
    }

    /// Releases the NAT state of a connection.
    pub fn release(&mut self, lease: Option<LeaseId>) {
        let lease = self.leases.take(lease);
        if let (Some(number), Some(peer)) = (lease.bindings[SOURCE], lease.peer) {
            self.peers.release(number, peer);
        }
        if let Some(counted) = lease.counted {
            self.destinations.release(counted);
        }
        for number in lease.bindings.into_iter().flatten() {
            self.unbind(number);
        }
    }

    /// Removes a closed connection from the count of its server, if it is counted. The connection keeps the
    /// rest of its lease.
    pub fn leave_server(&mut self, lease: LeaseId) {
        let counted = self.leases.take_counted(lease);
        counted.into_iter().for_each(|counted| self.destinations.release(counted));
    }

    /// Prefetches what [`Nat::release`] reads, in steps. Each step reads what the step before it has
    /// prefetched.
    #[inline]
    pub fn prefetch_release(&self, lease: LeaseId, step: usize) {
        let Some(id) = self.leases.likely_source(lease) else { return };
        match step {
            0 => {
                self.bindings.prefetch(id);
                self.peers.prefetch(id);
            }
            1 => {
                self.bindings.prefetch_keys(id);
                self.pools.prefetch(&self.bindings.get(id).end());
            }
            2 => self.pools.prefetch_keys(&self.bindings.get(id).end()),
            _ => {}
        }
    }

    /// Sets the servers of a rule that take new connections. `None` means all servers with a weight above 0.
    /// For a new rule, this must be called before its first connection; for a removed rule, with `None` after
    /// its last one.
    pub fn set_open_servers(&mut self, rule: RuleVersion, open: Option<OpenServers>) {
        self.destinations.set_open(rule, open);
    }

    /// Forgets a rule that was removed. Its connections keep their translations.
    pub fn forget(&mut self, rule: RuleVersion) {
        self.destinations.forget(rule);
    }

    /// The inside endpoint bound to an outside address and port: for hairpinning (RFC 4787, REQ-9) and
    /// endpoint-independent filtering.
    pub fn owner(&self, proto: u8, family: u8, wire: Wire, address: u128, port: u16) -> Option<(u128, u16)> {
        let number = self.bindings.find_outside(&OutsideAddress { address, wire, proto, family }, port)?;
        let inside = &self.bindings.get(number).inside;
        Some((inside.address, inside.port))
    }

    /// Records the MAC address of the inside host that starts a connection with this lease. Nothing is
    /// recorded for a connection whose source is not translated, such as one without a lease.
    pub fn learn_mac(&mut self, lease: Option<LeaseId>, now_ms: u64, mac: [u8; 6]) {
        if let Some(binding) = lease.and_then(|lease| self.leases.source(lease)) {
            self.peers.learn(binding, now_ms, mac);
        }
    }

    /// The MAC address of the inside host of the binding that packets with this tuple are addressed to, if
    /// known.
    pub fn inside_mac(&self, sent: &Tuple) -> Option<[u8; 6]> {
        let Tuple { addresses, wire, proto, family, .. } = *sent;
        let outside = OutsideAddress { address: addresses[DESTINATION], wire, proto, family };
        self.bindings
            .find_outside(&outside, sent.port(DESTINATION))
            .and_then(|binding| self.peers.mac(binding))
    }

    /// Number of bindings.
    pub fn len(&self) -> usize {
        self.bindings.len()
    }

    /// Whether there are no bindings.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Approximate memory of bindings in bytes, without the records of single ports in pools.
    pub fn memory(&self) -> usize {
        self.bindings.memory() + self.pools.memory() + self.leases.memory() + self.peers.memory()
    }

    /// Creates the lease of a connection: records its peer and its server, if they are counted.
    pub(super) fn lease(
        &mut self,
        sent: Tuple,
        binding: Option<BindingId>,
        counted: Option<CountedServer>,
    ) -> Result<Translated, NatError> {
        let records_peer = self.settings.nat_filtering == NatFiltering::AddressDependent;
        let is_kept =
            self.leases.reserve() && counted.is_none_or(|counted| self.destinations.reserve(counted));
        let peer = match binding.filter(|_| records_peer && is_kept) {
            Some(number) => self.peers.hold(number, sent.addresses[DESTINATION]).map(Some),
            None => is_kept.then_some(None),
        };
        let Some(peer) = peer else {
            if let Some(number) = binding {
                self.unbind(number);
            }
            return Err(NatError::NoMemory);
        };
        if let Some(counted) = counted {
            self.destinations.hold(counted);
        }
        let lease = Lease { bindings: [binding, None], counted, peer };
        Ok(Translated { sent, lease: self.leases.store(lease) })
    }

    fn unbind(&mut self, id: BindingId) {
        if let Some(released) = self.bindings.release(id) {
            self.peers.forget(id);
            self.pools.release(&released.inside, released.end());
        }
    }

    /// Translates the source of a tuple; returns the binding to release.
    fn source(
        &mut self,
        mapping: &Mapping,
        sent: Tuple,
        taken: &dyn Fn(&Tuple) -> bool,
    ) -> Result<(Tuple, Option<BindingId>), NatError> {
        let Some(inside) = self.inside(mapping, &sent)? else {
            return if taken(&sent.reversed()) {
                self.with_other_port(mapping, sent, taken)
            } else {
                Ok((sent, None))
            };
        };
        let source = match &mapping.saddr {
            Some(addresses) if !sent.may_map_ports() => self.with_own_port(&inside, addresses, sent, taken),
            _ => self.with_ports(&inside, mapping, sent, taken),
        };
        self.pools.targets.release(inside.target);
        source
    }

    /// The inside endpoint of a packet, unless the mapping does not translate sources. The caller must
    /// release its target.
    pub(super) fn inside(
        &mut self,
        mapping: &Mapping,
        arrived: &Tuple,
    ) -> Result<Option<InsideEnd>, NatError> {
        let ranges = mapping.sport.as_ref().filter(|_| arrived.may_map_ports()).map(PortMapping::ranges);
        if mapping.saddr.is_none() && ranges.is_none() {
            return Ok(None);
        }
        self.inside_of((mapping.saddr.as_ref(), ranges), arrived).map(Some)
    }

    fn inside_of(
        &mut self,
        (pool, ranges): (Option<&ValueSet>, Option<&PortRanges>),
        arrived: &Tuple,
    ) -> Result<InsideEnd, NatError> {
        let targets = &mut self.pools.targets;
        let is = |target: &SourceTarget| target.matches(pool, ranges);
        let target = targets
            .hold_last(is)
            .or_else(|| {
                targets.hold(SourceTarget { addresses: pool.cloned(), ranges: ranges.cloned() }, |_| ())
            })
            .ok_or(NatError::NoMemory)?;
        Ok(InsideEnd::new(arrived, target))
    }

    /// Assigns another port of its own address to a connection whose source no rule translates. This is
    /// necessary if its destination is mapped to one with which this port already communicates.
    fn with_other_port(
        &mut self,
        mapping: &Mapping,
        sent: Tuple,
        taken: &dyn Fn(&Tuple) -> bool,
    ) -> Result<(Tuple, Option<BindingId>), NatError> {
        if !sent.may_map_ports() || mapping.daddr.is_none() && mapping.dport.is_none() {
            return Err(NatError::Clash);
        }
        let inside = self.inside_of((None, None), &sent)?;
        let source = self.with_ports(&inside, mapping, sent, taken);
        self.pools.targets.release(inside.target);
        source.map_err(|why| if why == NatError::NoMemory { why } else { NatError::Clash })
    }

    /// Translates a source with ports. An inside endpoint has one outside endpoint. If that is already in use
    /// towards the connection's destination, the connection gets a separate outside endpoint.
    fn with_ports(
        &mut self,
        inside: &InsideEnd,
        mapping: &Mapping,
        sent: Tuple,
        taken: &dyn Fn(&Tuple) -> bool,
    ) -> Result<(Tuple, Option<BindingId>), NatError> {
        let shared = self.bindings.find_inside(inside);
        if let Some(number) = shared {
            let binding = self.bindings.get(number);
            let sent = with_source(sent, binding.address, binding.port);
            if !taken(&sent.reversed()) {
                self.bindings.hold(number);
                return Ok((sent, Some(number)));
            }
        }
        let taken = |address, port| taken(&with_source(sent, address, port).reversed());
        let class = class(mapping, inside);
        let end = self.new_end(inside, mapping, class, &taken)?;
        let number = self.bind(*inside, end, shared.is_none())?;
        Ok((with_source(sent, end.address, end.port), Some(number)))
    }

    /// Binds an inside endpoint to an outside endpoint that was taken for it. Without memory, the outside
    /// endpoint is released.
    pub(super) fn bind(
        &mut self,
        inside: InsideEnd,
        end: OutsideEnd,
        is_shared: bool,
    ) -> Result<BindingId, NatError> {
        self.bindings.bind(inside, end, is_shared).ok_or_else(|| {
            self.pools.release(&inside, end);
            NatError::NoMemory
        })
    }

    fn new_end(
        &mut self,
        inside: &InsideEnd,
        mapping: &Mapping,
        class: u8,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Result<OutsideEnd, NatError> {
        let requested = mapping.sport.as_ref().map(PortMapping::ranges);
        let shuffled = mapping.sport.as_ref().is_some_and(PortMapping::is_shuffled);
        let own = Some(inside.port).filter(|_| !shuffled);
        let has_parity = !matches!(inside.proto, proto::ICMP | proto::ICMP6) && !shuffled;
        let odd = Some(inside.port % 2 == 1).filter(|_| self.settings.nat_parity && has_parity);
        let adjacent =
            if self.settings.nat_contiguity && has_parity { self.adjacent_port(inside) } else { None };
        let request = PortRequest {
            ranges: requested.map_or(CLASSES[usize::from(class)], |ranges| ranges),
            preferred: [own, adjacent],
            odd,
        };
        let found = match &mapping.saddr {
            Some(addresses) => {
                self.pools.take(inside, addresses, (class, &request), &mut self.secrets, taken)
            }
            None => self.pools.take_own(inside, (class, &request), &mut self.secrets, taken),
        };
        let fixed = mapping.sport.as_ref().is_some_and(PortMapping::is_fixed);
        found.map_err(|exhausted| match exhausted {
            PoolExhausted::NoAddress => NatError::NoAddress,
            PoolExhausted::NoPort if fixed => NatError::Clash,
            PoolExhausted::NoPort => NatError::NoPort,
            PoolExhausted::HostLimit => NatError::HostLimit,
            PoolExhausted::NoMemory => NatError::NoMemory,
        })
    }

    /// The port that forms an even-odd pair with the outside port of the inside port's neighbour. RTP uses an
    /// even port, and RTCP the odd port above it.
    fn adjacent_port(&self, inside: &InsideEnd) -> Option<u16> {
        let neighbour = self.bindings.find_inside(&inside.neighbour())?;
        Some(self.bindings.get(neighbour).port)
            .filter(|port| port % 2 != inside.port % 2)
            .map(|port| port ^ 1)
    }

    /// Translates a source that has no port, or must keep its port. Only the address distinguishes its
    /// replies from those of others, so no binding is created.
    fn with_own_port(
        &mut self,
        inside: &InsideEnd,
        addresses: &ValueSet,
        sent: Tuple,
        taken: &dyn Fn(&Tuple) -> bool,
    ) -> Result<(Tuple, Option<BindingId>), NatError> {
        if addresses.is_empty() {
            return Err(NatError::NoAddress);
        }
        let mut index = self.pools.index_for(inside, addresses);
        for _ in 0..MAX_ADDRESSES {
            let sent = with_source(sent, addresses.nth(index), sent.ports[SOURCE]);
            if !taken(&sent.reversed()) {
                return Ok((sent, None));
            }
            index = self.secrets.below(addresses.len());
        }
        Err(NatError::Clash)
    }
}

/// A tuple with another source.
fn with_source(mut sent: Tuple, address: u128, port: u16) -> Tuple {
    sent.addresses[SOURCE] = address;
    sent.ports[SOURCE] = port;
    sent
}

//! Network address translation: which ends a new connection gets, so that replies find back.
//!
//! Purpose: [`Nat::translate`] answers with the tuple that a connection's packets leave with. Sources are translated by
//! *bindings* (`bindings`): an inside end has one outside end, whomever it talks to (RFC 4787, REQ-1), and no outside
//! end belongs to two inside ends. Outside addresses and ports come from `pools`. Destinations are chosen for each
//! connection by itself (`destinations`, `balance`).
//!
//! Life-cycle: a binding begins with the first connection that needs it and ends with the last one that
//! [`Nat::release`] gives back, whether its rule is still there or not. Only what a rule balances over is remembered
//! until [`Nat::forget`]. Workers that share outside addresses share one `Nat`, under a lock, since no end may be given
//! twice. Nothing of it is asked for the packets of a connection that is made: the connection keeps both its tuples.
//!
//! Ports are unpredictable (RFC 6056), and so is which outside address or server a host gets: a cipher chooses them, or a keyed function
//! where the same host is to get the same again. Memory goes by what is in use, not by the size of pools.

mod addresses;
mod available;
mod balance;
mod bindings;
mod destinations;
mod interned;
mod leases;
mod pools;
mod ports;
mod random;
mod restore;
mod shards;
mod shortage;
#[cfg(test)]
mod tests;

pub use addresses::ValueSet;
pub use balance::Balance;
pub use ports::PortMapping;
pub use shortage::PortShortage;

use crate::hash::TupleHasher;
use crate::{DESTINATION, SOURCE, Side, Tuple, Wire, proto};
use bindings::{BindingTable, InsideEnd, OutsideAddress};
use destinations::{CountedServer, DestinationTable};
use leases::{BindingPeers, Lease, LeaseTable};
use mmb_policy::policy::{ConnectionSettings, NatFiltering};
use mmb_random::{Prf, Purpose, SeedTree};
use pools::{NatPools, PoolExhausted, SourceTarget, column};
use ports::PortRequest;
use random::NatRandom;

/// What the stateful targets of a rule make of a connection's ends. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The source address. An inside address keeps the one that it got.
    pub saddr: Option<ValueSet>,
    /// The destination address. Without `balance`, one source address always gets the same.
    pub daddr: Option<ValueSet>,
    /// The source port; the identifier of ICMP queries.
    pub sport: Option<PortMapping>,
    /// The destination port.
    pub dport: Option<PortMapping>,
    /// How connections are spread over `daddr`, or over `dport` if there is at most one address.
    pub balance: Option<Balance>,
}

impl Mapping {
    /// Makes what lookups need, so that the first connection does not wait for it. Copies share it: this is for the
    /// thread that compiles a rule.
    pub fn prepare(&self) {
        if self.balance == Some(Balance::Hash) {
            let sets = [self.daddr.as_ref(), self.dport.as_ref().map(PortMapping::values)];
            sets.into_iter().flatten().for_each(|servers| _ = servers.maglev());
        }
    }
}

/// A connection as it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// The tuple of its packets after translation; replies arrive with it reversed.
    pub sent: Tuple,
    /// What [`Nat::release`] takes when the connection ends; 0 if there is nothing to release.
    pub binding: u32,
}

/// Why a connection has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatError {
    /// The mapping has no address.
    NoAddress,
    /// All ports that the connection may have are in use.
    NoPort,
    /// The inside address holds as many ports as it may.
    HostLimit,
    /// There is no memory to note what it gets.
    NoMemory,
    /// The only end that it may have is in use by another connection.
    Clash,
}

/// Translations, and all that they hold.
pub struct Nat {
    settings: ConnectionSettings,
    secrets: NatRandom,
    bindings: BindingTable,
    pools: NatPools,
    destinations: DestinationTable,
    leases: LeaseTable,
    peers: BindingPeers,
}

/// How many destinations are tried for a connection whose replies would be another's.
const DESTINATIONS: u64 = 4;
/// How many outside addresses are tried for a connection that has no ports, or keeps them.
const ADDRESSES: u64 = 16;

/// Ports that nothing privileged listens at, ports that are, and identifiers (RFC 4787, REQ-3).
const CLASSES: [&[(u16, u16)]; 3] = [&[(1024, u16::MAX)], &[(1, 1023)], &[(0, u16::MAX)]];

impl Nat {
    /// Without any translation.
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

    /// Makes ports to come independent of those before, should somebody know what they are made from. What is bound stays.
    pub fn reseed(&mut self, fresh: &SeedTree) {
        self.secrets.reseed(fresh.shared(Purpose::NatChoices));
    }

    /// Changes the settings for connections to come: those of translations count. Connections that were made under another
    /// filtering let in by address only what they noted then.
    pub fn configure(&mut self, settings: &ConnectionSettings) {
        self.settings = *settings;
        self.pools.ports_per_host = settings.nat_ports_per_host;
    }

    /// The tuple of a new connection's packets as they leave, and what to release when it ends. `taken` says whether a
    /// reply tuple is some connection's key already.
    pub fn translate(
        &mut self,
        rule: u32,
        mapping: &Mapping,
        arrived: &Tuple,
        taken: &dyn Fn(&Tuple) -> bool,
    ) -> Result<Translated, NatError> {
        for attempt in 0..DESTINATIONS {
            let to = self.destinations.choose(rule, mapping, arrived, attempt, &mut self.secrets)?;
            let mut sent = *arrived;
            sent.addresses[DESTINATION] = to.address;
            if matches!(arrived.proto, proto::TCP | proto::UDP) {
                sent.ports[DESTINATION] = to.port;
            }
            match self.source(mapping, sent, taken) {
                Ok((sent, binding)) => return self.lease(sent, binding, to.counted),
                Err(NatError::Clash) if mapping.has_choice() => {}
                Err(refused) => return Err(refused),
            }
        }
        Err(NatError::Clash)
    }

    /// A translation whose destination is an outside end of a binding goes to the inside end: a connection from outside
    /// that filtering lets in, or one between two inside ends (hairpinning, RFC 4787, REQ-9). Others stay as they are.
    /// What arrives and is translated by no rule comes here with itself as `sent` and 0 as `binding`.
    ///
    /// A host is not led to itself: it would make connections alone that both ends seem to want. Nor is one that has no outside end
    /// led to its side of the wire: it would leave by the other. Nor are ICMP queries between inside ends: they are asked of
    /// addresses, and which binding has the same identifier is chance (RFC 5508, REQ-7, asks for them only of a NAT without ports).
    ///
    /// # Errors
    /// It is led to the inside end, but there is no memory to note that. What `translated` holds is released.
    pub fn enter(&mut self, translated: Translated) -> Result<Translated, NatError> {
        let Tuple { addresses, wire, side, proto, family, .. } = translated.sent;
        let outside = OutsideAddress { address: addresses[DESTINATION], wire, proto, family };
        let [sport, dport] = [SOURCE, DESTINATION].map(|end| translated.sent.port(end));
        let query = translated.sent.is_query();
        let itself = addresses[SOURCE] == addresses[DESTINATION] && sport == dport;
        if itself || query && translated.binding != 0 {
            return Ok(translated);
        }
        let Some(number) = self.bindings.of_outside(&outside, dport) else {
            return Ok(translated);
        };
        let inside = self.bindings.record(number).inside;
        if (inside.address, inside.port) == (addresses[DESTINATION], dport) {
            // Its outside end is itself.
            return Ok(translated);
        }
        // Filtering is about who is outside.
        let from =
            self.leases.source(translated.binding).map(|source| self.bindings.record(source).inside.address);
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
            self.release(translated.binding);
            return Err(NatError::NoMemory);
        }
        self.bindings.hold(number);
        let mut sent = translated.sent;
        sent.addresses[DESTINATION] = inside.address;
        sent.ports[if query { SOURCE } else { DESTINATION }] = inside.port;
        let mut lease = self.leases.take(translated.binding);
        lease.bindings[DESTINATION] = Some(number);
        Ok(Translated { sent, binding: self.leases.keep(lease) })
    }

    /// Gives back what a connection held.
    pub fn release(&mut self, binding: u32) {
        let lease = self.leases.take(binding);
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

    /// Forgets a rule that is gone. Its connections keep what they have.
    pub fn forget(&mut self, rule: u32) {
        self.destinations.forget(rule);
    }

    /// The inside end that owns an outside address and port: for hairpinning (RFC 4787, REQ-9) and endpoint-independent
    /// filtering.
    pub fn owner(&self, proto: u8, family: u8, wire: Wire, address: u128, port: u16) -> Option<(u128, u16)> {
        let number = self.bindings.of_outside(&OutsideAddress { address, wire, proto, family }, port)?;
        let inside = &self.bindings.record(number).inside;
        Some((inside.address, inside.port))
    }

    /// How many outside ends stand for inside ends.
    pub fn len(&self) -> usize {
        self.bindings.len()
    }

    /// Whether no outside end stands for an inside end.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that bindings take, roughly; what pools note of single ports is not counted.
    pub fn memory(&self) -> usize {
        self.bindings.memory() + self.pools.memory() + self.leases.memory() + self.peers.memory()
    }

    /// Counts a connection wherever it has to be counted.
    fn lease(
        &mut self,
        sent: Tuple,
        binding: Option<u32>,
        counted: Option<CountedServer>,
    ) -> Result<Translated, NatError> {
        let noted = self.settings.nat_filtering == NatFiltering::AddressDependent;
        let peer = binding.filter(|_| noted).map(|number| (number, sent.addresses[DESTINATION]));
        let is_kept = self.leases.reserve()
            && counted.is_none_or(|counted| self.destinations.reserve(counted))
            && peer.is_none_or(|(number, address)| self.peers.hold(number, address));
        if !is_kept {
            if let Some(number) = binding {
                self.unbind(number);
            }
            return Err(NatError::NoMemory);
        }
        if let Some(counted) = counted {
            self.destinations.hold(counted);
        }
        let peer = peer.map(|(_, address)| address);
        let lease = Lease { bindings: [binding, None], counted, peer };
        Ok(Translated { sent, binding: self.leases.keep(lease) })
    }

    fn unbind(&mut self, number: u32) {
        if let Some(gone) = self.bindings.release(number) {
            self.pools.give_back(&gone);
        }
    }

    /// Gives a tuple the outside end of its source, with the binding to release.
    fn source(
        &mut self,
        mapping: &Mapping,
        sent: Tuple,
        taken: &dyn Fn(&Tuple) -> bool,
    ) -> Result<(Tuple, Option<u32>), NatError> {
        let Some(inside) = self.inside(mapping, &sent)? else {
            return if taken(&sent.reversed()) {
                self.beside(mapping, sent, taken)
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

    /// The inside end that a packet comes from, unless the mapping leaves sources alone. Its target is held until the caller
    /// releases it.
    fn inside(&mut self, mapping: &Mapping, arrived: &Tuple) -> Result<Option<InsideEnd>, NatError> {
        let ranges = mapping.sport.as_ref().filter(|_| arrived.may_map_ports()).map(PortMapping::ranges);
        if mapping.saddr.is_none() && ranges.is_none() {
            return Ok(None);
        }
        let target = SourceTarget { addresses: mapping.saddr.clone(), ranges: ranges.cloned() };
        self.inside_of(target, arrived).map(Some)
    }

    fn inside_of(&mut self, target: SourceTarget, arrived: &Tuple) -> Result<InsideEnd, NatError> {
        let Tuple { addresses, ports, wire, side, proto, family } = *arrived;
        let target = self.pools.targets.hold(target, |_| ()).ok_or(NatError::NoMemory)?;
        Ok(InsideEnd { address: addresses[SOURCE], port: ports[SOURCE], target, wire, side, proto, family })
    }

    /// Gives a connection whose source no rule translates another port of its own address, since its destination was mapped to one
    /// that this port already talks to.
    fn beside(
        &mut self,
        mapping: &Mapping,
        sent: Tuple,
        taken: &dyn Fn(&Tuple) -> bool,
    ) -> Result<(Tuple, Option<u32>), NatError> {
        if !sent.may_map_ports() || mapping.daddr.is_none() && mapping.dport.is_none() {
            return Err(NatError::Clash);
        }
        let inside = self.inside_of(SourceTarget { addresses: None, ranges: None }, &sent)?;
        let source = self.with_ports(&inside, mapping, sent, taken);
        self.pools.targets.release(inside.target);
        source.map_err(|why| if why == NatError::NoMemory { why } else { NatError::Clash })
    }

    /// An end with ports has one outside end, but for connections for whose destination that is another connection's: such a one gets
    /// an end of its own.
    fn with_ports(
        &mut self,
        inside: &InsideEnd,
        mapping: &Mapping,
        sent: Tuple,
        taken: &dyn Fn(&Tuple) -> bool,
    ) -> Result<(Tuple, Option<u32>), NatError> {
        if let Some(number) = self.bindings.of_inside(inside) {
            let binding = self.bindings.record(number);
            let sent = with_source(sent, binding.address, binding.port);
            if !taken(&sent.reversed()) {
                self.bindings.hold(number);
                return Ok((sent, Some(number)));
            }
        }
        let taken = |address, port| taken(&with_source(sent, address, port).reversed());
        let class = class(mapping, inside);
        let (address, port) = self.new_end(inside, mapping, class, &taken)?;
        let number = self.bind(*inside, (address, port), column(inside.proto, class))?;
        Ok((with_source(sent, address, port), Some(number)))
    }

    /// Binds an inside end to an outside one that it took, or gives that back.
    fn bind(&mut self, inside: InsideEnd, end: (u128, u16), column: u8) -> Result<u32, NatError> {
        self.bindings.bind(inside, end, column).map_err(|binding| {
            self.pools.give_back(&binding);
            NatError::NoMemory
        })
    }

    fn new_end(
        &mut self,
        inside: &InsideEnd,
        mapping: &Mapping,
        class: u8,
        taken: &dyn Fn(u128, u16) -> bool,
    ) -> Result<(u128, u16), NatError> {
        let asked = mapping.sport.as_ref().map(PortMapping::ranges);
        let shuffled = mapping.sport.as_ref().is_some_and(PortMapping::is_shuffled);
        let keeps = Some(inside.port).filter(|_| !shuffled);
        let has_parity = !matches!(inside.proto, proto::ICMP | proto::ICMP6) && !shuffled;
        let odd = Some(inside.port % 2 == 1).filter(|_| self.settings.nat_parity && has_parity);
        let beside =
            if self.settings.nat_contiguity && has_parity { self.beside_neighbour(inside) } else { None };
        let wish = PortRequest {
            ranges: asked.map_or(CLASSES[usize::from(class)], |ranges| ranges),
            first: [keeps, beside],
            odd,
        };
        let found = match &mapping.saddr {
            Some(addresses) => self.pools.take(inside, addresses, (class, &wish), &mut self.secrets, taken),
            None => self.pools.take_own(inside, &wish, &mut self.secrets, taken),
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

    /// The port that makes a pair with that of the inside port's neighbour: RTP's even port and RTCP's odd one above.
    fn beside_neighbour(&self, inside: &InsideEnd) -> Option<u16> {
        let neighbour = self.bindings.of_inside(&InsideEnd { port: inside.port ^ 1, ..*inside })?;
        Some(self.bindings.record(neighbour).port)
            .filter(|port| port % 2 != inside.port % 2)
            .map(|port| port ^ 1)
    }

    /// A source that has no port, or must keep it: its address is all that can tell its replies from others', so there is no binding.
    fn with_own_port(
        &mut self,
        inside: &InsideEnd,
        addresses: &ValueSet,
        sent: Tuple,
        taken: &dyn Fn(&Tuple) -> bool,
    ) -> Result<(Tuple, Option<u32>), NatError> {
        if addresses.is_empty() {
            return Err(NatError::NoAddress);
        }
        let mut index = self.pools.index_for(inside, addresses);
        for _ in 0..ADDRESSES {
            let sent = with_source(sent, addresses.nth(index), sent.ports[SOURCE]);
            if !taken(&sent.reversed()) {
                return Ok((sent, None));
            }
            index = self.secrets.below(addresses.len());
        }
        Err(NatError::Clash)
    }
}

/// Which of [`CLASSES`] an inside end's port has to stay in. Where the rule names ranges there is one class.
fn class(mapping: &Mapping, inside: &InsideEnd) -> u8 {
    match (&mapping.sport, inside.proto) {
        (Some(_), _) => 0,
        (None, proto::ICMP | proto::ICMP6) => 2,
        (None, _) => u8::from(inside.port < 1024),
    }
}

/// A tuple with another source.
fn with_source(mut sent: Tuple, address: u128, port: u16) -> Tuple {
    sent.addresses[SOURCE] = address;
    sent.ports[SOURCE] = port;
    sent
}

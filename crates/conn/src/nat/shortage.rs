//! What a connection lacks that was refused a port, and whose port would do.
//!
//! Translations know nothing of connections' lives: whoever does asks for each connection that may make room what its end would free
//! ([`Nat::would_free`]), and gives back what it holds ([`Nat::release`]).

use super::pools::{column, host_of};
use super::ports::within;
use super::{CLASSES, Mapping, Nat, NatError, Tuple, ValueSet, Wire, class};
use mmb_policy::policy::PortsPerHost;

/// The ports that one connection might have had.
#[derive(Clone, Debug)]
pub struct PortShortage<'a> {
    /// Only ports of the connection's own host help: it holds as many as it may.
    own: bool,
    /// As many as it may is what others leave it.
    is_shared: bool,
    host: u128,
    wire: Wire,
    proto: u8,
    family: u8,
    column: u8,
    /// The outside address, if there is one that the inside address has to stay at.
    paired: Option<u128>,
    addresses: &'a ValueSet,
    ranges: &'a [(u16, u16)],
    held: u32,
}

impl PortShortage<'_> {
    /// Whether the host holds as many ports as it may, so that only its own would help.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// What the pool lacks that leaves the host no larger share, under [`PortsPerHost::Share`]: ports that anybody holds.
    pub fn of_pool(&self) -> Option<Self> {
        (self.own && self.is_shared).then(|| PortShortage { own: false, ..self.clone() })
    }

    /// How many ports the host holds.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// The same for all that lack the same: the host's own ports, or those of an outside address or a pool that so many ports are held
    /// of, as a power of two. A hash of it tells shortages apart.
    pub fn likeness(&self) -> Tuple {
        let PortShortage { own, host, wire, proto, family, column, held, .. } = *self;
        let whose = if own { host } else { self.paired.unwrap_or(0) };
        let of_pool = if self.addresses.is_empty() { 0 } else { self.addresses.nth(0) };
        let magnitude = if own { 0 } else { held.checked_ilog2().map_or(0, |power| power as u16 + 1) };
        let ports = [u16::from(column) << 1 | u16::from(own), magnitude];
        Tuple { addresses: [whose, of_pool], ports, wire, proto, family, ..Tuple::default() }
    }
}

impl Nat {
    /// What a connection lacks that was refused; `None` if another one's end would not help.
    pub fn shortage<'a>(
        &mut self,
        mapping: &'a Mapping,
        arrived: &Tuple,
        why: NatError,
    ) -> Option<PortShortage<'a>> {
        let own = match why {
            NatError::HostLimit => true,
            NatError::NoPort => false,
            NatError::NoAddress | NatError::NoMemory | NatError::Clash => return None,
        };
        let addresses = mapping.saddr.as_ref()?;
        let inside = self.inside(mapping, arrived).ok()??;
        let class = class(mapping, &inside);
        let ranges = mapping.sport.as_ref().map_or(CLASSES[usize::from(class)], |ports| ports.ranges());
        let column = column(inside.proto, class);
        let paired = self.pools.paired(&inside).map(|index| addresses.nth(index));
        let held = self.pools.held(&inside, column);
        self.pools.targets.release(inside.target);
        let Tuple { wire, proto, family, .. } = *arrived;
        let host = host_of(inside.address, family);
        let is_shared = self.pools.ports_per_host == PortsPerHost::Share;
        Some(PortShortage {
            own,
            is_shared,
            host,
            wire,
            proto,
            family,
            column,
            paired,
            addresses,
            ranges,
            held,
        })
    }

    /// Whether a port that helps would be free if the connection of a binding ended: how many its host holds.
    pub fn would_free(&self, binding: u32, lacking: &PortShortage<'_>) -> Option<u32> {
        let binding = self.bindings.record(self.leases.source(binding)?);
        let (inside, outside) = (&binding.inside, binding.outside());
        let is_of_pool = match lacking.paired.filter(|_| !lacking.own) {
            Some(address) => outside.address == address,
            None => lacking.addresses.index_of(outside.address).is_some(),
        };
        let helps = binding.has_one_connection()
            && (outside.wire, outside.proto, outside.family) == (lacking.wire, lacking.proto, lacking.family)
            && is_of_pool
            && within(lacking.ranges, binding.port)
            && (!lacking.own || host_of(inside.address, inside.family) == lacking.host);
        helps.then(|| self.pools.held(inside, binding.column))
    }
}

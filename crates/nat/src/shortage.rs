//! Port shortages: the ports that a refused connection could use, and the connections whose end would free
//! one of them.
//!
//! NAT does not know the states of connections. For each connection that may be evicted, the caller checks
//! whether its end would free a port ([`Nat::would_free`]). Then it releases the binding of the connection
//! ([`Nat::release`]).

use crate::addresses::ValueSet;
use crate::inside_host::host_of;
use crate::mapping::{CLASSES, Mapping, NatError, class};
use crate::paired_address::column;
use crate::ports::within;
use crate::translate::Nat;
use mmb_conn::{LeaseId, Tuple, Wire};
use mmb_policy::settings::PortsPerHost;

/// The ports that one connection could use.
#[derive(Clone, Debug)]
pub struct PortShortage<'a> {
    /// The host has reached its limit, so that only ports of the connection's own host help.
    is_host_limit: bool,
    /// That limit depends on the ports that other hosts leave free.
    is_shared: bool,
    host: u128,
    wire: Wire,
    proto: u8,
    family: u8,
    column: u8,
    /// The outside address that the inside address must keep, if there is one.
    paired: Option<u128>,
    addresses: &'a ValueSet,
    ranges: &'a [(u16, u16)],
    held: u32,
}

impl PortShortage<'_> {
    /// Whether the host has reached its limit of ports, so that only its own ports help.
    pub fn is_host_limit(&self) -> bool {
        self.is_host_limit
    }

    /// Under [`PortsPerHost::Share`], the shortage of the pool that limits the host's share: ports of any
    /// host help.
    pub fn pool_shortage(&self) -> Option<Self> {
        (self.is_host_limit && self.is_shared).then(|| PortShortage { is_host_limit: false, ..self.clone() })
    }

    /// Number of ports that the host holds.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// A tuple that is equal for equal shortages; its hash distinguishes shortages. Shortages of the same
    /// host's own ports are equal. So are shortages of the same outside address or pool, if the hosts use
    /// about the same number of ports (as a power of two).
    pub fn key(&self) -> Tuple {
        let PortShortage { is_host_limit, host, wire, proto, family, column, held, .. } = *self;
        let whose = if is_host_limit { host } else { self.paired.unwrap_or(0) };
        let pool = if self.addresses.is_empty() { 0 } else { self.addresses.nth(0) };
        let magnitude =
            if is_host_limit { 0 } else { held.checked_ilog2().map_or(0, |power| power as u16 + 1) };
        let ports = [u16::from(column) << 1 | u16::from(is_host_limit), magnitude];
        Tuple { addresses: [whose, pool], ports, wire, proto, family, ..Tuple::default() }
    }
}

impl Nat {
    /// The shortage of a connection that was refused; `None` if no other connection's end would help.
    pub fn shortage<'a>(
        &mut self,
        mapping: &'a Mapping,
        arrived: &Tuple,
        why: NatError,
    ) -> Option<PortShortage<'a>> {
        let is_host_limit = match why {
            NatError::HostLimit => true,
            NatError::NoPort => false,
            NatError::NoAddress | NatError::NoServer | NatError::NoMemory | NatError::Clash => return None,
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
            is_host_limit,
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

    /// The number of ports that the host of a lease's connection uses, if the end of that connection would
    /// free a suitable port.
    pub fn would_free(&self, lease: LeaseId, shortage: &PortShortage<'_>) -> Option<u32> {
        let binding = self.bindings.get(self.leases.source(lease)?);
        let (inside, outside) = (&binding.inside, binding.outside());
        let is_in_pool = match shortage.paired.filter(|_| !shortage.is_host_limit) {
            Some(address) => outside.address == address,
            None => shortage.addresses.index_of(outside.address).is_some(),
        };
        let helps = binding.has_one_connection()
            && (outside.wire, outside.proto, outside.family)
                == (shortage.wire, shortage.proto, shortage.family)
            && is_in_pool
            && within(shortage.ranges, binding.port)
            && (!shortage.is_host_limit || host_of(inside.address, inside.family) == shortage.host);
        helps.then(|| self.pools.held(inside, binding.column))
    }
}

//! What a connection lacks that was refused a port, and whose port would do.
//!
//! Translations know nothing of connections' lives: whoever does asks for each connection that may make room what its end would free
//! ([`Nat::would_free`]), and gives back what it holds ([`Nat::release`]).

use super::ports::within;
use super::{Addresses, CLASSES, Mapping, Nat, Refused, Tuple, Wire, class};

/// The ports that one connection might have had.
#[derive(Clone, Debug)]
pub struct Shortage<'a> {
    /// Only ports of the connection's own inside address help: it holds as many as it may.
    own: bool,
    host: u128,
    wire: Wire,
    proto: u8,
    family: u8,
    /// The outside address, if there is one that the host has to stay at.
    paired: Option<u128>,
    addresses: &'a Addresses,
    ranges: &'a [(u16, u16)],
    held: u32,
}

impl Shortage<'_> {
    /// Whether the inside address holds as many ports as it may, so that only its own would help.
    pub fn is_own(&self) -> bool {
        self.own
    }
}

impl Nat {
    /// What a connection lacks that was refused; `None` if another one's end would not help.
    pub fn shortage<'a>(
        &mut self,
        mapping: &'a Mapping,
        arrived: &Tuple,
        why: Refused,
    ) -> Option<Shortage<'a>> {
        let own = match why {
            Refused::HostLimit => true,
            Refused::NoPort => false,
            Refused::NoAddress | Refused::NoMemory | Refused::Clash => return None,
        };
        let addresses = mapping.saddr.as_ref()?;
        let inside = self.inside(mapping, arrived).ok()??;
        let class = class(mapping, &inside);
        let ranges = mapping.sport.as_ref().map_or(CLASSES[usize::from(class)], |ports| ports.ranges());
        let (index, held) = self.pools.held(&inside, class).unzip();
        self.pools.targets.release(inside.target);
        let Tuple { wire, proto, family, .. } = *arrived;
        let paired = index.map(|index| addresses.nth(index));
        let (host, held) = (inside.address, held.unwrap_or(0));
        Some(Shortage { own, host, wire, proto, family, paired, addresses, ranges, held })
    }

    /// Whether a port that helps would be free if the connection of a binding ended: how many its inside address holds. Those of inside
    /// addresses that hold fewer than who asks are left alone.
    pub fn would_free(&self, binding: u32, lacking: &Shortage<'_>) -> Option<u32> {
        let binding = self.bindings.record(self.leases.source(binding)?);
        let (inside, outside) = (&binding.inside, binding.outside());
        let is_of_pool = match lacking.paired {
            Some(address) => outside.address == address,
            None => lacking.addresses.index_of(outside.address).is_some(),
        };
        let helps = binding.has_one_connection()
            && (outside.wire, outside.proto, outside.family) == (lacking.wire, lacking.proto, lacking.family)
            && is_of_pool
            && within(lacking.ranges, binding.port);
        if !helps || lacking.own && inside.address != lacking.host {
            return None;
        }
        let held = self.pools.held_of(inside, binding.column);
        (held >= lacking.held).then_some(held)
    }
}

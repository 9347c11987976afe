//! The inside host that requests an outside address.

use crate::bindings::{InsideEnd, Kind, NatKey, TargetId};
use mmb_base::Id;
use mmb_conn::{Tuple, TupleHasher, Wire};
use mmb_random::Prf;

/// An inside address for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InsideHost {
    pub(super) address: u128,
    pub(super) target: TargetId,
    pub(super) wire: Wire,
    pub(super) family: u8,
}

impl InsideHost {
    pub(super) fn from_end(inside: &InsideEnd) -> InsideHost {
        InsideHost {
            address: inside.address,
            target: inside.target,
            wire: inside.wire,
            family: inside.family,
        }
    }

    /// The network that is counted as the host of an IPv6 inside address. `None` for IPv4.
    pub(super) fn network(self) -> Option<InsideHost> {
        (self.family == 6).then(|| InsideHost { address: host_of(self.address, self.family), ..self })
    }

    pub(super) fn hash(&self, hasher: &TupleHasher) -> u64 {
        let InsideHost { address, target, wire, family } = *self;
        let key = NatKey { target: target.number(), ..NatKey::new(Kind::Host, address) };
        hasher.hash_words(key.on(wire, family))
    }

    /// The hash that selects its outside address. It comes from a [`Prf`], since the choice is visible
    /// outside.
    pub(super) fn choice(&self, pairing: &Prf) -> u64 {
        pairing.hash(&self.tuple().to_bytes())
    }

    fn tuple(&self) -> Tuple {
        let InsideHost { address, target, wire, family } = *self;
        // Targets count from zero here: the outside addresses of `replay --seed` depend on it.
        let target = u128::from(target.number()) - 1;
        Tuple { addresses: [address, target], wire, family, ..Tuple::default() }
    }
}

/// The host of an address: for IPv6 its first 64 bits.
pub(super) fn host_of(address: u128, family: u8) -> u128 {
    if family == 6 { address >> 64 << 64 } else { address }
}

//! Network address translation: the outside addresses and ports of new connections.
//!
//! Purpose: [`Nat::translate`] returns the tuple with which a connection's packets leave. Sources are translated by *bindings*
//! (`bindings`): an inside endpoint has one outside endpoint for all destinations (RFC 4787, REQ-1), and no outside endpoint belongs to two
//! inside endpoints. Outside addresses and ports come from `pools`. Destinations are chosen for each connection separately (`destinations`,
//! `balance`).
//!
//! Life-cycle: a binding begins with the first connection that needs it and ends when [`Nat::release`] is called for its last one, whether
//! its rule still exists or not. Only the state of load balancing is kept until [`Nat::forget`]. Workers that share outside addresses share
//! one `Nat`, under a lock, since no endpoint may be assigned twice. It is not used for packets of existing connections: a connection
//! stores both its tuples.
//!
//! Ports are unpredictable (RFC 6056), and so is which outside address or server a host gets: a cipher chooses them, or a keyed function
//! where the same host must get the same one again. Memory use depends on the bindings, not on the size of pools.

mod addresses;
mod available;
mod balance;
mod bindings;
mod destinations;
mod hashed;
mod ids;
mod inside_host;
mod interned;
mod leases;
mod maglev;
mod mapping;
mod open_servers;
mod paired_address;
mod pools;
mod ports;
mod random;
mod restore;
mod shortage;
#[cfg(test)]
mod tests;
mod translate;

pub use crate::ids::LeaseId;
pub use addresses::ValueSet;
pub use balance::Balance;
pub use mapping::{BalancedPart, Balancing, Mapping, NatError, RuleVersion};
pub use open_servers::OpenServers;
pub use ports::PortMapping;
pub use shortage::PortShortage;
pub use translate::{AHEAD, Nat, Translated};

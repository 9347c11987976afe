//! Network address translation: the outside addresses and ports of new connections.
//!
//! Purpose: [`Nat::translate`] returns the tuple with which a connection's packets leave. *Bindings*
//! (`bindings`) translate sources: an inside endpoint has one outside endpoint for all destinations
//! (RFC 4787, REQ-1), and no outside endpoint belongs to two inside endpoints. Outside addresses and ports
//! come from `pools`. Destinations are chosen for each connection separately (`destinations`, `balance`).
//!
//! Life-cycle: a binding starts with the first connection that needs it. It ends when [`Nat::release`] is
//! called for its last connection, whether its rule still exists or not. Only the state of load balancing is
//! kept until [`Nat::forget`]. Workers that share outside addresses share one `Nat`, under a lock, since no
//! endpoint may be assigned twice. Packets of existing connections do not use it: a connection stores both
//! its tuples.
//!
//! Ports are unpredictable (RFC 6056), and so are the outside address and the server of a host. A cipher
//! chooses them, or a keyed function if the same host must get the same result. Memory use depends on the
//! number of bindings, not on the size of pools.
#![forbid(unsafe_code)]

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

pub use addresses::ValueSet;
pub use balance::Balance;
pub use mapping::{BalancedPart, Balancing, Mapping, NatError, RuleVersion};
pub use mmb_conn::LeaseId;
pub use open_servers::OpenServers;
pub use ports::PortMapping;
pub use shortage::PortShortage;
pub use translate::{MAX_PREFETCHED, Nat, Translated};

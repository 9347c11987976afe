//! Terms of translation: what a rule asks for, and what a connection gets.

use super::addresses::ValueSet;
use super::balance::Balance;
use super::bindings::InsideEnd;
use super::ports::PortMapping;
use crate::proto;

/// A version of a stateful rule, unique among all that ever existed: a rule that is changed, or removed and added again, gets another one
/// although its id and its place in the compiled policy may stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleVersion(pub u64);

/// The mapping of a connection's addresses and ports by the stateful targets of a rule. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The source address. An inside address keeps its outside address.
    pub saddr: Option<ValueSet>,
    /// The destination address. Without `balance`, one source address always gets the same.
    pub daddr: Option<ValueSet>,
    /// The source port; the identifier of ICMP queries.
    pub sport: Option<PortMapping>,
    /// The destination port.
    pub dport: Option<PortMapping>,
    /// How connections are distributed over `daddr`, or over `dport` if there is at most one address.
    pub balance: Option<Balance>,
}

impl Mapping {
    /// Builds the lookup tables, so that the first connection does not wait for them. Copies share them; the thread that compiles a rule
    /// calls this.
    pub fn prepare(&self) {
        if self.balance == Some(Balance::Hash) {
            let sets = [self.daddr.as_ref(), self.dport.as_ref().map(PortMapping::values)];
            sets.into_iter().flatten().for_each(|servers| _ = servers.maglev());
        }
    }
}

/// Why a connection has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatError {
    /// The mapping has no address.
    NoAddress,
    /// All ports that the connection may have are in use.
    NoPort,
    /// The inside address has reached its limit of ports.
    HostLimit,
    /// There is no memory for its state.
    NoMemory,
    /// The only endpoint that it may have is in use by another connection.
    Clash,
}

/// Unprivileged ports, privileged ports, and identifiers (RFC 4787, REQ-3).
pub(super) const CLASSES: [&[(u16, u16)]; 3] = [&[(1024, u16::MAX)], &[(1, 1023)], &[(0, u16::MAX)]];

/// The index in [`CLASSES`] of the range that an inside endpoint's port must stay in. If the rule specifies ranges there is one class.
pub(super) fn class(mapping: &Mapping, inside: &InsideEnd) -> u8 {
    match (&mapping.sport, inside.proto) {
        (Some(_), _) => 0,
        (None, proto::ICMP | proto::ICMP6) => 2,
        (None, _) => u8::from(inside.port < 1024),
    }
}

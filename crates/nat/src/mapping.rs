//! Types of translation: the mapping that a rule requests, and the reasons why a connection has none.

use crate::addresses::ValueSet;
use crate::balance::Balance;
use crate::bindings::InsideEnd;
use crate::maglev::Maglev;
use crate::ports::PortMapping;
use mmb_conn::{DESTINATION, Tuple, proto};

/// A version of a stateful rule, unique among all versions that ever existed. A rule that is changed, or
/// removed and re-added, gets a new version. Its id and its place in the compiled policy may stay the
/// same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleVersion(pub u64);

/// The mapping of a connection's addresses and ports by the stateful targets of a rule. A part that is `None`
/// is not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The source address. An inside address keeps its outside address.
    pub saddr: Option<ValueSet>,
    /// The destination address. Without `balance`, a source address gets the same destination for all its
    /// connections, except if that clashes.
    pub daddr: Option<ValueSet>,
    /// The source port; the identifier of ICMP queries.
    pub sport: Option<PortMapping>,
    /// The destination port.
    pub dport: Option<PortMapping>,
    /// How connections are distributed over `daddr` or `dport`.
    pub balance: Option<Balancing>,
}

/// The balancing of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balancing {
    /// The method.
    pub method: Balance,
    /// The part that is balanced over.
    pub over: BalancedPart,
    /// The rule that requests it. Some of its servers may be [out of service](super::OpenServers).
    pub rule: RuleVersion,
}

/// The part of a mapping that is balanced over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BalancedPart {
    /// The destination address.
    Address,
    /// The destination port.
    Port,
}

impl Mapping {
    /// Builds the lookup tables, so that the first connection does not wait for them. The thread that
    /// compiles a rule calls this. Copies of the mapping share the tables.
    pub fn prepare(&self) {
        if self.balance.is_some_and(|balance| balance.method == Balance::Hash) {
            self.servers().into_iter().for_each(|servers| _ = servers.maglev());
        }
    }

    /// The values that are balanced over.
    pub fn servers(&self) -> Option<&ValueSet> {
        match self.balance?.over {
            BalancedPart::Address => self.daddr.as_ref(),
            BalancedPart::Port => self.dport.as_ref().map(PortMapping::values),
        }
    }

    /// The index among [`Mapping::servers`] of a connection's server, if the connection's packets leave with
    /// this tuple. `None` if the connection has no server: it was redirected, or NAT may not change the ports
    /// of its protocol.
    pub fn server_of(&self, sent: &Tuple) -> Option<u64> {
        let value = match self.balance?.over {
            BalancedPart::Address => sent.addresses[DESTINATION],
            BalancedPart::Port if maps_destination_port(sent.proto) => sent.ports[DESTINATION].into(),
            BalancedPart::Port => return None,
        };
        self.servers()?.index_of(value)
    }

    /// Whether the mapping maps this part.
    pub fn maps(&self, part: BalancedPart) -> bool {
        match part {
            BalancedPart::Address => self.daddr.is_some(),
            BalancedPart::Port => self.dport.is_some(),
        }
    }

    /// Merges the mapping of a later rule, which takes precedence.
    pub fn merge(&mut self, later: &Mapping) {
        let Mapping { saddr, daddr, sport, dport, balance } = later;
        if balance.is_some() || self.balance.is_some_and(|balance| later.maps(balance.over)) {
            self.balance = *balance;
        }
        for (mine, later) in [(&mut self.saddr, saddr), (&mut self.daddr, daddr)] {
            if later.is_some() {
                mine.clone_from(later);
            }
        }
        for (mine, later) in [(&mut self.sport, sport), (&mut self.dport, dport)] {
            if later.is_some() {
                mine.clone_from(later);
            }
        }
    }

    /// The bytes that the lookup tables of a mapping take for this number of servers.
    pub fn table_bytes(balance: Balance, servers: u64) -> u64 {
        if balance == Balance::Hash { Maglev::bytes(servers) } else { 0 }
    }
}

/// Whether a mapping may change the destination port of packets of this protocol.
pub(super) fn maps_destination_port(proto: u8) -> bool {
    matches!(proto, proto::TCP | proto::UDP)
}

/// Why a connection has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatError {
    /// The mapping has no address.
    NoAddress,
    /// All servers are out of service.
    NoServer,
    /// All ports that the connection may use are in use.
    NoPort,
    /// The inside address has reached its limit of ports.
    HostLimit,
    /// There is no memory for its state.
    NoMemory,
    /// The only endpoint that the connection may use is in use by another connection.
    Clash,
}

/// Classes of ports: unprivileged ports, privileged ports, and identifiers (RFC 4787, REQ-3).
pub(super) const CLASSES: [&[(u16, u16)]; 3] = [&[(1024, u16::MAX)], &[(1, 1023)], &[(0, u16::MAX)]];

/// The index in [`CLASSES`] of the range that an inside endpoint's port must stay in. If the rule specifies
/// ranges, there is one class.
pub(super) fn class(mapping: &Mapping, inside: &InsideEnd) -> u8 {
    match (&mapping.sport, inside.proto) {
        (Some(_), _) => 0,
        (None, proto::ICMP | proto::ICMP6) => 2,
        (None, _) => u8::from(inside.port < 1024),
    }
}

//! Servers of load balancers: what names one, and what operators and checks say about it.

use crate::field::{Field, MappedPart};
use std::fmt::{Display, Formatter, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The value of a list of `lb`: an address, or a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerName {
    /// An address of `ip-daddr` or `ip6-daddr`.
    Address(IpAddr),
    /// A port of `tcp-dport` or `udp-dport`.
    Port(u16),
}

impl ServerName {
    /// The server that a value of a field names; `None` if `lb` does not take the field.
    pub fn of(field: Field, value: u128) -> Option<ServerName> {
        let info = field.info();
        match info.bindings.part.filter(|_| info.bindings.lb)? {
            MappedPart::DestinationAddress if info.width() == Some(32) => {
                Some(ServerName::Address(Ipv4Addr::from_bits(value as u32).into()))
            }
            MappedPart::DestinationAddress => Some(ServerName::Address(Ipv6Addr::from_bits(value).into())),
            MappedPart::DestinationPort => Some(ServerName::Port(value as u16)),
            MappedPart::SourceAddress | MappedPart::SourcePort | MappedPart::IpId | MappedPart::FlowLabel => {
                None
            }
            MappedPart::SequenceNumber | MappedPart::AckNumber => None,
        }
    }
}

impl Display for ServerName {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            ServerName::Address(address) => address.fmt(f),
            ServerName::Port(port) => port.fmt(f),
        }
    }
}

/// The text is neither an address nor a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoServerName;

impl FromStr for ServerName {
    type Err = NoServerName;

    fn from_str(text: &str) -> std::result::Result<ServerName, NoServerName> {
        let port = || text.parse().map(ServerName::Port);
        text.parse().map(ServerName::Address).or_else(|_| port()).map_err(|_| NoServerName)
    }
}

/// What is said about a server: by an operator (the first three), or by whoever checks its health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerOrder {
    /// It takes new connections, unless a check has failed.
    Up,
    /// It takes no new connections, and keeps those that it has.
    Drain,
    /// It is out of service. For connections the same as [`ServerOrder::Drain`].
    Down,
    /// A check has passed.
    Healthy,
    /// Checks have failed: it takes no new connections while others do.
    Failed,
}

impl ServerOrder {
    /// Every order, with its help.
    pub const ALL: [(ServerOrder, &'static str); 5] = [
        (ServerOrder::Up, "it takes new connections again, unless its health check has failed"),
        (ServerOrder::Drain, "it gets no new connections and keeps those that it has"),
        (ServerOrder::Down, "it is out of service: it gets no new connections"),
        (ServerOrder::Healthy, "a health check tells that it answers"),
        (ServerOrder::Failed, "a health check tells that it does not answer: others get its new connections"),
    ];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            ServerOrder::Up => "up",
            ServerOrder::Drain => "drain",
            ServerOrder::Down => "down",
            ServerOrder::Healthy => "healthy",
            ServerOrder::Failed => "failed",
        }
    }
}

/// `server ORDER VALUE [in RULE] [because "TEXT"] [--kill]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCommand {
    /// What is said about the server.
    pub order: ServerOrder,
    /// The server.
    pub server: ServerName,
    /// Only as a server of this rule; `None`: of all rules that have it.
    pub rule: Option<crate::RuleId>,
    /// The reason, for those who look.
    pub reason: Option<String>,
    /// Its connections end.
    pub kill: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldId;

    #[test]
    fn names_are_those_of_values() {
        let name = |id, value| ServerName::of(Field::new(id), value).map(|name| name.to_string());
        assert_eq!(name(FieldId::IpDaddr, 0x0a00_0001).as_deref(), Some("10.0.0.1"));
        assert_eq!(name(FieldId::Ip6Daddr, 1).as_deref(), Some("::1"));
        assert_eq!(name(FieldId::TcpDport, 8080).as_deref(), Some("8080"));
        assert_eq!(name(FieldId::IpSaddr, 1), None);
        for text in ["10.0.0.1", "2001:db8::1", "8080"] {
            assert_eq!(text.parse::<ServerName>().map(|name| name.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("web1".parse::<ServerName>(), Err(NoServerName));
        assert_eq!("70000".parse::<ServerName>(), Err(NoServerName));
    }
}

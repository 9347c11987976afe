//! The engine's ports: names, MTUs, and where what comes in by them goes.

use mmb_packet::PortId;

/// One port as the engine knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Its name in rules.
    pub name: String,
    /// The largest IP packet that may leave by it, in bytes; `None`: no bound.
    pub mtu: Option<u32>,
    /// Where what comes in by it goes.
    pub forward: Forward,
}

/// Where packets of a port go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// To the other end of its wire.
    Wire(PortId),
    /// Where the host's routes lead, which mmb does not know: verdicts send to the port itself, rules about the port that a packet
    /// leaves by hold for none, and all such ports share their connections. The engine sees only packets of ports that were enabled.
    Routed,
    /// Nowhere: they are dropped.
    Nowhere,
}

impl Forward {
    /// The other end of the wire, if there is one.
    pub fn peer(self) -> Option<PortId> {
        if let Forward::Wire(peer) = self { Some(peer) } else { None }
    }
}

impl From<Option<PortId>> for Forward {
    fn from(peer: Option<PortId>) -> Forward {
        peer.map_or(Forward::Nowhere, Forward::Wire)
    }
}

/// The ports by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortTable(pub Vec<PortSpec>);

impl PortTable {
    /// The number of the port of that name.
    pub fn id(&self, name: &str) -> Option<PortId> {
        self.0.iter().position(|p| p.name == name).map(|i| PortId(i as u16))
    }

    /// Whether the rules see a port's packets as long as nothing is said about it.
    pub fn is_enabled_by_default(&self, name: &str) -> bool {
        !self.0.iter().any(|port| port.name == name && port.forward == Forward::Routed)
    }

    /// The names of all ports, for messages.
    pub(crate) fn known(&self) -> String {
        let names: Vec<_> =
            self.0.iter().map(|port| port.name.as_str()).filter(|name| !name.is_empty()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

//! The engine's ports: names, MTUs, and forwarding.

use mmb_packet::PortId;

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// The port's name in rules.
    pub name: String,
    /// The largest IP packet that may leave on the port, in bytes. `None`: no limit.
    pub mtu: Option<u32>,
    /// How packets that arrive on the port are forwarded.
    pub forward: Forward,
}

/// How packets that arrive on a port are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// To the other end of its wire.
    Wire(PortId),
    /// By the host's routing, so mmb does not know the egress port. Verdicts name the ingress port itself.
    /// Rules that match on the egress port match no packet. All routed ports share their connections. The
    /// engine sees only packets of ports that were enabled.
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
    /// The number of the port with this name.
    pub fn id(&self, name: &str) -> Option<PortId> {
        self.0.iter().position(|p| p.name == name).map(|i| PortId(i as u16))
    }

    /// Whether rules apply to a port's packets without an `enable` or `disable` command.
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

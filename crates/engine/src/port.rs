//! The engine's ports: names, link types, MTUs and the wires between them.

use mmb_packet::PortId;

/// One port as the engine knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Its name in rules.
    pub name: String,
    /// The largest IP packet that may leave by it, in bytes; `None`: no bound.
    pub mtu: Option<u32>,
    /// The other end of its wire: what comes in here leaves there. `None`: it leaves nowhere and is dropped.
    pub peer: Option<PortId>,
}

/// The ports by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortTable(pub Vec<PortSpec>);

impl PortTable {
    /// The number of the port of that name.
    pub fn id(&self, name: &str) -> Option<PortId> {
        self.0.iter().position(|p| p.name == name).map(|i| PortId(i as u16))
    }

    /// The names of all ports, for messages.
    pub(crate) fn known(&self) -> String {
        let names: Vec<_> = self.0.iter().map(|port| port.name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

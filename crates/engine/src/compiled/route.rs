//! Routes: how packets of each port are forwarded, and by which wire and side connections identify the port.

use crate::port::{Forward, PortSpec, PortTable};
use mmb_conn::{Side, Wire};
use mmb_packet::PortId;
use mmb_policy::Policy;

/// The egress port in the keys of packets whose egress port rules cannot name.
const NO_EGRESS: PortId = PortId(u16::MAX);

/// How packets of a port are forwarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The port for verdicts, and its MTU.
    pub(crate) egress: Option<(PortId, u32)>,
    /// The egress port that rules match on.
    pub(crate) out_port: PortId,
    /// The wire in the tuples of its connections.
    pub(crate) wire: Wire,
    /// The port's side of that wire.
    pub(crate) side: Side,
    /// Packets from this port are processed.
    pub(crate) enabled: bool,
}

impl Route {
    /// The route of a port that is not in the table: rules apply, and packets are not forwarded.
    pub(super) fn unknown(port: PortId) -> Route {
        Route {
            egress: None,
            out_port: NO_EGRESS,
            wire: Wire::for_port(port, None),
            side: Side::Low,
            enabled: true,
        }
    }

    /// Whether the host's routing decides where packets go.
    pub(crate) fn is_routed(&self) -> bool {
        self.wire.is_routed()
    }
}

/// The routes of all ports, by number.
pub(super) fn routes(policy: &Policy, ports: &PortTable) -> Box<[Route]> {
    let mtu = |id: PortId| ports.0.get(usize::from(id.0)).map(|port| (id, port.mtu.unwrap_or(u32::MAX)));
    let route = |(id, port): (u16, &PortSpec)| {
        let id = PortId(id);
        let (egress, out_port, wire) = match port.forward {
            Forward::Wire(peer) => (mtu(peer), peer, Wire::for_port(id, Some(peer))),
            Forward::Routed => (Some((id, u32::MAX)), NO_EGRESS, Wire::ROUTED),
            Forward::Nowhere => (None, NO_EGRESS, Wire::for_port(id, None)),
        };
        let counts = !wire.is_routed() && !policy.settings.connections.same_port;
        let side = if counts { Side::for_port(id, port.forward.peer()) } else { Side::Any };
        Route { egress, out_port, wire, side, enabled: policy.ports.get(&port.name) != Some(&false) }
    };
    (0..).zip(&ports.0).map(route).collect()
}

//! Finds the ports, rules and clock values of this daemon that correspond to those of a loaded state.

use super::saved_connection::{LONGEST_AGE_MS, LONGEST_IDLE_MS};
use super::state_file::{SavedPort, StateHeader};
use crate::compiled::Route;
use crate::port::PortTable;
use mmb_conn::{ConnectionSnapshot, Side, Tuple, Wire};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use std::collections::{BTreeMap, HashMap};

/// The ingress of a tuple: the number of the wire, and the side.
type Ingress = (u16, Side);

/// Converts the connections of a state to the ports, rules and clock of this daemon.
#[derive(Clone, Debug, Default)]
pub struct StateMap {
    /// By rule id in the state: the id of the corresponding stateful rule in the policy in force.
    pub rules: HashMap<RuleId, RuleId>,
    /// Milliseconds since the state was saved.
    gap_ms: u64,
    /// By port number in the state: the port of this daemon, if it has one of this name.
    ports: Vec<Option<PortId>>,
    /// By ingress in the state: the ingress of the same port in this daemon.
    ingress: BTreeMap<Ingress, Ingress>,
}

impl StateMap {
    /// The map for a state with this header. `now_ms` is the time in milliseconds since 1970. Ports
    /// correspond if they have the same name. If the clock was set back, no time has passed.
    pub(crate) fn new(
        header: &StateHeader,
        now_ms: u64,
        ports: &PortTable,
        routes: &[Route],
        rules: HashMap<RuleId, RuleId>,
    ) -> StateMap {
        let mut map =
            StateMap { rules, gap_ms: now_ms.saturating_sub(header.saved_at_ms), ..StateMap::default() };
        for SavedPort { name, wire, side } in &header.ports {
            let port = Some(name).filter(|name| !name.is_empty()).and_then(|name| ports.id(name));
            map.ports.push(port);
            if let Some(route) = port.and_then(|port| routes.get(usize::from(port.0))) {
                map.ingress.entry((*wire, *side)).or_insert((route.wire.port, route.side));
            }
        }
        map
    }

    /// Converts a connection of the state to this daemon. Returns false and does not change the connection if
    /// one of its ports no longer exists, or if its ports are no longer on one wire.
    pub(crate) fn translate(&self, connection: &mut ConnectionSnapshot) -> bool {
        let [forward, reply] = connection.tuples.map(|tuple| self.tuple(tuple));
        let arrivals = connection.arrivals.renumbered(|port| self.port(port));
        let (Some(forward), Some(reply), Some(arrivals)) = (forward, reply, arrivals) else { return false };
        if forward.wire.port != reply.wire.port {
            return false;
        }
        (connection.tuples, connection.arrivals) = ([forward, reply], arrivals);
        connection.idle_ms = connection.idle_ms.saturating_add(self.gap_ms).min(LONGEST_IDLE_MS);
        connection.age_ms = connection.age_ms.saturating_add(self.gap_ms).min(LONGEST_AGE_MS);
        true
    }

    fn tuple(&self, tuple: Tuple) -> Option<Tuple> {
        let Wire { port, vlans } = tuple.wire;
        let (port, side) = *self.ingress.get(&(port, tuple.side))?;
        Some(Tuple { wire: Wire { port, vlans }, side, ..tuple })
    }

    fn port(&self, port: PortId) -> Option<PortId> {
        *self.ports.get(usize::from(port.0))?
    }
}

/// The ports of a daemon as a state saves them.
pub(crate) fn saved_ports(ports: &PortTable, routes: &[Route]) -> Vec<SavedPort> {
    let port = |(port, route): (&crate::PortSpec, &Route)| SavedPort {
        name: port.name.clone(),
        wire: route.wire.port,
        side: route.side,
    };
    ports.0.iter().zip(routes).map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::saved_connection::SavedConnection;
    use mmb_conn::{ConnState, ConnTracker, IngressPorts};

    fn port(name: &str, wire: u16, side: Side) -> SavedPort {
        SavedPort { name: name.to_owned(), wire, side }
    }

    fn route(wire: u16, side: Side) -> Route {
        let wire = Wire { port: wire, ..Wire::default() };
        Route { egress: None, out_port: PortId(0), wire, side, enabled: true }
    }

    fn connection(ingress: [Ingress; 2]) -> SavedConnection {
        let tuple =
            |(wire, side)| Tuple { wire: Wire { port: wire, ..Wire::default() }, side, ..Tuple::default() };
        SavedConnection {
            connection: ConnectionSnapshot {
                tuples: ingress.map(tuple),
                state: ConnState::Unreplied,
                tracker: ConnTracker::from_bytes([0; 22]),
                packets: [1, 0],
                bytes: [60, 0],
                arrivals: IngressPorts::default(),
                is_expected: false,
                age_ms: 100,
                idle_ms: 50,
            },
            extension: super::super::extension::ConnectionExtension::default(),
            end: None,
            rules: Vec::new(),
        }
    }

    fn table(names: &[&str]) -> PortTable {
        let spec = |name: &&str| crate::PortSpec {
            name: (*name).to_owned(),
            mtu: None,
            forward: crate::Forward::Nowhere,
        };
        PortTable(names.iter().map(spec).collect())
    }

    fn translated(map: &StateMap, mut saved: SavedConnection) -> Option<SavedConnection> {
        map.translate(&mut saved.connection).then_some(saved)
    }

    fn ingress(saved: &SavedConnection) -> [Ingress; 2] {
        saved.connection.tuples.map(|tuple| (tuple.wire.port, tuple.side))
    }

    #[test]
    fn ports_in_another_order_are_the_same_ports() {
        let saved = vec![port("in", 0, Side::Low), port("out", 0, Side::High)];
        let header = StateHeader { saved_at_ms: 1000, ports: saved };
        let now = [route(0, Side::Low), route(0, Side::High), route(2, Side::Low), route(2, Side::High)];
        let map = StateMap::new(&header, 1300, &table(&["x", "y", "out", "in"]), &now, HashMap::new());
        let moved =
            translated(&map, connection([(0, Side::Low), (0, Side::High)])).expect("its ports are there");
        assert_eq!(ingress(&moved), [(2, Side::High), (2, Side::Low)]);
        assert_eq!((moved.connection.age_ms, moved.connection.idle_ms), (400, 350), "time goes on");
        let back = StateMap::new(&header, 900, &table(&["in", "out"]), &now, HashMap::new());
        let same = translated(&back, connection([(0, Side::Low); 2])).expect("its ports are there");
        assert_eq!(
            (ingress(&same), same.connection.idle_ms),
            ([(0, Side::Low); 2], 50),
            "a clock that was set back"
        );
    }

    #[test]
    fn a_port_that_is_gone_or_on_another_wire_takes_its_connections_along() {
        let saved = vec![port("in", 0, Side::Low), port("out", 0, Side::High), port("", 0, Side::Any)];
        let header = StateHeader { saved_at_ms: 0, ports: saved };
        let both = || connection([(0, Side::Low), (0, Side::High)]);
        let now = [route(0, Side::Low), route(0, Side::High), route(2, Side::Low), route(2, Side::High)];
        let map = |names: &[&str]| StateMap::new(&header, 0, &table(names), &now, HashMap::new());
        assert_eq!(translated(&map(&["in", "other"]), both()), None);
        assert_eq!(translated(&map(&["in", "x", "out", "y"]), both()), None, "each on a wire of its own");
        assert_eq!(
            translated(&map(&["in", "out"]), connection([(1, Side::Low); 2])),
            None,
            "no port of the state"
        );
        assert_eq!(
            translated(&map(&["in", "out", ""]), connection([(0, Side::Any); 2])),
            None,
            "without a name"
        );
        assert!(translated(&map(&["in", "out"]), both()).is_some());
    }

    #[test]
    fn the_ports_by_which_packets_came_in_on_a_host_that_routes_are_found_by_name() {
        let routed = |name| port(name, u16::MAX, Side::Any);
        let header = StateHeader { saved_at_ms: 0, ports: vec![routed("a"), routed("b"), routed("c")] };
        let now = [route(u16::MAX, Side::Any); 3];
        let mut saved = connection([(u16::MAX, Side::Any); 2]);
        saved.connection.arrivals = IngressPorts::new(PortId(2), false);
        let map = StateMap::new(&header, 0, &table(&["c", "b", "a"]), &now, HashMap::new());
        let moved = translated(&map, saved.clone()).expect("its ports are there");
        assert_eq!(moved.connection.arrivals, IngressPorts::new(PortId(0), false));
        let gone = StateMap::new(&header, 0, &table(&["a", "b"]), &now[..2], HashMap::new());
        assert_eq!(translated(&gone, saved), None);
    }
}

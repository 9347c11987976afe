//! A connection as lines of answers describe it.

use mmb_engine::{ConnectionInfo, Endpoints, Vlans};
use mmb_policy::FieldId;
use mmb_protocol::answer::{ConnectionLine, ConnectionPlace, EndsLine, TrafficLine};

/// Describes a connection; `verbose` adds its place in the table.
pub(crate) fn connection_line(info: &ConnectionInfo, verbose: bool) -> ConnectionLine {
    let traffic = |way: usize| TrafficLine { packets: info.packets[way], bytes: info.bytes[way] };
    let proto = FieldId::IpProto.info().names.name(info.proto.into());
    ConnectionLine {
        proto: proto.map_or_else(|| info.proto.to_string(), str::to_owned),
        state: info.state.to_owned(),
        arrived: ends(&info.arrived),
        sent: ends(&info.sent),
        age_ms: info.age_ms,
        idle_ms: info.idle_ms,
        expires_ms: info.expires_ms,
        forward: traffic(0),
        reply: traffic(1),
        rules: info.rules.iter().map(|rule| rule.0).collect(),
        vlans: vlans(info),
        key: Some(info.key).filter(|key| *key != 0),
        icmp_type: Some(info.icmp_type).filter(|icmp_type| *icmp_type != 0),
        place: verbose.then_some(ConnectionPlace { worker: info.worker, id: info.id, wire: info.wire.port }),
    }
}

/// Returns the VLAN identifiers of its arriving packets, without zeros at the end.
fn vlans(info: &ConnectionInfo) -> Vec<u16> {
    let Vlans { outer, inner } = info.wire.vlans;
    match (outer, inner) {
        (0, 0) => Vec::new(),
        (outer, 0) => vec![outer],
        (outer, inner) => vec![outer, inner],
    }
}

fn ends(ends: &Endpoints) -> EndsLine {
    EndsLine { src: ends.src, sport: ends.sport, dst: ends.dst, dport: ends.dport }
}

//! Specs of packets, from which tests draw rules that match the packets.

use crate::stateless::Incoming;
use mmb_engine::PortTable;
use mmb_packet::options::walk;
use mmb_packet::parse::parse;
use mmb_packet::{Class, Key4, Key6, Packet, ParserLimits, PortId, fill_key4, fill_key6};
use mmb_policy::arbitrary::PacketSpec;

/// The spec of a packet; `None` if it is malformed.
pub fn packet_spec(incoming: &Incoming, ports: &PortTable) -> Option<PacketSpec> {
    let mut bytes = incoming.bytes.clone();
    let len = bytes.len();
    let packet = Packet::new(&mut bytes, 0, len, incoming.port, incoming.link)?;
    let layout = parse(&packet, &ParserLimits::default()).ok()?;
    let spec = ports.0.get(usize::from(incoming.port.0))?;
    let out = spec.forward.peer()?;

    let mut key = [0; 80];
    if layout.class == Class::Ip6 {
        let mut filled = Key6::default();
        fill_key6(&packet, &layout, incoming.port, out, &mut filled);
        key.copy_from_slice(&filled.0);
    } else {
        let mut filled = Key4::default();
        fill_key4(&packet, &layout, incoming.port, out, &mut filled);
        key[..filled.0.len()].copy_from_slice(&filled.0);
    }
    let part = |range: std::ops::Range<usize>| packet.bytes().get(range).unwrap_or_default();
    let name = |port: PortId| ports.0.get(usize::from(port.0)).map(|spec| spec.name.clone());
    Some(PacketSpec {
        key,
        options: walk(part(layout.tcp_options())).map(|option| (option.kind, option.data.to_vec())).collect(),
        payload: part(layout.payload_range()).to_vec(),
        ip_payload: part(layout.ip_payload_range()).to_vec(),
        in_port: name(incoming.port)?,
        out_port: name(out)?,
    })
}

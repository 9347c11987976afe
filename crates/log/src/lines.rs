//! Connections and events as lines of answers describe them.

use crate::clock::{WorkerClock, rfc3339};
use mmb_engine::{
    ConnectionEvent, ConnectionInfo, ConnectionStream, EditStats, Endpoints, IpHeaderInfo, Level,
    PacketEvent, SideStats, StreamEvent, StreamEventKind, SuppressedEvent, Verdict, Vlans, WatchedEvent,
};
use mmb_packet::PortId;
use mmb_policy::FieldId;
use mmb_protocol::answer::{
    Answer, ConnectionLine, ConnectionPlace, DigestLine, EndsLine, EventKind, EventLine, LogLine,
    StreamEditsLine, StreamEventLine, StreamLine, StreamSideLine, SuppressedLine, TrafficLine,
};

/// The flags of TCP by their bits, the most significant first, as fields of the language call them.
const TCP_FLAGS: [(u8, &str); 8] = [
    (0x80, "cwr"),
    (0x40, "ece"),
    (0x20, "urg"),
    (0x10, "ack"),
    (0x08, "push"),
    (0x04, "rst"),
    (0x02, "syn"),
    (0x01, "fin"),
];

/// Describes an event. `ports` are the names of the ports by number.
pub fn event_line(event: &WatchedEvent, clock: WorkerClock, ports: &[String]) -> Answer {
    let time = rfc3339(clock.time_of_day(event.at_ns()));
    match event {
        WatchedEvent::Connection(event) => Answer::Event(connection_event_line(event, time)),
        WatchedEvent::Stream(event) => Answer::StreamEvent(stream_event_line(event, time)),
        WatchedEvent::Packet(event) => Answer::Log(log_line(event, time, ports)),
        WatchedEvent::Suppressed(event) => Answer::Suppressed(suppressed_line(event, time)),
    }
}

/// Describes the creation or the end of a connection.
pub fn connection_event_line(event: &ConnectionEvent, time: String) -> EventLine {
    EventLine {
        time: Some(time),
        what: if event.created { EventKind::Created } else { EventKind::Closed },
        reason: event.reason.map(str::to_owned),
        connection: connection_line(&event.info, false),
    }
}

/// Describes a packet that a rule tells of.
pub fn log_line(event: &PacketEvent, time: String, ports: &[String]) -> LogLine {
    let (verdict, out, reason) = verdict_words(event.verdict, ports);
    let header = event.ip.as_ref();
    let icmp = header.and_then(|ip| ip.icmp);
    LogLine {
        time: Some(time),
        what: "log".to_owned(),
        rule: event.rule.0,
        name: event.name.as_deref().map(str::to_owned),
        text: event.text.as_deref().map(str::to_owned),
        ingress: port_name(ports, event.port),
        verdict: verdict.to_owned(),
        out,
        reason: reason.map(str::to_owned),
        len: event.len,
        vlans: shown_vlans(event.vlans),
        eth_type: header.is_none().then(|| name_or_number(FieldId::EthType, event.eth_type.into())),
        proto: header.map(|ip| proto_name(ip.proto)),
        arrived: header.map(|ip| ends(&ip.ends)),
        fragment: header.is_some_and(|ip| ip.is_later_fragment),
        tcp_flags: header.and_then(|ip: &IpHeaderInfo| ip.tcp_flags).map(tcp_flags),
        icmp_type: icmp.map(|[kind, _]| kind),
        icmp_code: icmp.map(|[_, code]| code),
    }
}

/// Describes packets that a rule did not tell of.
pub fn suppressed_line(event: &SuppressedEvent, time: String) -> SuppressedLine {
    SuppressedLine {
        time: Some(time),
        what: "suppressed".to_owned(),
        rule: event.rule.0,
        name: event.name.as_deref().map(str::to_owned),
        text: event.text.as_deref().map(str::to_owned),
        packets: event.packets,
    }
}

/// The word for a verdict, the name of the port by which the packet leaves, and the reason for which it is dropped.
pub(crate) fn verdict_words(
    verdict: Verdict,
    ports: &[String],
) -> (&'static str, Option<String>, Option<&'static str>) {
    match verdict {
        Verdict::Send(port) => ("pass", Some(port_name(ports, port)), None),
        Verdict::Drop(reason) => ("drop", None, Some(reason.name())),
        // Such packets are told by the worker that decides on them.
        Verdict::Hand(_) | Verdict::Held(_) | Verdict::Absorbed => ("pass", None, None),
    }
}

/// The name of a port, or its number if it has none.
pub(crate) fn port_name(ports: &[String], port: PortId) -> String {
    ports.get(usize::from(port.0)).cloned().unwrap_or_else(|| port.0.to_string())
}

/// The flags that are set, `syn,ack` for instance.
pub(crate) fn tcp_flags(flags: u8) -> String {
    let set = TCP_FLAGS.iter().rev().filter(|(bit, _)| flags & bit != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

pub(crate) fn proto_name(proto: u8) -> String {
    name_or_number(FieldId::IpProto, proto.into())
}

fn name_or_number(field: FieldId, value: u128) -> String {
    field.info().names.name(value).map_or_else(|| value.to_string(), str::to_owned)
}

/// Describes a connection; `verbose` adds its place in the table.
pub fn connection_line(info: &ConnectionInfo, verbose: bool) -> ConnectionLine {
    let traffic = |way: usize| TrafficLine { packets: info.packets[way], bytes: info.bytes[way] };
    ConnectionLine {
        proto: proto_name(info.proto),
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
        stream: info.stream.as_deref().map(stream_line),
        place: verbose.then_some(ConnectionPlace { worker: info.worker, id: info.id, wire: info.wire.port }),
    }
}

fn stream_line(stream: &ConnectionStream) -> StreamLine {
    let side = |direction: usize| {
        stream.info.as_ref().map(|info| {
            let SideStats { bytes, retransmitted, out_of_order, gaps, gap_bytes, overwritten } =
                info.stats[direction];
            StreamSideLine {
                level: info.levels[direction].name().to_owned(),
                bytes,
                repeated: retransmitted,
                early: out_of_order,
                gaps,
                gap_bytes,
                overwritten,
                kept: info.buffered[direction] as u64,
                waiting: info.out_of_order[direction] as u64,
                edits: (info.levels[direction] == Level::Edit).then(|| edits_line(&info.edits[direction])),
            }
        })
    };
    StreamLine { ended: stream.ended.map(str::to_owned), forward: side(0), reply: side(1) }
}

fn edits_line(stats: &EditStats) -> StreamEditsLine {
    let EditStats { edits, removed, added, held, unsent } = *stats;
    let delta = added.wrapping_sub(removed).cast_signed();
    StreamEditsLine { edits, delta, held: held as u64, unsent }
}

/// Describes an event of a stream.
pub fn stream_event_line(event: &StreamEvent, time: String) -> StreamEventLine {
    let reason = match &event.kind {
        StreamEventKind::HttpUnfit { reason, .. } => Some(reason.name().to_owned()),
        _ => None,
    };
    let (text, digests) = match &event.kind {
        StreamEventKind::Alert { text } => (Some(text.to_string()).filter(|text| !text.is_empty()), None),
        StreamEventKind::Close | StreamEventKind::Drop => (None, None),
        StreamEventKind::HttpUnfit { reason, .. } => (Some(reason.meaning().to_owned()), None),
        StreamEventKind::Digest { bytes, crc32c } => {
            let digest =
                |way: usize| DigestLine { bytes: bytes[way], crc32c: format!("{:08x}", crc32c[way]) };
            (None, Some([digest(0), digest(1)]))
        }
    };
    let [forward, reply] = digests.map_or([None, None], |digests| digests.map(Some));
    StreamEventLine {
        time: Some(time),
        what: event.kind.name().to_owned(),
        rule: event.rule.map(|rule| rule.0),
        reason,
        text,
        proto: proto_name(event.proto),
        arrived: ends(&event.arrived),
        direction: forward.is_none().then(|| if event.is_reply { "reply" } else { "forward" }.to_owned()),
        offset: forward.is_none().then_some(event.offset),
        forward,
        reply,
    }
}

/// Returns the VLAN identifiers of its arriving packets, without zeros at the end.
fn vlans(info: &ConnectionInfo) -> Vec<u16> {
    let Vlans { outer, inner } = info.wire.vlans;
    shown_vlans([outer, inner])
}

fn shown_vlans(ids: [u16; 2]) -> Vec<u16> {
    match ids {
        [0, 0] => Vec::new(),
        [outer, 0] => vec![outer],
        [outer, inner] => vec![outer, inner],
    }
}

fn ends(ends: &Endpoints) -> EndsLine {
    EndsLine { src: ends.src, sport: ends.sport, dst: ends.dst, dport: ends.dport }
}

//! Packets as lines of answers describe them: their headers, what became of them, what was rewritten. `mmb explain` tells its packets by the same lines.

use mmb_engine::{Endpoints, Origin, PacketTrace, TracedConnection, Verdict};
use mmb_language::Print;
use mmb_packet::proto::{ICMP, ICMP6, TCP, UDP};
use mmb_packet::{
    Class, Key4, Key6, Layout, LinkType, Malformed, Packet, ParserLimits, PortId, fill_key4, fill_key6,
    options, parse,
};
use mmb_policy::field::{Field, FieldId, FieldPlace, ones};
use mmb_policy::rule::{Cond, NumberItem, NumberSet};
use mmb_policy::{FIELDS, FieldInfo, Match, RuleId, Test};
use mmb_protocol::answer::{
    EditedFieldLine, EndLine, EndsLine, HeadersLine, OutcomeLine, TracedConnectionLine, TracedLine,
    TracedRuleLine,
};
use mmb_protocol::hex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What the lines are made with.
pub struct PacketNames<'n> {
    /// The name of a port.
    pub port: &'n dyn Fn(PortId) -> String,
    /// The command that adds a rule, without its id.
    pub rule: &'n dyn Fn(RuleId) -> Option<String>,
    /// The limits of the policy.
    pub limits: ParserLimits,
}

/// The bytes of a packet before and after, and its link header type.
#[derive(Clone, Copy, Debug)]
pub struct PacketBytes<'b> {
    /// As it was received.
    pub before: &'b [u8],
    /// As it is now.
    pub after: &'b [u8],
    /// Its link header type.
    pub link: LinkType,
}

/// The bytes of a key, with room behind them to read 16 bytes at any offset.
type KeyBytes = [u8; 96];

/// A packet that was parsed.
struct Parsed {
    layout: Result<Layout, Malformed>,
    key: KeyBytes,
    options: Vec<u8>,
    payload: Vec<u8>,
}

impl Parsed {
    fn new(bytes: &[u8], link: LinkType, limits: ParserLimits) -> Parsed {
        let mut buffer = bytes.to_vec();
        let len = buffer.len();
        let mut parsed = Parsed {
            layout: Err(Malformed::LinkTruncated),
            key: [0; 96],
            options: Vec::new(),
            payload: Vec::new(),
        };
        let Some(packet) = Packet::new(&mut buffer, 0, len, PortId(0), link) else { return parsed };
        parsed.layout = parse::parse(&packet, &limits);
        if let Ok(layout) = &parsed.layout {
            if layout.class == Class::Ip6 {
                let mut key = Key6::default();
                fill_key6(&packet, layout, PortId(0), PortId(0), &mut key);
                parsed.key[..key.0.len()].copy_from_slice(&key.0);
            } else {
                let mut key = Key4::default();
                fill_key4(&packet, layout, PortId(0), PortId(0), &mut key);
                parsed.key[..key.0.len()].copy_from_slice(&key.0);
            }
            parsed.options = options::area(&packet, layout).to_vec();
            parsed.payload = bytes.get(layout.payload_range()).unwrap_or_default().to_vec();
        }
        parsed
    }

    fn number(&self, bit: u16, width: u8) -> u128 {
        let offset = usize::from(bit / 8);
        let bytes = std::array::from_fn(|at| self.key.get(offset + at).copied().unwrap_or_default());
        let shift = 128 - u32::from(bit % 8) - u32::from(width);
        u128::from_be_bytes(bytes) >> shift & ones(width)
    }
}

/// The line of the headers of a packet.
pub fn headers_line(bytes: &[u8], link: LinkType, limits: ParserLimits) -> HeadersLine {
    headers(bytes, &Parsed::new(bytes, link, limits).layout)
}

fn headers(bytes: &[u8], layout: &Result<Layout, Malformed>) -> HeadersLine {
    let nothing = HeadersLine {
        bytes: bytes.len() as u64,
        class: Class::Other.name().to_owned(),
        proto: "no IP".to_owned(),
        source: None,
        destination: None,
        malformed: None,
    };
    let layout = match layout {
        Ok(layout) => layout,
        Err(why) => return HeadersLine { malformed: Some(why.name().to_owned()), ..nothing },
    };
    let (ip, l4) = (usize::from(layout.ip), usize::from(layout.l4));
    let address = |at: usize| -> Option<IpAddr> {
        match layout.class {
            Class::Ip4 => Some(Ipv4Addr::from(*bytes.get(ip + 12 + 4 * at..)?.first_chunk::<4>()?).into()),
            Class::Ip6 => Some(Ipv6Addr::from(*bytes.get(ip + 8 + 16 * at..)?.first_chunk::<16>()?).into()),
            Class::Other => None,
        }
    };
    let has_ports = [TCP, UDP].contains(&layout.proto) && l4 > 0 && !layout.is_later_fragment();
    let port = |at: usize| Some(u16::from_be_bytes(*bytes.get(l4 + 2 * at..)?.first_chunk::<2>()?));
    let end = |at: usize| Some(EndLine { address: address(at)?, port: port(at).filter(|_| has_ports) });
    let proto = match (layout.class, layout.proto) {
        (Class::Other, _) => "no IP",
        (_, TCP) => "TCP",
        (_, UDP) => "UDP",
        (_, ICMP) => "ICMP",
        (_, ICMP6) => "ICMPv6",
        _ => "IP",
    };
    HeadersLine {
        class: layout.class.name().to_owned(),
        proto: proto.to_owned(),
        source: end(0),
        destination: end(1),
        ..nothing
    }
}

/// The fields in which two versions of a packet differ, but for checksums, which follow; and of fields that are parts of another, the whole.
fn edits(before: &Parsed, after: &Parsed) -> Vec<EditedFieldLine> {
    let (Ok(old), Ok(new)) = (&before.layout, &after.layout) else { return Vec::new() };
    let mut edits = Vec::new();
    if old.class == new.class && old.l4_kind == new.l4_kind {
        let mut told = Vec::new();
        for info in FIELDS {
            let FieldPlace::Key { bit, width } = info.place else { continue };
            let (from, to) = (before.number(bit, width), after.number(bit, width));
            let is_part = told.iter().any(|(first, last)| *first <= bit && bit < *last);
            if from != to && is_told(info, old) && !is_part {
                told.push((bit, bit + u16::from(width)));
                edits.push(EditedFieldLine {
                    field: info.name.to_owned(),
                    before: value(info, from),
                    after: value(info, to),
                });
            }
        }
    }
    let mut other = |field: &str, from: String, to: String| {
        edits.push(EditedFieldLine { field: field.to_owned(), before: from, after: to });
    };
    if before.options != after.options {
        other("tcp-opt", hex::encode(&before.options), hex::encode(&after.options));
    }
    if before.payload != after.payload {
        let len = |parsed: &Parsed| format!("{} bytes", parsed.payload.len());
        other("payload", len(before), len(after));
    }
    edits
}

/// Whether a change of a field is told: one that such a packet has.
fn is_told(info: &FieldInfo, layout: &Layout) -> bool {
    use mmb_policy::field::Implies;
    let is_there = match info.implies {
        Implies::Frame => true,
        Implies::Ip => layout.class != Class::Other,
        Implies::Ip4 => layout.class == Class::Ip4,
        Implies::Ip6 => layout.class == Class::Ip6,
        Implies::Tcp => layout.l4_kind == TCP,
        Implies::Udp => layout.l4_kind == UDP,
        Implies::Icmp => layout.l4_kind == ICMP && layout.class == Class::Ip4,
        Implies::Icmp6 => layout.l4_kind == ICMP6 && layout.class == Class::Ip6,
        Implies::Transport | Implies::TcpOrUdp => true,
    };
    is_there && !info.name.ends_with("-checksum")
}

/// A value of a field in the words of rules.
fn value(info: &FieldInfo, number: u128) -> String {
    let test = Test::Number(Cond::Eq, NumberSet(vec![NumberItem::One(number)]));
    let text = Match { negated: false, field: Field::new(info.id), test }.text().to_string();
    text.strip_prefix(info.name).map_or(text.clone(), |value| value.trim_start().to_owned())
}

/// The line of a packet that was traced.
pub fn traced_line(
    names: &PacketNames<'_>,
    (trace, verdict): (&PacketTrace, Verdict),
    port: PortId,
    bytes: PacketBytes<'_>,
) -> TracedLine {
    let before = Parsed::new(bytes.before, bytes.link, names.limits);
    let passes = matches!(verdict, Verdict::Send(_));
    let mut line = TracedLine {
        time_ns: None,
        port: (names.port)(port),
        packet: headers(bytes.before, &before.layout),
        outcome: outcome_line(names, (trace, verdict), true),
        rewritten: None,
        edits: Vec::new(),
    };
    if passes && bytes.before != bytes.after {
        let after = Parsed::new(bytes.after, bytes.link, names.limits);
        line.rewritten = Some(headers(bytes.after, &after.layout));
        line.edits = edits(&before, &after);
    }
    line
}

/// What became of a packet; `is_whole`: with the texts of its rules and the meaning of the drop reason.
pub(crate) fn outcome_line(
    names: &PacketNames<'_>,
    (trace, verdict): (&PacketTrace, Verdict),
    is_whole: bool,
) -> OutcomeLine {
    let rules: Vec<TracedRuleLine> = trace
        .rules()
        .map(|id| TracedRuleLine {
            id: id.0,
            rule: is_whole.then(|| (names.rule)(id)).flatten(),
            decides: trace.decisive == Some(id),
        })
        .collect();
    let meaning = match verdict {
        Verdict::Drop(reason) if is_whole => Some(reason.explanation().0.to_owned()),
        _ => None,
    };
    let (word, reason, out, to_worker) = match verdict {
        Verdict::Send(port) => ("passes", None, Some((names.port)(port)), None),
        Verdict::Drop(reason) => ("dropped", Some(reason.name().to_owned()), None, None),
        Verdict::Held(_) => ("held", None, None, None),
        Verdict::Absorbed => ("absorbed", None, None, None),
        Verdict::Hand(worker) => ("handed", None, None, Some(worker)),
    };
    OutcomeLine {
        worker: 0,
        origin: origin_name(Origin::Wire).to_owned(),
        more_rules: trace.count.saturating_sub(rules.len() as u32),
        rules,
        decisive: trace.decisive.map(|id| id.0),
        connection: trace.connection.as_ref().map(connection_line),
        stream: trace.is_streamed,
        verdict: word.to_owned(),
        reason,
        meaning,
        out,
        to_worker,
    }
}

/// The name of an origin.
pub(crate) fn origin_name(origin: Origin) -> &'static str {
    match origin {
        Origin::Wire => "wire",
        Origin::Worker => "worker",
        Origin::Held => "held",
        Origin::Generated => "made",
        Origin::Answer => "answer",
    }
}

/// The name of a link header type.
pub(crate) fn link_name(link: LinkType) -> &'static str {
    match link {
        LinkType::Ethernet => "ethernet",
        LinkType::RawIp => "raw-ip",
        LinkType::Sll => "sll",
        LinkType::Sll2 => "sll2",
    }
}

fn connection_line(connection: &TracedConnection) -> TracedConnectionLine {
    let ends =
        |ends: &Endpoints| EndsLine { src: ends.src, sport: ends.sport, dst: ends.dst, dport: ends.dport };
    let proto = FieldId::IpProto.info().names.name(connection.proto.into());
    TracedConnectionLine {
        id: connection.id,
        new: connection.is_new,
        reply: connection.is_reply,
        state: connection.state.to_owned(),
        proto: proto.map_or_else(|| connection.proto.to_string(), str::to_owned),
        arrived: ends(&connection.arrived),
        sent: ends(&connection.sent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_testkit::Tcp;

    fn told(before: &[u8], after: &[u8]) -> Vec<String> {
        let parsed = |bytes| Parsed::new(bytes, LinkType::Ethernet, ParserLimits::default());
        let text = |edit: EditedFieldLine| format!("{} {} > {}", edit.field, edit.before, edit.after);
        edits(&parsed(before), &parsed(after)).into_iter().map(text).collect()
    }

    #[test]
    fn edits_are_told_by_field() {
        let packet = Tcp { sport: 4000, payload: b"abc".to_vec(), ..Tcp::default() };
        let before = packet.clone().over_ip4().bytes();
        assert_eq!(told(&before, &before), [""; 0]);
        let mut after = Tcp { dport: 8080, ..packet.clone() }.over_ip4().bytes();
        after[22] = 9;
        after[26..30].copy_from_slice(&[200, 0, 0, 1]);
        // The sum over a header with these addresses and this TTL.
        let sum = |bytes: &mut [u8]| {
            bytes[24..26].fill(0);
            let sum = mmb_packet::checksum::ChecksumSum::default().bytes(&bytes[14..34]).checksum();
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        };
        sum(&mut after);
        let source = Ipv4Addr::from(*before[26..].first_chunk::<4>().expect("it has an address"));
        assert_eq!(
            told(&before, &after),
            [
                "ip-ttl 64 > 9".to_owned(),
                format!("ip-saddr {source} > 200.0.0.1"),
                "tcp-dport 80 > 8080".to_owned()
            ]
        );
        let longer = Tcp { payload: b"abcd".to_vec(), ..packet.option(8, &[0; 8]) }.over_ip4().bytes();
        let told = told(&before, &longer);
        assert!(told.iter().any(|edit| edit.starts_with("tcp-opt ")), "{told:?}");
        assert!(told.contains(&"payload 3 bytes > 4 bytes".to_owned()), "{told:?}");
    }
}

//! An explanation as text and as JSON.

use mmb_engine::{TracedConnection, Verdict};
use mmb_language::{Print, with_id};
use mmb_packet::parse::vector::{ParseVector, VectorKeys};
use mmb_packet::proto::{ICMP, ICMP6, TCP, UDP};
use mmb_packet::{Class, Layout, LinkType, Malformed, ParserLimits, PortId};
use mmb_policy::{Match, Rule, RuleId};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A constraint of a rule that was asked about.
pub(super) struct CheckedConstraint<'r> {
    pub(super) constraint: &'r Match,
    /// Whether it holds; `None`: that depends on the connection or its bytes.
    pub(super) holds: Option<bool>,
}

/// What became of a packet, and why.
pub(super) struct Explanation<'r> {
    /// The packet's number in its capture.
    pub(super) number: Option<usize>,
    /// The port that it came in by.
    pub(super) port: String,
    pub(super) before: Packet,
    pub(super) after: Packet,
    /// Its bytes are others.
    pub(super) is_rewritten: bool,
    /// The rules that applied, in order.
    pub(super) rules: Vec<Rule>,
    /// How many more applied.
    pub(super) more: usize,
    /// The rule whose `accept` or `drop` decided.
    pub(super) decisive: Option<RuleId>,
    pub(super) connection: Option<TracedConnection>,
    pub(super) verdict: Verdict,
    /// The names of all ports, by number.
    pub(super) ports: Vec<String>,
    /// Rules that were asked about, with their constraints.
    pub(super) asked: Vec<(&'r Rule, Vec<CheckedConstraint<'r>>)>,
}

/// The headers of a packet, as people name them.
pub(super) struct Packet {
    len: usize,
    class: Class,
    proto: &'static str,
    source: Option<(IpAddr, Option<u16>)>,
    destination: Option<(IpAddr, Option<u16>)>,
    malformed: Option<Malformed>,
}

impl Packet {
    /// Reads the headers of a packet.
    pub(super) fn parse(bytes: &[u8], link: LinkType) -> Packet {
        let mut buffer = bytes.to_vec();
        let (mut layouts, mut malformed) = (Box::new([Layout::default(); mmb_engine::VECTOR]), None);
        if let Some(packet) = mmb_packet::Packet::new(&mut buffer, 0, bytes.len(), PortId(0), link) {
            let mut keys = VectorKeys::default();
            let packets = [packet];
            keys.take(0, &packets);
            keys.parse(ParseVector {
                wanted: mmb_packet::columns::WantedLanes::default(),
                limits: ParserLimits::default(),
                packets: &packets,
                layouts: &mut layouts,
                out: |_| PortId(0),
                malformed: |_, why| malformed = Some(why),
            });
        }
        let layout = &layouts[0];
        let class = if malformed.is_some() { Class::Other } else { layout.class };
        let (ip, l4) = (usize::from(layout.ip), usize::from(layout.l4));
        let address = |at: usize| -> Option<IpAddr> {
            match class {
                Class::Ip4 => {
                    Some(Ipv4Addr::from(*bytes.get(ip + 12 + 4 * at..)?.first_chunk::<4>()?).into())
                }
                Class::Ip6 => {
                    Some(Ipv6Addr::from(*bytes.get(ip + 8 + 16 * at..)?.first_chunk::<16>()?).into())
                }
                Class::Other => None,
            }
        };
        let has_ports = [TCP, UDP].contains(&layout.proto) && l4 > 0 && !layout.is_later_fragment();
        let port = |at: usize| Some(u16::from_be_bytes(*bytes.get(l4 + 2 * at..)?.first_chunk::<2>()?));
        let end = |at: usize| Some((address(at)?, port(at).filter(|_| has_ports)));
        let proto = match (class, layout.proto) {
            (Class::Other, _) => "no IP",
            (_, TCP) => "TCP",
            (_, UDP) => "UDP",
            (_, ICMP) => "ICMP",
            (_, ICMP6) => "ICMPv6",
            _ => "IP",
        };
        Packet { len: bytes.len(), class, proto, source: end(0), destination: end(1), malformed }
    }

    fn text(&self) -> String {
        if let Some(why) = self.malformed {
            return format!("{} bytes that are no packet ({})", self.len, why.name());
        }
        let end = |end: &(IpAddr, Option<u16>)| match end {
            (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
            (address, Some(port)) => format!("{address}:{port}"),
            (address, None) => address.to_string(),
        };
        match (&self.source, &self.destination) {
            (Some(source), Some(destination)) => {
                format!("{} {} > {}, {} bytes", self.proto, end(source), end(destination), self.len)
            }
            _ => format!("{}, {} bytes", self.proto, self.len),
        }
    }

    fn json(&self) -> Value {
        let end = |end: &Option<(IpAddr, Option<u16>)>| {
            end.map(|(address, port)| json!({ "address": address, "port": port }))
        };
        json!({
            "bytes": self.len, "class": self.class.name(), "proto": self.proto,
            "source": end(&self.source), "destination": end(&self.destination),
            "malformed": self.malformed.map(Malformed::name),
        })
    }
}

impl Explanation<'_> {
    fn verdict(&self) -> (&'static str, Option<&'static str>) {
        match self.verdict {
            Verdict::Send(_) => ("passes", None),
            Verdict::Drop(reason) => ("dropped", Some(reason.name())),
            Verdict::Held(_) => ("held", None),
            Verdict::Absorbed => ("absorbed", None),
            Verdict::Hand(_) => ("handed", None),
        }
    }

    fn port_name(&self, port: PortId) -> &str {
        self.ports.get(usize::from(port.0)).map_or("", String::as_str)
    }

    /// The explanation for people.
    pub(super) fn text(&self) -> String {
        // Writing to a string does not fail.
        let mut text = String::new();
        let number = self.number.map(|number| format!(" {number}")).unwrap_or_default();
        let _ = writeln!(text, "packet{number} by port {}: {}", self.port, self.before.text());
        if self.rules.is_empty() {
            text.push_str("no rule applies\n");
        }
        for rule in &self.rules {
            let decides = if rule.id.is_some() && rule.id == self.decisive { "   <- decides" } else { "" };
            let _ = writeln!(text, "  {}{decides}", with_id(rule));
        }
        if self.more > 0 {
            let _ = writeln!(text, "  and {} more", self.more);
        }
        if let Some(id) = self.decisive.filter(|id| self.rules.iter().all(|rule| rule.id != Some(*id))) {
            let _ = writeln!(text, "rule {} decides", id.0);
        }
        if let Some(connection) = &self.connection {
            let direction = if connection.is_reply { "its reply" } else { "its initiator's packet" };
            let _ = writeln!(text, "connection {}: {direction}", connection.id);
        }
        if self.is_rewritten && self.verdict().0 == "passes" {
            let (before, after) = (self.before.text(), self.after.text());
            let what = if before == after { "in other fields" } else { &after };
            let _ = writeln!(text, "rewritten: {what}");
        }
        let _ = match self.verdict {
            Verdict::Send(port) => writeln!(text, "it passes to port {}", self.port_name(port)),
            Verdict::Drop(reason) => {
                writeln!(text, "it is dropped, reason {}: {}", reason.name(), reason.explanation().0)
            }
            Verdict::Held(_) => writeln!(text, "it is held until the first fragment of its datagram comes"),
            Verdict::Absorbed => writeln!(text, "its bytes are taken into the stream of its connection"),
            Verdict::Hand(_) => writeln!(text, "another worker has its connection"),
        };
        for (rule, constraints) in &self.asked {
            let id = rule.id.map_or(0, |id| id.0);
            let applied = self.rules.iter().any(|other| other.id == rule.id);
            let _ = writeln!(text, "rule {id} {}", if applied { "applies" } else { "does not apply" });
            for CheckedConstraint { constraint, holds } in constraints {
                let holds = match holds {
                    Some(true) => "holds",
                    Some(false) => "does not hold",
                    None => "depends on the connection",
                };
                let _ = writeln!(text, "  {}: {holds}", constraint.text());
            }
        }
        text
    }

    /// The same as JSON.
    pub(super) fn json(&self) -> Value {
        let (verdict, reason) = self.verdict();
        let rule = |rule: &Rule| json!({ "id": rule.id.map(|id| id.0), "rule": rule.text().to_string(), "decides": rule.id.is_some() && rule.id == self.decisive });
        let asked = |(rule, constraints): &(&Rule, Vec<CheckedConstraint<'_>>)| {
            let constraints: Vec<Value> = constraints
                .iter()
                .map(|asked| json!({ "constraint": asked.constraint.text().to_string(), "holds": asked.holds }))
                .collect();
            let applies = self.rules.iter().any(|other| other.id == rule.id);
            json!({ "id": rule.id.map(|id| id.0), "applies": applies, "constraints": constraints })
        };
        let connection =
            self.connection.map(|connection| json!({ "id": connection.id, "reply": connection.is_reply }));
        json!({
            "port": self.port, "number": self.number, "packet": self.before.json(),
            "rules": self.rules.iter().map(rule).collect::<Vec<_>>(), "more_rules": self.more, "decisive": self.decisive.map(|id| id.0),
            "connection": connection, "verdict": verdict, "reason": reason,
            "out": match self.verdict { Verdict::Send(port) => Some(self.port_name(port)), _ => None },
            "rewritten": (self.is_rewritten && verdict == "passes").then(|| self.after.json()),
            "why_not": self.asked.iter().map(asked).collect::<Vec<_>>(),
        })
    }
}

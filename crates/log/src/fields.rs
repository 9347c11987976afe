//! Records as names and values, and as a sentence: for syslog and the journal.

use crate::lines::{port_name, proto_name, tcp_flags, verdict_words};
use crate::record::{Record, RecordedEvent};
use mmb_engine::{
    ConnectionEvent, Endpoints, PacketEvent, StreamEvent, StreamEventKind, SuppressedEvent, WatchedEvent,
};
use mmb_policy::RuleId;
use mmb_policy::printable::printable;
use std::fmt::Write;
use std::net::SocketAddr;

/// Takes the name of a field, of letters, digits and `_`, and its value.
pub(crate) type TakeField<'a> = dyn FnMut(&'static str, &str) + 'a;

/// The severity of a record (RFC 5424 section 6.2.1): informational, notice or warning.
pub(crate) fn severity(event: &RecordedEvent) -> u8 {
    const WARNING: u8 = 4;
    const NOTICE: u8 = 5;
    const INFORMATIONAL: u8 = 6;
    match event {
        RecordedEvent::Worker(WatchedEvent::Connection(_)) => INFORMATIONAL,
        RecordedEvent::Worker(WatchedEvent::Packet(_) | WatchedEvent::Suppressed(_)) => NOTICE,
        RecordedEvent::Worker(WatchedEvent::Stream(event)) => match event.kind {
            StreamEventKind::Digest { .. } => INFORMATIONAL,
            StreamEventKind::Alert { .. } | StreamEventKind::Close | StreamEventKind::Drop => WARNING,
            StreamEventKind::HttpUnfit { .. } => WARNING,
        },
        RecordedEvent::Audit(event) => {
            if event.refused.is_some() {
                WARNING
            } else {
                NOTICE
            }
        }
        RecordedEvent::Lost(_) => WARNING,
    }
}

/// What happened, by one word, as `what` of the same event in JSON.
pub(crate) fn what(event: &RecordedEvent) -> &'static str {
    match event {
        RecordedEvent::Worker(WatchedEvent::Connection(event)) if event.created => "created",
        RecordedEvent::Worker(WatchedEvent::Connection(_)) => "closed",
        RecordedEvent::Worker(WatchedEvent::Stream(event)) => event.kind.name(),
        RecordedEvent::Worker(WatchedEvent::Packet(_)) => "log",
        RecordedEvent::Worker(WatchedEvent::Suppressed(_)) => "suppressed",
        RecordedEvent::Audit(_) => "audit",
        RecordedEvent::Lost(_) => "lost",
    }
}

/// Writes a record as a sentence. Invisible characters are escaped.
pub(crate) fn sentence(record: &Record, ports: &[String], out: &mut String) {
    let mut text = String::new();
    write_sentence(record, ports, &mut text);
    out.push_str(&printable(&text));
}

fn write_sentence(record: &Record, ports: &[String], out: &mut String) {
    // Writing to a string does not fail.
    let _ = match &record.event {
        RecordedEvent::Worker(WatchedEvent::Connection(event)) => connection_sentence(event, out),
        RecordedEvent::Worker(WatchedEvent::Stream(event)) => {
            let ends = pair(&event.arrived);
            write!(out, "{} {ends} {}", proto_name(event.proto), event.kind.name())
        }
        RecordedEvent::Worker(WatchedEvent::Packet(event)) => packet_sentence(event, ports, out),
        RecordedEvent::Worker(WatchedEvent::Suppressed(event)) => {
            write!(out, "{} more packets of rule {}", event.packets, event.rule)
        }
        RecordedEvent::Audit(event) => {
            let user = event.user.clone().or_else(|| event.uid.map(|uid| uid.to_string()));
            let outcome = event.refused.as_deref().map_or(String::new(), |why| format!(", refused: {why}"));
            write!(out, "{} by {}: {}{outcome}", event.action, user.unwrap_or_default(), event.command)
        }
        RecordedEvent::Lost(events) => write!(out, "{events} events were lost"),
    };
}

fn connection_sentence(event: &ConnectionEvent, out: &mut String) -> std::fmt::Result {
    let info = &event.info;
    write!(out, "{} {}", proto_name(info.proto), pair(&info.arrived))?;
    if info.sent != info.arrived {
        write!(out, " as {}", pair(&info.sent))?;
    }
    match event.reason {
        None => out.write_str(" created"),
        Some(reason) => write!(out, " closed: {reason}"),
    }
}

fn packet_sentence(event: &PacketEvent, ports: &[String], out: &mut String) -> std::fmt::Result {
    match &event.ip {
        Some(ip) => write!(out, "{} {}", proto_name(ip.proto), pair(&ip.ends))?,
        None => write!(out, "ether type {:#06x}", event.eth_type)?,
    }
    let (verdict, to, reason) = verdict_words(event.verdict, ports);
    write!(out, " {verdict}, rule {}, in {}", event.rule, port_name(ports, event.port))?;
    if let Some(to) = to {
        write!(out, ", out {to}")?;
    }
    if let Some(reason) = reason {
        write!(out, " ({reason})")?;
    }
    match &event.text {
        Some(text) => write!(out, ": {text}"),
        None => Ok(()),
    }
}

fn pair(ends: &Endpoints) -> String {
    format!("{} > {}", SocketAddr::new(ends.src, ends.sport), SocketAddr::new(ends.dst, ends.dport))
}

/// Calls `take` with the fields of a record, in a fixed order. Invisible characters in their values are escaped.
pub(crate) fn each(record: &Record, ports: &[String], take: &mut TakeField<'_>) {
    let take: &mut TakeField<'_> = &mut |name, value| take(name, &printable(value));
    match &record.event {
        RecordedEvent::Worker(WatchedEvent::Connection(event)) => connection(event, take),
        RecordedEvent::Worker(WatchedEvent::Stream(event)) => stream(event, take),
        RecordedEvent::Worker(WatchedEvent::Packet(event)) => packet(event, ports, take),
        RecordedEvent::Worker(WatchedEvent::Suppressed(event)) => suppressed(event, take),
        RecordedEvent::Audit(event) => {
            take("action", &event.action);
            take("command", &event.command);
            optional(take, "uid", event.uid.map(|uid| uid.to_string()));
            optional(take, "user", event.user.clone());
            optional(take, "pid", event.pid.map(|pid| pid.to_string()));
            optional(take, "version", event.version.map(|version| version.to_string()));
            take("added", &event.added.to_string());
            take("removed", &event.removed.to_string());
            optional(take, "connections", event.connections.map(|count| count.to_string()));
            optional(take, "refused", event.refused.clone());
        }
        RecordedEvent::Lost(events) => take("events", &events.to_string()),
    }
}

fn connection(event: &ConnectionEvent, take: &mut TakeField<'_>) {
    let info = &event.info;
    optional(take, "reason", event.reason.map(str::to_owned));
    take("proto", &proto_name(info.proto));
    ends(["src", "sport", "dst", "dport"], &info.arrived, take);
    ends(["nat_src", "nat_sport", "nat_dst", "nat_dport"], &info.sent, take);
    let rules: Vec<String> = info.rules.iter().map(RuleId::to_string).collect();
    take("rules", &rules.join(" "));
    for (id, name) in [(info.wire.vlans.outer, "vlan"), (info.wire.vlans.inner, "inner_vlan")] {
        optional(take, name, (id > 0).then(|| id.to_string()));
    }
    optional(take, "key", (info.key != 0).then(|| info.key.to_string()));
    optional(take, "icmp_type", (info.icmp_type != 0).then(|| info.icmp_type.to_string()));
    if !event.created {
        take("duration_ms", &info.age_ms.to_string());
        for (way, names) in [["packets", "bytes"], ["reply_packets", "reply_bytes"]].into_iter().enumerate() {
            take(names[0], &info.packets[way].to_string());
            take(names[1], &info.bytes[way].to_string());
        }
    }
}

fn stream(event: &StreamEvent, take: &mut TakeField<'_>) {
    optional(take, "rule", event.rule.map(|rule| rule.to_string()));
    take("proto", &proto_name(event.proto));
    ends(["src", "sport", "dst", "dport"], &event.arrived, take);
    match &event.kind {
        StreamEventKind::Digest { bytes, crc32c } => {
            for (way, names) in [["bytes", "crc32c"], ["reply_bytes", "reply_crc32c"]].into_iter().enumerate()
            {
                take(names[0], &bytes[way].to_string());
                take(names[1], &format!("{:08x}", crc32c[way]));
            }
            return;
        }
        StreamEventKind::Alert { text } => {
            optional(take, "text", Some(text.to_string()).filter(|text| !text.is_empty()));
        }
        StreamEventKind::HttpUnfit { reason, .. } => take("reason", reason.name()),
        StreamEventKind::Close | StreamEventKind::Drop => {}
    }
    take("direction", if event.is_reply { "reply" } else { "forward" });
    take("offset", &event.offset.to_string());
}

fn packet(event: &PacketEvent, ports: &[String], take: &mut TakeField<'_>) {
    let (verdict, to, reason) = verdict_words(event.verdict, ports);
    rule(event.rule, event.name.as_deref(), event.text.as_deref(), take);
    take("in", &port_name(ports, event.port));
    take("verdict", verdict);
    optional(take, "out", to);
    optional(take, "reason", reason.map(str::to_owned));
    take("len", &event.len.to_string());
    for (id, name) in event.vlans.into_iter().zip(["vlan", "inner_vlan"]) {
        optional(take, name, (id > 0).then(|| id.to_string()));
    }
    let Some(ip) = &event.ip else { return take("eth_type", &format!("{:#06x}", event.eth_type)) };
    take("proto", &proto_name(ip.proto));
    ends(["src", "sport", "dst", "dport"], &ip.ends, take);
    optional(take, "fragment", ip.is_later_fragment.then(|| "true".to_owned()));
    optional(take, "tcp_flags", ip.tcp_flags.map(tcp_flags));
    if let Some([kind, code]) = ip.icmp {
        take("icmp_type", &kind.to_string());
        take("icmp_code", &code.to_string());
    }
}

fn suppressed(event: &SuppressedEvent, take: &mut TakeField<'_>) {
    rule(event.rule, event.name.as_deref(), event.text.as_deref(), take);
    take("packets", &event.packets.to_string());
}

fn rule(id: RuleId, name: Option<&str>, text: Option<&str>, take: &mut TakeField<'_>) {
    take("rule", &id.to_string());
    optional(take, "name", name.map(str::to_owned));
    optional(take, "text", text.map(str::to_owned));
}

fn ends([src, sport, dst, dport]: [&'static str; 4], ends: &Endpoints, take: &mut TakeField<'_>) {
    take(src, &ends.src.to_string());
    take(sport, &ends.sport.to_string());
    take(dst, &ends.dst.to_string());
    take(dport, &ends.dport.to_string());
}

fn optional(take: &mut TakeField<'_>, name: &'static str, value: Option<String>) {
    value.into_iter().for_each(|value| take(name, &value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::written;
    use crate::tests::{audit, packet, record};
    use mmb_policy::printable::is_hidden;

    /// Characters that a client or the text of a rule can bring into a line.
    #[test]
    fn no_line_of_a_log_has_a_character_that_is_not_seen() {
        for trick in ['\u{202e}', '\u{85}', '\u{2028}', '\u{200b}', '\u{1b}', '\r', '\n', '\u{e0041}'] {
            let text = format!("a{trick}b");
            let RecordedEvent::Worker(WatchedEvent::Packet(mut event)) = packet() else { unreachable!() };
            (event.name, event.text) = (Some(text.as_str().into()), Some(text.as_str().into()));
            for event in [audit(&text), RecordedEvent::Worker(WatchedEvent::Packet(event))] {
                for lines in written(&record(event)) {
                    let found: Vec<char> = lines.chars().filter(|c| is_hidden(*c) && *c != '\n').collect();
                    assert_eq!(found, [], "{lines:?}");
                    assert!(trick != '\n' || !lines.contains("\nb"), "{lines:?}");
                }
            }
        }
    }
}

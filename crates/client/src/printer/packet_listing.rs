//! Packets for people: what a policy does to one, and why; in `trace` live, in `mmb explain` one by itself.

use super::connection_listing::port;
use crate::report::counted;
use mmb_protocol::answer::{
    EndLine, EndsLine, HeadersLine, OutcomeLine, TracedConnectionLine, TracedLine, TracedRuleLine,
};
use std::fmt::Write as _;

/// What became of a packet, in some lines. `number` is its number in a capture.
pub fn traced_text(line: &TracedLine, number: Option<usize>) -> String {
    let TracedLine { time_ns, port, packet, outcome, rewritten, edits } = line;
    // Writing to a string does not fail.
    let mut text = String::new();
    if let Some(time_ns) = time_ns {
        text.push_str(&time_of_day(*time_ns));
    }
    let number = number.map(|number| format!(" {number}")).unwrap_or_default();
    let origin = match outcome.origin.as_str() {
        "worker" => ", handed over by another worker",
        "held" => ", which was held",
        "made" => ", which mmb made",
        "answer" => ", which mmb made as an answer",
        _ => "",
    };
    let _ = writeln!(text, "packet{number} by port {port}{origin}: {}", headers(packet));
    if outcome.rules.is_empty() && packet.malformed.is_none() {
        text.push_str("no rule applies\n");
    }
    for rule in &outcome.rules {
        let decides = if rule.decides { "   <- decides" } else { "" };
        let _ = writeln!(text, "  {}{decides}", rule_text(rule));
    }
    if outcome.more_rules > 0 {
        let _ = writeln!(text, "  and {} more", outcome.more_rules);
    }
    if let Some(id) = outcome.decisive.filter(|id| outcome.rules.iter().all(|rule| rule.id != *id)) {
        let _ = writeln!(text, "rule {id} decides");
    }
    if let Some(connection) = &outcome.connection {
        text.push_str(&connection_text(connection));
    }
    if outcome.stream {
        text.push_str("its bytes came to the rules on its stream\n");
    }
    if let Some(after) = rewritten {
        let (before, after) = (headers(packet), headers(after));
        let what = if before == after { "in other fields" } else { &after };
        let _ = writeln!(text, "rewritten: {what}");
        for edit in edits {
            let _ = writeln!(text, "  {} {} -> {}", edit.field, edit.before, edit.after);
        }
    }
    text.push_str(&verdict(outcome));
    text
}

fn verdict(outcome: &OutcomeLine) -> String {
    let OutcomeLine { verdict, reason, meaning, out, to_worker, .. } = outcome;
    match (verdict.as_str(), reason, to_worker) {
        ("dropped", Some(reason), _) => {
            let meaning = meaning.as_ref().map(|meaning| format!(": {meaning}")).unwrap_or_default();
            format!("it is dropped, reason {reason}{meaning}\n")
        }
        ("held", ..) => "it is held until the first fragment of its datagram comes\n".to_owned(),
        ("absorbed", ..) => "its bytes are taken into the stream of its connection\n".to_owned(),
        ("handed", _, Some(worker)) => format!("worker {worker} has its connection, and gets it\n"),
        ("handed", ..) => "another worker has its connection\n".to_owned(),
        _ => format!("it passes to port {}\n", out.as_deref().unwrap_or_default()),
    }
}

/// The command that adds a rule, with its id.
fn rule_text(rule: &TracedRuleLine) -> String {
    match rule.rule.as_deref().and_then(|text| text.split_once(' ')) {
        Some((command, rest)) => format!("{command} id {} {rest}", rule.id),
        None => format!("rule {}, which is gone", rule.id),
    }
}

fn connection_text(connection: &TracedConnectionLine) -> String {
    let TracedConnectionLine { id, new, reply, state, proto, arrived, sent } = connection;
    let direction = if *reply { "its reply" } else { "its initiator's packet" };
    let made = if *new { ", made by it" } else { "" };
    let mut text = format!("connection {id} ({proto} {}, {state}{made}): {direction}\n", ends(arrived));
    if arrived != sent {
        let _ = writeln!(text, "  translated: {}", ends(sent));
    }
    text
}

pub(crate) fn ends(EndsLine { src, sport, dst, dport }: &EndsLine) -> String {
    format!("{} > {}", port(*src, *sport), port(*dst, *dport))
}

fn headers(packet: &HeadersLine) -> String {
    if let Some(why) = &packet.malformed {
        return format!("{} bytes that are no packet ({why})", packet.bytes);
    }
    let end = |end: &EndLine| match end.port {
        Some(number) => port(end.address, number),
        None => end.address.to_string(),
    };
    match (&packet.source, &packet.destination) {
        (Some(source), Some(destination)) => {
            format!("{} {} > {}, {} bytes", packet.proto, end(source), end(destination), packet.bytes)
        }
        _ => format!("{}, {}", packet.proto, counted(packet.bytes, "byte")),
    }
}

/// The time of day in UTC, to microseconds.
fn time_of_day(time_ns: u64) -> String {
    let (seconds, micros) = (time_ns / 1_000_000_000 % 86_400, time_ns % 1_000_000_000 / 1_000);
    format!("{:02}:{:02}:{:02}.{micros:06} ", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

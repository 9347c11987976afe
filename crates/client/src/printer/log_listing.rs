//! Packets that rules with `log` tell of, and the sinks of the log, for people.

use super::connection_listing::{port, time_of_day};
use super::text_table::{Align, TextTable};
use crate::report::counted;
use crate::screen::Screen;
use mmb_protocol::answer::{LogLine, LogSinkLine, SuppressedLine};

/// Prints a packet at once.
pub(super) fn packet(screen: &mut Screen<'_>, line: &LogLine) {
    time_of_day(screen, line.time.as_deref());
    screen.bold("* ");
    let mut text = match (&line.proto, &line.arrived) {
        (Some(proto), Some(ends)) => match proto.as_str() {
            "tcp" | "udp" | "udplite" | "dccp" | "sctp" if !line.fragment => {
                format!("{proto} {} > {}", port(ends.src, ends.sport), port(ends.dst, ends.dport))
            }
            _ => format!("{proto} {} > {}", ends.src, ends.dst),
        },
        _ => line.eth_type.clone().unwrap_or_default(),
    };
    if line.fragment {
        text += " fragment";
    }
    if let Some(flags) = &line.tcp_flags {
        text += " ";
        text += if flags.is_empty() { "no flags" } else { flags };
    }
    if let (Some(kind), Some(code)) = (line.icmp_type, line.icmp_code) {
        text += &format!(" type {kind} code {code}");
    }
    if let [_, ..] = line.vlans[..] {
        let ids: Vec<String> = line.vlans.iter().map(u16::to_string).collect();
        text += &format!(" vlan {}", ids.join("."));
    }
    text += &format!(", rule {}, in {}", line.rule, line.ingress);
    match (&line.out, &line.reason) {
        (Some(out), _) => text += &format!(", out {out}"),
        (None, Some(reason)) => text += &format!(", dropped ({reason})"),
        (None, None) => {}
    }
    text += &format!(", {}", counted(line.len.into(), "byte"));
    end(screen, text, line.text.as_deref());
}

/// Prints the number of packets that a rule did not tell of.
pub(super) fn suppressed(screen: &mut Screen<'_>, line: &SuppressedLine) {
    time_of_day(screen, line.time.as_deref());
    screen.bold("* ");
    let packets = counted(line.packets, "packet");
    end(screen, format!("{packets} more, rule {} (`log rate`)", line.rule), line.text.as_deref());
}

/// Prints the sinks of the log.
pub(super) fn sinks(screen: &mut Screen<'_>, sinks: Vec<LogSinkLine>) {
    if sinks.is_empty() {
        screen.text("events are sent nowhere: see `mmb run --log`\n");
        return;
    }
    let mut table = TextTable::new(&[
        ("LOG", Align::Left),
        ("WRITTEN", Align::Right),
        ("WAITING", Align::Right),
        ("LOST", Align::Right),
        ("FAILED ATTEMPTS", Align::Right),
        ("STATE", Align::Left),
    ]);
    for LogSinkLine { log, written, queued, lost, errors, error } in sinks {
        let counts = [written, queued, lost, errors].map(|count| count.to_string());
        let state = error.unwrap_or_else(|| "works".to_owned());
        table.row(screen, [log].into_iter().chain(counts).chain([state]).collect());
    }
    table.end(screen, None);
}

fn end(screen: &mut Screen<'_>, mut text: String, note: Option<&str>) {
    if let Some(note) = note {
        text += &format!(": {note}");
    }
    screen.text(&format!("{text}\n"));
    screen.flush();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::shown;
    use mmb_protocol::answer::EndsLine;

    fn tcp() -> LogLine {
        let [src, dst] = [[10, 0, 0, 5], [192, 0, 2, 1]].map(Into::into);
        LogLine {
            time: Some("2026-01-02T03:04:05.678901Z".to_owned()),
            what: "log".to_owned(),
            rule: 3,
            text: Some("new".to_owned()),
            ingress: "lan".to_owned(),
            verdict: "pass".to_owned(),
            out: Some("wan".to_owned()),
            len: 74,
            proto: Some("tcp".to_owned()),
            arrived: Some(EndsLine { src, sport: 4000, dst, dport: 80 }),
            tcp_flags: Some("syn".to_owned()),
            ..LogLine::default()
        }
    }

    #[test]
    fn a_packet_is_a_line() {
        assert_eq!(
            shown(|screen| packet(screen, &tcp())),
            "2026-01-02T03:04:05.678901Z * tcp 10.0.0.5:4000 > 192.0.2.1:80 syn, rule 3, in lan, out wan, 74 bytes: new\n"
        );
        let reason = Some("rule".to_owned());
        let dropped = LogLine { out: None, reason, tcp_flags: Some(String::new()), text: None, ..tcp() };
        let text = shown(|screen| packet(screen, &dropped));
        assert!(text.ends_with(":80 no flags, rule 3, in lan, dropped (rule), 74 bytes\n"), "{text}");
    }

    #[test]
    fn packets_without_ports_show_what_they_have() {
        let (proto, arrived) = (Some("icmp".to_owned()), tcp().arrived);
        let icmp = LogLine {
            proto,
            icmp_type: Some(8),
            icmp_code: Some(0),
            vlans: vec![10, 20],
            tcp_flags: None,
            ..tcp()
        };
        let arp = LogLine { eth_type: Some("arp".to_owned()), proto: None, arrived: None, ..icmp.clone() };
        let later = LogLine { fragment: true, arrived, tcp_flags: None, ..tcp() };
        for (line, part) in [
            (icmp, "* icmp 10.0.0.5 > 192.0.2.1 type 8 code 0 vlan 10.20, rule 3"),
            (arp, "* arp type 8"),
            (later, "* tcp 10.0.0.5 > 192.0.2.1 fragment, rule 3"),
        ] {
            let text = shown(|screen| packet(screen, &line));
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_sink_is_a_row() {
        assert!(shown(|screen| sinks(screen, Vec::new())).contains("nowhere"));
        let works = LogSinkLine { log: "journald".to_owned(), written: 5, ..LogSinkLine::default() };
        let error = Some("No space left on device".to_owned());
        let full =
            LogSinkLine { log: "file:/x".to_owned(), queued: 9, lost: 3, errors: 4, error, ..works.clone() };
        assert_eq!(
            shown(|screen| sinks(screen, vec![works.clone(), full.clone()])),
            "LOG       WRITTEN  WAITING  LOST  FAILED ATTEMPTS  STATE\n\
             journald        5        0     0                0  works\n\
             file:/x         5        9     3                4  No space left on device\n"
        );
    }

    #[test]
    fn what_was_not_told_is_a_number() {
        let line = SuppressedLine { rule: 3, packets: 980, ..SuppressedLine::default() };
        assert_eq!(shown(|screen| suppressed(screen, &line)), "* 980 packets more, rule 3 (`log rate`)\n");
    }
}

//! Connections for people: a table of them, their summary, and their events.

use super::text_table::{Align, TextTable};
use crate::report::counted;
use crate::screen::{Color, Screen};
use mmb_protocol::answer::{
    ConnectionLine, EndsLine, EventKind, EventLine, LeftOutLine, SummaryLine, TrafficLine,
};

/// A table of connections while it is printed.
#[derive(Debug, Default)]
pub(crate) struct ConnectionListing {
    table: Option<TextTable>,
    connections: u64,
    verbose: bool,
}

impl ConnectionListing {
    /// Prints a connection.
    pub(crate) fn row(&mut self, screen: &mut Screen<'_>, line: &ConnectionLine) {
        self.connections += 1;
        self.verbose = line.place.is_some();
        let [before, after] = tuples(line);
        let mut cells = vec![
            line.proto.clone(),
            line.state.clone(),
            before,
            after,
            time(line.age_ms),
            time(line.idle_ms),
            time(line.expires_ms),
            both(line, |traffic| traffic.packets),
            both(line, |traffic| traffic.bytes),
            rules(line),
        ];
        if let Some(place) = line.place {
            cells.extend([place.worker, place.wire].map(|number| number.to_string()));
            cells.push(place.id.to_string());
        }
        self.table.get_or_insert_with(|| TextTable::new(columns(self.verbose))).row(screen, cells);
    }

    /// Prints the remaining rows and the total.
    pub(crate) fn end(self, screen: &mut Screen<'_>) {
        let Some(table) = self.table else {
            screen.text("no connections\n");
            return;
        };
        let mut totals = vec![String::new(); columns(self.verbose).len()];
        totals[2] = counted(self.connections, "connection");
        table.end(screen, Some(totals));
    }
}

fn columns(verbose: bool) -> &'static [(&'static str, Align)] {
    const COLUMNS: [(&str, Align); 13] = [
        ("PROTO", Align::Left),
        ("STATE", Align::Left),
        ("CONNECTION", Align::Left),
        ("AS SENT", Align::Left),
        ("AGE", Align::Right),
        ("IDLE", Align::Right),
        ("EXPIRES", Align::Right),
        ("PACKETS", Align::Right),
        ("BYTES", Align::Right),
        ("RULES", Align::Left),
        ("WORKER", Align::Right),
        ("WIRE", Align::Right),
        ("ID", Align::Right),
    ];
    if verbose { &COLUMNS } else { &COLUMNS[..10] }
}

/// Formats the tuple of arriving packets, and that of leaving packets if it differs.
pub(super) fn tuples(line: &ConnectionLine) -> [String; 2] {
    let tuple = |ends: &EndsLine| match line.proto.as_str() {
        "tcp" | "udp" | "udplite" | "dccp" | "sctp" => {
            format!("{} > {}", port(ends.src, ends.sport), port(ends.dst, ends.dport))
        }
        "icmp" | "icmp6" => {
            let echo = format!("{} > {} id {}", ends.src, ends.dst, ends.sport);
            match line.icmp_type {
                None | Some(8 | 128) => echo,
                Some(other) => format!("{echo} type {other}"),
            }
        }
        _ => match line.key {
            Some(key) => format!("{} > {} key {key:#010x}", ends.src, ends.dst),
            None => format!("{} > {}", ends.src, ends.dst),
        },
    };
    let vlans = match &line.vlans[..] {
        [] => String::new(),
        ids => format!(" vlan {}", ids.iter().map(u16::to_string).collect::<Vec<_>>().join(".")),
    };
    let after = if line.sent == line.arrived { String::new() } else { tuple(&line.sent) };
    [tuple(&line.arrived) + &vlans, after]
}

pub(super) fn port(address: std::net::IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

/// Formats a counter of both directions: `12/9`.
fn both(line: &ConnectionLine, of: impl Fn(&TrafficLine) -> u64) -> String {
    format!("{}/{}", of(&line.forward), of(&line.reply))
}

pub(super) fn rules(line: &ConnectionLine) -> String {
    line.rules.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Formats a time with two digits or units: `0.2s`, `59s`, `2m05s`, `2h04m`, `3d01h`.
fn time(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..10 => format!("{seconds}.{}s", ms % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Formats a connection that a state was loaded without.
pub fn left_out(LeftOutLine { reason, connection }: &LeftOutLine) -> String {
    let [before, after] = tuples(connection);
    let after = if after.is_empty() { after } else { format!(" as {after}") };
    format!("left out, {reason}: {} {} {before}{after}\n", connection.proto, connection.state)
}

/// Prints the time of an event, if it is known.
pub(super) fn time_of_day(screen: &mut Screen<'_>, time: Option<&str>) {
    time.into_iter().for_each(|time| screen.text(&format!("{time} ")));
}

/// Prints an event at once.
pub(crate) fn event(screen: &mut Screen<'_>, event: &EventLine) {
    time_of_day(screen, event.time.as_deref());
    let line = &event.connection;
    let [before, after] = tuples(line);
    let after = if after.is_empty() { after } else { format!(" as {after}") };
    match event.what {
        EventKind::Created => {
            screen.color(Color::Green, "+ ");
            screen.text(&format!("{} {before}{after}, rules {}\n", line.proto, rules(line)));
        }
        EventKind::Closed => {
            screen.color(Color::Red, "- ");
            let reason = event.reason.as_deref().unwrap_or("closed");
            screen.text(&format!(
                "{} {before}{after}, {reason} after {}, {} packets, {} bytes\n",
                line.proto,
                time(line.age_ms),
                both(line, |traffic| traffic.packets),
                both(line, |traffic| traffic.bytes),
            ));
        }
    }
    screen.flush();
}

/// Prints the totals of all connections.
pub(crate) fn summary(screen: &mut Screen<'_>, line: &SummaryLine) {
    let mut table = TextTable::new(&[("CONNECTIONS", Align::Right), ("", Align::Left)]);
    let mut row = |count: u64, label: String| table.row(screen, vec![count.to_string(), label]);
    row(line.connections, format!("now, of {} at most", line.max));
    row(line.half_open, "of them half-open".to_owned());
    row(line.created, "created".to_owned());
    for (reasons, label) in
        [(&line.closed, "closed"), (&line.refused, "packets refused"), (&line.invalid, "packets invalid")]
    {
        for (reason, count) in reasons {
            row(count.as_u64().unwrap_or_default(), format!("{label}: {reason}"));
        }
    }
    for (count, label) in [
        (line.handed, "packets handed from worker to worker"),
        (line.held, "fragments waiting for their first one"),
        (line.events_lost, "events that nobody read in time"),
    ] {
        if count > 0 {
            row(count, label.to_owned());
        }
    }
    table.end(screen, None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::shown;
    use mmb_protocol::answer::ConnectionPlace;
    use serde_json::json;
    use std::net::IpAddr;

    fn ends(src: &str, sport: u16, dst: &str, dport: u16) -> EndsLine {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        EndsLine { src: address(src), sport, dst: address(dst), dport }
    }

    fn line(proto: &str) -> ConnectionLine {
        ConnectionLine {
            proto: proto.to_owned(),
            state: "established".to_owned(),
            arrived: ends("10.0.0.5", 4000, "192.0.2.1", 80),
            sent: ends("10.0.0.5", 4000, "192.0.2.1", 80),
            age_ms: 65_432,
            idle_ms: 1_250,
            expires_ms: 7_439_000,
            forward: TrafficLine { packets: 12, bytes: 1_200 },
            reply: TrafficLine { packets: 9, bytes: 90_000 },
            rules: vec![1, 3],
            vlans: Vec::new(),
            key: None,
            icmp_type: None,
            stream: None,
            place: None,
        }
    }

    fn listed(lines: &[ConnectionLine]) -> String {
        let mut listing = ConnectionListing::default();
        shown(|screen| {
            lines.iter().for_each(|line| listing.row(screen, line));
            listing.end(screen);
        })
    }

    #[test]
    fn a_connection_is_a_row() {
        assert_eq!(
            listed(&[line("tcp")]),
            "PROTO  STATE        CONNECTION                    AS SENT    AGE  IDLE  EXPIRES  PACKETS       BYTES  RULES\n\
             tcp    established  10.0.0.5:4000 > 192.0.2.1:80           1m05s  1.2s    2h03m     12/9  1200/90000  1,3\n\
             \u{20}                   1 connection\n"
        );
        assert_eq!(listed(&[]), "no connections\n");
        let sent = ends("2001:db8::1", 1, "2001:db8::2", 2);
        let place = Some(ConnectionPlace { worker: 1, id: 77, wire: 0 });
        let text = listed(&[ConnectionLine { sent, place, ..line("udp") }, line("icmp"), line("esp")]);
        for part in ["[2001:db8::1]:1 > [2001:db8::2]:2", "WORKER", "77", "id 4000", "10.0.0.5 > 192.0.2.1 "]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn connections_show_the_identifiers_of_their_protocol() {
        let ports = "10.0.0.5:4000 > 192.0.2.1:80 ";
        let keyed = ConnectionLine { key: Some(42), ..line("gre") };
        let query = |icmp_type| ConnectionLine { icmp_type: Some(icmp_type), ..line("icmp") };
        let lines = [line("sctp"), line("dccp"), line("udplite"), keyed, query(8), query(13)];
        let queries = ["10.0.0.5 > 192.0.2.1 id 4000 ", "10.0.0.5 > 192.0.2.1 id 4000 type 13 "];
        let key = ["10.0.0.5 > 192.0.2.1 key 0x0000002a "];
        for (line, text) in lines.iter().zip([ports; 3].into_iter().chain(key).chain(queries)) {
            let listed = listed(std::slice::from_ref(line));
            assert!(listed.contains(text), "{listed}");
        }
    }

    #[test]
    fn a_connection_in_vlans_names_them() {
        for (vlans, text) in [(vec![10], "192.0.2.1:80 vlan 10 "), (vec![10, 20], "192.0.2.1:80 vlan 10.20 ")]
        {
            let listed = listed(&[ConnectionLine { vlans, ..line("tcp") }]);
            assert!(listed.contains(text), "{listed}");
        }
    }

    #[test]
    fn an_event_shows_its_kind_and_reason() {
        let sent = ends("198.51.100.1", 4000, "192.0.2.1", 80);
        let connection = ConnectionLine { sent, ..line("tcp") };
        let created = EventLine { time: None, what: EventKind::Created, reason: None, connection };
        let reason = Some("timeout".to_owned());
        let time = Some("2026-01-02T03:04:05.678901Z".to_owned());
        let closed = EventLine { time, what: EventKind::Closed, reason, connection: line("icmp6") };
        assert_eq!(
            shown(|screen| [created, closed].iter().for_each(|line| event(screen, line))),
            "+ tcp 10.0.0.5:4000 > 192.0.2.1:80 as 198.51.100.1:4000 > 192.0.2.1:80, rules 1,3\n\
             2026-01-02T03:04:05.678901Z - icmp6 10.0.0.5 > 192.0.2.1 id 4000, timeout after 1m05s, 12/9 packets, 1200/90000 bytes\n"
        );
    }

    #[test]
    fn times_have_two_digits_or_units() {
        for (ms, text) in [
            (0, "0.0s"),
            (9_999, "9.9s"),
            (59_999, "59s"),
            (125_000, "2m05s"),
            (7_440_000, "2h04m"),
            (262_800_000, "3d01h"),
        ] {
            assert_eq!(time(ms), text);
        }
    }

    #[test]
    fn a_summary_shows_reasons() {
        let counts = |value: serde_json::Value| value.as_object().cloned().unwrap_or_default();
        let line = SummaryLine {
            connections: 5,
            max: 1000,
            created: 7,
            closed: counts(json!({"timeout": 2})),
            refused: counts(json!({"conn-full": 3})),
            ..SummaryLine::default()
        };
        let text = shown(|screen| summary(screen, &line));
        for part in ["5  now, of 1000 at most", "2  closed: timeout", "3  packets refused: conn-full"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("events"));
    }
}

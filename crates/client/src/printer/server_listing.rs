//! Servers of load balancers for people.

use super::text_table::{Align, TextTable};
use crate::screen::Screen;
use mmb_protocol::answer::{ServerLine, ServerStateLine};
use std::time::{SystemTime, UNIX_EPOCH};

/// Prints the servers of all rules.
pub(super) fn show(screen: &mut Screen<'_>, servers: &[ServerLine]) {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    show_at(screen, now_ms, servers);
}

fn show_at(screen: &mut Screen<'_>, now_ms: u64, servers: &[ServerLine]) {
    if servers.is_empty() {
        screen.text("no rule balances over servers\n");
        return;
    }
    let mut columns = vec![
        ("RULE", Align::Right),
        ("SERVER", Align::Left),
        ("WEIGHT", Align::Right),
        ("STATE", Align::Left),
        ("NOW", Align::Right),
        ("TOTAL", Align::Right),
    ];
    if servers.iter().any(|line| line.packets.is_some()) {
        columns.extend([("PACKETS", Align::Right), ("BYTES", Align::Right)]);
    }
    columns.extend([("CHECK", Align::Left), ("SINCE", Align::Left)]);
    let mut table = TextTable::new(&columns);
    let ago = |then_ms: Option<u64>| {
        then_ms.map(|then_ms| format!("{} ago", span(now_ms.saturating_sub(then_ms) / 1000)))
    };
    for line in servers {
        let state = if line.state == "failed" && line.open { "failed, used" } else { &line.state };
        let since = ago(line.since_ms).into_iter().chain(line.reason.clone());
        let counts = [Some(line.connections), Some(line.total), line.packets, line.bytes];
        let mut cells = vec![
            line.rule.to_string(),
            line.server.clone(),
            line.weight.map_or_else(|| "-".to_owned(), |weight| weight.to_string()),
            state.to_owned(),
        ];
        cells.extend(counts.into_iter().flatten().map(|count| count.to_string()));
        let check = line.health.iter().cloned().chain(ago(line.checked_ms)).collect::<Vec<_>>().join(" ");
        cells.push(if check.is_empty() { "-".to_owned() } else { check });
        cells.push(since.collect::<Vec<_>>().join(": "));
        table.row(screen, cells);
    }
    table.end(screen, None);
    if servers.iter().any(|line| line.state == "failed" && line.open) {
        screen.text("failed, used: no server of the rule is up, so new connections go to those that only checks have taken out\n");
    }
}

/// The state of a server after a command.
pub(super) fn state(line: &ServerStateLine) -> String {
    let ServerStateLine { rule, server, state, open } = line;
    let effect = if *open { "gets new connections" } else { "gets no new connections" };
    format!("{server} of rule {rule} is {state}: it {effect}\n")
}

/// A number of seconds in its two largest units.
fn span(seconds: u64) -> String {
    let parts =
        [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let largest = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let text = |(count, unit): &(u64, &str)| format!("{count}{unit}");
    parts.iter().skip(largest).take(2).map(text).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::shown;

    fn line(server: &str, state: &str, open: bool) -> ServerLine {
        ServerLine {
            rule: 5,
            server: server.to_owned(),
            weight: Some(1),
            state: state.to_owned(),
            open,
            since_ms: None,
            reason: None,
            health: None,
            checked_ms: None,
            connections: 2,
            total: 30,
            packets: Some(400),
            bytes: Some(5000),
        }
    }

    #[test]
    fn servers_are_listed_with_state_and_reason() {
        let drain = ServerLine {
            since_ms: Some(1_000),
            reason: Some("kernel update".to_owned()),
            health: Some("healthy".to_owned()),
            checked_ms: Some(89_000),
            ..line("10.0.0.2", "drain", false)
        };
        let text = shown(|screen| show_at(screen, 91_500, &[line("10.0.0.1", "up", true), drain]));
        let expected = "\
RULE  SERVER    WEIGHT  STATE  NOW  TOTAL  PACKETS  BYTES  CHECK           SINCE
   5  10.0.0.1       1  up       2     30      400   5000  -
   5  10.0.0.2       1  drain    2     30      400   5000  healthy 2s ago  1m 30s ago: kernel update
";
        let trimmed: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        assert_eq!(trimmed, expected);
        let terse = ServerLine { packets: None, bytes: None, ..line("10.0.0.1", "up", true) };
        assert!(!shown(|screen| show_at(screen, 0, &[terse])).contains("PACKETS"));
        let text = shown(|screen| show_at(screen, 0, &[line("10.0.0.1", "failed", true)]));
        assert!(text.contains("failed, used") && text.contains("no server of the rule is up"), "{text}");
        assert_eq!(shown(|screen| show_at(screen, 0, &[])), "no rule balances over servers\n");
    }

    #[test]
    fn times_have_two_units() {
        assert_eq!([0, 59, 61, 7200, 90_000].map(span), ["0s", "59s", "1m 1s", "2h 0m", "1d 1h"]);
    }
}

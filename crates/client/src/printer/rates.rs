//! Rates for people: what moved within the last second.

use super::connection_listing::tuples;
use super::text_table::{Align, TextTable};
use crate::report::counted;
use crate::screen::Screen;
use mmb_protocol::answer::{Rate, RateLines};

/// The columns behind a name that has traffic.
const TRAFFIC: [(&str, Align); 2] = [("PACKETS/S", Align::Right), ("BIT/S", Align::Right)];

/// Prints the tables that have rows.
pub(super) fn show_rates(screen: &mut Screen<'_>, rates: &RateLines) {
    let moment = &rates.moment;
    screen.text(&format!(
        "{}, {} made and {} ended per second\n",
        counted(moment.connections, "connection"),
        number(moment.made_per_s),
        number(moment.ended_per_s)
    ));
    let right = |name| (name, Align::Right);
    let port = [
        ("PORT", Align::Left),
        right("RX PACKETS/S"),
        right("RX BIT/S"),
        right("TX PACKETS/S"),
        right("TX BIT/S"),
    ];
    let rows = rates.ports.iter().map(|port| {
        let [rx, tx] = [traffic(port.rx), traffic(port.tx)];
        std::iter::once(port.name.clone()).chain(rx).chain(tx).collect()
    });
    table(screen, &port, rows);
    let worker = [("WORKER", Align::Right), right("CORE"), right("PACKETS/S"), right("LOAD")];
    let rows = rates.workers.iter().map(|worker| {
        let core = worker.core.map_or_else(|| "-".to_owned(), |core| core.to_string());
        let load = worker.load.map_or_else(|| "-".to_owned(), |load| format!("{:.1}%", load * 100.0));
        vec![worker.worker.to_string(), core, number(worker.packets_per_s), load]
    });
    table(screen, &worker, rows);
    let rows = rates.drops.iter().map(|drop| vec![number(drop.packets_per_s), drop.reason.clone()]);
    table(screen, &[right("DROPPED/S"), ("REASON", Align::Left)], rows);
    let rule = [right("ID"), TRAFFIC[0], TRAFFIC[1], right("DROPPED/S"), ("RULE", Align::Left)];
    let rows = rates.rules.iter().map(|rule| {
        let [packets, bits] = traffic(rule.matched);
        vec![rule.id.to_string(), packets, bits, number(rule.dropped_per_s), rule.rule.clone()]
    });
    table(screen, &rule, rows);
    let connection =
        [("PROTO", Align::Left), ("CONNECTION", Align::Left), right("BIT/S"), right("REPLY BIT/S")];
    let rows = rates.top_connections.iter().map(|line| {
        let [arrived, _] = tuples(&line.connection);
        let bits = [line.forward, line.reply].map(|rate| traffic(rate)[1].clone());
        [line.connection.proto.clone(), arrived].into_iter().chain(bits).collect()
    });
    table(screen, &connection, rows);
    if moment.too_many_connections {
        screen.text("there are too many connections to compare each\n");
    }
}

fn table(
    screen: &mut Screen<'_>,
    columns: &[(&'static str, Align)],
    rows: impl Iterator<Item = Vec<String>>,
) {
    let mut rows = rows.peekable();
    if rows.peek().is_some() {
        screen.text("\n");
        let mut table = TextTable::new(columns);
        rows.for_each(|row| table.row(screen, row));
        table.end(screen, None);
    }
}

/// Packets per second, and bits per second on the link.
fn traffic(rate: Rate) -> [String; 2] {
    [number(rate.packets_per_s), number(rate.bytes_per_s * 8.0)]
}

/// Formats a rate with a prefix of SI: `0`, `12.5`, `1.23k`, `45.6M`.
pub fn number(value: f64) -> String {
    let (mut scaled, mut prefixes) = (value, ["k", "M", "G", "T"].into_iter());
    let mut prefix = "";
    while scaled >= 999.5
        && let Some(next) = prefixes.next()
    {
        (scaled, prefix) = (scaled / 1000.0, next);
    }
    let decimals = match scaled {
        _ if prefix.is_empty() && scaled.fract() == 0.0 => 0,
        _ if scaled >= 99.95 => 0,
        _ if scaled >= 9.995 || prefix.is_empty() => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$}{prefix}")
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.0, 0.5, 7.0, 12.3, 999.0, 1_234.0, 45_600.0, 999_600.0, 1e9, 25.4e9, 1e18].map(number);
        assert_eq!(
            texts,
            ["0", "0.5", "7", "12.3", "999", "1.23k", "45.6k", "1.00M", "1.00G", "25.4G", "1000000T"]
        );
    }
}

//! Streams for people: a table of them, and their events.

use super::connection_listing::{port, rules, time_of_day, tuples};
use super::text_table::{Align, TextTable};
use crate::report::counted;
use crate::screen::{Color, Screen};
use mmb_protocol::answer::{
    ConnectionLine, DigestLine, ExpectedLine, StreamEventLine, StreamLine, StreamSideLine, StreamSummaryLine,
    StreamUsageLine,
};

/// The state of connections that both ends have closed: their streams stay while something is left to send.
const CLOSED: &str = "time-wait";

/// A table of streams while it is printed.
#[derive(Debug, Default)]
pub(super) struct StreamListing {
    table: Option<TextTable>,
    streams: u64,
    verbose: bool,
    /// A filter or `verbose` asks for all of these streams.
    selected: bool,
    /// Streams of closed connections that are left out.
    left_out: u64,
}

impl StreamListing {
    /// For streams that a filter or `verbose` asks for, or for all.
    pub(super) fn new(selected: bool) -> StreamListing {
        StreamListing { selected, ..StreamListing::default() }
    }

    /// Prints the stream of a connection.
    pub(super) fn row(&mut self, screen: &mut Screen<'_>, line: &ConnectionLine) {
        let Some(stream) = &line.stream else { return };
        if !self.selected && stream.ended.is_none() && line.state == CLOSED {
            self.left_out += 1;
            return;
        }
        self.streams += 1;
        self.verbose = line.place.is_some();
        let [before, _] = tuples(line);
        let state = match &stream.ended {
            Some(reason) => format!("ended: {reason}"),
            None => line.state.clone(),
        };
        let mut cells = vec![
            line.proto.clone(),
            state,
            before,
            both(stream, |side| side.level.clone()),
            both(stream, |side| side.bytes.to_string()),
            both(stream, |side| side.repeated.to_string()),
            both(stream, |side| side.early.to_string()),
            both(stream, |side| side.gaps.to_string()),
            both(stream, |side| (side.kept + side.waiting + held(side)).to_string()),
            edits(stream),
            rules(line),
        ];
        if let Some(place) = line.place {
            cells.push(both(stream, |side| side.gap_bytes.to_string()));
            cells.push(both(stream, |side| side.overwritten.to_string()));
            cells.push(both(stream, |side| held(side).to_string()));
            cells.push(both(stream, |side| side.edits.as_ref().map_or(0, |edits| edits.delta).to_string()));
            cells.push(place.worker.to_string());
            cells.push(place.id.to_string());
        }
        self.table.get_or_insert_with(|| TextTable::new(columns(self.verbose))).row(screen, cells);
    }

    /// Prints the remaining rows and the total.
    pub(super) fn end(self, screen: &mut Screen<'_>) {
        match self.table {
            None => screen.text("no streams\n"),
            Some(table) => {
                let mut totals = vec![String::new(); columns(self.verbose).len()];
                totals[2] = counted(self.streams, "stream");
                table.end(screen, Some(totals));
            }
        }
        if self.left_out > 0 {
            let left_out = counted(self.left_out, "stream");
            screen.text(&format!(
                "left out: {left_out} of closed connections (`show streams verbose`, `show streams state time-wait`)\n"
            ));
        }
    }
}

fn columns(verbose: bool) -> &'static [(&'static str, Align)] {
    const COLUMNS: [(&str, Align); 17] = [
        ("PROTO", Align::Left),
        ("STATE", Align::Left),
        ("CONNECTION", Align::Left),
        ("LEVEL", Align::Left),
        ("BYTES", Align::Right),
        ("SENT AGAIN", Align::Right),
        ("EARLY", Align::Right),
        ("GAPS", Align::Right),
        ("KEPT", Align::Right),
        ("EDITS", Align::Right),
        ("RULES", Align::Left),
        ("GAP BYTES", Align::Right),
        ("OVERWRITTEN", Align::Right),
        ("HELD", Align::Right),
        ("DELTA", Align::Right),
        ("WORKER", Align::Right),
        ("ID", Align::Right),
    ];
    if verbose { &COLUMNS } else { &COLUMNS[..11] }
}

/// Bytes that are held back, or wait for the receiver's window.
fn held(side: &StreamSideLine) -> u64 {
    side.edits.as_ref().map_or(0, |edits| edits.held + edits.unsent)
}

/// The edits of both directions; nothing for a stream without edits.
fn edits(line: &StreamLine) -> String {
    let is_edited = [&line.forward, &line.reply].into_iter().flatten().any(|side| side.edits.is_some());
    let count = |side: &StreamSideLine| side.edits.as_ref().map_or(0, |edits| edits.edits).to_string();
    if is_edited { both(line, count) } else { String::new() }
}

/// Formats what is known of both directions: `120/4096`.
fn both(line: &StreamLine, of: impl Fn(&StreamSideLine) -> String) -> String {
    match (&line.forward, &line.reply) {
        (Some(forward), Some(reply)) => format!("{}/{}", of(forward), of(reply)),
        _ => String::new(),
    }
}

/// Prints the streams in numbers.
pub(super) fn summary(screen: &mut Screen<'_>, line: &StreamSummaryLine) {
    let mut table = TextTable::new(&[("STREAMS", Align::Right), ("", Align::Left)]);
    let mut row = |count: u64, label: String| table.row(screen, vec![count.to_string(), label]);
    let (streams, max) = line.workers.iter().fold((0, 0), |(now, max), of| (now + of.streams, max + of.max));
    row(streams, format!("now, of {max} at most (`stream max`)"));
    for (counts, label) in [(&line.levels, "at level"), (&line.states, "in state"), (&line.ended, "ended:")] {
        for (name, count) in counts {
            row(count.as_u64().unwrap_or_default(), format!("{label} {name}"));
        }
    }
    row(line.unfit, "connections with stream rules that pass, since they cannot be followed".to_owned());
    let (memory, memory_max) = line
        .workers
        .iter()
        .fold((0, 0), |(now, memory_max), of| (now + of.memory, memory_max + of.memory_max));
    row(memory, format!("bytes of memory in use, of {memory_max} (`stream memory`)"));
    for (count, label) in [
        (line.kept, "bytes that are not acknowledged"),
        (line.waiting, "bytes behind holes"),
        (line.held, "bytes held back"),
        (line.unsent, "bytes that wait for room at their receivers"),
    ] {
        row(count, label.to_owned());
    }
    let ExpectedLine { now, made, used, expired } = line.expected;
    if made > 0 {
        row(now, "connections that helpers expect".to_owned());
        row(made, format!("connections that were expected: {used} began, {expired} did not"));
    }
    if let [_, _, ..] = line.workers[..] {
        for StreamUsageLine { worker, streams, max, memory, memory_max } in &line.workers {
            row(*streams, format!("at worker {worker}, of {max}; {memory} of {memory_max} bytes"));
        }
    }
    table.end(screen, None);
    for warning in &line.warnings {
        screen.color(Color::Red, "warning: ");
        screen.text(&format!("{warning}\n"));
    }
}

/// Prints an event at once.
pub(super) fn event(screen: &mut Screen<'_>, event: &StreamEventLine) {
    let StreamEventLine { time, what, rule, reason, text, proto, arrived, direction, offset, forward, reply } =
        event;
    time_of_day(screen, time.as_deref());
    screen.color(Color::Red, "! ");
    let ends = format!("{} > {}", port(arrived.src, arrived.sport), port(arrived.dst, arrived.dport));
    screen.text(&format!("{proto} {ends}, {what}"));
    if let Some(rule) = rule {
        screen.text(&format!(" by rule {rule}"));
    }
    if let Some(reason) = reason {
        screen.text(&format!(" ({reason})"));
    }
    if let (Some(direction), Some(offset)) = (direction, offset) {
        screen.text(&format!(", {direction} byte {offset}"));
    }
    for (name, digest) in [("forward", forward), ("reply", reply)] {
        if let Some(DigestLine { bytes, crc32c }) = digest {
            screen.text(&format!(", {name} {bytes} bytes {crc32c}"));
        }
    }
    if let Some(text) = text {
        screen.text(&format!(": {text}"));
    }
    screen.text("\n");
    screen.flush();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::shown;
    use mmb_protocol::answer::{EndsLine, TrafficLine};
    use serde_json::json;

    fn stream(sport: u16, state: &str, ended: Option<&str>) -> ConnectionLine {
        let [src, dst] = [[10, 0, 0, 5], [192, 0, 2, 1]].map(Into::into);
        let arrived = EndsLine { src, sport, dst, dport: 80 };
        ConnectionLine {
            proto: "tcp".to_owned(),
            state: state.to_owned(),
            sent: arrived,
            arrived,
            age_ms: 0,
            idle_ms: 0,
            expires_ms: 0,
            forward: TrafficLine::default(),
            reply: TrafficLine::default(),
            rules: vec![1],
            vlans: Vec::new(),
            key: None,
            icmp_type: None,
            stream: Some(StreamLine { ended: ended.map(str::to_owned), ..StreamLine::default() }),
            place: None,
        }
    }

    fn listed(selected: bool, lines: &[ConnectionLine]) -> String {
        shown(|screen| {
            let mut listing = StreamListing::new(selected);
            lines.iter().for_each(|line| listing.row(screen, line));
            listing.end(screen);
        })
    }

    #[test]
    fn closed_connections_are_counted_unless_asked_for() {
        let lines = [
            stream(1, "established", None),
            stream(2, "time-wait", None),
            stream(3, "time-wait", None),
            stream(4, "reset", Some("rule")),
        ];
        let text = listed(false, &lines);
        assert!(
            text.contains("10.0.0.5:1 ") && text.contains("ended: rule") && text.contains("2 streams\n"),
            "{text}"
        );
        assert!(!text.contains("10.0.0.5:2 ") && !text.contains("10.0.0.5:3 "), "{text}");
        assert!(text.ends_with("left out: 2 streams of closed connections (`show streams verbose`, `show streams state time-wait`)\n"), "{text}");
        let text = listed(true, &lines);
        assert!(text.contains("4 streams\n") && !text.contains("left out"), "{text}");
        assert!(listed(false, &lines[1..2]).starts_with("no streams\nleft out: 1 stream of"));
    }

    #[test]
    fn messages_that_are_not_read_have_no_rule() {
        let [src, dst] = [[10, 0, 0, 5], [192, 0, 2, 1]].map(Into::into);
        let line = StreamEventLine {
            time: None,
            what: "http-unfit-closed".to_owned(),
            rule: None,
            reason: Some("http-bare-lf".to_owned()),
            text: Some("a line ends with LF".to_owned()),
            proto: "tcp".to_owned(),
            arrived: EndsLine { src, sport: 1, dst, dport: 80 },
            direction: Some("forward".to_owned()),
            offset: Some(35),
            forward: None,
            reply: None,
        };
        assert_eq!(
            shown(|screen| event(screen, &line)),
            "! tcp 10.0.0.5:1 > 192.0.2.1:80, http-unfit-closed (http-bare-lf), forward byte 35: a line ends with LF\n"
        );
    }

    #[test]
    fn a_summary_shows_what_is_in_use() {
        let count = |value: serde_json::Value| value.as_object().cloned().unwrap_or_default();
        let usage =
            |worker| StreamUsageLine { worker, streams: 4, max: 5, memory: 2048, memory_max: 1 << 20 };
        let line = StreamSummaryLine {
            levels: count(json!({"edit": 6, "guard": 2})),
            states: count(json!({"established": 8})),
            ended: count(json!({"rule": 3})),
            unfit: 7,
            held: 12,
            expected: ExpectedLine { now: 2, made: 9, used: 6, expired: 1 },
            workers: vec![usage(0), usage(1)],
            warnings: vec!["full".to_owned()],
            ..StreamSummaryLine::default()
        };
        let text = shown(|screen| summary(screen, &line));
        for row in [
            " 8  now, of 10 at most (`stream max`)\n",
            " 6  at level edit\n",
            " 8  in state established\n",
            " 3  ended: rule\n",
            " 7  connections with stream rules that pass, since they cannot be followed\n",
            "4096  bytes of memory in use, of 2097152 (`stream memory`)\n",
            " 12  bytes held back\n",
            " 2  connections that helpers expect\n",
            " 9  connections that were expected: 6 began, 1 did not\n",
            " 4  at worker 1, of 5; 2048 of 1048576 bytes\n",
            "warning: full\n",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
    }
}

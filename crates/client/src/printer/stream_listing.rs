//! Streams for people: a table of them, and their events.

use super::connection_listing::{port, rules, tuples};
use super::text_table::{Align, TextTable};
use crate::report::counted;
use crate::screen::{Color, Screen};
use mmb_protocol::answer::{ConnectionLine, DigestLine, StreamEventLine, StreamLine, StreamSideLine};

/// A table of streams while it is printed.
#[derive(Debug, Default)]
pub(super) struct StreamListing {
    table: Option<TextTable>,
    streams: u64,
    verbose: bool,
}

impl StreamListing {
    /// Prints the stream of a connection.
    pub(super) fn row(&mut self, screen: &mut Screen<'_>, line: &ConnectionLine) {
        let Some(stream) = &line.stream else { return };
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
        let Some(table) = self.table else {
            screen.text("no streams\n");
            return;
        };
        let mut totals = vec![String::new(); columns(self.verbose).len()];
        totals[2] = counted(self.streams, "stream");
        table.end(screen, Some(totals));
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

/// Prints an event at once.
pub(super) fn event(screen: &mut Screen<'_>, event: &StreamEventLine) {
    let StreamEventLine { what, rule, text, proto, arrived, direction, offset, forward, reply } = event;
    screen.color(Color::Red, "! ");
    let ends = format!("{} > {}", port(arrived.src, arrived.sport), port(arrived.dst, arrived.dport));
    screen.text(&format!("{proto} {ends}, {what} by rule {rule}"));
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

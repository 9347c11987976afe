//! Records as JSON, one object a line: events of workers as `monitor --json` prints them.

use crate::audit::AuditEvent;
use crate::clock::rfc3339;
use crate::lines::{connection_event_line, log_line, stream_event_line, suppressed_line};
use crate::record::{Record, RecordedEvent};
use mmb_engine::WatchedEvent;
use mmb_policy::printable::printable_json;
use serde::Serialize;

/// Appends a record, with its line break. `ports` are the names of the ports by number.
pub(crate) fn write(record: &Record, ports: &[String], out: &mut Vec<u8>) {
    let time = rfc3339(record.time);
    match &record.event {
        RecordedEvent::Worker(WatchedEvent::Connection(event)) => {
            line(&connection_event_line(event, time), out);
        }
        RecordedEvent::Worker(WatchedEvent::Stream(event)) => line(&stream_event_line(event, time), out),
        RecordedEvent::Worker(WatchedEvent::Packet(event)) => line(&log_line(event, time, ports), out),
        RecordedEvent::Worker(WatchedEvent::Suppressed(event)) => line(&suppressed_line(event, time), out),
        RecordedEvent::Audit(event) => line(&AuditLine { time, what: "audit", event }, out),
        RecordedEvent::Lost(events) => line(&LostLine { time, what: "lost", events: *events }, out),
    }
}

#[derive(Serialize)]
struct AuditLine<'a> {
    time: String,
    what: &'static str,
    #[serde(flatten)]
    event: &'a AuditEvent,
}

#[derive(Serialize)]
struct LostLine {
    time: String,
    what: &'static str,
    events: u64,
}

fn line(value: &impl Serialize, out: &mut Vec<u8>) {
    // Serialization cannot fail: all keys of these values are strings.
    let json = serde_json::to_string(value).unwrap_or_default();
    out.extend(printable_json(&json).as_bytes());
    out.push(b'\n');
}

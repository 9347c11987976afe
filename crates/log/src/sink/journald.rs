//! The journal's native protocol: a datagram of fields, `NAME=value` a line (systemd's "Native Journal Protocol"). No value has a line break.

use super::datagram::DatagramFormat;
use crate::clock::rfc3339;
use crate::fields;
use crate::record::Record;
use std::io::Write;
use std::sync::Arc;

/// The form of entries.
pub(super) struct JournalFormat {
    ports: Arc<[String]>,
    sentence: String,
}

impl JournalFormat {
    pub(super) fn new(ports: Arc<[String]>) -> JournalFormat {
        JournalFormat { ports, sentence: String::new() }
    }
}

impl DatagramFormat for JournalFormat {
    fn write(&mut self, record: &Record, out: &mut Vec<u8>) {
        self.sentence.clear();
        fields::sentence(record, &self.ports, &mut self.sentence);
        field(out, "MESSAGE", &self.sentence);
        field(out, "PRIORITY", &fields::severity(&record.event).to_string());
        field(out, "SYSLOG_IDENTIFIER", "mmb");
        field(out, "MMB_TIME", &rfc3339(record.time));
        field(out, "MMB_WHAT", fields::what(&record.event));
        fields::each(record, &self.ports, &mut |name, value| {
            field(out, &format!("MMB_{}", name.to_ascii_uppercase()), value);
        });
    }
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    // A vector takes everything.
    let _ = writeln!(out, "{name}={value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordedEvent;
    use crate::tests::{audit, closed, record};
    use std::collections::BTreeMap;

    /// The fields of an entry, read as the journal does.
    fn read(event: RecordedEvent) -> BTreeMap<String, String> {
        let mut out = Vec::new();
        JournalFormat::new(Arc::new([])).write(&record(event), &mut out);
        let (mut rest, mut found) = (&out[..], BTreeMap::new());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n').expect("a line break");
            let line = &rest[..end];
            let at = line.iter().position(|byte| *byte == b'=').expect("a name and a value");
            found.insert(text(&line[..at]), text(&line[at + 1..]));
            rest = &rest[end + 1..];
        }
        found
    }

    #[test]
    fn an_entry_has_a_message_a_priority_and_fields() {
        let entry = read(closed());
        for (name, value) in [
            ("PRIORITY", "6"),
            ("SYSLOG_IDENTIFIER", "mmb"),
            ("MMB_WHAT", "closed"),
            ("MMB_TIME", "2024-02-29T12:34:56.789012Z"),
            ("MMB_NAT_SRC", "198.51.100.1"),
            ("MMB_NAT_SPORT", "61000"),
            ("MMB_RULES", "3 7"),
        ] {
            assert_eq!(entry.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(entry["MESSAGE"].contains("closed: timeout"));
    }

    #[test]
    fn a_value_of_several_lines_is_one_line() {
        let entry = read(audit("add all drop\nPRIORITY=0"));
        assert_eq!((&*entry["MMB_COMMAND"], &*entry["PRIORITY"]), ("add all drop\\nPRIORITY=0", "5"));
        assert!(entry["MESSAGE"].ends_with("add all drop\\nPRIORITY=0"));
    }
}

//! Syslog messages (RFC 5424), one a datagram (RFC 5426), with the fields as structured data.

use super::datagram::DatagramFormat;
use crate::clock::rfc3339;
use crate::fields;
use crate::record::Record;
use std::io::Write;
use std::sync::Arc;

/// The facility: 3, system daemons (RFC 5424 section 6.2.1).
const DAEMON: u8 = 3;
/// The id of the structured data. 32473 is the number of examples (RFC 5612): mmb has no number of its own.
const SD_ID: &str = "mmb@32473";

/// The form of messages.
pub(super) struct SyslogFormat {
    ports: Arc<[String]>,
    /// HOSTNAME, APP-NAME and PROCID.
    from: String,
    sentence: String,
}

impl SyslogFormat {
    pub(super) fn new(ports: Arc<[String]>) -> SyslogFormat {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host: String = host.chars().filter(char::is_ascii_graphic).collect();
        // 255 characters at most, and `-` if it is not known (RFC 5424 section 6).
        let host = if host.is_empty() { "-" } else { &host[..host.len().min(255)] };
        SyslogFormat { ports, from: format!("{host} mmb {}", std::process::id()), sentence: String::new() }
    }
}

impl DatagramFormat for SyslogFormat {
    fn write(&mut self, record: &Record, out: &mut Vec<u8>) {
        let priority = DAEMON * 8 + fields::severity(&record.event);
        let (time, what) = (rfc3339(record.time), fields::what(&record.event));
        // A vector takes everything.
        let _ = write!(out, "<{priority}>1 {time} {} {what} [{SD_ID}", self.from);
        fields::each(record, &self.ports, &mut |name, value| {
            let _ = write!(out, " {name}=\"");
            for byte in value.bytes() {
                if matches!(byte, b'"' | b'\\' | b']') {
                    out.push(b'\\');
                }
                out.push(byte);
            }
            out.push(b'"');
        });
        self.sentence.clear();
        fields::sentence(record, &self.ports, &mut self.sentence);
        out.extend(b"] ");
        if !self.sentence.is_ascii() {
            // Text in UTF-8 begins with a byte order mark (RFC 5424 section 6.4).
            out.extend(b"\xef\xbb\xbf");
        }
        out.extend(self.sentence.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordedEvent;
    use crate::tests::{audit, closed, packet, record};

    fn written(event: RecordedEvent) -> String {
        let mut out = Vec::new();
        SyslogFormat::new(Arc::new(["lan".to_owned(), "wan".to_owned()])).write(&record(event), &mut out);
        String::from_utf8(out).expect("text")
    }

    /// A message in its parts: the header's seven words, the parameters of its structured data, and the text, by the grammar of RFC 5424 section 6.
    fn parsed(message: &str) -> (Vec<&str>, Vec<(String, String)>, String) {
        let (header, rest) = message.split_once(" [").expect("structured data");
        let header: Vec<&str> = header.split(' ').collect();
        let (id, mut rest) = rest.split_once(' ').expect("parameters");
        assert_eq!(id, "mmb@32473");
        let mut parameters = Vec::new();
        loop {
            let (name, value) = rest.split_once("=\"").expect("a parameter");
            let (mut text, mut chars) = (String::new(), value.char_indices());
            let end = loop {
                match chars.next().expect("its end") {
                    (_, '\\') => text.extend(chars.next().map(|(_, char)| char)),
                    (at, '"') => break at,
                    (_, char) => {
                        assert_ne!(char, ']', "escaped");
                        text.push(char);
                    }
                }
            };
            parameters.push((name.to_owned(), text));
            rest = &value[end + 1..];
            match rest.strip_prefix("] ") {
                Some(text) => return (header, parameters, text.to_owned()),
                None => rest = rest.strip_prefix(' ').expect("the next one"),
            }
        }
    }

    #[test]
    fn a_connection_that_ended_is_told_with_its_translation() {
        let message = written(closed());
        let (header, parameters, text) = parsed(&message);
        let process = std::process::id().to_string();
        // Facility 3, severity 6.
        assert_eq!(header[..2], ["<30>1", "2024-02-29T12:34:56.789012Z"]);
        assert_eq!(header[3..], ["mmb", &process, "closed"]);
        let value =
            |name: &str| parameters.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
        for (name, expected) in [
            ("reason", "timeout"),
            ("proto", "udp"),
            ("src", "10.0.0.5"),
            ("sport", "4000"),
            ("dst", "192.0.2.1"),
            ("dport", "53"),
            ("nat_src", "198.51.100.1"),
            ("nat_sport", "61000"),
            ("nat_dst", "192.0.2.1"),
            ("nat_dport", "53"),
            ("rules", "3 7"),
            ("duration_ms", "120500"),
            ("packets", "2"),
            ("bytes", "180"),
            ("reply_packets", "1"),
            ("reply_bytes", "95"),
        ] {
            assert_eq!(value(name), Some(expected), "{name}: {message}");
        }
        assert_eq!(
            text,
            "udp 10.0.0.5:4000 > 192.0.2.1:53 as 198.51.100.1:61000 > 192.0.2.1:53 closed: timeout"
        );
    }

    #[test]
    fn quotes_and_brackets_are_escaped_and_text_beyond_ascii_is_marked() {
        let message = written(audit("add name \"a]\" \\ é"));
        assert!(message.contains(r#"command="add name \"a\]\" \\ é""#), "{message}");
        let (header, parameters, text) = parsed(&message);
        assert_eq!((header[0], header[5]), ("<29>1", "audit"));
        assert!(parameters.contains(&("command".to_owned(), "add name \"a]\" \\ é".to_owned())));
        assert!(text.starts_with('\u{feff}') && text.ends_with('é'), "{text}");
    }

    #[test]
    fn a_packet_is_a_notice() {
        let message = written(packet());
        let (header, parameters, text) = parsed(&message);
        assert_eq!((header[0], header[5]), ("<29>1", "log"));
        assert!(parameters.contains(&("tcp_flags".to_owned(), "syn".to_owned())), "{message}");
        assert_eq!(text, "tcp 10.0.0.5:4000 > 192.0.2.1:80 pass, rule 3, in lan, out wan: new");
    }
}

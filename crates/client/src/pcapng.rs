//! Captures in the pcapng format (draft-ietf-opsawg-pcapng): what `capture` writes.
//!
//! A section with an interface for each port, then a packet block for each packet, with nanoseconds, its direction, the number of packets that were
//! left out before it, and a comment that tells what became of it. Each block is one write, so that a reader of a pipe gets whole packets.

use crate::printer::ends;
use mmb_protocol::answer::{CapturedLine, OutcomeLine, TracedConnectionLine};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Block types.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// Options: of any block, of a section, of an interface, of a packet.
const COMMENT: u16 = 1;
const SECTION_PROGRAM: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const PACKET_DROPS: u16 = 4;

/// Directions, in the flags of a packet.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes a capture.
pub(crate) struct PcapngWriter<W> {
    out: W,
    snaplen: u32,
    /// Port and link header type of each interface.
    interfaces: Vec<(String, String)>,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a capture of packets of these ports.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn new(out: W, ports: &[String], snaplen: u32) -> io::Result<PcapngWriter<W>> {
        let mut writer = PcapngWriter { out, snaplen, interfaces: Vec::new() };
        let mut body = Vec::new();
        body.extend(BYTE_ORDER.to_le_bytes());
        // Version 1.0, and a section of unknown length.
        body.extend([1, 0, 0, 0]);
        body.extend([0xff; 8]);
        option(&mut body, SECTION_PROGRAM, concat!("mmb ", env!("CARGO_PKG_VERSION")).as_bytes());
        body.extend([0; 4]);
        writer.block(SECTION, &body)?;
        for port in ports.iter().filter(|port| !port.is_empty()) {
            writer.interface(port, "ethernet")?;
        }
        Ok(writer)
    }

    /// What it writes to.
    pub(crate) fn out(&self) -> &W {
        &self.out
    }

    /// Writes a packet. `left_out` is the number of packets that were left out since the one before.
    ///
    /// # Errors
    /// An error of the system; the bytes are not hexadecimal.
    pub(crate) fn packet(&mut self, line: &CapturedLine, left_out: u64) -> io::Result<()> {
        let bytes = mmb_protocol::hex::decode(&line.bytes)
            .ok_or_else(|| io::Error::other("the bytes of a packet are not hexadecimal"))?;
        let interface = self.interface(&line.port, &line.link)?;
        let mut body = Vec::with_capacity(bytes.len() + 256);
        for number in [
            interface,
            (line.time_ns >> 32) as u32,
            line.time_ns as u32,
            bytes.len() as u32,
            u32::try_from(line.len).unwrap_or(u32::MAX),
        ] {
            body.extend(number.to_le_bytes());
        }
        body.extend(&bytes);
        pad(&mut body);
        option(&mut body, COMMENT, comment(line).as_bytes());
        let direction = if line.at == "tx" { OUTBOUND } else { INBOUND };
        option(&mut body, PACKET_FLAGS, &direction.to_le_bytes());
        if left_out > 0 {
            option(&mut body, PACKET_DROPS, &left_out.to_le_bytes());
        }
        body.extend([0; 4]);
        self.block(ENHANCED_PACKET, &body)
    }

    /// The number of an interface, which is described if it is new.
    fn interface(&mut self, port: &str, link: &str) -> io::Result<u32> {
        let known = self.interfaces.iter().position(|(name, of)| name == port && of == link);
        if let Some(known) = known {
            return Ok(known as u32);
        }
        let mut body = Vec::new();
        // The registry of tcpdump.org.
        let link_type: u16 = match link {
            "raw-ip" => 101,
            "sll" => 113,
            "sll2" => 276,
            _ => 1,
        };
        body.extend(link_type.to_le_bytes());
        body.extend([0; 2]);
        body.extend(self.snaplen.to_le_bytes());
        option(&mut body, INTERFACE_NAME, port.as_bytes());
        // Nanoseconds.
        option(&mut body, INTERFACE_RESOLUTION, &[9]);
        body.extend([0; 4]);
        self.block(INTERFACE, &body)?;
        self.interfaces.push((port.to_owned(), link.to_owned()));
        Ok(self.interfaces.len() as u32 - 1)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let len = (body.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&[&kind.to_le_bytes(), &len, body, &len].concat())
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    // A comment that is longer than an option can be is cut.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

/// What became of a packet, in a line.
fn comment(line: &CapturedLine) -> String {
    let CapturedLine { at, ingress, outcome, .. } = line;
    let OutcomeLine { worker, origin, rules, more_rules, decisive, connection, .. } = outcome;
    // Writing to a string does not fail.
    let mut text = format!("{at}; in {ingress}");
    let _ = match (outcome.verdict.as_str(), &outcome.reason, &outcome.out, outcome.to_worker) {
        ("dropped", Some(reason), ..) => write!(text, "; dropped, {reason}"),
        ("passes", _, Some(out), _) => write!(text, "; passes to {out}"),
        ("handed", _, _, Some(to)) => write!(text, "; handed to worker {to}"),
        (verdict, ..) => write!(text, "; {verdict}"),
    };
    if !rules.is_empty() {
        let ids: Vec<String> = rules.iter().map(|rule| rule.id.to_string()).collect();
        let more = if *more_rules > 0 { format!(" and {more_rules} more") } else { String::new() };
        let _ = write!(text, "; rules {}{more}", ids.join(" "));
    }
    if let Some(id) = decisive {
        let _ = write!(text, "; rule {id} decides");
    }
    if let Some(TracedConnectionLine { id, new, reply, state, proto, arrived, sent }) = connection {
        let direction = if *reply { "reply" } else { "original" };
        let new = if *new { ", new" } else { "" };
        let _ = write!(text, "; connection {id} ({direction}, {state}{new}): {proto} {}", ends(arrived));
        if arrived != sent {
            let _ = write!(text, " translated to {}", ends(sent));
        }
    }
    if origin != "wire" {
        let _ = write!(text, "; {origin}");
    }
    // scapy before 2.6 takes no comment without the end of its line.
    let _ = writeln!(text, "; worker {worker}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: &str, port: &str, link: &str) -> CapturedLine {
        CapturedLine {
            at: at.to_owned(),
            time_ns: 0x1122_3344_5566_7788,
            port: port.to_owned(),
            ingress: "lan".to_owned(),
            link: link.to_owned(),
            len: 9,
            bytes: "0102030405".to_owned(),
            outcome: OutcomeLine {
                worker: 1,
                origin: "wire".to_owned(),
                rules: Vec::new(),
                more_rules: 0,
                decisive: None,
                connection: None,
                stream: false,
                verdict: "passes".to_owned(),
                reason: None,
                meaning: None,
                out: Some("wan".to_owned()),
                to_worker: None,
            },
        }
    }

    /// The types and bodies of blocks, whose lengths must agree.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut blocks = Vec::new();
        while let [a, b, c, d, ..] = *bytes {
            let len = u32::from_le_bytes(*bytes[4..].first_chunk().expect("a length")) as usize;
            assert_eq!(len % 4, 0);
            assert_eq!(bytes[4..8], bytes[len - 4..len]);
            blocks.push((u32::from_le_bytes([a, b, c, d]), bytes[8..len - 4].to_vec()));
            bytes = &bytes[len..];
        }
        blocks
    }

    #[test]
    fn a_capture_has_its_ports_and_packets() {
        let mut out = Vec::new();
        let ports = ["lan".to_owned(), "wan".to_owned()];
        let mut writer = PcapngWriter::new(&mut out, &ports, 96).expect("a vector takes everything");
        writer.packet(&line("rx", "lan", "ethernet"), 0).expect("likewise");
        writer.packet(&line("tx", "wan", "ethernet"), 3).expect("likewise");
        writer.packet(&line("rx", "tun", "raw-ip"), 0).expect("likewise");
        assert!(
            writer.packet(&CapturedLine { bytes: "0".into(), ..line("rx", "lan", "ethernet") }, 0).is_err()
        );
        let blocks = blocks(&out);
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(
            kinds,
            [SECTION, INTERFACE, INTERFACE, ENHANCED_PACKET, ENHANCED_PACKET, INTERFACE, ENHANCED_PACKET]
        );
        let tx = &blocks[4].1;
        assert_eq!(
            tx[..20],
            [1, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55, 5, 0, 0, 0, 9, 0, 0, 0]
        );
        assert_eq!(tx[20..28], [1, 2, 3, 4, 5, 0, 0, 0]);
        let text = "tx; in lan; passes to wan; worker 1\n";
        assert_eq!(tx[28..32], [1, 0, text.len() as u8, 0]);
        assert_eq!(tx[32..32 + text.len()], *text.as_bytes());
        assert!(tx.ends_with(&[2, 0, 4, 0, 2, 0, 0, 0, 4, 0, 8, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(blocks[5].1[..2], [101, 0], "raw IP");
    }
}

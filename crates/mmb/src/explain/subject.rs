//! The packets of an explanation: one that is made from constraints, or those of a capture up to one.

use crate::cli::ExplainArgs;
use anyhow::{Context, bail, ensure};
use mmb_io::pcap::{CaptureItem, CaptureReader};
use mmb_language::{Command, parse_command};
use mmb_packet::LinkType;
use mmb_policy::rule::{Cond, Equality, NumberItem, NumberSet};
use mmb_policy::sets::{ElementKind, Elements, Number};
use mmb_policy::{FieldId, Policy, Rule, Test};
use mmb_random::RepeatableRandom;
use mmb_workload::{PacketHeader, fulfil};
use std::fs::File;
use std::path::Path;

/// Addresses and ports of a packet for which none are given: those of documentation (RFC 5737).
const SOURCE: u128 = 0xc000_0201;
const DESTINATION: u128 = 0xc633_6401;
const PORTS: (u16, u16) = (40_000, 80);
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;
/// The port of a packet for which none is given.
const PORT: &str = "a";

/// The words are no constraints of a packet.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct NoConstraints {
    message: String,
    /// The message with a caret under the words, for people.
    pub(super) rendered: String,
}

/// The packets.
pub(super) struct Subject {
    port: String,
    /// The description or the command line names the port.
    names_port: bool,
    /// The port at the other end of its wire, if that is given.
    peer: Option<String>,
    frames: Vec<SubjectFrame>,
    is_capture: bool,
}

/// A packet, with the time at which it comes.
pub(super) struct SubjectFrame {
    pub(super) bytes: Vec<u8>,
    pub(super) link: LinkType,
    pub(super) time_ns: u64,
}

impl Subject {
    /// The packets of the command line.
    ///
    /// # Errors
    /// The capture cannot be read, or has no such packet; or no packet can be made from the constraints.
    pub(super) fn new(args: &ExplainArgs, policy: &Policy) -> anyhow::Result<Subject> {
        match &args.pcap {
            Some(path) => {
                let frames = captured(path, args.number).with_context(|| path.display().to_string())?;
                let names_port = args.port.is_some();
                let port = args.port.clone().unwrap_or_else(|| PORT.to_owned());
                Ok(Subject { port, names_port, peer: None, frames, is_capture: true })
            }
            None => Subject::made(&args.words.join(" "), args.port.clone(), policy),
        }
    }

    /// A packet that satisfies constraints, which may name sets of a policy.
    ///
    /// # Errors
    /// The words are no constraints ([`NoConstraints`]), or no packet can be made from them.
    pub(super) fn made(text: &str, port: Option<String>, policy: &Policy) -> anyhow::Result<Subject> {
        let words = if text.trim().is_empty() { "all" } else { text };
        let command = format!("add {words} accept");
        let mut rule = match parse_command(&command) {
            Ok((Command::Add(rule), _)) => *rule,
            Ok(_) => {
                let message = "a packet is described by constraints, as in a rule".to_owned();
                bail!(NoConstraints { rendered: format!("error: {message}\n"), message })
            }
            Err(errors) => {
                let message = errors.first().map_or("", |error| error.message.as_str());
                let rendered = errors.iter().map(|error| error.render("", &command)).collect();
                bail!(NoConstraints { message: format!("'{words}': {message}"), rendered })
            }
        };
        let port = take_port(&mut rule, FieldId::In)?.or(port);
        let names_port = port.is_some();
        let port = port.unwrap_or_else(|| PORT.to_owned());
        let peer = take_port(&mut rule, FieldId::Out)?;
        put_in_elements(&mut rule, policy)?;
        let base = PacketHeader {
            source: SOURCE,
            destination: DESTINATION,
            sport: PORTS.0,
            dport: PORTS.1,
            ..PacketHeader::default()
        };
        let header = base_flags(&rule).find_map(|flags| {
            let header =
                fulfil(&rule, PacketHeader { flags, ..base.clone() }, &mut RepeatableRandom::new(0))?;
            (header.flags != 0 || flags == TCP_ACK).then_some(header)
        });
        let header = header.context(
            "no packet can be made from these constraints: they exclude each other, or are about VLANs, extension headers, payloads or checksums; \
             take one of a capture (--pcap)",
        )?;
        let frames = vec![SubjectFrame { bytes: header.frame(), link: LinkType::Ethernet, time_ns: 0 }];
        Ok(Subject { port, names_port, peer, frames, is_capture: false })
    }

    /// The port that they come in by.
    pub(super) fn port(&self) -> &str {
        &self.port
    }

    /// Whether the description or the command line names it.
    pub(super) fn names_port(&self) -> bool {
        self.names_port
    }

    /// The port at the other end of that one's wire, if it is given.
    pub(super) fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }

    /// The packets, of which the last one is explained.
    pub(super) fn frames(&self) -> &[SubjectFrame] {
        &self.frames
    }

    /// The number in its capture of the packet that is explained.
    pub(super) fn number(&self) -> Option<usize> {
        self.is_capture.then_some(self.frames.len())
    }
}

/// The first packets of a capture.
fn captured(path: &Path, number: usize) -> anyhow::Result<Vec<SubjectFrame>> {
    let mut reader = CaptureReader::open(File::open(path)?)?;
    let mut frames: Vec<SubjectFrame> = Vec::new();
    while frames.len() < number {
        match reader.next_item()? {
            Some(CaptureItem::Packet(packet)) => {
                // The clock of the engine does not go back.
                let before_ns = frames.last().map_or(0, |before| before.time_ns);
                let (link, time_ns) = (packet.meta.link, packet.meta.time_ns.max(before_ns));
                frames.push(SubjectFrame { bytes: packet.data.to_vec(), link, time_ns });
            }
            Some(CaptureItem::Block(_)) => {}
            None => bail!("it has {} packets", frames.len()),
        }
    }
    Ok(frames)
}

/// The TCP flags of a packet before its constraints change them, in the order of preference. A packet of which no flags are given begins a
/// connection. Otherwise it has no others than those that are given; if those are none, it is one of an open connection.
fn base_flags(rule: &Rule) -> impl Iterator<Item = u8> + use<> {
    let is_flag = |id| {
        matches!(
            id,
            FieldId::TcpFlags
                | FieldId::TcpCwr
                | FieldId::TcpEce
                | FieldId::TcpUrg
                | FieldId::TcpAck
                | FieldId::TcpPush
                | FieldId::TcpRst
                | FieldId::TcpSyn
                | FieldId::TcpFin
        )
    };
    let given = rule.matches.iter().any(|constraint| is_flag(constraint.field.id));
    if given { [0, TCP_ACK] } else { [TCP_SYN, TCP_ACK] }.into_iter()
}

/// Puts the elements of a policy's sets in the place of their names.
fn put_in_elements(rule: &mut Rule, policy: &Policy) -> anyhow::Result<()> {
    for constraint in &mut rule.matches {
        let Test::NamedSet(equality, name) = &constraint.test else { continue };
        policy.set_fits(name, constraint.field)?;
        let (Some(set), Some(kind)) = (policy.sets.get(name), ElementKind::of_field(constraint.field)) else {
            continue;
        };
        let items = match kind {
            ElementKind::Ip4 => ranges(set.ip4()),
            ElementKind::Ip6 => ranges(set.ip6()),
            ElementKind::Number => ranges(set.numbers()),
        };
        ensure!(!items.is_empty(), "the set '{name}' has no elements of this kind");
        let cond = if *equality == Equality::Eq { Cond::Eq } else { Cond::Ne };
        constraint.test = Test::Number(cond, NumberSet(items));
    }
    Ok(())
}

fn ranges<N: Number + Into<u128>>(elements: &Elements<N>) -> Vec<NumberItem> {
    elements.iter().map(|element| NumberItem::Range(element.first.into(), element.last.into())).collect()
}

/// Takes the constraint on a port away, which is no part of a packet.
fn take_port(rule: &mut Rule, field: FieldId) -> anyhow::Result<Option<String>> {
    let Some(at) = rule.matches.iter().position(|constraint| constraint.field.id == field) else {
        return Ok(None);
    };
    let constraint = rule.matches.remove(at);
    ensure!(rule.matches.iter().all(|other| other.field.id != field), "a packet has one port of each kind");
    match constraint.test {
        Test::Port(Equality::Eq, names) if !constraint.negated && names.len() == 1 => {
            Ok(names.into_iter().next())
        }
        _ => bail!("a packet has one port: 'in PORT', 'out PORT'"),
    }
}

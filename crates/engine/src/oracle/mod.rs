//! The linear oracle: what mmb does to a packet, in the plainest code.
//!
//! Purpose: it is the specification that can be run. [`judge`] takes a policy and one packet as raw bytes and says
//! what becomes of it: every rule is held against the packet, the verdict is found by looking at all that match,
//! targets are worked off one by one on a copy, checksums are computed anew. It has its own reading of headers,
//! options and fields, by the RFCs, and shares with the fast path only the types in which rules, reasons and
//! verdicts are spoken of. Property tests and a fuzz target hold the fast path to it, byte for byte.
//!
//! Life-cycle: none. It keeps nothing between packets; counters and the generator of random numbers are the
//! caller's. It allocates as it likes and is slow.
//!
//! A packet goes through the files as through the engine: headers (`dissect`), rules (`matching`), the verdict (here),
//! `rewriting`, and on to the other end of the wire.

mod checksum;
mod dissect;
mod fields;
mod matching;
mod options;
mod rewriting;

use crate::drop::DropReason;
use crate::port::PortTable;
use crate::worker::Verdict;
use dissect::Dissection;
use matching::MatchSubject;
use mmb_packet::{LinkType, PortId};
use mmb_policy::rule::DropRate;
use mmb_policy::{Policy, Rule, RuleId, Target};
use mmb_rewrite::NotApplied;

/// A packet as it came in.
#[derive(Clone, Copy, Debug)]
pub struct OraclePacket<'a> {
    /// Its bytes, link header first.
    pub bytes: &'a [u8],
    /// Bytes free in front of it, which it may grow into.
    pub headroom: usize,
    /// The port that it came in by.
    pub port: PortId,
    /// What it begins with.
    pub link: LinkType,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleVerdict {
    /// Whether and where to it is sent.
    pub verdict: Verdict,
    /// Its bytes when it is sent.
    pub bytes: Vec<u8>,
    /// The rules that it matched, by (prio, id). They count it whether it is dropped or not.
    pub matched: Vec<RuleId>,
    /// The targets that did not do what they say.
    pub not_applied: Vec<NotApplied>,
}

/// Judges one packet. `draw` gives a random number below 100,000 whenever a percentage is to be decided.
pub fn judge(
    policy: &Policy,
    ports: &PortTable,
    received: &OraclePacket<'_>,
    draw: &mut dyn FnMut() -> u32,
) -> OracleVerdict {
    let unchanged = OracleVerdict {
        verdict: Verdict::Drop(DropReason::NoWire),
        bytes: received.bytes.to_vec(),
        matched: Vec::new(),
        not_applied: Vec::new(),
    };
    let in_port = ports.0.get(usize::from(received.port.0));
    if in_port.is_some_and(|port| policy.ports.get(&port.name) == Some(&false)) {
        let verdict = forward(ports, received.port, None);
        return OracleVerdict { verdict, ..unchanged };
    }
    let packet = match dissect::dissect(received.bytes, received.link, policy.settings.ip6_max_headers) {
        Ok(packet) => packet,
        Err(why) => return OracleVerdict { verdict: Verdict::Drop(DropReason::Malformed(why)), ..unchanged },
    };

    let subject = MatchSubject { received, packet: &packet, ports };
    let mut matched: Vec<Rule> = policy.rules.iter().filter(|rule| subject.matches(rule)).collect();
    matched.sort_by_key(|rule| (rule.prio, rule.id));
    let rules: Vec<&Rule> = matched.iter().collect();
    let matched = rules.iter().filter_map(|rule| rule.id).collect();
    if drops(&rules, draw) {
        return OracleVerdict { verdict: Verdict::Drop(DropReason::Rule), matched, ..unchanged };
    }

    let rewritten = rewriting::rewrite(received.bytes, &packet, received.headroom, &rules);
    OracleVerdict {
        verdict: forward(ports, received.port, Some(l3_len(&rewritten.bytes, &rewritten.packet))),
        bytes: rewritten.bytes,
        matched,
        not_applied: rewritten.not_applied,
    }
}

/// Whether the matched rules, sorted by (prio, id), drop the packet: the best priority among those that accept or
/// drop it decides, and on a tie it is accepted. A percentage that spares the packet has no say.
fn drops(rules: &[&Rule], draw: &mut dyn FnMut() -> u32) -> bool {
    let mut best_accept = None;
    let mut best_drop = None;
    for rule in rules {
        for target in &rule.targets {
            match target {
                Target::Accept => best_accept = best_accept.or(Some(rule.prio)),
                Target::Drop(rate) if *rate == DropRate::ALL || draw() < rate.0 => {
                    best_drop = best_drop.or(Some(rule.prio));
                }
                _ => {}
            }
        }
    }
    match (best_accept, best_drop) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(accept), Some(drop)) => drop < accept,
    }
}

/// Where a packet goes that was not dropped: to the other end of the wire, if it fits.
fn forward(ports: &PortTable, from: PortId, l3_len: Option<usize>) -> Verdict {
    let peer = ports.0.get(usize::from(from.0)).and_then(|port| port.forward.peer());
    let Some((peer, spec)) = peer.and_then(|peer| Some((peer, ports.0.get(usize::from(peer.0))?))) else {
        return Verdict::Drop(DropReason::NoWire);
    };
    match (spec.mtu, l3_len) {
        (Some(mtu), Some(len)) if len > mtu as usize => Verdict::Drop(DropReason::MtuExceeded),
        _ => Verdict::Send(peer),
    }
}

/// Bytes that count against an MTU: the IP packet without link header and trailer; of other frames, all behind the
/// link header.
fn l3_len(bytes: &[u8], packet: &Dissection) -> usize {
    match &packet.ip {
        Some(ip) => ip.end - packet.l3,
        None => bytes.len() - packet.l3,
    }
}

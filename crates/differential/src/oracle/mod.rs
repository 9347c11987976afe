//! The linear oracle: the processing of a packet in the plainest code.
//!
//! Purpose: it is the executable specification. [`evaluate`] takes a policy and one packet as raw bytes and returns its verdict: every rule is
//! checked against the packet, the verdict follows from all matches, targets are applied one by one to a copy, checksums are recomputed. It
//! parses headers, options and fields by itself, from the RFCs, and shares with the fast path only the types of rules, reasons and
//! verdicts. Property tests and a fuzz target compare the fast path with it, byte for byte.
//!
//! Life-cycle: none. It keeps no state between packets; the caller owns the counters and the random number generator. It allocates freely
//! and is slow.
//!
//! A packet passes the files in the order of the engine's stages: headers (`dissect`), rules (`matching`), the verdict (here), `rewriting`,
//! and forwarding to the other end of the wire.
// No wildcard arms: a new variant must be a compile error wherever it is not handled.
#![warn(clippy::wildcard_enum_match_arm)]

mod answer;
mod bytes;
mod checksum;
mod dissect;
mod fields;
mod matching;
mod options;
mod packet;
mod rewriting;

pub use packet::OraclePacket;

use dissect::Dissection;
use matching::MatchSubject;
use mmb_engine::DropReason;
use mmb_engine::PortTable;
use mmb_engine::Verdict;
use mmb_packet::PortId;
use mmb_policy::rule::{DropRate, Reject};
use mmb_policy::{Policy, Rule, RuleId, Target};
use mmb_rewrite::NotApplied;

/// The result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleVerdict {
    /// Whether and by which port it is sent.
    pub verdict: Verdict,
    /// Its bytes when it is sent.
    pub bytes: Vec<u8>,
    /// The rules that it matched, by (prio, id). They count it even if it is dropped.
    pub matched: Vec<RuleId>,
    /// The rule that drops it.
    pub dropped_by: Option<RuleId>,
    /// The targets that were not applied.
    pub not_applied: Vec<NotApplied>,
    /// The packet to its sender that answers it.
    pub answer: Option<Vec<u8>>,
}

/// Processes one packet. `draw` returns a random number below 100,000 for each percentage.
pub fn evaluate(
    policy: &Policy,
    ports: &PortTable,
    received: &OraclePacket<'_>,
    draw: &mut dyn FnMut() -> u32,
) -> OracleVerdict {
    let unchanged = OracleVerdict {
        verdict: Verdict::Drop(DropReason::NoWire),
        bytes: received.bytes.to_vec(),
        matched: Vec::new(),
        dropped_by: None,
        not_applied: Vec::new(),
        answer: None,
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

    let subject = MatchSubject { received, packet: &packet, ports, sets: &policy.sets };
    let mut matched: Vec<Rule> = policy.rules.iter().filter(|rule| subject.matches(rule)).collect();
    matched.sort_by_key(|rule| (rule.prio, rule.id));
    let rules: Vec<&Rule> = matched.iter().collect();
    let matched = rules.iter().filter_map(|rule| rule.id).collect();
    let dropped_by = dropped_by(&rules, draw);
    if let Some((by, None)) = dropped_by {
        let verdict = Verdict::Drop(DropReason::Rule);
        return OracleVerdict { verdict, matched, dropped_by: by, ..unchanged };
    }
    if let Some((by, Some(how))) = dropped_by {
        let verdict = Verdict::Drop(DropReason::RuleReject);
        let mtu = in_port.filter(|port| port.forward.peer().is_some()).and_then(|port| port.mtu);
        let answer = answer::reject(how, mtu, received, &packet);
        let (answer, not_applied) = match answer {
            Ok(answer) => (answer, Vec::new()),
            Err(_) => (None, vec![NotApplied::Unanswerable]),
        };
        return OracleVerdict { verdict, matched, dropped_by: by, not_applied, answer, ..unchanged };
    }

    let rewritten = rewriting::rewrite(received.bytes, &packet, received.headroom, &rules);
    let verdict = forward(ports, received.port, Some(l3_len(&rewritten.bytes, &rewritten.packet)));
    let mut not_applied = rewritten.not_applied;
    let mut answer = None;
    // A packet that rules made too large is nobody's fault but theirs.
    let is_exceeding = || forward(ports, received.port, Some(l3_len(received.bytes, &packet))) == EXCEEDING;
    if verdict == EXCEEDING && policy.settings.answers.mtu_errors && is_exceeding() {
        let ingress_mtu = in_port.and_then(|port| port.mtu);
        match answer::mtu_error(mtu(ports, received.port), ingress_mtu, received, &packet) {
            Ok(error) => answer = error,
            Err(_) => not_applied.push(NotApplied::Unanswerable),
        }
    }
    OracleVerdict { verdict, bytes: rewritten.bytes, matched, dropped_by: None, not_applied, answer }
}

/// The one of the matched rules, sorted by (prio, id), that drops the packet, if one does, and how it rejects it: the best priority among accept, drop and reject rules decides, and accept wins
/// a tie. A percentage that does not drop the packet does not count.
fn dropped_by(rules: &[&Rule], draw: &mut dyn FnMut() -> u32) -> Option<(Option<RuleId>, Option<Reject>)> {
    let mut best_accept = None;
    let mut best_drop = None;
    for rule in rules {
        for target in &rule.targets {
            match target {
                Target::Accept => best_accept = best_accept.or(Some(rule.prio)),
                Target::Drop(rate) => {
                    if *rate == DropRate::ALL || draw() < rate.0 {
                        best_drop = best_drop.or(Some((rule.prio, rule.id, None)));
                    }
                }
                Target::Reject(how) => best_drop = best_drop.or(Some((rule.prio, rule.id, Some(*how)))),
                Target::Mod(..) | Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) => {}
                Target::StripAll | Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => {}
                // The oracle knows no time.
                Target::Limit(_) => {}
                // Packets are told, and stay what they are.
                Target::Log(_) => {}
                // The oracle knows no streams.
                Target::Alert(_) | Target::Close | Target::Digest | Target::Edit(_) | Target::Helper(_) => {}
            }
        }
    }
    match (best_accept, best_drop) {
        (_, None) => None,
        (None, Some((_, id, how))) => Some((id, how)),
        (Some(accept), Some((drop, id, how))) => Some((id, how)).filter(|_| drop < accept),
    }
}

/// The verdict on a packet that exceeds an MTU.
const EXCEEDING: Verdict = Verdict::Drop(DropReason::MtuExceeded);

/// The MTU of the other end of the wire.
fn mtu(ports: &PortTable, from: PortId) -> u32 {
    let peer = ports.0.get(usize::from(from.0)).and_then(|port| port.forward.peer());
    let spec = peer.and_then(|peer| ports.0.get(usize::from(peer.0)));
    spec.and_then(|spec| spec.mtu).unwrap_or(u32::MAX)
}

/// The verdict of a packet that was not dropped: to the other end of the wire, if it fits the MTU.
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

/// Bytes that count against an MTU: the IP packet without link header and trailer; for other frames, everything after the link header.
fn l3_len(bytes: &[u8], packet: &Dissection) -> usize {
    match &packet.ip {
        Some(ip) => ip.end - packet.l3,
        None => bytes.len() - packet.l3,
    }
}

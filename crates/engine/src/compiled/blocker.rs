//! Finds the rules that keep flows from being offloaded: those that may decide differently on packets of one
//! flow that a host would forward.
//!
//! A packet that a host forwards has the ingress port, VLAN tag, addresses, protocol, and ports or ICMP type
//! and code of its [`FlowKey`](crate::offload::FlowKey). It has no IP options and no extension headers. A TCP
//! segment has ACK set, and neither SYN nor FIN nor RST. Any other property may differ from packet to packet.

use super::stateful::{is_constant, sees_each};
use mmb_policy::field::{BareMeaning, FieldGroup, FieldId, Implies, ones};
use mmb_policy::{Field, Intervals, Match, Rule, Test};

/// For which packets of a flow a constraint is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// For all packets or for none, depending on the key of the flow.
    PerFlow,
    /// For all packets that have its field.
    Always,
    /// For no packet.
    Never,
    /// Perhaps for some packets only.
    PerPacket,
}

/// A relaxed copy of the rule. It matches every flow of which the rule may treat some packets differently
/// from others. `None` if no such flow exists.
pub(crate) fn blocker(rule: &Rule) -> Option<Rule> {
    if rule.stateful {
        return None;
    }
    let (matches, some_differ) = relaxed(&rule.matches)?;
    let blocks = some_differ || rule.targets.iter().any(sees_each);
    blocks.then(|| Rule { matches, ..rule.clone() })
}

/// Relaxes constraints: returns constraints that hold for every flow of which some packets satisfy the given
/// ones. Also returns whether packets of such a flow may differ. `None` if no such flow exists.
pub(crate) fn relaxed(constraints: &[Match]) -> Option<(Vec<Match>, bool)> {
    let (mut matches, mut some_differ) = (Vec::new(), false);
    for constraint in constraints {
        match holds(constraint) {
            Holds::PerFlow => matches.push(constraint.clone()),
            Holds::Never => return None,
            Holds::Always => matches.extend(implied(constraint)),
            Holds::PerPacket => {
                some_differ = true;
                matches.extend(implied(constraint));
            }
        }
    }
    Some((matches, some_differ))
}

/// Fields that have few possible values in packets that a host forwards, and these values. Fields of
/// extension headers have one value, 0.
const KNOWN_VALUES: [(FieldId, &[u128]); 9] = [
    (FieldId::TcpSyn, &[0]),
    (FieldId::TcpFin, &[0]),
    (FieldId::TcpRst, &[0]),
    (FieldId::TcpAck, &[1]),
    (FieldId::TcpFlags, &TCP_FLAGS),
    (FieldId::IpVer, &[4]),
    (FieldId::IpIhl, &[5]),
    (FieldId::IpMf, &[0]),
    (FieldId::IpFragOffset, &[0]),
];

/// The possible TCP flags: ACK, with or without CWR, ECE, URG and PSH.
const TCP_FLAGS: [u128; 16] = {
    let mut all = [0; 16];
    let mut index = 0;
    while index < all.len() {
        // PSH is 8, URG 32, ECE 64, CWR 128.
        all[index] = 0x10 | (index as u128 & 1) << 3 | (index as u128 >> 1) << 5;
        index += 1;
    }
    all
};

/// Whether all packets of a flow have the same value of a field.
fn identifies_flow(id: FieldId) -> bool {
    let is_more = matches!(
        id,
        FieldId::VlanId
            | FieldId::Ip6Next
            | FieldId::IcmpType
            | FieldId::IcmpCode
            | FieldId::Icmp6Type
            | FieldId::Icmp6Code
    );
    is_more || is_constant(id)
}

fn holds(constraint: &Match) -> Holds {
    let field = constraint.field.info();
    if field.id == FieldId::Ct {
        // A flow of a connection has one state. While rules match on `ct`, flows without a connection are not
        // offloaded.
        return Holds::Always;
    }
    if identifies_flow(field.id) {
        return Holds::PerFlow;
    }
    let known = KNOWN_VALUES.iter().find(|(id, _)| *id == field.id).map(|(_, numbers)| *numbers);
    let extension = (field.group == FieldGroup::Ip6Extension).then_some(&[0][..]);
    let Some(numbers) = known.or(extension) else { return Holds::PerPacket };
    let width = field.width().unwrap_or(128);
    let matched = match (&constraint.test, field.alone) {
        (Test::Present, BareMeaning::Equals(value)) => Intervals::one(value.into()),
        (Test::Present, BareMeaning::Protocol | BareMeaning::Optional) => Intervals::of_width(width),
        (Test::Number(cond, set), _) => Intervals::compared(*cond, set, width),
        (Test::NamedSet(..), _) => return Holds::PerPacket,
        (Test::Port(..) | Test::Bytes(..) | Test::Patterns(_) | Test::Header(..), _) => {
            return Holds::PerPacket;
        }
    };
    let matched = if constraint.negated { matched.complement(ones(width)) } else { matched };
    match numbers.iter().filter(|number| matched.contains(**number)).count() {
        0 => Holds::Never,
        some if some == numbers.len() => Holds::Always,
        _ => Holds::PerPacket,
    }
}

/// A constraint that is true for all packets that have the field of another constraint.
fn implied(constraint: &Match) -> Option<Match> {
    let id = match constraint.field.info().implies {
        Implies::Ip4 => FieldId::IpSaddr,
        Implies::Ip6 => FieldId::Ip6Saddr,
        Implies::Icmp => FieldId::IcmpType,
        Implies::Icmp6 => FieldId::Icmp6Type,
        Implies::Udp => FieldId::UdpSport,
        Implies::Tcp => FieldId::TcpSport,
        Implies::Frame | Implies::Ip | Implies::Transport | Implies::TcpOrUdp => return None,
    };
    Some(Match { negated: false, field: Field::new(id), test: Test::Present })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_language::{Command, parse_command};

    fn rule(text: &str) -> Rule {
        match parse_command(&format!("add {text}")) {
            Ok((Command::Add(rule), _)) => *rule,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// Compares a rule's blocker with the expected one, without its targets.
    fn check(text: &str, expected: Option<&str>) {
        let found = blocker(&rule(text)).map(|rule| rule.matches);
        let expected = expected.map(|text| match text {
            "all" => Vec::new(),
            _ => rule(&format!("{text} drop")).matches,
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn rules_on_whole_flows_block_none() {
        for text in [
            "in a vlan-id 7 tcp-dport 80 drop",
            "ip-saddr 10.0.0.0/8 ! ip-daddr 10.1.0.0/16 udp-sport 53 drop",
            "icmp-type echo-request icmp-code 0 drop",
            "icmp6-type echo-request drop",
            "eth-type arp accept",
            "ip6-next tcp drop",
            "ct new drop",
            "all mod ip-ecn 0",
            "tcp-ack drop",
            "tcp-flags != 0 drop",
            "! tcp-syn drop",
            "ip-ihl 5 drop",
            "! ip6-eh drop",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn rules_that_match_no_such_packet_block_none() {
        for text in [
            "tcp-syn tcp-opt-mss mod tcp-opt-mss 1400",
            "tcp-syn 1 ip-ttl < 5 drop",
            "! tcp-ack tcp-win 0 drop",
            "tcp-flags syn tcp-win 1024 drop",
            "tcp-flags < 16 tcp-win 1024 drop",
            "tcp-rst drop 50%",
            "tcp-syn log",
            "ip-mf ip-len < 100 drop",
            "ip-frag-offset > 0 ip-ttl 1 drop",
            "ip-ihl > 5 ip-ttl 1 drop",
            "ip6-eh-routing ip6-hop-limit 1 drop",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn rules_on_single_packets_block_the_flows_that_they_are_about() {
        for (text, expected) in [
            ("ip-ttl < 5 drop", "ip-saddr"),
            ("ip6-hop-limit < 5 tcp-dport 80 drop", "ip6-saddr tcp-dport 80"),
            ("tcp-dport 80 ip-len > 1000 drop", "tcp-dport 80 ip-saddr"),
            ("tcp-opt-mss mod tcp-opt-mss 1400", "tcp-sport"),
            ("! tcp-opt-mss drop", "tcp-sport"),
            ("tcp-push drop", "tcp-sport"),
            ("tcp-flags ack drop", "tcp-sport"),
            ("tcp-ack tcp-win 0 drop", "tcp-sport tcp-sport"),
            ("udp-len > 1000 drop", "udp-sport"),
            ("icmp-type echo-request icmp-payload |00| drop", "icmp-type echo-request icmp-type"),
            ("payload |00| drop", "all"),
            ("all drop 50%", "all"),
            ("all log", "all"),
            ("tcp-dport 80 log accept", "tcp-dport 80"),
            ("vlan-id 7 drop 50%", "vlan-id 7"),
        ] {
            check(text, Some(expected));
        }
    }
}

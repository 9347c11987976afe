//! Translates cubes to the rule language.
//!
//! If one rule is not sufficient, there are several disjoint ones. If no rule can express a cube, the error gives the reason.

use super::cube::{self, Dim, Family, PacketCube, PortNameSet};
use super::named_set::ImportedSets;
use super::set::{factors, lowered, masked};
use mmb_packet::proto;
use mmb_policy::field::ones;
use mmb_policy::{CtState, FieldId, Intervals};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

const TCP: u128 = proto::TCP as u128;
const UDP: u128 = proto::UDP as u128;

/// The constraints of the rules that match exactly the packets of a cube; those that have the values of one of the sets ask for it by its name.
///
/// # Errors
/// Why there are no such rules.
pub(crate) fn constraints(cube: &PacketCube, sets: &ImportedSets) -> Result<Vec<String>, String> {
    let mut words = CubeConstraints { cube, sets, parts: Vec::new(), says_family: false };
    words.ports();
    if cube.family == Family::Frame {
        let types = cube.allowed(Dim::EtherType);
        words.parts.push(asked("eth-type", &types, &Intervals::of_width(16), &number_item));
        return Ok(vec![words.parts.join(" ")]);
    }
    let states = words.states();
    words.addresses();
    let icmp = words.transport()?;
    words.header();
    if !words.says_family {
        let family = if cube.family == Family::Ip4 { "net-proto ip4" } else { "net-proto ip6" };
        words.parts.insert(0, family.to_owned());
    }
    let common = words.parts.join(" ");
    let mut rules = vec![common];
    for alternatives in [traffic_class(cube), icmp, states] {
        if !alternatives.is_empty() {
            let with =
                |rule: &String| alternatives.iter().map(|part| format!("{rule} {part}")).collect::<Vec<_>>();
            rules = rules.iter().flat_map(with).collect();
        }
    }
    Ok(rules.iter().map(|rule| rule.trim_start().to_owned()).collect())
}

/// Constraints without repetitions for packets of both families: those that differ only in the family become one.
pub(crate) fn of_both_families(constraints: Vec<String>) -> Vec<String> {
    let mut merged: Vec<String> = Vec::new();
    let rest = |words: &str, family: &str| words.strip_prefix(family).map(str::to_owned);
    for words in constraints {
        let twin = rest(&words, "net-proto ip6").map(|rest| format!("net-proto ip4{rest}"));
        match merged.iter_mut().find(|other| Some(&**other) == twin.as_ref()) {
            // Names of ports alone would match frames that are not IP too.
            Some(other) => match rest(&words, "net-proto ip6") {
                Some(rest) if rest.is_empty() => "all".clone_into(other),
                Some(rest) => *other = format!("net-proto{rest}"),
                None => {}
            },
            None => merged.push(words),
        }
    }
    merged
}

/// The common constraints of all rules of a cube, under construction.
struct CubeConstraints<'c> {
    cube: &'c PacketCube,
    sets: &'c ImportedSets,
    parts: Vec<String>,
    /// Some constraint matches only packets of the cube's family.
    says_family: bool,
}

impl CubeConstraints<'_> {
    fn ports(&mut self) {
        for (field, names) in [("in", &self.cube.input), ("out", &self.cube.output)] {
            let listed = |names: &BTreeSet<String>| match names.len() {
                1 => names.iter().cloned().collect(),
                _ => format!("{{{}}}", names.iter().cloned().collect::<Vec<_>>().join(", ")),
            };
            match names {
                PortNameSet::Only(names) => self.parts.push(format!("{field} {}", listed(names))),
                PortNameSet::But(names) if names.is_empty() => {}
                PortNameSet::But(names) => self.parts.push(format!("{field} != {}", listed(names))),
            }
        }
    }

    /// The connection states. Returns the parts that need several rules.
    fn states(&mut self) -> Vec<String> {
        let Some(set) = self.cube.asked(Dim::State) else { return Vec::new() };
        if let Some(part) = state_words(set) {
            self.parts.push(part);
            return Vec::new();
        }
        let replies = cube::states(&[CtState::EstablishedReply, CtState::RelatedReply]);
        let parts = [set.minus(&replies), set.intersect(&replies)];
        parts.iter().filter_map(state_words).collect()
    }

    fn addresses(&mut self) {
        let fields = match self.cube.family {
            Family::Ip4 => ["ip-saddr", "ip-daddr"],
            Family::Ip6 | Family::Frame => ["ip6-saddr", "ip6-daddr"],
        };
        for (field, dim) in fields.into_iter().zip([Dim::Source, Dim::Destination]) {
            self.says_family |= self.ask(field, dim);
        }
    }

    /// Protocol, fragments and the fields of the transport header. Returns the parts that may need several rules.
    fn transport(&mut self) -> Result<Vec<String>, String> {
        let proto = self.cube.allowed(Dim::Proto).single();
        let icmp = u128::from(self.cube.family.icmp());
        let fields: &[(Dim, &str)] = match proto {
            Some(TCP) => &[
                (Dim::SourcePort, "tcp-sport"),
                (Dim::DestinationPort, "tcp-dport"),
                (Dim::Offset, "tcp-offset"),
                (Dim::Reserved, "tcp-reserved"),
            ],
            Some(UDP) => &[(Dim::SourcePort, "udp-sport"), (Dim::DestinationPort, "udp-dport")],
            _ => &[],
        };
        let flags = proto == Some(TCP) && self.cube.asked(Dim::Flags).is_some();
        let types = self.cube.asked(Dim::Icmp).filter(|_| proto == Some(icmp));
        self.refuse_foreign(proto, fields)?;

        let before = self.parts.len();
        for &(dim, field) in fields {
            self.ask(field, dim);
        }
        if flags {
            self.parts.push(tcp_flags(&self.cube.allowed(Dim::Flags)));
        }
        let types = types.map(|types| icmp_types(types, self.cube.family)).unwrap_or_default();
        let any_port = match proto {
            Some(TCP) => Some("tcp-dport"),
            Some(UDP) => Some("udp-dport"),
            Some(n) if n == icmp && self.cube.family == Family::Ip4 => Some("icmp-type"),
            Some(n) if n == icmp => Some("icmp6-type"),
            _ => None,
        };
        let first = self.cube.asked(Dim::Later).is_some_and(|later| later.single() == Some(0));
        match any_port {
            Some(_) if self.parts.len() > before => {}
            Some(_) if !types.is_empty() => self.says_family = true,
            Some(field) if first => {
                self.says_family |= proto == Some(icmp);
                self.parts.push(field.to_owned());
            }
            _ => self.protocol()?,
        }
        Ok(types)
    }

    /// Refuses constraints on fields that the language knows only for other protocols.
    fn refuse_foreign(&self, proto: Option<u128>, fields: &[(Dim, &str)]) -> Result<(), String> {
        let known = |dim: Dim| fields.iter().any(|(other, _)| *other == dim);
        let of = || {
            proto.map_or("several protocols at once".to_owned(), |n| format!("protocol {}", protocol_name(n)))
        };
        for (dim, what) in [(Dim::SourcePort, "ports"), (Dim::DestinationPort, "ports")] {
            if self.cube.asked(dim).is_some() && !known(dim) {
                return Err(format!("the rule language has no {what} for {}", of()));
            }
        }
        for dim in [Dim::Offset, Dim::Reserved, Dim::Flags] {
            if self.cube.asked(dim).is_some() && proto != Some(TCP) {
                return Err(format!("the rule language has no TCP flags for {}", of()));
            }
        }
        if self.cube.asked(Dim::Icmp).is_some() && proto != Some(self.cube.family.icmp().into()) {
            return Err(format!("the rule language has no ICMP types for {}", of()));
        }
        Ok(())
    }

    /// Protocol and fragments, if no transport field implies them.
    fn protocol(&mut self) -> Result<(), String> {
        if self.cube.asked(Dim::Proto).is_some() {
            let set = self.cube.allowed(Dim::Proto);
            self.parts.push(asked("ip-proto", &set, &Dim::Proto.all(self.cube.family), &protocol_item));
        }
        let Some(later) = self.cube.asked(Dim::Later) else { return Ok(()) };
        if self.cube.family == Family::Ip6 {
            return Err("the rule language cannot tell later fragments of IPv6 from first ones".to_owned());
        }
        let first = later.single() == Some(0);
        self.parts.push(if first { "ip-frag-offset 0" } else { "ip-frag-offset != 0" }.to_owned());
        self.says_family = true;
        Ok(())
    }

    /// The rest of the IP header.
    fn header(&mut self) {
        match self.cube.family {
            Family::Ip4 => {
                self.says_family |= self.ask("ip-len", Dim::Length);
                self.says_family |= self.ask("ip-ttl", Dim::Ttl);
                self.says_family |= self.cube.asked(Dim::Tos).is_some();
            }
            Family::Ip6 | Family::Frame => {
                if let Some(set) = self.cube.asked(Dim::Length) {
                    let all = lowered(&Dim::Length.all(Family::Ip6), 40);
                    self.parts.push(asked("ip6-len", &lowered(set, 40), &all, &number_item));
                    self.says_family = true;
                }
                self.says_family |= self.ask("ip6-hop-limit", Dim::Ttl);
                self.says_family |= self.cube.asked(Dim::Tos).is_some();
            }
        }
    }

    /// Adds the constraint of a dimension, if there is one; returns whether there is.
    fn ask(&mut self, field: &str, dim: Dim) -> bool {
        let Some(set) = self.cube.asked(dim) else { return false };
        if let Some(words) = self.sets.words(dim, self.cube.family, set) {
            self.parts.push(format!("{field} {words}"));
            return true;
        }
        let item: &dyn Fn(u128, u128) -> String = match (dim, self.cube.family) {
            (Dim::Source | Dim::Destination, Family::Ip4) => &|first, last| {
                // Addresses of IPv4 fit in 32 bits.
                address_item(first, last, 32, &|n| Ipv4Addr::from_bits(n as u32).to_string())
            },
            (Dim::Source | Dim::Destination, Family::Ip6) => {
                &|first, last| address_item(first, last, 128, &|n| Ipv6Addr::from_bits(n).to_string())
            }
            _ => &number_item,
        };
        self.parts.push(asked(field, set, &dim.all(self.cube.family), item));
        true
    }
}

/// The words of `ct`, and the states that each one stands for.
const STATE_WORDS: [(&str, &[CtState]); 4] = [
    ("new", &[CtState::New]),
    ("established", &[CtState::Established, CtState::EstablishedReply]),
    ("related", &[CtState::Related, CtState::RelatedReply]),
    ("invalid", &[CtState::Invalid]),
];

/// The shortest constraint for exactly these connection states, if one with at most one word beside `reply` suffices. Untracked
/// packets have none of the words, so that they are expressed by the states that they do not have.
fn state_words(set: &Intervals) -> Option<String> {
    let all = Dim::State.all(Family::Ip4);
    let replies = cube::states(&[CtState::EstablishedReply, CtState::RelatedReply]);
    let directions = [("", all.clone()), ("ct reply", replies.clone()), ("ct != reply", all.minus(&replies))];
    let mut found: Option<(usize, String)> = None;
    for (direction, of_direction) in &directions {
        for (bits, condition) in (0..1u8 << STATE_WORDS.len()).flat_map(|bits| [(bits, ""), (bits, "!= ")]) {
            let chosen = STATE_WORDS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
            let (words, named): (Vec<&str>, Vec<Intervals>) =
                chosen.map(|(_, &(word, states))| (word, cube::states(states))).unzip();
            let named = named.iter().fold(Intervals::EMPTY, |set, states| set.union(states));
            let of_words = if condition.is_empty() { named } else { all.minus(&named) };
            if of_words.intersect(of_direction) != *set {
                continue;
            }
            let states = match words[..] {
                [] => String::new(),
                [one] => format!("ct {condition}{one}"),
                _ => format!("ct {condition}{{{}}}", words.join(", ")),
            };
            let length = words.len() + usize::from(!direction.is_empty());
            if found.as_ref().is_none_or(|(shortest, _)| length < *shortest) {
                found = Some((length, format!("{states} {direction}").trim().to_owned()));
            }
        }
    }
    found.map(|(_, words)| words).filter(|words| !words.is_empty())
}

/// A constraint: the field with its values, or with the excluded ones if they are fewer.
fn asked(field: &str, set: &Intervals, all: &Intervals, item: &dyn Fn(u128, u128) -> String) -> String {
    let rest = all.minus(set);
    let (condition, set) =
        if rest.as_slice().len() < set.as_slice().len() { ("!= ", &rest) } else { ("", set) };
    let items: Vec<String> = set.as_slice().iter().map(|&(first, last)| item(first, last)).collect();
    match &items[..] {
        [one] => format!("{field} {condition}{one}"),
        items => format!("{field} {condition}{{{}}}", items.join(", ")),
    }
}

fn number_item(first: u128, last: u128) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// A protocol by its name if it has one; names may contain dashes, so ranges have numbers.
fn protocol_item(first: u128, last: u128) -> String {
    if first == last { protocol_name(first) } else { number_item(first, last) }
}

fn protocol_name(n: u128) -> String {
    FieldId::IpProto.info().names.name(n).map_or_else(|| n.to_string(), str::to_owned)
}

fn address_item(first: u128, last: u128, bits: u8, show: &dyn Fn(u128) -> String) -> String {
    let host = u8::try_from((first ^ last).count_ones()).unwrap_or(bits);
    match host {
        0 => show(first),
        // The bits in which the ends differ are the lowest ones, 0 in the first and 1 in the last.
        _ if first ^ last == ones(host) && first & ones(host) == 0 => {
            format!("{}/{}", show(first), bits - host)
        }
        _ => format!("{}-{}", show(first), show(last)),
    }
}

/// TCP flags: by name if each flag is fixed or free, otherwise as a set of numbers.
fn tcp_flags(set: &Intervals) -> String {
    const NAMES: [&str; 8] =
        ["tcp-fin", "tcp-syn", "tcp-rst", "tcp-push", "tcp-ack", "tcp-urg", "tcp-ece", "tcp-cwr"];
    let all = Intervals::of_width(8);
    let first = set.as_slice().first().map_or(0, |&(first, _)| first);
    let is_fixed = |bit: &u128| set.minus(&masked(first, *bit, 8)).is_empty();
    let fixed: Vec<u128> = (0..8).map(|bit| 1 << bit).filter(is_fixed).collect();
    let mask = fixed.iter().sum();
    if *set != masked(first, mask, 8) || mask == 255 {
        return asked("tcp-flags", set, &all, &number_item);
    }
    let named = fixed.iter().map(|&bit| {
        let name = NAMES[bit.trailing_zeros() as usize];
        if first & bit == 0 { format!("! {name}") } else { name.to_owned() }
    });
    named.collect::<Vec<_>>().join(" ")
}

/// ICMP types and codes: types with all codes together, others with their codes.
fn icmp_types(set: &Intervals, family: Family) -> Vec<String> {
    let (types, codes) =
        if family == Family::Ip4 { ("icmp-type", "icmp-code") } else { ("icmp6-type", "icmp6-code") };
    let all = Intervals::of_width(8);
    let rule = |(of_type, of_code): &(Intervals, Intervals)| {
        let whole =
            |field: &str, set: &Intervals| (*set != all).then(|| asked(field, set, &all, &number_item));
        let parts: Vec<String> = whole(types, of_type).into_iter().chain(whole(codes, of_code)).collect();
        parts.join(" ")
    };
    factors(set, 8).iter().map(rule).collect()
}

/// Type of service or traffic class. IPv4 has two fields for it, so it may take several rules.
fn traffic_class(cube: &PacketCube) -> Vec<String> {
    let Some(set) = cube.asked(Dim::Tos) else { return Vec::new() };
    let all = Dim::Tos.all(cube.family);
    if cube.family == Family::Ip6 {
        return vec![asked("ip6-traffic-class", set, &all, &number_item)];
    }
    let rule = |(dscp, ecn): &(Intervals, Intervals)| {
        let part = |field: &str, set: &Intervals, width: u8| {
            let all = Intervals::of_width(width);
            (*set != all).then(|| asked(field, set, &all, &number_item))
        };
        let parts: Vec<String> = part("ip-dscp", dscp, 6).into_iter().chain(part("ip-ecn", ecn, 2)).collect();
        parts.join(" ")
    };
    factors(set, 2).iter().map(rule).collect()
}

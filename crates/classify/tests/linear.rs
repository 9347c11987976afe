//! The classifier against a plain evaluator: every rule held against every key, one constraint after the other.
//!
//! The evaluator documents what constraints mean in terms of header keys, layouts and packets. Whether those say what
//! the packet's bytes say is the matter of the engine's oracle.

use mmb_classify::{Classifier, Keys, Ports, Scratch, VECTOR};
use mmb_packet::key::{self, flags};
use mmb_packet::options::{self, OptionTable};
use mmb_packet::parse::parse;
use mmb_packet::{Class, Layout, Limits, LinkType, Packet, PortId, fill_key4, fill_key6};
use mmb_policy::field::{Alone, FieldId, Implies, Payload, Place};
use mmb_policy::rule::{Cond, Equality, NumberSet};
use mmb_policy::{Match, Policy, Rule, Test};
use mmb_testkit::strategy;
use proptest::collection::vec;
use proptest::prelude::*;

/// The test world's ports.
const PORTS: [&str; 3] = ["a", "b", "c"];

/// One packet as rules see it.
struct Seen<'a, 'b> {
    /// The key; zeros behind it for the shorter kind.
    key: [u8; 80],
    layout: Layout,
    packet: &'a Packet<'b>,
}

impl Seen<'_, '_> {
    fn matches(&self, rule: &Rule) -> bool {
        let about_frames = rule.matches.iter().any(|m| m.field.id == FieldId::EthType);
        (self.layout.class != Class::Other || about_frames)
            && rule.matches.iter().all(|constraint| self.satisfies(constraint))
    }

    fn satisfies(&self, constraint: &Match) -> bool {
        let info = constraint.field.info();
        self.implied(info.implies) && self.passes(constraint) != constraint.negated
    }

    fn implied(&self, implies: Implies) -> bool {
        let classes: &[Class] = match implies {
            Implies::Frame => &[Class::Ip4, Class::Ip6, Class::Other],
            _ => &[Class::Ip4, Class::Ip6],
        };
        classes.contains(&self.layout.class)
            && implies.key_bytes().iter().all(|&(at, mask, value)| self.key[at] & mask == value)
    }

    fn passes(&self, constraint: &Match) -> bool {
        let info = constraint.field.info();
        match info.place {
            Place::Key { bit, width } => {
                let tagged = self.key[key::FLAGS] & flags::VLAN_TAGGED != 0;
                (info.alone != Alone::Optional || tagged)
                    && number_passes(self.bits(bit, width), width, info.alone, &constraint.test)
            }
            Place::Payload(of) => self.payload_passes(of, &constraint.test),
            Place::AnyOption => self.options().any(),
            Place::Option(kind) => self.option_passes(kind, &constraint.test),
            Place::NamedOption => self.option_passes(constraint.field.kind, &constraint.test),
        }
    }

    fn bits(&self, bit: u16, width: u8) -> u128 {
        (0..width as usize).fold(0, |number, i| {
            let at = bit as usize + i;
            number << 1 | u128::from(self.key[at / 8] >> (7 - at % 8) & 1)
        })
    }

    fn payload_passes(&self, of: Payload, test: &Test) -> bool {
        let range = match of {
            Payload::Ip => self.layout.ip_payload_range(),
            Payload::Transport => self.layout.payload_range(),
        };
        let payload = &self.packet.bytes()[range];
        let begins = |prefixes: &[Vec<u8>]| prefixes.iter().any(|prefix| payload.starts_with(prefix));
        !payload.is_empty()
            && match test {
                Test::Present => true,
                Test::Bytes(Equality::Eq, prefixes) => begins(prefixes),
                Test::Bytes(Equality::Ne, prefixes) => !begins(prefixes),
                other => panic!("payload asked for {other:?}"),
            }
    }

    fn options(&self) -> OptionTable {
        let mut table = OptionTable::default();
        table.fill(options::area(self.packet, &self.layout));
        table
    }

    fn option_passes(&self, kind: u8, test: &Test) -> bool {
        self.options().data(kind).any(|data| match test {
            Test::Present => true,
            Test::Number(cond, set) => {
                options::number(data).is_some_and(|n| compares(n.into(), *cond, set, 64))
            }
            Test::Bytes(equality, strings) => {
                strings.iter().any(|string| string == data) == (*equality == Equality::Eq)
            }
            other => panic!("an option asked for {other:?}"),
        })
    }
}

fn number_passes(number: u128, width: u8, alone: Alone, test: &Test) -> bool {
    match test {
        Test::Present => match alone {
            Alone::Equals(value) => number == u128::from(value),
            Alone::Protocol | Alone::Optional => true,
        },
        Test::Number(cond, set) => compares(number, *cond, set, width),
        Test::Port(equality, names) => {
            let named = names.iter().any(|name| PORTS[..].get(number as usize) == Some(&name.as_str()));
            named == (*equality == Equality::Eq)
        }
        Test::Bytes(..) => panic!("a number asked for bytes"),
    }
}

fn compares(number: u128, cond: Cond, set: &NumberSet, width: u8) -> bool {
    let within = |(first, last): (u128, u128)| first <= number && number <= last;
    let (first, last) = set.0[0].bounds(width);
    match cond {
        Cond::Eq => set.0.iter().any(|item| within(item.bounds(width))),
        Cond::Ne => !set.0.iter().any(|item| within(item.bounds(width))),
        Cond::Lt => number < first,
        Cond::Le => number <= last,
        Cond::Gt => number > last,
        Cond::Ge => number >= first,
    }
}

/// A packet and the port that it comes in by.
type Arrival = (strategy::Wire, u16);

/// The rules of `lines` that check, in the order of their ranks.
fn rules(lines: &[String]) -> Vec<Rule> {
    let parsed = lines.iter().filter_map(|line| Policy::parse(line).ok());
    let mut rules: Vec<Rule> =
        parsed.flat_map(|(policy, _)| policy.rules.iter().collect::<Vec<_>>()).collect();
    rules.sort_by_key(|rule| rule.prio);
    rules
}

/// What each packet matches, by the classifier and by the evaluator.
fn both(rules: &[Rule], arrivals: &mut [Arrival]) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let classifier = Classifier::build(rules, &Ports::new(PORTS), 7).expect("rules name ports that exist");
    let (mut keys, mut scratch) = (Keys::default(), Scratch::default());
    scratch.fit(classifier.most_matches());

    let mut packets = Vec::new();
    let mut layouts = Vec::new();
    for (wire, port) in arrivals {
        let len = wire.bytes.len();
        let packet = Packet::new(&mut wire.bytes, 0, len, PortId(*port), wire.link).expect("it fits");
        if let Ok(layout) = parse(&packet, &Limits::default()) {
            packets.push(packet);
            layouts.push(layout);
        }
    }
    let mut expected = Vec::new();
    for (at, (packet, layout)) in packets.iter().zip(&layouts).enumerate() {
        let out = PortId(packet.port.0 ^ 1);
        let mut key = [0; 80];
        let mut short = |lane: &mut mmb_classify::Lane<64>| {
            let place = lane.push(at as u8);
            fill_key4(packet, layout, packet.port, out, place);
            key[..64].copy_from_slice(&place.0);
        };
        match layout.class {
            Class::Ip4 => short(&mut keys.ip4),
            Class::Other => short(&mut keys.other),
            Class::Ip6 => {
                let place = keys.ip6.push(at as u8);
                fill_key6(packet, layout, packet.port, out, place);
                key = place.0;
            }
        }
        let seen = Seen { key, layout: *layout, packet };
        expected
            .push((0..).zip(rules).filter(|(_, rule)| seen.matches(rule)).map(|(rank, _)| rank).collect());
    }
    // Twice: nothing of a vector may be left for the next.
    for _ in 0..2 {
        classifier.classify(&keys, &packets, &layouts, &mut scratch);
    }
    let found: Vec<Vec<u32>> = (0..packets.len()).map(|at| scratch.ranks(at).to_vec()).collect();
    let matched: Vec<usize> = scratch.matched().iter().map(|&at| usize::from(at)).collect();
    let expected_matched: Vec<usize> = (0..found.len()).filter(|&at| !found[at].is_empty()).collect();
    assert_eq!(matched, expected_matched);
    (found, expected)
}

fn arrival() -> impl Strategy<Value = Arrival> {
    (strategy::wire(), 0..4u16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn finds_what_a_plain_evaluation_finds(
        lines in vec(strategy::rule(), 0..40),
        mut arrivals in vec(arrival(), 1..80),
    ) {
        let rules = rules(&lines);
        let (found, expected) = both(&rules, &mut arrivals);
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            prop_assert_eq!(found, expected, "packet {} of {:?}", at, &rules);
        }
    }
}

#[test]
fn a_full_vector_of_equal_packets_matches_everything() {
    let lines: Vec<String> =
        (0..300).map(|i| format!("add prio {i} ip-ttl < {} drop", 1 + i % 255)).collect();
    let rules = rules(&lines);
    let frame = mmb_testkit::Udp::default().over_ip4();
    let wire = strategy::Wire { link: LinkType::Ethernet, bytes: frame.bytes() };
    let mut arrivals = vec![(wire, 0); VECTOR];
    let (found, expected) = both(&rules, &mut arrivals);
    assert!(expected[0].len() > 100);
    assert_eq!(found, expected);
}

#[test]
fn equal_keys_share_an_entry_and_masks_a_table() {
    let lines = [
        "add tcp-dport 80 drop",
        "add tcp-dport 80 ip-ttl > 3 accept",
        "add tcp-dport 443 drop",
        "add udp-dport 53 drop",
        "add tcp-dport {22, 23} drop",
        "add ip-proto udp ip-ttl < 9 drop",
    ];
    let rules = rules(&lines.map(str::to_owned));
    let classifier = Classifier::build(&rules, &Ports::new(PORTS), 7).expect("no ports are named");
    let tables: Vec<_> =
        classifier.tables().map(|t| (t.class, t.mask.as_str(), t.rules, t.entries)).collect();
    let ports = "ip-proto udp-dport tcp-dport";
    assert_eq!(
        tables,
        [(Class::Ip4, ports, 5, 5), (Class::Ip4, "ip-proto", 1, 1), (Class::Ip6, ports, 4, 5)]
    );
    assert!(classifier.wants(Class::Ip6) && !classifier.wants(Class::Other));
}

#[test]
fn a_class_knows_only_rules_that_it_can_match() {
    let classes = |rule: &str| {
        let rules = rules(&[rule.to_owned()]);
        let classifier = Classifier::build(&rules, &Ports::new(PORTS), 7).expect("no ports are named");
        [Class::Ip4, Class::Ip6, Class::Other].map(|class| classifier.wants(class))
    };
    assert_eq!(classes("add all drop"), [true, true, false]);
    assert_eq!(classes("add ip-ttl 3 drop"), [true, false, false]);
    assert_eq!(classes("add net-proto ip6 tcp-dport 3 drop"), [false, true, false]);
    assert_eq!(classes("add net-proto != ip6 drop"), [true, false, false]);
    assert_eq!(classes("add eth-type arp drop"), [false, false, true]);
    assert_eq!(classes("add eth-type {ip4, arp} drop"), [true, false, true]);
    assert_eq!(classes("add eth-type ip6 udp-dport 53 drop"), [false, true, false]);
    assert_eq!(classes("add eth-type != ip4 drop"), [false, true, true]);
    assert_eq!(classes("add in a drop"), [true, true, false]);
}

#[test]
fn an_unknown_port_is_named_with_its_rule() {
    let rules = rules(&["add prio 1 in a drop", "add prio 2 out nowhere drop"].map(str::to_owned));
    let error =
        Classifier::build(&rules, &Ports::new(PORTS), 7).map(|_| ()).expect_err("there is no such port");
    assert_eq!((error.0, error.1.to_string().as_str()), (1, "no port is called 'nowhere'"));
}

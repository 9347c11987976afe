//! The classifier against a plain evaluator: every rule held against every key, one constraint after the other.
//!
//! The evaluator documents what constraints mean in terms of header keys, layouts and packets. Whether those say what
//! the packet's bytes say is the matter of the engine's oracle.

use mmb_classify::{Classifier, ClassifierIndex, Keys, Ports, Scratch, Tuning, VECTOR};
use mmb_packet::key::{self, flags};
use mmb_packet::options::{self, OptionTable};
use mmb_packet::parse::parse;
use mmb_packet::{Class, Key4, Key6, Layout, Limits, LinkType, Packet, PortId, fill_key4, fill_key6};
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

/// The rules of `lines` that check.
fn rules(lines: &[String]) -> Vec<Rule> {
    let parsed = lines.iter().filter_map(|line| Policy::parse(line).ok());
    parsed.flat_map(|(policy, _)| policy.rules.iter().collect::<Vec<_>>()).collect()
}

/// A classifier of rules that come at once, their places their handles.
fn built(rules: &[Rule], tuning: Tuning) -> ClassifierIndex {
    ClassifierIndex::build((0..).zip(rules), Ports::new(PORTS), 7, tuning)
        .expect("rules name ports that exist")
}

/// What there is to classify: packets that parse, their keys, what a plain evaluator sees.
struct World<'a, 'b> {
    packets: &'a [Packet<'b>],
    layouts: Vec<Layout>,
}

fn out(packet: &Packet<'_>) -> PortId {
    PortId(packet.port.0 ^ 1)
}

/// The packets that parse.
fn sound(arrivals: &mut [Arrival]) -> Vec<Packet<'_>> {
    let packets = arrivals.iter_mut().map(|(wire, port)| {
        let len = wire.bytes.len();
        Packet::new(&mut wire.bytes, 0, len, PortId(*port), wire.link).expect("it fits")
    });
    packets.filter(|packet| parse(packet, &Limits::default()).is_ok()).collect()
}

impl<'a, 'b> World<'a, 'b> {
    fn new(packets: &'a [Packet<'b>]) -> World<'a, 'b> {
        let layout = |packet| parse(packet, &Limits::default()).expect("only sound packets are kept");
        World { packets, layouts: packets.iter().map(layout).collect() }
    }

    /// The numbers of the rules that each packet matches, plainly.
    fn expected(&self, rules: &[(u32, Rule)]) -> Vec<Vec<u32>> {
        let seen = self.packets.iter().zip(&self.layouts).map(|(packet, layout)| {
            let mut key = [0; 80];
            if layout.class == Class::Ip6 {
                let mut long = Key6::default();
                fill_key6(packet, layout, packet.port, out(packet), &mut long);
                key = long.0;
            } else {
                let mut short = Key4::default();
                fill_key4(packet, layout, packet.port, out(packet), &mut short);
                key[..64].copy_from_slice(&short.0);
            }
            Seen { key, layout: *layout, packet }
        });
        let numbers = |seen: Seen<'_, '_>| {
            let mut numbers: Vec<u32> =
                rules.iter().filter(|(_, rule)| seen.matches(rule)).map(|(number, _)| *number).collect();
            numbers.sort_unstable();
            numbers
        };
        seen.map(numbers).collect()
    }

    /// What the classifier finds.
    fn found(&self, classifier: &Classifier) -> Vec<Vec<u32>> {
        let (mut keys, mut scratch) = (Keys::default(), Scratch::default());
        scratch.fit(classifier.most_matches());
        for (at, layout) in self.layouts.iter().enumerate() {
            match layout.class {
                Class::Ip4 => keys.ip4.push(at as u8),
                Class::Ip6 => keys.ip6.push(at as u8),
                Class::Other => keys.other.push(at as u8),
            }
        }
        keys.fill(classifier.wanted(), self.packets, &self.layouts, |at| out(&self.packets[at]));
        // Twice: nothing of a vector may be left for the next.
        for _ in 0..2 {
            classifier.classify(&keys, self.packets, &self.layouts, &mut scratch);
        }
        let sorted = |at| {
            let mut handles = scratch.handles(at).to_vec();
            handles.sort_unstable();
            handles
        };
        let found: Vec<Vec<u32>> = (0..self.packets.len()).map(sorted).collect();
        let matched: Vec<usize> = scratch.matched().iter().map(|&at| usize::from(at)).collect();
        let not_empty: Vec<usize> = (0..found.len()).filter(|&at| !found[at].is_empty()).collect();
        assert_eq!(matched, not_empty);
        assert!(found.iter().all(|found| found.len() <= classifier.most_matches()));
        found
    }
}

fn arrival() -> impl Strategy<Value = Arrival> {
    (strategy::wire(), 0..4u16)
}

fn numbered(rules: &[Rule]) -> Vec<(u32, Rule)> {
    (0..).zip(rules.iter().cloned()).collect()
}

/// A step of a policy's life: a rule comes, or the one that many from the oldest goes.
#[derive(Clone, Debug)]
enum Step {
    Add(String),
    Remove(prop::sample::Index),
    Rebuild,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => strategy::rule().prop_map(Step::Add),
        // The same few keys over and over.
        3 => few_keys().prop_map(Step::Add),
        4 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => Just(Step::Rebuild),
    ]
}

/// Rules of few keys and shapes, so that keys, chains and lists are shared.
fn few_keys() -> impl Strategy<Value = String> {
    let option = prop_oneof![
        Just(String::new()),
        (2..5u8, 0..4u8).prop_map(|(kind, value)| format!(" tcp-opt {kind} {value}")),
        (2..5u8).prop_map(|kind| format!(" tcp-opt {kind}")),
        (2..5u8, 0..4u8).prop_map(|(kind, value)| format!(" ! tcp-opt {kind} {value}")),
        (2..5u8, 1..4u8).prop_map(|(kind, value)| format!(" tcp-opt {kind} < {value}")),
    ];
    let range = prop_oneof![
        Just(String::new()),
        (0..3u16, 0..3u16).prop_map(|(first, more)| format!(
            " tcp-sport {}-{}",
            first * 500,
            first * 500 + more * 300 + 1
        )),
        (0..200u16).prop_map(|ttl| format!(" ip-ttl > {ttl}")),
    ];
    (0..3u8, prop::sample::select(vec![8, 12, 16, 24, 32]), 0..3u16, option, range).prop_map(
        |(net, len, port, option, range)| {
            format!("add ip-saddr 10.{net}.0.0/{len} tcp-dport {port}{option}{range} drop")
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn finds_what_a_plain_evaluation_finds(
        lines in vec(strategy::rule(), 0..40),
        mut arrivals in vec(arrival(), 1..80),
        every_tuple: bool,
    ) {
        let rules = rules(&lines);
        let packets = sound(&mut arrivals);
        let world = World::new(&packets);
        let tuning = if every_tuple { Tuning::EveryTuple } else { Tuning::Merged };
        let found = world.found(&built(&rules, tuning).classifier());
        let expected = world.expected(&numbered(&rules));
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            prop_assert_eq!(found, expected, "packet {} of {:?}", at, &rules);
        }
    }

    #[test]
    fn rules_come_and_go(
        steps in vec(step(), 1..60),
        mut arrivals in vec(arrival(), 1..40),
    ) {
        let packets = sound(&mut arrivals);
        let world = World::new(&packets);
        let mut index = ClassifierIndex::new(Ports::new(PORTS), 3);
        let mut rules: Vec<(u32, Rule)> = Vec::new();
        let mut handles = 0;
        let mut before = (index.classifier(), rules.clone());
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Add(line) => for rule in self::rules(std::slice::from_ref(line)) {
                    index.insert(handles, &rule).expect("rules name ports that exist");
                    rules.push((handles, rule));
                    handles += 1;
                },
                Step::Remove(which) if !rules.is_empty() => {
                    let (handle, rule) = rules.swap_remove(which.index(rules.len()));
                    index.remove(handle, &rule);
                }
                Step::Remove(_) => {}
                Step::Rebuild => {
                    let all = rules.iter().map(|(handle, rule)| (*handle, rule));
                    index = ClassifierIndex::build(all, Ports::new(PORTS), at as u64, Tuning::Merged)
                        .expect("rules name ports that exist");
                }
            }
            if at % 8 == 7 || at + 1 == steps.len() {
                prop_assert_eq!(world.found(&index.classifier()), world.expected(&rules), "after step {}", at);
                // What was handed out before still says what was true then.
                prop_assert_eq!(world.found(&before.0), world.expected(&before.1), "before step {}", at);
                before = (index.classifier(), rules.clone());
            }
        }
        for (handle, rule) in rules.drain(..) {
            index.remove(handle, &rule);
        }
        prop_assert_eq!(world.found(&index.classifier()), world.expected(&[]));
        prop_assert!(index.tables().is_empty() && index.classifier().most_matches() == 0);
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
    let packets = sound(&mut arrivals);
    let world = World::new(&packets);
    let (found, expected) =
        (world.found(&built(&rules, Tuning::Merged).classifier()), world.expected(&numbered(&rules)));
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
    let index = built(&rules, Tuning::EveryTuple);
    let tables = index.tables();
    let tables: Vec<_> = tables.iter().map(|t| (t.class, t.mask.as_str(), t.rules, t.entries)).collect();
    let ports = "ip-proto udp-dport tcp-dport";
    assert_eq!(
        tables,
        [(Class::Ip4, "ip-proto", 1, 1), (Class::Ip4, ports, 6, 5), (Class::Ip6, ports, 5, 5)]
    );
    assert!(index.classifier().wants(Class::Ip6) && !index.classifier().wants(Class::Other));
}

#[test]
fn a_class_knows_only_rules_that_it_can_match() {
    let classes = |rule: &str| {
        let rules = rules(&[rule.to_owned()]);
        let classifier = built(&rules, Tuning::Merged).classifier();
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
    let built = ClassifierIndex::build((0..).zip(&rules), Ports::new(PORTS), 7, Tuning::Merged);
    let error = built.map(|_| ()).expect_err("there is no such port");
    assert_eq!((error.0, error.1.to_string().as_str()), (1, "no port is called 'nowhere'"));
}

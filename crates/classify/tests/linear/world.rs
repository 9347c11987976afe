//! The test world: packets, the classifier's findings, and the plain evaluator's.

use mmb_base::Id;
use mmb_classify::{Classifier, ClassifierIndex, FlowCache, RuleNames, RuleSlot, Scratch, Tuning, VECTOR};
use mmb_language::parse_policy;
use mmb_packet::key::{self, flags};
use mmb_packet::options::{self, OptionTable};
use mmb_packet::parse::parse;
use mmb_packet::parse::vector::{ParseVector, VectorKeys};
use mmb_packet::{Class, Key4, Key6, Layout, Packet, ParserLimits, PortId, fill_key4, fill_key6};
use mmb_policy::field::{BareMeaning, FieldId, FieldPlace, Implies, Payload};
use mmb_policy::rule::{Cond, Equality, NumberSet};
use mmb_policy::sets::Elements;
use mmb_policy::{Match, Policy, Rule, Test};
use mmb_random::Seed;
use mmb_testkit::strategy;
use std::sync::{Arc, OnceLock};

/// The test world's ports.
pub(crate) const PORTS: [&str; 3] = ["a", "b", "c"];

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
        let transport = implies != Implies::TcpOrUdp || [6, 17].contains(&self.key[key::L4_KIND]);
        transport
            && classes.contains(&self.layout.class)
            && implies.key_bytes().iter().all(|&(at, mask, value)| self.key[at] & mask == value)
    }

    fn passes(&self, constraint: &Match) -> bool {
        let info = constraint.field.info();
        match info.place {
            FieldPlace::Key { bit, width } => {
                let tagged = self.key[key::FLAGS] & flags::VLAN_TAGGED != 0;
                (info.alone != BareMeaning::Optional || tagged)
                    && number_passes(self.bits(bit, width), width, info.alone, &constraint.test)
            }
            FieldPlace::Payload(of) => self.payload_passes(of, &constraint.test),
            // No constraint for the classifier.
            FieldPlace::Connection | FieldPlace::Stream(_) => !constraint.negated,
            FieldPlace::AnyOption => self.options().any(),
            FieldPlace::Option(kind) => self.option_passes(kind, &constraint.test),
            FieldPlace::NamedOption => self.option_passes(constraint.field.kind, &constraint.test),
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

fn number_passes(number: u128, width: u8, alone: BareMeaning, test: &Test) -> bool {
    match test {
        Test::Present => match alone {
            BareMeaning::Equals(value) => number == u128::from(value),
            BareMeaning::Protocol | BareMeaning::Optional => true,
        },
        Test::Number(cond, set) => compares(number, *cond, set, width),
        Test::Port(equality, names) => {
            let named = names.iter().any(|name| PORTS[..].get(number as usize) == Some(&name.as_str()));
            named == (*equality == Equality::Eq)
        }
        Test::NamedSet(equality, name) => set_has(name, width, number) == (*equality == Equality::Eq),
        Test::Bytes(..) | Test::Patterns(_) | Test::Header(..) => panic!("a number asked for bytes"),
    }
}

/// Whether some element of a set has a number of a field of `width` bits, in the plainest way.
fn set_has(name: &str, width: u8, number: u128) -> bool {
    let set = &sets().sets[name];
    let narrow = |elements: &Elements<u32>| {
        elements.iter().any(|one| (u128::from(one.first)..=u128::from(one.last)).contains(&number))
    };
    match (name, width) {
        (strategy::sets::NUMBERS, _) => narrow(set.numbers()),
        (_, 128) => set.ip6().iter().any(|one| (one.first..=one.last).contains(&number)),
        _ => narrow(set.ip4()),
    }
}

/// The sets that rules name.
fn sets() -> &'static Policy {
    static SETS: OnceLock<Policy> = OnceLock::new();
    SETS.get_or_init(|| parse_policy(&strategy::sets::FIXED.join("\n")).expect("they are right").0)
}

/// The names that rules may say.
pub(crate) fn names() -> RuleNames {
    let mut names = RuleNames::new(PORTS);
    sets().sets.iter().for_each(|(name, set)| names.put_set(name, Arc::clone(set)));
    names
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
pub(crate) type Arrival = (strategy::PacketBytes, u16);

/// The slot with a number, and a mark that follows from it.
pub(crate) fn slot(number: u32) -> RuleSlot {
    RuleSlot::new(number).expect("slots count from 1").marked(mark(number))
}

fn mark(number: u32) -> u8 {
    (number % u32::from(RuleSlot::MARKS)) as u8
}

/// All slots.
fn slots() -> impl Iterator<Item = RuleSlot> {
    (1..).map(slot)
}

/// The rules of `lines` that check.
pub(crate) fn rules(lines: &[String]) -> Vec<Rule> {
    let sets = strategy::sets::FIXED.join("\n");
    let parsed = lines.iter().filter_map(|line| parse_policy(&format!("{sets}\n{line}")).ok());
    parsed.flat_map(|(policy, _)| policy.rules.iter().collect::<Vec<_>>()).collect()
}

/// A classifier of rules that come at once, in slots in their order.
pub(crate) fn built(rules: &[Rule], tuning: Tuning) -> ClassifierIndex {
    let index = ClassifierIndex::build(slots().zip(rules), names(), Seed::repeatable(7), tuning)
        .expect("rules name ports that exist");
    assert!(index.tables().iter().all(|table| table.entries > 0), "no table is left without entries");
    index
}

/// What there is to classify: packets that parse, their keys, what a plain evaluator sees.
pub(crate) struct World<'a, 'b> {
    packets: &'a [Packet<'b>],
    layouts: Vec<Layout>,
}

fn out(packet: &Packet<'_>) -> PortId {
    PortId(packet.port.0 ^ 1)
}

/// The packets that parse.
pub(crate) fn sound(arrivals: &mut [Arrival]) -> Vec<Packet<'_>> {
    let packets = arrivals.iter_mut().map(|(wire, port)| {
        let len = wire.bytes.len();
        Packet::new(&mut wire.bytes, 0, len, PortId(*port), wire.link).expect("it fits")
    });
    packets.filter(|packet| parse(packet, &ParserLimits::default()).is_ok()).collect()
}

impl<'a, 'b> World<'a, 'b> {
    pub(crate) fn new(packets: &'a [Packet<'b>]) -> World<'a, 'b> {
        let layout = |packet| parse(packet, &ParserLimits::default()).expect("only sound packets are kept");
        World { packets, layouts: packets.iter().map(layout).collect() }
    }

    /// The numbers of the rules that each packet matches, plainly.
    pub(crate) fn expected(&self, rules: &[(RuleSlot, Rule)]) -> Vec<Vec<RuleSlot>> {
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
            let mut numbers: Vec<RuleSlot> =
                rules.iter().filter(|(_, rule)| seen.matches(rule)).map(|(number, _)| *number).collect();
            numbers.sort_unstable();
            numbers
        };
        seen.map(numbers).collect()
    }

    /// What the classifier finds.
    pub(crate) fn found(&self, classifier: &Classifier) -> Vec<Vec<RuleSlot>> {
        self.found_by(classifier, |keys, scratch| {
            // Twice: nothing of a vector may be left for the next.
            for _ in 0..2 {
                classifier.classify(keys, self.packets, &self.layouts, scratch);
            }
        })
    }

    /// What the classifier finds with the help of a cache.
    pub(crate) fn found_with(
        &self,
        cache: &mut FlowCache,
        generation: u64,
        classifier: &Classifier,
    ) -> Vec<Vec<RuleSlot>> {
        self.found_by(classifier, |keys, scratch| {
            let count = keys.count();
            let parsed = (self.packets, &self.layouts[..]);
            let counts = cache.classify((generation, classifier), keys, parsed, scratch, || 0);
            let bypassed = counts.bypassed.map_or(0, |(keys, _)| keys);
            assert!(counts.hits + counts.misses + bypassed <= count);
        })
    }

    fn found_by(
        &self,
        classifier: &Classifier,
        find: impl FnOnce(&mut VectorKeys, &mut Scratch),
    ) -> Vec<Vec<RuleSlot>> {
        let (mut keys, mut scratch) = (VectorKeys::default(), Scratch::default());
        scratch.fit(classifier.max_matches());
        let mut layouts = [Layout::default(); VECTOR];
        keys.take(0, self.packets);
        keys.parse(ParseVector {
            wanted: classifier.wanted(),
            limits: ParserLimits::default(),
            packets: self.packets,
            layouts: &mut layouts,
            out: |at: usize| out(&self.packets[at]),
            malformed: |at: usize, why| panic!("packet {at}: {why:?}"),
        });
        find(&mut keys, &mut scratch);
        let sorted = |at| {
            let mut slots = scratch.slots(at).to_vec();
            slots.sort_unstable();
            slots
        };
        let found: Vec<Vec<RuleSlot>> = (0..self.packets.len()).map(sorted).collect();
        let matched: Vec<usize> = scratch.matched().iter().map(|&at| usize::from(at)).collect();
        let not_empty: Vec<usize> = (0..found.len()).filter(|&at| !found[at].is_empty()).collect();
        assert_eq!(matched, not_empty);
        assert!(found.iter().all(|found| found.len() <= classifier.max_matches()));
        assert!(
            found.iter().flatten().all(|slot| slot.mark() == mark(slot.number())),
            "slots keep their marks"
        );
        found
    }
}

/// Rules with slots in their order.
pub(crate) fn numbered(rules: &[Rule]) -> Vec<(RuleSlot, Rule)> {
    slots().zip(rules.iter().cloned()).collect()
}

//! Against the plain evaluation of every check of every rule.

use super::*;
use crate::VECTOR;
use crate::check::{OptionTest, RuleCheck};
use crate::names::SetTable;
use crate::set_lookup::{SetContext, SetResults};
use mmb_base::Id;
use mmb_base::simd::Kernel;
use mmb_packet::columns::Column;
use mmb_packet::key::flags;
use mmb_packet::parse::parse;
use mmb_packet::{Layout, LinkType, Packet, ParserLimits, PortId};
use mmb_policy::Intervals;
use mmb_policy::field::Payload;
use mmb_policy::field::ones;
use mmb_testkit::{Tcp, Udp};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Bit and width: one bit, some, 8, 12, 16 and 32, at the ends of a lane and inside it.
const FIELDS: [(u16, u8); 9] =
    [(95, 1), (96, 4), (96, 8), (80, 12), (128, 16), (144, 16), (336, 16), (416, 32), (448, 32)];

/// Numbers of a field of a width: its ends, one cluster, and anything.
fn number(width: u8) -> BoxedStrategy<u128> {
    let max = ones(width);
    let near = |number: u128| number.min(max);
    prop_oneof![
        2 => select(vec![0, near(1), near(63), near(64), near(255), near(256), max / 2, max - 1, max]),
        3 => (0..=near(40)).prop_map(move |n| (max / 3 + n).min(max)),
        2 => 0..=max,
    ]
    .boxed()
}

/// A check of a number; `unless` and all kinds of bounds included.
fn ranges(max: usize) -> BoxedStrategy<RuleCheck> {
    let field = select(FIELDS.to_vec());
    let unless = prop_oneof![9 => Just(0), 1 => Just(flags::VLAN_TAGGED)];
    (field, unless, any::<bool>())
        .prop_flat_map(move |((bit, width), unless, outside)| {
            vec((number(width), number(width)), 1..=max).prop_map(move |pairs| {
                let pairs = pairs.into_iter().map(|(a, b)| (a.min(b), a.max(b)));
                let bounds: Intervals = pairs.collect();
                let bounds = if outside { bounds.complement(ones(width)) } else { bounds };
                RuleCheck::number(bit, width, &bounds, unless)
            })
        })
        .boxed()
}

/// A check of anything else.
fn other() -> BoxedStrategy<RuleCheck> {
    let address = (number(128), number(128))
        .prop_map(|(a, b)| RuleCheck::number(384, 128, &Intervals::range(a.min(b), a.max(b)), 0));
    let payload = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(ip, empty, begins)| {
        let field = if ip { Payload::Ip } else { Payload::Transport };
        RuleCheck::Payload { field, prefixes: Box::new([Box::new([b'a'])]), empty, begins }
    });
    prop_oneof![address, payload].boxed()
}

fn option() -> BoxedStrategy<RuleCheck> {
    let test = prop_oneof![
        Just(OptionTest::Present),
        (0u128..4).prop_map(|n| OptionTest::Number(Box::new([(n, n + 1)]))),
        any::<bool>().prop_map(|differs| OptionTest::Bytes { data: Box::new([Box::new([1])]), differs }),
    ];
    let of_kind =
        (2u8..5, test, any::<bool>()).prop_map(|(kind, test, none)| RuleCheck::Option { kind, test, none });
    prop_oneof![3 => of_kind, 1 => any::<bool>().prop_map(|none| RuleCheck::AnyOption { none })].boxed()
}

fn checks() -> BoxedStrategy<Vec<RuleCheck>> {
    let numbers = prop_oneof![4 => vec(ranges(1), 1..4), 1 => vec(ranges(14), 1..3)];
    let few = |check, weight| prop_oneof![weight => Just(None), 1 => proptest::option::of(check)];
    (numbers, few(other(), 6), few(option(), 6))
        .prop_map(|(numbers, other, option)| numbers.into_iter().chain(other).chain(option).collect())
        .boxed()
}

/// A change of the rules.
#[derive(Clone, Debug)]
enum Change {
    Insert(Vec<RuleCheck>),
    /// Of the rule at some place, one after the other.
    Remove(prop::sample::Index),
}

/// Many rules come, and in the end most of them go, or all.
fn changes(max: usize) -> BoxedStrategy<Vec<Change>> {
    let insert = || checks().prop_map(Change::Insert).boxed();
    let remove = || any::<prop::sample::Index>().prop_map(Change::Remove).boxed();
    let grow = vec(prop_oneof![9 => insert(), 1 => remove()], 0..max);
    let shrink = vec(prop_oneof![1 => insert(), 9 => remove()], 0..max);
    (grow, shrink).prop_map(|(grow, shrink)| [grow, shrink].concat()).boxed()
}

/// Lanes of some keys; the others of the vector are 0.
fn lanes(keys: usize) -> BoxedStrategy<Vec<Column>> {
    let fields = FIELDS.map(|(bit, width)| vec((Just((bit, width)), number(width)), keys));
    let address = vec(number(128), keys);
    (Vec::from(fields), vec(any::<bool>(), keys), address)
        .prop_map(|(fields, tagged, address)| {
            let mut lanes = vec![[0u32; VECTOR]; 20];
            for (key, &address) in address.iter().enumerate() {
                (12..16).for_each(|lane| lanes[lane][key] = (address >> (32 * (15 - lane))) as u32);
            }
            for (key, &tagged) in tagged.iter().enumerate() {
                lanes[0][key] = u32::from(tagged) << 8;
            }
            for ((bit, width), key, number) in fields.iter().flat_map(|numbers| {
                numbers.iter().enumerate().map(|(key, &(field, number))| (field, key, number))
            }) {
                let shift = 32 - bit % 32 - u16::from(width);
                let lane = &mut lanes[usize::from(bit / 32)][key];
                *lane = *lane & !((ones(width) as u32) << shift) | (number as u32) << shift;
            }
            lanes.iter_mut().flatten().for_each(|lane| *lane = lane.to_be());
            lanes
        })
        .boxed()
}

/// Packets with and without options and payloads.
fn packets() -> Vec<Vec<u8>> {
    let tcp = Tcp::default;
    vec![
        tcp().over_ip4().bytes(),
        tcp().option(2, &[1]).option(3, &[2]).payload(b"abc").over_ip4().bytes(),
        tcp().option(4, &[0, 2]).option(4, &[1]).payload(b"b").over_ip4().bytes(),
        tcp().raw_options(&[1, 1, 1, 0]).over_ip4().bytes(),
        Udp::default().payload(b"a").over_ip4().bytes(),
    ]
}

/// What keys are about.
struct World<'b> {
    lanes: Vec<Column>,
    packets: Vec<Packet<'b>>,
    layouts: Vec<Layout>,
    sets: (SetTable, SetResults),
}

impl<'b> World<'b> {
    fn new(lanes: Vec<Column>, bytes: &'b mut [Vec<u8>]) -> World<'b> {
        let packet = |bytes: &'b mut Vec<u8>| {
            let len = bytes.len();
            Packet::new(bytes, 0, len, PortId(0), LinkType::Ethernet).expect("it fits")
        };
        let packets: Vec<_> = bytes.iter_mut().map(packet).collect();
        let layout = |packet| parse(packet, &ParserLimits::default()).expect("it is sound");
        let layouts = packets.iter().map(layout).collect();
        World { lanes, packets, layouts, sets: Default::default() }
    }

    fn subject(&self, key: u8) -> CheckedPacket<'_, 'b> {
        let at = usize::from(key) % self.packets.len();
        let World { lanes, packets, layouts, sets } = self;
        let sets = SetContext { table: &sets.0, results: &sets.1 };
        CheckedPacket { lanes, key, packet: &packets[at], layout: &layouts[at], sets }
    }
}

fn holds(checks: &[RuleCheck], subject: &CheckedPacket<'_, '_>) -> bool {
    let mut options = LazyOptions::default();
    checks.iter().all(|check| {
        if check.about_options() { check.holds_for(options.parsed(subject)) } else { check.holds(subject) }
    })
}

/// The groups of rules side by side whose ranges hold for some keys, and each rule evaluated by itself, as parts of a kernel.
struct Spans<'a> {
    side_by_side: &'a SideBySideRules,
    lanes: &'a [Column],
    keys: &'a [u8],
    groups: &'a mut Vec<(u8, RuleSlot)>,
    singles: &'a mut Vec<(u8, RuleSlot)>,
}

impl Kernel for Spans<'_> {
    #[inline(always)]
    fn run(self) {
        let rules = self.side_by_side.rules();
        for &key in self.keys {
            self.side_by_side.find(self.lanes, key, |hits| {
                let holding = (0..8).filter(|at| hits.bits >> at & 1 == 1);
                self.groups
                    .extend(holding.map(|at| (key, RuleSlot::new(hits.slots[at]).expect("it has a rule"))));
            });
            for rule in rules.iter().filter(|rule| rule.spans_hold(self.lanes, key)) {
                self.singles.push((key, rule.slot));
            }
        }
    }
}

/// The rules that hold, by key: at every level the same, and for one key as for many.
fn found(ranged: &Ranged, keys: usize, world: &World<'_>) -> Vec<Vec<RuleSlot>> {
    let numbers: Vec<u8> = (0..keys as u8).collect();
    let mut options = LazyOptions::default();
    let mut found_by = |level: SimdLevel| {
        if let Some(side_by_side) = ranged.side_by_side() {
            let (mut groups, mut singles) = (Vec::new(), Vec::new());
            let (groups, singles) = (&mut groups, &mut singles);
            level.run(Spans { side_by_side, lanes: &world.lanes, keys: &numbers, groups, singles });
            assert_eq!(groups, singles, "side by side as alone");
        }
        let (mut all, mut one) = (vec![Vec::new(); keys], vec![Vec::new(); keys]);
        let subject = |key| world.subject(key);
        ranged.find_all(level, &numbers, subject, &mut options, |key, rule| all[usize::from(key)].push(rule));
        for (&key, one) in numbers.iter().zip(&mut one) {
            ranged.find_all(level, &[key], subject, &mut options, |_, rule| one.push(rule));
            one.sort_unstable();
        }
        all.iter_mut().for_each(|found| found.sort_unstable());
        assert_eq!(one, all, "one key as many");
        all
    };
    let scalar = found_by(SimdLevel::Scalar);
    assert!(SimdLevel::available().into_iter().all(|level| found_by(level) == scalar));
    scalar
}

type Rules = Vec<(RuleSlot, Vec<RuleCheck>)>;

fn expected(rules: &Rules, keys: usize, world: &World<'_>) -> Vec<Vec<RuleSlot>> {
    let holding = |key| {
        let subject = world.subject(key);
        let holding = rules.iter().filter(|(_, checks)| holds(checks, &subject)).map(|rule| rule.0);
        let mut holding: Vec<RuleSlot> = holding.collect();
        holding.sort_unstable();
        holding
    };
    (0..keys as u8).map(holding).collect()
}

/// The slot of the rule of a step.
fn slot(step: usize) -> RuleSlot {
    RuleSlot::new(step as u32 + 1).expect("slots count from 1")
}

/// Applies changes and compares, several times on the way.
fn follow(changes: Vec<Change>, lanes: Vec<Column>, keys: usize) {
    let mut bytes = packets();
    let world = &World::new(lanes, &mut bytes);
    let (mut ranged, mut rules) = (Ranged::default(), Rules::new());
    let every = changes.len() / 4 + 1;
    let mut before = None;
    for (at, change) in changes.into_iter().enumerate() {
        match change {
            Change::Insert(checks) => {
                ranged.insert(RangedRule::new(slot(at), checks.clone()));
                rules.push((slot(at), checks));
            }
            Change::Remove(_) if rules.is_empty() => assert!(!ranged.remove(slot(at))),
            Change::Remove(index) => {
                let (slot, _) = rules.swap_remove(index.index(rules.len()));
                assert!(ranged.remove(slot) && !ranged.remove(slot));
            }
        }
        assert_eq!((ranged.len(), ranged.is_empty()), (rules.len(), rules.is_empty()));
        if at % every == every - 1 {
            let now = expected(&rules, keys, world);
            assert_eq!(found(&ranged, keys, world), now);
            if let Some((clone, then)) = before.replace((ranged.clone(), now)) {
                assert_eq!(found(&clone, keys, world), then, "a clone stays as it was");
            }
        }
    }
    assert_eq!(found(&ranged, keys, world), expected(&rules, keys, world));
}

/// Keys that are looked up: more than a batch.
const KEYS: usize = 40;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn few_rules_are_found_like_by_hand(changes in changes(30), lanes in lanes(KEYS)) {
        follow(changes, lanes, KEYS);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 64, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn many_rules_are_found_like_by_hand(changes in changes(2000), lanes in lanes(KEYS)) {
        follow(changes, lanes, KEYS);
    }
}

/// All but those numbers in which some bits are so: bits that do not begin at the field's lowest one were once taken for
/// others in blocks.
#[test]
fn sets_that_leave_out_flags_are_found() {
    let mut lanes = vec![[0; crate::VECTOR]; 20];
    (0..crate::VECTOR).for_each(|key| lanes[2][key] = ((key as u32 % 16) << 4).to_be());
    let mut changes = Vec::new();
    for mask in 1..16u128 {
        for value in (0..16u128).filter(|value| value & !mask == 0) {
            for inside in [false, true] {
                let numbers: Vec<u128> = (0..16).filter(|n| (n & mask == value) == inside).collect();
                let bounds = mmb_policy::Intervals::of(&numbers);
                // Four bits in the middle of a lane.
                changes.push(Change::Insert(vec![RuleCheck::number(2 * 32 + 24, 4, &bounds, 0)]));
            }
        }
    }
    follow(changes, lanes, KEYS);
}

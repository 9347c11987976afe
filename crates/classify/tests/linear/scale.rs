//! Policies of sizes and shapes that strategies do not draw: very many tuples, very many rules of one key, wide sets, keys
//! that crowd a table.

use crate::world::{Arrival, World, built, names, numbered, rules, slot, sound};
use mmb_base::Id;
use mmb_classify::{ClassifierIndex, RuleSlot, Tuning};
use mmb_packet::LinkType;
use mmb_policy::Rule;
use mmb_random::{RepeatableRandom, Seed};
use mmb_testkit::strategy::PacketBytes;
use mmb_testkit::{Ip4, Tcp, Upper};
use std::fmt::Write;
use std::net::Ipv4Addr;

/// A TCP packet that comes in by the first port.
pub(crate) fn tcp(source: u32, destination: u32, sport: u16, dport: u16, options: &[u8]) -> Arrival {
    let tcp = Tcp { sport, dport, ..Tcp::default() }.raw_options(options);
    let ip = Ip4 {
        source: Ipv4Addr::from_bits(source),
        destination: Ipv4Addr::from_bits(destination),
        ..Ip4::new(Upper::Tcp(tcp))
    };
    (PacketBytes { link: LinkType::Ethernet, bytes: ip.frame().bytes() }, 0)
}

/// Holds a classifier to the plain evaluator.
pub(crate) fn check(index: &ClassifierIndex, rules: &[(RuleSlot, Rule)], arrivals: &[Arrival]) {
    let mut arrivals = arrivals.to_vec();
    let packets = sound(&mut arrivals);
    let world = World::new(&packets);
    let (found, expected) = (world.found(&index.classifier()), world.expected(rules));
    assert!(expected.iter().any(|rules| !rules.is_empty()), "nothing is to be found");
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!(found == expected, "packet {at}: {} rules found, {} expected", found.len(), expected.len());
    }
}

/// Rules each of a mask of its own, and packets of which three in four match one at least.
fn many_masks(count: usize, random: &mut RepeatableRandom) -> (Vec<String>, Vec<Arrival>) {
    let (mut lines, mut arrivals) = (Vec::new(), Vec::new());
    let extras = ["", " ip-dscp 0", " tcp-sport S", " tcp-dport D", " tcp-sport S tcp-dport D", " ip-ttl 64"];
    // Short prefixes last, so that a packet does not match thousands.
    let shapes = (0..32 * 32 * extras.len()).map(|n| (32 - n / 32 % 32, 32 - n % 32, extras[n / 1024]));
    let both = shapes.clone().chain(shapes);
    for (number, (source, destination, extra)) in both.take(count).enumerate() {
        let (from, to) = (random.word() as u32, random.word() as u32);
        let (sport, dport) = (random.below(1 << 16), random.below(1 << 16));
        let mut line = String::from("add");
        let (net, host) = (u32::MAX << (32 - source), u32::MAX << (32 - destination));
        let (net, host) = (Ipv4Addr::from_bits(from & net), Ipv4Addr::from_bits(to & host));
        write!(line, " ip-saddr {net}/{source} ip-daddr {host}/{destination}").expect("strings take all");
        line += &extra.replace('S', &sport.to_string()).replace('D', &dport.to_string());
        // Those that come again tell SYN from others.
        line += if number >= 32 * 32 * extras.len() { " tcp-syn drop" } else { " drop" };
        lines.push(line);
        if number % (count / 96).max(1) == 0 {
            let (from, to) =
                if number % 4 == 3 { (random.word() as u32, random.word() as u32) } else { (from, to) };
            arrivals.push(tcp(from, to, sport as u16, dport as u16, &[]));
        }
    }
    (lines, arrivals)
}

#[test]
fn ten_thousand_tuples_are_searched() {
    let (lines, arrivals) = many_masks(10_000, &mut RepeatableRandom::new(1));
    let rules = rules(&lines);
    assert_eq!(rules.len(), lines.len());
    let index = built(&rules, Tuning::Merged);
    let tables = index.tables();
    // Those whose rules all have crowded relaxed keys count with these.
    let tuples: usize = tables.iter().map(|table| table.tuples).sum();
    assert!((9_000..=10_000).contains(&tuples), "{tuples} tuples");
    // The merger once gave up when the first masks that it tried took nobody in, and left 1,349.
    assert!(tables.len() < 200, "{} tables", tables.len());
    check(&index, &numbered(&rules), &arrivals);
}

#[test]
fn tuples_that_come_one_by_one_are_searched() {
    let (lines, arrivals) = many_masks(1500, &mut RepeatableRandom::new(2));
    let rules = numbered(&rules(&lines));
    let mut index = ClassifierIndex::new(names(), Seed::repeatable(3));
    for (slot, rule) in &rules {
        index.insert(*slot, rule).expect("they name no ports");
    }
    check(&index, &rules, &arrivals);
    // Every other goes.
    let (left, gone): (Vec<_>, Vec<_>) = rules.into_iter().partition(|(slot, _)| slot.number() % 2 == 0);
    gone.iter().for_each(|(slot, rule)| index.remove(*slot, rule));
    check(&index, &left, &arrivals);
}

#[test]
fn a_hundred_thousand_rules_have_one_key() {
    let lines = ["add tcp-dport 80 drop", "add tcp-dport 81 drop"].map(str::to_owned);
    let [one, other] = &rules(&lines)[..] else { panic!("two rules") };
    let rules: Vec<(RuleSlot, Rule)> = (1..=100_000).map(|number| (slot(number), one.clone())).collect();
    let all = rules.iter().map(|(slot, rule)| (*slot, rule));
    let mut index =
        ClassifierIndex::build(all, names(), Seed::repeatable(7), Tuning::Merged).expect("no ports");
    index.insert(slot(100_001), other).expect("no ports");
    assert!(index.classifier().max_matches() >= 100_000);
    let arrivals = [80, 81, 82, 80].map(|port| tcp(1, 2, 3, port, &[]));
    check(&index, &[rules.clone(), vec![(slot(100_001), other.clone())]].concat(), &arrivals);
    // Others go on changing while readers have what was there.
    let before = index.classifier();
    (1..=500).for_each(|number| index.remove(slot(number), one));
    check(&index, &[rules[500..].to_vec(), vec![(slot(100_001), other.clone())]].concat(), &arrivals);
    assert_eq!(before.max_matches(), index.classifier().max_matches());
}

#[test]
fn rules_on_one_key_tell_ranges_apart() {
    let mut random = RepeatableRandom::new(4);
    let lines: Vec<String> = (0..3000)
        .map(|_| {
            let (first, more, ttl) = (random.below(60_000), random.below(3000), random.below(255));
            format!("add tcp-dport 80 tcp-sport {first}-{} ip-ttl != {ttl} drop", first + more)
        })
        .collect();
    let rules = numbered(&rules(&lines));
    let mut index = ClassifierIndex::new(names(), Seed::repeatable(3));
    let arrivals: Vec<Arrival> =
        (0..64).map(|_| tcp(random.word() as u32, 2, random.word() as u32 as u16, 80, &[])).collect();
    let mut left = rules.clone();
    rules.iter().for_each(|(slot, rule)| index.insert(*slot, rule).expect("no ports"));
    check(&index, &left, &arrivals);
    while left.len() > 5 {
        let (slot, rule) = left.swap_remove(random.below(left.len() as u64) as usize);
        index.remove(slot, &rule);
        if left.len().is_multiple_of(1000) {
            check(&index, &left, &arrivals);
        }
    }
    check(
        &index,
        &left,
        &[tcp(1, 2, 100, 80, &[]), tcp(1, 2, 30_000, 80, &[])]
            .into_iter()
            .chain(arrivals)
            .collect::<Vec<_>>(),
    );
}

#[test]
fn sets_of_sixteen_values_are_keys_and_larger_ones_checks() {
    let mut random = RepeatableRandom::new(5);
    let set = |random: &mut RepeatableRandom, values: u32| {
        let values: Vec<String> =
            (0..values).map(|n| (u64::from(n) * 7 + random.below(7)).to_string()).collect();
        format!("{{{}}}", values.join(","))
    };
    let mut lines = Vec::new();
    for (sports, dports) in [(16, 1), (1, 16), (4, 4), (8, 2), (16, 2), (17, 1), (16, 16), (40, 3)] {
        for _ in 0..12 {
            let (sports, dports) = (set(&mut random, sports), set(&mut random, dports));
            lines.push(format!("add tcp-sport {sports} tcp-dport {dports} drop"));
            lines.push(format!("add tcp-sport {sports} tcp-dport != {dports} ip-ttl {{63,64}} drop"));
        }
    }
    let rules = rules(&lines);
    assert_eq!(rules.len(), lines.len());
    let arrivals: Vec<Arrival> =
        (0..200).map(|_| tcp(1, 2, random.below(120) as u16, random.below(30) as u16, &[])).collect();
    let mut index = built(&rules, Tuning::Merged);
    check(&index, &numbered(&rules), &arrivals);
    let (left, gone): (Vec<_>, Vec<_>) =
        numbered(&rules).into_iter().partition(|(slot, _)| slot.number() % 3 == 0);
    gone.iter().for_each(|(slot, rule)| index.remove(*slot, rule));
    check(&index, &left, &arrivals);
}

/// Rules by network and port, of two prefix lengths, that share a table; then those of the longer get keys that agree in
/// all that the shorter's have.
#[test]
fn a_tuple_that_crowds_a_shared_table_moves_out() {
    let mut random = RepeatableRandom::new(6);
    let of = |len: u8, net: u32, port: u16| {
        let net = Ipv4Addr::from_bits(net & u32::MAX << (32 - len));
        format!("add ip-saddr {net}/{len} tcp-dport {port} drop")
    };
    let mut lines = Vec::new();
    for number in 0..200 {
        lines.push(of([16, 26][number % 2], random.word() as u32, number as u16));
    }
    let mut index = built(&rules(&lines), Tuning::Merged);
    assert_eq!(index.tables().iter().map(|table| table.tuples).collect::<Vec<_>>(), [2]);
    // Both are in the crowd: some rules of the shorter prefix, a thousand of the longer, under one /16 and port.
    let crowd = 0x0a0b_0000;
    lines.push(of(16, crowd, 80));
    lines.extend((0..1000).map(|n| of(26, crowd | n << 6, 80)));
    let all = numbered(&rules(&lines));
    for (slot, rule) in &all[200..] {
        index.insert(*slot, rule).expect("no ports");
    }
    let tables = index.tables();
    assert_eq!(tables.iter().map(|table| table.tuples).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(tables.iter().map(|table| table.entries).sum::<usize>(), all.len());
    let mut arrivals: Vec<Arrival> =
        (0..100).map(|_| tcp(crowd | random.below(1 << 16) as u32, 2, 3, 80, &[])).collect();
    arrivals.extend(all[..100].iter().zip(&lines).filter_map(|((slot, _), line)| {
        let net: Ipv4Addr = line.split([' ', '/']).nth(2)?.parse().ok()?;
        Some(tcp(net.to_bits() | 1, 2, 3, (slot.number() - 1) as u16, &[]))
    }));
    check(&index, &all, &arrivals);
    // They go and come again.
    all[201..].iter().for_each(|(slot, rule)| index.remove(*slot, rule));
    check(&index, &all[..201], &arrivals);
    all[201..].iter().for_each(|(slot, rule)| index.insert(*slot, rule).expect("no ports"));
    check(&index, &all, &arrivals);
    all.iter().for_each(|(slot, rule)| index.remove(*slot, rule));
    assert!(index.tables().is_empty() && index.classifier().max_matches() == 0);
}

#[test]
fn a_few_rows_that_grow_move_into_a_table() {
    let lines: Vec<String> = (0..60).map(|port| format!("add tcp-dport {port} ip-ttl 64 drop")).collect();
    let rules = numbered(&rules(&lines));
    let mut index = ClassifierIndex::new(names(), Seed::repeatable(3));
    let arrivals: Vec<Arrival> = (0..64).map(|port| tcp(1, 2, 3, port, &[])).collect();
    for (at, (slot, rule)) in rules.iter().enumerate() {
        index.insert(*slot, rule).expect("no ports");
        check(&index, &rules[..=at], &arrivals);
    }
    assert!(index.tables().iter().all(|table| table.buckets > 0));
}

#[test]
fn options_of_a_full_vector_are_looked_up() {
    let mut random = RepeatableRandom::new(8);
    let mut lines = vec!["add tcp-opt 1 drop".to_owned(), "add tcp-opt 0 drop".to_owned()];
    for kind in 2..=40 {
        lines.push(format!("add tcp-opt {kind} drop"));
        lines.push(format!("add tcp-opt {kind} {} drop", random.below(4)));
        lines.push(format!("add tcp-dport 80 tcp-opt {kind} {} drop", random.below(4)));
        lines.push(format!("add tcp-dport 80 tcp-opt {kind} > {} drop", random.below(4)));
    }
    let rules = rules(&lines);
    let arrivals: Vec<Arrival> = (0..256)
        .map(|number| {
            // Areas full of short options, some that come twice, some that are cut, some all of padding.
            let options: Vec<u8> = match number % 4 {
                0 => (0..13).flat_map(|_| [2 + random.below(39) as u8, 3, random.below(4) as u8]).collect(),
                1 => (0..20).flat_map(|_| [2 + random.below(39) as u8, 2]).collect(),
                2 => [[7, 3, 1], [7, 3, 2], [7, 3, 1]].concat().into_iter().chain([1; 31]).collect(),
                _ => vec![1; random.below(41) as usize],
            };
            tcp(1, 2, 3, 80, &options)
        })
        .collect();
    check(&built(&rules, Tuning::Merged), &numbered(&rules), &arrivals);
}

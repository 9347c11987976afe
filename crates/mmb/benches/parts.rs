//! The parts of the way of a packet, and of a change, each by itself: `cargo bench -p mmb`.
//!
//! Criterion draws samples, tells medians with their confidence and whether they differ from those of the last run. Times
//! are those of whole vectors of 256 packets where packets are concerned, and everything is in the caches: `mmb bench`
//! says what a packet costs that is not.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mmb_base::Id;
use mmb_classify::{ClassifierIndex, RuleNames, RuleSlot, Scratch, Tuning, VECTOR};
use mmb_language::{Print, parse_policy};
use mmb_packet::checksum::ChecksumSum;
use mmb_packet::columns::WantedLanes;
use mmb_packet::parse::vector::{ParseVector, VectorKeys};
use mmb_packet::{Key4, Layout, LinkType, Packet, ParserLimits, PortId, fill_key4, parse};
use mmb_policy::Rule;
use mmb_workload::{Background, FlowPattern, Traffic, Workload, WorkloadKind};
use std::hint::black_box;
use std::time::Duration;

const SEED: u64 = 1;
/// Rules of a set that is searched or changed.
const RULES: usize = 100_000;

/// Frames of one vector.
fn frames(workload: &Workload, background: Background, hit: f64) -> Vec<Vec<u8>> {
    let traffic = Traffic { background, hit, flows: FlowPattern::Distinct, seed: SEED };
    traffic.frames(VECTOR, workload.rules(), workload.size()).frames
}

fn set(kind: WorkloadKind, size: usize, tuples: Option<usize>) -> Workload {
    Workload::new(kind, Some(size), tuples, SEED).expect("a set of that size")
}

/// Views of frames, and their layouts.
fn views(frames: &mut [Vec<u8>]) -> (Vec<Packet<'_>>, Vec<Layout>) {
    let view = |frame| {
        let frame: &mut Vec<u8> = frame;
        let len = frame.len();
        Packet::new(frame, 0, len, PortId(0), LinkType::Ethernet).expect("fits its buffer")
    };
    let packets: Vec<Packet<'_>> = frames.iter_mut().map(view).collect();
    let layout = |packet| parse::parse(packet, &ParserLimits::default()).expect("sound packets");
    let layouts = packets.iter().map(layout).collect();
    (packets, layouts)
}

/// Parses a vector as the pipeline does.
fn parse_vector(
    keys: &mut VectorKeys,
    layouts: &mut [Layout; VECTOR],
    packets: &[Packet<'_>],
    wanted: WantedLanes,
) -> usize {
    keys.clear();
    keys.take(0, packets);
    keys.parse(ParseVector {
        wanted,
        limits: ParserLimits::default(),
        packets,
        layouts,
        out: |_| PortId(1),
        malformed: |_, why| panic!("{why:?}"),
    })
}

fn packets(c: &mut Criterion) {
    let mut group = c.benchmark_group("packet");
    group.throughput(Throughput::Elements(VECTOR as u64));
    let none = set(WorkloadKind::FiveTuple, 1, None);
    let wanted = index(&none).classifier().wanted();
    for (name, background) in [
        ("udp4", Background::Plain(17, false)),
        ("tcp4", Background::Plain(6, false)),
        ("udp6", Background::Plain(17, true)),
    ] {
        let mut frames = frames(&none, background, 0.0);
        let (packets, layouts) = views(&mut frames);
        group.bench_function(BenchmarkId::new("walk", name), |b| {
            b.iter(|| {
                packets.iter().filter(|packet| parse::parse(packet, &ParserLimits::default()).is_ok()).count()
            });
        });
        let (mut keys, mut found) = (VectorKeys::default(), Box::new([Layout::default(); VECTOR]));
        group.bench_function(BenchmarkId::new("parse", name), |b| {
            b.iter(|| parse_vector(&mut keys, &mut found, &packets, wanted));
        });
        if name != "udp6" {
            let mut keys = vec![Key4::default(); VECTOR];
            group.bench_function(BenchmarkId::new("fill", name), |b| {
                b.iter(|| {
                    for ((packet, layout), key) in packets.iter().zip(&layouts).zip(&mut keys) {
                        fill_key4(packet, layout, PortId(0), PortId(1), key);
                    }
                    black_box(&mut keys);
                });
            });
        }
    }
    group.finish();
    let mut group = c.benchmark_group("checksum");
    for len in [20_usize, 64, 1500] {
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::from_parameter(len), |b| {
            b.iter(|| ChecksumSum::default().bytes(black_box(&bytes)).checksum());
        });
    }
    group.finish();
}

fn index(workload: &Workload) -> ClassifierIndex {
    let ports = RuleNames::new(["a", "b"]);
    ClassifierIndex::build(
        (1..).filter_map(RuleSlot::new).zip(workload.rules()),
        ports,
        mmb_random::Seed::repeatable(SEED),
        Tuning::Merged,
    )
    .expect("no rule names a port")
}

fn lookups(c: &mut Criterion) {
    let mut group = c.benchmark_group("classify");
    group.throughput(Throughput::Elements(VECTOR as u64));
    for (name, workload, hit) in [
        ("five-tuples, missing", set(WorkloadKind::FiveTuple, RULES, None), 0.0),
        ("five-tuples, one match", set(WorkloadKind::FiveTuple, RULES, None), 1.0),
        ("26 tuples, one match", set(WorkloadKind::Tuples, RULES, Some(26)), 1.0),
        ("filters", set(WorkloadKind::AccessList, 10_000, None), 1.0),
        ("1000 ranges", set(WorkloadKind::Ranges, 1000, None), 1.0),
        ("100 options", set(WorkloadKind::Options, 100, None), 0.5),
    ] {
        let classifier = index(&workload).classifier();
        let mut frames = frames(&workload, workload.background(), hit);
        let (packets, _) = views(&mut frames);
        let mut scratch = Scratch::default();
        scratch.fit(classifier.max_matches());
        // As many packets as the worker takes at once where each may match very many rules.
        let parts: Vec<_> = packets
            .chunks(scratch.vector().min(VECTOR))
            .map(|packets| {
                let (mut keys, mut layouts) = (VectorKeys::default(), Box::new([Layout::default(); VECTOR]));
                parse_vector(&mut keys, &mut layouts, packets, classifier.wanted());
                (keys, layouts, packets)
            })
            .collect();
        group.bench_function(name, |b| {
            b.iter(|| {
                for (keys, layouts, packets) in &parts {
                    classifier.classify(keys, packets, &layouts[..packets.len()], &mut scratch);
                }
                black_box(&mut scratch);
            });
        });
    }
    group.finish();
}

fn changes(c: &mut Criterion) {
    let mut group = c.benchmark_group("change");
    for (name, workload) in [
        ("five-tuples", set(WorkloadKind::FiveTuple, RULES, None)),
        ("64 tuples", set(WorkloadKind::Tuples, RULES, Some(64))),
    ] {
        let mut index = index(&workload);
        let slot = RuleSlot::new(RULES as u32 + 1).expect("it is not 0");
        // A rule of a tuple that is there, with other values.
        let other = Workload::new(workload.kind(), Some(RULES), None, SEED + 1).expect("a set of that size");
        let rule: Rule = other.rules().next().expect("it has rules");
        group.bench_function(BenchmarkId::new("insert and remove", name), |b| {
            b.iter(|| {
                index.insert(slot, &rule).expect("no rule names a port");
                index.remove(slot, &rule);
            });
        });
        group.bench_function(BenchmarkId::new("insert and remove, each in force", name), |b| {
            b.iter(|| {
                index.insert(slot, &rule).expect("no rule names a port");
                black_box(index.classifier());
                index.remove(slot, &rule);
                black_box(index.classifier())
            });
        });
    }
    group.finish();
}

fn policies(c: &mut Criterion) {
    let mut group = c.benchmark_group("policy");
    let count = 1000;
    group.throughput(Throughput::Elements(count as u64));
    for kind in [WorkloadKind::FiveTuple, WorkloadKind::AccessList, WorkloadKind::Options] {
        let policy = set(kind, count, None).policy().expect("numbers enough");
        let text = policy.text().to_string();
        group.bench_function(BenchmarkId::new("parse", kind.name()), |b| {
            b.iter(|| parse_policy(black_box(&text)).is_ok());
        });
        group
            .bench_function(BenchmarkId::new("print", kind.name()), |b| b.iter(|| policy.text().to_string()));
    }
    let policy = set(WorkloadKind::FiveTuple, RULES, None).policy().expect("numbers enough");
    let rule = policy.rules.iter().next().expect("it has rules");
    group.throughput(Throughput::Elements(1));
    group.bench_function("add to a copy of 100,000", |b| {
        b.iter_batched(
            || Rule { id: None, ..rule.clone() },
            |rule| {
                let mut copy = policy.clone();
                copy.add(&rule).map(|_| copy)
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn brief() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
}

criterion_group! {
    name = parts;
    config = brief();
    targets = packets, lookups, changes, policies
}
criterion_main!(parts);

//! Every kind of set: seeds repeat, rules print and parse, packets match the rules that they were generated from.

use mmb_differential::oracle::{OraclePacket, evaluate};
use mmb_engine::{Forward, PortSpec, PortTable};
use mmb_language::{Print, parse_policy};
use mmb_packet::{LinkType, PortId};
use mmb_policy::rule::NumberItem;
use mmb_policy::{FieldId, Policy, Rule, Test};
use mmb_workload::{Background, FlowPattern, Frames, SizeError, Traffic, Workload, WorkloadKind};
use std::collections::{HashMap, HashSet};

const SIZE: usize = 400;

fn small(kind: WorkloadKind) -> Workload {
    let size = (!matches!(kind, WorkloadKind::Empty | WorkloadKind::Rewrite | WorkloadKind::SourceNat))
        .then_some(SIZE);
    Workload::new(kind, size, None, 7).expect("a set of that kind")
}

fn frames(workload: &Workload, hit: f64, count: usize) -> Frames {
    let traffic = Traffic { background: workload.background(), hit, flows: FlowPattern::Distinct, seed: 7 };
    traffic.frames(count, workload.rules(), workload.size())
}

/// The rules of the policy that a frame matches, by the oracle.
fn matches(policy: &Policy, frame: &[u8]) -> usize {
    let port =
        |name: &str, peer| PortSpec { name: name.into(), mtu: None, forward: Forward::Wire(PortId(peer)) };
    let ports = PortTable(vec![port("a", 1), port("b", 0)]);
    let received = OraclePacket { bytes: frame, headroom: 64, port: PortId(0), link: LinkType::Ethernet };
    evaluate(policy, &ports, &received, &mut || 0).matched.len()
}

/// The fields that a rule names, with prefix lengths.
fn shape(rule: &Rule) -> Vec<(FieldId, u8)> {
    let mut shape: Vec<_> = rule
        .matches
        .iter()
        .map(|constraint| {
            // The common place of the ports in TCP and UDP headers.
            let id = match constraint.field.id {
                FieldId::UdpSport => FieldId::TcpSport,
                FieldId::UdpDport => FieldId::TcpDport,
                id => id,
            };
            match &constraint.test {
                Test::Number(_, set) => match set.0[..] {
                    [NumberItem::Prefix(_, len)] => (id, len),
                    _ => (id, 0),
                },
                _ => (id, 0),
            }
        })
        .collect();
    shape.sort_unstable();
    shape
}

#[test]
fn a_seed_gives_the_same_set_and_the_same_packets() {
    for kind in WorkloadKind::all() {
        let workload = small(kind);
        let rules: Vec<Rule> = workload.rules().collect();
        assert_eq!(rules.len(), workload.size(), "{kind:?}");
        assert!(rules.iter().eq(&workload.rules().collect::<Vec<_>>()), "{kind:?}");
        assert_eq!(frames(&workload, 0.5, 200).frames, frames(&workload, 0.5, 200).frames, "{kind:?}");
        assert_eq!(WorkloadKind::named(kind.name()), Some(kind));
        if workload.size() > 1 {
            let other = Workload::new(kind, Some(SIZE), None, 8).expect("a set of that kind");
            assert!(!rules.iter().eq(&other.rules().collect::<Vec<_>>()), "{kind:?}");
        }
    }
}

#[test]
fn rules_parse_to_themselves() {
    for kind in WorkloadKind::all() {
        let policy = small(kind).policy().expect("numbers enough");
        let (parsed, notes) =
            parse_policy(&policy.text().to_string()).unwrap_or_else(|e| panic!("{kind:?}: {e:?}"));
        assert!(notes.is_empty(), "{kind:?}: {notes:?}");
        assert!(parsed == policy, "{kind:?}");
    }
}

#[test]
fn packets_drawn_from_rules_match_them() {
    for kind in WorkloadKind::all().filter(|kind| *kind != WorkloadKind::Empty) {
        let workload = small(kind);
        let policy = workload.policy().expect("numbers enough");
        let Frames { frames, drawn, headers } = frames(&workload, 1.0, 300);
        assert_eq!((drawn, headers), (300, 300), "{kind:?}");
        assert_eq!(frames.iter().collect::<HashSet<_>>().len(), 300, "{kind:?}: twice the same");
        let found: Vec<usize> = frames.iter().map(|frame| matches(&policy, frame)).collect();
        assert!(found.iter().all(|&count| count > 0), "{kind:?}: {found:?}");
        let mean = found.iter().sum::<usize>() as f64 / 300.0;
        let max = match kind {
            WorkloadKind::Clustered | WorkloadKind::Ranges | WorkloadKind::AccessList => 4.0,
            WorkloadKind::Firewall | WorkloadKind::Chain => 12.0,
            _ => 1.1,
        };
        assert!((1.0..max).contains(&mean), "{kind:?}: {mean} matches a packet");
    }
}

#[test]
fn packets_of_the_background_mostly_miss() {
    for kind in [
        WorkloadKind::FiveTuple,
        WorkloadKind::Tuples,
        WorkloadKind::Masks,
        WorkloadKind::Ip6,
        WorkloadKind::Options,
        WorkloadKind::Hostile,
    ] {
        let workload = small(kind);
        let policy = workload.policy().expect("numbers enough");
        let found: usize =
            frames(&workload, 0.0, 300).frames.iter().map(|frame| matches(&policy, frame)).sum();
        assert!(found <= 10, "{kind:?}: {found} of 300");
    }
}

#[test]
fn sets_have_as_many_tuples_as_asked() {
    for (kind, tuples) in [
        (WorkloadKind::FiveTuple, None),
        (WorkloadKind::Tuples, Some(1)),
        (WorkloadKind::Tuples, Some(26)),
        (WorkloadKind::Tuples, Some(256)),
        (WorkloadKind::Ip6, Some(8)),
        (WorkloadKind::Clustered, Some(64)),
        (WorkloadKind::Masks, Some(600)),
        (WorkloadKind::Hostile, None),
    ] {
        let size = (kind != WorkloadKind::Masks && kind != WorkloadKind::Hostile).then_some(5000);
        let workload = Workload::new(kind, size, tuples, 1).expect("a set of that kind");
        let shapes: HashSet<_> = workload.rules().map(|rule| shape(&rule)).collect();
        assert_eq!(shapes.len(), workload.tuples(), "{kind:?}");
    }
    assert_eq!(Workload::new(WorkloadKind::Hostile, None, None, 1).map(|w| w.tuples()), Ok(10_000));
}

#[test]
fn priorities_can_be_distinct_and_nothing_else_changes() {
    let workload = small(WorkloadKind::Tuples);
    let ordered = workload.clone().with_distinct_prio();
    for ((number, rule), plain) in (0..).zip(ordered.rules()).zip(workload.rules()) {
        assert_eq!(rule, Rule { prio: number, ..plain });
    }
}

#[test]
fn what_cannot_be_had_is_refused() {
    let refused = |kind, size, tuples| Workload::new(kind, size, tuples, 0).expect_err("refused");
    assert_eq!(refused(WorkloadKind::Empty, Some(5), None), SizeError::Size(WorkloadKind::Empty));
    assert_eq!(refused(WorkloadKind::FiveTuple, None, Some(5)), SizeError::Tuples(WorkloadKind::FiveTuple));
    assert!(matches!(refused(WorkloadKind::Tuples, None, Some(100_000)), SizeError::TooManyTuples(1000..)));
    assert!(matches!(refused(WorkloadKind::Tuples, None, Some(0)), SizeError::TooManyTuples(_)));
}

#[test]
fn trains_repeat_headers_but_not_packets() {
    let workload = small(WorkloadKind::AccessList);
    let traffic = Traffic { background: Background::Uniform, hit: 1.0, flows: FlowPattern::Trains, seed: 1 };
    let frames = traffic.frames(2000, workload.rules(), workload.size()).frames;
    let heads: HashSet<&[u8]> = frames.iter().map(|frame| &frame[26..34]).collect();
    assert!(heads.len() < 1000, "{} distinct pairs of addresses", heads.len());
    assert_eq!(frames.iter().collect::<HashSet<_>>().len(), 2000);
}

#[test]
fn flows_of_a_zipf_distribution_repeat_headers_but_not_packets() {
    const PACKETS: usize = 20_000;
    const FLOWS: usize = 1000;
    let workload = small(WorkloadKind::Tuples);
    let frames = |skew| {
        let flows = FlowPattern::Zipf { flows: FLOWS, skew };
        let traffic = Traffic { background: workload.background(), hit: 1.0, flows, seed: 1 };
        traffic.frames(PACKETS, workload.rules(), workload.size())
    };
    let Frames { frames: made, headers, drawn } = frames(1.0);
    assert_eq!((headers, drawn), (FLOWS, FLOWS));
    assert_eq!(made, frames(1.0).frames, "a seed gives the same packets");
    assert_eq!(made.iter().collect::<HashSet<_>>().len(), PACKETS, "no two packets are the same");
    let mut of_flow: HashMap<&[u8], usize> = HashMap::new();
    // Both addresses and ports.
    made.iter().for_each(|frame| *of_flow.entry(&frame[26..38]).or_default() += 1);
    let mut sizes: Vec<usize> = of_flow.into_values().collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    // The harmonic number of 1,000 is 7.485: the first flow has 2,672 packets on average, and a flow of rank 1,000 2.7.
    assert!((2500..2850).contains(&sizes[0]), "{} packets of the first flow", sizes[0]);
    assert!((900..=FLOWS).contains(&sizes.len()), "{} flows", sizes.len());
    let mut repeated = 0;
    for pair in made.windows(2) {
        repeated += usize::from(pair[0][26..38] == pair[1][26..38]);
    }
    // The sum of the squares of the shares is 0.029: flows do not come in trains.
    assert!((450..720).contains(&repeated), "{repeated} packets of the flow of the one before");
}

#[test]
fn various_packets_are_of_many_protocols() {
    let traffic =
        Traffic { background: Background::Various, hit: 0.0, flows: FlowPattern::Distinct, seed: 1 };
    let frames = traffic.frames(4000, std::iter::empty(), 0).frames;
    let is_ip6 = |frame: &Vec<u8>| frame[14] >> 4 == 6;
    let proto = |frame: &Vec<u8>| if is_ip6(frame) { frame[20] } else { frame[23] };
    let count = |wanted: &dyn Fn(&Vec<u8>) -> bool| frames.iter().filter(|frame| wanted(frame)).count();
    assert!((900..1100).contains(&count(&is_ip6)));
    for (protocols, range) in
        [(&[6][..], 1850..2150), (&[17], 900..1100), (&[1, 58], 420..580), (&[47, 50, 89, 132], 420..580)]
    {
        let found = count(&|frame| protocols.contains(&proto(frame)));
        assert!(range.contains(&found), "{protocols:?}: {found}");
    }
    let with_options = count(&|frame| !is_ip6(frame) && proto(frame) == 6 && frame[46] >> 4 > 5);
    assert!((600..900).contains(&with_options), "{with_options}");
}

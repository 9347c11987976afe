//! The rule sets, by name.

use crate::allocation::Allocation;
use crate::rules::filters::Flavour;
use crate::rules::tuples::Variety;
use crate::rules::{RuleIter, clustered, equal, filters, options, ranges, rule, tuples};
use crate::traffic::Background;
use mmb_policy::rule::{NumberItem, NumberSet, Write};
use mmb_policy::{Field, FieldId, Policy, PolicyError, Rule, Target};
use mmb_random::RepeatableRandom;

/// A kind of rule set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// No rules.
    Empty,
    /// One rule that rewrites every packet.
    Rewrite,
    /// Exact five-tuples.
    FiveTuple,
    /// Exact five-tuples, stateful.
    Stateful,
    /// The same, and a rule that needs every packet.
    StatefulTtl,
    /// One rule that translates sources.
    SourceNat,
    /// Rules evenly over tuples.
    Tuples,
    /// One rule per tuple.
    Masks,
    /// Prefixes that cluster.
    Clustered,
    /// Port ranges and inequalities.
    Ranges,
    /// TCP options.
    Options,
    /// Rules evenly over tuples, IPv6.
    Ip6,
    /// The maximum number of tuples.
    Hostile,
    /// ClassBench-like access lists.
    AccessList,
    /// ClassBench-like firewalls.
    Firewall,
    /// ClassBench-like IP chains.
    Chain,
}

/// A kind's row in the table of kinds.
struct KindInfo {
    kind: WorkloadKind,
    name: &'static str,
    help: &'static str,
    size: usize,
    tuples: usize,
    hit: f64,
}

const fn row(
    kind: WorkloadKind,
    name: &'static str,
    help: &'static str,
    size: usize,
    tuples: usize,
    hit: f64,
) -> KindInfo {
    KindInfo { kind, name, help, size, tuples, hit }
}

/// The name and the defaults of each kind. Tuples of 0: the kind has a fixed number of tuples.
const KINDS: [KindInfo; 16] = [
    row(WorkloadKind::Empty, "empty", "no rules", 0, 0, 0.0),
    row(WorkloadKind::Rewrite, "rewrite", "one rule that writes a field of every packet", 1, 0, 0.0),
    row(WorkloadKind::FiveTuple, "five-tuple", "exact five-tuples, none matching", 100_000, 1, 0.0),
    row(WorkloadKind::Stateful, "stateful", "stateful rules, one for each five-tuple", 100_000, 1, 1.0),
    row(
        WorkloadKind::StatefulTtl,
        "stateful-ttl",
        "the same, and one rule that every packet must pass: ip-ttl 1 drop",
        100_000,
        1,
        1.0,
    ),
    row(WorkloadKind::SourceNat, "snat", "one stateful rule that translates every IPv4 source", 1, 0, 0.0),
    row(
        WorkloadKind::Tuples,
        "tuples",
        "rules evenly over tuples: prefix lengths, ports, protocol",
        1_000_000,
        64,
        1.0,
    ),
    row(WorkloadKind::Masks, "masks", "one rule a tuple, none matching", 64, 64, 0.0),
    row(
        WorkloadKind::Clustered,
        "clustered",
        "pairs of prefixes that cluster like addresses in use",
        1_000_000,
        64,
        1.0,
    ),
    row(WorkloadKind::Ranges, "ranges", "port ranges and inequalities in random combination", 1000, 0, 1.0),
    row(WorkloadKind::Options, "options", "TCP options of random kind and value", 100, 0, 0.5),
    row(WorkloadKind::Ip6, "ip6", "IPv6 rules evenly over tuples", 1_000_000, 8, 1.0),
    row(
        WorkloadKind::Hostile,
        "hostile",
        "one rule a tuple, more tuples than anybody needs",
        10_000,
        10_000,
        0.0,
    ),
    row(WorkloadKind::AccessList, "acl", "filters like ClassBench's access lists", 10_000, 0, 1.0),
    row(WorkloadKind::Firewall, "fw", "filters like ClassBench's firewalls", 10_000, 0, 1.0),
    row(WorkloadKind::Chain, "ipc", "filters like ClassBench's IP chains", 10_000, 0, 1.0),
];

impl WorkloadKind {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = WorkloadKind> {
        KINDS.iter().map(|row| row.kind)
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<WorkloadKind> {
        KINDS.iter().find(|row| row.name == name).map(|row| row.kind)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// A short description.
    pub fn help(self) -> &'static str {
        self.row().help
    }

    /// The default share of packets that match rules.
    pub fn hit(self) -> f64 {
        self.row().hit
    }

    fn row(self) -> &'static KindInfo {
        &KINDS[self as usize]
    }

    fn variety(self) -> Option<Variety> {
        match self {
            WorkloadKind::FiveTuple
            | WorkloadKind::Stateful
            | WorkloadKind::StatefulTtl
            | WorkloadKind::Tuples
            | WorkloadKind::Masks => Some(Variety::Usual),
            WorkloadKind::Ip6 => Some(Variety::Usual6),
            WorkloadKind::Hostile => Some(Variety::Hostile),
            _ => None,
        }
    }
}

/// Why a set of this kind and size is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// The size of that kind is fixed.
    Size(WorkloadKind),
    /// The number of tuples of that kind is fixed.
    Tuples(WorkloadKind),
    /// The maximum is smaller.
    TooManyTuples(usize),
}

impl std::fmt::Display for SizeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SizeError::Size(kind) => write!(f, "a set of {} has always the same size", kind.name()),
            SizeError::Tuples(kind) => write!(f, "a set of {} has no choice of tuples", kind.name()),
            SizeError::TooManyTuples(max) => write!(f, "a set of this kind and size has 1 to {max} tuples"),
        }
    }
}

impl std::error::Error for SizeError {}

/// A rule set that can be generated repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    kind: WorkloadKind,
    size: usize,
    tuples: usize,
    seed: u64,
    /// Every rule has a priority of its own.
    distinct_prio: bool,
}

impl Workload {
    /// A set of a kind; the defaults of the kind apply to a missing size or number of tuples.
    ///
    /// # Errors
    /// The set is impossible.
    pub fn new(
        kind: WorkloadKind,
        size: Option<usize>,
        tuples: Option<usize>,
        seed: u64,
    ) -> Result<Workload, SizeError> {
        let row = kind.row();
        let one_a_tuple = matches!(kind, WorkloadKind::Masks | WorkloadKind::Hostile);
        if size.is_some()
            && matches!(kind, WorkloadKind::Empty | WorkloadKind::Rewrite | WorkloadKind::SourceNat)
        {
            return Err(SizeError::Size(kind));
        }
        if tuples.is_some()
            && (row.tuples == 0
                || matches!(
                    kind,
                    WorkloadKind::FiveTuple | WorkloadKind::Stateful | WorkloadKind::StatefulTtl
                ))
        {
            return Err(SizeError::Tuples(kind));
        }
        let size = size.or(tuples.filter(|_| one_a_tuple)).unwrap_or(row.size);
        let tuples = tuples.unwrap_or(if one_a_tuple { size } else { row.tuples });
        let max = match kind.variety() {
            Some(variety) => variety.max_tuples(size),
            None if kind == WorkloadKind::Clustered => clustered::max_tuples(),
            None => 0,
        };
        if row.tuples > 0 && !(1..=max).contains(&tuples) {
            return Err(SizeError::TooManyTuples(max));
        }
        Ok(Workload { kind, size, tuples, seed, distinct_prio: false })
    }

    /// The same set, with a distinct priority for every rule, in their order.
    #[must_use]
    pub fn with_distinct_prio(self) -> Workload {
        Workload { distinct_prio: true, ..self }
    }

    /// Its kind.
    pub fn kind(&self) -> WorkloadKind {
        self.kind
    }

    /// The number of rules.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The number of tuples of its rules; 0 if it is fixed.
    pub fn tuples(&self) -> usize {
        self.tuples.min(self.size)
    }

    /// The rules, from the first one.
    pub fn rules(&self) -> Box<dyn Iterator<Item = Rule> + Send> {
        let rules = self.rules_of_kind();
        if !self.distinct_prio {
            return rules;
        }
        Box::new((0..).zip(rules).map(|(prio, rule)| Rule { prio, ..rule }))
    }

    fn rules_of_kind(&self) -> RuleIter {
        let random = self.random("rules");
        match self.kind {
            WorkloadKind::Empty => Box::new(std::iter::empty()),
            WorkloadKind::Rewrite => Box::new(std::iter::once(rewrite())),
            WorkloadKind::SourceNat => Box::new(std::iter::once(source_nat())),
            WorkloadKind::Stateful => self.stateful(self.size, random),
            WorkloadKind::StatefulTtl => {
                let last = rule(vec![equal(FieldId::IpTtl, 1)]);
                Box::new(self.stateful(self.size - 1, random).chain(std::iter::once(last)))
            }
            WorkloadKind::FiveTuple | WorkloadKind::Tuples | WorkloadKind::Masks => {
                tuples::rules(Variety::Usual, self.size, self.tuples, random)
            }
            WorkloadKind::Ip6 => tuples::rules(Variety::Usual6, self.size, self.tuples, random),
            WorkloadKind::Hostile => tuples::rules(Variety::Hostile, self.size, self.tuples, random),
            WorkloadKind::Clustered => clustered::rules(self.allocation(), self.size, self.tuples, random),
            WorkloadKind::Ranges => ranges::rules(self.size, random),
            WorkloadKind::Options => options::rules(self.size, random),
            WorkloadKind::AccessList => filters::rules(Flavour::AccessList, self.size, random),
            WorkloadKind::Firewall => filters::rules(Flavour::Firewall, self.size, random),
            WorkloadKind::Chain => filters::rules(Flavour::Chain, self.size, random),
        }
    }

    /// Stateful rules that accept.
    fn stateful(&self, size: usize, random: RepeatableRandom) -> RuleIter {
        let rules = tuples::rules(Variety::Usual, size, self.tuples, random);
        Box::new(rules.map(|rule| Rule { stateful: true, targets: vec![Target::Accept], ..rule }))
    }

    /// The rules as a policy, numbered from 1.
    ///
    /// # Errors
    /// There are more rules than a policy can number.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        let mut policy = Policy::default();
        for rule in self.rules() {
            policy.add(&rule)?;
        }
        Ok(policy)
    }

    /// The packets of the set that do not match its rules.
    pub fn background(&self) -> Background {
        match self.kind {
            WorkloadKind::Ip6 => Background::Uniform6,
            WorkloadKind::Options => Background::Options,
            WorkloadKind::Clustered => Background::Clustered(self.allocation()),
            WorkloadKind::Ranges => Background::Lengths,
            _ => Background::Uniform,
        }
    }

    fn allocation(&self) -> Allocation {
        Allocation::new(&mut self.random("allocation"))
    }

    fn random(&self, purpose: &str) -> RepeatableRandom {
        RepeatableRandom::for_purpose(self.seed, purpose)
    }
}

/// Both checksums depend on an address.
fn rewrite() -> Rule {
    let write = Target::Mod(Field::new(FieldId::IpDaddr), Write::Number(0xc000_0201));
    Rule { targets: vec![write], ..rule(vec![equal(FieldId::NetProto, 4)]) }
}

/// A pool of 256 addresses for all connections.
fn source_nat() -> Rule {
    let pool = NumberSet(vec![NumberItem::Prefix(0xc633_6400, 24)]);
    let targets = vec![Target::Map(Field::new(FieldId::IpSaddr), pool)];
    Rule { stateful: true, targets, ..rule(vec![equal(FieldId::NetProto, 4)]) }
}

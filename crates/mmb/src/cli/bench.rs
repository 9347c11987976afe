//! The command line of `mmb bench`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use mmb_workload::{SizeError, Workload, WorkloadKind};
use std::path::PathBuf;

const MORE: &str = "\
The rules are those of a policy, of a ClassBench filter file, or of a generated set; the same seed gives the same \
rules and packets. With --write-rules or --write-pcap, mmb writes them and measures nothing.

Sets:";

/// `mmb bench`
#[derive(Debug, Args)]
#[command(
    override_usage = "mmb bench --rules FILE [OPTIONS]\n       \
                      mmb bench --workload SET [--size N] [--tuples N] [OPTIONS]\n       \
                      mmb bench --filters FILE [OPTIONS]\n       \
                      mmb bench --workload streams [--flows N] [--only TEXT] [OPTIONS]",
    after_help = sets()
)]
pub(crate) struct BenchArgs {
    /// The source of the rules.
    #[command(flatten)]
    pub(crate) source: BenchSource,
    /// The number of rules of the generated set; without it, the set's default
    #[arg(long, value_name = "N", requires = "workload", conflicts_with_all = ["rules", "filters"], value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    pub(crate) size: Option<u32>,
    /// The number of tuples of the generated set: distinct masks of its rules
    #[arg(long, value_name = "N", requires = "workload", conflicts_with_all = ["rules", "filters"], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) tuples: Option<u32>,
    /// The number of connections of the set `streams`; without it, 1000
    #[arg(long, value_name = "N", requires = "workload", conflicts_with_all = ["rules", "filters"], value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) flows: Option<u32>,
    /// Only the rows of the set `streams` whose name contains this
    #[arg(long, value_name = "TEXT", requires = "workload", conflicts_with_all = ["rules", "filters"])]
    pub(crate) only: Option<String>,
    /// Give every rule a priority of its own, in their order
    #[arg(long, requires = "workload", conflicts_with_all = ["rules", "filters"])]
    pub(crate) distinct_prio: bool,
    /// Add a rule, as in a policy with or without `add`; packets are drawn from the other rules only. Can be given several times
    #[arg(long, value_name = "RULE")]
    pub(crate) with: Vec<String>,
    /// Use the packets of this capture instead of generated ones
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pcap: Option<PathBuf>,
    /// The number of distinct packets to generate, or the most to take from the capture
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) packets: u32,
    /// The kind of packets that are not drawn from the rules; without it, that of the set, or mixed
    #[arg(long, value_enum, conflicts_with = "pcap")]
    pub(crate) traffic: Option<TrafficArg>,
    /// The share of packets that are drawn from the rules, 0 to 1: each matches a random rule and is otherwise random
    #[arg(long, value_name = "SHARE", conflicts_with = "pcap", value_parser = share)]
    pub(crate) hit: Option<f64>,
    /// Repeat each packet in trains of Pareto-distributed lengths
    #[arg(long, conflicts_with = "pcap")]
    pub(crate) locality: bool,
    /// Give each packet one of N random headers, by Zipf's law, instead of a header of its own
    #[arg(long, value_name = "N", conflicts_with_all = ["pcap", "locality"], value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) zipf: Option<u32>,
    /// The exponent of --zipf, 0 to 4: the r-th header has a share of the packets in proportion to 1 / r^S; with 0, all have the same
    #[arg(long, value_name = "S", requires = "zipf", default_value_t = 1.0, value_parser = skew)]
    pub(crate) skew: f64,
    /// The order of the packets in the measured rounds; without it, random for generated packets, and creation for captures and --locality
    #[arg(long, value_enum, conflicts_with = "updates")]
    pub(crate) order: Option<OrderArg>,
    /// Let the other ends never answer
    #[arg(long, conflicts_with = "updates")]
    pub(crate) one_way: bool,
    /// Let every second packet of the measured rounds be an answer of the other end
    #[arg(long, conflicts_with_all = ["updates", "one_way", "new_connections"])]
    pub(crate) half_replies: bool,
    /// End all connections between rounds, so that each round creates them again
    #[arg(long, conflicts_with = "updates")]
    pub(crate) new_connections: bool,
    /// The number of packet threads; several are measured one by one and then together, each on its own core
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["updates", "rounds"], value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: u16,
    /// The algorithm that finds rules
    #[arg(long, value_enum, default_value_t = ClassifierArg::Merged)]
    pub(crate) classifier: ClassifierArg,
    /// Use the flow cache where it pays, as `set flow-cache auto` does; without it, every packet is searched for, whatever the policy says
    #[arg(long)]
    pub(crate) flow_cache: bool,
    /// Measure changes of the policy while packets are forwarded
    #[arg(long, conflicts_with_all = ["rounds", "pcap"])]
    pub(crate) updates: bool,
    /// The number of changes in the long run of --updates
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "updates")]
    pub(crate) changes: u32,
    /// The approximate time to measure (with --updates, for each rate of changes)
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Measure this many rounds over all packets instead
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: Option<u16>,
    /// The seed of the generated rules and packets and of the percentages of drop
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Write the rules as a policy file, and measure nothing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) write_rules: Option<PathBuf>,
    /// Write the packets as a capture, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with = "pcap", value_hint = ValueHint::FilePath)]
    pub(crate) write_pcap: Option<PathBuf>,
}

/// The source of the rules of a measurement.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct BenchSource {
    /// The policy file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) rules: Option<PathBuf>,
    /// A generated set
    #[arg(long, value_name = "SET", value_parser = kinds(), hide_possible_values = true)]
    pub(crate) workload: Option<WorkloadArg>,
    /// A ClassBench filter file, plain or compressed with xz; the first line has the best priority
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) filters: Option<PathBuf>,
}

impl BenchArgs {
    /// Returns the generated set, if the command line has one.
    ///
    /// # Errors
    /// The set does not exist in that size or with that number of tuples.
    pub(crate) fn workload(&self) -> Result<Option<Workload>, SizeError> {
        let count = |number: Option<u32>| number.map(|number| number as usize);
        let new = |kind| {
            let workload = Workload::new(kind, count(self.size), count(self.tuples), self.seed)?;
            Ok(if self.distinct_prio { workload.with_distinct_prio() } else { workload })
        };
        let kind = self.source.workload.and_then(WorkloadArg::rules);
        kind.map(new).transpose()
    }
}

/// A generated set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkloadArg {
    /// Rules, and packets for them.
    Rules(WorkloadKind),
    /// Policies for the bytes of connections, all with the same connections.
    Streams,
}

impl WorkloadArg {
    const STREAMS: (&'static str, &'static str) =
        ("streams", "TCP connections that send, under policies on their bytes, one after the other");

    fn all() -> impl Iterator<Item = WorkloadArg> {
        WorkloadKind::all().map(WorkloadArg::Rules).chain([WorkloadArg::Streams])
    }

    fn name(self) -> &'static str {
        self.rules().map_or(WorkloadArg::STREAMS.0, WorkloadKind::name)
    }

    fn help(self) -> &'static str {
        self.rules().map_or(WorkloadArg::STREAMS.1, WorkloadKind::help)
    }

    fn rules(self) -> Option<WorkloadKind> {
        match self {
            WorkloadArg::Rules(kind) => Some(kind),
            WorkloadArg::Streams => None,
        }
    }
}

/// Packets that `mmb bench` generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TrafficArg {
    /// UDP and TCP in halves, one in eight over IPv6
    Mixed,
    /// The smallest UDP packets over IPv4
    Udp,
    /// TCP over IPv4 with the usual options
    Tcp,
    /// The smallest UDP packets over IPv6
    Udp6,
    /// TCP over IPv6 with the usual options
    Tcp6,
    /// Random headers of UDP and TCP over IPv4
    Uniform,
    /// Random headers of UDP and TCP over IPv6
    Uniform6,
    /// Random headers: half TCP, half of these with timestamps, a quarter UDP, an eighth each ICMP and other protocols; one in four over IPv6
    Various,
}

/// The order of the packets in the measured rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// An order that is independent of the order of creation
    Random,
    /// The order in which the connections were created
    Creation,
}

/// The algorithm that finds rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClassifierArg {
    /// The algorithm that mmb uses
    Merged,
    /// One table for each tuple, all of which are probed: plain tuple-space search, a baseline
    EveryTuple,
    /// Each packet is compared with every rule, compiled but without an index: a baseline for small sets
    Linear,
}

fn kinds() -> impl TypedValueParser<Value = WorkloadArg> {
    let names = WorkloadArg::all().map(|set| PossibleValue::new(set.name()).help(set.help()));
    PossibleValuesParser::new(names)
        .try_map(|name| WorkloadArg::all().find(|set| set.name() == name).ok_or("no such set"))
}

fn sets() -> String {
    let lines = WorkloadArg::all().map(|set| format!("\n  {:<13}{}", set.name(), set.help()));
    format!("{MORE}{}", lines.collect::<String>())
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1".to_owned()),
    }
}

fn skew(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(skew) if (0.0..=4.0).contains(&skew) => Ok(skew),
        _ => Err("an exponent is a number from 0 to 4".to_owned()),
    }
}

//! Changes of the policy while packets are forwarded: their latency, and their cost for a worker.
//!
//! One thread forwards as fast as it can, in rounds over the packets. The other one, which has the engine, changes the policy. To detect that
//! a change is in force, each vector begins with an additional packet, the *probe*, which no rule matches; a rule that drops only this packet
//! is added and deleted, and the worker records when the verdict of the probe changes. The latency is the time from before the change of the
//! policy to the end of the first vector with the new verdict.

use super::arena::Arena;
use super::memory;
use super::report::{BenchOutput, rounded};
use super::source::BenchSet;
use crate::cli::BenchArgs;
use crate::tsc::Tsc;
use anyhow::ensure;
use mmb_engine::{Cycles, VECTOR};
use mmb_engine::{DropReason, Engine, Verdict, Worker};
use mmb_io::cycles;
use mmb_language::Command;
use mmb_packet::LinkType;
use mmb_policy::{Policy, Rule, RuleId};
use mmb_random::RepeatableRandom;
use mmb_workload::PacketHeader;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Packets that are tried as a probe at most.
const MAX_PROBES: usize = 1000;
/// The most and the fewest changes of each kind whose latency is measured: slow changes are measured less often.
const MAX_LATENCIES: usize = 1000;
const MIN_LATENCIES: usize = 5;
/// The number of changes in a large batch.
const BATCH: usize = 1000;
/// Changes per second, and changes in a publication.
const RATES: [(u32, u32); 4] = [(1000, 1), (10_000, 1), (10_000, 10), (10_000, 100)];
/// Settings that size memory, each with a value far from its default.
const SIZES: [&str; 5] = [
    "set conn max 4000000",
    "set limit keys 1048576",
    "set stream memory 1024",
    "set stream max 1000000",
    "set stream per-source 10",
];
/// Regexes of the rule on streams.
const PATTERNS: usize = 30;
/// How often each setting is changed and changed back.
const RESIZES: usize = 10;
/// Vectors after a publication that belong to the change.
const RESIZE_VECTORS: u64 = 16;
/// The time after which a change that no worker sees counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest wait for a publication that uses a sleep.
const SLEEP: Duration = Duration::from_micros(200);

/// The cost of changes.
pub(super) struct UpdateReport {
    rules: usize,
    latencies: Vec<Latency>,
    rates: Vec<Rate>,
    resized: Vec<Resized>,
    /// The changes of the long run, and the resident bytes before it, after it, and at most.
    long_run: (u32, u64, u64, u64),
}

/// The latency of changes, in microseconds.
struct Latency {
    what: String,
    count: usize,
    p50: f64,
    p99: f64,
    max: f64,
}

/// Forwarding while the policy changes.
struct Rate {
    batch: u32,
    wanted: u32,
    achieved: f64,
    mpps: f64,
}

/// The longest vector while something that sizes memory changes, in cycles: the median over several changes.
struct Resized {
    what: &'static str,
    longest: f64,
}

/// The state that the two threads share.
#[derive(Default)]
struct SharedState {
    /// Packets forwarded.
    packets: AtomicU64,
    /// The cycle counter at the last change of the probe's verdict; the lowest bit tells whether it is dropped.
    probe: AtomicU64,
    /// Vectors forwarded, and the cycles of the longest since the control side cleared it.
    vectors: AtomicU64,
    longest: AtomicU64,
    stop: AtomicBool,
}

/// Measures.
///
/// # Errors
/// A change is refused or has no effect.
pub(super) fn run(
    set: &BenchSet,
    engine: Engine,
    mut worker: Worker,
    mut arena: Arena,
    args: &BenchArgs,
) -> anyhow::Result<UpdateReport> {
    ensure!(!set.policy.rules.is_empty(), "{}: there are no rules to change", set.name);
    ensure!(!set.policy.rewrites(), "{}: changes are measured with rules that rewrite nothing", set.name);
    let probe = UpdateProbe::find(&mut worker, args.seed)?;
    let mut arena = with_probe(&mut arena, &probe.frame);
    let shared = SharedState::default();
    let mut control = ControlSide {
        engine,
        ids: set.policy.rules.keys().collect(),
        policy: set.policy.clone(),
        spare: Vec::new(),
        probe: probe.rule,
        random: RepeatableRandom::for_purpose(args.seed, "changes"),
        shared: &shared,
    };
    std::thread::scope(|scope| {
        scope.spawn(|| forward(&mut worker, &mut arena, &shared));
        let report = control.measure(Duration::from_secs_f64(args.seconds), args.changes);
        shared.stop.store(true, Ordering::Relaxed);
        report
    })
}

/// The packet side: forwards until the order to stop. Each vector begins with the probe.
fn forward(worker: &mut Worker, arena: &mut Arena, shared: &SharedState) {
    let mut verdicts = [Verdict::Drop(DropReason::NoBuffer); VECTOR];
    let mut was_dropped = false;
    while !shared.stop.load(Ordering::Relaxed) {
        arena.vectors(|packets| {
            let began = Tsc.now();
            worker.process(0, &Tsc, packets, &mut verdicts);
            shared.longest.fetch_max(Tsc.now() - began, Ordering::Relaxed);
            shared.vectors.fetch_add(1, Ordering::Release);
            let dropped = matches!(verdicts[0], Verdict::Drop(_));
            if dropped != was_dropped {
                was_dropped = dropped;
                shared.probe.store(Tsc.now() & !1 | u64::from(dropped), Ordering::Release);
            }
            shared.packets.fetch_add(packets.len() as u64, Ordering::Relaxed);
        });
    }
}

/// Returns the packets, with the probe at the beginning of each vector.
fn with_probe(arena: &mut Arena, probe: &[u8]) -> Arena {
    let mut with = Arena::default();
    arena.restore();
    for (number, packet) in arena.packets().enumerate() {
        if number % (VECTOR - 1) == 0 {
            with.push(probe, LinkType::Ethernet);
        }
        with.push(packet.bytes(), packet.link);
    }
    with.restore();
    with
}

/// A packet that no rule matches, and the rule for it.
struct UpdateProbe {
    frame: Vec<u8>,
    rule: Rule,
}

impl UpdateProbe {
    /// Finds a probe for the policy in force.
    fn find(worker: &mut Worker, seed: u64) -> anyhow::Result<UpdateProbe> {
        let mut random = RepeatableRandom::for_purpose(seed, "probe");
        let mut address = || random.within(0x0100_0000, 0xdfff_ffff);
        for _ in 0..MAX_PROBES {
            let (source, destination) = (address(), address());
            let header =
                PacketHeader { source, destination, sport: 33_434, dport: 33_434, ..PacketHeader::default() };
            let frame = header.frame();
            let mut arena = Arena::default();
            arena.push(&frame, LinkType::Ethernet);
            arena.restore();
            let mut verdicts = [Verdict::Drop(DropReason::NoBuffer)];
            arena.vectors(|packets| worker.process(0, &Tsc, packets, &mut verdicts));
            if matches!(verdicts[0], Verdict::Send(_)) {
                return Ok(UpdateProbe { frame, rule: drop_rule(source, destination)? });
            }
        }
        anyhow::bail!("the rules drop every packet: no change could be seen")
    }
}

/// Returns the rule that drops a probe.
fn drop_rule(source: u128, destination: u128) -> anyhow::Result<Rule> {
    let [source, destination] = [source, destination].map(|number| Ipv4Addr::from_bits(number as u32));
    let line = format!("add ip-saddr {source} ip-daddr {destination} udp-sport 33434 udp-dport 33434 drop");
    match mmb_language::parse_command(&line) {
        Ok((Command::Add(rule), _)) => Ok(*rule),
        _ => anyhow::bail!("`{line}` is no rule"),
    }
}

/// The control side.
struct ControlSide<'a> {
    engine: Engine,
    policy: Policy,
    /// The rules of the policy, in no order.
    ids: Vec<RuleId>,
    /// Rules that were deleted, to be added again.
    spare: Vec<Rule>,
    probe: Rule,
    random: RepeatableRandom,
    shared: &'a SharedState,
}

impl ControlSide<'_> {
    fn measure(&mut self, time: Duration, changes: u32) -> anyhow::Result<UpdateReport> {
        let rules = self.policy.rules.len();
        let mut latencies = Vec::new();
        for (what, others) in [("alone".to_owned(), 0), (format!("in a batch of {BATCH}"), BATCH - 1)] {
            let (mut added, mut deleted, began) = (Vec::new(), Vec::new(), Instant::now());
            while added.len() < MAX_LATENCIES && (added.len() < MIN_LATENCIES || began.elapsed() < time) {
                let (comes, goes) = self.come_and_go(others)?;
                added.push(comes);
                deleted.push(goes);
            }
            latencies.push(Latency::of(format!("add, {what}"), added));
            latencies.push(Latency::of(format!("del, {what}"), deleted));
        }
        // The speed of the machine may drift: each result is compared with a baseline before and after it.
        let mut rates = vec![self.at_rate(time, 0, 1)?];
        for (wanted, batch) in RATES {
            rates.push(self.at_rate(time, wanted, batch)?);
        }
        rates.push(self.at_rate(time, 0, 1)?);
        let resized = self.resize()?;
        Ok(UpdateReport { rules, latencies, rates, resized, long_run: self.long_run(changes)? })
    }

    /// Changes each setting of [`SIZES`] and the rules on streams, and measures the longest vector during each change. The
    /// first result is that of publications without a difference.
    fn resize(&mut self) -> anyhow::Result<Vec<Resized>> {
        let patterns: Vec<_> = (0..PATTERNS).map(|number| format!("/a{number}[0-9]{{1,20}}b/")).collect();
        let rules = format!(
            "add-stateful ip-saddr 192.0.2.1 tcp-dport 80 stream {{{}}} alert\n\
             add ip-saddr 192.0.2.1 udp-dport 53 limit 10/s per ip-saddr\n",
            patterns.join(", ")
        );
        let with = |text: &str| -> anyhow::Result<Policy> {
            let (parsed, _) =
                mmb_language::parse_policy(text).map_err(|errors| anyhow::anyhow!("{text}: {errors:?}"))?;
            let mut policy = self.policy.clone();
            policy.settings = parsed.settings;
            for rule in parsed.rules.iter() {
                policy.add(&Rule { id: None, ..rule })?;
            }
            Ok(policy)
        };
        let before = with(&rules)?;
        let changes = SIZES.iter().map(|size| Ok((*size, with(&format!("{size}\n{rules}"))?)));
        let nothing = [Ok(("nothing", before.clone())), Ok(("rules on streams", self.policy.clone()))];
        let all = nothing.into_iter().chain(changes).collect::<anyhow::Result<Vec<_>>>()?;
        let mut resized = Vec::new();
        for (what, after) in all {
            let mut longest = Vec::new();
            for _ in 0..RESIZES {
                for policy in [&before, &after] {
                    longest.push(self.longest_vector(policy)? as f64);
                }
            }
            longest.sort_unstable_by(f64::total_cmp);
            resized.push(Resized { what, longest: longest[longest.len() / 2] });
        }
        self.engine.publish(&self.policy)?;
        Ok(resized)
    }

    /// The cycles of the longest vector while a policy comes into force.
    fn longest_vector(&mut self, policy: &Policy) -> anyhow::Result<u64> {
        self.shared.longest.store(0, Ordering::Relaxed);
        self.engine.publish(policy)?;
        let last = self.shared.vectors.load(Ordering::Acquire) + RESIZE_VECTORS;
        while self.shared.vectors.load(Ordering::Acquire) < last {
            std::hint::spin_loop();
        }
        Ok(self.shared.longest.load(Ordering::Relaxed))
    }

    /// Adds the rule of the probe and deletes it again, each time with `others` more changes; returns the microseconds of both.
    fn come_and_go(&mut self, others: usize) -> anyhow::Result<(f64, f64)> {
        let began = Tsc.now();
        let id = self.policy.add(&self.probe)?;
        let comes = self.in_force_after(others, began, true)?;
        let began = Tsc.now();
        self.policy.delete(id)?;
        let goes = self.in_force_after(others, began, false)?;
        Ok((comes, goes))
    }

    fn in_force_after(&mut self, others: usize, began: u64, dropped: bool) -> anyhow::Result<f64> {
        for _ in 0..others {
            self.change()?;
        }
        self.engine.publish(&self.policy)?;
        let waiting = Instant::now();
        let seen = loop {
            let seen = self.shared.probe.load(Ordering::Acquire);
            if seen & 1 == u64::from(dropped) && seen > began {
                break seen;
            }
            ensure!(waiting.elapsed() < PATIENCE, "a change did not come into force");
            std::hint::spin_loop();
        };
        Ok(seen.wrapping_sub(began) as f64 / cycles::hz() as f64 * 1e6)
    }

    /// Alternately deletes a random rule and adds a deleted one again.
    fn change(&mut self) -> anyhow::Result<()> {
        if let Some(rule) = self.spare.pop() {
            self.ids.push(self.policy.add(&rule)?);
            return Ok(());
        }
        let place = self.random.below(self.ids.len() as u64) as usize;
        let id = self.ids.swap_remove(place);
        let rule = self.policy.delete(id)?;
        self.spare.push(Rule { id: None, ..rule });
        Ok(())
    }

    /// Makes changes at a rate for some time, and measures forwarding. If the rate is too high, missed changes are not made up for.
    fn at_rate(&mut self, time: Duration, wanted: u32, batch: u32) -> anyhow::Result<Rate> {
        let (packets, began) = (self.shared.packets.load(Ordering::Relaxed), Instant::now());
        let mut changes = 0;
        if wanted == 0 {
            std::thread::sleep(time);
        } else {
            let step = Duration::from_secs_f64(f64::from(batch) / f64::from(wanted));
            let mut due = began;
            while began.elapsed() < time {
                wait_until(due);
                for _ in 0..batch {
                    self.change()?;
                }
                self.engine.publish(&self.policy)?;
                changes += batch;
                due = (due + step).max(Instant::now() - step);
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let forwarded = self.shared.packets.load(Ordering::Relaxed) - packets;
        let (achieved, mpps) = (f64::from(changes) / seconds, forwarded as f64 / seconds / 1e6);
        Ok(Rate { batch, wanted, achieved, mpps })
    }

    /// Makes many changes as fast as possible; returns the memory before, after and at most.
    fn long_run(&mut self, changes: u32) -> anyhow::Result<(u32, u64, u64, u64)> {
        let before = memory::resident();
        let mut max = before;
        let batch = BATCH as u32;
        for publication in 0..changes.div_ceil(batch) {
            for _ in 0..batch {
                self.change()?;
            }
            self.engine.publish(&self.policy)?;
            if publication % 16 == 0 {
                max = max.max(memory::resident());
            }
        }
        let waiting = Instant::now();
        while self.engine.reclaim() > 0 && waiting.elapsed() < PATIENCE {
            std::thread::sleep(SLEEP);
        }
        let after = memory::resident();
        Ok((changes.next_multiple_of(batch), before, after, max.max(after)))
    }
}

/// Sleeps if the time is long enough, then spins.
fn wait_until(due: Instant) {
    while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        if left > SLEEP { std::thread::sleep(left - SLEEP) } else { std::hint::spin_loop() }
    }
}

impl Latency {
    fn of(what: String, mut times: Vec<f64>) -> Latency {
        times.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).ceil() as usize];
        Latency { what, count: times.len(), p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

impl UpdateReport {
    /// Measures forwarding without changes.
    fn undisturbed(&self) -> f64 {
        let still = self.rates.iter().filter(|rate| rate.wanted == 0);
        let (sum, count) = still.fold((0.0, 0.0), |(sum, count), rate| (sum + rate.mpps, count + 1.0));
        sum / f64::max(count, 1.0)
    }

    /// The cycles of the longest vector without a change.
    fn undisturbed_vector(&self) -> f64 {
        self.resized.first().map_or(1.0, |nothing| nothing.longest.max(1.0))
    }
}

impl BenchOutput for UpdateReport {
    fn json(&self) -> Value {
        let latencies = self.latencies.iter().map(|latency| {
            json!({
                "what": latency.what,
                "count": latency.count,
                "p50_us": rounded(latency.p50),
                "p99_us": rounded(latency.p99),
                "max_us": rounded(latency.max),
            })
        });
        let rates = self.rates.iter().map(|rate| {
            json!({
                "wanted_per_s": rate.wanted,
                "batch": rate.batch,
                "achieved_per_s": rounded(rate.achieved),
                "mpps": rounded(rate.mpps),
                "ratio": rounded(rate.mpps / self.undisturbed()),
            })
        });
        let resized = self.resized.iter().map(|resized| {
            json!({
                "what": resized.what,
                "longest_vector_cycles": rounded(resized.longest),
                "ratio": rounded(resized.longest / self.undisturbed_vector()),
            })
        });
        let (changes, before, after, max) = self.long_run;
        json!({
            "rules": self.rules,
            "in_force": latencies.collect::<Vec<_>>(),
            "throughput": rates.collect::<Vec<_>>(),
            "longest_vector": resized.collect::<Vec<_>>(),
            "long_run": { "changes": changes, "before_bytes": before, "after_bytes": after, "most_bytes": max },
        })
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} rules\n{:<24}{:>8}{:>12}{:>12}{:>12}\n",
            self.rules, "in force after", "changes", "p50 µs", "p99 µs", "max µs"
        );
        for Latency { what, count, p50, p99, max } in &self.latencies {
            let _ = writeln!(text, "{what:<24}{count:>8}{p50:>12.1}{p99:>12.1}{max:>12.1}");
        }
        let _ = writeln!(
            text,
            "{:<24}{:>8}{:>12}{:>12}{:>12}",
            "changes a second", "at once", "achieved", "Mpps", "ratio"
        );
        for rate in &self.rates {
            let ratio = rate.mpps / self.undisturbed();
            let Rate { batch, wanted, achieved, mpps } = rate;
            let _ = writeln!(text, "{wanted:<24}{batch:>8}{achieved:>12.0}{mpps:>12.2}{ratio:>12.3}");
        }
        let _ = writeln!(text, "{:<32}{:>12}{:>12}", "change of", "longest", "ratio");
        for Resized { what, longest } in &self.resized {
            let _ = writeln!(text, "{what:<32}{longest:>12.0}{:>12.2}", longest / self.undisturbed_vector());
        }
        let (changes, before, after, max) = self.long_run;
        let mega = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (before, after, max) = (mega(before), mega(after), mega(max));
        let _ =
            writeln!(text, "{changes} changes: {before:.1} MB before, {after:.1} after, {max:.1} at most");
        text
    }
}

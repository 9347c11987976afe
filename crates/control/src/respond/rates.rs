//! `show rates`: the differences of two readings of the counters, a second apart. Nothing is measured while nobody asks.

use super::{AnswerResult, RULES_AT_ONCE, Responder};
use crate::daemon::Daemon;
use mmb_base::lock;
use mmb_engine::{ConnectionInfo, Count, DropReason, PortCount};
use mmb_language::Print;
use mmb_log::lines::connection_line;
use mmb_policy::{ConnectionFilter, Policy, RuleId};
use mmb_protocol::answer::{
    Answer, ConnectionRate, DropRate, MomentLine, PortRate, Rate, RateLine, RuleRate, WorkerRate,
};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The time between the two readings.
const MOMENT: Duration = Duration::from_secs(1);

/// The most rules, and the most connections, that are told.
const MAX_REPORTED: usize = 50;

/// With more connections than this they are not compared: each takes some hundred bytes for the moment.
const MAX_COMPARED: u64 = 100_000;

/// What counters said.
struct Reading {
    at: Instant,
    cycles: Option<u64>,
    ports: Vec<PortCount>,
    drops: Vec<(DropReason, u64)>,
    /// Packets and cycles of each worker.
    workers: Vec<(u64, u64)>,
    made: u64,
    ended: u64,
    connections: u64,
}

impl Reading {
    fn of(daemon: &Daemon) -> Reading {
        let engine = daemon.engine();
        let worker = |worker: crate::host::WorkerStatus| {
            let stages = engine.worker_stage_counts(usize::from(worker.worker));
            (stages.first().map_or(0, |parse| parse.packets), stages.iter().map(|stage| stage.cycles).sum())
        };
        let summary = engine.connections().summary();
        Reading {
            at: Instant::now(),
            cycles: daemon.host().cycles(),
            ports: engine.port_counts(),
            drops: engine.drops(),
            workers: daemon.host().workers().into_iter().map(worker).collect(),
            made: summary.created,
            ended: summary.closed.iter().map(|(_, count)| count).sum(),
            connections: summary.connections,
        }
    }
}

/// The counts of the rules that have matched.
type RuleCounts = HashMap<RuleId, (Count, Count)>;

/// Packets and bytes of each connection, in both directions, by its worker and its number there.
type ConnectionCounts = HashMap<(u16, u32), ([u64; 2], [u64; 2])>;

impl Responder<'_> {
    /// Tells what happens in a second.
    pub(super) fn rates(&mut self) -> io::Result<AnswerResult> {
        // Readings take memory, as the queue of events of a `monitor` does.
        let mut share = self.context.monitors.share();
        if !share.grow_to(1) {
            return Ok(Err("too many clients run `monitor` or `show rates`; try again".to_owned()));
        }
        self.fold_counters();
        let policy = Arc::clone(self.daemon().policy());
        let before = Reading::of(&self.daemon());
        let rules_before = rule_counts(self.context.daemon, &policy);
        let compared = before.connections <= MAX_COMPARED;
        let mut connections_before = ConnectionCounts::new();
        if compared {
            let mut each = |info: ConnectionInfo| {
                connections_before.insert((info.worker, info.id), (info.packets, info.bytes));
                true
            };
            if let Err(error) = self.table().list(&ConnectionFilter::ALL, &mut each) {
                return Ok(Err(error.to_string()));
            }
        }
        thread::sleep(MOMENT);
        self.fold_counters();
        let after = Reading::of(&self.daemon());
        let rules_after = rule_counts(self.context.daemon, &policy);
        let moment = after.at.duration_since(before.at);
        let mut busiest = Vec::new();
        if compared {
            let mut each = |info: ConnectionInfo| {
                let began = Duration::from_millis(info.age_ms) < moment;
                let then = connections_before.get(&(info.worker, info.id)).filter(|_| !began);
                insert(&mut busiest, info, then.copied().unwrap_or_default());
                true
            };
            if let Err(error) = self.table().list(&ConnectionFilter::ALL, &mut each) {
                return Ok(Err(error.to_string()));
            }
        }
        self.tell(&before, &after)?;
        self.tell_rules(&policy, &rules_before, &rules_after, moment)?;
        for (_, packets, bytes, info) in busiest {
            let rate = |way: usize| rate(packets[way], bytes[way], moment);
            let connection = connection_line(&info, false);
            let line = ConnectionRate { forward: rate(0), reply: rate(1), connection };
            self.send(&Answer::Rate(RateLine::Connection(Box::new(line))))?;
        }
        Ok(Ok(()))
    }

    fn tell(&mut self, before: &Reading, after: &Reading) -> io::Result<()> {
        let moment = after.at.duration_since(before.at);
        let line = MomentLine {
            seconds: thousandths(moment.as_secs_f64()),
            connections: after.connections,
            made_per_s: per_s(since(after.made, before.made), moment),
            ended_per_s: per_s(since(after.ended, before.ended), moment),
            too_many_connections: before.connections > MAX_COMPARED,
        };
        self.send(&Answer::Rate(RateLine::Moment(line)))?;
        let names = self.daemon().host().ports().into_iter().map(|port| port.name);
        let names: Vec<String> = names.collect();
        for (number, name) in names.into_iter().enumerate() {
            let of = |reading: &Reading| reading.ports.get(number).copied().unwrap_or_default();
            let (then, now) = (of(before), of(after));
            let rate = |now: Count, then: Count| {
                rate(since(now.packets, then.packets), since(now.bytes, then.bytes), moment)
            };
            let line = PortRate { name, rx: rate(now.rx, then.rx), tx: rate(now.tx, then.tx) };
            self.send(&Answer::Rate(RateLine::Port(line)))?;
        }
        let elapsed = after.cycles.zip(before.cycles).map(|(now, then)| now.wrapping_sub(then));
        let workers = self.daemon().host().workers();
        for (worker, (then, now)) in workers.into_iter().zip(before.workers.iter().zip(&after.workers)) {
            let busy = now.1.wrapping_sub(then.1);
            let load = elapsed.filter(|elapsed| *elapsed > 0);
            let load = load.map(|elapsed| thousandths((busy as f64 / elapsed as f64).min(1.0)));
            let packets_per_s = per_s(since(now.0, then.0), moment);
            let line = WorkerRate { worker: worker.worker, core: worker.core, packets_per_s, load };
            self.send(&Answer::Rate(RateLine::Worker(line)))?;
        }
        let then: HashMap<&str, u64> =
            before.drops.iter().map(|(reason, count)| (reason.name(), *count)).collect();
        let dropped = |(reason, count): &(DropReason, u64)| {
            (since(*count, then.get(reason.name()).copied().unwrap_or(0)), reason.name())
        };
        let mut drops: Vec<(u64, &str)> = after.drops.iter().map(dropped).filter(|drop| drop.0 > 0).collect();
        drops.sort_by(|a, b| b.cmp(a));
        for (count, reason) in drops {
            let line = DropRate { reason: reason.to_owned(), packets_per_s: per_s(count, moment) };
            self.send(&Answer::Rate(RateLine::Drop(line)))?;
        }
        Ok(())
    }

    fn tell_rules(
        &mut self,
        policy: &Policy,
        before: &RuleCounts,
        after: &RuleCounts,
        moment: Duration,
    ) -> io::Result<()> {
        let difference = |(id, (matched, dropped)): (&RuleId, &(Count, Count))| {
            let (matched_then, dropped_then) = before.get(id).copied().unwrap_or_default();
            let packets = since(matched.packets, matched_then.packets);
            let bytes = since(matched.bytes, matched_then.bytes);
            (packets, bytes, since(dropped.packets, dropped_then.packets), *id)
        };
        let mut rules: Vec<_> = after.iter().map(difference).filter(|rule| rule.0 > 0).collect();
        rules.sort_by(|a, b| (b.0, b.1, a.3).cmp(&(a.0, a.1, b.3)));
        for (packets, bytes, dropped, id) in rules.into_iter().take(MAX_REPORTED) {
            let Some(rule) = policy.rules.get(id) else { continue };
            let line = RuleRate {
                id: id.0,
                rule: rule.text().to_string(),
                matched: rate(packets, bytes, moment),
                dropped_per_s: per_s(dropped, moment),
            };
            self.send(&Answer::Rate(RateLine::Rule(line)))?;
        }
        Ok(())
    }
}

/// Reads the counters of a policy's rules.
fn rule_counts(daemon: &Mutex<Daemon>, policy: &Arc<Policy>) -> RuleCounts {
    let mut counts = RuleCounts::new();
    let ids: Vec<RuleId> = policy.rules.iter().filter_map(|rule| rule.id).collect();
    for ids in ids.chunks(RULES_AT_ONCE) {
        let daemon = lock(daemon);
        for id in ids.iter().filter(|id| daemon.in_force(policy, **id)) {
            let count = daemon.engine().rule_count(*id);
            if count.matched.packets > 0 {
                counts.insert(*id, (count.matched, count.dropped));
            }
        }
    }
    counts
}

/// Inserts a connection among the busiest ones, which are in descending order of their bytes, if it has had packets and is one of them.
fn insert(
    busiest: &mut Vec<(u64, [u64; 2], [u64; 2], ConnectionInfo)>,
    info: ConnectionInfo,
    (packets, bytes): ([u64; 2], [u64; 2]),
) {
    let difference = |now: [u64; 2], then: [u64; 2]| [since(now[0], then[0]), since(now[1], then[1])];
    let (packets, bytes) = (difference(info.packets, packets), difference(info.bytes, bytes));
    let all = bytes[0] + bytes[1];
    let place = busiest.partition_point(|other| other.0 >= all);
    if packets != [0, 0] && place < MAX_REPORTED {
        busiest.insert(place, (all, packets, bytes, info));
        busiest.truncate(MAX_REPORTED);
    }
}

/// Subtracts an earlier value. A counter that has become smaller was cleared since.
fn since(now: u64, then: u64) -> u64 {
    now.checked_sub(then).unwrap_or(now)
}

/// Rounds to three decimals.
fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// A number of events per second, with one decimal.
fn per_s(count: u64, moment: Duration) -> f64 {
    (count as f64 / moment.as_secs_f64() * 10.0).round() / 10.0
}

fn rate(packets: u64, bytes: u64, moment: Duration) -> Rate {
    Rate { packets_per_s: per_s(packets, moment), bytes_per_s: per_s(bytes, moment) }
}

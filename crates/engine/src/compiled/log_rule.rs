//! Compiled rules that tell of packets: what they tell, and how often.
//!
//! Workers share a rule's limit, so that it holds whatever worker its packets come to. Only packets that are told write to it; the others are
//! counted in a cell of their worker.

use crate::rate::{RateCell, RateLimit, Ticks};
use mmb_policy::{Rule, RuleId, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A rule that tells of packets.
#[derive(Debug)]
pub(crate) struct LogRule {
    pub(crate) id: RuleId,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) text: Option<Arc<str>>,
    /// The packets that were told.
    told: RateCell,
    /// By worker: packets that the limit suppressed and whose number is not told yet.
    suppressed: Box<[SuppressedCell]>,
}

/// Packets that a worker did not tell of. In a cache line of its own, since each worker writes its own one.
#[derive(Debug, Default)]
#[repr(align(64))]
struct SuppressedCell(AtomicU64);

/// What becomes of a packet that a rule tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogAdmission {
    /// It is told.
    Told,
    /// It is the first one that this worker suppresses since it has told the number of suppressed ones.
    FirstSuppressed,
    /// It is only counted.
    Suppressed,
}

impl LogRule {
    /// Compiles a rule, for so many workers; `None` if it does not tell of packets.
    pub(super) fn compile(rule: &Rule, workers: usize) -> Option<LogRule> {
        let text = rule.targets.iter().find_map(|target| match target {
            Target::Log(text) => Some(text.as_deref()),
            Target::Mod(..) | Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) => None,
            Target::StripAll | Target::Drop(_) | Target::Reject(_) | Target::Limit(_) | Target::Accept => {
                None
            }
            Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => None,
            Target::Alert(_) | Target::Close | Target::Digest | Target::Edit(_) => None,
            Target::Helper(_) => None,
        })?;
        Some(LogRule {
            id: rule.id.unwrap_or(RuleId(0)),
            name: rule.name.as_deref().map(Arc::from),
            text: text.map(Arc::from),
            told: RateCell::default(),
            suppressed: (0..workers).map(|_| SuppressedCell::default()).collect(),
        })
    }

    /// Decides whether a packet at a worker is told, and counts it if it is not. Without a limit all are.
    pub(crate) fn admit(&self, limit: Option<RateLimit>, worker: usize, now_ns: u64) -> LogAdmission {
        if limit.is_none_or(|limit| self.told.take(&limit, Ticks::of_ns(now_ns))) {
            return LogAdmission::Told;
        }
        let Some(SuppressedCell(cell)) = self.suppressed.get(worker) else { return LogAdmission::Suppressed };
        // Only this worker writes it.
        let before = cell.load(Ordering::Relaxed);
        cell.store(before + 1, Ordering::Relaxed);
        if before == 0 { LogAdmission::FirstSuppressed } else { LogAdmission::Suppressed }
    }

    /// The packets that a worker has suppressed since the last call.
    pub(crate) fn take_suppressed(&self, worker: usize) -> u64 {
        let Some(SuppressedCell(cell)) = self.suppressed.get(worker) else { return 0 };
        let suppressed = cell.load(Ordering::Relaxed);
        cell.store(0, Ordering::Relaxed);
        suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> Option<RateLimit> {
        Some(RateLimit::per_second(10, 20))
    }

    fn rule(workers: usize) -> LogRule {
        let rule = Rule {
            id: Some(RuleId(7)),
            prio: 100,
            name: None,
            stateful: false,
            draining: false,
            matches: Vec::new(),
            targets: vec![Target::Log(None)],
        };
        LogRule::compile(&rule, workers).expect("a rule that tells")
    }

    /// How many of the packets that come every so many ns are told.
    fn told(rule: &LogRule, limit: Option<RateLimit>, from_ns: u64, every_ns: u64, packets: u64) -> usize {
        let times = (0..packets).map(|packet| from_ns + packet * every_ns);
        times.filter(|now_ns| rule.admit(limit, 0, *now_ns) == LogAdmission::Told).count()
    }

    #[test]
    fn the_burst_is_told_at_once_and_then_the_rate() {
        let rule = rule(1);
        assert_eq!(told(&rule, limit(), 0, 0, 1000), 20);
        assert_eq!(rule.take_suppressed(0), 980);
        // A packet a millisecond for ten seconds.
        assert_eq!(told(&rule, limit(), 1_000_000, 1_000_000, 10_000), 100);
        assert_eq!(rule.take_suppressed(0), 9_900);
        assert_eq!(rule.take_suppressed(0), 0);
        // Two seconds later all of the burst is there again.
        assert_eq!(told(&rule, limit(), 13_000_000_000, 0, 30), 20);
    }

    #[test]
    fn no_limit_tells_all() {
        let rule = rule(1);
        assert_eq!(told(&rule, None, 0, 0, 1000), 1000);
        assert_eq!(rule.take_suppressed(0), 0);
    }

    #[test]
    fn workers_share_the_limit_and_count_apart() {
        let rule = rule(2);
        let outcomes: Vec<_> = (0..60).map(|packet| rule.admit(limit(), packet % 2, 5)).collect();
        let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
        assert_eq!(count(LogAdmission::Told), 20);
        assert_eq!(count(LogAdmission::FirstSuppressed), 2, "one at each worker");
        assert_eq!([0, 1].map(|worker| rule.take_suppressed(worker)), [20, 20]);
        assert_eq!(rule.admit(limit(), 1, 5), LogAdmission::FirstSuppressed);
    }
}

//! Compiled rules with `log`: what they log, and how often.
//!
//! Workers share a rule's rate limit, so it applies to all workers together. Only packets that are logged
//! write to the shared cell. Suppressed packets are counted in a cell of their worker.

use crate::rate::{RateCell, RateLimit, Ticks};
use mmb_policy::{Rule, RuleId, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A rule with `log`.
#[derive(Debug)]
pub(crate) struct LogRule {
    pub(crate) id: RuleId,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) text: Option<Arc<str>>,
    /// The state of the rate limit.
    rate_state: RateCell,
    /// By worker: packets that the limit suppressed, and whose number was not reported yet.
    suppressed: Box<[SuppressedCell]>,
}

/// The number of packets that a worker suppressed. On a separate cache line, because each worker
/// writes its cell.
#[derive(Debug, Default)]
#[repr(align(64))]
struct SuppressedCell(AtomicU64);

/// What to do with a packet that matched a rule with `log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogAdmission {
    /// Log the packet.
    Log,
    /// Suppress the packet, the first since this worker last reported the number.
    FirstSuppressed,
    /// Suppress the packet.
    Suppressed,
}

impl LogRule {
    /// Compiles a rule for `workers` workers; `None` if the rule has no `log`.
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
            rate_state: RateCell::default(),
            suppressed: (0..workers).map(|_| SuppressedCell::default()).collect(),
        })
    }

    /// Decides whether a worker logs a packet, and counts a suppressed packet. Without a limit, all packets
    /// are logged.
    pub(crate) fn admit(&self, limit: Option<RateLimit>, worker: usize, now_ns: u64) -> LogAdmission {
        if limit.is_none_or(|limit| self.rate_state.take(&limit, Ticks::from_ns(now_ns))) {
            return LogAdmission::Log;
        }
        let Some(SuppressedCell(cell)) = self.suppressed.get(worker) else { return LogAdmission::Suppressed };
        // Only this worker writes it.
        let before = cell.load(Ordering::Relaxed);
        cell.store(before + 1, Ordering::Relaxed);
        if before == 0 { LogAdmission::FirstSuppressed } else { LogAdmission::Suppressed }
    }

    /// Takes the number of packets that a worker has suppressed since the last call.
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

    /// The number of logged packets, of `packets` packets that arrive every `every_ns` ns from `from_ns` on.
    fn logged(rule: &LogRule, limit: Option<RateLimit>, from_ns: u64, every_ns: u64, packets: u64) -> usize {
        let times = (0..packets).map(|packet| from_ns + packet * every_ns);
        times.filter(|now_ns| rule.admit(limit, 0, *now_ns) == LogAdmission::Log).count()
    }

    #[test]
    fn the_burst_is_told_at_once_and_then_the_rate() {
        let rule = rule(1);
        assert_eq!(logged(&rule, limit(), 0, 0, 1000), 20);
        assert_eq!(rule.take_suppressed(0), 980);
        // One packet per millisecond, for ten seconds.
        assert_eq!(logged(&rule, limit(), 1_000_000, 1_000_000, 10_000), 100);
        assert_eq!(rule.take_suppressed(0), 9_900);
        assert_eq!(rule.take_suppressed(0), 0);
        // Two seconds later, the whole burst is available.
        assert_eq!(logged(&rule, limit(), 13_000_000_000, 0, 30), 20);
    }

    #[test]
    fn no_limit_tells_all() {
        let rule = rule(1);
        assert_eq!(logged(&rule, None, 0, 0, 1000), 1000);
        assert_eq!(rule.take_suppressed(0), 0);
    }

    #[test]
    fn workers_share_the_limit_and_count_apart() {
        let rule = rule(2);
        let outcomes: Vec<_> = (0..60).map(|packet| rule.admit(limit(), packet % 2, 5)).collect();
        let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
        assert_eq!(count(LogAdmission::Log), 20);
        assert_eq!(count(LogAdmission::FirstSuppressed), 2, "one at each worker");
        assert_eq!([0, 1].map(|worker| rule.take_suppressed(worker)), [20, 20]);
        assert_eq!(rule.admit(limit(), 1, 5), LogAdmission::FirstSuppressed);
    }
}

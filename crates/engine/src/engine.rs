//! The control side of the engine.

use crate::counters::{Count, PortCount, StageCount};
use crate::drop::DropReason;
use crate::port::PortTable;
use crate::worker::Worker;
use mmb_policy::{Policy, RuleId};
use mmb_rewrite::NotApplied;

/// Why a policy could not be put in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// A rule names a port that does not exist.
    #[error("rule {}: no port is called '{port}'; the ports are {known}", .rule.0)]
    UnknownPort {
        /// The rule.
        rule: RuleId,
        /// The name.
        port: String,
        /// The names that exist.
        known: String,
    },
    /// A rule needs connections.
    #[error("rule {}: {what} is not available yet", .rule.0)]
    NotAvailable {
        /// The rule.
        rule: RuleId,
        /// What is missing.
        what: &'static str,
    },
}

/// One table of the classifier.
#[derive(Clone, Debug, PartialEq)]
pub struct TableInfo {
    /// The packet class: `ip4`, `ip6`, `other`.
    pub class: &'static str,
    /// The fields that its mask covers, in words: `ip-proto tcp-dport`.
    pub mask: String,
    /// Rules in it.
    pub rules: usize,
    /// Distinct keys of these rules.
    pub entries: usize,
    /// Buckets of its hash index.
    pub buckets: usize,
    /// Used share of the buckets' places, 0 to 1.
    pub load: f64,
}

/// The control side: compiles and publishes policies, reads counters.
pub struct Engine {}

impl Engine {
    /// An engine with an empty policy and its workers. `seed` makes percentages of drops repeatable.
    pub fn new(ports: PortTable, workers: usize, seed: u64) -> (Engine, Vec<Worker>) {
        let _ = (ports, workers, seed);
        (Engine {}, Vec::new())
    }

    /// Puts a policy in force as a whole. Counters of rules whose number and content stay are kept.
    ///
    /// # Errors
    /// What makes the policy impossible here; the policy in force stays.
    pub fn publish(&mut self, policy: &Policy) -> Result<(), PublishError> {
        let _ = policy;
        Ok(())
    }

    /// What a rule has matched.
    pub fn rule_count(&self, id: RuleId) -> Count {
        let _ = id;
        Count::default()
    }

    /// Drops by reason, those above zero.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        Vec::new()
    }

    /// Targets not applied, those above zero.
    pub fn not_applied(&self) -> Vec<(NotApplied, u64)> {
        Vec::new()
    }

    /// What went through the ports, by number.
    pub fn port_counts(&self) -> Vec<PortCount> {
        Vec::new()
    }

    /// What the stages did, in the order of the pipeline.
    pub fn stage_counts(&self) -> Vec<StageCount> {
        Vec::new()
    }

    /// What the stages of one worker did, in the order of the pipeline.
    pub fn worker_stage_counts(&self, worker: usize) -> Vec<StageCount> {
        let _ = worker;
        Vec::new()
    }

    /// The classifier's tables, for people to look at.
    pub fn tables(&self) -> Vec<TableInfo> {
        Vec::new()
    }
}

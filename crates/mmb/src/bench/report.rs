//! Results of measurements, as text and as JSON.

use super::measure::Measured;
use crate::cli::Global;
use crate::output;
use mmb_engine::{FlowCacheCount, VECTOR};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// A measurement.
pub(super) struct BenchReport {
    pub(super) load: PolicyLoad,
    pub(super) measured: Measured,
    /// The average number of rules that a packet matched.
    pub(super) matches: f64,
    /// The flow cache's counters over all rounds, if it was to be used.
    pub(super) flow_cache: Option<FlowCacheCount>,
}

/// The cost of the rules themselves.
#[derive(Default)]
pub(super) struct PolicyLoad {
    pub(super) rules: usize,
    /// Tables of the classifier.
    pub(super) tables: usize,
    /// The SIMD level of the search; empty without a search.
    pub(super) instructions: &'static str,
    /// The time to put the whole policy in force.
    pub(super) publish: Duration,
    /// The memory of the policy.
    pub(super) policy_bytes: u64,
    /// The memory of the compiled policy.
    pub(super) engine_bytes: u64,
}

/// A result.
pub(super) trait BenchOutput {
    /// Returns the JSON form.
    fn json(&self) -> Value;
    /// Returns the text form.
    fn text(&self) -> String;
}

/// Prints a result in the requested form.
pub(super) fn show(global: &Global, report: &impl BenchOutput) {
    if global.json { output::print_json(&report.json()) } else { output::print(&report.text()) }
}

/// Rounds to two decimals, since more would be noise.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// Rounds millions of packets to thousands.
pub(super) fn to_thousands(millions: f64) -> f64 {
    (millions * 1000.0).round() / 1000.0
}

impl PolicyLoad {
    fn per_rule(&self, bytes: u64) -> f64 {
        bytes as f64 / self.rules.max(1) as f64
    }
}

impl BenchOutput for BenchReport {
    fn json(&self) -> Value {
        let (load, measured) = (&self.load, &self.measured);
        let stages = measured
            .stages
            .iter()
            .map(|(name, cycles)| json!({ "name": name, "cycles_per_packet": rounded(*cycles) }));
        let mut value = json!({
            "tsc_hz": measured.tsc_hz,
            "vector": VECTOR,
            "packets": measured.packets,
            "rounds": measured.rounds,
            "stages": stages.collect::<Vec<_>>(),
            "cycles_per_packet": rounded(measured.cycles),
            "mpps": to_thousands(measured.mpps()),
            "median_vector_cycles": measured.median_vector,
            "worst_vector_cycles": measured.worst_vector,
            "worst_first_vector_us": rounded(measured.worst_first_us()),
            "rules": load.rules,
            "tables": load.tables,
            "instructions": load.instructions,
            "matches_per_packet": rounded(self.matches),
            "publish_ms": rounded(load.publish.as_secs_f64() * 1e3),
            "policy_bytes": load.policy_bytes,
            "engine_bytes": load.engine_bytes,
        });
        if let Some(count) = &self.flow_cache {
            let bypassed: Map<String, Value> =
                count.bypasses().map(|(reason, packets)| (reason.to_owned(), json!(packets))).collect();
            value["flow_cache"] = json!({ "hits": count.hits, "misses": count.misses, "bypassed": bypassed });
        }
        value
    }

    fn text(&self) -> String {
        let (load, measured) = (&self.load, &self.measured);
        let mut text = format!(
            "{} rules in {} tables, in force after {:.1} ms; {:.2} matches per packet\n",
            load.rules,
            load.tables,
            load.publish.as_secs_f64() * 1e3,
            self.matches
        );
        // With few rules the difference is dominated by other memory of the program.
        if load.rules >= 10_000 {
            let (policy, engine) = (load.per_rule(load.policy_bytes), load.per_rule(load.engine_bytes));
            let _ = writeln!(text, "{policy:.0} bytes a rule in the policy, {engine:.0} in the engine");
        }
        let _ = write!(
            text,
            "{} packets, {} rounds in vectors of {VECTOR}; cycles of {:.3} GHz",
            measured.packets,
            measured.rounds,
            measured.tsc_hz as f64 / 1e9
        );
        if !load.instructions.is_empty() {
            let _ = write!(text, "; {} instructions", load.instructions);
        }
        text.push('\n');
        for (name, cycles) in &measured.stages {
            let _ = writeln!(text, "{name:<14}{cycles:>10.1} cycles per packet");
        }
        let _ = writeln!(
            text,
            "{:<14}{:>10.1} cycles per packet, {:.2} Mpps",
            "all",
            measured.cycles,
            measured.mpps()
        );
        if let Some(count) = &self.flow_cache {
            let _ = write!(text, "{:<14}{:>10} hits, {} misses", "flow cache", count.hits, count.misses);
            for (reason, packets) in count.bypasses() {
                let _ = write!(text, ", {packets} bypassed ({reason})");
            }
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "{:<14}{:>10.1} times the median one; {:.0} us in the first round, in which tables grow",
            "worst vector",
            measured.worst_vector as f64 / measured.median_vector.max(1) as f64,
            measured.worst_first_us()
        );
        text
    }
}

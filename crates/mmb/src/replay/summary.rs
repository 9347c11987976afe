//! The summary of a replay.

use super::edits::{EditSum, ReplayEdit};
use super::pump::Done;
use crate::output;
use mmb_engine::{Count, Engine, RuleCount};
use mmb_language::Print;
use mmb_policy::Policy;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The counters of a replay; the JSON form has the same names.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    r#in: ReplayCount,
    out: ReplayCount,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    made: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "is_zero")]
    absorbed: u64,
    drops: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    not_applied: BTreeMap<&'static str, u64>,
    rules: Vec<RuleSum>,
    /// The first edits of streams.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    edits: Vec<ReplayEdit>,
    /// All edits of streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    edited: Option<EditSum>,
    /// The error that ended an input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ReplayCount {
    packets: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct RuleSum {
    id: u32,
    rule: String,
    #[serde(flatten)]
    matched: ReplayCount,
    dropped_packets: u64,
    dropped_bytes: u64,
    /// Of rules on streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    hits: Option<u64>,
}

impl From<Count> for ReplayCount {
    fn from(count: Count) -> ReplayCount {
        ReplayCount { packets: count.packets, bytes: count.bytes }
    }
}

impl Summary {
    pub(super) fn collect(done: &Done, engine: &Engine, policy: &Policy) -> Summary {
        let rules = policy.rules.keys().zip(policy.rules.iter()).map(|(id, rule)| {
            let RuleCount { matched, dropped, hits } = engine.rule_count(id);
            RuleSum {
                id: id.0,
                rule: rule.text().to_string(),
                matched: matched.into(),
                dropped_packets: dropped.packets,
                dropped_bytes: dropped.bytes,
                hits: Some(hits).filter(|_| rule.is_stream_rule()),
            }
        });
        Summary {
            r#in: done.received.into(),
            out: done.sent.into(),
            made: engine.generated().into_iter().map(|(kind, n)| (kind.name(), n)).collect(),
            absorbed: engine.absorbed(),
            drops: engine.drops().into_iter().map(|(reason, n)| (reason.name(), n)).collect(),
            not_applied: engine.not_applied().into_iter().map(|(reason, n)| (reason.name(), n)).collect(),
            rules: rules.collect(),
            edits: done.edits.clone(),
            edited: EditSum::new(done.edit_totals, done.edits.len()),
            error: done.error.clone(),
        }
    }

    /// Prints the summary to standard output, or to standard error if a capture goes to standard output.
    pub(super) fn print(&self, json: bool, output_taken: bool) {
        let text = if json { serde_json::json!(self).to_string() + "\n" } else { self.text() };
        if output_taken {
            output::print_error(&text);
        } else {
            output::print(&text);
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, sum: ReplayCount| {
            let _ = writeln!(text, "{name:<8}{:>12} packets {:>15} bytes", sum.packets, sum.bytes);
        };
        line("in", self.r#in);
        line("out", self.out);
        let mut table = |title: &str, counts: &BTreeMap<&str, u64>| {
            for (number, (reason, n)) in counts.iter().enumerate() {
                let title = if number == 0 { title } else { "" };
                let _ = writeln!(text, "{title:<8}{n:>12} {reason}");
            }
        };
        table("made", &self.made);
        if self.absorbed > 0 {
            table("absorbed", &BTreeMap::from([("into streams", self.absorbed)]));
        }
        table("drops", &self.drops);
        table("not done", &self.not_applied);
        if let Some(edited) = &self.edited {
            let _ = writeln!(text, "{edited}");
        }
        if !self.rules.is_empty() {
            let _ = writeln!(text, "{:>8}{:>12}{:>16}{:>12}  rule", "id", "packets", "bytes", "dropped");
        }
        for RuleSum { id, rule, matched, dropped_packets, hits, .. } in &self.rules {
            let ReplayCount { packets, bytes } = matched;
            let hits = hits.map_or(String::new(), |hits| format!("  (hits: {hits})"));
            let _ = writeln!(text, "{id:>8}{packets:>12}{bytes:>16}{dropped_packets:>12}  {rule}{hits}");
        }
        text
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

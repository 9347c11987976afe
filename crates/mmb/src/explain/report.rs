//! An explanation as text and as JSON.

use mmb_client::traced_text;
use mmb_language::Print;
use mmb_policy::{Match, Rule};
use mmb_protocol::answer::TracedLine;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A constraint of a rule that was asked about.
pub(super) struct CheckedConstraint<'r> {
    pub(super) constraint: &'r Match,
    /// Whether it holds; `None`: that depends on the connection or its bytes.
    pub(super) holds: Option<bool>,
}

/// What became of a packet, and why.
pub(super) struct Explanation<'r> {
    /// The packet's number in its capture.
    pub(super) number: Option<usize>,
    /// The packet, as `trace` tells live ones.
    pub(super) packet: TracedLine,
    /// Rules that were asked about, with their constraints.
    pub(super) asked: Vec<(&'r Rule, Vec<CheckedConstraint<'r>>)>,
}

impl Explanation<'_> {
    fn applies(&self, rule: &Rule) -> bool {
        self.packet.outcome.rules.iter().any(|applied| rule.id.is_some_and(|id| id.0 == applied.id))
    }

    /// The explanation for people.
    pub(super) fn text(&self) -> String {
        let mut text = traced_text(&self.packet, self.number);
        for (rule, constraints) in &self.asked {
            let id = rule.id.map_or(0, |id| id.0);
            let applies = if self.applies(rule) { "applies" } else { "does not apply" };
            // Writing to a string does not fail.
            let _ = writeln!(text, "rule {id} {applies}");
            for CheckedConstraint { constraint, holds } in constraints {
                let holds = match holds {
                    Some(true) => "holds",
                    Some(false) => "does not hold",
                    None => "depends on the connection",
                };
                let _ = writeln!(text, "  {}: {holds}", constraint.text());
            }
        }
        text
    }

    /// The same as JSON.
    pub(super) fn json(&self) -> Value {
        let asked = |(rule, constraints): &(&Rule, Vec<CheckedConstraint<'_>>)| {
            let constraints: Vec<Value> = constraints
                .iter()
                .map(|asked| json!({ "constraint": asked.constraint.text().to_string(), "holds": asked.holds }))
                .collect();
            json!({ "id": rule.id.map(|id| id.0), "applies": self.applies(rule), "constraints": constraints })
        };
        let mut explained = json!(self.packet);
        explained["number"] = json!(self.number);
        explained["why_not"] = self.asked.iter().map(asked).collect();
        explained
    }
}

//! Rules whose edits of streams do nothing on connections of another rule, because that is on HTTP: a match could lie in what frames a message.
//!
//! Rules are compared in pairs, as those that [never decide](crate::shadowed): what is found is certain.

use crate::check::conflict::Conjunction;
use mmb_policy::RuleStore;
use mmb_policy::field::StreamPart;
use mmb_policy::rule::{Match, Rule, RuleId, Target};

/// A rule that edits streams, and a rule on HTTP on whose connections it does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentEdit {
    /// The rule.
    pub id: RuleId,
    /// The rule on HTTP.
    pub by: RuleId,
    /// All connections of the rule are those of the rule on HTTP too.
    pub is_always: bool,
}

/// The connections of a rule.
fn connections(rule: &Rule) -> Conjunction {
    let selecting: Vec<Match> =
        rule.matches.iter().filter(|constraint| !constraint.is_of_stream()).cloned().collect();
    Conjunction::of(&selecting)
}

/// Whether a rule has an edit of a part of streams that is meant.
fn edits(rule: &Rule, is_meant: fn(StreamPart) -> bool) -> bool {
    let part =
        |target: &Target| if let Target::Edit(edit) = target { edit.field().stream_part() } else { None };
    rule.targets.iter().filter_map(part).any(is_meant)
}

fn edits_streams(rule: &Rule) -> bool {
    edits(rule, |part| !part.is_http())
}

fn is_on_http(rule: &Rule) -> bool {
    let is_http = |constraint: &Match| constraint.field.stream_part().is_some_and(StreamPart::is_http);
    rule.matches.iter().any(is_http) || edits(rule, StreamPart::is_http)
}

/// Returns the rules of a policy that edit streams and have connections with rules on HTTP: where all of one rule's are the other's, by id, each
/// with one of those on HTTP. The search ends after `budget` pairs.
pub fn silent_edits(rules: &RuleStore, budget: usize) -> Vec<SilentEdit> {
    let of = |is_meant: fn(&Rule) -> bool| {
        let meant = rules.iter().filter(is_meant);
        meant.filter_map(|rule| Some((rule.id?, connections(&rule)))).collect::<Vec<_>>()
    };
    let (edits, on_http) = (of(edits_streams), of(is_on_http));
    if edits.len().saturating_mul(on_http.len()) > budget {
        return Vec::new();
    }
    let silent = |(id, edited): &(RuleId, Conjunction)| {
        let by = |is_always: bool| {
            let has_all = |(_, http): &&(RuleId, Conjunction)| match is_always {
                true => edited.implies(http),
                false => http.implies(edited),
            };
            on_http.iter().find(has_all).map(|(by, _)| SilentEdit { id: *id, by: *by, is_always })
        };
        by(true).or_else(|| by(false))
    };
    let mut found: Vec<SilentEdit> = edits.iter().filter_map(silent).collect();
    found.sort_by_key(|silent| silent.id);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_policy;

    fn found(text: &str) -> Vec<(u32, u32, bool)> {
        let (policy, _) = parse_policy(text).expect("a policy");
        let silent = silent_edits(&policy.rules, 100);
        silent.into_iter().map(|edit| (edit.id.0, edit.by.0, edit.is_always)).collect()
    }

    #[test]
    fn edits_beside_rules_on_http_are_found() {
        const EDIT: &str = "add-stateful tcp-dport 80 stream \"x\" mask stream\n";
        let beside = |rule: &str| found(&format!("{EDIT}{rule}"));
        assert_eq!(beside("add-stateful tcp-dport 80 http-body \"y\" strip http-body"), [(1, 2, true)]);
        assert_eq!(beside("add-stateful tcp-dport {80, 81} http-host \"y\" close"), [(1, 2, true)]);
        assert_eq!(
            beside("add-stateful tcp-dport 80 ip-saddr 10.0.0.0/8 http add http-header \"a\" \"b\""),
            [(1, 2, false)]
        );
        // Other connections, and rules on streams of which none is on HTTP.
        assert_eq!(beside("add-stateful tcp-dport 81 http-body \"y\" strip http-body"), []);
        assert_eq!(beside("add-stateful tcp-dport 80 stream \"y\" strip stream"), []);
        assert_eq!(
            found("add-stateful tcp-dport 80 stream \"x\" close\nadd-stateful tcp-dport 80 http alert"),
            []
        );
    }
}

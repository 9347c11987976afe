//! Constraints on streams for drawn rules, and their targets. Whether a stream satisfies them is not drawn.

use super::{Draw, RuleOptions};
use crate::field::{Field, FieldId};
use crate::pattern::{PatternItem, Regex};
use crate::rule::{DropRate, Match, Target, Test};

/// Regexes of several forms.
const REGEXES: [&str; 7] = ["cmd\\.exe", "a/b#\"", "[^>]{0,9}x", "\\xff.\\\\", "^GET ", "a|b+", "\\{,\\}"];

/// Has the targets of a rule fit its constraints.
pub(super) fn fit(matches: &[Match], targets: &mut Vec<Target>) {
    if !matches.iter().any(Match::is_of_stream) {
        targets.retain(|target| !matches!(target, Target::Alert(_) | Target::Close));
        return;
    }
    targets.retain(|target| *target != Target::Accept);
    for target in targets.iter_mut().filter(|target| matches!(target, Target::Drop(_))) {
        *target = Target::Drop(DropRate::ALL);
    }
    if !targets.iter().any(|target| matches!(target, Target::Alert(_) | Target::Close | Target::Drop(_))) {
        targets.push(Target::Alert(None));
    }
}

impl Draw {
    /// A constraint on a stream.
    pub(super) fn stream_constraint(&self, field: Field, options: &RuleOptions) -> Match {
        let is_name = field.id == FieldId::TlsSni;
        let number = 1 + self.small[2] % 3;
        let items =
            (0..number).map(|at| self.pattern(self.small[0].wrapping_add(at), is_name, options)).collect();
        Match { negated: self.negated && is_name, field, test: Test::Patterns(items) }
    }

    fn pattern(&self, which: u8, is_name: bool, options: &RuleOptions) -> PatternItem {
        match which % 4 {
            0 if !options.lists.is_empty() => {
                PatternItem::List(options.lists[usize::from(which / 4) % options.lists.len()].clone())
            }
            0 | 1 => {
                let source = REGEXES[usize::from(which / 4) % REGEXES.len()].to_owned();
                PatternItem::Regex(Regex { source, ignores_case: self.negated })
            }
            _ if is_name => {
                let dot = if which & 4 == 0 { "." } else { "" };
                PatternItem::Text(format!("{dot}w-{which}.Example").into_bytes())
            }
            _ if self.bytes.is_empty() => PatternItem::Text(vec![which]),
            _ => PatternItem::Text(self.bytes.clone()),
        }
    }

    /// A target that acts on a stream.
    pub(super) fn stream_target(&self) -> Target {
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~');
        match self.small[0] % 4 {
            0 => Target::Close,
            1 => Target::Digest,
            2 if !self.bytes.is_empty() && self.bytes.iter().all(is_plain) => {
                Target::Alert(Some(String::from_utf8_lossy(&self.bytes).into_owned()))
            }
            _ => Target::Alert(None),
        }
    }
}

//! Compiled edits of streams: the bytes with which a rule replaces its matches.

use super::publish_error::PublishError;
use mmb_classify::RuleSlot;
use mmb_policy::field::StreamPart;
use mmb_policy::pattern::{PatternItem, Regex};
use mmb_policy::rule::{Match, Prio, StreamEdit, Target};
use mmb_policy::{Policy, Replacement, ReplacementPart, Rule, RuleId};
use mmb_scan::{EditPatterns, Pattern, PatternKind, SetSource};

/// The most bytes of a match's replacement.
pub(crate) const MAX_REPLACEMENT_BYTES: usize = 64 << 10;

/// The part of streams on which a constraint matches.
pub(super) fn part(constraint: &Match) -> Option<StreamPart> {
    constraint.field.stream_part()
}

/// Whether a constraint matches on the initiator's bytes, and on the responder's. Constraints on HTTP match
/// on messages instead.
pub(super) fn directions(constraint: &Match) -> [bool; 2] {
    match part(constraint) {
        Some(StreamPart::Both) => [true, true],
        Some(StreamPart::Forward | StreamPart::ServerName) => [true, false],
        Some(StreamPart::Reply) => [false, true],
        Some(StreamPart::Http | StreamPart::HttpMethod | StreamPart::HttpHost | StreamPart::HttpUri) => {
            [false, false]
        }
        Some(StreamPart::HttpStatus | StreamPart::HttpHeader | StreamPart::HttpBody) => [false, false],
        None => [false, false],
    }
}

/// A rule that edits plain bytes of its connections.
#[derive(Clone, Debug)]
pub(crate) struct StreamEditRule {
    pub(crate) slot: RuleSlot,
    /// Whether it changes the initiator's bytes, and the responder's.
    pub(crate) directions: [bool; 2],
    pub(crate) patterns: EditPatterns,
    pub(crate) action: EditAction,
    /// Of two rules with the same match, the one with the lower order edits it.
    pub(crate) order: (Prio, RuleId),
}

/// What replaces a match.
#[derive(Clone, Debug)]
pub(crate) enum EditAction {
    /// A text, repeated or cut to the length of the match.
    Mask(Vec<u8>),
    /// Other bytes, of any length.
    Replace(Replacement),
}

impl EditAction {
    /// The action of a target on matches in streams; `None` for a target that changes messages of HTTP.
    fn from_edit(edit: &StreamEdit) -> Option<EditAction> {
        match edit {
            StreamEdit::Mask(_, text) if text.is_empty() => Some(EditAction::Mask(b"*".to_vec())),
            StreamEdit::Mask(_, text) => Some(EditAction::Mask(text.clone())),
            StreamEdit::Mod(_, replacement) => Some(EditAction::Replace(replacement.clone())),
            StreamEdit::Strip(_) => Some(EditAction::Replace(Replacement::default())),
            StreamEdit::ModHeader(..) | StreamEdit::AddHeader(..) | StreamEdit::StripHeader(_) => None,
            StreamEdit::KeepHeader(_) | StreamEdit::ModHttp(..) | StreamEdit::AddBody(_) => None,
        }
    }

    /// Appends the replacement of a match to `out`.
    pub(crate) fn write(&self, matched: &[u8], out: &mut Vec<u8>) {
        match self {
            EditAction::Mask(text) => out.extend(text.iter().cycle().take(matched.len())),
            EditAction::Replace(replacement) => {
                for part in replacement.parts() {
                    match part {
                        ReplacementPart::Bytes(bytes) => out.extend_from_slice(bytes),
                        ReplacementPart::Matched => out.extend_from_slice(matched),
                    }
                }
            }
        }
    }

    /// The length of the longest replacement of a match of at most `match_len` bytes.
    fn max_len(&self, match_len: usize) -> usize {
        let part_len = |part: &ReplacementPart| match part {
            ReplacementPart::Bytes(bytes) => bytes.len(),
            ReplacementPart::Matched => match_len,
        };
        match self {
            EditAction::Mask(_) => match_len,
            EditAction::Replace(replacement) => replacement.parts().iter().map(part_len).sum(),
        }
    }
}

impl StreamEditRule {
    /// Compiles a rule's edit of plain bytes; `None` if the rule has none.
    ///
    /// # Errors
    /// Why the edit cannot be compiled.
    pub(crate) fn compile(
        policy: &Policy,
        (slot, id, rule): (RuleSlot, RuleId, &Rule),
        sets: SetSource<'_>,
    ) -> Result<Option<StreamEditRule>, PublishError> {
        let edits = rule.targets.iter().filter_map(|target| {
            let Target::Edit(edit) = target else { return None };
            Some((edit, EditAction::from_edit(edit)?))
        });
        for (edit, action) in edits {
            let constraint = rule.stream_matches().find(|constraint| constraint.field == edit.field());
            let Some(constraint) = constraint.filter(|constraint| directions(constraint) != [false; 2])
            else {
                continue;
            };
            let patterns = sets.edits(&patterns(policy, constraint));
            let patterns = patterns.map_err(|error| PublishError::from_pattern_error(Some(id), &error))?;
            let max = action.max_len(patterns.longest());
            if max > MAX_REPLACEMENT_BYTES {
                let reason = format!(
                    "a match may become {max} bytes, more than {MAX_REPLACEMENT_BYTES}: shorten the text or name `\\m` less often"
                );
                return Err(PublishError::Patterns { rule: Some(id), reason });
            }
            let order = (rule.prio, id);
            return Ok(Some(StreamEditRule {
                slot,
                directions: directions(constraint),
                patterns,
                action,
                order,
            }));
        }
        Ok(None)
    }
}

/// The patterns of a constraint, in their order.
fn patterns(policy: &Policy, constraint: &Match) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    let mut add =
        |kind, ignores_case| patterns.push(Pattern { kind, ignores_case, id: patterns.len() as u32 });
    for item in constraint.test.patterns() {
        match item {
            PatternItem::Text(text) => add(PatternKind::Text(text.clone()), false),
            PatternItem::Regex(Regex { source, ignores_case }) => {
                add(PatternKind::Regex(source.clone()), *ignores_case);
            }
            PatternItem::List(list) => {
                let texts = policy.lists.get(list).map(|list| &list.patterns);
                for text in texts.into_iter().flat_map(|texts| texts.iter()) {
                    add(PatternKind::Text(text.clone()), false);
                }
            }
        }
    }
    patterns
}

//! Comments and the wording of a policy file, as notes of the policy.

use crate::command::Change;
use crate::lexer::Token;
use crate::print::Print;
use mmb_policy::{LineNote, NoteKey, Policy, PolicyNotes, RuleId};
use std::sync::Arc;

/// A command in the text of a file, from behind the command before it to its own end.
pub(crate) struct SourceLine<'a, 't> {
    pub(crate) source: &'a str,
    /// The tokens of the command, with that of its end.
    pub(crate) tokens: &'t [Token<'a>],
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

/// Notes what stands around a command that was run, and how it is worded.
pub(crate) fn add(policy: &mut Policy, line: &SourceLine<'_, '_>, change: Option<Change>) {
    let key = match change {
        Some(Change::Added(id)) => NoteKey::Rule(id),
        Some(Change::Replaced(before)) => before.id.map_or(NoteKey::End, NoteKey::Rule),
        Some(Change::Enabled(port, _) | Change::Disabled(port, _)) => NoteKey::Line(format!("port {port}")),
        Some(Change::Set(setting)) => NoteKey::Line(format!("set {}", setting.info().name)),
        Some(Change::Patterns(name, _)) => NoteKey::Line(format!("patterns {name}")),
        Some(Change::SetChanged(name)) => NoteKey::Line(format!("elements {name}")),
        // What is about a rule or a set that is not there any more is not kept.
        Some(Change::Deleted(_) | Change::DeletedNamed(_) | Change::Drains(_) | Change::Flushed(_))
        | Some(Change::SetDeleted(_))
        | None => return,
    };
    let wording = match key {
        NoteKey::Rule(id) => wording(policy, line, id),
        NoteKey::Line(_) | NoteKey::End => None,
    };
    let note = LineNote { above: line.above(), behind: line.behind().to_owned(), wording };
    if !note.is_empty() {
        // What has no room is not noted.
        Arc::make_mut(&mut policy.notes).set(key, note);
    }
}

/// Notes the comments behind the last command.
pub(crate) fn add_end(policy: &mut Policy, text: &str) {
    let above = comments(text);
    if !above.is_empty() {
        Arc::make_mut(&mut policy.notes).set(NoteKey::End, LineNote { above, ..LineNote::default() });
    }
}

/// How a rule is worded, if that is not how it is printed.
fn wording(policy: &Policy, line: &SourceLine<'_, '_>, id: RuleId) -> Option<(String, String)> {
    if policy.rules.len() > PolicyNotes::MAX_WORDED_RULES {
        return None;
    }
    let (verb, rest) = line.wording()?;
    let printed = policy.rules.get(id)?.text().to_string();
    let is_as_printed = printed.strip_prefix(&verb).is_some_and(|behind| behind.trim_start() == rest);
    let is_rule = matches!(verb.as_str(), "add" | "add-stateless" | "add-stateful");
    (is_rule && !is_as_printed).then_some((verb, rest))
}

impl SourceLine<'_, '_> {
    /// The comments above the command.
    fn above(&self) -> String {
        let first = self.tokens.first().map_or(self.begin, |token| token.span.start);
        comments(self.source.get(self.begin..first).unwrap_or_default())
    }

    /// The comment behind the command, on its last line.
    fn behind(&self) -> &str {
        let last = self.words().last().map_or(self.end, |token| token.span.end);
        let behind = self.source.get(last..self.end).unwrap_or_default().trim();
        if behind.starts_with('#') { behind } else { "" }
    }

    /// The tokens but that of the end.
    fn words(&self) -> &[Token<'_>] {
        self.tokens.split_last().map_or(&[], |(_, words)| words)
    }

    /// The first word, and what is behind it without `id N`, as it is written; lines that were joined are one.
    fn wording(&self) -> Option<(String, String)> {
        let words = match self.words() {
            [mmb, words @ ..] if mmb.word() == "mmb" => words,
            words => words,
        };
        let (verb, rest) = words.split_first()?;
        let number = attribute_id(rest);
        let (mut text, mut end) = (String::new(), verb.span.end);
        for (at, token) in rest.iter().enumerate() {
            if number.is_some_and(|number| at == number || at == number + 1) {
                end = token.span.end;
                continue;
            }
            let gap = self.source.get(end..token.span.start)?;
            if !text.is_empty() {
                text.push_str(if gap.contains('\n') { " " } else { gap });
            }
            text.push_str(self.source.get(token.span.start..token.span.end)?);
            end = token.span.end;
        }
        Some((verb.word().to_owned(), text))
    }
}

/// The place of the word `id` among the attributes of a rule, which stand before the constraints.
fn attribute_id(words: &[Token<'_>]) -> Option<usize> {
    let mut at = 0;
    loop {
        match words.get(at)?.word() {
            "id" => return Some(at),
            "prio" | "name" => at += 2,
            "draining" => at += 1,
            _ => return None,
        }
    }
}

/// The lines of comments in a text between commands, and the empty lines around them; nothing if there are only empty lines.
fn comments(text: &str) -> String {
    // What is behind the last line end is the indentation of the command.
    let (lines, last) = text.rsplit_once('\n').map_or((None, text), |(lines, last)| (Some(lines), last));
    let last = Some(last).filter(|last| !last.trim().is_empty());
    let lines = lines.into_iter().flat_map(|lines| lines.split('\n')).chain(last).map(str::trim);
    let kept: Vec<&str> = lines.filter(|line| line.is_empty() || line.starts_with('#')).collect();
    if kept.iter().all(|line| line.is_empty()) { String::new() } else { kept.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_policy;

    fn note(text: &str, id: u32) -> LineNote {
        let (policy, _) = parse_policy(text).expect("a policy");
        policy.notes.rule(RuleId(id)).cloned().unwrap_or_default()
    }

    #[test]
    fn a_rule_has_the_comments_around_it_and_its_wording() {
        let text = "# the edge\n\n  # web\nadd  id 4 prio 3  tcp-dport http drop # all of it\n\n\nadd all mod ip-ttl 3\n# end\n";
        let first = note(text, 4);
        assert_eq!((first.above.as_str(), first.behind.as_str()), ("# the edge\n\n# web", "# all of it"));
        assert_eq!(first.wording, Some(("add".into(), "prio 3  tcp-dport http drop".into())));
        assert_eq!(note(text, 5), LineNote::default(), "as it is printed");
        assert_eq!(parse_policy(text).expect("a policy").0.notes.end(), "# end");
        let around = "# head\n\nadd all drop\n\n# 1\n\n\n# 2\n\n  add id 7 all accept\n\n# end";
        assert_eq!(note(around, 1).above, "# head\n");
        assert_eq!(note(around, 7).above, "\n# 1\n\n\n# 2\n");
        assert_eq!(parse_policy(around).expect("a policy").0.notes.end(), "\n# end");
        let joined = note("mmb add-stateless tcp-dport \\\n  {https, 80} \\\n drop # \"x\n", 1);
        assert_eq!(joined.wording, Some(("add-stateless".into(), "tcp-dport {https, 80} drop".into())));
        assert_eq!(joined.behind, "# \"x");
        assert_eq!(note("add payload \"# no\" drop", 1).behind, "");
    }

    #[test]
    fn notes_go_with_their_rules() {
        let (mut policy, _) =
            parse_policy("# a\nadd tcp-dport http drop\n# b\nadd udp-dport dns drop\n").expect("a policy");
        policy.delete(RuleId(1)).expect("is there");
        let (another, _) = parse_policy("add id 1 all accept").expect("a policy");
        policy.add(&another.rules.get(RuleId(1)).expect("is there")).expect("is free");
        assert!(policy.notes.rule(RuleId(1)).is_none() && policy.notes.rule(RuleId(2)).is_some());
        policy.flush();
        assert_eq!(*policy.notes, PolicyNotes::default());
    }
}

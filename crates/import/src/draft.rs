//! A policy text while it is made: rules with ascending priorities, what the original said beside them, and a list
//! of what was left out. Every rule is put before the parser of the language before it is taken.

use mmb_language::parse_command;
use serde::Serialize;
use std::fmt::{self, Display, Formatter, Write as _};

/// A policy that comes into being.
#[derive(Debug, Default)]
pub struct PolicyDraft {
    text: String,
    /// How many rules the text has, which is the priority of the last one.
    pub rules: u32,
    /// What could not be translated, in order.
    pub left_out: Vec<LeftOut>,
    /// What the translation does not change, but a reader may want to know.
    pub notes: Vec<String>,
}

/// Something of the original that the policy does not say.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The line that it stands in, from 1.
    pub line: usize,
    /// The words of the line.
    pub text: String,
    /// Why it was left out.
    pub reason: String,
    /// What that makes of the policy.
    pub effect: Effect,
}

/// What the policy does with packets that something left out was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The same.
    None,
    /// It drops packets that the original accepts, and no others differ.
    Stricter,
    /// It accepts packets that the original drops, and no others differ.
    Looser,
    /// Both may be.
    Either,
}

impl Effect {
    /// What two effects make together.
    pub fn and(self, other: Effect) -> Effect {
        match (self, other) {
            (effect, Effect::None) | (Effect::None, effect) => effect,
            (one, other) if one == other => one,
            _ => Effect::Either,
        }
    }
}

impl Display for Effect {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Effect::None => "no verdict changes",
            Effect::Stricter => "the policy is stricter",
            Effect::Looser => "the policy is looser",
            Effect::Either => "the policy may be stricter or looser",
        })
    }
}

impl Display for LeftOut {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: left out: {} ({}): {}", self.line, self.reason, self.effect, self.text)
    }
}

/// What a rule says beside its constraints and its target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Remarks<'a> {
    /// The name, where it is one word.
    pub name: Option<&'a str>,
    /// A comment behind the rule.
    pub comment: Option<&'a str>,
}

impl PolicyDraft {
    /// Adds a comment line.
    pub fn comment(&mut self, text: &str) {
        let _ = writeln!(self.text, "# {}", one_line(text));
    }

    /// Adds one rule for each of the constraints, each behind all that there are; none of them if one is refused.
    ///
    /// # Errors
    /// Why the language refuses a rule.
    pub fn add(&mut self, constraints: &[String], target: &str, remarks: Remarks<'_>) -> Result<(), String> {
        let mut lines = String::new();
        let mut prio = self.rules;
        for constraint in constraints {
            prio = prio.checked_add(1).ok_or("a policy cannot have more rules")?;
            let line = |name: &str| format!("add prio {prio}{name} {constraint} {target}");
            let named = remarks.name.filter(|name| is_plain(name)).map(|name| line(&format!(" name {name}")));
            let rule = match named.filter(|named| check(named).is_ok()) {
                Some(named) => named,
                None => {
                    let plain = line("");
                    check(&plain)?;
                    plain
                }
            };
            lines += &rule;
            if let Some(comment) = remarks.comment {
                let _ = write!(lines, "  # {}", one_line(comment));
            }
            lines.push('\n');
        }
        self.text += &lines;
        self.rules = prio;
        Ok(())
    }

    /// Adds a rule that makes connections of all packets that pass, behind all that there are, so that it decides about none.
    ///
    /// # Errors
    /// Why the language refuses it.
    pub fn track(&mut self, constraint: &str) -> Result<(), String> {
        let prio = self.rules.checked_add(1).ok_or("a policy cannot have more rules")?;
        let rule = format!("add-stateful prio {prio} {constraint} accept");
        check(&rule)?;
        let _ = writeln!(self.text, "{rule}  # follows connections, for `ct`; decides about no packet");
        self.rules = prio;
        Ok(())
    }

    /// Lists something that the policy does not say, also as a comment at its place.
    pub fn leave_out(&mut self, left_out: LeftOut) {
        self.comment(&left_out.to_string());
        self.left_out.push(left_out);
    }

    /// Tells something that changes no verdict, also as a comment at its place.
    pub fn note(&mut self, text: String) {
        self.comment(&text);
        self.notes.push(text);
    }

    /// What all that was left out makes of the policy.
    pub fn effect(&self) -> Effect {
        self.left_out.iter().fold(Effect::None, |effect, left_out| effect.and(left_out.effect))
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Whether a name from elsewhere can stand in a rule: it is one word, of letters that mean nothing in the language.
pub(crate) fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '@' | '/');
    !name.is_empty() && name.chars().all(plain)
}

fn check(line: &str) -> Result<(), String> {
    parse_command(line).map(|_| ()).map_err(|errors| {
        let first = errors.into_iter().next().map(|error| error.message);
        format!("the rule language refuses it: {}", first.unwrap_or_default())
    })
}

/// Text that stays within a comment: without line ends, and without a backslash that would join the next line.
fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim_end_matches(['\\', ' ']).to_owned()
}
/// A number of things, in words.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

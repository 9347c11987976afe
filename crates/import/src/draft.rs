//! A policy text under construction: rules with ascending priorities, names and comments of the original, and a list of
//! omissions. Every rule is checked by the parser of the language before it is added.

use crate::cube::Family;
use mmb_language::parse_command;
use serde::Serialize;
use std::fmt::{self, Display, Formatter, Write as _};

/// A policy under construction.
#[derive(Debug, Default)]
pub struct PolicyDraft {
    text: String,
    /// The number of rules in the text, which is the priority of the last one.
    pub rules: u32,
    /// The omissions, in order.
    pub left_out: Vec<LeftOut>,
    /// Remarks that do not change the translation.
    pub notes: Vec<String>,
}

/// A place in the original.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Place {
    /// A line of a text.
    Line {
        /// Its number, from 1.
        line: usize,
    },
    /// An object of nftables.
    Handle {
        /// The family and the name of its table, and the chain if it has one.
        chain: String,
        /// Its number in the table.
        handle: u64,
    },
}

impl Place {
    /// A line, from 1.
    pub fn line(line: usize) -> Place {
        Place::Line { line }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line { line } => write!(f, "line {line}"),
            Place::Handle { chain, handle } => write!(f, "{chain} handle {handle}"),
        }
    }
}

/// An element of the original that the policy omits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its place.
    #[serde(flatten)]
    pub place: Place,
    /// The original.
    pub text: String,
    /// The reason for the omission.
    pub reason: String,
    /// The effect on the policy.
    pub effect: Effect,
}

/// The effect of an omission on the verdicts of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// No verdict changes.
    None,
    /// The policy may drop packets that the original accepts; no other verdicts change.
    Stricter,
    /// The policy may accept packets that the original drops; no other verdicts change.
    Looser,
    /// Both may happen.
    Either,
}

/// The verdict of an imported rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportVerdict {
    /// Packets pass.
    Accept,
    /// Packets are dropped.
    Drop,
    /// Packets are dropped, and their senders are told.
    Reject(Rejection),
}

/// How rejected packets are answered: the target that says so, for each version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// For packets of IPv4, and others that are not IPv6.
    pub(crate) ip4: &'static str,
    /// For packets of IPv6.
    pub(crate) ip6: &'static str,
}

impl Rejection {
    /// One target for both versions.
    pub(crate) const fn of_both(target: &'static str) -> Rejection {
        Rejection { ip4: target, ip6: target }
    }
}

impl ImportVerdict {
    /// The target that gives it to packets of a family.
    pub(crate) fn target(self, family: Family) -> &'static str {
        match (self, family) {
            (ImportVerdict::Accept, _) => "accept",
            (ImportVerdict::Drop, _) => "drop",
            (ImportVerdict::Reject(rejection), Family::Ip6) => rejection.ip6,
            (ImportVerdict::Reject(rejection), Family::Ip4 | Family::Frame) => rejection.ip4,
        }
    }

    /// The effect of a rule that is left out.
    pub(crate) fn if_left_out(self) -> Effect {
        match self {
            ImportVerdict::Accept => Effect::Stricter,
            ImportVerdict::Drop | ImportVerdict::Reject(_) => Effect::Looser,
        }
    }
}

impl Effect {
    /// The effect of two omissions together.
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
        write!(f, "{}: left out: {} ({}): {}", self.place, self.reason, self.effect, self.text)
    }
}

/// Parts of a rule besides its constraints and its target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Remarks<'a> {
    /// The name, if it is one word.
    pub name: Option<&'a str>,
    /// A comment after the rule.
    pub comment: Option<&'a str>,
}

impl PolicyDraft {
    /// Adds a comment line.
    pub fn comment(&mut self, text: &str) {
        let _ = writeln!(self.text, "# {}", one_line(text));
    }

    /// Adds a setting.
    pub fn set(&mut self, setting: &str, comment: &str) {
        let _ = writeln!(self.text, "set {setting}  # {}", one_line(comment));
    }

    /// Adds one rule for each set of constraints at the end of the policy; adds none if one is refused.
    ///
    /// # Errors
    /// Why the language refuses a rule.
    pub fn add(&mut self, constraints: &[String], target: &str, remarks: Remarks<'_>) -> Result<(), String> {
        self.add_rules("add", constraints, target, remarks)
    }

    /// Adds stateful rules in the same way.
    ///
    /// # Errors
    /// Why the language refuses a rule.
    pub fn add_stateful(
        &mut self,
        constraints: &[String],
        target: &str,
        remarks: Remarks<'_>,
    ) -> Result<(), String> {
        self.add_rules("add-stateful", constraints, target, remarks)
    }

    fn add_rules(
        &mut self,
        verb: &str,
        constraints: &[String],
        target: &str,
        remarks: Remarks<'_>,
    ) -> Result<(), String> {
        let mut lines = String::new();
        let mut prio = self.rules;
        for constraint in constraints {
            prio = prio.checked_add(1).ok_or("a policy cannot have more rules")?;
            let line = |name: &str| format!("{verb} prio {prio}{name} {constraint} {target}");
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

    /// Adds a rule at the end that creates connections for all packets that pass, and so decides about none.
    ///
    /// # Errors
    /// Why the language refuses it.
    pub fn track(&mut self, constraint: &str) -> Result<(), String> {
        let comment = Some("follows connections, for `ct`; decides about no packet");
        self.add_stateful(&[constraint.to_owned()], "accept", Remarks { name: None, comment })
    }

    /// Inserts lines into the text, from a byte of it on where a line begins.
    pub(crate) fn insert(&mut self, at: usize, lines: &[String]) {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.text.insert_str(at, &lines);
    }

    /// Lists an omission, also as a comment at its place.
    pub fn leave_out(&mut self, left_out: LeftOut) {
        self.comment(&left_out.to_string());
        self.left_out.push(left_out);
    }

    /// Lists a remark that changes no verdict, also as a comment at its place.
    pub fn note(&mut self, text: String) {
        self.comment(&text);
        self.notes.push(text);
    }

    /// The effect of all omissions on the policy.
    pub fn effect(&self) -> Effect {
        self.left_out.iter().fold(Effect::None, |effect, left_out| effect.and(left_out.effect))
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Whether a foreign name can be the name of a rule: one word, of characters without a meaning in the language.
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
/// A number and a noun, in words.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

//! The printer: rules back to their canonical text, which parses to the same rule.
//!
//! Policies of a million rules are listed: what most rules are made of is written piece by piece, without going through
//! `format_args!`.

mod command;
mod edit;
pub(crate) mod file_name;
mod sets;
pub(crate) mod value;

use crate::target;
use file_name::file_name;
use mmb_policy::Policy;
use mmb_policy::field::Field;
use mmb_policy::rule::{Cond, DEFAULT_PRIO, Equality, Match, Rule, RuleId, Target, Test};
use mmb_policy::{PatternItem, PatternList};
pub use sets::{SetText, set_difference, set_lines};
use std::fmt::{Display, Formatter, Result, Write as _};
pub use value::Print;
use value::{Printed, bytes, decimal, numbers, several};

impl Print for Cond {
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Cond::Eq => "==",
            Cond::Ne => "!=",
            Cond::Lt => "<",
            Cond::Le => "<=",
            Cond::Gt => ">",
            Cond::Ge => ">=",
        })
    }
}

impl Print for Match {
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        if self.negated {
            f.write_str("! ")?;
        }
        Display::fmt(&self.field, f)?;
        let unequal = |equality: &Equality| if *equality == Equality::Ne { " != " } else { " " };
        match &self.test {
            Test::Present => Ok(()),
            Test::Number(Cond::Eq, set) => {
                f.write_char(' ')?;
                numbers(f, self.field, set)
            }
            Test::Number(cond, set) => {
                write!(f, " {} ", cond.text())?;
                numbers(f, self.field, set)
            }
            Test::NamedSet(equality, name) => {
                f.write_str(unequal(equality))?;
                write!(f, "@{name}")
            }
            Test::Port(equality, names) => {
                f.write_str(unequal(equality))?;
                several(f, names, |name, f| f.write_str(name))
            }
            Test::Bytes(equality, strings) => {
                f.write_str(unequal(equality))?;
                several(f, strings, |string, f| bytes(f, string))
            }
            Test::Patterns(items) => {
                f.write_char(' ')?;
                several(f, items, PatternItem::print)
            }
            Test::Header(name, items) => {
                f.write_char(' ')?;
                name.print(f)?;
                if items.is_empty() {
                    return Ok(());
                }
                f.write_char(' ')?;
                several(f, items, PatternItem::print)
            }
        }
    }
}

impl Print for PatternItem {
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            PatternItem::Text(text) => bytes(f, text),
            PatternItem::Regex(regex) => Display::fmt(regex, f),
            PatternItem::List(name) => write!(f, "@{name}"),
        }
    }
}

impl Print for Target {
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Target::Mod(field, write) => target::modify::print(f, *field, write),
            Target::AddOption(kind, data) => target::add::print(f, Field::option(*kind), data),
            Target::Strip(kind) => target::strip::print(f, "", Field::option(*kind)),
            Target::Keep(kind) => target::strip::print(f, "! ", Field::option(*kind)),
            Target::StripAll => f.write_str("strip all"),
            Target::Drop(rate) => target::drop::print(f, *rate),
            Target::Reject(reject) => target::reject::print(f, *reject),
            Target::Limit(limit) => target::limit::print(f, limit),
            Target::Accept => f.write_str("accept"),
            Target::Map(field, set) => target::map::print(f, *field, set),
            Target::Shuffle(field, range) => target::shuffle::print(f, *field, *range),
            Target::Lb(field, set, method) => target::lb::print(f, *field, set, *method),
            Target::Log(text) => target::log::print(f, text.as_deref()),
            Target::Alert(text) => target::alert::print(f, text.as_deref()),
            Target::Close => f.write_str("close"),
            Target::Digest => f.write_str("digest"),
            Target::Helper(helper) => target::helper::print(f, *helper),
            Target::Edit(edit) => edit.print(f),
        }
    }
}

impl Print for Rule {
    /// The command that adds the rule, without its number.
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        rule(f, self, None)
    }
}

/// The command that adds a rule, with its number if it has one.
pub fn with_id(checked: &Rule) -> impl Display + '_ {
    Printed(|f: &mut Formatter<'_>| rule(f, checked, checked.id))
}

fn rule(f: &mut Formatter<'_>, rule: &Rule, id: Option<RuleId>) -> Result {
    f.write_str(if rule.stateful { "add-stateful" } else { "add" })?;
    if let Some(id) = id {
        f.write_str(" id ")?;
        decimal(f, id.0.into())?;
    }
    if rule.prio != DEFAULT_PRIO {
        write!(f, " prio {}", rule.prio)?;
    }
    if let Some(name) = &rule.name {
        write!(f, " name {name}")?;
    }
    if rule.draining {
        f.write_str(" draining")?;
    }
    if rule.matches.is_empty() {
        f.write_str(" all")?;
    }
    for m in &rule.matches {
        f.write_char(' ')?;
        m.print(f)?;
    }
    for target in &rule.targets {
        f.write_char(' ')?;
        target.print(f)?;
    }
    Ok(())
}

/// The ports that commands of a policy switched on and off, as those commands.
pub fn port_switches(policy: &Policy) -> impl Iterator<Item = String> + '_ {
    policy
        .ports
        .iter()
        .map(|(port, enabled)| format!("{} {port}", if *enabled { "enable" } else { "disable" }))
}

/// The command that reads a list of patterns.
pub fn pattern_list(name: &str, list: &PatternList) -> String {
    format!("patterns {name} {}", file_name(&list.file))
}

/// The lists of patterns of a policy, as the commands that read them.
pub fn pattern_lists(policy: &Policy) -> impl Iterator<Item = String> + '_ {
    policy.lists.iter().map(|(name, list)| pattern_list(name, list))
}

impl Print for Policy {
    /// A file that parses to the same policy: changed settings, the switches of ports, lists of patterns, sets with the times that
    /// their elements have left, rules with their numbers.
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        for setting in self.settings.changed() {
            writeln!(f, "set {setting}")?;
        }
        for line in port_switches(self).chain(pattern_lists(self)) {
            writeln!(f, "{line}")?;
        }
        for (name, set) in &self.sets {
            for line in set_lines(name, set, self.now_ms) {
                writeln!(f, "{line}")?;
            }
        }
        for checked in self.rules.iter() {
            rule(f, &checked, checked.id)?;
            f.write_char('\n')?;
        }
        Ok(())
    }
}

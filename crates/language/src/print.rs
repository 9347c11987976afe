//! The printer: rules back to their canonical text, which parses to the same rule.
//!
//! Numbers are printed by the field's [`ValueFormat`]; well-known values by name only where that reads naturally.
//! Texts are printed as `"…"` if every byte is printable ASCII, else as `|…|`.
//!
//! Policies of a million rules are listed: what most rules are made of is written piece by piece, without going through
//! `format_args!`.

use crate::verb::LB_METHODS;
mod command;

use mmb_policy::Policy;
use mmb_policy::field::{Field, FieldInfo, ValueFormat, ValueKind};
use mmb_policy::rule::{
    Cond, DEFAULT_PRIO, DropRate, Equality, LbMethod, Match, NumberItem, NumberSet, Rule, RuleId, Target,
    Test, Write,
};
use std::fmt::{Display, Formatter, Result, Write as _};
use std::net::Ipv6Addr;

/// A part of a policy that has a text in the language.
pub trait Print {
    /// Writes the canonical text, which parses to an equal value.
    ///
    /// # Errors
    /// Those of the formatter.
    fn print(&self, f: &mut Formatter<'_>) -> Result;

    /// The canonical text.
    fn text(&self) -> impl Display + '_ {
        Printed(|f: &mut Formatter<'_>| self.print(f))
    }
}

/// Something printed by a function.
struct Printed<F>(F);

impl<F: Fn(&mut Formatter<'_>) -> Result> Display for Printed<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        (self.0)(f)
    }
}

/// A number as a value of the field.
fn number(info: &'static FieldInfo, n: u128) -> impl Display {
    Printed(move |f: &mut Formatter<'_>| match (info.values, info.names.shown) {
        // Addresses fit their width, which the checker saw to.
        (ValueKind::Ip4, _) => ip4(f, n as u32),
        (ValueKind::Ip6, _) => write!(f, "{}", Ipv6Addr::from_bits(n)),
        (_, ValueFormat::Hex) => write!(f, "{n:#06x}"),
        (_, ValueFormat::Name) => match info.names.name(n) {
            Some(name) => f.write_str(name),
            None => decimal(f, n),
        },
        (_, ValueFormat::Decimal) => decimal(f, n),
    })
}

fn decimal(f: &mut Formatter<'_>, n: u128) -> Result {
    let Ok(n) = u32::try_from(n) else { return write!(f, "{n}") };
    let mut digits = Digits::default();
    digits.push(n);
    digits.fmt(f)
}

fn ip4(f: &mut Formatter<'_>, address: u32) -> Result {
    let mut digits = Digits::default();
    let [a, b, c, d] = address.to_be_bytes().map(u32::from);
    digits.push(d);
    for byte in [c, b, a] {
        digits.push_byte(b'.');
        digits.push(byte);
    }
    digits.fmt(f)
}

/// A number, or an address, that is written from its end to its beginning.
#[derive(Default)]
struct Digits {
    bytes: [u8; 15],
    len: usize,
}

impl Digits {
    fn push(&mut self, mut n: u32) {
        loop {
            self.push_byte(b'0' + (n % 10) as u8);
            n /= 10;
            if n == 0 {
                return;
            }
        }
    }

    fn push_byte(&mut self, byte: u8) {
        self.len += 1;
        self.bytes[15 - self.len] = byte;
    }

    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(std::str::from_utf8(&self.bytes[15 - self.len..]).unwrap_or_default())
    }
}

/// A value, prefix or range of the field.
pub(crate) fn number_item(info: &'static FieldInfo, item: NumberItem) -> impl Display {
    Printed(move |f: &mut Formatter<'_>| match item {
        NumberItem::One(n) => number(info, n).fmt(f),
        // Names may have dashes, so that a range of them is hard to read.
        NumberItem::Range(first, last) if info.names.shown == ValueFormat::Name => {
            write!(f, "{first}-{last}")
        }
        NumberItem::Range(first, last) => {
            number(info, first).fmt(f)?;
            f.write_char('-')?;
            number(info, last).fmt(f)
        }
        NumberItem::Prefix(first, len) => {
            number(info, first).fmt(f)?;
            f.write_char('/')?;
            decimal(f, len.into())
        }
    })
}

/// One value, or several in braces.
fn several<T>(f: &mut Formatter<'_>, items: &[T], one: impl Fn(&T, &mut Formatter<'_>) -> Result) -> Result {
    match items {
        [item] => one(item, f),
        items => in_braces(f, items, one),
    }
}

fn in_braces<T>(
    f: &mut Formatter<'_>,
    items: &[T],
    one: impl Fn(&T, &mut Formatter<'_>) -> Result,
) -> Result {
    f.write_char('{')?;
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        one(item, f)?;
    }
    f.write_char('}')
}

fn numbers(f: &mut Formatter<'_>, field: Field, set: &NumberSet) -> Result {
    several(f, &set.0, |item, f| number_item(field.info(), *item).fmt(f))
}

fn bytes(f: &mut Formatter<'_>, bytes: &[u8]) -> Result {
    let is_text = !bytes.is_empty() && bytes.iter().all(|b| matches!(b, b' '..=b'~' | b'\n' | b'\r' | b'\t'));
    if is_text {
        f.write_char('"')?;
        for &byte in bytes {
            match byte {
                b'\n' => f.write_str("\\n")?,
                b'\r' => f.write_str("\\r")?,
                b'\t' => f.write_str("\\t")?,
                b'"' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                byte => f.write_char(char::from(byte))?,
            }
        }
        return f.write_char('"');
    }
    f.write_char('|')?;
    for (i, byte) in bytes.iter().enumerate() {
        let separator = if i > 0 { " " } else { "" };
        write!(f, "{separator}{byte:02x}")?;
    }
    f.write_char('|')
}

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
            Test::Port(equality, names) => {
                f.write_str(unequal(equality))?;
                several(f, names, |name, f| f.write_str(name))
            }
            Test::Bytes(equality, strings) => {
                f.write_str(unequal(equality))?;
                several(f, strings, |string, f| bytes(f, string))
            }
        }
    }
}

impl Print for Target {
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Target::Mod(field, Write::Number(n)) => write!(f, "mod {field} {}", number(field.info(), *n)),
            Target::Mod(field, Write::Bytes(data)) => {
                write!(f, "mod {field} ")?;
                bytes(f, data)
            }
            Target::AddOption(kind, data) => added(f, Field::option(*kind), data),
            Target::Strip(kind) => write!(f, "strip {}", Field::option(*kind)),
            Target::Keep(kind) => write!(f, "strip ! {}", Field::option(*kind)),
            Target::StripAll => f.write_str("strip all"),
            Target::Drop(rate) if *rate == DropRate::ALL => f.write_str("drop"),
            Target::Drop(rate) => write!(f, "drop {}", rate.text()),
            Target::Accept => f.write_str("accept"),
            Target::Map(field, set) => {
                write!(f, "map {field} ")?;
                numbers(f, *field, set)
            }
            Target::Shuffle(field, None) => write!(f, "shuffle {field}"),
            Target::Shuffle(field, Some((first, last))) => {
                let range = NumberItem::Range(*first, *last);
                write!(f, "shuffle {field} {}", number_item(field.info(), range))
            }
            Target::Lb(field, set, method) => {
                write!(f, "lb {field} ")?;
                in_braces(f, &set.0, |item, f| number_item(field.info(), *item).fmt(f))?;
                if *method == LbMethod::default() { Ok(()) } else { write!(f, " {}", method.text()) }
            }
        }
    }
}

/// `add OPTION [VALUE]`: data of the option's own width as a number, no data as nothing, other data as bytes.
fn added(f: &mut Formatter<'_>, option: Field, data: &[u8]) -> Result {
    write!(f, "add {option}")?;
    let width = match option.info().values {
        ValueKind::OptionData(width) => width.map(usize::from),
        _ => None,
    };
    match data {
        [] if matches!(width, None | Some(0)) => Ok(()),
        [_, ..] if width == Some(data.len()) => {
            let n = data.iter().fold(0, |n, &byte| n << 8 | u128::from(byte));
            write!(f, " {n}")
        }
        data => {
            f.write_char(' ')?;
            bytes(f, data)
        }
    }
}

impl Print for DropRate {
    /// The percentage without trailing zeros: `12.5`.
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        let (whole, thousandths) = (self.0 / 1000, self.0 % 1000);
        if thousandths == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{thousandths:03}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

impl Print for LbMethod {
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        let named = LB_METHODS.iter().find(|(_, method, _)| method == self);
        f.write_str(named.map_or("", |(name, ..)| name))
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

impl Print for Policy {
    /// A file that parses to the same policy: changed settings, the switches of ports, rules with their numbers.
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        for setting in self.settings.changed() {
            writeln!(f, "set {setting}")?;
        }
        for line in port_switches(self) {
            writeln!(f, "{line}")?;
        }
        for checked in self.rules.iter() {
            rule(f, &checked, checked.id)?;
            f.write_char('\n')?;
        }
        Ok(())
    }
}

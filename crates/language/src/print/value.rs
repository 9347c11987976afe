//! Values back to their text: numbers, addresses, prefixes, names, bytes.
//!
//! Numbers are printed by the field's [`ValueFormat`]; well-known values by name only where that reads naturally.
//! Texts are printed as `"…"` if every byte is printable ASCII, else as `|…|`.

use mmb_policy::field::{Field, FieldInfo, ValueFormat, ValueKind};
use mmb_policy::rule::{NumberItem, NumberSet};
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

/// A text that a function prints.
pub(crate) struct Printed<F>(pub(crate) F);

impl<F: Fn(&mut Formatter<'_>) -> Result> Display for Printed<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        (self.0)(f)
    }
}

/// A number as a value of the field.
pub(crate) fn number(info: &'static FieldInfo, n: u128) -> impl Display {
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

pub(crate) fn decimal(f: &mut Formatter<'_>, n: u128) -> Result {
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
pub(crate) fn several<T>(
    f: &mut Formatter<'_>,
    items: &[T],
    one: impl Fn(&T, &mut Formatter<'_>) -> Result,
) -> Result {
    match items {
        [item] => one(item, f),
        items => in_braces(f, items, one),
    }
}

pub(crate) fn in_braces<T>(
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

pub(crate) fn numbers(f: &mut Formatter<'_>, field: Field, set: &NumberSet) -> Result {
    several(f, &set.0, |item, f| number_item(field.info(), *item).fmt(f))
}

/// One byte of a text in quotes.
pub(crate) fn text_byte(f: &mut Formatter<'_>, byte: u8) -> Result {
    match byte {
        b'\n' => f.write_str("\\n"),
        b'\r' => f.write_str("\\r"),
        b'\t' => f.write_str("\\t"),
        b'"' | b'\\' => write!(f, "\\{}", char::from(byte)),
        b' '..=b'~' => f.write_char(char::from(byte)),
        byte => write!(f, "\\x{byte:02x}"),
    }
}

pub(crate) fn bytes(f: &mut Formatter<'_>, bytes: &[u8]) -> Result {
    let is_text = !bytes.is_empty() && bytes.iter().all(|b| matches!(b, b' '..=b'~' | b'\n' | b'\r' | b'\t'));
    if is_text {
        f.write_char('"')?;
        bytes.iter().try_for_each(|byte| text_byte(f, *byte))?;
        return f.write_char('"');
    }
    f.write_char('|')?;
    for (i, byte) in bytes.iter().enumerate() {
        let separator = if i > 0 { " " } else { "" };
        write!(f, "{separator}{byte:02x}")?;
    }
    f.write_char('|')
}

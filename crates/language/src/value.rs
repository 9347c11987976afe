//! The forms of values: text to numbers, addresses, prefixes, ranges, percentages.

use crate::diagnostic::{Diagnostic, TextSpan};
use mmb_policy::field::ones;
use mmb_policy::field::{FieldId, FieldInfo, FieldPlace, ValueKind};
use mmb_policy::rule::{DropRate, NumberItem};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Dashes of a name at most; a word may be long, and have very many.
const MAX_DASHES: usize = 2;

/// The most bytes that TCP option data can have: 40 less kind and length.
pub(crate) const MAX_OPTION_DATA_BYTES: usize = 38;
/// The most bytes of a packet that a payload can be compared with.
pub(crate) const MAX_PAYLOAD: usize = 9000;

/// The reason why a word is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    /// It is nothing of the kind.
    Unknown,
    /// A number above the field's greatest.
    TooLarge,
    /// A range whose first value is above its last.
    Backwards,
    /// A prefix length above the address's.
    PrefixTooLong,
    /// An IPv6 address for an IPv4 field.
    Ip6ForIp4,
    /// An IPv4 address for an IPv6 field.
    Ip4ForIp6,
}

/// A value that was read, and whether host bits of a prefix were cleared.
pub(crate) struct ValueRead {
    pub(crate) item: NumberItem,
    pub(crate) masked: bool,
}

/// A number: `443`, `0x1bb`, `x1bb`.
pub(crate) fn number(word: &str) -> Result<u128, ValueError> {
    // Nearly all are short and decimal, and so much faster read.
    if let 1..=18 = word.len()
        && let Some(n) = word.bytes().try_fold(0, |n: u64, byte| match byte {
            b'0'..=b'9' => Some(n * 10 + u64::from(byte - b'0')),
            _ => None,
        })
    {
        return Ok(n.into());
    }
    let hex =
        word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).or_else(|| word.strip_prefix(['x', 'X']));
    let (digits, radix) = match hex {
        Some(digits) => (digits, 16),
        None => (word, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(ValueError::Unknown);
    }
    u128::from_str_radix(digits, radix).map_err(|_| ValueError::TooLarge)
}

/// One value of a field: a number, a name, an address, a prefix, a range.
pub(crate) fn item(info: &FieldInfo, word: &str) -> Result<ValueRead, ValueError> {
    let plain = |item| ValueRead { item, masked: false };
    if let Some(width) = address_width(info)
        && let Some((address, len)) = word.split_once('/')
    {
        return prefix(info, width, address, len);
    }
    let first = match single(info, word) {
        Err(ValueError::Unknown) => ValueError::Unknown,
        Err(other) => return Err(other),
        Ok(n) => return Ok(plain(NumberItem::One(n))),
    };
    if info.values == ValueKind::State {
        return Err(ValueError::Unknown);
    }
    // Names may contain dashes: the first dash with a value on both sides makes the range.
    let mut refusal = first;
    for (at, _) in word.match_indices('-').take(MAX_DASHES + 1) {
        match (single(info, &word[..at]), single(info, &word[at + 1..])) {
            (Ok(first), Ok(last)) if first > last => return Err(ValueError::Backwards),
            (Ok(first), Ok(last)) => return Ok(plain(NumberItem::Range(first, last))),
            (Err(ValueError::Unknown), _) | (_, Err(ValueError::Unknown)) => {}
            (Err(other), _) | (_, Err(other)) => refusal = other,
        }
    }
    Err(refusal)
}

/// One number of a field.
fn single(info: &FieldInfo, word: &str) -> Result<u128, ValueError> {
    let max = info.max().ok_or(ValueError::Unknown)?;
    match info.values {
        ValueKind::Ip4 => match word.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.to_bits().into()),
            Err(_) if word.parse::<Ipv6Addr>().is_ok() => Err(ValueError::Ip6ForIp4),
            Err(_) => Err(ValueError::Unknown),
        },
        ValueKind::Ip6 => match word.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address.to_bits()),
            Err(_) if word.parse::<Ipv4Addr>().is_ok() => Err(ValueError::Ip4ForIp6),
            Err(_) => Err(ValueError::Unknown),
        },
        ValueKind::State => info.names.value(word).map(u128::from).ok_or(ValueError::Unknown),
        ValueKind::Port | ValueKind::Bytes | ValueKind::Nothing => Err(ValueError::Unknown),
        ValueKind::Pattern | ValueKind::ServerName | ValueKind::Method | ValueKind::Header => {
            Err(ValueError::Unknown)
        }
        ValueKind::Number | ValueKind::OptionData(_) => match info.names.value(word) {
            Some(value) => Ok(value.into()),
            None => match number(word)? {
                n if n > max => Err(ValueError::TooLarge),
                n => Ok(n),
            },
        },
    }
}

fn address_width(info: &FieldInfo) -> Option<u8> {
    match info.values {
        ValueKind::Ip4 => Some(32),
        ValueKind::Ip6 => Some(128),
        ValueKind::Number
        | ValueKind::Port
        | ValueKind::OptionData(_)
        | ValueKind::Bytes
        | ValueKind::State
        | ValueKind::Nothing
        | ValueKind::Pattern
        | ValueKind::ServerName
        | ValueKind::Method
        | ValueKind::Header => None,
    }
}

fn prefix(info: &FieldInfo, width: u8, address: &str, len: &str) -> Result<ValueRead, ValueError> {
    let address = single(info, address)?;
    if len.is_empty() || !len.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ValueError::Unknown);
    }
    let len: u8 = len.parse().map_err(|_| ValueError::PrefixTooLong)?;
    if len > width {
        return Err(ValueError::PrefixTooLong);
    }
    let network = address & !ones(width - len);
    Ok(ValueRead { item: NumberItem::Prefix(network, len), masked: network != address })
}

/// Returns whether a word is written like a value of the field, so that it is no mistyped field or target.
pub(crate) fn looks_like_value(info: &FieldInfo, word: &str) -> bool {
    info.values == ValueKind::Port
        || (word.starts_with('@') && (info.values.has_patterns() || info.max().is_some()))
        || word.starts_with(|c: char| c.is_ascii_digit())
        || word.contains([':', '/'])
        || number(word).is_ok()
        || item(info, word).is_ok()
}

/// A percentage in steps of a thousandth: `12.5`, `12.5%`.
pub(crate) fn percentage(word: &str) -> Option<DropRate> {
    let word = word.strip_suffix('%').unwrap_or(word);
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 3 {
        return None;
    }
    let whole: u32 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let thousandths: u32 = format!("{fraction:0<3}").parse().ok()?;
    let rate = whole.checked_mul(1000)?.checked_add(thousandths)?;
    (rate <= DropRate::ALL.0).then_some(DropRate(rate))
}

/// The form of the field's values, as a text for people.
pub(crate) fn expectation(info: &FieldInfo) -> String {
    let names = match info.names.list {
        [] => String::new(),
        [(only, _)] => format!(" or `{only}`"),
        [(first, _), .., (last, _)] => format!(" or a name such as `{first}` or `{last}`"),
    };
    match (info.values, info.max()) {
        (ValueKind::Ip4, _) => "an IPv4 address, prefix or range".to_owned(),
        (ValueKind::Ip6, _) => "an IPv6 address, prefix or range".to_owned(),
        (ValueKind::Port, _) => "the name of a port".to_owned(),
        (ValueKind::State, _) => "`new`, `established`, `related`, `reply` or `invalid`".to_owned(),
        (ValueKind::Bytes, _) => "a \"text\" or |bytes|".to_owned(),
        (ValueKind::Pattern, _) => "a \"text\", |bytes|, a /regex/ or a @LIST".to_owned(),
        (ValueKind::Method, _) => "a \"METHOD\", a /regex/ or a @LIST".to_owned(),
        (ValueKind::Header, _) => "a \"value\", a /regex/ or a @LIST".to_owned(),
        (ValueKind::ServerName, _) => "a \"name\", a \".domain\", a /regex/ or a @LIST".to_owned(),
        (ValueKind::OptionData(_), None) => "|bytes|".to_owned(),
        (ValueKind::OptionData(_), Some(max)) => format!("a number 0 to {max}, a \"text\" or |bytes|"),
        (ValueKind::Number, Some(max)) if info.id == FieldId::HttpStatus => format!("a number 100 to {max}"),
        (ValueKind::Number | ValueKind::Nothing, Some(max)) => format!("a number 0 to {max}{names}"),
        (ValueKind::Number | ValueKind::Nothing, None) => "no value".to_owned(),
    }
}

/// The form of what a target writes into the field, as a text for people.
pub(crate) fn written_form(info: &FieldInfo) -> String {
    match info.place {
        FieldPlace::Stream(_) => "a \"text\" or |bytes|".to_owned(),
        FieldPlace::Key { .. } | FieldPlace::AnyOption | FieldPlace::Option(_) => expectation(info),
        FieldPlace::NamedOption | FieldPlace::Payload(_) | FieldPlace::Connection => expectation(info),
    }
}

/// The error of a text with `\m` where nothing is replaced.
pub(crate) fn nothing_matched(at: TextSpan) -> Diagnostic {
    let error = Diagnostic::new(at, "`\\m` stands for what `mod` replaces, and nothing is replaced here");
    error.expected("a text without `\\m`; a backslash is `\\\\`")
}

/// The bytes that somebody meant who forgot the quotes.
pub(crate) fn quoted(word: &str) -> String {
    match word.strip_prefix("0x") {
        Some(hex) if !hex.is_empty() && hex.len() % 2 == 0 && hex.chars().all(|c| c.is_ascii_hexdigit()) => {
            format!("|{hex}|")
        }
        _ => format!("\"{word}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_policy::field::{FIELDS, FieldId};

    #[test]
    fn names_have_no_more_dashes_than_ranges_of_them_are_looked_for_at() {
        let names = FIELDS.iter().flat_map(|info| info.names.list);
        assert!(names.clone().any(|(name, _)| name.matches('-').count() == MAX_DASHES));
        assert!(names.clone().all(|(name, _)| name.matches('-').count() <= MAX_DASHES));
        let read = item(FieldId::UdpDport.info(), "ipsec-nat-t-http-alt").map(|read| read.item);
        assert_eq!(read, Ok(NumberItem::Range(4500, 8080)));
    }

    #[test]
    fn a_long_word_is_refused_in_no_time() {
        let word = "1".repeat(1 << 20) + &"-1".repeat(1 << 20);
        assert!(item(FieldId::TcpDport.info(), &word).is_err());
    }
}

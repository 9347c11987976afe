//! Elements of named sets as text: addresses, prefixes, ranges, numbers, and the time for which they stay.

use crate::diagnostic::{Diagnostic, TextSpan};
use crate::value;
use mmb_policy::Policy;
use mmb_policy::field::ones;
use mmb_policy::sets::{Element, ElementList, NEVER};
use std::fmt::{Display, Formatter, Result as FmtResult};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The word before the time for which an element stays.
pub(crate) const TIMEOUT: &str = "timeout";
/// What may be an element, as a text for people.
pub(crate) const ELEMENT: &str = "an address, a prefix, a range, or a number of at most 32 bits";
/// What may be a timeout, likewise.
pub(crate) const DURATION: &str = "a time such as `90s`, `10m`, `1h30m` or `7d`, at most 3650 days";

/// The most bytes of a file of elements.
pub const MAX_ELEMENT_FILE_BYTES: usize = 64 << 20;

/// The longest timeout.
const MAX_TIMEOUT_S: u64 = 3650 * 86_400;
/// The units of timeouts, in seconds, the largest first.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// The reason why a word is no element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ElementError {
    /// It is nothing of the kind.
    #[error("is no element of a set")]
    Unknown,
    /// A range whose first value is above its last.
    #[error("ends before it begins")]
    Backwards,
    /// A prefix length above the address's.
    #[error("has a prefix that is too long")]
    PrefixTooLong,
    /// A number of more than 32 bits.
    #[error("is too large for a number of 32 bits")]
    TooLarge,
}

/// Adds the element that a word is to a list, to expire after `timeout_ms`. Returns whether host bits of a prefix were cleared.
pub(crate) fn read(word: &str, timeout_ms: u64, list: &mut ElementList) -> Result<bool, ElementError> {
    let bounded =
        |pair: (u128, u128)| Element { first: pair.0 as u32, last: pair.1 as u32, expires_ms: timeout_ms };
    if word.contains(':') {
        let (ends, masked) =
            addresses(word, 128, |text| text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits))?;
        list.ip6.push(Element { first: ends.0, last: ends.1, expires_ms: timeout_ms });
        return Ok(masked);
    }
    if word.contains('.') {
        let parse = |text: &str| text.parse::<Ipv4Addr>().ok().map(|address| address.to_bits().into());
        let (ends, masked) = addresses(word, 32, parse)?;
        list.ip4.push(bounded(ends));
        return Ok(masked);
    }
    let number = |text: &str| match value::number(text) {
        Ok(n) if n <= ones(32) => Ok(n),
        Ok(_) | Err(value::ValueError::TooLarge) => Err(ElementError::TooLarge),
        Err(_) => Err(ElementError::Unknown),
    };
    let ends = match word.split_once('-') {
        Some((first, last)) => ordered(number(first)?, number(last)?)?,
        None => number(word).map(|n| (n, n))?,
    };
    list.numbers.push(bounded(ends));
    Ok(false)
}

/// An address, a prefix or a range of addresses of `width` bits.
fn addresses(
    word: &str,
    width: u8,
    parse: impl Fn(&str) -> Option<u128>,
) -> Result<((u128, u128), bool), ElementError> {
    if let Some((address, len)) = word.split_once('/') {
        let address = parse(address).ok_or(ElementError::Unknown)?;
        if len.is_empty() || !len.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ElementError::Unknown);
        }
        let len = len.parse().ok().filter(|len: &u8| *len <= width).ok_or(ElementError::PrefixTooLong)?;
        let host = ones(width - len);
        return Ok(((address & !host, address | host), address & host != 0));
    }
    if let Some((first, last)) = word.split_once('-') {
        let (first, last) = (parse(first), parse(last));
        let ends = first.zip(last).ok_or(ElementError::Unknown)?;
        return Ok((ordered(ends.0, ends.1)?, false));
    }
    let address = parse(word).ok_or(ElementError::Unknown)?;
    Ok(((address, address), false))
}

fn ordered(first: u128, last: u128) -> Result<(u128, u128), ElementError> {
    if first <= last { Ok((first, last)) } else { Err(ElementError::Backwards) }
}

/// A timeout in milliseconds: `90s`, `1h30m`; a number alone is seconds.
pub(crate) fn timeout(word: &str) -> Option<u64> {
    let seconds = match word.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let (mut sum, mut rest, mut units) = (0u64, word, UNITS.iter());
            while !rest.is_empty() {
                let digits = rest.bytes().position(|byte| !byte.is_ascii_digit()).filter(|at| *at > 0)?;
                let unit = rest[digits..].chars().next()?;
                // Each unit once, in their order.
                let (_, seconds) = units.find(|(name, _)| *name == unit)?;
                sum = rest[..digits].parse::<u64>().ok()?.checked_mul(*seconds)?.checked_add(sum)?;
                rest = &rest[digits + 1..];
            }
            sum
        }
    };
    (1..=MAX_TIMEOUT_S).contains(&seconds).then_some(seconds * 1000)
}

/// A time in milliseconds as `timeout` reads it, in whole seconds, at least one.
pub struct Timeout(pub u64);

impl Display for Timeout {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let mut left = self.0.div_ceil(1000).max(1);
        for (unit, seconds) in UNITS {
            if left >= seconds {
                write!(f, "{}{unit}", left / seconds)?;
                left %= seconds;
            }
        }
        Ok(())
    }
}

/// The elements in the content of a file: one a line, and behind it `timeout TIME` if it does not stay for ever. What stands behind `#` or `;` is a
/// comment.
///
/// # Errors
/// The reason why the content is no list of elements, with its line.
pub fn read_elements(content: &[u8]) -> Result<ElementList, String> {
    if content.len() > MAX_ELEMENT_FILE_BYTES {
        return Err(format!("the file has more than {} MiB; split it", MAX_ELEMENT_FILE_BYTES >> 20));
    }
    let mut list = ElementList::default();
    for (at, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let end = line.iter().position(|byte| matches!(byte, b'#' | b';')).unwrap_or(line.len());
        let at = at + 1;
        let line = std::str::from_utf8(&line[..end]).map_err(|_| format!("line {at}: not a text"))?;
        let mut words = line.split_ascii_whitespace();
        let Some(word) = words.next() else { continue };
        let timeout_ms = match (words.next(), words.next()) {
            (None, _) => NEVER,
            (Some(TIMEOUT), Some(time)) => timeout(time)
                .ok_or_else(|| format!("line {at}: `{time}` is no timeout; expected {DURATION}"))?,
            (Some(TIMEOUT), None) => {
                return Err(format!("line {at}: the timeout is missing; expected {DURATION}"));
            }
            (Some(other), _) => {
                return Err(format!("line {at}: `{other}` behind an element; expected one element a line"));
            }
        };
        if let Some(more) = words.next() {
            return Err(format!("line {at}: `{more}` behind an element; expected one element a line"));
        }
        if list.len() == Policy::MAX_ELEMENTS {
            return Err(format!("line {at}: a set has at most {} elements", Policy::MAX_ELEMENTS));
        }
        read(word, timeout_ms, &mut list)
            .map_err(|error| format!("line {at}: `{word}` {error}; expected {ELEMENT}"))?;
    }
    Ok(list)
}

/// The error of a word that is no element.
pub(crate) fn refused(word: &str, span: TextSpan, error: ElementError) -> Diagnostic {
    let diagnostic = Diagnostic::new(span, format!("`{word}` {error}"));
    diagnostic.expected(match error {
        ElementError::Unknown | ElementError::TooLarge => ELEMENT,
        ElementError::Backwards => "the smaller value first",
        ElementError::PrefixTooLong if word.contains(':') => "a length 0 to 128",
        ElementError::PrefixTooLong => "a length 0 to 32",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(word: &str) -> Result<ElementList, ElementError> {
        let mut list = ElementList::default();
        read(word, NEVER, &mut list).map(|_| list)
    }

    #[test]
    fn an_element_is_an_address_a_prefix_a_range_or_a_number() {
        let ip4 =
            |first: [u8; 4], last: [u8; 4]| Element::of(u32::from_be_bytes(first), u32::from_be_bytes(last));
        assert_eq!(one("192.0.2.7").unwrap().ip4, [ip4([192, 0, 2, 7], [192, 0, 2, 7])]);
        assert_eq!(one("10.1.2.3/8").unwrap().ip4, [ip4([10, 0, 0, 0], [10, 255, 255, 255])]);
        assert_eq!(one("0.0.0.0/0").unwrap().ip4, [ip4([0; 4], [255; 4])]);
        assert_eq!(one("10.0.0.1-10.0.0.9").unwrap().ip4, [ip4([10, 0, 0, 1], [10, 0, 0, 9])]);
        assert_eq!(
            one("2001:db8::/32").unwrap().ip6,
            [Element::of(0x2001_0db8 << 96, (0x2001_0db9 << 96) - 1)]
        );
        assert_eq!(one("::1-::f").unwrap().ip6, [Element::of(1, 15)]);
        assert_eq!(one("::ffff:1.2.3.4").unwrap().ip6.len(), 1);
        assert_eq!(one("0x50").unwrap().numbers, [Element::of(80, 80)]);
        assert_eq!(one("1024-65535").unwrap().numbers, [Element::of(1024, 65535)]);
        for (word, error) in [
            ("http", ElementError::Unknown),
            ("10.0.0", ElementError::Unknown),
            ("10.0.0.0/", ElementError::Unknown),
            ("10.0.0.0/33", ElementError::PrefixTooLong),
            ("::/129", ElementError::PrefixTooLong),
            ("10.0.0.0/999", ElementError::PrefixTooLong),
            ("9-8", ElementError::Backwards),
            ("10.0.0.2-10.0.0.1", ElementError::Backwards),
            ("4294967296", ElementError::TooLarge),
            ("", ElementError::Unknown),
        ] {
            assert_eq!(one(word), Err(error), "{word}");
        }
    }

    #[test]
    fn timeouts_are_read_as_they_are_printed() {
        for (word, seconds, printed) in [
            ("90", 90, "1m30s"),
            ("90s", 90, "1m30s"),
            ("10m", 600, "10m"),
            ("1h30m", 5400, "1h30m"),
            ("7d", 604_800, "7d"),
            ("1d1s", 86_401, "1d1s"),
        ] {
            assert_eq!(timeout(word), Some(seconds * 1000), "{word}");
            assert_eq!(Timeout(seconds * 1000).to_string(), printed);
            assert_eq!(timeout(printed), Some(seconds * 1000));
        }
        for word in ["", "0", "0s", "s", "1x", "1s1m", "1m1m", "-1", "1.5h", "99999999999999999999d", "3651d"]
        {
            assert_eq!(timeout(word), None, "{word}");
        }
        assert_eq!(
            [Timeout(1).to_string(), Timeout(0).to_string(), Timeout(1001).to_string()],
            ["1s", "1s", "2s"]
        );
    }

    #[test]
    fn a_file_has_an_element_a_line() {
        let list =
            read_elements(b"# a list\n10.0.0.0/8 ; SBL1\r\n\n ::1 timeout 1h # one\n192.0.2.1").unwrap();
        assert_eq!((list.ip4.len(), list.ip6.len(), list.numbers.len()), (2, 1, 0));
        assert_eq!(list.ip6[0].expires_ms, 3_600_000);
        assert!(read_elements(b"").unwrap().is_empty());
        for (content, line) in [
            (&b"1\n\nx"[..], "line 3: `x` is no element of a set"),
            (b"1 2", "line 1: `2` behind an element"),
            (b"1 timeout", "line 1: the timeout is missing"),
            (b"1 timeout 0", "line 1: `0` is no timeout"),
            (
                b"1 timeout 9999d",
                "line 1: `9999d` is no timeout; expected a time such as `90s`, `10m`, `1h30m` or `7d`, at most 3650 days",
            ),
            (b"1 timeout 5s 6", "line 1: `6` behind an element"),
            (b"\xff", "line 1: not a text"),
        ] {
            let error = read_elements(content).unwrap_err();
            assert!(error.starts_with(line), "{error}");
        }
    }
}

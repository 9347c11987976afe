//! Residual checks: what a mask and a value cannot say. They are compiled with the rule and run on a hit.

use crate::bounds::Bounds;
use mmb_packet::key::{self, Key};
use mmb_packet::options::{self, OptionTable};
use mmb_packet::{Layout, Packet};
use mmb_policy::field::Payload;
use mmb_policy::rule::ones;

/// One check. All checks of a rule must hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Check {
    /// A number of the key lies in a range, or outside it.
    Range { from: Extract, first: u64, last: u64, outside: bool },
    /// A number of the key is a member of a set.
    Set { from: Extract, ranges: Box<[(u64, u64)]> },
    /// An IPv6 address is a member of a set.
    Address { at: u8, ranges: Box<[(u128, u128)]> },
    /// An empty payload passes if `empty`; another one by whether it begins with one of the prefixes.
    Payload { of: Payload, prefixes: Box<[Box<[u8]>]>, empty: bool, begins: bool },
    /// Some option of a kind passes a test, or (`none`) no option does.
    Option { kind: u8, test: OptionTest, none: bool },
    /// There is an option that is not padding, or (`none`) there is none.
    AnyOption { none: bool },
}

/// What is asked of an option.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OptionTest {
    /// It is there.
    Present,
    /// Its data is a number of the set.
    Number(Box<[(u128, u128)]>),
    /// Its data is one of the strings, or (`differs`) none of them.
    Bytes { data: Box<[Box<[u8]>]>, differs: bool },
}

/// How a field of at most 57 bits is read from a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Extract {
    /// The first of the 8 bytes that hold it.
    at: u8,
    /// Bits behind it in these 8 bytes.
    shift: u8,
    /// Its bits, shifted down.
    mask: u64,
    /// Bit of the key's flags without which the check holds whatever the field says; 0: none.
    unless: u8,
}

impl Extract {
    /// The field of `width` bits at bit `bit`. It lies in the first 64 bytes of the key.
    fn new(bit: u16, width: u8, unless: u8) -> Extract {
        let at = (bit / 8).min(64 - 8);
        let shift = 64 - (bit - at * 8) - u16::from(width);
        Extract { at: at as u8, shift: shift as u8, mask: ones(width) as u64, unless }
    }

    /// The number, or `None` where the check holds without it.
    #[inline]
    fn read<const N: usize>(self, key: &Key<N>) -> Option<u64> {
        if self.unless != 0 && key.0[key::FLAGS] & self.unless == 0 {
            return None;
        }
        let bytes = key.0.get(usize::from(self.at)..)?.first_chunk()?;
        Some(u64::from_be_bytes(*bytes) >> self.shift & self.mask)
    }
}

/// What a payload or option check looks at.
pub(crate) struct Subject<'a, 'b> {
    pub(crate) packet: &'a Packet<'b>,
    pub(crate) layout: &'a Layout,
}

impl Check {
    /// The check that the field of `width` bits at bit `bit` is in `bounds`, or that the flag `unless` is not set.
    pub(crate) fn number(bit: u16, width: u8, bounds: &Bounds, unless: u8) -> Check {
        if width > 57 {
            return Check::Address { at: (bit / 8) as u8, ranges: bounds.ranges().into() };
        }
        let from = Extract::new(bit, width, unless);
        match (bounds.ranges(), bounds.complement().ranges()) {
            (&[(first, last)], _) => {
                Check::Range { from, first: first as u64, last: last as u64, outside: false }
            }
            (_, &[(first, last)]) => {
                Check::Range { from, first: first as u64, last: last as u64, outside: true }
            }
            (ranges, _) => {
                Check::Set { from, ranges: ranges.iter().map(|r| (r.0 as u64, r.1 as u64)).collect() }
            }
        }
    }

    /// Whether it looks at TCP options: it runs after the others.
    pub(crate) fn about_options(&self) -> bool {
        matches!(self, Check::Option { .. } | Check::AnyOption { .. })
    }

    /// Whether it holds. Option checks are [`Check::holds_for`]'s matter; here they do not hold.
    #[inline]
    pub(crate) fn holds<const N: usize>(&self, key: &Key<N>, subject: &Subject<'_, '_>) -> bool {
        match self {
            Check::Range { from, first, last, outside } => {
                from.read(key).is_none_or(|n| (*first <= n && n <= *last) != *outside)
            }
            Check::Set { from, ranges } => from.read(key).is_none_or(|n| member(ranges, n)),
            Check::Address { at, ranges } => {
                let bytes = key.0.get(usize::from(*at)..).and_then(|rest| rest.first_chunk());
                bytes.is_some_and(|bytes| member(ranges, u128::from_be_bytes(*bytes)))
            }
            Check::Payload { of, prefixes, empty, begins } => match payload(*of, subject) {
                [] => *empty,
                payload => prefixes.iter().any(|prefix| payload.starts_with(prefix)) == *begins,
            },
            Check::Option { .. } | Check::AnyOption { .. } => false,
        }
    }

    /// Whether an option check holds.
    pub(crate) fn holds_for(&self, options: &OptionTable) -> bool {
        match self {
            Check::Option { kind, test, none } => test.passes(*kind, options) != *none,
            Check::AnyOption { none } => options.any() != *none,
            _ => false,
        }
    }
}

impl OptionTest {
    #[inline]
    fn passes(&self, kind: u8, options: &OptionTable) -> bool {
        options.has(kind)
            && match self {
                OptionTest::Present => true,
                OptionTest::Number(ranges) => {
                    let number = |data| options::number(data).map(u128::from);
                    options.data(kind).any(|data| number(data).is_some_and(|n| member(ranges, n)))
                }
                OptionTest::Bytes { data: strings, differs } => {
                    options.data(kind).any(|data| strings.iter().any(|string| **string == *data) != *differs)
                }
            }
    }
}

/// Whether a number lies in one of sorted ranges.
#[inline]
fn member<T: Copy + PartialOrd>(ranges: &[(T, T)], number: T) -> bool {
    let after = ranges.partition_point(|r| r.1 < number);
    ranges.get(after).is_some_and(|r| r.0 <= number)
}

/// The bytes that a payload field is about; empty where there are none.
fn payload<'a>(of: Payload, subject: &Subject<'a, '_>) -> &'a [u8] {
    let range = match of {
        Payload::Transport => subject.layout.payload_range(),
        Payload::Ip => subject.layout.ip_payload_range(),
    };
    subject.packet.bytes().get(range).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_policy::field::{FIELDS, Place};

    #[test]
    fn every_field_of_the_key_is_read_where_the_table_says() {
        let mut key = Key([0u8; 80]);
        for (i, byte) in key.0.iter_mut().enumerate() {
            *byte = (i as u8).wrapping_mul(151) ^ 0x5a;
        }
        let bit_at = |at: usize| u128::from(key.0[at / 8] >> (7 - at % 8) & 1);
        let mut buffer = [0; 0];
        let packet = Packet::new(&mut buffer, 0, 0, mmb_packet::PortId(0), mmb_packet::LinkType::RawIp);
        let subject = Subject { packet: &packet.expect("an empty packet fits"), layout: &Layout::default() };
        for field in FIELDS {
            let Place::Key { bit, width } = field.place else { continue };
            let number = (0..width.into()).fold(0, |number, i| number << 1 | bit_at(usize::from(bit) + i));
            let only = Bounds::new([(number, number)], width);
            let check = |bounds: &Bounds| Check::number(bit, width, bounds, 0).holds(&key, &subject);
            assert!(check(&only) && !check(&only.complement()), "{}", field.name);
        }
    }
}

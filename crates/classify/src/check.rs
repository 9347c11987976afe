//! Residual checks: what a mask and a value cannot say. They are compiled with the rule and run on a hit.

use crate::extract::{self, Extract};
use crate::lane_mask::LaneMask;
use crate::set_lookup::{SetContext, SetLookup};
use mmb_packet::columns::Column;
use mmb_packet::key::Lanes;
use mmb_packet::options::{self, OptionTable};
use mmb_packet::{Layout, Packet};
use mmb_policy::Intervals;
use mmb_policy::field::Payload;
use mmb_policy::field::ones;

/// One check. All checks of a rule must hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RuleCheck {
    /// A number of the key lies in a range, or outside it.
    Range { extract: Extract, first: u32, last: u32, outside: bool },
    /// A number of the key is a member of a set.
    Set { extract: Extract, ranges: Box<[(u32, u32)]> },
    /// An IPv6 address, from lane `lane` on, is a member of a set.
    Address { lane: u8, ranges: Box<[(u128, u128)]> },
    /// A field of the key is a member of a named set, or (`outside`) is not.
    Named { lookup: SetLookup, outside: bool },
    /// An empty payload passes if `empty`; another one by whether it begins with one of the prefixes.
    Payload { field: Payload, prefixes: Box<[Box<[u8]>]>, empty: bool, begins: bool },
    /// Some option of a kind passes a test, or (`none`) no option does.
    Option { kind: u8, test: OptionTest, none: bool },
    /// There is an option that is not padding, or (`none`) there is none.
    AnyOption { none: bool },
}

/// The test of an option.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OptionTest {
    /// It is there.
    Present,
    /// Its data is a number of the set.
    Number(Box<[(u128, u128)]>),
    /// Its data is one of the strings, or (`differs`) none of them.
    Bytes { data: Box<[Box<[u8]>]>, differs: bool },
}

/// The input of checks: one key of a vector, and its packet.
#[derive(Clone, Copy)]
pub(crate) struct CheckedPacket<'a, 'b> {
    /// The vector's keys by lane.
    pub(crate) lanes: &'a [Column],
    /// The key's number.
    pub(crate) key: u8,
    pub(crate) packet: &'a Packet<'b>,
    pub(crate) layout: &'a Layout,
    pub(crate) sets: SetContext<'a>,
}

impl CheckedPacket<'_, '_> {
    /// A lane as a number.
    #[inline]
    pub(crate) fn number(&self, lane: usize) -> u32 {
        extract::number(self.lanes, lane, self.key)
    }

    #[inline]
    fn read(&self, extract: Extract) -> Option<u32> {
        extract.read(self.lanes, self.key)
    }

    /// The IPv6 address from a lane on.
    #[inline]
    fn address(&self, lane: u8) -> u128 {
        extract::address(self.lanes, lane, self.key)
    }
}

impl RuleCheck {
    /// The check that the field of `width` bits at bit `bit` is in `bounds`, or that the flag `unless` is not set.
    pub(crate) fn number(bit: u16, width: u8, bounds: &Intervals, unless: u8) -> RuleCheck {
        if width > 32 {
            return RuleCheck::Address { lane: (bit / 32) as u8, ranges: bounds.as_slice().into() };
        }
        let extract = Extract::new(bit, width, unless);
        let others = bounds.complement(ones(width));
        let range = |&(first, last): &(u128, u128), outside| RuleCheck::Range {
            extract,
            first: first as u32,
            last: last as u32,
            outside,
        };
        // Flags, in packets that may have others too. The lowest bit that counts is bit 0 of the number: next numbers are next to
        // each other then.
        let alike = |(mask, value): (u128, u128), outside| {
            let below = mask.trailing_zeros() % 32;
            RuleCheck::Range {
                extract: extract.part(below as u8, (mask >> below) as u32),
                first: (value >> below) as u32,
                last: (value >> below) as u32,
                outside,
            }
        };
        match (bounds.as_slice(), others.as_slice()) {
            ([one], _) => range(one, false),
            (_, [one]) => range(one, true),
            (ranges, _) => match (bounds.alike(width), others.alike(width)) {
                (Some(bits), _) => alike(bits, false),
                (_, Some(bits)) => alike(bits, true),
                _ => RuleCheck::Set {
                    extract,
                    ranges: ranges.iter().map(|r| (r.0 as u32, r.1 as u32)).collect(),
                },
            },
        }
    }

    /// About the bytes that it points to.
    pub(crate) fn heap_bytes(&self) -> usize {
        let strings =
            |strings: &[Box<[u8]>]| strings.iter().map(|string| size_of_val(string) + string.len()).sum();
        match self {
            RuleCheck::Range { .. } | RuleCheck::Named { .. } | RuleCheck::AnyOption { .. } => 0,
            RuleCheck::Set { ranges, .. } => size_of_val(&ranges[..]),
            RuleCheck::Address { ranges, .. } => size_of_val(&ranges[..]),
            RuleCheck::Payload { prefixes, .. } => strings(prefixes),
            RuleCheck::Option { test, .. } => match test {
                OptionTest::Present => 0,
                OptionTest::Number(ranges) => size_of_val(&ranges[..]),
                OptionTest::Bytes { data, .. } => strings(data),
            },
        }
    }

    /// Its lookup in a set.
    #[inline]
    pub(crate) fn set_lookup(&self) -> Option<SetLookup> {
        match self {
            RuleCheck::Named { lookup, .. } => Some(*lookup),
            RuleCheck::Range { .. } | RuleCheck::Set { .. } | RuleCheck::Address { .. } => None,
            RuleCheck::Payload { .. } | RuleCheck::Option { .. } | RuleCheck::AnyOption { .. } => None,
        }
    }

    /// Whether it looks at TCP options: it runs after the others.
    pub(crate) fn about_options(&self) -> bool {
        matches!(self, RuleCheck::Option { .. } | RuleCheck::AnyOption { .. })
    }

    /// Whether it reads what is not in the key.
    pub(crate) fn reads_beyond_key(&self) -> bool {
        match self {
            RuleCheck::Range { .. } | RuleCheck::Set { .. } | RuleCheck::Address { .. } => false,
            RuleCheck::Named { .. } => false,
            RuleCheck::Payload { .. } | RuleCheck::Option { .. } | RuleCheck::AnyOption { .. } => true,
        }
    }

    /// Adds the bits of the key that it reads to a mask.
    pub(crate) fn add_bits(&self, mask: &mut LaneMask) {
        match self {
            RuleCheck::Range { extract, .. } | RuleCheck::Set { extract, .. } => extract.add_bits(mask),
            RuleCheck::Address { lane, .. } => {
                mask.iter_mut().skip(usize::from(*lane)).take(4).for_each(|lane| *lane = u32::MAX);
            }
            RuleCheck::Named { lookup, .. } => lookup.add_bits(mask),
            RuleCheck::Payload { .. } | RuleCheck::Option { .. } | RuleCheck::AnyOption { .. } => {}
        }
    }

    /// The lanes that it reads.
    pub(crate) fn lanes(&self) -> Lanes {
        match self {
            RuleCheck::Range { extract, .. } | RuleCheck::Set { extract, .. } => extract.lanes(),
            RuleCheck::Address { lane, .. } => Lanes::range(usize::from(*lane), usize::from(*lane) + 4),
            RuleCheck::Named { lookup, .. } => lookup.lanes(),
            RuleCheck::Payload { .. } | RuleCheck::Option { .. } | RuleCheck::AnyOption { .. } => {
                Lanes::default()
            }
        }
    }

    /// Whether it holds. Option checks are [`RuleCheck::holds_for`]'s matter; here they do not hold.
    #[inline]
    pub(crate) fn holds(&self, subject: &CheckedPacket<'_, '_>) -> bool {
        match self {
            RuleCheck::Range { extract, first, last, outside } => {
                subject.read(*extract).is_none_or(|n| (*first <= n && n <= *last) != *outside)
            }
            RuleCheck::Set { extract, ranges } => subject.read(*extract).is_none_or(|n| member(ranges, n)),
            RuleCheck::Address { lane, ranges } => member(ranges, subject.address(*lane)),
            RuleCheck::Named { lookup, outside } => lookup
                .is_member(subject.lanes, subject.key, subject.sets)
                .is_none_or(|is_member| is_member != *outside),
            RuleCheck::Payload { field, prefixes, empty, begins } => match payload(*field, subject) {
                [] => *empty,
                payload => prefixes.iter().any(|prefix| payload.starts_with(prefix)) == *begins,
            },
            RuleCheck::Option { .. } | RuleCheck::AnyOption { .. } => false,
        }
    }

    /// Whether an option check holds.
    pub(crate) fn holds_for(&self, options: &OptionTable) -> bool {
        match self {
            RuleCheck::Option { kind, test, none } => test.passes(*kind, options) != *none,
            RuleCheck::AnyOption { none } => options.any() != *none,
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
fn payload<'a>(field: Payload, subject: &CheckedPacket<'a, '_>) -> &'a [u8] {
    let range = match field {
        Payload::Transport => subject.layout.payload_range(),
        Payload::Ip => subject.layout.ip_payload_range(),
    };
    subject.packet.bytes().get(range).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::SetTable;
    use crate::set_lookup::SetResults;
    use mmb_packet::key::LANE;
    use mmb_policy::field::{FIELDS, FieldPlace};

    #[test]
    fn every_field_of_the_key_is_read_where_the_table_says() {
        let mut key = [0u8; 80];
        for (i, byte) in key.iter_mut().enumerate() {
            *byte = (i as u8).wrapping_mul(151) ^ 0x5a;
        }
        let bit_at = |at: usize| u128::from(key[at / 8] >> (7 - at % 8) & 1);
        let lanes: Vec<Column> = key
            .as_chunks::<LANE>()
            .0
            .iter()
            .map(|lane| std::array::from_fn(|at| if at == 3 { u32::from_ne_bytes(*lane) } else { 0 }))
            .collect();
        let mut buffer = [0; 0];
        let packet = Packet::new(&mut buffer, 0, 0, mmb_packet::PortId(0), mmb_packet::LinkType::RawIp);
        let packet = packet.expect("an empty packet fits");
        let subject = CheckedPacket {
            lanes: &lanes,
            key: 3,
            packet: &packet,
            layout: &Layout::default(),
            sets: SetContext { table: &SetTable::default(), results: &SetResults::default() },
        };
        for field in FIELDS {
            let FieldPlace::Key { bit, width } = field.place else { continue };
            let number = (0..width.into()).fold(0, |number, i| number << 1 | bit_at(usize::from(bit) + i));
            let only = Intervals::one(number);
            let check = |bounds: &Intervals| RuleCheck::number(bit, width, bounds, 0).holds(&subject);
            assert!(check(&only) && !check(&only.complement(ones(width))), "{}", field.name);
            let lanes = RuleCheck::number(bit, width, &only, 0).lanes();
            assert!(lanes.has(usize::from(bit) / 32) && (width > 32 || bit % 32 + u16::from(width) <= 32));
            let mut bits = LaneMask::default();
            RuleCheck::number(bit, width, &only, 0).add_bits(&mut bits);
            let read = |at: u16| {
                bits[usize::from(at / 32)].to_ne_bytes()[usize::from(at % 32 / 8)] >> (7 - at % 8) & 1 == 1
            };
            assert!(
                (0..640).all(|at| read(at) == (bit..bit + u16::from(width)).contains(&at)),
                "{}",
                field.name
            );
        }
    }
}

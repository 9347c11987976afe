//! `limit`: the rate of packets, bytes or new connections beyond which a rule drops.

use crate::field::FieldId;

/// A rate, for a rule as a whole or for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    /// So many units, 1 to [`Limit::MAX`].
    pub amount: u64,
    /// What is counted.
    pub unit: LimitUnit,
    /// In this time.
    pub period: LimitPeriod,
    /// `burst`: so many units may come at once, 1 to [`Limit::MAX`]; `None`: [`Limit::usual_burst`].
    pub burst: Option<u64>,
    /// `per`: each key has the rate for itself.
    pub per: Option<LimitKey>,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitUnit {
    /// Packets.
    Packets,
    /// Bytes of packets as they are received, from the link header on.
    Bytes,
    /// The same in bits.
    Bits,
    /// Packets that make connections of the rule, which is stateful.
    Connections,
}

/// The time of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitPeriod {
    /// `/s`
    Second,
    /// `/m`
    Minute,
    /// `/h`
    Hour,
    /// `/d`
    Day,
}

/// What tells the keys of a limit apart: the first bits of an address. Packets of the other version of IP are told apart by the address in the same
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitKey {
    /// One of [`LimitKey::FIELDS`].
    field: FieldId,
    /// The bits that count, 1 to the width of the field.
    prefix: u8,
}

impl Limit {
    /// The greatest amount and burst.
    pub const MAX: u64 = 1_000_000_000_000;
    /// The least burst of bytes: a full frame of Ethernet with two VLAN tags.
    pub const MIN_BURST_BYTES: u64 = 1522;

    /// The burst of a limit that names none: the units of a tenth of a second, at least 5; of bytes those of half a second, at least 65,536, since TCP
    /// needs a burst of some round-trip times to get the rate.
    pub fn usual_burst(&self) -> u64 {
        let in_parts_of_a_second = |parts: u64| self.amount.div_ceil(self.period.seconds() * parts);
        match self.unit {
            LimitUnit::Packets | LimitUnit::Connections => in_parts_of_a_second(10).max(5),
            LimitUnit::Bytes => in_parts_of_a_second(2).max(1 << 16),
            LimitUnit::Bits => in_parts_of_a_second(2).max(8 << 16),
        }
    }

    /// The units that may come at once.
    pub fn burst(&self) -> u64 {
        self.burst.unwrap_or_else(|| self.usual_burst())
    }

    /// The least burst that lets every packet pass.
    pub fn min_burst(unit: LimitUnit) -> u64 {
        match unit {
            LimitUnit::Packets | LimitUnit::Connections => 1,
            LimitUnit::Bytes => Limit::MIN_BURST_BYTES,
            LimitUnit::Bits => 8 * Limit::MIN_BURST_BYTES,
        }
    }
}

impl LimitUnit {
    /// Every unit.
    pub const ALL: [LimitUnit; 4] =
        [LimitUnit::Packets, LimitUnit::Bytes, LimitUnit::Bits, LimitUnit::Connections];
}

impl LimitPeriod {
    /// Every period.
    pub const ALL: [LimitPeriod; 4] =
        [LimitPeriod::Second, LimitPeriod::Minute, LimitPeriod::Hour, LimitPeriod::Day];

    /// Its length in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            LimitPeriod::Second => 1,
            LimitPeriod::Minute => 60,
            LimitPeriod::Hour => 60 * 60,
            LimitPeriod::Day => 24 * 60 * 60,
        }
    }
}

impl LimitKey {
    /// The fields that a limit may have a key of.
    pub const FIELDS: [FieldId; 4] =
        [FieldId::IpSaddr, FieldId::IpDaddr, FieldId::Ip6Saddr, FieldId::Ip6Daddr];
    /// The bits of an IPv6 address that count if none are named: those of a network, within which a host has any address that it wants.
    pub const USUAL_IP6: u8 = 64;
    const IP4: u8 = 32;
    const IP6: u8 = 128;

    /// A key of so many bits of a field; `None`: the usual number. Returns `None` if it is no field for keys, or has not so many bits.
    pub fn new(field: FieldId, prefix: Option<u8>) -> Option<LimitKey> {
        let (width, usual) = match is_ip4(field) {
            true => (LimitKey::IP4, LimitKey::IP4),
            false => (LimitKey::IP6, LimitKey::USUAL_IP6),
        };
        let prefix = prefix.unwrap_or(usual);
        let is_key = LimitKey::FIELDS.contains(&field) && (1..=width).contains(&prefix);
        is_key.then_some(LimitKey { field, prefix })
    }

    /// The field.
    pub fn field(self) -> FieldId {
        self.field
    }

    /// The bits of the field that count.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Whether the bits are those that count if none are named.
    pub fn is_usual(self) -> bool {
        LimitKey::new(self.field, None) == Some(self)
    }

    /// Whether the address is the source's.
    pub fn is_source(self) -> bool {
        matches!(self.field, FieldId::IpSaddr | FieldId::Ip6Saddr)
    }

    /// The bits of an IPv4 address, and of an IPv6 address, that count.
    pub fn prefixes(self) -> (u8, u8) {
        match is_ip4(self.field) {
            true => (self.prefix, LimitKey::USUAL_IP6),
            false => (LimitKey::IP4, self.prefix),
        }
    }
}

fn is_ip4(field: FieldId) -> bool {
    matches!(field, FieldId::IpSaddr | FieldId::IpDaddr)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(amount: u64, unit: LimitUnit, period: LimitPeriod) -> Limit {
        Limit { amount, unit, period, burst: None, per: None }
    }

    #[test]
    fn the_usual_burst_is_a_part_of_a_second() {
        assert_eq!(limit(3, LimitUnit::Packets, LimitPeriod::Minute).burst(), 5);
        assert_eq!(limit(1000, LimitUnit::Packets, LimitPeriod::Second).burst(), 100);
        assert_eq!(limit(60_001, LimitUnit::Connections, LimitPeriod::Minute).burst(), 101);
        assert_eq!(limit(1000, LimitUnit::Bytes, LimitPeriod::Second).burst(), 65_536);
        assert_eq!(limit(10_000_000_000, LimitUnit::Bits, LimitPeriod::Second).burst(), 5_000_000_000);
        let limit = Limit { burst: Some(7), ..limit(1000, LimitUnit::Packets, LimitPeriod::Second) };
        assert_eq!(limit.burst(), 7);
    }

    #[test]
    fn keys_are_prefixes_of_addresses() {
        assert_eq!(LimitKey::new(FieldId::TcpSport, None), None);
        assert_eq!(LimitKey::new(FieldId::IpSaddr, Some(0)), None);
        assert_eq!(LimitKey::new(FieldId::IpSaddr, Some(33)), None);
        let key = LimitKey::new(FieldId::IpSaddr, Some(24)).expect("a key");
        assert!(key.is_source() && !key.is_usual() && key.prefixes() == (24, 64));
        let key = LimitKey::new(FieldId::Ip6Daddr, None).expect("a key");
        assert!(!key.is_source() && key.is_usual() && key.prefixes() == (32, 64));
        let key = LimitKey::new(FieldId::Ip6Daddr, Some(128)).expect("a key");
        assert_eq!(key.prefixes(), (32, 128));
    }
}

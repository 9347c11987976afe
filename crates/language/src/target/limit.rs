//! `limit RATE [burst N] [per FIELD[/PREFIX]]`: drops what exceeds a rate.

use super::info::{Slot, TargetArguments, TargetInfo};
use crate::diagnostic::{Diagnostic, TextSpan};
use crate::nearest::nearest;
use crate::report::CheckReport;
use crate::syntax::value::{ItemKind, ItemSyntax};
use mmb_policy::field::FieldId;
use mmb_policy::limit::{Limit, LimitKey, LimitPeriod, LimitUnit};
use mmb_policy::rule::Target;
use std::fmt::{Formatter, Result};

/// The form of a rate, as a text for people.
pub(crate) const RATE: &str = "a rate such as `100/s`, `30/m`, `10MB/s`, `50Mbit/s` or `20conn/s`";
/// The form of a burst, likewise.
pub(crate) const BURST: &str = "how much may come at once, such as `200`, `1MB` or `8Mbit`";
/// The form of a key, likewise.
pub(crate) const KEY: &str = "`ip-saddr`, `ip-daddr`, `ip6-saddr` or `ip6-daddr`, with or without a `/PREFIX`";

/// The word before the burst.
pub(crate) const BURST_WORD: &str = "burst";
/// The word before the key.
pub(crate) const PER_WORD: &str = "per";

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "RATE [burst N] [per FIELD[/PREFIX]]",
    help: "drops what exceeds a rate of packets, bytes or new connections",
    reference: "A rate is a number, `k`, `M` or `G` (a thousand, a million, a thousand million) or none of them, a unit, and `/s`, `/m`, `/h` or `/d`. \
                The unit is nothing for packets, `B` for bytes and `bit` for bits of packets as they are received (with the link header), and `conn` \
                for new connections, in stateful rules only. `pps` stands for `/s`. What is within the rate is treated as if the target were not there; \
                what exceeds it is dropped (rule-limit) as by `drop`: with the rule's priority, so that an `accept` of a better or the same priority \
                exempts packets from the limit, and they do not count. Beside `limit`, `accept` accepts what is within, as `accept` alone does. `burst` is what may come \
                at once after a pause: without it a tenth of a second's worth, at least 5 packets or connections, or of bytes half a second's worth, at least 65,536. With `per`, each address of \
                the field has the rate for itself, or each network of so many bits; IPv6 addresses count by their first 64 bits unless a prefix says otherwise. \
                Packets of the other version of IP are told apart by their address in the same place. The packets of a connection of a stateful rule are \
                told apart by the addresses of its first packet, in both directions, so that `per ip-saddr` is about the client. Workers share \
                a rate, which holds over all of them. The rates are exact (generic cell rate algorithm, ITU-T I.371); with more than `limit keys` addresses \
                at once, those with the least use begin anew.",
    synonyms: &["rate", "rate-limit", "police", "policer", "meter", "hashlimit"],
    slots: &[
        Slot::Rate,
        Slot::Behind { word: BURST_WORD, expected: BURST, help: "what may come at once after a pause" },
        Slot::Behind { word: PER_WORD, expected: KEY, help: "each address has the rate for itself" },
    ],
    clash,
    ..TargetInfo::new("limit", check)
};

/// The letters of multiples, the greatest first.
const MULTIPLES: [(&str, u64); 4] = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1000), ("", 1)];

const fn unit_name(unit: LimitUnit) -> &'static str {
    match unit {
        LimitUnit::Packets => "",
        LimitUnit::Bytes => "B",
        LimitUnit::Bits => "bit",
        LimitUnit::Connections => "conn",
    }
}

const fn period_name(period: LimitPeriod) -> &'static str {
    match period {
        LimitPeriod::Second => "s",
        LimitPeriod::Minute => "m",
        LimitPeriod::Hour => "h",
        LimitPeriod::Day => "d",
    }
}

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let rate = arguments.rate.as_ref()?;
    let ItemKind::Word(word) = rate.kind else { return None };
    let Some((amount, unit, period)) = read_rate(word) else {
        report.error(wrong(rate.span, word, "rate").expected(RATE));
        return None;
    };
    let burst = arguments.behind(BURST_WORD).map(|item| burst(item, unit, report));
    let per = arguments.behind(PER_WORD).map(|item| key(item, report));
    // An error in one does not hide those in the other.
    let burst = burst.map_or(Some(None), |burst| burst.map(Some))?;
    let per = per.map_or(Some(None), |per| per.map(Some))?;
    Some(Target::Limit(Limit { amount, unit, period, burst, per }))
}

fn wrong(span: TextSpan, word: &str, what: &str) -> Diagnostic {
    Diagnostic::new(span, format!("`{word}` is no {what}"))
}

/// A rate: `100/s`, `10MB/s`, `1Gbit/s`, `20conn/m`, `500kpps`.
fn read_rate(word: &str) -> Option<(u64, LimitUnit, LimitPeriod)> {
    let (quantity, period) = match word.split_once('/') {
        Some((quantity, period)) => (quantity, read_period(period)?),
        None => (word.strip_suffix("pps")?, LimitPeriod::Second),
    };
    let (amount, unit) = read_quantity(quantity)?;
    let unit = unit.unwrap_or(LimitUnit::Packets);
    let fits = (1..=Limit::MAX).contains(&amount) && (unit == LimitUnit::Packets || word.contains('/'));
    fits.then_some((amount, unit, period))
}

fn read_period(word: &str) -> Option<LimitPeriod> {
    let long = |period| match period {
        LimitPeriod::Second => "second",
        LimitPeriod::Minute => "minute",
        LimitPeriod::Hour => "hour",
        LimitPeriod::Day => "day",
    };
    LimitPeriod::ALL.into_iter().find(|period| word == period_name(*period) || word == long(*period))
}

/// A number, a multiple and a unit, none of them separated; `None` in place of a unit that is not named.
fn read_quantity(word: &str) -> Option<(u64, Option<LimitUnit>)> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = word.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let multiple = |(letter, factor): &(&str, u64)| Some((*factor, rest.strip_prefix(letter)?));
    let (factor, unit) = MULTIPLES.iter().find_map(multiple)?;
    let named = |known: &LimitUnit| !unit.is_empty() && unit == unit_name(*known);
    let unit = match unit {
        "" => None,
        _ => Some(LimitUnit::ALL.into_iter().find(named)?),
    };
    Some((number.checked_mul(factor)?, unit))
}

fn burst(item: &ItemSyntax<'_>, unit: LimitUnit, report: &mut CheckReport<'_>) -> Option<u64> {
    let ItemKind::Word(word) = item.kind else { return None };
    let read = read_quantity(word).and_then(|(amount, own)| match (own.unwrap_or(unit), unit) {
        (own, unit) if own == unit => Some(amount),
        (LimitUnit::Bytes, LimitUnit::Bits) => amount.checked_mul(8),
        (LimitUnit::Bits, LimitUnit::Bytes) if amount % 8 == 0 => Some(amount / 8),
        _ => None,
    });
    let Some(amount) = read.filter(|amount| *amount <= Limit::MAX) else {
        report.error(wrong(item.span, word, "burst of this rate").expected(BURST));
        return None;
    };
    let min = Limit::min_burst(unit);
    if amount < min {
        let message = match unit {
            LimitUnit::Packets | LimitUnit::Connections => "nothing would pass".to_owned(),
            LimitUnit::Bytes | LimitUnit::Bits => "a full frame would never pass".to_owned(),
        };
        let expected = format!("at least {min}{}", unit_name(unit));
        report.error(Diagnostic::new(item.span, message).expected(expected));
        return None;
    }
    Some(amount)
}

fn key(item: &ItemSyntax<'_>, report: &mut CheckReport<'_>) -> Option<LimitKey> {
    let ItemKind::Word(word) = item.kind else { return None };
    let (name, prefix) = word.split_once('/').map_or((word, None), |(name, prefix)| (name, Some(prefix)));
    let Some(field) = FieldId::named(name).filter(|field| LimitKey::FIELDS.contains(field)) else {
        let names = LimitKey::FIELDS.iter().map(|field| field.info().name);
        let error = wrong(item.span, name, "field that a limit has keys of").expected(KEY);
        report.error(error.suggest(nearest(name, names)));
        return None;
    };
    let bits = match prefix {
        None => Some(None),
        Some(bits) => bits.parse().ok().map(Some),
    };
    let key = bits.and_then(|bits| LimitKey::new(field, bits));
    if key.is_none() {
        let max = field.info().width().unwrap_or_default();
        let error = wrong(item.span, prefix.unwrap_or_default(), &format!("prefix length of `{name}`"));
        report.error(error.expected(format!("a number 1 to {max}")));
    }
    key
}

fn clash(_: &Target, others: &[&Target]) -> Option<&'static str> {
    let any = |is: fn(&Target) -> bool| others.iter().any(|other| is(other));
    if any(|other| matches!(other, Target::Limit(_))) {
        return Some("`limit` is given twice");
    }
    let drops = any(|other| matches!(other, Target::Drop(_) | Target::Reject(_) | Target::Close));
    drops.then_some("a rule limits packets or drops all of them, not both")
}

pub(crate) fn print(f: &mut Formatter<'_>, limit: &Limit) -> Result {
    f.write_str("limit ")?;
    quantity(f, limit.amount, limit.unit)?;
    write!(f, "/{}", period_name(limit.period))?;
    if let Some(burst) = limit.burst {
        write!(f, " {BURST_WORD} ")?;
        let unit = match limit.unit {
            LimitUnit::Packets | LimitUnit::Connections => LimitUnit::Packets,
            unit => unit,
        };
        quantity(f, burst, unit)?;
    }
    let Some(key) = limit.per else { return Ok(()) };
    write!(f, " {PER_WORD} {}", key.field().info().name)?;
    if key.is_usual() { Ok(()) } else { write!(f, "/{}", key.prefix()) }
}

fn quantity(f: &mut Formatter<'_>, amount: u64, unit: LimitUnit) -> Result {
    let of = |(_, factor): &&(&str, u64)| amount.is_multiple_of(*factor);
    let (letter, factor) = MULTIPLES.iter().find(of).unwrap_or(&MULTIPLES[3]);
    write!(f, "{}{letter}{}", amount / factor, unit_name(unit))
}

//! Translates `limit`, of a rule and of the elements of sets (`net/netfilter/nft_limit.c`).

use super::json::{Expr, LimitStatement, TaggedExpr};
use crate::cube::Family;
use crate::netfilter::{Rate, Reason};
use mmb_policy::FieldId;
use mmb_policy::limit::{Limit, LimitKey, LimitPeriod, LimitUnit};
use std::net::IpAddr;

/// The packets that may come at once if a rule does not say it.
const USUAL_BURST: u64 = 5;

/// The rate of a statement: of all its packets, or of each key.
///
/// # Errors
/// Why it cannot be translated.
pub(super) fn rate(
    source: &LimitStatement,
    per: Option<LimitKey>,
    table: Option<String>,
) -> Result<Rate, Reason> {
    let wrong = || "limit: the rate is not known".to_owned();
    let period = match source.per.as_str() {
        "second" => LimitPeriod::Second,
        "minute" => LimitPeriod::Minute,
        "hour" => LimitPeriod::Hour,
        "day" => LimitPeriod::Day,
        // A week is no period of the language.
        _ => return Err(wrong()),
    };
    let given = source.burst.filter(|&burst| burst > 0);
    let (unit, amount, burst) = match bytes_of(source.rate_unit.as_deref()).ok_or_else(wrong)? {
        None => (LimitUnit::Packets, source.rate, given.unwrap_or(USUAL_BURST)),
        // A bucket of bytes holds those of a period, and the burst.
        Some(times) => {
            let amount = source.rate.checked_mul(times).ok_or_else(wrong)?;
            let times = bytes_of(source.burst_unit.as_deref()).flatten().unwrap_or(1);
            let burst = given.unwrap_or(0).checked_mul(times).and_then(|burst| burst.checked_add(amount));
            (LimitUnit::Bytes, amount, burst.ok_or_else(wrong)?)
        }
    };
    let fits = |number: u64| (1..=Limit::MAX).contains(&number);
    if !fits(amount) || !fits(burst) {
        return Err(wrong());
    }
    let limit = Limit { amount, unit, period, burst: Some(burst.max(Limit::min_burst(unit))), per };
    Ok(Rate { limit, is_beyond: source.inv, table })
}

/// The bytes of a unit; `None` within: packets.
fn bytes_of(unit: Option<&str>) -> Option<Option<u64>> {
    match unit {
        None | Some("packets") => Some(None),
        Some("bytes") => Some(Some(1)),
        Some("kbytes") => Some(Some(1 << 10)),
        Some("mbytes") => Some(Some(1 << 20)),
        Some(_) => None,
    }
}

/// What the elements of a set are for packets, with the family of these: an address, or its first bits.
///
/// # Errors
/// Why a limit has no such key.
pub(super) fn key(elem: &Expr) -> Result<(LimitKey, Family), Reason> {
    let wrong = || "limit: rates are of one address here".to_owned();
    let (field, mask) = match elem.tagged() {
        Some(TaggedExpr::And(parts)) => match &parts[..] {
            [field, mask] => (field, Some(mask)),
            _ => return Err(wrong()),
        },
        _ => (elem, None),
    };
    let Some(TaggedExpr::Payload(payload)) = field.tagged() else { return Err(wrong()) };
    let (field, family) = match (payload.protocol.as_str(), payload.field.as_str()) {
        ("ip", "saddr") => (FieldId::IpSaddr, Family::Ip4),
        ("ip", "daddr") => (FieldId::IpDaddr, Family::Ip4),
        ("ip6", "saddr") => (FieldId::Ip6Saddr, Family::Ip6),
        ("ip6", "daddr") => (FieldId::Ip6Daddr, Family::Ip6),
        _ => return Err(wrong()),
    };
    let width = if family == Family::Ip6 { 128 } else { 32 };
    let bits = match mask {
        None => width,
        Some(mask) => mask.text().and_then(prefix).ok_or_else(wrong)?,
    };
    Ok((LimitKey::new(field, Some(bits)).ok_or_else(wrong)?, family))
}

/// The bits of a mask, if they are the first ones.
fn prefix(mask: &str) -> Option<u8> {
    let (ones, total) = match mask.parse().ok()? {
        IpAddr::V4(mask) => (mask.to_bits().leading_ones(), mask.to_bits().count_ones()),
        IpAddr::V6(mask) => (mask.to_bits().leading_ones(), mask.to_bits().count_ones()),
    };
    if ones == total { u8::try_from(ones).ok() } else { None }
}

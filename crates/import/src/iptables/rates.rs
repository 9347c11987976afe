//! Translates `limit` and `hashlimit` (`net/netfilter/xt_limit.c`, `net/netfilter/xt_hashlimit.c`).

use super::names;
use super::save::{IptablesRule, Opt};
use crate::cube::Family;
use crate::netfilter::{Rate, Reason};
use mmb_policy::FieldId;
use mmb_policy::limit::{Limit, LimitKey, LimitPeriod, LimitUnit};

/// The modules whose options this file translates.
pub(super) const MODULES: [&str; 2] = ["limit", "hashlimit"];

/// The packets that may come at once if a rule does not say it.
const USUAL_BURST: u64 = 5;

/// The rate that a rule matches by, if it does.
///
/// # Errors
/// Why it cannot be translated.
pub(super) fn rate(family: Family, rule: &IptablesRule) -> Result<Option<Rate>, Reason> {
    let modules: Vec<&str> = rule
        .options
        .iter()
        .filter(|option| option.name == "match")
        .filter_map(|option| option.values.first().map(String::as_str))
        .filter(|module| MODULES.contains(module))
        .collect();
    let module = match modules[..] {
        [] => return Ok(None),
        [module] => module,
        _ => return Err("limit: a rule has one rate here".to_owned()),
    };
    let of_module = |option: &&Opt| option.name.starts_with(module);
    let options = RateOptions { family, options: rule.options.iter().filter(of_module).collect() };
    if module == "limit" { options.limit() } else { options.hashlimit() }.map(Some)
}

/// Whether no module that tells packets apart stands behind the rate: the kernel asks modules in their order, and only what gets to the rate counts for it.
pub(super) fn is_last_match(rule: &IptablesRule) -> bool {
    let modules = rule.options.iter().filter(|option| option.name == "match");
    let mut modules = modules.filter_map(|option| option.values.first().map(String::as_str));
    modules.rfind(|&module| module != "comment").is_some_and(|module| MODULES.contains(&module))
}

/// The options of a module.
struct RateOptions<'a> {
    family: Family,
    options: Vec<&'a Opt>,
}

impl RateOptions<'_> {
    fn find(&self, name: &str) -> Option<&Opt> {
        self.options.iter().copied().find(|option| option.name == name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.find(name)?.values.first().map(String::as_str)
    }

    fn wrong(&self, name: &str) -> Reason {
        format!("--{name}: `{}` is not known", self.value(name).unwrap_or_default())
    }

    fn burst(&self, name: &str) -> Result<Option<u64>, Reason> {
        let Some(word) = self.value(name) else { return Ok(None) };
        let burst = bytes(word).map(|(amount, _)| amount).filter(|burst| (1..=Limit::MAX).contains(burst));
        burst.map(Some).ok_or_else(|| self.wrong(name))
    }

    fn limit(&self) -> Result<Rate, Reason> {
        let rate = self.value("limit").unwrap_or("3/hour");
        let (amount, period) = packet_rate(rate).ok_or_else(|| self.wrong("limit"))?;
        let burst = Some(self.burst("limit-burst")?.unwrap_or(USUAL_BURST));
        let limit = Limit { amount, unit: LimitUnit::Packets, period, burst, per: None };
        Ok(Rate { limit, is_beyond: false, table: None })
    }

    fn hashlimit(&self) -> Result<Rate, Reason> {
        let unknown = self.options.iter().find(|option| {
            let name = option.name.as_str();
            !RATES.iter().any(|(known, _)| *known == name) && !KNOWN.contains(&name)
        });
        if let Some(option) = unknown {
            return Err(format!("--{}: the rule language has nothing like it", option.name));
        }
        let (name, is_beyond) = RATES
            .into_iter()
            .find_map(|(name, is_beyond)| Some((name, is_beyond != self.find(name)?.negated)))
            .ok_or("-m hashlimit: its rate is missing")?;
        let word = self.value(name).unwrap_or_default();
        let burst = self.burst("hashlimit-burst")?;
        let (amount, unit, period, burst) = match (packet_rate(word), byte_rate(word)) {
            (Some((amount, period)), _) => (amount, LimitUnit::Packets, period, burst.unwrap_or(USUAL_BURST)),
            // A bucket of bytes holds those of a second. The kernel's burst is what an entry may take beyond that until it is forgotten; here it comes again
            // after a pause.
            (None, Some(amount)) => {
                (amount, LimitUnit::Bytes, LimitPeriod::Second, burst.unwrap_or(amount).max(amount))
            }
            (None, None) => return Err(self.wrong(name)),
        };
        let min = Limit::min_burst(unit);
        let limit = Limit { amount, unit, period, burst: Some(burst.max(min)), per: self.key()? };
        Ok(Rate { limit, is_beyond, table: self.value("hashlimit-name").map(str::to_owned) })
    }

    /// What has the rate for itself.
    fn key(&self) -> Result<Option<LimitKey>, Reason> {
        let Some(mode) = self.value("hashlimit-mode") else { return Ok(None) };
        let is_six = self.family == Family::Ip6;
        let (field, mask) = match (mode, is_six) {
            ("srcip", false) => (FieldId::IpSaddr, "hashlimit-srcmask"),
            ("srcip", true) => (FieldId::Ip6Saddr, "hashlimit-srcmask"),
            ("dstip", false) => (FieldId::IpDaddr, "hashlimit-dstmask"),
            ("dstip", true) => (FieldId::Ip6Daddr, "hashlimit-dstmask"),
            _ => return Err(format!("--hashlimit-mode {mode}: rates are of one address here")),
        };
        let bits = match self.value(mask) {
            None => Some(if is_six { 128 } else { 32 }),
            Some(word) => word.parse().ok(),
        };
        match bits {
            Some(0) => Ok(None),
            bits => {
                let key = bits.and_then(|bits| LimitKey::new(field, Some(bits)));
                key.map(Some).ok_or_else(|| self.wrong(mask))
            }
        }
    }
}

/// The options with the rate, and whether packets beyond it match.
const RATES: [(&str, bool); 3] = [("hashlimit-upto", false), ("hashlimit-above", true), ("hashlimit", false)];

/// The other options of `hashlimit`. The size of the table and when it forgets have no equivalent.
const KNOWN: [&str; 9] = [
    "hashlimit-burst",
    "hashlimit-mode",
    "hashlimit-name",
    "hashlimit-srcmask",
    "hashlimit-dstmask",
    "hashlimit-htable-size",
    "hashlimit-htable-max",
    "hashlimit-htable-expire",
    "hashlimit-htable-gcinterval",
];

/// `AMOUNT/PERIOD`, whose period may be abbreviated.
fn packet_rate(word: &str) -> Option<(u64, LimitPeriod)> {
    let (amount, period) = word.split_once('/')?;
    let amount: u64 = amount.parse().ok().filter(|amount| (1..=Limit::MAX).contains(amount))?;
    let periods = [
        ("second", LimitPeriod::Second),
        ("minute", LimitPeriod::Minute),
        ("hour", LimitPeriod::Hour),
        ("day", LimitPeriod::Day),
    ];
    let is_named = |&(name, _): &(&str, LimitPeriod)| !period.is_empty() && name.starts_with(period);
    periods.into_iter().find(is_named).map(|(_, period)| (amount, period))
}

/// `AMOUNTb/s`, `AMOUNTkb/s` or `AMOUNTmb/s`.
fn byte_rate(word: &str) -> Option<u64> {
    match bytes(word.strip_suffix("/s").or_else(|| word.strip_suffix("/sec"))?) {
        Some((amount, true)) if (1..=Limit::MAX).contains(&amount) => Some(amount),
        _ => None,
    }
}

/// A number, and whether it is one of bytes.
fn bytes(word: &str) -> Option<(u64, bool)> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let times = match &word[digits.len()..] {
        "" => return Some((names::number(word)?.into(), false)),
        "b" => 1,
        "kb" => 1 << 10,
        "mb" => 1 << 20,
        _ => return None,
    };
    Some((digits.parse::<u64>().ok()?.checked_mul(times)?, true))
}

//! Rules with `limit`: their rates, and the state of the rate limits.
//!
//! Workers share these rules, so a rate applies to all workers together. If a rule is replaced by a rule with
//! the same id and the same limit, the state is kept.

use super::limit_keys::{KeyOutcome, LimitKeys};
use crate::rate::{RateCell, RateLimit, Ticks};
use mmb_conn::{Tuple, TupleHasher};
use mmb_policy::limit::{Limit, LimitKey, LimitUnit};
use mmb_policy::settings::LimitSettings;
use mmb_policy::{Rule, RuleId, Target};
use mmb_random::{Generator, Seed};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A rule with a limit.
#[derive(Debug)]
pub(crate) struct LimitRule {
    limit: Limit,
    rate: RateLimit,
    state: LimitState,
}

/// The state of a rate limit: one for all packets, or one per key.
#[derive(Debug)]
enum LimitState {
    Shared(RateCell),
    PerKey(LimitKey, LimitKeys),
}

/// A packet to which a limit is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitedPacket {
    pub(crate) now: Ticks,
    pub(crate) bytes: u64,
    /// The packet begins a connection, if it is not dropped.
    pub(crate) begins: bool,
}

/// The limit of a rule, if it has one.
pub(crate) fn limit_of(rule: &Rule) -> Option<&Limit> {
    rule.targets.iter().find_map(|target| match target {
        Target::Limit(limit) => Some(limit),
        Target::Mod(..) | Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) => None,
        Target::StripAll | Target::Drop(_) | Target::Reject(_) | Target::Accept => None,
        Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) | Target::Log(_) => None,
        Target::Alert(_) | Target::Close | Target::Digest | Target::Edit(_) | Target::Helper(_) => None,
    })
}

impl LimitRule {
    fn new(limit: Limit, settings: LimitSettings, seed: Seed) -> LimitRule {
        LimitRule {
            limit,
            rate: RateLimit::new((limit.amount, limit.period.seconds()), limit.burst()),
            state: match limit.per {
                None => LimitState::Shared(RateCell::default()),
                Some(key) => LimitState::PerKey(key, LimitKeys::new(settings.keys, TupleHasher::new(seed))),
            },
        }
    }

    /// Prefetches what [`LimitRule::take`] reads for a packet with these ends.
    #[inline]
    pub(crate) fn prefetch(&self, ends: impl FnOnce() -> Option<Tuple>) {
        if let LimitState::PerKey(key, keys) = &self.state {
            keys.prefetch(&key_of_ends(*key, ends()));
        }
    }

    /// Decides whether a packet is within the limit, and takes its units if it is. `ends` returns the
    /// addresses from which the key is computed. All packets without addresses share one key.
    #[inline]
    pub(crate) fn take(
        &self,
        LimitedPacket { now, bytes, begins }: LimitedPacket,
        ends: impl FnOnce() -> Option<Tuple>,
    ) -> KeyOutcome {
        let units = match self.limit.unit {
            LimitUnit::Connections if !begins => return KeyOutcome { fits: true, evicted: false },
            LimitUnit::Packets | LimitUnit::Connections => 1,
            LimitUnit::Bytes => bytes,
            LimitUnit::Bits => 8 * bytes,
        };
        match &self.state {
            LimitState::Shared(cell) => {
                KeyOutcome { fits: cell.take_units(&self.rate, units, now), evicted: false }
            }
            LimitState::PerKey(key, keys) => keys.take(&key_of_ends(*key, ends()), &self.rate, units, now),
        }
    }
}

/// The key of a packet with these ends: a tuple in which only an address and its family count. The default
/// tuple without ends.
fn key_of_ends(key: LimitKey, ends: Option<Tuple>) -> Tuple {
    let Some(ends) = ends else { return Tuple::default() };
    let [source, destination] = ends.addresses;
    let address = if key.is_source() { source } else { destination };
    let ((ip4, ip6), family) = (key.prefixes(), ends.family);
    let host_bits = if family == 4 { 32 - u32::from(ip4) } else { 128 - u32::from(ip6) };
    // A prefix has at least one bit, so the shift is below the width.
    Tuple { addresses: [address >> host_bits << host_bits, 0], family, ..Tuple::default() }
}

/// The rules with limits of the current policy, by id. Belongs to the control side.
#[derive(Debug)]
pub(super) struct LimitRules {
    rules: BTreeMap<RuleId, Arc<LimitRule>>,
    /// Seeds of the key tables.
    seeds: Generator,
    /// The settings with which the key tables were created.
    settings: LimitSettings,
}

impl LimitRules {
    pub(super) fn new(seed: Seed) -> LimitRules {
        LimitRules { rules: BTreeMap::new(), seeds: Generator::new(seed), settings: LimitSettings::default() }
    }

    /// Returns the compiled limit of a rule: the existing one, if the rule with this id has the same limit
    /// already.
    pub(super) fn install(&mut self, id: RuleId, limit: &Limit) -> Arc<LimitRule> {
        if let Some(before) = self.rules.get(&id).filter(|before| before.limit == *limit) {
            return Arc::clone(before);
        }
        let rule = Arc::new(LimitRule::new(*limit, self.settings, self.seeds.seed()));
        self.rules.insert(id, Arc::clone(&rule));
        rule
    }

    /// Removes the limits for which `stays` is false. To be called before the rules of a policy are
    /// installed.
    pub(super) fn retain(&mut self, stays: impl Fn(RuleId, &Limit) -> bool) {
        self.rules.retain(|id, rule| stays(*id, &rule.limit));
    }

    /// Adopts settings. If they have changed, replaces the key tables and returns the rules that have one.
    pub(super) fn configure(&mut self, settings: LimitSettings) -> Vec<(RuleId, Arc<LimitRule>)> {
        if std::mem::replace(&mut self.settings, settings) == settings {
            return Vec::new();
        }
        let mut replaced = Vec::new();
        for (id, rule) in self.rules.iter_mut().filter(|(_, rule)| rule.limit.per.is_some()) {
            *rule = Arc::new(LimitRule::new(rule.limit, settings, self.seeds.seed()));
            replaced.push((*id, Arc::clone(rule)));
        }
        replaced
    }

    /// The bytes of the key tables of `rules`, without the tables that exist already.
    pub(super) fn extra_bytes(
        &self,
        rules: impl Iterator<Item = (RuleId, Limit)>,
        settings: LimitSettings,
    ) -> u64 {
        let exists = |(id, limit): &(RuleId, Limit)| {
            settings == self.settings && self.rules.get(id).is_some_and(|rule| rule.limit == *limit)
        };
        let added = rules.filter(|(_, limit)| limit.per.is_some()).filter(|rule| !exists(rule));
        added.count() as u64 * LimitKeys::bytes(settings.keys)
    }

    /// The settings of the existing key tables.
    pub(super) fn settings(&self) -> LimitSettings {
        self.settings
    }
}

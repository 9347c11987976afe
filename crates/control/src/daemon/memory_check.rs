//! Checks, before a policy is published, that there is enough memory for it.

use super::Daemon;
use crate::change::CommitError;
use crate::host::{Host, PortStatus, WorkerStatus};
use crate::memory::{self, AvailableMemory, MemoryNeed, MemoryShortage};
use mmb_engine::{CONNECTION_BYTES, Engine, StreamNeed};
use mmb_policy::settings::{ConnectionSettings, LimitSettings, Poll, StreamSettings};
use mmb_policy::{Policy, RuleStore};
use std::sync::Arc;

/// The memory for up to this many changed rules is not checked. A rule that takes much memory counts several times.
const MAX_UNCHECKED_RULES: usize = 1 << 12;

/// The host of a policy that is only checked.
struct NoHost;

impl Host for NoHost {
    fn ports(&self) -> Vec<PortStatus> {
        Vec::new()
    }

    fn set_poll(&self, _poll: Poll) {}

    fn workers(&self) -> Vec<WorkerStatus> {
        Vec::new()
    }
}

/// The result of a memory check.
pub(super) struct MemoryBounds {
    /// The most connections that fit.
    pub(super) connections: usize,
    /// The new value of `Daemon::unchecked_rules`.
    pub(super) unchecked_rules: usize,
}

impl Daemon {
    /// Checks that this machine has the memory for a start with a policy. The engine must be new, with the patterns of
    /// the policy in its cache.
    ///
    /// # Errors
    /// The memory does not suffice, or the engine cannot execute the policy.
    pub fn check_start(engine: Engine, policy: &Policy) -> Result<(), CommitError> {
        let daemon = Daemon::unpublished(engine, Box::new(NoHost), Arc::default());
        daemon.engine.check(&daemon.policy, policy)?;
        daemon.check_memory(policy).map(drop)
    }

    /// Checks that there is memory for a policy beside the policy in force. The engine must have checked the policy
    /// before. Returns the number of connections that fit. Small changes always pass, so that a user can free memory;
    /// a change that raises a limit is not small.
    pub(super) fn check_memory(&self, next: &Policy) -> Result<MemoryBounds, CommitError> {
        let (rules, after) = (&self.policy.rules, &next.rules);
        let changed = RuleStore::diff(rules, after).bounds().1.min(after.len());
        let extra = self.engine.extra_bytes(&self.policy, next);
        let heavy = usize::try_from(extra / memory::RULE_BYTES).unwrap_or(usize::MAX);
        let unchecked_rules =
            self.unchecked_rules.saturating_add(heavy) + after.len().saturating_sub(rules.len());
        let is_large = changed.max(unchecked_rules) > MAX_UNCHECKED_RULES;
        let allowed = self.max_connections();
        let max = u64::from(next.settings.connections.max);
        let bound = self.engine.connection_bound();
        let streams = self.engine.stream_need(next);
        let streams_grow = self.streams_grow(next, &streams);
        // `allowed` is 0 at the start. A default `conn max` that was reduced grows again when memory is free.
        if !is_large && max <= allowed && !streams_grow {
            return Ok(MemoryBounds { connections: bound, unchecked_rules });
        }
        let Some(available) = self.host.memory() else {
            return Ok(MemoryBounds { connections: usize::MAX, unchecked_rules: 0 });
        };
        let rules = MemoryNeed::of(if is_large { changed as u64 * memory::RULE_BYTES + extra } else { 0 });
        let needed = rules.with(self.of_streams(&streams, streams_grow));
        if streams_grow {
            let reserved = if is_default(next) { 0 } else { self.reserved_bytes(allowed.min(max)) };
            available.check(needed, reserved).map_err(|short| {
                self.too_many_streams(next, (&streams, rules), (&available, reserved), short)
            })?;
        }
        // The table keeps the memory of connections that have ended.
        let existing = self.engine.connections().summary().places;
        let connections = if is_default(next) {
            let checked = available.check(needed, 0);
            // A small change needs next to nothing, and streams no more than before. At the start the bound is 0.
            if checked.is_err() && !is_large && !streams_grow && bound > 0 {
                return Ok(MemoryBounds { connections: bound, unchecked_rules });
            }
            checked.map_err(|short| self.too_large(next, short))?;
            let fits = (existing + available.left(needed, 0) / 4 * 3 / CONNECTION_BYTES).max(1);
            if is_large { fits } else { fits.max(bound as u64) }
        } else if max > allowed {
            let wanted = MemoryNeed::of(max.saturating_sub(existing) * CONNECTION_BYTES);
            available.check(needed.with(wanted), 0).map_err(|short| {
                let fits = existing + available.left(needed, 0) / CONNECTION_BYTES;
                CommitError::Sized { setting: "conn max", value: max, fits, short }
            })?;
            max
        } else {
            let reserved = self.reserved_bytes(allowed.min(max));
            available.check(needed, reserved).map_err(|short| self.too_large(next, short))?;
            allowed
        };
        Ok(MemoryBounds {
            connections: usize::try_from(connections).unwrap_or(usize::MAX),
            unchecked_rules: 0,
        })
    }

    /// The bounds of a policy that was in force before an unconfirmed change: connections have not taken its memory since.
    pub(super) fn kept_memory(&self) -> MemoryBounds {
        MemoryBounds { connections: self.engine.connection_bound(), unchecked_rules: self.unchecked_rules }
    }

    /// Checks that there is memory for `bytes`, beside what connections and streams may still take.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn check_memory_for(&self, bytes: u64) -> Result<(), MemoryShortage> {
        let Some(available) = self.host.memory() else { return Ok(()) };
        let reserved = if is_default(&self.policy) { 0 } else { self.reserved_bytes(self.max_connections()) };
        let streams = self.of_streams(&self.engine.stream_need(&self.policy), false);
        available.check(MemoryNeed::of(bytes).with(streams), reserved)
    }

    /// Checks that there is memory for something that ends soon. Memory that is reserved for connections counts as free.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn check_memory_now(&self, bytes: u64) -> Result<(), MemoryShortage> {
        self.host.memory().map_or(Ok(()), |available| available.check(MemoryNeed::of(bytes), 0))
    }

    /// Whether streams may take more memory under a policy than under the policy in force. Without rules on streams,
    /// only limits above the defaults count.
    fn streams_grow(&self, next: &Policy, need: &StreamNeed) -> bool {
        let (set, default) = (&next.settings.streams, StreamSettings::default());
        let is_asked = need.is_used || set.max > default.max || set.memory_mib > default.memory_mib;
        let before = self.engine.stream_need(&self.policy);
        need.is_used && !before.is_used || is_asked && need.total() > before.total()
    }

    /// The memory that streams may take beyond what they have taken. It is 0 without rules on streams, unless `grow`:
    /// a limit that is raised must fit even before the first rule.
    fn of_streams(&self, need: &StreamNeed, grow: bool) -> MemoryNeed {
        if !need.is_used && !grow {
            return MemoryNeed::default();
        }
        let taken = self.engine.stream_taken(need.record);
        MemoryNeed { used: need.beyond(taken), space: need.space_beyond(taken) }
    }

    /// The error about streams that do not fit beside `rules`. It names the setting that the change raises, or else the
    /// setting that takes more memory, and the value of it that fits.
    fn too_many_streams(
        &self,
        next: &Policy,
        (need, rules): (&StreamNeed, MemoryNeed),
        (available, reserved): (&AvailableMemory, u64),
        short: MemoryShortage,
    ) -> CommitError {
        let (before, after) = (self.policy.settings.streams, next.settings.streams);
        let records = need.streams * need.each;
        let left = |taken: u64| available.left(rules.with(MemoryNeed::of(taken + need.fixed)), reserved);
        let (for_payload, for_records) = (left(records), left(need.payload));
        let is_payload = match (after.memory_mib > before.memory_mib, after.max > before.max) {
            (true, false) => true,
            (false, true) => false,
            _ => need.payload > records,
        };
        if is_payload {
            // A MiB of payload takes a little more than a MiB.
            let fits = for_payload.saturating_sub(for_payload >> 8) >> 20;
            CommitError::Sized { setting: "stream memory", value: after.memory_mib.into(), fits, short }
        } else {
            let fits = for_records / need.each.max(1);
            CommitError::Sized { setting: "stream max", value: after.max.into(), fits, short }
        }
    }

    /// The error about a policy that does not fit. If the tables of limits are most of it, and smaller ones would fit, it
    /// names `limit keys`.
    fn too_large(&self, next: &Policy, short: MemoryShortage) -> CommitError {
        let keys = u64::from(next.settings.limits.keys);
        let tables = self.engine.limit_bytes(&self.policy, next);
        let left = tables.saturating_sub(short.needed.saturating_sub(short.bytes));
        // A table has a power of two of keys, and its size is in proportion.
        let fits = (keys.next_power_of_two() * left).checked_div(tables).and_then(u64::checked_ilog2);
        match fits.map(|log| 1 << log) {
            Some(fits) if 2 * tables > short.needed && fits >= u64::from(LimitSettings::MIN_KEYS) => {
                CommitError::Sized { setting: "limit keys", value: keys, fits, short }
            }
            _ => CommitError::Memory(short),
        }
    }

    /// Returns the most connections that are allowed.
    fn max_connections(&self) -> u64 {
        u64::from(self.policy.settings.connections.max).min(self.engine.connection_bound() as u64)
    }

    /// Returns the bytes that connections may still take, up to `connections` of them.
    fn reserved_bytes(&self, connections: u64) -> u64 {
        connections.saturating_sub(self.engine.connections().summary().places) * CONNECTION_BYTES
    }
}

/// Returns whether a policy has the default limit of connections. The default is cut to the memory that there is, and again in favour of
/// rules. Any other number was set by a user: it is granted as a whole, or the policy is refused.
fn is_default(policy: &Policy) -> bool {
    policy.settings.connections.max == ConnectionSettings::default().max
}

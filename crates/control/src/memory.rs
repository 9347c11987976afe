//! The memory that the process may still take, so that changes that need more are refused.
//!
//! Clients' threads allocate the memory for policies, in code that cannot handle a failure: without memory the process would end, and its
//! packets with it. So the need of a change is estimated, as an upper bound, and compared with the tightest limit that the system has: the
//! process's address space and data (`RLIMIT_AS`, `RLIMIT_DATA`), its control groups, and the free memory of the machine. Others may allocate between the check and
//! the allocation; `HEADROOM` is for them and for the packet threads.

mod control_group;

use rustix::process::Resource;
use std::{fmt, fs};

/// Memory that changes do not take.
const HEADROOM: u64 = 32 << 20;

/// The most bytes that a rule takes during a commit, in which it is parsed, compared with the old policy and compiled. Measured: some 420
/// bytes for five-tuples (docs/operations.md). What rules with conditions or several keys take beyond that is `Engine::extra_bytes`.
pub(crate) const RULE_BYTES: u64 = 640;

/// The most bytes that a byte of a request takes until it is executed: itself, its decoded copy, and the parsed and compiled elements of a
/// list.
pub(crate) const TEXT_BYTES: u64 = 12;

/// The most bytes that a client with `monitor` takes: its queue of events.
pub(crate) const MONITOR_BYTES: u64 = 4 << 20;

/// The most bytes that a client with `trace` or `capture` takes: its queue of packets, and its filter for each worker.
pub(crate) const TAP_BYTES: u64 = 14 << 20;

/// A limit of memory, and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBound {
    /// Bytes.
    pub bytes: u64,
    /// The name of the limit.
    pub name: &'static str,
    /// The limit is one of address space: memory counts when it is reserved, not when it is used.
    pub is_of_space: bool,
}

/// The available memory under each limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvailableMemory(Vec<MemoryBound>);

/// An upper bound of what a change takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryNeed {
    /// Memory, now or later.
    pub(crate) used: u64,
    /// Address space.
    pub(crate) space: u64,
}

impl MemoryNeed {
    /// Memory of which everything that is reserved is used.
    pub(crate) fn of(bytes: u64) -> MemoryNeed {
        MemoryNeed { used: bytes, space: bytes }
    }

    /// The sum of both.
    pub(crate) fn with(self, other: MemoryNeed) -> MemoryNeed {
        MemoryNeed {
            used: self.used.saturating_add(other.used),
            space: self.space.saturating_add(other.space),
        }
    }
}

/// There is not enough memory for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough memory: this may need {} MB, but only {} MB are available ({bound}{})", mib(*.needed), .bytes >> 20, ReservedNote(*.reserved))]
pub struct MemoryShortage {
    /// Bytes that may be needed.
    pub needed: u64,
    /// Bytes that are available.
    pub bytes: u64,
    /// The name of the limit.
    pub bound: &'static str,
    /// Bytes that are not available because they are reserved for connections.
    pub reserved: u64,
}

/// The part of the message about reserved memory.
struct ReservedNote(u64);

impl fmt::Display for ReservedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            bytes => write!(f, "; {} MB are reserved for connections", mib(bytes)),
        }
    }
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl MemoryBound {
    fn needs(self, needed: MemoryNeed) -> u64 {
        if self.is_of_space { needed.space } else { needed.used }
    }

    /// Bytes that changes may take, without the memory that is reserved for connections.
    fn for_changes(self, reserved: u64) -> u64 {
        self.bytes.saturating_sub(HEADROOM).saturating_sub(reserved)
    }
}

impl AvailableMemory {
    /// The available memory under these limits; `None` without a limit.
    pub fn new(bounds: Vec<MemoryBound>) -> Option<AvailableMemory> {
        if bounds.is_empty() { None } else { Some(AvailableMemory(bounds)) }
    }

    /// Returns the bytes that changes may take after `needed` and the bytes `reserved` for connections.
    pub(crate) fn left(&self, needed: MemoryNeed, reserved: u64) -> u64 {
        let left = |bound: &MemoryBound| bound.for_changes(reserved).saturating_sub(bound.needs(needed));
        self.0.iter().map(left).min().unwrap_or(u64::MAX)
    }

    /// Checks that so much is available beside the memory that is reserved for connections.
    ///
    /// # Errors
    /// Less is available.
    pub(crate) fn check(&self, needed: MemoryNeed, reserved: u64) -> Result<(), MemoryShortage> {
        let missing = |bound: &MemoryBound| bound.needs(needed).saturating_sub(bound.for_changes(reserved));
        let Some(bound) = self.0.iter().filter(|bound| missing(bound) > 0).max_by_key(|bound| missing(bound))
        else {
            return Ok(());
        };
        let (needed, bytes) = (bound.needs(needed), bound.for_changes(reserved));
        Err(MemoryShortage { needed, bytes, bound: bound.name, reserved })
    }
}

/// Returns the memory that this process may still take; `None` if the system does not tell.
pub fn available() -> Option<AvailableMemory> {
    let space = limit(Resource::As, "VmSize:", "RLIMIT_AS");
    let data = limit(Resource::Data, "VmData:", "RLIMIT_DATA");
    AvailableMemory::new([space, data, control_groups(), machine()].into_iter().flatten().collect())
}

/// Checks that the process may reserve `bytes` more of address space.
///
/// # Errors
/// It may take less.
pub fn check_space(bytes: u64) -> Result<(), MemoryShortage> {
    available().map_or(Ok(()), |available| available.check(MemoryNeed { used: 0, space: bytes }, 0))
}

/// Returns what a resource limit leaves to this process. `line` names the line of `/proc/self/status` with the used bytes.
fn limit(resource: Resource, line: &str, name: &'static str) -> Option<MemoryBound> {
    let limit = rustix::process::getrlimit(resource).current?;
    let used = field(&fs::read_to_string("/proc/self/status").ok()?, line)?;
    Some(MemoryBound { bytes: limit.saturating_sub(used), name, is_of_space: true })
}

/// Returns the available memory of the machine.
fn machine() -> Option<MemoryBound> {
    let bytes = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    Some(MemoryBound { bytes, name: "memory of the machine", is_of_space: false })
}

/// Parses a number of kilobytes after a name.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Returns the memory that the process's control groups have left.
fn control_groups() -> Option<MemoryBound> {
    Some(MemoryBound { bytes: control_group::left()?, name: "the control group's limit", is_of_space: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(megabytes: u64) -> MemoryBound {
        MemoryBound { bytes: megabytes << 20, name: "RLIMIT_AS", is_of_space: true }
    }

    #[test]
    fn a_shortage_names_both_numbers() {
        let available = AvailableMemory::new(vec![space(100)]).expect("a limit");
        let check = |bytes, reserved| available.check(MemoryNeed::of(bytes), reserved);
        assert_eq!(check(68 << 20, 0), Ok(()));
        let short = check((68 << 20) + 1, 0).expect_err("beyond the headroom");
        let message = "not enough memory: this may need 69 MB, but only 68 MB are available (RLIMIT_AS)";
        assert_eq!(short.to_string(), message);
        assert_eq!(check(48 << 20, 20 << 20), Ok(()));
        let short = check(49 << 20, 20 << 20).expect_err("the rest is kept");
        let message = "not enough memory: this may need 49 MB, but only 48 MB are available (RLIMIT_AS; 20 MB are reserved for connections)";
        assert_eq!(short.to_string(), message);
    }

    #[test]
    fn memory_that_is_reserved_counts_for_the_address_space_only() {
        let machine = MemoryBound { bytes: 132 << 20, name: "memory of the machine", is_of_space: false };
        let available = AvailableMemory::new(vec![space(64), machine]).expect("limits");
        let need = |used: u64, space: u64| MemoryNeed { used: used << 20, space: space << 20 };
        assert_eq!(available.check(need(100, 32), 0), Ok(()));
        let bound = |needed| available.check(needed, 0).expect_err("too much").bound;
        assert_eq!(bound(need(101, 0)), "memory of the machine");
        assert_eq!(bound(need(0, 33)), "RLIMIT_AS");
        assert_eq!(bound(need(101, 40)), "RLIMIT_AS", "the one that is missed by more");
        assert_eq!(available.left(need(90, 30), 0), 2 << 20);
    }

    #[test]
    fn the_memory_of_this_machine_is_known() {
        assert!(machine().is_some_and(|available| available.bytes > 0));
        assert_eq!(field("VmPeak:\t 1 kB\nVmSize:\t  12 kB\n", "VmSize:"), Some(12 << 10));
    }
}

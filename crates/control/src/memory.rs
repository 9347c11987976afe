//! The memory that the process may still take, so that changes that need more are refused.
//!
//! Clients' threads allocate the memory for policies, in code that cannot handle a failure: without memory the process would end, and its
//! packets with it. So the need of a change is estimated, as an upper bound, and compared with the tightest limit that the system has: the
//! process's address space (`RLIMIT_AS`), its control groups, and the free memory of the machine. Others may allocate between the check and
//! the allocation; `HEADROOM` is for them and for the packet threads.

mod control_group;

use std::{fmt, fs};

/// Memory that changes do not take.
const HEADROOM: u64 = 32 << 20;

/// The most bytes that a rule takes during a commit, in which it is parsed, compared with the old policy and compiled. Measured: some 420
/// bytes for five-tuples (docs/operations.md). What rules with conditions or several keys take beyond that is `Engine::extra_bytes`.
pub(crate) const RULE_BYTES: u64 = 640;

/// The most bytes that a byte of a request takes until it is executed: itself, its decoded copy, and the parsed and compiled elements of a
/// list.
pub(crate) const TEXT_BYTES: u64 = 12;

/// The available memory, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailableMemory {
    /// Bytes.
    pub bytes: u64,
    /// The name of the limit.
    pub bound: &'static str,
}

/// There is not enough memory for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough memory: this may take {} MB, and {} MB can be had ({bound}{})", mib(*.needed), .bytes >> 20, ReservedNote(*.reserved))]
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
            bytes => write!(f, "; {} MB are kept for connections", mib(bytes)),
        }
    }
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl AvailableMemory {
    /// Bytes that changes may take.
    pub(crate) fn for_changes(self) -> u64 {
        self.bytes.saturating_sub(HEADROOM)
    }

    /// Checks that so much is available beside the memory that is reserved for connections.
    ///
    /// # Errors
    /// Less is available.
    pub(crate) fn check(self, needed: u64, reserved: u64) -> Result<(), MemoryShortage> {
        let bytes = self.for_changes().saturating_sub(reserved);
        if needed <= bytes {
            Ok(())
        } else {
            Err(MemoryShortage { needed, bytes, bound: self.bound, reserved })
        }
    }
}

/// Returns the memory that this process may still take; `None` if the system does not tell.
pub fn available() -> Option<AvailableMemory> {
    let bounds = [address_space(), control_groups(), machine()];
    bounds.into_iter().flatten().min_by_key(|available| available.bytes)
}

/// Returns the rest of the address space.
fn address_space() -> Option<AvailableMemory> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let used = field(&fs::read_to_string("/proc/self/status").ok()?, "VmSize:")?;
    Some(AvailableMemory { bytes: limit.saturating_sub(used), bound: "RLIMIT_AS" })
}

/// Returns the available memory of the machine.
fn machine() -> Option<AvailableMemory> {
    let bytes = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    Some(AvailableMemory { bytes, bound: "memory of the machine" })
}

/// Parses a number of kilobytes after a name.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Returns the memory that the process's control groups have left.
fn control_groups() -> Option<AvailableMemory> {
    Some(AvailableMemory { bytes: control_group::left()?, bound: "the control group's limit" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_names_both_numbers() {
        let available = AvailableMemory { bytes: 100 << 20, bound: "RLIMIT_AS" };
        assert_eq!(available.check(68 << 20, 0), Ok(()));
        let short = available.check((68 << 20) + 1, 0).expect_err("beyond the headroom");
        let message = "not enough memory: this may take 69 MB, and 68 MB can be had (RLIMIT_AS)";
        assert_eq!(short.to_string(), message);
        assert_eq!(available.check(48 << 20, 20 << 20), Ok(()));
        let short = available.check(49 << 20, 20 << 20).expect_err("the rest is kept");
        let message = "not enough memory: this may take 49 MB, and 48 MB can be had (RLIMIT_AS; 20 MB are kept for connections)";
        assert_eq!(short.to_string(), message);
    }

    #[test]
    fn the_memory_of_this_machine_is_known() {
        assert!(machine().is_some_and(|available| available.bytes > 0));
        assert_eq!(field("VmPeak:\t 1 kB\nVmSize:\t  12 kB\n", "VmSize:"), Some(12 << 10));
    }
}

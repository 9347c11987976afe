//! How much memory the process may still take, so that what would need more is refused.
//!
//! Memory for policies is taken on the threads of clients, by code that cannot go on without it: where there is none, the process
//! ends, and its packets with it. So what a change may need is estimated, from above, and held against the tightest of the bounds that the
//! system tells of: the process's address space (`RLIMIT_AS`), its control groups, and what the machine has left. Between the look and
//! the taking others may take some; `HEADROOM` is for them and for the packet threads.

mod control_group;

use std::{fmt, fs};

/// Memory that changes leave alone.
const HEADROOM: u64 = 32 << 20;

/// What a rule takes at most while it comes into force: parsed, compared with what was there, compiled beside it. Measured: some 420 bytes
/// for five-tuples (docs/operations.md).
pub(crate) const RULE_BYTES: u64 = 640;

/// What a byte of a request takes at most until it is carried out: itself, its decoded copy, and what the parser and the compiler make of
/// the elements of a list.
pub(crate) const TEXT_BYTES: u64 = 12;

/// Memory that can be had, and what bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes.
    pub bytes: u64,
    /// Whose bound it is, in words.
    pub bound: &'static str,
}

/// There is not enough memory for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough memory: this may take {} MB, and {} MB can be had ({bound}{})", mib(*.needed), .bytes >> 20, Kept(*.kept))]
pub struct Short {
    /// Bytes that may be needed.
    pub needed: u64,
    /// Bytes that can be had.
    pub bytes: u64,
    /// Whose bound it is.
    pub bound: &'static str,
    /// Bytes that cannot be had because connections may come to take them.
    pub kept: u64,
}

/// Why less can be had than there is.
struct Kept(u64);

impl fmt::Display for Kept {
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

impl Available {
    /// Bytes that changes may take.
    pub(crate) fn for_changes(self) -> u64 {
        self.bytes.saturating_sub(HEADROOM)
    }

    /// Whether so much can be taken, beside what is kept for connections to come.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn check(self, needed: u64, kept: u64) -> Result<(), Short> {
        let bytes = self.for_changes().saturating_sub(kept);
        if needed <= bytes { Ok(()) } else { Err(Short { needed, bytes, bound: self.bound, kept }) }
    }
}

/// What this process can still take; `None` where the system does not tell.
pub fn available() -> Option<Available> {
    let bounds = [address_space(), control_groups(), machine()];
    bounds.into_iter().flatten().min_by_key(|available| available.bytes)
}

/// What is left of the address space.
fn address_space() -> Option<Available> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let used = field(&fs::read_to_string("/proc/self/status").ok()?, "VmSize:")?;
    Some(Available { bytes: limit.saturating_sub(used), bound: "RLIMIT_AS" })
}

/// What the machine has left.
fn machine() -> Option<Available> {
    let bytes = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    Some(Available { bytes, bound: "memory of the machine" })
}

/// A number of kilobytes behind a name.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// What the process's control groups leave.
fn control_groups() -> Option<Available> {
    Some(Available { bytes: control_group::left()?, bound: "the control group's limit" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers() {
        let available = Available { bytes: 100 << 20, bound: "RLIMIT_AS" };
        assert_eq!(available.check(68 << 20, 0), Ok(()));
        let short = available.check((68 << 20) + 1, 0).expect_err("beyond the headroom");
        let told = "not enough memory: this may take 69 MB, and 68 MB can be had (RLIMIT_AS)";
        assert_eq!(short.to_string(), told);
        assert_eq!(available.check(48 << 20, 20 << 20), Ok(()));
        let short = available.check(49 << 20, 20 << 20).expect_err("the rest is kept");
        let told = "not enough memory: this may take 49 MB, and 48 MB can be had (RLIMIT_AS; 20 MB are kept for connections)";
        assert_eq!(short.to_string(), told);
    }

    #[test]
    fn this_machine_tells_what_it_has() {
        assert!(machine().is_some_and(|available| available.bytes > 0));
        assert_eq!(field("VmPeak:\t 1 kB\nVmSize:\t  12 kB\n", "VmSize:"), Some(12 << 10));
    }
}

//! The huge pages of the tables, as the kernel gives them.

use mmb_base::{PoolUse, pool_use};
use mmb_protocol::answer::TableMemoryLine;
use std::fs;

/// The memory of the tables, and how much of the process is in huge pages.
pub(crate) fn table_memory() -> TableMemoryLine {
    let PoolUse { bytes, huge } = pool_use();
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").ok();
    TableMemoryLine {
        bytes: bytes as u64,
        huge_bytes: huge as u64,
        daemon_huge_bytes: rollup.and_then(|text| anonymous_huge(&text)),
    }
}

/// Bytes of `AnonHugePages` in the text of `smaps_rollup`.
fn anonymous_huge(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_huge_pages_in_kilobytes() {
        let rollup =
            "00400000-7fff 00000000 00:00 0 [rollup]\nRss:    806444 kB\nAnonHugePages:     38912 kB\n";
        assert_eq!(anonymous_huge(rollup), Some(38912 << 10));
        assert_eq!(anonymous_huge("Rss: 1 kB\n"), None);
        assert_eq!(anonymous_huge("AnonHugePages: many kB\n"), None);
    }
}

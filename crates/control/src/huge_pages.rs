//! The huge pages of the tables, as the kernel gives them.

use mmb_base::{PoolUse, lock, pool_use};
use mmb_protocol::answer::TableMemoryLine;
use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The kernel is asked this often at most: it walks the page tables of the process, while pages cannot be mapped.
const ASKED_EVERY: Duration = Duration::from_secs(5);

/// Its last answer.
static LAST: Mutex<Option<(Instant, Option<u64>)>> = Mutex::new(None);

/// The memory of the tables, and how much of the process is in huge pages.
pub(crate) fn table_memory() -> TableMemoryLine {
    let PoolUse { bytes, huge } = pool_use();
    TableMemoryLine { bytes: bytes as u64, huge_bytes: huge as u64, daemon_huge_bytes: daemon_huge_bytes() }
}

fn daemon_huge_bytes() -> Option<u64> {
    let mut last = lock(&LAST);
    match *last {
        Some((asked, bytes)) if asked.elapsed() < ASKED_EVERY => bytes,
        _ => {
            let rollup = fs::read_to_string("/proc/self/smaps_rollup").ok();
            let bytes = rollup.and_then(|text| anonymous_huge(&text));
            *last = Some((Instant::now(), bytes));
            bytes
        }
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

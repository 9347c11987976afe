//! Memory of the process, as the kernel sees it.

/// Returns the resident bytes; 0 if the kernel does not tell.
///
/// Memory that an allocator keeps after it was freed counts, so a difference is accurate to a few per cent if much is allocated and little
/// was freed before.
pub(super) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_is_resident() {
        let before = resident();
        let touched = vec![1_u8; 64 << 20];
        let after = resident();
        assert!(after > before + (60 << 20), "{before} {after} {}", touched[touched.len() / 2]);
    }
}

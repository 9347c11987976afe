//! How many connections there is memory for.
//!
//! Linux gives more address space than it has memory for, and ends a process that then writes there, above all where a control group
//! limits it. So what connections may take is reckoned once, at the start, from what the machine has available and from the limits of
//! the control groups that mmb is in (version 1 and 2).

use mmb_engine::CONNECTION_BYTES;
use std::fs;
use std::path::{Path, PathBuf};

/// How many connections three quarters of the memory are enough for; `None` if nobody tells.
pub(super) fn connections() -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|file| limit(&file));
    let bytes = limits.chain(available(&fs::read_to_string("/proc/meminfo").unwrap_or_default())).min()?;
    usize::try_from(bytes / 4 * 3 / CONNECTION_BYTES).ok()
}

/// The files that may hold a limit of the groups that /proc/self/cgroup names, or of those around them. In a container, its group may be
/// seen as the root.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let group = Path::new(root).join(group.trim_start_matches('/'));
        files.extend(group.ancestors().take_while(|at| at.starts_with(root)).map(|at| at.join(file)));
    }
    files
}

/// What a file limits memory to. `max`, or no file, is no limit.
fn limit(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// What /proc/meminfo says is available, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_in_every_group_around() {
        let files = limit_files("12:cpu,cpuacct:/a\n4:memory:/a/b\n0::/system.slice/mmb.service\nnonsense\n");
        let expected = [
            "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/system.slice/mmb.service/memory.max",
            "/sys/fs/cgroup/system.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
    }

    #[test]
    fn a_limit_is_a_number_of_bytes_and_max_is_none() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("memory.max");
        assert_eq!(limit(&file), None);
        for (text, bytes) in [("max\n", None), ("268435456\n", Some(1 << 28)), ("", None)] {
            fs::write(&file, text).expect("it can be written");
            assert_eq!(limit(&file), bytes, "{text:?}");
        }
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }
}

//! The memory that the control groups of this process and their ancestors have left (versions 1 and 2).
//!
//! Their files are read at the customary mount points. If these do not exist, as after `ip netns exec`, which gives its command another
//! `/sys`, the files are read in the root directory of the parent process, or of one of its ancestors. That needs CAP_SYS_PTRACE, which root
//! has; without it no limit is known. The module mounts nothing: a second mount of version 2 would change the options of the first one.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the bytes that the tightest group has left; `None` if there is no limit, or none is known.
pub(super) fn left() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = Group::of_memory(&groups)?;
    let processes = std::iter::successors(Some(std::process::id()), |process| parent(*process));
    let roots = processes.map(|process| format!("/proc/{process}/root{}", own.version.mounted_at));
    let root = roots.map(PathBuf::from).find(|root| root.join("cgroup.procs").exists())?;
    own.left_below(&root)
}

/// Returns the parent of a process.
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, which may contain any character, is in parentheses; the state follows.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok().filter(|parent| *parent != 0)
}

/// The differences between the versions.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    mounted_at: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The entry of `memory.stat` for cache that the kernel can drop.
    cache: &'static str,
}

const UNIFIED: Version = Version {
    mounted_at: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cache: "inactive_file ",
};

const LEGACY: Version = Version {
    mounted_at: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_inactive_file ",
};

/// The group that counts this process's memory.
#[derive(Debug, PartialEq, Eq)]
struct Group<'a> {
    version: &'static Version,
    /// The path below the root of the hierarchy.
    path: &'a str,
}

impl<'a> Group<'a> {
    /// Selects the group from `/proc/self/cgroup`: version 2 counts memory if version 1 does not.
    fn of_memory(groups: &'a str) -> Option<Group<'a>> {
        let groups = groups.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) =
                (parts.next()?, parts.next()?, parts.next()?.trim_start_matches('/'));
            let version = if controllers.is_empty() { &UNIFIED } else { &LEGACY };
            let counts = controllers.is_empty() || controllers.split(',').any(|name| name == "memory");
            counts.then_some(Group { version, path })
        });
        groups.max_by_key(|group| *group.version == LEGACY)
    }

    /// Returns the bytes that the tightest group has left. In a container, the process's own group may appear as the root.
    fn left_below(&self, root: &Path) -> Option<u64> {
        let own = root.join(self.path);
        let around = own.ancestors().take_while(|folder| folder.starts_with(root));
        around.filter_map(|folder| self.version.left(folder)).min()
    }
}

impl Version {
    /// Returns the bytes that a group has left; `None` if it has no limit.
    fn left(&self, folder: &Path) -> Option<u64> {
        let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let (limit, used) = (number(self.limit)?, number(self.used)?);
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cache = stat.lines().find_map(|line| line.strip_prefix(self.cache)?.parse::<u64>().ok());
        Some(limit.saturating_sub(used.saturating_sub(cache.unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).expect("a folder");
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).expect("writes"));
    }

    #[test]
    fn cache_that_can_be_dropped_counts_as_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        write(folder, &[("memory.max", "1000000\n"), ("memory.current", "700000\n")]);
        assert_eq!(UNIFIED.left(folder), Some(300_000));
        write(folder, &[("memory.stat", "anon 1\ninactive_file 200000\n")]);
        assert_eq!(UNIFIED.left(folder), Some(500_000));
        write(folder, &[("memory.max", "max\n")]);
        assert_eq!(UNIFIED.left(folder), None);
    }

    #[test]
    fn the_tightest_of_the_groups_around_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let used = ("memory.usage_in_bytes", "100\n");
        write(root.path(), &[("memory.limit_in_bytes", "9223372036854771712\n"), used]);
        write(&root.path().join("a"), &[("memory.limit_in_bytes", "1100\n"), used]);
        write(&root.path().join("a/b"), &[("memory.limit_in_bytes", "5100\n"), used]);
        let left = |path| Group { version: &LEGACY, path }.left_below(root.path());
        assert_eq!(left("a/b"), Some(1000));
        assert_eq!(left(""), Some(9_223_372_036_854_771_612));
        assert_eq!(left("of/the/host"), left(""), "in a container");
    }

    #[test]
    fn processes_have_parents_up_to_the_first_one() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent(1), None);
        assert_eq!(parent(u32::MAX), None);
    }

    #[test]
    fn memory_is_counted_in_one_hierarchy() {
        let group = |groups| Group::of_memory(groups).map(|group| (group.version, group.path));
        let hybrid = "4:cpu,memory:/mmb\n3:cpuacct:/other\n1:name=systemd:/\n0::/\n";
        assert_eq!(group(hybrid), Some((&LEGACY, "mmb")));
        let unified = "0::/system.slice/mmb.service\n";
        assert_eq!(group(unified), Some((&UNIFIED, "system.slice/mmb.service")));
        assert_eq!(group("3:cpuacct:/other\nnonsense\n"), None);
    }
}

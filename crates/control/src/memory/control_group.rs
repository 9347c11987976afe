//! What the control groups of this process, and those around them, leave of memory (versions 1 and 2).
//!
//! Their files are looked for where they are mounted by custom. Where they are not, as behind `ip netns exec`, which gives its command
//! another `/sys`, they are read as the process that started this one sees them, or one before it. That takes CAP_SYS_PTRACE, which root has;
//! without it no limit is known. Nothing is mounted for it: a second mount of version 2 changes the options of the first one.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that the tightest group has left; `None` if there is no limit, or nobody tells.
pub(super) fn left() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = Group::of_memory(&groups)?;
    let processes = std::iter::successors(Some(std::process::id()), |process| parent(*process));
    let roots = processes.map(|process| format!("/proc/{process}/root{}", own.version.mounted_at));
    let root = roots.map(PathBuf::from).find(|root| root.join("cgroup.procs").exists())?;
    own.left_below(&root)
}

/// The process that started another one.
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, which may hold anything, stands in parentheses; the state follows.
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(1)?.parse().ok().filter(|parent| *parent != 0)
}

/// What differs between the versions.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    mounted_at: &'static str,
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: what of it is a cache that can be dropped.
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

/// The group in which this process's memory is counted.
#[derive(Debug, PartialEq, Eq)]
struct Group<'a> {
    version: &'static Version,
    /// Below the hierarchy's root.
    path: &'a str,
}

impl<'a> Group<'a> {
    /// The one among those that `/proc/self/cgroup` names: version 2 counts memory where version 1 does not.
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

    /// What the tightest has left. In a container the process's own group may be seen as the root.
    fn left_below(&self, root: &Path) -> Option<u64> {
        let own = root.join(self.path);
        let around = own.ancestors().take_while(|folder| folder.starts_with(root));
        around.filter_map(|folder| self.version.left(folder)).min()
    }
}

impl Version {
    /// What a group has left; `None` if it has no limit.
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
    fn what_is_left_leaves_out_what_can_be_dropped() {
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

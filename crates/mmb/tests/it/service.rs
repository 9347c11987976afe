//! The unit for systemd and the other files that are installed beside the program.

use std::path::{Path, PathBuf};
use std::process::Command;

const UNIT: &str = include_str!("../../../../dist/mmb.service");

/// Returns the values of an assignment of the unit, from all lines of that name.
fn values_of(name: &str) -> Vec<&str> {
    let lines = UNIT.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.flat_map(str::split_whitespace).collect()
}

#[test]
fn the_service_may_write_to_nothing_but_its_own_directories() {
    assert_eq!(values_of("ProtectSystem"), ["strict"]);
    assert_eq!(values_of("ReadWritePaths"), ["-/dev/hugepages"], "policies are written by clients");
    assert_eq!((values_of("RuntimeDirectory"), values_of("StateDirectory")), (vec!["mmb"], vec!["mmb"]));
    assert!(values_of("ConfigurationDirectory").is_empty());
    assert_eq!(values_of("StateDirectoryMode"), ["0700"]);
    assert_eq!(values_of("NoNewPrivileges"), ["yes"]);
}

#[test]
fn the_page_runs_without_privileges_and_keeps_its_token_to_itself() {
    let unit = include_str!("../../../../dist/mmb-web.service");
    for line in [
        "ExecStart=/usr/bin/mmb web --token-file /var/lib/mmb-web/token $MMB_WEB_OPTIONS",
        "StateDirectory=mmb-web",
        "StateDirectoryMode=0700",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
    assert!(!unit.contains("ReadWritePaths"));
}

/// Returns the path of a file of the repository.
fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the files below a directory, sorted.
fn files_below(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            match path.strip_prefix(root) {
                _ if path.is_dir() => directories.push(path),
                Ok(name) => found.push(name.display().to_string()),
                Err(_) => {}
            }
        }
    }
    found.sort();
    found
}

#[test]
fn install_adds_what_running_needs_and_removes_it_again() {
    let place = tempfile::tempdir().expect("a directory");
    let script = |words: &[&str]| {
        let mut command = Command::new(in_repository("scripts/install"));
        let done = command.args(words).args(["/opt/mmb"]).arg(place.path()).output().expect("runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    script(&["add", env!("CARGO_BIN_EXE_mmb")]);
    let root = place.path().join("opt/mmb");
    let expected = [
        "bin/mmb",
        "lib/systemd/system/mmb-health@.service",
        "lib/systemd/system/mmb-web.service",
        "lib/systemd/system/mmb.service",
        "lib/systemd/system/mmb@.service",
        "lib/sysusers.d/mmb.conf",
        "share/bash-completion/completions/mmb",
        "share/fish/vendor_completions.d/mmb.fish",
        "share/man/man1/mmb.1",
        "share/man/man5/mmb-policy.5",
        "share/mmb/grafana-mmb.json",
        "share/mmb/mmb.env",
        "share/mmb/mmb.logrotate",
        "share/mmb/policy.mmb",
        "share/zsh/site-functions/_mmb",
    ];
    assert_eq!(files_below(&root), expected);
    let unit = std::fs::read_to_string(root.join("lib/systemd/system/mmb.service")).expect("the unit");
    assert!(unit.contains("ExecStart=/opt/mmb/bin/mmb run") && !unit.contains("/usr/bin/mmb"), "{unit}");
    let unit = std::fs::read_to_string(root.join("lib/systemd/system/mmb-web.service")).expect("the unit");
    assert!(unit.contains("ExecStart=/opt/mmb/bin/mmb web") && !unit.contains("/usr/bin/mmb"), "{unit}");
    std::fs::write(root.join("share/man/man1/other.1"), "").expect("writes");
    script(&["remove"]);
    assert_eq!(files_below(&root), ["share/man/man1/other.1"], "other programs' files stay");
}

#[test]
fn the_samples_work_together() {
    let policy = in_repository("dist/policy.mmb");
    let done = Command::new(env!("CARGO_BIN_EXE_mmb")).arg("check").arg(&policy).output().expect("runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let rules = std::fs::read_to_string(policy).expect("the sample policy");
    let environment = std::fs::read_to_string(in_repository("dist/mmb.env")).expect("the sample environment");
    let options = environment.lines().find_map(|line| line.strip_prefix("#MMB_OPTIONS=")).expect("options");
    for port in ["inside", "outside"] {
        assert!(
            options.contains(&format!("--port {port}=")) && rules.contains(&format!("in {port}")),
            "{port}"
        );
    }
    assert!(UNIT.contains("$MMB_OPTIONS") && UNIT.contains("EnvironmentFile=/etc/mmb/mmb.env"));
}

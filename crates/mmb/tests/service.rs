//! The unit for systemd that is installed beside the program.

const UNIT: &str = include_str!("../../../dist/mmb.service");

/// Returns the values of an assignment of the unit, from all lines of that name.
fn said(name: &str) -> Vec<&str> {
    let lines = UNIT.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.flat_map(str::split_whitespace).collect()
}

#[test]
fn the_service_may_write_to_nothing_but_its_own_directories() {
    assert_eq!(said("ProtectSystem"), ["strict"]);
    assert_eq!(said("ReadWritePaths"), ["-/dev/hugepages"], "policies are written by clients");
    assert_eq!((said("RuntimeDirectory"), said("StateDirectory")), (vec!["mmb"], vec!["mmb"]));
    assert!(said("ConfigurationDirectory").is_empty());
    assert_eq!(said("StateDirectoryMode"), ["0700"]);
    assert_eq!(said("NoNewPrivileges"), ["yes"]);
}

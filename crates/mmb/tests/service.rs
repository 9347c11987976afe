//! The unit for systemd that is installed beside the program.

const UNIT: &str = include_str!("../../../dist/mmb.service");

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

//! The tables of ARCHITECTURE.md: planted differences from the code are found.

use crate::plant::Plant;

const ON_A: &str = "[dependencies]\nmmb-a = { path = \"../a\" }\n";

/// Two crates, of which `b` depends on `a`, under a table with these rows.
fn faults(rows: &[(&str, &str)]) -> Vec<String> {
    let tests_only = "[dev-dependencies]\nmmb-b = { path = \"../b\" }\n";
    Plant::new().with_crate("a", tests_only, &[]).with_crate("b", ON_A, &[]).table(rows).structure()
}

#[test]
fn sound_table() {
    assert_eq!(faults(&[("a", ""), ("b", "a")]), [""; 0]);
}

#[test]
fn crate_without_a_row() {
    let found = faults(&[("a", "")]);
    assert_eq!(found, ["ARCHITECTURE.md: the table of crates lacks crates/b"]);
}

#[test]
fn row_without_a_crate() {
    let found = faults(&[("a", ""), ("b", "a"), ("c", "")]);
    assert_eq!(found, ["ARCHITECTURE.md:7: there is no crate crates/c"]);
}

#[test]
fn two_rows_of_a_crate() {
    let found = faults(&[("a", ""), ("b", "a"), ("a", "")]);
    assert_eq!(found, ["ARCHITECTURE.md:7: a second row for crates/a"]);
}

#[test]
fn dependency_that_the_row_lacks() {
    let found = faults(&[("a", ""), ("b", "")]);
    assert_eq!(found, ["ARCHITECTURE.md:6: crates/b depends on a, which its row does not name"]);
}

#[test]
fn dependency_that_only_the_row_has() {
    let found = faults(&[("a", "b"), ("b", "a")]);
    assert_eq!(found, ["ARCHITECTURE.md:5: crates/a does not depend on b, which its row names"]);
}

#[test]
fn row_above_its_dependency() {
    let found = faults(&[("b", "a"), ("a", "")]);
    assert_eq!(found, ["ARCHITECTURE.md:5: crates/b stands above a, on which it depends"]);
}

#[test]
fn no_table() {
    let found = Plant::new().with_crate("a", "", &[]).file("ARCHITECTURE.md", "# A\n").structure();
    assert_eq!(found, ["ARCHITECTURE.md: no table has a last column `depends on`: where are the crates?"]);
}

const FILES: [(&str, &str); 5] = [
    ("src/lib.rs", "mod low;\nmod middle;\nmod high;\npub use low::Low;\n"),
    ("src/low.rs", "pub struct Low;\n"),
    ("src/middle/mod.rs", "mod part;\npub struct Middle(crate::Low);\n"),
    ("src/middle/part.rs", "pub struct Part;\n"),
    ("src/high.rs", "pub struct High(crate::middle::Middle);\n"),
];

/// The faults of a crate `a` with three modules, whose files these rows order.
fn ordered(rows: &[&str], files: &[(&str, &str)]) -> Vec<String> {
    let rows: String = rows.iter().map(|row| format!("| {row} | things |\n")).collect();
    let text = format!(
        "| crate | depends on |\n| --- | --- |\n| `crates/a` | |\n\n\
         | files of `crates/a` | hold |\n| --- | --- |\n{rows}"
    );
    let manifest = "[package.metadata.structure]\nordered-files = true\n";
    Plant::new()
        .with_crate("a", manifest, &FILES)
        .with_crate("a", manifest, files)
        .file("ARCHITECTURE.md", &text)
        .structure()
}

#[test]
fn folders_in_order() {
    assert_eq!(ordered(&["`low`", "`middle/`", "`high`"], &FILES), [""; 0]);
    assert_eq!(ordered(&["`middle/`, `low`", "`high`"], &FILES), [""; 0]);
}

#[test]
fn folder_that_uses_one_below() {
    let found = ordered(&["`middle/`", "`low`", "`high`"], &FILES);
    let fault =
        "crates/a/src/middle/mod.rs:2 uses crate::Low of low, which stands below middle in ARCHITECTURE.md";
    assert_eq!(found, [fault]);
}

#[test]
fn folder_without_a_row() {
    let found = ordered(&["`low`", "`middle/`"], &FILES);
    assert!(
        found.contains(&"ARCHITECTURE.md: the table of the files of crates/a lacks high".to_owned()),
        "{found:?}"
    );
}

#[test]
fn row_without_a_folder() {
    let found = ordered(&["`low`", "`middle/`", "`high`, `gone`"], &FILES);
    assert_eq!(found, ["ARCHITECTURE.md:9: crates/a has no files gone"]);
}

#[test]
fn two_rows_of_a_folder() {
    let found = ordered(&["`low`", "`middle/`", "`high`", "`high`"], &FILES);
    assert_eq!(found, ["ARCHITECTURE.md:10: a second row for high of crates/a"]);
}

#[test]
fn folders_without_their_table() {
    let manifest = "[package.metadata.structure]\nordered-files = true\n";
    let found = Plant::new().with_crate("a", manifest, &FILES).table(&[("a", "")]).structure();
    assert_eq!(found, ["ARCHITECTURE.md: no table has the header `files of crates/a`"]);
}

#[test]
fn table_of_folders_without_a_crate() {
    let text = "| crate | depends on |\n| --- | --- |\n| `crates/a` | |\n\n| files of `crates/b` | hold |\n| --- | --- |\n";
    let found = Plant::new().with_crate("a", "", &[]).file("ARCHITECTURE.md", text).structure();
    assert_eq!(found, ["ARCHITECTURE.md: a table orders the files of crates/b, which is no crate"]);
}

//! Unused dependencies: planted ones are found.

use crate::plant::Plant;

/// The faults of a crate `a` with this manifest and these files, beside a crate `b`.
fn faults(manifest: &str, files: &[(&str, &str)]) -> Vec<String> {
    Plant::new().with_crate("a", manifest, files).with_crate("b", "", &[]).dependencies()
}

#[test]
fn used_dependencies() {
    let manifest = "[dependencies]\nmmb-b = { path = \"../b\" }\nserde = \"1\"\nsome-name = \"1\"\n\
                    other = { package = \"renamed\", version = \"1\" }\nmacros = \"1\"\nsingle = \"1\"\n\
                    [dev-dependencies]\nin-test = \"1\"\nin-unit = \"1\"\nin-bench = \"1\"\nin-example = \"1\"\n\
                    in-doc = \"1\"\n[build-dependencies]\ncc = \"1\"\n";
    let found = faults(
        manifest,
        &[
            (
                "src/lib.rs",
                "//! ```\n//! in_doc::run();\n//! ```\nuse mmb_b as base;\nuse single;\n\
                 #[derive(serde::Serialize)]\npub struct A(other::B);\npub fn a() {\n    some_name::run();\n    \
                 given!(=> macros::X);\n}\n#[cfg(test)]\nmod tests {\n    use in_unit::X;\n}\n",
            ),
            ("tests/all/main.rs", "mod part;\nfn main() {}\n"),
            ("tests/all/part.rs", "use in_test::X;\n"),
            ("benches/b.rs", "use in_bench::X;\nfn main() {}\n"),
            ("examples/e.rs", "fn main() {\n    in_example::run();\n}\n"),
            ("build.rs", "fn main() {\n    cc::Build::new();\n}\n"),
        ],
    );
    assert_eq!(found, [""; 0]);
}

#[test]
fn dependency_that_no_code_names() {
    let manifest = "[dependencies]\nmmb-b = { path = \"../b\" }\nserde = \"1\"\n";
    let found =
        faults(manifest, &[("src/lib.rs", "//! See [`mmb_b::B`].\nmod serde {}\nuse serde as other;\n")]);
    assert_eq!(
        found,
        [
            "crates/a/Cargo.toml: no code uses the dependency mmb-b",
            "crates/a/Cargo.toml: no code uses the dependency serde"
        ]
    );
}

#[test]
fn dependency_that_only_tests_name() {
    let found = faults(
        "[dependencies]\nin-unit = \"1\"\nin-test = \"1\"\n",
        &[("src/lib.rs", "#[cfg(test)]\nuse in_unit::X;\n"), ("tests/t.rs", "use in_test::X;\n")],
    );
    assert_eq!(
        found,
        [
            "crates/a/Cargo.toml: only tests use the dependency in-test",
            "crates/a/Cargo.toml: only tests use the dependency in-unit"
        ]
    );
}

#[test]
fn unused_dependency_of_tests() {
    let found = faults("[dev-dependencies]\nserde = \"1\"\n", &[("tests/t.rs", "fn t() {}\n")]);
    assert_eq!(found, ["crates/a/Cargo.toml: no test, example or benchmark uses the dependency serde"]);
}

#[test]
fn unused_dependency_of_the_build_script() {
    let found = faults(
        "[build-dependencies]\ncc = \"1\"\n",
        &[("src/lib.rs", "use cc::Build;\n"), ("build.rs", "fn main() {}\n")],
    );
    assert_eq!(found, ["crates/a/Cargo.toml: the build script does not use the dependency cc"]);
}

#[test]
fn renamed_dependency_under_its_old_name() {
    let manifest = "[dependencies]\nother = { package = \"serde\", version = \"1\" }\n";
    let found = faults(manifest, &[("src/lib.rs", "use serde::X;\n")]);
    assert_eq!(found, ["crates/a/Cargo.toml: no code uses the dependency other"]);
}

#[test]
fn kept_dependencies() {
    let manifest = |keeps: &str| {
        format!("[dependencies]\nserde = \"1\"\nused = \"1\"\n[package.metadata.structure.keeps]\n{keeps}")
    };
    let faults = |keeps: &str| faults(&manifest(keeps), &[("src/lib.rs", "use used::X;\n")]);
    assert_eq!(faults("serde = \"its feature\"\n"), [""; 0]);
    assert_eq!(faults("serde = \" \"\n"), ["crates/a/Cargo.toml: `keeps` gives no reason for serde"]);
    let superfluous = "crates/a/Cargo.toml: the code uses and `keeps` need not name the dependency used";
    assert_eq!(faults("serde = \"its feature\"\nused = \"why\"\n"), [superfluous]);
    let unknown = "crates/a/Cargo.toml: `keeps` names gone, which is no dependency";
    assert_eq!(faults("serde = \"its feature\"\ngone = \"why\"\n"), [unknown]);
}

#[test]
fn unused_dependency_of_the_workspace() {
    let root = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n\n[workspace.dependencies]\n\
                # A reason.\nserde = \"1\"\ngone-away = { version = \"1\" }\n\n[profile.dev]\ndebug = 1\n";
    let manifest = "[dependencies]\nserde.workspace = true\n";
    let plant = Plant::new().file("Cargo.toml", root);
    let found = plant.with_crate("a", manifest, &[("src/lib.rs", "use serde::X;\n")]).dependencies();
    assert_eq!(found, ["Cargo.toml:8: no crate has the dependency gone-away"]);
}

/// As in fuzz targets: the macro may make items of any name.
#[test]
fn dependency_in_the_arguments_of_a_macro_that_makes_items() {
    let manifest = "[dependencies]\nfuzzer = \"1\"\nbodies = \"1\"\n";
    let target = "fuzzer::target!(|data: &[u8]| bodies::parse(data));\n";
    assert_eq!(faults(manifest, &[("src/lib.rs", target)]), [""; 0]);
}

//! Circles of files: planted ones are found, and uses that make no circle are none.

use crate::plant::Plant;

/// The faults of a crate `a` with these files in `src`.
fn faults(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<(String, &str)> =
        files.iter().map(|(path, text)| (format!("src/{path}"), *text)).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    Plant::new().with_crate("a", "", &files).table(&[("a", "")]).structure()
}

/// One circle of the files, with these uses.
fn circle(files: &[&str], uses: &[&str]) -> Vec<String> {
    let names = files.join(", ");
    let mut fault = format!("crates/a: {} files use each other in a circle: {names}", files.len());
    for text in uses {
        fault += &format!("\n    crates/a/src/{text}");
    }
    vec![fault]
}

const SOUND: [String; 0] = [];

#[test]
fn two_files() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\n"),
        ("b.rs", "pub struct B;\n\npub fn b(_: crate::c::C) {}\n"),
        ("c.rs", "use crate::b::B;\n\npub struct C(B);\n"),
    ]);
    let uses = ["b.rs:3 uses crate::c::C of c.rs", "c.rs:1 uses crate::b::B of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs"], &uses));
}

#[test]
fn three_files() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\nmod d;\n"),
        ("b.rs", "use crate::c::C;\npub struct B(C);\n"),
        ("c.rs", "use crate::d::{self as other};\npub struct C(other::D);\n"),
        ("d.rs", "pub struct D(Box<dyn crate::b::Trait>);\n"),
    ]);
    let uses = [
        "b.rs:1 uses crate::c::C of c.rs",
        "c.rs:2 uses other::D of d.rs",
        "d.rs:1 uses crate::b::Trait of b.rs",
    ];
    assert_eq!(found, circle(&["b.rs", "c.rs", "d.rs"], &uses));
}

#[test]
fn file_whose_tests_stand_first() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\n"),
        ("b.rs", "#[cfg(test)]\nmod tests {}\n\nuse crate::c::C;\npub struct B(C);\n"),
        ("c.rs", "#[cfg(test)]\nmod tests {}\n\nuse crate::b::B;\npub struct C(B);\n"),
    ]);
    let uses = ["b.rs:4 uses crate::c::C of c.rs", "c.rs:4 uses crate::b::B of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs"], &uses));
}

#[test]
fn root_that_uses_its_child() {
    let found = faults(&[
        ("lib.rs", "mod b;\n\npub const LIMIT: u32 = 1;\n\npub fn run() {\n    b::run();\n}\n"),
        ("b.rs", "pub fn run() {\n    let _ = crate::LIMIT;\n}\n"),
    ]);
    let uses = ["b.rs:2 uses crate::LIMIT of lib.rs", "lib.rs:6 uses b::run of b.rs"];
    assert_eq!(found, circle(&["b.rs", "lib.rs"], &uses));
}

#[test]
fn binary_that_uses_its_child() {
    let found = faults(&[
        ("main.rs", "mod b;\n\nstruct Options;\n\nfn main() {\n    b::run(Options);\n}\n"),
        ("b.rs", "use super::Options;\n\npub fn run(_: Options) {}\n"),
    ]);
    let uses = ["b.rs:1 uses super::Options of main.rs", "main.rs:6 uses b::run of b.rs"];
    assert_eq!(found, circle(&["b.rs", "main.rs"], &uses));
}

#[test]
fn through_reexports() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\npub use b::Name;\npub use c::*;\n"),
        ("b/mod.rs", "mod inner;\npub use inner::B as Name;\n"),
        ("b/inner.rs", "use crate::C;\npub struct B(C);\n"),
        ("c.rs", "use crate::Name;\npub struct C(Name);\n"),
    ]);
    let uses = ["b/inner.rs:1 uses crate::C of c.rs", "c.rs:1 uses crate::Name of b/inner.rs"];
    assert_eq!(found, circle(&["b/inner.rs", "c.rs"], &uses));
}

#[test]
fn function_that_is_named_as_its_module() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\npub use c::c;\n"),
        ("b.rs", "use crate::c;\npub fn b() {\n    c();\n}\n"),
        ("c.rs", "pub fn c() {\n    super::b::b();\n}\n"),
    ]);
    let uses = ["b.rs:1 uses crate::c of c.rs", "c.rs:2 uses super::b::b of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs"], &uses));
}

#[test]
fn through_tokens_of_macros() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\nmod d;\n"),
        ("b.rs", "use crate::c;\npub fn b() {\n    made!(=> c::C => 1);\n}\n"),
        ("c.rs", "pub struct C;\nmacro_rules! rule {\n    () => { $crate::d::D };\n}\n"),
        ("d.rs", "pub struct D;\npub fn d() {\n    assert_eq!(1, super::b::b());\n}\n"),
    ]);
    let uses =
        ["b.rs:3 uses c::C of c.rs", "c.rs:3 uses crate::d::D of d.rs", "d.rs:3 uses super::b::b of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs", "d.rs"], &uses));
}

#[test]
fn through_super_and_self() {
    let found = faults(&[
        ("lib.rs", "mod b;\n"),
        ("b.rs", "mod c;\npub struct B;\npub fn b() -> self::c::C {\n    loop {}\n}\n"),
        ("b/c.rs", "mod inner {\n    pub struct D(super::super::B);\n}\npub struct C;\n"),
    ]);
    let uses = ["b/c.rs:2 uses super::super::B of b.rs", "b.rs:3 uses self::c::C of b/c.rs"];
    assert_eq!(found, circle(&["b/c.rs", "b.rs"], &uses));
}

#[test]
fn through_globs() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\n"),
        ("b.rs", "use crate::c::*;\npub const B: u32 = 1;\npub fn b() -> u32 {\n    c()\n}\n"),
        (
            "c.rs",
            "use super::b::*;\npub fn c() -> u32 {\n    match 1 {\n        B => 1,\n        _ => 0,\n    }\n}\n",
        ),
    ]);
    let uses = ["b.rs:4 uses c of c.rs", "c.rs:4 uses B of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs"], &uses));
}

#[test]
fn glob_that_imports_a_trait() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\n"),
        ("b.rs", "use crate::c::*;\npub fn b(x: u32) -> u32 {\n    x.twice()\n}\n"),
        ("c.rs", "pub trait Twice {\n    fn twice(self) -> u32 {\n        crate::b::b(1)\n    }\n}\n"),
    ]);
    let uses = ["b.rs:1 uses crate::c::* of c.rs", "c.rs:3 uses crate::b::b of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs"], &uses));
}

#[test]
fn import_in_a_block() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\n"),
        ("b.rs", "pub fn b() {\n    use super::c as other;\n    other::c();\n}\n"),
        ("c.rs", "pub fn c() {\n    crate::b::b();\n}\n"),
    ]);
    let uses = ["b.rs:3 uses other::c of c.rs", "c.rs:2 uses crate::b::b of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs"], &uses));
}

#[test]
fn macro_in_scope_of_its_text() {
    let found = faults(&[
        ("lib.rs", "#[macro_use]\nmod b;\nmod c;\n"),
        ("b.rs", "macro_rules! rule {\n    () => {};\n}\npub fn b() {\n    crate::c::c();\n}\n"),
        ("c.rs", "pub fn c() {\n    rule!();\n}\n"),
    ]);
    let uses = ["b.rs:5 uses crate::c::c of c.rs", "c.rs:2 uses rule of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs"], &uses));
}

#[test]
fn type_that_a_macro_makes() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\npub use b::*;\n"),
        (
            "b.rs",
            "macro_rules! kinds {\n    ($($kind:ident)*) => { pub enum Kind { $($kind),* } };\n}\n\
             kinds! { One Two }\npub struct B(crate::c::C);\n",
        ),
        ("c.rs", "use crate::Kind;\npub struct C(Kind);\n"),
    ]);
    let uses = ["b.rs:5 uses crate::c::C of c.rs", "c.rs:1 uses crate::Kind of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs"], &uses));
}

#[test]
fn path_in_the_text_of_an_attribute() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\n"),
        ("b.rs", "#[derive(Clone)]\npub struct B(#[serde(with = \"crate::c::hex\")] u32);\n"),
        ("c.rs", "pub mod hex {\n    pub fn read() -> super::super::b::B {\n        loop {}\n    }\n}\n"),
    ]);
    // The text names a module, whose functions serde calls.
    assert_eq!(found, SOUND);
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\n"),
        ("b.rs", "pub struct B(#[serde(default = \"crate::c::one\")] u32);\n"),
        ("c.rs", "pub fn one() -> crate::b::B {\n    loop {}\n}\n"),
    ]);
    let uses = ["b.rs:1 uses crate::c::one of c.rs", "c.rs:1 uses crate::b::B of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs"], &uses));
}

#[test]
fn files_of_path_attributes_and_of_macros() {
    let found = faults(&[
        (
            "lib.rs",
            "macro_rules! modules {\n    ($($name:ident)*) => { $(mod $name;)* };\n}\nmodules! { b drop }\n\
             #[path = \"other/place.rs\"]\nmod c;\n",
        ),
        ("b.rs", "pub struct B(crate::c::beside::C);\n"),
        ("drop.rs", ""),
        ("other/place.rs", "pub mod beside;\n"),
        ("other/beside.rs", "pub struct C(crate::b::B);\n"),
    ]);
    let uses =
        ["b.rs:1 uses crate::c::beside::C of other/beside.rs", "other/beside.rs:1 uses crate::b::B of b.rs"];
    assert_eq!(found, circle(&["b.rs", "other/beside.rs"], &uses));
}

#[test]
fn file_that_no_module_declares() {
    let found = faults(&[("lib.rs", "mod b;\n"), ("b.rs", ""), ("c.rs", "")]);
    assert_eq!(found, ["crates/a/src/c.rs: no module declares this file"]);
}

#[test]
fn declarations_and_reexports_are_no_uses() {
    let found = faults(&[
        (
            "lib.rs",
            "//! See [`b::B`].\nmod b;\npub(crate) mod c;\npub use b::B;\npub(crate) use c::{C, c as other};\n\
             pub const LIMIT: u32 = 1;\n",
        ),
        (
            "b.rs",
            "use crate::{C, LIMIT, other};\npub struct B(C, [u8; LIMIT as usize]);\npub fn b() {\n    other();\n}\n",
        ),
        ("c.rs", "//! See [`crate::B`].\npub struct C;\npub fn c() {\n    let _ = crate::LIMIT;\n}\n"),
    ]);
    assert_eq!(found, SOUND);
}

#[test]
fn modules_on_the_way_are_no_uses() {
    let found = faults(&[
        ("lib.rs", "pub mod b;\nuse b::inner;\npub fn run() {\n    inner::deep::run();\n}\n"),
        ("b/mod.rs", "pub mod inner;\npub(in crate::b) fn help() {}\n"),
        ("b/inner/mod.rs", "pub mod deep;\n"),
        ("b/inner/deep.rs", "pub fn run() {\n    crate::b::help();\n}\n"),
    ]);
    assert_eq!(found, SOUND);
}

#[test]
fn tests_use_anything() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\n#[cfg(test)]\nmod support;\n"),
        (
            "b.rs",
            "pub struct B;\n#[cfg(test)]\nuse crate::c::C;\n#[cfg(all(test, unix))]\nmod tests {\n    \
             use crate::c::C;\n    fn t(_: C) {}\n}\nimpl B {\n    #[cfg(test)]\n    fn c(&self) -> crate::c::C {\n        \
             loop {}\n    }\n    fn d() {\n        #[cfg(test)]\n        crate::c::c();\n        \
             #[cfg(test)]\n        let _ = crate::c::c();\n    }\n}\n#[test]\nfn t() {\n    crate::c::c();\n}\n",
        ),
        ("c.rs", "use crate::b::B;\npub struct C(B);\npub fn c() {}\n#[cfg(test)]\nmod tests;\n"),
        ("c/tests.rs", "use super::*;\nuse crate::b::B;\n"),
        ("support.rs", "use crate::c::C;\npub fn support(_: C) {}\n"),
    ]);
    assert_eq!(found, SOUND);
}

#[test]
fn code_that_is_not_for_tests_alone_counts() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\n"),
        ("b.rs", "#[cfg(any(test, feature = \"x\"))]\nuse crate::c::C;\npub struct B;\n"),
        ("c.rs", "#[cfg(not(test))]\nuse crate::b::B;\npub struct C;\n"),
    ]);
    let uses = ["b.rs:2 uses crate::c::C of c.rs", "c.rs:2 uses crate::b::B of b.rs"];
    assert_eq!(found, circle(&["b.rs", "c.rs"], &uses));
}

#[test]
fn bindings_and_generics_hide_items() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod c;\npub use c::C;\npub fn slot() {\n    b::b(1);\n}\npub struct T;\n"),
        (
            "b.rs",
            "use super::*;\npub struct B(C);\npub fn b<T: Copy>(slot: T) -> T {\n    let f = |slot: u32| slot;\n    \
             f(1);\n    if let Some(slot) = Some(slot) {\n        return slot;\n    }\n    slot\n}\n",
        ),
        ("c.rs", "pub struct C;\n"),
    ]);
    assert_eq!(found, SOUND);
    let found = faults(&[
        ("lib.rs", "mod b;\npub fn slot() -> u32 {\n    b::b()\n}\n"),
        ("b.rs", "use super::*;\npub fn b() -> u32 {\n    let slot = slot();\n    slot\n}\n"),
    ]);
    let uses = ["b.rs:3 uses slot of lib.rs", "lib.rs:3 uses b::b of b.rs"];
    assert_eq!(found, circle(&["b.rs", "lib.rs"], &uses));
}

#[test]
fn private_imports_of_a_child_are_not_seen() {
    let found = faults(&[
        ("lib.rs", "mod b;\nmod d;\n"),
        ("b/mod.rs", "mod c;\nuse c::*;\npub fn b() -> Result<u32, ()> {\n    made()\n}\n"),
        (
            "b/c.rs",
            "use crate::d::Result as Result;\npub fn made() -> std::result::Result<u32, ()> {\n    loop {}\n}\n",
        ),
        ("d.rs", "use crate::b::b;\npub type Result = u32;\n"),
    ]);
    let uses = [
        "b/c.rs:1 uses crate::d::Result of d.rs",
        "b/mod.rs:4 uses made of b/c.rs",
        "d.rs:1 uses crate::b::b of b/mod.rs",
    ];
    assert_eq!(found, circle(&["b/c.rs", "b/mod.rs", "d.rs"], &uses));
}

#[test]
fn names_of_other_crates_are_no_files() {
    let found = faults(&[
        ("lib.rs", "mod log;\nmod std_like;\n"),
        (
            "log.rs",
            "use ::std_like::X;\nuse std::fmt::Result;\npub fn log() -> Result {\n    ::log::log()\n}\n",
        ),
        ("std_like.rs", "use crate::log::log;\npub fn x() {\n    let _ = log();\n}\n"),
    ]);
    assert_eq!(found, SOUND);
}

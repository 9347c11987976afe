//! Runs every input of the fuzzers' corpora, and what they once found, through the fuzz targets.

use mmb_differential::fuzz::{TARGETS, read_packets};
use mmb_language::target;
use mmb_policy::FIELDS;
use std::path::{Path, PathBuf};

/// The files of a directory under `fuzz/`; none if it does not exist.
fn inputs(kind: &str, target: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target);
    let Ok(entries) = std::fs::read_dir(&directory) else { return Vec::new() };
    entries.map(|entry| entry.expect("a directory can be listed").path()).collect()
}

#[test]
fn corpora_and_regressions_pass() {
    for target in TARGETS {
        let corpus = inputs("corpus", target.name);
        assert!(!corpus.is_empty(), "fuzz/corpus/{} has no inputs", target.name);
        for path in corpus.into_iter().chain(inputs("regressions", target.name)) {
            // Shown only if the target panics.
            println!("{}", path.display());
            (target.run)(&std::fs::read(&path).expect("an input can be read"));
        }
    }
}

#[test]
fn seeds_of_packets_say_something() {
    for path in inputs("corpus", "packet") {
        let seed = read_packets(&std::fs::read(&path).expect("a seed can be read"));
        assert!(seed.is_some_and(|(_, packets)| !packets.is_empty()), "{}", path.display());
    }
}

/// `make doc` adds the words that are missing.
#[test]
fn the_dictionary_has_every_field_and_target() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/words.dict");
    let mut words = std::fs::read_to_string(&path).expect("the dictionary can be read");
    let fields = FIELDS.iter().map(|field| field.name.split(' ').next().unwrap_or_default());
    for name in fields.chain(target::TARGETS.iter().map(|target| target.name)) {
        let word = format!("\"{name}\"");
        if words.lines().any(|line| line == word) {
            continue;
        }
        assert!(std::env::var_os("MMB_BLESS").is_some(), "{name} is not in fuzz/words.dict: run `make doc`");
        words += &format!("{word}\n");
    }
    if std::env::var_os("MMB_BLESS").is_some() {
        std::fs::write(&path, words).expect("the dictionary can be written");
    }
}

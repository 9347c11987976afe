//! Runs every input of the fuzzers' corpora, and what they once found, through the fuzz targets.

use mmb_referee::fuzz::TARGETS;
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

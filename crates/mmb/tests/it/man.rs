//! The committed man pages are those that the program prints. `MMB_BLESS=1` writes them (`make doc`).

use std::path::Path;
use std::process::Command;

fn printed(page: &str) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_mmb")).args(["man", page]).output().expect("mmb runs");
    assert!(run.status.success(), "{run:?}");
    String::from_utf8(run.stdout).expect("text")
}

#[test]
fn man_pages_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
    for (page, file) in [("mmb", "mmb.1"), ("mmb-policy", "mmb-policy.5")] {
        let path = folder.join(file);
        let now = printed(page);
        if std::env::var_os("MMB_BLESS").is_some() {
            std::fs::create_dir_all(&folder).expect("docs/man");
            std::fs::write(&path, &now).expect("a man page");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == now, "docs/man/{file} is not current: run `make doc`");
    }
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let run =
            Command::new(env!("CARGO_BIN_EXE_mmb")).args(["completions", shell]).output().expect("mmb runs");
        assert!(run.status.success());
        let script = String::from_utf8(run.stdout).expect("text");
        for word in ["replay", "bench", "add-stateless", "completions", "socket", "rules"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

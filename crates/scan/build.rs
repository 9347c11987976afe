//! Links Vectorscan where it is installed, and sets `cfg(vectorscan)` then.
//!
//! Without it the crate builds all the same; compiling a set of patterns then fails with an error that says so.

use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(vectorscan)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo::rerun-if-env-changed=MMB_WITHOUT_VECTORSCAN");
    if std::env::var_os("MMB_WITHOUT_VECTORSCAN").is_some() {
        return;
    }
    if !installed("5.4") {
        // A file that does not exist counts as changed: the next build looks again.
        println!("cargo::rerun-if-changed=vectorscan-is-not-installed");
        return;
    }
    for folder in pkg_config("--variable=pcfiledir") {
        println!("cargo::rerun-if-changed={folder}/libhs.pc");
    }
    for flag in pkg_config("--libs") {
        if let Some(path) = flag.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={path}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
    }
    println!("cargo::rustc-cfg=vectorscan");
}

/// Whether libhs of at least that version is installed.
fn installed(version: &str) -> bool {
    let minimum = format!("--atleast-version={version}");
    Command::new("pkg-config").args([&minimum, "libhs"]).status().is_ok_and(|status| status.success())
}

/// What pkg-config says about libhs, by word.
fn pkg_config(what: &str) -> Vec<String> {
    let output = Command::new("pkg-config").args([what, "libhs"]).output().expect("pkg-config ran before");
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

//! Compiles the shim where VPP's headers are, and sets `cfg(have_vpp)` then: what is built can be loaded.
//! Writes the registration of the plugin, with the version of the workspace.
//!
//! VPP is looked for under `VPP_PREFIX`, or else under /usr. Without it the crate compiles against the bindings that vpp-plugin
//! brings, so that it is checked all the same; such a plugin cannot be loaded.

use std::path::{Path, PathBuf};

/// The registration of the plugin, without the version of this crate.
const REGISTRATION: &str = r#"vpp_plugin::vlib_plugin_register! {
    version: "@VERSION@",
    description: "mmb: packets decided on and rewritten by rules",
    version_required: vpp_plugin::VPP_BUILD_VER,
}
"#;

/// A header by which VPP's are known.
const HEADER: &str = "include/vnet/vnet.h";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(have_vpp)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/sys/shim.c");
    println!("cargo::rerun-if-changed=src/sys/buffers.c");
    println!("cargo::rerun-if-env-changed=VPP_PREFIX");
    write_registration();
    let given = std::env::var_os("VPP_PREFIX").map(PathBuf::from);
    let prefix = given.clone().unwrap_or_else(|| PathBuf::from("/usr"));
    let header = prefix.join(HEADER);
    if !header.is_file() {
        // A file that does not exist counts as changed: the next build looks again.
        println!("cargo::rerun-if-changed={}", header.display());
        if given.is_some() {
            println!("cargo::error=VPP_PREFIX is {}, but there is no {}", prefix.display(), header.display());
        }
        return;
    }
    cc::Build::new()
        .file("src/sys/shim.c")
        .file("src/sys/buffers.c")
        .include(prefix.join("include"))
        .flag("-Werror=implicit-function-declaration")
        .flag("-Werror=int-conversion")
        // VPP's macros and inline functions leave parameters unused and compare signs.
        .flag("-Wno-address-of-packed-member")
        .extra_warnings(false)
        .compile("mmb_vpp_shim");
    for folder in libraries(&prefix) {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    println!("cargo::rustc-cfg=have_vpp");
}

/// Writes `registration.rs`, which `src/sys/mod.rs` includes.
fn write_registration() {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let version = std::env::var("CARGO_PKG_VERSION").expect("Cargo sets the version");
    std::fs::write(folder.join("registration.rs"), REGISTRATION.replace("@VERSION@", &version))
        .expect("OUT_DIR is writable");
}

/// Where VPP's libraries are, which a distribution may keep by architecture.
fn libraries(prefix: &Path) -> Vec<PathBuf> {
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let folders = [prefix.join("lib").join(format!("{architecture}-linux-gnu")), prefix.join("lib")];
    folders.into_iter().filter(|folder| folder.is_dir()).collect()
}

//! Compiles the DPDK shim where libdpdk is installed, and sets `cfg(dpdk)` then; compiles the BPF programs of flows where clang and libbpf's
//! headers are, and sets `cfg(flows)` then.
//!
//! Without either the crate builds all the same: without libdpdk starting a port fails with an error that says so, and without clang workers see
//! every packet, which a message says.

use std::process::Command;

/// The libraries that the shim calls; drivers come from the plugin directory at run time.
const LIBRARIES: [&str; 4] = ["rte_eal", "rte_ethdev", "rte_mempool", "rte_mbuf"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(dpdk, flows)");
    if compile_flows() {
        println!("cargo::rustc-cfg=flows");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=shim/dpdk.c");
    println!("cargo::rerun-if-changed=shim/dpdk.h");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo::rerun-if-env-changed=MMB_WITHOUT_DPDK");
    if std::env::var_os("MMB_WITHOUT_DPDK").is_some() {
        return;
    }
    if !installed("22.11") {
        // A file that does not exist counts as changed: the next build looks again.
        println!("cargo::rerun-if-changed=shim/libdpdk-is-not-installed");
        return;
    }
    for folder in pkg_config("--variable=pcfiledir") {
        println!("cargo::rerun-if-changed={folder}/libdpdk.pc");
    }
    let mut shim = cc::Build::new();
    shim.file("shim/dpdk.c").warnings(true).extra_warnings(false);
    shim.flag("-Werror=implicit-function-declaration").flag("-Werror=int-conversion");
    // DPDK's inline functions need the instruction set and the configuration that it was built with.
    for flag in pkg_config("--cflags") {
        shim.flag(&flag);
    }
    shim.compile("mmb_dpdk_shim");
    for flag in pkg_config("--libs-only-L") {
        if let Some(path) = flag.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={path}");
        }
    }
    for library in LIBRARIES {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
    println!("cargo::rustc-cfg=dpdk");
}

/// The sources of the BPF programs, in `bpf`.
const BPF_PROGRAMS: [&str; 2] = ["flow", "flow_xdp"];

/// Compiles the BPF programs; false if that is not possible here.
fn compile_flows() -> bool {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=MMB_WITHOUT_CLANG");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_OS") != "linux" || std::env::var_os("MMB_WITHOUT_CLANG").is_some() {
        return false;
    }
    // Debian keeps a part of the kernel's headers in a directory of the architecture.
    let headers = format!("/usr/include/{}-linux-gnu", variable("CARGO_CFG_TARGET_ARCH"));
    let endian = if variable("CARGO_CFG_TARGET_ENDIAN") == "big" { "bpfeb" } else { "bpfel" };
    let words = ["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-mcpu=v3", "-target", endian];
    BPF_PROGRAMS.iter().all(|name| {
        let object = format!("{}/{name}.bpf.o", variable("OUT_DIR"));
        let mut clang = Command::new("clang");
        clang.args(words).args(["-idirafter", &headers, "-c", &format!("bpf/{name}.bpf.c"), "-o", &object]);
        match clang.output() {
            Ok(output) if output.status.success() => true,
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                println!(
                    "cargo::warning=flow offload is left out: {}",
                    why.lines().next().unwrap_or_default()
                );
                false
            }
            Err(error) => {
                println!("cargo::warning=flow offload is left out: clang: {error}");
                // A file that does not exist counts as changed: the next build looks again.
                println!("cargo::rerun-if-changed=bpf/clang-is-not-installed");
                false
            }
        }
    })
}

/// Whether libdpdk of at least that version is installed.
fn installed(version: &str) -> bool {
    let minimum = format!("--atleast-version={version}");
    Command::new("pkg-config").args([&minimum, "libdpdk"]).status().is_ok_and(|status| status.success())
}

/// What pkg-config says about libdpdk, by word.
fn pkg_config(what: &str) -> Vec<String> {
    let output = Command::new("pkg-config").args([what, "libdpdk"]).output().expect("pkg-config ran before");
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

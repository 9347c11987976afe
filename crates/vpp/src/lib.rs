//! mmb in VPP: the engine as nodes of VPP's graph, the language in VPP's command line.
//!
//! VPP loads `mmb_plugin.so`, reads the section `mmb` of its startup.conf (`config`) and thereby starts the `runtime`: an engine
//! with a worker for each thread of VPP, the daemon with its control socket, VPP's `interfaces` as ports. Packets come through the
//! `nodes` of the interfaces that are enabled; what is typed behind `mmb` in VPP's command line goes the way of any other client's
//! requests.
//!
//! `sys` is the only door to VPP outside of the nodes. Unsafe code stays in these two and in `memory`, the allocator.

#[cfg(have_vpp)]
const _: () = assert!(
    !vpp_plugin::VPP_BUILD_VER.is_empty(),
    "vpp-plugin did not find VPP's headers: put their directory into C_INCLUDE_PATH, as `make vpp` does"
);

mod cli;
mod config;
mod host;
mod interfaces;
mod lines;
mod memory;
mod nodes;
mod ports;
mod runtime;
mod sys;
mod threads;
mod typed;
mod unsupported;

// The macro takes nothing but a literal.
const _: () = assert!(matches!(env!("CARGO_PKG_VERSION").as_bytes(), b"0.1.0"));

vpp_plugin::vlib_plugin_register! {
    version: "0.1.0",
    description: "mmb: packets decided on and rewritten by rules",
    version_required: vpp_plugin::VPP_BUILD_VER,
}

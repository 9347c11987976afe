//! mmb in VPP: the engine as nodes of VPP's graph, the language in VPP's command line.
//!
//! VPP loads `mmb_plugin.so`, reads the section `mmb` of its startup.conf (`config`) and starts the `runtime`: an engine
//! with a worker for each thread of VPP, the daemon with its control socket, VPP's `interfaces` as ports. Packets of enabled interfaces
//! pass the `nodes`; a command of VPP's command line (`cli`) is a request of a client like any other.
//!
//! `sys` alone talks to VPP and has the unsafe code; `memory` implements `GlobalAlloc`, an unsafe trait, on the C library.
#![deny(unsafe_code)]

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
#[allow(unsafe_code)]
mod memory;
mod nodes;
mod ports;
mod runtime;
#[allow(unsafe_code)]
mod sys;
mod threads;
mod typed;
mod unsupported;

//! The functions that VPP calls (`mmb_rs_…`; shim.c and buffers.c name them to VPP).
//!
//! A panic may not leave Rust, or VPP ends: each function [guards](guard) or contains its work.

use super::main_thread::{LogLevel, MainThread, error};
use super::node::NodeCall;
use super::thread::VppThread;
use crate::{cli, nodes, runtime};
use mmb_engine::Origin;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use vpp_plugin::bindings::{clib_error_t, uword, vlib_frame_t, vlib_main_t, vlib_node_runtime_t};

/// Runs the work of a call by VPP. A panic is logged and gives `None`.
fn guard<T>(main: MainThread, what: &str, work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    if done.is_err() {
        main.log(LogLevel::Error, &format!("{what}: an internal error; see VPP's standard error"));
    }
    done.ok()
}

/// Reads the section of startup.conf, which may be absent, and starts.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmb_rs_config(text: *const c_char) -> *mut clib_error_t {
    // SAFETY: VPP reads its configuration on its main thread.
    let main = unsafe { MainThread::here() };
    // SAFETY: the shim ends the text with a zero.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let start = || {
        runtime::start(main, &text).map_err(|why| runtime::chain(&why))?;
        cli::add_commands(main)
    };
    match guard(main, "start", start) {
        Some(Ok(())) => std::ptr::null_mut(),
        Some(Err(why)) => error(&format!("mmb: {why}")),
        None => error("mmb: an internal error"),
    }
}

/// Runs a command of VPP's command line.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmb_rs_command(number: usize, line: *const c_char) -> *mut clib_error_t {
    // SAFETY: VPP carries commands out on its main thread.
    let main = unsafe { MainThread::here() };
    // SAFETY: the shim ends the line with a zero.
    let line = unsafe { CStr::from_ptr(line) }.to_bytes();
    match guard(main, "command", || cli::run_logged(main, number, line)) {
        Some(Ok(())) => std::ptr::null_mut(),
        Some(Err(why)) => error(&why),
        None => error("an internal error; see VPP's log"),
    }
}

/// VPP ends.
#[unsafe(no_mangle)]
extern "C" fn mmb_rs_exit() {
    // SAFETY: VPP leaves its main loop on its main thread.
    let main = unsafe { MainThread::here() };
    guard(main, "stop", runtime::stop);
}

/// An interface was created or deleted.
#[unsafe(no_mangle)]
extern "C" fn mmb_rs_interface(number: u32, is_add: u32) {
    // SAFETY: VPP makes and deletes interfaces on its main thread.
    let main = unsafe { MainThread::here() };
    guard(main, "interfaces", || runtime::interface_changed(main, number, is_add != 0));
}

/// mmb-process runs, twenty times a second; `turn` counts.
#[unsafe(no_mangle)]
extern "C" fn mmb_rs_process(turn: u32) {
    // SAFETY: VPP runs processes on its main thread.
    let main = unsafe { MainThread::here() };
    guard(main, "mmb-process", || runtime::poll(main, turn));
}

/// mmb-tick runs on a thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmb_rs_tick(vm: *mut vlib_main_t) -> usize {
    // SAFETY: VPP's state of this thread.
    let thread = unsafe { VppThread::new(vm) };
    catch_unwind(AssertUnwindSafe(|| nodes::tick(thread))).unwrap_or_default()
}

macro_rules! node {
    ($name:ident, $family:literal, $work:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            vm: *mut vlib_main_t,
            node: *mut vlib_node_runtime_t,
            frame: *mut vlib_frame_t,
        ) -> uword {
            // SAFETY: VPP calls a node of ours.
            unsafe { NodeCall::run((vm, node, frame), $family, $work, nodes::abandon) as uword }
        }
    };
}

node!(mmb_rs_ip4_classify, 0, |call, frame| nodes::decide(call, Origin::Wire, frame));
node!(mmb_rs_ip6_classify, 1, |call, frame| nodes::decide(call, Origin::Wire, frame));
node!(mmb_rs_ip4_handed, 0, |call, frame| nodes::decide(call, Origin::Worker, frame));
node!(mmb_rs_ip6_handed, 1, |call, frame| nodes::decide(call, Origin::Worker, frame));
node!(mmb_rs_ip4_rewrite, 0, nodes::rewrite);
node!(mmb_rs_ip6_rewrite, 1, nodes::rewrite);

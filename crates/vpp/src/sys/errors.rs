//! VPP's error counters: one for each drop reason, under its name, and one for faults of the plugin.

use mmb_engine::DropReason;
use std::ffi::c_char;
use vpp_plugin::bindings::{
    vl_counter_severity_e_VL_COUNTER_SEVERITY_ERROR, vl_counter_severity_e_VL_COUNTER_SEVERITY_INFO,
    vlib_error_desc_t,
};

const REASONS: usize = DropReason::ALL.len();
const ERRORS: usize = REASONS + 1;
/// Bytes of the longest name and its end.
const NAME: usize = 32;

/// The error of a dropped packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeError {
    /// A drop reason of the engine.
    For(DropReason),
    /// A fault of the plugin.
    Internal,
}

impl NodeError {
    /// Its index in the table.
    pub(crate) fn index(self) -> usize {
        match self {
            NodeError::For(reason) => reason.index(),
            NodeError::Internal => REASONS,
        }
    }
}

/// The names as C strings.
static NAMES: [[u8; NAME]; ERRORS] = names();

const fn names() -> [[u8; NAME]; ERRORS] {
    let mut names = [[0; NAME]; ERRORS];
    let mut error = 0;
    while error < ERRORS {
        let name = if error < REASONS { DropReason::ALL[error].name() } else { "internal-error" };
        assert!(name.len() < NAME);
        let mut at = 0;
        while at < name.len() {
            names[error][at] = name.as_bytes()[at];
            at += 1;
        }
        error += 1;
    }
    names
}

/// The descriptions that VPP copies, in the order of [`DropReason::ALL`].
#[repr(transparent)]
struct ErrorTable([vlib_error_desc_t; ERRORS]);

// SAFETY: the pointers lead to a static that is never written.
unsafe impl Sync for ErrorTable {}

// buffers.c asserts the same of VPP's headers.
const _: () = assert!(size_of::<vlib_error_desc_t>() == 24);

#[unsafe(no_mangle)]
static mmb_rs_errors: ErrorTable = ErrorTable(descriptions());
#[unsafe(no_mangle)]
static mmb_rs_error_count: u16 = ERRORS as u16;

const fn descriptions() -> [vlib_error_desc_t; ERRORS] {
    let mut all = [vlib_error_desc_t {
        name: std::ptr::null_mut(),
        desc: std::ptr::null_mut(),
        severity: vl_counter_severity_e_VL_COUNTER_SEVERITY_ERROR,
        stats_entry_index: 0,
    }; ERRORS];
    let mut error = 0;
    while error < ERRORS {
        let name = (&raw const NAMES[error]).cast::<c_char>().cast_mut();
        (all[error].name, all[error].desc) = (name, name);
        error += 1;
    }
    // What a rule asked for is no error.
    all[0].severity = vl_counter_severity_e_VL_COUNTER_SEVERITY_INFO;
    all
}

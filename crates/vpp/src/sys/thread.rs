//! VPP's state of a thread.

use super::errors::NodeError;
use mmb_engine::DropReason;
use vpp_plugin::bindings::vlib_main_t;
use vpp_plugin::vlib::MainRef;

unsafe extern "C" {
    fn mmb_shim_count_lost(vm: *mut vlib_main_t, error: u32, packets: u64);
}

/// VPP's state of the thread that runs.
#[derive(Clone, Copy)]
pub(crate) struct VppThread<'v>(&'v MainRef);

impl<'v> VppThread<'v> {
    /// # Safety
    /// VPP passed this to the function that runs now.
    pub(super) unsafe fn new(vm: *mut vlib_main_t) -> VppThread<'v> {
        // SAFETY: VPP keeps the state of a thread as long as it runs.
        VppThread(unsafe { MainRef::from_ptr_mut(vm) })
    }

    pub(super) fn as_ptr(self) -> *mut vlib_main_t {
        self.0.as_ptr()
    }

    #[inline(always)]
    pub(super) fn as_ref(self) -> &'v MainRef {
        self.0
    }

    /// VPP's number of the thread.
    #[inline(always)]
    pub(crate) fn number(self) -> u16 {
        self.0.thread_index()
    }

    /// Counts drops of packets whose buffers are freed already.
    pub(crate) fn count_lost(self, reason: DropReason, packets: u64) {
        // SAFETY: mmb-tick, which counts them, has the errors of all our nodes.
        unsafe { mmb_shim_count_lost(self.as_ptr(), NodeError::For(reason).index() as u32, packets) }
    }
}

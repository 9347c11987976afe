//! The nodes of VPP's graph.

pub(crate) mod seat;

use crate::runtime::Runtime;
use mmb_engine::NoCycles;
use vpp_plugin::bindings::vlib_node_runtime_t;
use vpp_plugin::vlib::MainRef;

/// Has a thread's worker do what is not about packets: take a newer policy up, end connections, answer questions about them.
/// Returns how many packets it sent on.
pub(crate) fn tick(vm: &mut MainRef, _node: *mut vlib_node_runtime_t) -> usize {
    let Some(runtime) = Runtime::running() else { return 0 };
    let mut seat = runtime.seat(vm.thread_index());
    seat.worker.process(runtime.now_ns(), &NoCycles, &mut [], &mut []);
    0
}

//! The nodes of VPP's graph, once for IPv4 and once for IPv6:
//!
//! ```text
//! … ─► ip4-mmb-classify ─┬─► ip4-mmb-rewrite ─┬─► next feature … ─► ip4-lookup
//!      ip4-mmb-handed ───┤        (jobs)      └─► error-drop
//!       (other threads)  ├─► next feature
//!                        └─► error-drop, with the reason as error
//! ```
//!
//! The first decides about a vector ([`decide`]), and leaves a number with each buffer that is to be rewritten; the second does
//! that ([`rewrite`]). Packets of other threads' connections are handed over to `ip4-mmb-handed` there; fragments that came too early
//! are held by the worker, and come as new buffers when they can go on. Both have waited while VPP may have changed an interface's
//! features, so they are asked for anew. What a panic of ours leaves of a frame is dropped ([`contain`]).

mod buffer;
mod chain;
mod contain;
mod counters;
mod decide;
mod graph;
mod pending;
mod reorder;
mod rewrite;
pub(crate) mod thread_state;
mod trace;

use crate::runtime::Runtime;
use mmb_engine::Cycles;
use pending::PendingQueue;
use reorder::ReorderGuard;
use vpp_plugin::vlib::MainRef;

/// Counts cycles of the time-stamp counter.
struct NodeTsc;

impl Cycles for NodeTsc {
    #[inline]
    fn now(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
        unsafe {
            core::arch::x86_64::_rdtsc()
        }
        #[cfg(not(target_arch = "x86_64"))]
        0
    }
}

/// Has a thread's worker do what is not about packets that come: take a newer policy up, end connections, answer questions about them,
/// give out what was held. Returns how many packets it sent on.
pub(crate) fn tick(vm: &MainRef) -> usize {
    let Some(runtime) = Runtime::running() else { return 0 };
    let mut state = runtime.thread_state(vm.thread_index());
    // No frame waits when VPP runs its input nodes: what is left of jobs, no node will ask for.
    state.worker.discard_tickets();
    state.reorder = ReorderGuard::default();
    state.pending.iter_mut().for_each(PendingQueue::clear);
    state.worker.process(runtime.now_ns(), &NodeTsc, &mut [], &mut []);
    decide::count_lost(&mut state.worker, vm);
    decide::give_out(runtime, state, vm)
}

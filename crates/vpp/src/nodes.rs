//! The nodes of VPP's graph, once for IPv4 and once for IPv6:
//!
//! ```text
//! … ─► ip4-mmb-classify ─┬─► ip4-mmb-rewrite ─┬─► next feature … ─► ip4-lookup
//!      ip4-mmb-handed ───┤       (tickets)    └─► error-drop
//!       (other threads)  ├─► next feature
//!                        └─► error-drop, with the reason as error
//! ```
//!
//! The first node decides on a vector ([`mod@decide`]), rewrites the packets that need no more than the translation of their connection, and queues a rewrite ticket for each buffer that is to be rewritten ([`pending`]); the
//! second redeems the tickets ([`mod@rewrite`]). Packets of other threads' connections are handed over to `ip4-mmb-handed` there; early
//! fragments are held by the worker, and come back in new buffers. VPP may have changed an interface's features while either kind waited,
//! so their position among the features is looked up again. The buffers that a panic leaves are dropped.

mod decide;
mod pending;
mod reorder;
mod rewrite;
pub(crate) mod thread_state;

use crate::runtime::Runtime;
use crate::sys::{BufferIndex, NodeCall, NodeTsc, VppThread};
use decide::GraphHost;
use mmb_engine::{Origin, drive, drive_returned};
use pending::PendingQueue;
use reorder::ReorderGuard;
use thread_state::ThreadState;

/// Decides on the packets of a frame, and on those that the worker gives back then.
pub(crate) fn decide(call: &NodeCall<'_>, origin: Origin, frame: &[BufferIndex]) {
    let Some(runtime) = Runtime::running() else { return call.drop_all(frame) };
    let mut state = runtime.thread_state(call.thread.number());
    let ThreadState { worker, buffers } = &mut *state;
    let mut host = GraphHost::new(runtime, call.thread, buffers, Some((call, frame)));
    let Ok(()) = drive(worker, &mut host, origin);
}

/// Rewrites the packets of a frame.
pub(crate) fn rewrite(call: &NodeCall<'_>, frame: &[BufferIndex]) {
    let Some(runtime) = Runtime::running() else { return call.drop_all(frame) };
    rewrite::run(call, runtime, &mut runtime.thread_state(call.thread.number()), frame);
}

/// Forgets the buffers that a panic leaves of a frame.
pub(crate) fn abandon(call: &NodeCall<'_>, buffers: &[BufferIndex]) {
    if let Some(runtime) = Runtime::running() {
        runtime.thread_state(call.thread.number()).buffers.abandon(call.family, buffers);
    }
}

/// Runs a thread's worker without packets: it picks up a newer policy, ends connections, runs tasks, and gives back held packets.
/// Returns the number of packets that it gave back.
pub(crate) fn tick(thread: VppThread<'_>) -> usize {
    let Some(runtime) = Runtime::running() else { return 0 };
    let mut state = runtime.thread_state(thread.number());
    let ThreadState { worker, buffers } = &mut *state;
    // No frame waits when VPP runs its input nodes: no node will redeem the tickets that are left.
    worker.discard_tickets();
    buffers.reorder = ReorderGuard::default();
    buffers.pending.iter_mut().for_each(PendingQueue::clear);
    worker.process(runtime.now_ns(), &NodeTsc, &mut [], &mut []);
    for (reason, packets) in worker.take_lost() {
        if packets > 0 {
            thread.count_lost(reason, packets);
        }
    }
    let mut host = GraphHost::new(runtime, thread, buffers, None);
    let Ok(()) = drive_returned(worker, &mut host);
    host.taken_back()
}

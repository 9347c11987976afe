//! What nodes do alike in VPP's graph, and the functions that VPP calls; buffers.c registers them.

use super::buffer::{Buffer, BufferPool};
use super::contain::SentCount;
use super::counters::NodeError;
use super::trace::NodeTrace;
use super::{decide, rewrite};
use crate::runtime::Runtime;
use mmb_engine::{Origin, VECTOR};
use std::slice;
use vpp_plugin::bindings::{
    VLIB_NODE_FLAG_TRACE, uword, vlib_add_trace, vlib_frame_t, vlib_main_t, vlib_node_runtime_t,
};
use vpp_plugin::vlib::node::NodeRuntimeRef;
use vpp_plugin::vlib::{BufferIndex, MainRef};

/// The next node that drops, and counts the error that stands in the buffer.
pub(super) const DROP: u16 = 0;
/// The next node that rewrites.
pub(super) const REWRITE: u16 = 1;

unsafe extern "C" {
    fn mmb_shim_count(vm: *mut vlib_main_t, node: *mut vlib_node_runtime_t, error: u32, packets: u64);
}

/// One call of a node by VPP.
pub(super) struct NodeCall<'c> {
    pub(super) vm: &'c MainRef,
    /// VPP's state of the node for this thread.
    pub(super) node: *mut vlib_node_runtime_t,
    /// 0: IPv4, 1: IPv6.
    pub(super) family: u32,
    /// How much of the frame is sent on.
    pub(super) sent: SentCount,
}

impl NodeCall<'_> {
    /// Whether packets of this node are traced.
    #[inline(always)]
    pub(super) fn is_traced(&self) -> bool {
        // SAFETY: VPP keeps the state as long as it runs.
        u32::from(unsafe { (*self.node).flags }) & VLIB_NODE_FLAG_TRACE != 0
    }

    /// Leaves a trace with a traced packet.
    pub(super) fn trace(&self, buffer: Buffer, trace: NodeTrace) {
        let (vm, size) = (self.vm.as_ptr(), size_of::<NodeTrace>() as u32);
        // SAFETY: the buffer is ours, and VPP gives room for so many bytes, aligned as it likes.
        unsafe {
            vlib_add_trace(vm, self.node, buffer.as_ptr(), size).cast::<NodeTrace>().write_unaligned(trace);
        }
    }

    /// Says why a packet is dropped.
    #[inline(always)]
    pub(super) fn set_error(&self, buffer: Buffer, why: NodeError) {
        // SAFETY: a node of ours has as many errors as the table that it was registered with.
        buffer.set_error(unsafe { *(*self.node).errors.add(why.index()) });
    }

    /// Counts packets that are dropped already.
    pub(super) fn count(&self, why: NodeError, packets: u64) {
        // SAFETY: as in `set_error`.
        unsafe { mmb_shim_count(self.vm.as_ptr(), self.node, why.index() as u32, packets) }
    }

    /// Sends buffers on.
    #[inline(always)]
    pub(super) fn enqueue(&self, buffers: &[u32], nexts: &[u16]) {
        if buffers.is_empty() {
            return;
        }
        // SAFETY: VPP's state of the node, which nobody else has now.
        let node = unsafe { NodeRuntimeRef::<()>::from_ptr_mut(self.node) };
        // SAFETY: as many buffers, which are ours and whole, as next nodes, which the node has.
        unsafe { self.vm.buffer_enqueue_to_next(node, as_indices(buffers), nexts) }
    }

    /// Does the node's work on a frame. What a panic leaves of that is dropped.
    pub(super) fn contain(&self, frame: &[u32], work: impl FnOnce()) {
        self.sent.contain(frame, work, |left| {
            if let Some(runtime) = Runtime::running() {
                runtime.thread_state(self.vm.thread_index()).abandon(self.family, left);
            }
            self.drop_all(left);
        });
    }

    /// Drops buffers by a fault of ours.
    pub(super) fn drop_all(&self, buffers: &[u32]) {
        let pool = BufferPool::of(self.vm);
        for buffer in buffers {
            // SAFETY: VPP gave the node these.
            self.set_error(unsafe { pool.buffer(*buffer) }, NodeError::Internal);
        }
        self.enqueue(buffers, &[DROP; VECTOR][..buffers.len()]);
    }
}

fn as_indices(buffers: &[u32]) -> &[BufferIndex] {
    const { assert!(size_of::<BufferIndex>() == size_of::<u32>()) };
    // SAFETY: an index is its number and no more.
    unsafe { slice::from_raw_parts(buffers.as_ptr().cast(), buffers.len()) }
}

/// Where packets go on behind our feature. Those that came the same way go on alike, so that VPP's configuration is looked up once.
#[derive(Default)]
pub(super) struct NextFeature {
    /// Place in VPP's configuration, the place behind it, and the next node.
    last: Option<(u32, u32, u16)>,
}

impl NextFeature {
    /// The next node of a packet, which goes on there once. `before` is what [`Buffer::feature`] said.
    #[inline(always)]
    pub(super) fn next(&mut self, buffer: Buffer, before: u32) -> u16 {
        // SAFETY: the buffer is ours.
        let buffer = unsafe { buffer.as_ref() };
        match self.last {
            Some((known, after, next)) if known == before => {
                *buffer.current_config_index_mut() = after;
                next
            }
            _ => {
                // SAFETY: the packet is on a feature arc.
                let next = unsafe { buffer.vnet_feature_next() }.0 as u16;
                self.last = Some((before, buffer.current_config_index(), next));
                next
            }
        }
    }
}

/// Takes a call of VPP's apart.
///
/// # Safety
/// The arguments are those with which VPP called a node of ours.
unsafe fn called(
    vm: *mut vlib_main_t,
    node: *mut vlib_node_runtime_t,
    frame: *mut vlib_frame_t,
    family: u32,
    work: impl FnOnce(&NodeCall<'_>, &[u32]),
) -> uword {
    // SAFETY: a frame of buffers holds so many indices at that place, and stays until the node returns.
    let buffers = unsafe {
        let start = frame.cast::<u8>().add(usize::from((*frame).vector_offset));
        slice::from_raw_parts(start.cast::<u32>(), usize::from((*frame).n_vectors))
    };
    // SAFETY: VPP's state of this thread.
    let vm = unsafe { MainRef::from_ptr_mut(vm) };
    let call = NodeCall { vm, node, family, sent: SentCount::default() };
    call.contain(buffers, || work(&call, buffers));
    buffers.len() as uword
}

macro_rules! node {
    ($name:ident, $family:literal, $work:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            vm: *mut vlib_main_t,
            node: *mut vlib_node_runtime_t,
            frame: *mut vlib_frame_t,
        ) -> uword {
            // SAFETY: VPP calls.
            unsafe { called(vm, node, frame, $family, $work) }
        }
    };
}

node!(mmb_rs_ip4_classify, 0, |call, frame| decide::run(call, Origin::Wire, frame));
node!(mmb_rs_ip6_classify, 1, |call, frame| decide::run(call, Origin::Wire, frame));
node!(mmb_rs_ip4_handed, 0, |call, frame| decide::run(call, Origin::Worker, frame));
node!(mmb_rs_ip6_handed, 1, |call, frame| decide::run(call, Origin::Worker, frame));
node!(mmb_rs_ip4_rewrite, 0, rewrite::run);
node!(mmb_rs_ip6_rewrite, 1, rewrite::run);

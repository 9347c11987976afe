//! A call of a node: its thread, its errors, and where its buffers go.

use super::buffer::{Buffer, BufferIndex, BufferPool};
use super::contain::SentCount;
use super::errors::NodeError;
use super::thread::VppThread;
use super::trace::NodeTrace;
use mmb_engine::VECTOR;
use std::slice;
use vpp_plugin::bindings::{
    VLIB_NODE_FLAG_TRACE, vlib_add_trace, vlib_frame_t, vlib_main_t, vlib_node_runtime_t,
};
use vpp_plugin::vlib::node::NodeRuntimeRef;

/// The next node that drops, and counts the buffer's error.
pub(crate) const DROP: u16 = 0;
/// The next node that rewrites.
pub(crate) const REWRITE: u16 = 1;

unsafe extern "C" {
    fn mmb_shim_runtime(vm: *mut vlib_main_t, family: u32) -> *mut vlib_node_runtime_t;
    fn mmb_shim_count(vm: *mut vlib_main_t, node: *mut vlib_node_runtime_t, error: u32, packets: u64);
    fn mmb_shim_hand_over(
        vm: *mut vlib_main_t,
        node: *mut vlib_node_runtime_t,
        family: u32,
        buffers: *mut u32,
        threads: *mut u16,
        count: u32,
    ) -> u32;
    fn mmb_shim_free(vm: *mut vlib_main_t, buffers: *mut u32, count: u32);
    fn mmb_shim_feature_position(family: u32, multicast: u32, interface: u32) -> u32;
}

/// One call of a node.
pub(crate) struct NodeCall<'v> {
    pub(crate) thread: VppThread<'v>,
    /// VPP's state of the node for this thread.
    node: *mut vlib_node_runtime_t,
    /// 0: IPv4, 1: IPv6.
    pub(crate) family: u32,
    sent: SentCount,
}

impl<'v> NodeCall<'v> {
    /// A call of a thread's deciding node of that family, for packets that come from no other node.
    pub(crate) fn deciding(thread: VppThread<'v>, family: u32) -> NodeCall<'v> {
        // SAFETY: this thread's own state of a node of ours.
        let node = unsafe { mmb_shim_runtime(thread.as_ptr(), family) };
        NodeCall { thread, node, family, sent: SentCount::default() }
    }

    /// Reads the arguments of a call by VPP, and runs `work` on its frame; `abandon` gets the buffers that a panic leaves, before they are dropped.
    /// Returns the number of buffers.
    ///
    /// # Safety
    /// VPP passed the first three arguments to the function of a node of ours of that family.
    pub(super) unsafe fn run(
        (vm, node, frame): (*mut vlib_main_t, *mut vlib_node_runtime_t, *mut vlib_frame_t),
        family: u32,
        work: impl FnOnce(&NodeCall<'_>, &[BufferIndex]),
        abandon: impl FnOnce(&NodeCall<'_>, &[BufferIndex]),
    ) -> usize {
        // SAFETY: a frame of buffers holds so many indices at that place, and stays until the node returns.
        let frame = unsafe {
            let start = frame.cast::<u8>().add(usize::from((*frame).vector_offset));
            slice::from_raw_parts(start.cast::<BufferIndex>(), usize::from((*frame).n_vectors))
        };
        // SAFETY: VPP's state of this thread.
        let thread = unsafe { VppThread::new(vm) };
        let call = NodeCall { thread, node, family, sent: SentCount::default() };
        call.contain(&mut (), frame, |()| work(&call, frame), |(), left| abandon(&call, left));
        frame.len()
    }

    /// Runs the node's work on a frame. If it panics, `abandon` gets the buffers that were not sent, and then they are dropped.
    pub(crate) fn contain<S>(
        &self,
        state: &mut S,
        frame: &[BufferIndex],
        work: impl FnOnce(&mut S),
        abandon: impl FnOnce(&mut S, &[BufferIndex]),
    ) {
        self.sent.contain(state, frame, work, |state, left| {
            abandon(state, left);
            self.drop_all(left);
        });
    }

    /// Counts the next buffers of the frame as sent: see [`SentCount::add`].
    pub(crate) fn count_sent(&self, buffers: usize) {
        self.sent.add(buffers);
    }

    /// True if packets of this node are traced.
    #[inline(always)]
    pub(crate) fn is_traced(&self) -> bool {
        // SAFETY: VPP keeps the state as long as it runs.
        u32::from(unsafe { (*self.node).flags }) & VLIB_NODE_FLAG_TRACE != 0
    }

    /// Stores a trace beside a traced packet.
    pub(crate) fn add_trace(&self, buffer: Buffer, trace: NodeTrace) {
        let (vm, size) = (self.thread.as_ptr(), size_of::<NodeTrace>() as u32);
        // SAFETY: the buffer is the node's, and VPP gives room for so many bytes, of any alignment.
        unsafe {
            vlib_add_trace(vm, self.node, buffer.as_ptr(), size).cast::<NodeTrace>().write_unaligned(trace);
        }
    }

    /// Sets the error of a packet that goes to [`DROP`].
    #[inline(always)]
    pub(crate) fn set_error(&self, buffer: Buffer, error: NodeError) {
        // SAFETY: a node of ours has as many errors as the table that it was registered with.
        buffer.set_error(unsafe { *(*self.node).errors.add(error.index()) });
    }

    /// Counts packets that are dropped already.
    pub(crate) fn count(&self, error: NodeError, packets: u64) {
        // SAFETY: as in `set_error`.
        unsafe { mmb_shim_count(self.thread.as_ptr(), self.node, error.index() as u32, packets) }
    }

    /// Sends buffers to next nodes.
    #[inline(always)]
    pub(crate) fn enqueue(&self, buffers: &[BufferIndex], nexts: &[u16]) {
        if buffers.is_empty() {
            return;
        }
        assert_eq!(buffers.len(), nexts.len(), "a next node for each buffer");
        // SAFETY: VPP's state of the node, which nothing else uses now.
        let node = unsafe { NodeRuntimeRef::<()>::from_ptr_mut(self.node) };
        // SAFETY: as many buffers, which are the node's, as next nodes, which the node has.
        unsafe { self.thread.as_ref().buffer_enqueue_to_next(node, as_indices(buffers), nexts) }
    }

    /// Hands buffers over to other threads; returns how many found room. VPP frees the others.
    pub(crate) fn hand_over(&self, buffers: &mut [BufferIndex], threads: &mut [u16]) -> usize {
        assert_eq!(buffers.len(), threads.len(), "a thread for each buffer");
        let (vm, count) = (self.thread.as_ptr(), buffers.len() as u32);
        let (buffers, threads) = (buffers.as_mut_ptr().cast(), threads.as_mut_ptr());
        // SAFETY: as many buffers, which are the node's, as threads, which run.
        unsafe { mmb_shim_hand_over(vm, self.node, self.family, buffers, threads, count) as usize }
    }

    /// Frees buffers.
    pub(crate) fn free(&self, buffers: &mut [BufferIndex]) {
        let count = buffers.len() as u32;
        // SAFETY: the buffers are the node's.
        unsafe { mmb_shim_free(self.thread.as_ptr(), buffers.as_mut_ptr().cast(), count) }
    }

    /// Drops buffers because of a fault of the plugin.
    pub(crate) fn drop_all(&self, buffers: &[BufferIndex]) {
        let pool = BufferPool::of(self.thread);
        buffers.iter().for_each(|&buffer| self.set_error(pool.buffer(buffer), NodeError::Internal));
        self.enqueue(buffers, &[DROP; VECTOR][..buffers.len()]);
    }

    /// The position behind which an interface's packets leave mmb's node, in VPP's configuration of features as it is now; `u32::MAX` if mmb
    /// is none of the interface's features.
    pub(crate) fn feature_position(&self, multicast: bool, interface: u32) -> u32 {
        // SAFETY: the shim checks the interface's number; features change only while no thread runs nodes.
        unsafe { mmb_shim_feature_position(self.family, u32::from(multicast), interface) }
    }
}

fn as_indices(buffers: &[BufferIndex]) -> &[vpp_plugin::vlib::BufferIndex] {
    const { assert!(size_of::<vpp_plugin::vlib::BufferIndex>() == size_of::<BufferIndex>()) };
    // SAFETY: both are their number and no more.
    unsafe { slice::from_raw_parts(buffers.as_ptr().cast(), buffers.len()) }
}

/// The next nodes of packets behind our feature. Packets with the same position have the same next node, so that VPP's configuration is
/// read once.
#[derive(Default)]
pub(crate) struct NextFeature {
    /// The position, the position behind it, and the next node.
    last: Option<(u32, u32, u16)>,
}

impl NextFeature {
    /// The next node of a packet, and moves the packet's position there. `before` is its [`Buffer::feature`].
    #[inline(always)]
    pub(crate) fn next(&mut self, buffer: Buffer, before: u32) -> u16 {
        // SAFETY: the buffer is the node's, and no reference to it outlives this call.
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

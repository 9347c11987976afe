//! Rewriting a vector that was decided on: `ip4-mmb-rewrite` and its twin.

use super::NodeTsc;
use super::buffer::{AHEAD, Buffer, BufferPool};
use super::chain::{ChainCopies, ChainView, put_back};
use super::counters::NodeError;
use super::graph::{DROP, NextFeature, NodeCall};
use super::pending::PendingQueue;
use super::thread_state::ThreadState;
use super::trace::{NodeTrace, TracedVerdict};
use crate::runtime::Runtime;
use arrayvec::ArrayVec;
use mmb_engine::{DropReason, PacketTrace, RewriteTicket, VECTOR, Verdict};
use mmb_packet::{Packet, PortId};
use vpp_plugin::bindings::vlib_buffer_t;

unsafe extern "C" {
    fn mmb_shim_moved(buffer: *mut vlib_buffer_t, moved: i32, grown: i32);
}

/// Rewrites the packets of a frame.
pub(super) fn run(call: &NodeCall<'_>, mut frame: &[u32]) {
    let Some(runtime) = Runtime::running() else { return call.drop_all(frame) };
    let mut state = runtime.thread_state(call.vm.thread_index());
    while !frame.is_empty() {
        let taken = one_vector(call, runtime, &mut state, frame);
        frame = &frame[taken..];
    }
}

/// A vector's packets, and where the buffers of its frame go.
#[derive(Default)]
struct RewriteVector<'p> {
    packets: ArrayVec<Packet<'p>, VECTOR>,
    tickets: ArrayVec<RewriteTicket, VECTOR>,
    places: ArrayVec<RewritePlace, VECTOR>,
    nexts: ArrayVec<u16, VECTOR>,
    feature: NextFeature,
}

/// Rewrites the first packets of a frame: all, unless long chains among them need too much room. Returns how many.
fn one_vector(call: &NodeCall<'_>, runtime: &Runtime, state: &mut ThreadState, frame: &[u32]) -> usize {
    let ThreadState { worker, copies, columns, reorder, pending, .. } = state;
    let verdicts = &mut columns.verdicts;
    let mut vector = RewriteVector::default();
    take(call, runtime, (copies, &mut pending[call.family as usize]), frame, &mut vector);
    let RewriteVector { packets, tickets, places, nexts, feature } = &mut vector;
    for (verdict, packet) in verdicts.iter_mut().zip(&*packets) {
        *verdict = Verdict::Send(packet.port);
    }
    worker.rewrite(&NodeTsc, packets, tickets, &mut verdicts[..]);
    for ((packet, &RewritePlace { at, buffer, len }), verdict) in
        packets.iter().zip(&*places).zip(&verdicts[..])
    {
        let why = match *verdict {
            Verdict::Drop(reason) => NodeError::For(reason),
            _ if finish(call, buffer, packet, len) => {
                nexts[at] = feature.next(buffer, buffer.feature());
                continue;
            }
            _ => NodeError::For(DropReason::NoBuffer),
        };
        call.set_error(buffer, why);
    }
    let taken = nexts.len();
    call.sent.add(taken);
    call.enqueue(&frame[..taken], nexts);
    reorder.arrive(taken);
    taken
}

/// Takes the packets out of the first buffers of a frame, until there is no room for copies of chains. Those that only follow others go
/// on, those of which no packet can be made are dropped.
#[inline(always)]
fn take<'p>(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    (copies, pending): (&'p mut ChainCopies, &mut PendingQueue),
    frame: &[u32],
    vector: &mut RewriteVector<'p>,
) {
    let RewriteVector { packets, tickets, places, nexts, feature } = vector;
    let mut free = copies.free();
    let pool = BufferPool::of(call.vm);
    let mut last = (u32::MAX, PortId(u16::MAX));
    for (at, &index) in frame.iter().enumerate() {
        if let Some(&soon) = frame.get(at + AHEAD) {
            pool.fetch(soon);
        }
        // SAFETY: VPP gave the node these.
        let buffer = unsafe { pool.buffer(index) };
        let ticket = match pending.take(index) {
            Some(Some(ticket)) => ticket,
            Some(None) => {
                nexts.push(feature.next(buffer, buffer.feature()));
                continue;
            }
            None => {
                call.set_error(buffer, NodeError::Internal);
                nexts.push(DROP);
                continue;
            }
        };
        let interface = buffer.interface();
        if interface != last.0 {
            last = (interface, runtime.interfaces.ports.port_of(interface));
        }
        let packet = if !buffer.is_special() {
            // SAFETY: nothing else of this node looks into the buffer while the vector is worked on.
            unsafe { buffer.packet(pool, last.1) }
        } else {
            // SAFETY: the chain is ours.
            match unsafe { free.take(call.vm.as_ptr(), buffer, pool, last.1) } {
                ChainView::Full => return pending.put_back(index, ticket),
                ChainView::Whole(packet) => Some(packet),
                ChainView::Lost => None,
            }
        };
        if let Some(packet) = packet {
            places.push(RewritePlace { at, buffer, len: packet.len() as u32 });
            packets.push(packet);
            tickets.push(ticket);
        } else {
            call.set_error(buffer, NodeError::Internal);
        }
        nexts.push(DROP);
    }
}

/// A packet that is rewritten.
struct RewritePlace {
    /// Its number in the frame.
    at: usize,
    buffer: Buffer,
    /// Its bytes before.
    len: u32,
}

/// Has the buffer hold the packet as it is now. False if it cannot.
#[inline(always)]
fn finish(call: &NodeCall<'_>, buffer: Buffer, packet: &Packet<'_>, before: u32) -> bool {
    let moved = buffer.headroom() as i32 - packet.headroom() as i32;
    if buffer.is_chained() {
        // SAFETY: the packet is this chain's copy.
        if !unsafe { put_back(call.vm.as_ptr(), buffer, packet) } {
            return false;
        }
    } else if moved != 0 || packet.len() as u32 != before {
        buffer.place(packet.headroom(), packet.len());
    }
    if moved != 0 && buffer.is_described() {
        // SAFETY: the buffer is ours.
        unsafe { mmb_shim_moved(buffer.as_ptr(), moved, packet.len() as i32 - before as i32) };
    }
    if call.is_traced() && buffer.is_traced() {
        let fate = TracedVerdict::Rewritten(before);
        let (interface, len) = (buffer.interface(), packet.len() as u32);
        call.trace(buffer, NodeTrace { interface, len, worker: 0, fate, account: PacketTrace::default() });
    }
    true
}

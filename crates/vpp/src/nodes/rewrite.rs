//! Rewriting a vector that was decided on: `ip4-mmb-rewrite` and the same for IPv6.

use super::pending::PendingQueue;
use super::thread_state::{ThreadBuffers, ThreadState};
use crate::runtime::Runtime;
use crate::sys::{
    AHEAD, Buffer, BufferIndex, BufferPool, ChainCopies, ChainView, DROP, NextFeature, NodeCall, NodeError,
    NodeTrace, NodeTsc, TracedVerdict, VppThread, put_back,
};
use arrayvec::ArrayVec;
use mmb_engine::{DropReason, PacketTrace, RewriteTicket, VECTOR, Verdict};
use mmb_packet::{Packet, PortId};

/// Rewrites the packets of a frame, in as many vectors as copies of long chains need.
pub(super) fn run(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    state: &mut ThreadState,
    mut frame: &[BufferIndex],
) {
    while !frame.is_empty() {
        let taken = one_vector(call, runtime, state, frame);
        frame = &frame[taken..];
    }
}

/// A vector's packets, and the next nodes of its frame's buffers.
#[derive(Default)]
struct RewriteVector<'p> {
    packets: ArrayVec<Packet<'p>, VECTOR>,
    tickets: ArrayVec<RewriteTicket, VECTOR>,
    places: ArrayVec<RewritePlace, VECTOR>,
    nexts: ArrayVec<u16, VECTOR>,
    feature: NextFeature,
}

/// Rewrites the first packets of a frame: all, unless copies of long chains need more room. Returns the number of buffers.
fn one_vector(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    state: &mut ThreadState,
    frame: &[BufferIndex],
) -> usize {
    let ThreadState { worker, buffers } = state;
    let ThreadBuffers { copies, columns, reorder, pending, .. } = buffers;
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
        let error = match *verdict {
            Verdict::Drop(reason) => NodeError::For(reason),
            _ if finish(call, buffer, packet, len) => {
                nexts[at] = feature.next(buffer, buffer.feature());
                continue;
            }
            _ => NodeError::For(DropReason::NoBuffer),
        };
        call.set_error(buffer, error);
    }
    let taken = nexts.len();
    call.count_sent(taken);
    call.enqueue(&frame[..taken], nexts);
    reorder.arrive(taken);
    taken
}

/// Makes views of the first buffers of a frame, until there is no room for copies of chains. Packets without a ticket only keep the order and
/// go on; buffers without a view are dropped.
#[inline(always)]
fn take<'p>(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    (copies, pending): (&'p mut ChainCopies, &mut PendingQueue),
    frame: &[BufferIndex],
    vector: &mut RewriteVector<'p>,
) {
    let RewriteVector { packets, tickets, places, nexts, feature } = vector;
    let mut free = copies.free();
    let pool = BufferPool::of(call.thread);
    let mut last = (u32::MAX, PortId(u16::MAX));
    for (at, &index) in frame.iter().enumerate() {
        if let Some(&soon) = frame.get(at + AHEAD) {
            pool.prefetch(soon);
        }
        let buffer = pool.buffer(index);
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
            buffer.packet(pool, last.1)
        } else {
            match free.take(call.thread, buffer, pool, last.1) {
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

/// A packet to rewrite.
struct RewritePlace {
    /// Its number in the frame.
    at: usize,
    buffer: Buffer,
    /// Its bytes before.
    len: u32,
}

/// Updates the buffer to a changed packet, which had `before` bytes. False if the packet does not fit.
#[inline(always)]
pub(super) fn write_back(thread: VppThread<'_>, buffer: Buffer, packet: &Packet<'_>, before: u32) -> bool {
    let moved = buffer.headroom() as i32 - packet.headroom() as i32;
    if buffer.is_chained() {
        if !put_back(thread, buffer, packet) {
            return false;
        }
    } else if moved != 0 || packet.len() as u32 != before {
        buffer.place(packet.headroom(), packet.len());
    }
    if moved != 0 && buffer.is_described() {
        buffer.moved(moved, packet.len() as i32 - before as i32);
    }
    true
}

/// Updates the buffer to the rewritten packet. False if the packet does not fit.
#[inline(always)]
fn finish(call: &NodeCall<'_>, buffer: Buffer, packet: &Packet<'_>, before: u32) -> bool {
    if !write_back(call.thread, buffer, packet, before) {
        return false;
    }
    if call.is_traced() && buffer.is_traced() {
        let verdict = TracedVerdict::Rewritten(before);
        let (interface, len) = (buffer.interface(), packet.len() as u32);
        call.add_trace(
            buffer,
            NodeTrace { interface, len, worker: 0, verdict, trace: PacketTrace::default() },
        );
    }
    true
}

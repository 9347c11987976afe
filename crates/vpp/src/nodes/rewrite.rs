//! Rewriting a vector that was decided on: `ip4-mmb-rewrite` and its twin.

use super::Tsc;
use super::buffer::{Buffer, Pool};
use super::chain::{Taken, put_back};
use super::counters::Dropped;
use super::graph::{Call, DROP};
use super::seat::Seat;
use super::trace::{Fate, Trace};
use crate::runtime::Runtime;
use arrayvec::ArrayVec;
use mmb_engine::{Account, DropReason, Job, VECTOR, Verdict};
use mmb_packet::{Packet, PortId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use vpp_plugin::bindings::vlib_buffer_t;

unsafe extern "C" {
    fn mmb_shim_moved(buffer: *mut vlib_buffer_t, moved: i32, grown: i32);
}

/// Rewrites the packets of a frame.
pub(super) fn run(call: &Call<'_>, mut frame: &[u32]) {
    let Some(runtime) = Runtime::running() else { return call.drop_all(frame) };
    let mut seat = runtime.seat(call.vm.thread_index());
    while !frame.is_empty() {
        let taken = one_vector(call, runtime, &mut seat, frame);
        frame = &frame[taken..];
    }
}

/// Rewrites the first packets of a frame: all, unless long chains among them need too much room. Returns how many.
fn one_vector(call: &Call<'_>, runtime: &Runtime, seat: &mut Seat, frame: &[u32]) -> usize {
    let Seat { worker, copies, .. } = seat;
    let mut free = copies.free();
    let mut packets: ArrayVec<Packet<'_>, VECTOR> = ArrayVec::new();
    let mut buffers: ArrayVec<(Buffer, u32), VECTOR> = ArrayVec::new();
    let mut jobs: ArrayVec<Job, VECTOR> = ArrayVec::new();
    let mut onward: ArrayVec<u32, VECTOR> = ArrayVec::new();
    let mut lost: ArrayVec<u32, VECTOR> = ArrayVec::new();
    let pool = Pool::of(call.vm);
    let mut last = (u32::MAX, PortId(u16::MAX));
    let mut taken = 0;
    for &index in frame {
        // SAFETY: VPP gave the node these.
        let buffer = unsafe { pool.buffer(index) };
        let interface = buffer.interface();
        if interface != last.0 {
            last = (interface, runtime.interfaces.ports.port_of(interface));
        }
        let mut packet = None;
        if buffer.is_chained() {
            // SAFETY: the chain is ours.
            match unsafe { free.take(call.vm.as_ptr(), buffer, pool.data_end(), last.1) } {
                Taken::Full => break,
                Taken::Copy(copy) => packet = Some(copy),
                Taken::Alone | Taken::Lost => {}
            }
        } else {
            // SAFETY: nothing else of this node looks into the buffer while the vector is worked on.
            packet = unsafe { buffer.packet(pool, last.1) };
        }
        taken += 1;
        match (packet, Job::of(buffer.number())) {
            (Some(packet), Some(job)) => {
                buffers.push((buffer, packet.len() as u32));
                packets.push(packet);
                jobs.push(job);
                onward.push(index);
            }
            _ => {
                call.set_error(buffer, Dropped::Internal);
                lost.push(index);
            }
        }
    }
    let mut verdicts = [Verdict::Send(PortId(u16::MAX)); VECTOR];
    for (verdict, packet) in verdicts.iter_mut().zip(&packets) {
        *verdict = Verdict::Send(packet.port);
    }
    let rewritten = catch_unwind(AssertUnwindSafe(|| {
        worker.rewrite(&Tsc, &mut packets, &jobs, &mut verdicts[..]);
    }));
    let mut nexts: ArrayVec<u16, VECTOR> = ArrayVec::new();
    for ((packet, &(buffer, before)), verdict) in packets.iter().zip(&buffers).zip(verdicts) {
        let next = match (&rewritten, verdict) {
            (Ok(()), Verdict::Send(_)) if settle(call, buffer, packet, before) => call.next_feature(buffer),
            (Ok(()), Verdict::Drop(reason)) => {
                call.set_error(buffer, Dropped::For(reason));
                DROP
            }
            (Ok(()), Verdict::Send(_)) => {
                call.set_error(buffer, Dropped::For(DropReason::NoBuffer));
                DROP
            }
            _ => {
                call.set_error(buffer, Dropped::Internal);
                DROP
            }
        };
        nexts.push(next);
    }
    call.enqueue(&onward, &nexts);
    call.drop_all(&lost);
    taken
}

/// Has the buffer hold the packet as it is now. False if it cannot.
#[inline(always)]
fn settle(call: &Call<'_>, buffer: Buffer, packet: &Packet<'_>, before: u32) -> bool {
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
        let fate = Fate::Rewritten(before);
        let (interface, len) = (buffer.interface(), packet.len() as u32);
        let worker = call.vm.thread_index();
        call.trace(buffer, Trace { interface, len, worker, fate, account: Account::default() });
    }
    true
}

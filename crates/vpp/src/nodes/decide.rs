//! Deciding about a vector: `ip4-mmb-classify`, `ip4-mmb-handed` and their twins.

use super::Tsc;
use super::buffer::{Buffer, Pool};
use super::chain::Taken;
use super::counters::Dropped;
use super::graph::{Call, DROP, REWRITE};
use super::seat::{Seat, Way};
use super::trace::{Fate, Trace};
use crate::runtime::Runtime;
use arrayvec::ArrayVec;
use mmb_engine::{Account, Count, DropReason, Job, Origin, VECTOR, Verdict, Worker};
use mmb_packet::{Packet, PortId};
use std::os::raw::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vpp_plugin::bindings::{vlib_buffer_t, vlib_main_t, vlib_node_runtime_t};
use vpp_plugin::vlib::MainRef;

unsafe extern "C" {
    fn mmb_shim_runtime(vm: *mut vlib_main_t, family: u32) -> *mut vlib_node_runtime_t;
    fn mmb_shim_hand_over(
        vm: *mut vlib_main_t,
        node: *mut vlib_node_runtime_t,
        family: u32,
        buffers: *mut u32,
        threads: *mut u16,
        count: u32,
    ) -> u32;
    fn mmb_shim_free(vm: *mut vlib_main_t, buffers: *mut u32, count: u32);
    fn mmb_shim_finish_checksums(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t);
    fn mmb_shim_leave(buffer: *mut vlib_buffer_t, way: *mut Way);
    fn mmb_shim_return(
        vm: *mut vlib_main_t,
        way: *const Way,
        bytes: *const u8,
        count: u32,
        index: *mut u32,
    ) -> c_int;
}

/// A vector's packets, and the buffers that they are in.
struct Vector<'p> {
    packets: ArrayVec<Packet<'p>, VECTOR>,
    /// By packet.
    buffers: ArrayVec<(u32, Buffer), VECTOR>,
}

/// Where a vector's buffers go.
#[derive(Default)]
struct Ways {
    onward: ArrayVec<u32, VECTOR>,
    nexts: ArrayVec<u16, VECTOR>,
    handed: ArrayVec<u32, VECTOR>,
    threads: ArrayVec<u16, VECTOR>,
    freed: ArrayVec<u32, VECTOR>,
}

/// Decides about the packets of a frame, and then about those that they let go on.
pub(super) fn run(call: &Call<'_>, origin: Origin, frame: &[u32]) {
    let Some(runtime) = Runtime::running() else { return call.drop_all(frame) };
    let mut seat = runtime.seat(call.vm.thread_index());
    decide(call, runtime, &mut seat, origin, frame);
    give_out(runtime, &mut seat, call.vm);
}

/// Sends on what the worker held and gives out. Returns how many packets.
pub(super) fn give_out(runtime: &Runtime, seat: &mut Seat, vm: &MainRef) -> usize {
    let mut sent = 0;
    loop {
        let mut families = [ArrayVec::<u32, VECTOR>::new(), ArrayVec::new()];
        let Seat { worker, held, .. } = &mut *seat;
        let given = worker.release(|released| {
            let Some(way) = held.way(released.place) else { return false };
            let mut index = 0;
            let (bytes, count) = (released.bytes.as_ptr(), released.bytes.len() as u32);
            // SAFETY: VPP copies the bytes to buffers that it gives us.
            if unsafe { mmb_shim_return(vm.as_ptr(), way, bytes, count, &mut index) } == 0 {
                return false;
            }
            families[usize::from(released.bytes.first().is_some_and(|first| first >> 4 == 6))].push(index);
            true
        });
        if given == 0 {
            return sent;
        }
        sent += given;
        for (family, frame) in (0..).zip(&families) {
            // SAFETY: this thread's own state of a node of ours.
            let node = unsafe { mmb_shim_runtime(vm.as_ptr(), family) };
            decide(&Call { vm, node, family }, runtime, seat, Origin::Held, frame);
        }
    }
}

fn decide(call: &Call<'_>, runtime: &Runtime, seat: &mut Seat, origin: Origin, mut frame: &[u32]) {
    while !frame.is_empty() {
        let taken = one_vector(call, runtime, seat, origin, frame);
        frame = &frame[taken..];
    }
}

/// Decides about the first packets of a frame: all, unless long chains among them need too much room. Returns how many.
fn one_vector(call: &Call<'_>, runtime: &Runtime, seat: &mut Seat, origin: Origin, frame: &[u32]) -> usize {
    let mut ways = Ways::default();
    let Seat { worker, copies, accounts, held, detours } = seat;
    let mut free = copies.free();
    let mut vector = Vector { packets: ArrayVec::new(), buffers: ArrayVec::new() };
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
        if buffer.is_unfinished() {
            // SAFETY: VPP's own function, on a buffer that is ours.
            unsafe { mmb_shim_finish_checksums(call.vm.as_ptr(), buffer.as_ptr()) };
        }
        let mut packet = None;
        if buffer.is_chained() {
            // SAFETY: the chain is ours.
            match unsafe { free.take(call.vm.as_ptr(), buffer, pool.data_end(), last.1) } {
                Taken::Full => break,
                Taken::Copy(copy) => packet = Some(copy),
                // SAFETY: nothing else of this node looks into the buffer while the vector is worked on.
                Taken::Alone => packet = unsafe { buffer.packet(pool, last.1) },
                Taken::Lost => {}
            }
        } else {
            // SAFETY: as above.
            packet = unsafe { buffer.packet(pool, last.1) };
        }
        taken += 1;
        match packet {
            Some(packet) => {
                vector.packets.push(packet);
                vector.buffers.push((index, buffer));
            }
            None => {
                let lost = Count { packets: 1, bytes: buffer.len() as u64 };
                worker.count_unprocessed(last.1, DropReason::NoBuffer, lost);
                call.set_error(buffer, Dropped::For(DropReason::NoBuffer));
                ways.send(index, DROP);
            }
        }
    }
    let mut verdicts = [Verdict::Drop(DropReason::NoWire); VECTOR];
    let mut jobs = [None; VECTOR];
    let traces = call.is_traced();
    accounts.clear();
    let mut tell = |account| accounts.push(account);
    let tell: Option<&mut dyn FnMut(Account)> = if traces { Some(&mut tell) } else { None };
    let now_ns = runtime.now_ns();
    let decided = catch_unwind(AssertUnwindSafe(|| {
        worker.decide(origin, now_ns, &Tsc, &vector.packets, &mut verdicts, &mut jobs, tell);
    }));
    if decided.is_err() {
        vector.buffers.iter().for_each(|(index, buffer)| {
            call.set_error(*buffer, Dropped::Internal);
            ways.send(*index, DROP);
        });
        ways.carry_out(call, worker);
        return taken;
    }
    if traces {
        add_traces(call, &vector, &verdicts, &jobs, accounts);
    }
    let packets = vector.buffers.iter().zip(&vector.packets);
    for ((&(index, buffer), packet), (verdict, job)) in packets.zip(verdicts.into_iter().zip(jobs)) {
        match verdict {
            Verdict::Send(_) => match job {
                Some(job) => {
                    detours.begin(packet);
                    buffer.set_number(job.number());
                    ways.send(index, REWRITE);
                }
                None if detours.follows(packet) => {
                    buffer.set_number(0);
                    ways.send(index, REWRITE);
                }
                None => ways.send(index, call.next_feature(buffer)),
            },
            Verdict::Drop(reason) => {
                call.set_error(buffer, Dropped::For(reason));
                ways.send(index, DROP);
            }
            Verdict::Hand(thread) => {
                ways.handed.push(index);
                ways.threads.push(thread);
            }
            Verdict::Held(number) => {
                // SAFETY: the buffer is ours.
                unsafe { mmb_shim_leave(buffer.as_ptr(), held.place(number)) };
                ways.freed.push(index);
            }
        }
    }
    ways.carry_out(call, worker);
    taken
}

impl Ways {
    #[inline(always)]
    fn send(&mut self, index: u32, next: u16) {
        self.onward.push(index);
        self.nexts.push(next);
    }

    fn carry_out(mut self, call: &Call<'_>, worker: &mut Worker) {
        call.enqueue(&self.onward, &self.nexts);
        let handed = self.handed.len() as u32;
        if handed > 0 {
            let (buffers, threads) = (self.handed.as_mut_ptr(), self.threads.as_mut_ptr());
            // SAFETY: as many buffers, which are ours, as threads, which run.
            let given = unsafe {
                mmb_shim_hand_over(call.vm.as_ptr(), call.node, call.family, buffers, threads, handed)
            };
            if given < handed {
                let lost = u64::from(handed - given);
                worker.count_dropped(DropReason::HandoverFull, lost);
                call.count(Dropped::For(DropReason::HandoverFull), lost);
            }
        }
        if !self.freed.is_empty() {
            let (buffers, count) = (self.freed.as_mut_ptr(), self.freed.len() as u32);
            // SAFETY: the buffers are ours; the worker has copies of them.
            unsafe { mmb_shim_free(call.vm.as_ptr(), buffers, count) };
        }
    }
}

fn add_traces(
    call: &Call<'_>,
    vector: &Vector<'_>,
    verdicts: &[Verdict],
    jobs: &[Option<Job>],
    accounts: &[Account],
) {
    let packets = vector.packets.iter().zip(&vector.buffers);
    for (((packet, (_, buffer)), account), (verdict, job)) in
        packets.zip(accounts).zip(verdicts.iter().zip(jobs))
    {
        if !buffer.is_traced() {
            continue;
        }
        let fate = match *verdict {
            Verdict::Send(_) if job.is_some() => Fate::Rewrite,
            Verdict::Send(_) => Fate::Next,
            Verdict::Drop(reason) => Fate::Drop(reason),
            Verdict::Hand(worker) => Fate::Hand(worker),
            Verdict::Held(_) => Fate::Held,
        };
        call.trace(
            *buffer,
            Trace {
                interface: buffer.interface(),
                len: packet.len() as u32,
                worker: call.vm.thread_index(),
                fate,
                account: *account,
            },
        );
    }
}

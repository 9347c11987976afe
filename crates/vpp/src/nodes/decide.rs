//! Deciding about a vector: `ip4-mmb-classify`, `ip4-mmb-handed` and their twins.

use super::Tsc;
use super::buffer::{AHEAD, Buffer, Pool};
use super::chain::{Copies, Taken};
use super::contain::Sent;
use super::counters::Dropped;
use super::graph::{Call, DROP, Feature, REWRITE};
use super::seat::{Columns, Seat, Way};
use super::trace::{Fate, Trace};
use crate::runtime::Runtime;
use arrayvec::ArrayVec;
use mmb_engine::{Count, DropReason, Origin, PacketTrace, RewriteTicket, VECTOR, Verdict, Worker};
use mmb_packet::{Packet, PortId};
use std::os::raw::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;
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
    fn mmb_shim_count_lost(vm: *mut vlib_main_t, error: u32, packets: u64);
    fn mmb_shim_finish_checksums(vm: *mut vlib_main_t, buffer: *mut vlib_buffer_t);
    fn mmb_shim_place(family: u32, multicast: u32, interface: u32) -> u32;
    fn mmb_shim_leave(buffer: *mut vlib_buffer_t, way: *mut Way);
    fn mmb_shim_return(
        vm: *mut vlib_main_t,
        way: *const Way,
        bytes: *const u8,
        count: u32,
        index: *mut u32,
    ) -> c_int;
}

/// A packet that does not go on to another node.
const AWAY: u16 = u16::MAX;

/// A vector's packets, and the buffers that they are in.
struct Vector<'p> {
    packets: ArrayVec<Packet<'p>, VECTOR>,
    /// By packet: its number in the frame, its buffer, and where that stands on its way through features.
    buffers: ArrayVec<(u8, Buffer, u32), VECTOR>,
}

/// Where the buffers of a frame go.
struct Ways {
    /// By number in the frame: the next node, or [`AWAY`].
    nexts: [u16; VECTOR],
    /// What goes to other threads, and which.
    handed: ArrayVec<(u32, u16), VECTOR>,
    freed: ArrayVec<u32, VECTOR>,
}

/// Decides about the packets of a frame, and then about those that they let go on.
pub(super) fn run(call: &Call<'_>, origin: Origin, frame: &[u32]) {
    let Some(runtime) = Runtime::running() else { return call.drop_all(frame) };
    let mut seat = runtime.seat(call.vm.thread_index());
    decide(call, runtime, &mut seat, origin, frame);
    give_out(runtime, seat, call.vm);
}

/// Counts what the worker held and lost, whose buffers were freed when it took them.
pub(super) fn count_lost(worker: &mut Worker, vm: &MainRef) {
    for (reason, packets) in worker.take_lost() {
        if packets > 0 {
            // SAFETY: mmb-tick has the errors of all our nodes.
            unsafe { mmb_shim_count_lost(vm.as_ptr(), Dropped::For(reason).index() as u32, packets) };
        }
    }
}

/// Sends on what the worker held and gives out. Returns how many packets.
pub(super) fn give_out<'a>(runtime: &'a Runtime, mut seat: MutexGuard<'a, Seat>, vm: &MainRef) -> usize {
    let mut sent = 0;
    loop {
        let families = release(&mut seat, vm);
        let given = families.iter().map(|frame| frame.len()).sum::<usize>();
        if given == 0 {
            return sent;
        }
        sent += given;
        // A panic has to find the seat free.
        drop(seat);
        for (family, frame) in (0..).zip(&families) {
            // SAFETY: this thread's own state of a node of ours.
            let node = unsafe { mmb_shim_runtime(vm.as_ptr(), family) };
            let call = Call { vm, node, family, sent: Sent::default() };
            call.contain(frame, || {
                decide(&call, runtime, &mut runtime.seat(vm.thread_index()), Origin::Held, frame);
            });
        }
        seat = runtime.seat(vm.thread_index());
    }
}

/// Takes some of what the worker gives out, as buffers, by family.
fn release(seat: &mut Seat, vm: &MainRef) -> [ArrayVec<u32, VECTOR>; 2] {
    let mut families = [ArrayVec::new(), ArrayVec::new()];
    let Seat { worker, held, .. } = seat;
    // What was given out before a panic goes on.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        worker.release(|released| {
            let Some(way) = held.way(released.place) else { return false };
            let mut index = 0;
            let (bytes, count) = (released.bytes.as_ptr(), released.bytes.len() as u32);
            // SAFETY: VPP copies the bytes to buffers that it gives us.
            if unsafe { mmb_shim_return(vm.as_ptr(), way, bytes, count, &mut index) } == 0 {
                return false;
            }
            families[usize::from(released.bytes.first().is_some_and(|first| first >> 4 == 6))].push(index);
            true
        })
    }));
    families
}

fn decide(call: &Call<'_>, runtime: &Runtime, seat: &mut Seat, origin: Origin, mut frame: &[u32]) {
    while !frame.is_empty() {
        let taken = one_vector(call, runtime, seat, origin, frame);
        frame = &frame[taken..];
    }
}

/// Decides about the first packets of a frame: all, unless long chains among them need too much room. Returns how many.
fn one_vector(call: &Call<'_>, runtime: &Runtime, seat: &mut Seat, origin: Origin, frame: &[u32]) -> usize {
    let mut ways = Ways { nexts: [DROP; VECTOR], handed: ArrayVec::new(), freed: ArrayVec::new() };
    let Seat { worker, copies, columns, held, detours, notes } = seat;
    let notes = notes[call.family as usize].of(origin == Origin::Worker);
    let Columns { verdicts, jobs, accounts } = columns;
    let mut vector = Vector { packets: ArrayVec::new(), buffers: ArrayVec::new() };
    let taken = take(call, runtime, origin, (worker, copies), frame, &mut vector);
    let traces = call.is_traced();
    accounts.clear();
    let mut tell = |account| accounts.push(account);
    let tell: Option<&mut dyn FnMut(PacketTrace)> = if traces { Some(&mut tell) } else { None };
    let now_ns = runtime.now_ns();
    worker.decide(origin, now_ns, &Tsc, &vector.packets, &mut verdicts[..], &mut jobs[..], tell);
    if traces {
        add_traces(call, runtime, &vector, &verdicts[..], &jobs[..], accounts);
    }
    let mut feature = Feature::default();
    for (number, &(at, buffer, before)) in vector.buffers.iter().enumerate() {
        let at = usize::from(at);
        ways.nexts[at] = match verdicts[number] {
            Verdict::Send(_) => {
                let job = jobs[number];
                if job.is_some() {
                    detours.begin();
                }
                if job.is_some()
                    || detours.follows(number, &vector.packets, |earlier| jobs[earlier].is_some())
                {
                    notes.push_back((frame[at], job));
                    REWRITE
                } else {
                    feature.next(buffer, before)
                }
            }
            Verdict::Drop(reason) => {
                call.set_error(buffer, Dropped::For(reason));
                DROP
            }
            Verdict::Hand(owner) => {
                ways.handed.push((frame[at], runtime.threads.thread(owner)));
                AWAY
            }
            Verdict::Held(number) => {
                // SAFETY: the buffer is ours.
                unsafe { mmb_shim_leave(buffer.as_ptr(), held.place(number)) };
                ways.freed.push(frame[at]);
                AWAY
            }
        };
    }
    detours.end_vector();
    ways.carry_out(call, worker, &frame[..taken]);
    taken
}

/// Takes the packets out of the first buffers of a frame, until there is no room for copies of chains. Returns how many buffers that
/// were; those that no packet can be made of have an error.
#[inline(always)]
fn take<'p>(
    call: &Call<'_>,
    runtime: &Runtime,
    origin: Origin,
    (worker, copies): (&mut Worker, &'p mut Copies),
    frame: &[u32],
    vector: &mut Vector<'p>,
) -> usize {
    let mut free = copies.free();
    let pool = Pool::of(call.vm);
    let mut last = (u32::MAX, PortId(u16::MAX));
    let mut place = Place::default();
    for (at, &index) in frame.iter().enumerate() {
        if let Some(&soon) = frame.get(at + AHEAD) {
            pool.fetch(soon);
        }
        // SAFETY: VPP gave the node these.
        let buffer = unsafe { pool.buffer(index) };
        let interface = buffer.interface();
        if interface != last.0 {
            last = (interface, runtime.interfaces.ports.port_of(interface));
        }
        if origin != Origin::Wire && !place.find_again(call, buffer) {
            worker.count_dropped(DropReason::PortDown, 1);
            call.set_error(buffer, Dropped::For(DropReason::PortDown));
            continue;
        }
        let packet = if !buffer.is_special() {
            // SAFETY: nothing else of this node looks into the buffer while the vector is worked on.
            unsafe { buffer.packet(pool, last.1) }
        } else {
            if buffer.is_unfinished() {
                // SAFETY: VPP's own function, on a buffer that is ours.
                unsafe { mmb_shim_finish_checksums(call.vm.as_ptr(), buffer.as_ptr()) };
            }
            // SAFETY: the chain is ours.
            match unsafe { free.take(call.vm.as_ptr(), buffer, pool, last.1) } {
                Taken::Full => return at,
                Taken::Whole(packet) => Some(packet),
                Taken::Lost => None,
            }
        };
        if let Some(packet) = packet {
            vector.packets.push(packet);
            // A frame's packets are numbered in a byte.
            vector.buffers.push((at as u8, buffer, buffer.feature()));
        } else {
            let lost = Count { packets: 1, bytes: buffer.len() as u64 };
            worker.count_unprocessed(last.1, DropReason::NoBuffer, lost);
            call.set_error(buffer, Dropped::For(DropReason::NoBuffer));
        }
    }
    frame.len()
}

/// The place of buffers that have waited among their interface's features, which may have changed meanwhile.
#[derive(Default)]
struct Place {
    /// Interface, whether to many, and the place.
    last: Option<(u32, bool, u32)>,
}

impl Place {
    /// Puts a buffer in its place. False if mmb is none of the features any more.
    fn find_again(&mut self, call: &Call<'_>, buffer: Buffer) -> bool {
        let (interface, multicast) = (buffer.interface(), buffer.is_multicast(call.family));
        let place = match self.last {
            Some((known, to_many, place)) if (known, to_many) == (interface, multicast) => place,
            // SAFETY: the shim checks the interface's number; features change only while no thread runs nodes.
            _ => unsafe { mmb_shim_place(call.family, u32::from(multicast), interface) },
        };
        self.last = Some((interface, multicast, place));
        buffer.set_feature(place);
        place != u32::MAX
    }
}

impl Ways {
    fn carry_out(&mut self, call: &Call<'_>, worker: &mut Worker, frame: &[u32]) {
        call.sent.add(frame.len());
        if self.handed.is_empty() && self.freed.is_empty() {
            return call.enqueue(frame, &self.nexts[..frame.len()]);
        }
        let onward = frame.iter().copied().zip(self.nexts).filter(|(_, next)| *next != AWAY);
        let (buffers, nexts): (ArrayVec<u32, VECTOR>, ArrayVec<u16, VECTOR>) = onward.unzip();
        call.enqueue(&buffers, &nexts);
        let (mut buffers, mut threads): (ArrayVec<u32, VECTOR>, ArrayVec<u16, VECTOR>) =
            self.handed.iter().copied().unzip();
        let handed = buffers.len() as u32;
        if handed > 0 {
            let (vm, buffers, threads) = (call.vm.as_ptr(), buffers.as_mut_ptr(), threads.as_mut_ptr());
            // SAFETY: as many buffers, which are ours, as threads, which run.
            let given = unsafe { mmb_shim_hand_over(vm, call.node, call.family, buffers, threads, handed) };
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
    runtime: &Runtime,
    vector: &Vector<'_>,
    verdicts: &[Verdict],
    jobs: &[Option<RewriteTicket>],
    accounts: &[PacketTrace],
) {
    let packets = vector.packets.iter().zip(&vector.buffers);
    for (((packet, (_, buffer, _)), account), (verdict, job)) in
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
                worker: runtime.threads.worker(call.vm.thread_index()) as u16,
                fate,
                account: *account,
            },
        );
    }
}

//! Deciding about a vector: `ip4-mmb-classify`, `ip4-mmb-handed` and their twins.

use super::NodeTsc;
use super::buffer::{AHEAD, Buffer, BufferPool};
use super::chain::{ChainCopies, ChainView};
use super::contain::SentCount;
use super::counters::NodeError;
use super::graph::{DROP, NextFeature, NodeCall, REWRITE};
use super::thread_state::{BufferMetadata, ThreadState, VectorColumns};
use super::trace::{NodeTrace, TracedVerdict};
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
    fn mmb_shim_leave(buffer: *mut vlib_buffer_t, metadata: *mut BufferMetadata);
    fn mmb_shim_return(
        vm: *mut vlib_main_t,
        metadata: *const BufferMetadata,
        bytes: *const u8,
        count: u32,
        index: *mut u32,
    ) -> c_int;
}

/// A packet that does not go on to another node.
const AWAY: u16 = u16::MAX;

/// A vector's packets, and the buffers that they are in.
struct DecideVector<'p> {
    packets: ArrayVec<Packet<'p>, VECTOR>,
    /// By packet: its number in the frame, its buffer, and where that stands on its way through features.
    buffers: ArrayVec<(u8, Buffer, u32), VECTOR>,
}

/// Where the buffers of a frame go.
struct NextNodes {
    /// By number in the frame: the next node, or [`AWAY`].
    nexts: [u16; VECTOR],
    /// What goes to other threads, and which.
    handed: ArrayVec<(u32, u16), VECTOR>,
    freed: ArrayVec<u32, VECTOR>,
}

/// Decides about the packets of a frame, and then about those that they let go on.
pub(super) fn run(call: &NodeCall<'_>, origin: Origin, frame: &[u32]) {
    let Some(runtime) = Runtime::running() else { return call.drop_all(frame) };
    let mut state = runtime.thread_state(call.vm.thread_index());
    decide(call, runtime, &mut state, origin, frame);
    give_out(runtime, state, call.vm);
}

/// Counts what the worker held and lost, whose buffers were freed when it took them.
pub(super) fn count_lost(worker: &mut Worker, vm: &MainRef) {
    for (reason, packets) in worker.take_lost() {
        if packets > 0 {
            // SAFETY: mmb-tick has the errors of all our nodes.
            unsafe { mmb_shim_count_lost(vm.as_ptr(), NodeError::For(reason).index() as u32, packets) };
        }
    }
}

/// Sends on what the worker held and gives out. Returns how many packets.
pub(super) fn give_out<'a>(
    runtime: &'a Runtime,
    mut state: MutexGuard<'a, ThreadState>,
    vm: &MainRef,
) -> usize {
    let mut sent = 0;
    loop {
        let families = release(&mut state, vm);
        let given = families.iter().map(|frame| frame.len()).sum::<usize>();
        if given == 0 {
            return sent;
        }
        sent += given;
        // A panic has to find the seat free.
        drop(state);
        for (family, frame) in (0..).zip(&families) {
            // SAFETY: this thread's own state of a node of ours.
            let node = unsafe { mmb_shim_runtime(vm.as_ptr(), family) };
            let call = NodeCall { vm, node, family, sent: SentCount::default() };
            call.contain(frame, || {
                decide(&call, runtime, &mut runtime.thread_state(vm.thread_index()), Origin::Held, frame);
            });
        }
        state = runtime.thread_state(vm.thread_index());
    }
}

/// Takes some of what the worker gives out, as buffers, by family.
fn release(state: &mut ThreadState, vm: &MainRef) -> [ArrayVec<u32, VECTOR>; 2] {
    let mut families = [ArrayVec::new(), ArrayVec::new()];
    let ThreadState { worker, held, .. } = state;
    // What was given out before a panic goes on.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        worker.release(|released| {
            let Some(metadata) = held.metadata(released.place) else { return false };
            let mut index = 0;
            let (bytes, count) = (released.bytes.as_ptr(), released.bytes.len() as u32);
            // SAFETY: VPP copies the bytes to buffers that it gives us.
            if unsafe { mmb_shim_return(vm.as_ptr(), metadata, bytes, count, &mut index) } == 0 {
                return false;
            }
            families[usize::from(released.bytes.first().is_some_and(|first| first >> 4 == 6))].push(index);
            true
        })
    }));
    families
}

fn decide(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    state: &mut ThreadState,
    origin: Origin,
    mut frame: &[u32],
) {
    while !frame.is_empty() {
        let taken = one_vector(call, runtime, state, origin, frame);
        frame = &frame[taken..];
    }
}

/// Decides about the first packets of a frame: all, unless long chains among them need too much room. Returns how many.
fn one_vector(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    state: &mut ThreadState,
    origin: Origin,
    frame: &[u32],
) -> usize {
    let mut nexts = NextNodes { nexts: [DROP; VECTOR], handed: ArrayVec::new(), freed: ArrayVec::new() };
    let ThreadState { worker, copies, columns, held, reorder, pending } = state;
    let pending = pending[call.family as usize].of(origin == Origin::Worker);
    let VectorColumns { verdicts, tickets, accounts } = columns;
    let mut vector = DecideVector { packets: ArrayVec::new(), buffers: ArrayVec::new() };
    let taken = take(call, runtime, origin, (worker, copies), frame, &mut vector);
    let traces = call.is_traced();
    accounts.clear();
    let mut tell = |account| accounts.push(account);
    let tell: Option<&mut dyn FnMut(PacketTrace)> = if traces { Some(&mut tell) } else { None };
    let now_ns = runtime.now_ns();
    worker.decide(origin, now_ns, &NodeTsc, &vector.packets, &mut verdicts[..], &mut tickets[..], tell);
    if traces {
        add_traces(call, runtime, &vector, &verdicts[..], &tickets[..], accounts);
    }
    let mut feature = NextFeature::default();
    for (number, &(at, buffer, before)) in vector.buffers.iter().enumerate() {
        let at = usize::from(at);
        nexts.nexts[at] = match verdicts[number] {
            Verdict::Send(_) => {
                let ticket = tickets[number];
                if ticket.is_some() {
                    reorder.begin();
                }
                if ticket.is_some()
                    || reorder.follows(number, &vector.packets, |earlier| tickets[earlier].is_some())
                {
                    pending.push_back((frame[at], ticket));
                    REWRITE
                } else {
                    feature.next(buffer, before)
                }
            }
            Verdict::Drop(reason) => {
                call.set_error(buffer, NodeError::For(reason));
                DROP
            }
            Verdict::Hand(owner) => {
                nexts.handed.push((frame[at], runtime.threads.thread(owner)));
                AWAY
            }
            Verdict::Held(number) => {
                // SAFETY: the buffer is ours.
                unsafe { mmb_shim_leave(buffer.as_ptr(), held.place(number)) };
                nexts.freed.push(frame[at]);
                AWAY
            }
        };
    }
    reorder.end_vector();
    nexts.carry_out(call, worker, &frame[..taken]);
    taken
}

/// Takes the packets out of the first buffers of a frame, until there is no room for copies of chains. Returns how many buffers that
/// were; those that no packet can be made of have an error.
#[inline(always)]
fn take<'p>(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    origin: Origin,
    (worker, copies): (&mut Worker, &'p mut ChainCopies),
    frame: &[u32],
    vector: &mut DecideVector<'p>,
) -> usize {
    let mut free = copies.free();
    let pool = BufferPool::of(call.vm);
    let mut last = (u32::MAX, PortId(u16::MAX));
    let mut place = ArcPosition::default();
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
            call.set_error(buffer, NodeError::For(DropReason::PortDown));
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
                ChainView::Full => return at,
                ChainView::Whole(packet) => Some(packet),
                ChainView::Lost => None,
            }
        };
        if let Some(packet) = packet {
            vector.packets.push(packet);
            // A frame's packets are numbered in a byte.
            vector.buffers.push((at as u8, buffer, buffer.feature()));
        } else {
            let lost = Count { packets: 1, bytes: buffer.len() as u64 };
            worker.count_unprocessed(last.1, DropReason::NoBuffer, lost);
            call.set_error(buffer, NodeError::For(DropReason::NoBuffer));
        }
    }
    frame.len()
}

/// The place of buffers that have waited among their interface's features, which may have changed meanwhile.
#[derive(Default)]
struct ArcPosition {
    /// Interface, whether to many, and the place.
    last: Option<(u32, bool, u32)>,
}

impl ArcPosition {
    /// Puts a buffer in its place. False if mmb is none of the features any more.
    fn find_again(&mut self, call: &NodeCall<'_>, buffer: Buffer) -> bool {
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

impl NextNodes {
    fn carry_out(&mut self, call: &NodeCall<'_>, worker: &mut Worker, frame: &[u32]) {
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
                call.count(NodeError::For(DropReason::HandoverFull), lost);
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
    call: &NodeCall<'_>,
    runtime: &Runtime,
    vector: &DecideVector<'_>,
    verdicts: &[Verdict],
    tickets: &[Option<RewriteTicket>],
    accounts: &[PacketTrace],
) {
    let packets = vector.packets.iter().zip(&vector.buffers);
    for (((packet, (_, buffer, _)), account), (verdict, ticket)) in
        packets.zip(accounts).zip(verdicts.iter().zip(tickets))
    {
        if !buffer.is_traced() {
            continue;
        }
        let fate = match *verdict {
            Verdict::Send(_) if ticket.is_some() => TracedVerdict::Rewrite,
            Verdict::Send(_) => TracedVerdict::Next,
            Verdict::Drop(reason) => TracedVerdict::Drop(reason),
            Verdict::Hand(worker) => TracedVerdict::Hand(worker),
            Verdict::Held(_) => TracedVerdict::Held,
        };
        call.trace(
            *buffer,
            NodeTrace {
                interface: buffer.interface(),
                len: packet.len() as u32,
                worker: runtime.threads.worker(call.vm.thread_index()) as u16,
                fate,
                account: *account,
            },
        );
    }
}

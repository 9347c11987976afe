//! Deciding on a vector: `ip4-mmb-classify`, `ip4-mmb-handed` and the same for IPv6.

use super::rewrite::write_back;
use super::thread_state::{ThreadBuffers, VectorColumns};
use crate::runtime::Runtime;
use crate::sys::{
    AHEAD, Buffer, BufferIndex, BufferPool, ChainCopies, ChainView, DROP, NextFeature, NodeCall, NodeError,
    NodeTrace, NodeTsc, REWRITE, TracedVerdict, VppThread,
};
use arrayvec::ArrayVec;
use mmb_engine::{
    Count, DropReason, Origin, PacketHost, PacketTrace, ReturnedPacket, RewriteTicket, VECTOR, Verdict,
    Worker,
};
use mmb_packet::{Packet, PortId};
use std::convert::Infallible;

/// The next node of a packet that goes to no node of this thread.
const NONE: u16 = u16::MAX;

/// A node's thread as a host of the engine: its vectors are a frame of VPP's, and then buffers with packets that the worker gave back.
pub(super) struct GraphHost<'h> {
    runtime: &'h Runtime,
    thread: VppThread<'h>,
    buffers: &'h mut ThreadBuffers,
    /// The frame, until it is processed.
    frame: Option<(&'h NodeCall<'h>, &'h [BufferIndex])>,
    /// Packets that the worker gave back, by family, until they are processed.
    returned: [ArrayVec<BufferIndex, VECTOR>; 2],
    /// The number of such packets so far.
    taken_back: usize,
}

/// A vector's packets and their buffers.
struct DecideVector<'p> {
    packets: ArrayVec<Packet<'p>, VECTOR>,
    /// By packet: its number in the frame, its buffer, and the buffer's position among VPP's features.
    buffers: ArrayVec<(u8, Buffer, u32), VECTOR>,
}

/// The destinations of a frame's buffers.
struct NextNodes {
    /// By number in the frame: the next node, or [`NONE`].
    nexts: [u16; VECTOR],
    /// Buffers for other threads, with the threads.
    handed: ArrayVec<(BufferIndex, u16), VECTOR>,
    freed: ArrayVec<BufferIndex, VECTOR>,
}

impl<'h> GraphHost<'h> {
    pub(super) fn new(
        runtime: &'h Runtime,
        thread: VppThread<'h>,
        buffers: &'h mut ThreadBuffers,
        frame: Option<(&'h NodeCall<'h>, &'h [BufferIndex])>,
    ) -> GraphHost<'h> {
        let returned = [ArrayVec::new(), ArrayVec::new()];
        GraphHost { runtime, thread, buffers, frame, returned, taken_back: 0 }
    }

    /// The number of packets that the worker gave back.
    pub(super) fn taken_back(&self) -> usize {
        self.taken_back
    }

    /// Decides on the packets that the worker gave back.
    fn process_returned(&mut self, worker: &mut Worker, origin: Origin) {
        let GraphHost { runtime, thread, buffers, returned, .. } = self;
        for (family, returned) in (0..).zip(returned) {
            if returned.is_empty() {
                continue;
            }
            let call = NodeCall::deciding(*thread, family);
            let frame = std::mem::take(returned);
            call.contain(
                &mut (&mut *worker, &mut **buffers),
                &frame,
                |(worker, buffers)| decide(&call, runtime, (worker, buffers), origin, &frame),
                |(_, buffers), left| buffers.abandon(family, left),
            );
        }
    }
}

impl PacketHost for GraphHost<'_> {
    type Error = Infallible;

    fn process(&mut self, worker: &mut Worker, origin: Origin) -> Result<(), Infallible> {
        if let Some((call, frame)) = self.frame.take() {
            decide(call, self.runtime, (worker, self.buffers), origin, frame);
        }
        self.process_returned(worker, origin);
        Ok(())
    }

    fn accept_returned(&mut self, ReturnedPacket { held, port, bytes, .. }: ReturnedPacket<'_>) -> bool {
        let family = u32::from(bytes.first().is_some_and(|first| first >> 4 == 6));
        let index = match held {
            Some(number) => {
                let metadata = self.buffers.held.metadata(number);
                metadata.and_then(|metadata| metadata.alloc_copy(self.thread, bytes))
            }
            None => {
                let interface = self.runtime.interfaces.ports.interface_of(port);
                interface.and_then(|interface| BufferIndex::alloc_made(self.thread, family, interface, bytes))
            }
        };
        let Some(index) = index else { return false };
        self.returned[family as usize].push(index);
        self.taken_back += 1;
        true
    }
}

impl Drop for GraphHost<'_> {
    /// After a panic, drops the packets that the worker gave back and that were not processed.
    fn drop(&mut self) {
        for (family, returned) in (0..).zip(&self.returned) {
            if !returned.is_empty() {
                NodeCall::deciding(self.thread, family).drop_all(returned);
            }
        }
    }
}

/// Decides on a frame, in as many vectors as copies of long chains need.
fn decide(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    (worker, buffers): (&mut Worker, &mut ThreadBuffers),
    origin: Origin,
    mut frame: &[BufferIndex],
) {
    while !frame.is_empty() {
        let taken = one_vector(call, runtime, (worker, buffers), origin, frame);
        frame = &frame[taken..];
    }
}

/// Decides on the first packets of a frame: all, unless copies of long chains need more room. Returns the number of buffers.
fn one_vector(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    (worker, buffers): (&mut Worker, &mut ThreadBuffers),
    origin: Origin,
    frame: &[BufferIndex],
) -> usize {
    let mut nexts = NextNodes { nexts: [DROP; VECTOR], handed: ArrayVec::new(), freed: ArrayVec::new() };
    let ThreadBuffers { copies, columns, held, reorder, pending } = buffers;
    let pending = pending[call.family as usize].of(origin == Origin::Worker);
    let VectorColumns { verdicts, tickets, traces } = columns;
    let mut vector = DecideVector { packets: ArrayVec::new(), buffers: ArrayVec::new() };
    let taken = take(call, runtime, origin, (worker, copies), frame, &mut vector);
    let is_traced = call.is_traced();
    traces.clear();
    let mut hook = |trace| traces.push(trace);
    let hook: Option<&mut dyn FnMut(PacketTrace)> = if is_traced { Some(&mut hook) } else { None };
    let now_ns = runtime.now_ns();
    let packets = &mut vector.packets[..];
    let translated =
        worker.decide(origin, now_ns, &NodeTsc, packets, &mut verdicts[..], &mut tickets[..], hook);
    if is_traced {
        add_traces(call, runtime, &vector, &verdicts[..], &tickets[..], traces);
    }
    let mut feature = NextFeature::default();
    for (number, &(at, buffer, before)) in vector.buffers.iter().enumerate() {
        let at = usize::from(at);
        nexts.nexts[at] = match verdicts[number] {
            Verdict::Send(_) => {
                let ticket = tickets[number];
                if translated.has(number)
                    && !write_back(call.thread, buffer, &vector.packets[number], buffer.len() as u32)
                {
                    call.set_error(buffer, NodeError::For(DropReason::NoBuffer));
                    continue;
                }
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
                NONE
            }
            Verdict::Absorbed => {
                nexts.freed.push(frame[at]);
                NONE
            }
            Verdict::Held(number) => {
                buffer.save_metadata(held.place(number));
                nexts.freed.push(frame[at]);
                NONE
            }
        };
    }
    reorder.end_vector();
    nexts.send(call, worker, &frame[..taken]);
    taken
}

/// Makes views of the first buffers of a frame, until there is no room for copies of chains. Returns the number of buffers; those without a
/// view have an error.
#[inline(always)]
fn take<'p>(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    origin: Origin,
    (worker, copies): (&mut Worker, &'p mut ChainCopies),
    frame: &[BufferIndex],
    vector: &mut DecideVector<'p>,
) -> usize {
    let mut free = copies.free();
    let pool = BufferPool::of(call.thread);
    let mut last = (u32::MAX, PortId(u16::MAX));
    let mut position = ArcPosition::default();
    for (at, &index) in frame.iter().enumerate() {
        if let Some(&soon) = frame.get(at + AHEAD) {
            pool.prefetch(soon);
        }
        let buffer = pool.buffer(index);
        let interface = buffer.interface();
        if interface != last.0 {
            last = (interface, runtime.interfaces.ports.port_of(interface));
        }
        if origin != Origin::Wire && !position.restore(call, buffer) {
            worker.count_dropped(DropReason::PortDown, 1);
            call.set_error(buffer, NodeError::For(DropReason::PortDown));
            continue;
        }
        let packet = if !buffer.is_special() {
            buffer.packet(pool, last.1)
        } else {
            if buffer.is_unfinished() {
                buffer.finish_checksums(call.thread);
            }
            match free.take(call.thread, buffer, pool, last.1) {
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

/// The position among their interface's features of buffers that have waited, since the features may have changed.
#[derive(Default)]
struct ArcPosition {
    /// The last interface, whether the packet was multicast, and the position.
    last: Option<(u32, bool, u32)>,
}

impl ArcPosition {
    /// Sets a buffer's position. False if mmb is no feature of the interface any more.
    fn restore(&mut self, call: &NodeCall<'_>, buffer: Buffer) -> bool {
        let (interface, multicast) = (buffer.interface(), buffer.is_multicast(call.family));
        let position = match self.last {
            Some((known, was_multicast, position)) if (known, was_multicast) == (interface, multicast) => {
                position
            }
            _ => call.feature_position(multicast, interface),
        };
        self.last = Some((interface, multicast, position));
        buffer.set_feature(position);
        position != u32::MAX
    }
}

impl NextNodes {
    /// Sends the buffers of a vector to their destinations.
    fn send(&mut self, call: &NodeCall<'_>, worker: &mut Worker, frame: &[BufferIndex]) {
        call.count_sent(frame.len());
        if self.handed.is_empty() && self.freed.is_empty() {
            return call.enqueue(frame, &self.nexts[..frame.len()]);
        }
        let onward = frame.iter().copied().zip(self.nexts).filter(|(_, next)| *next != NONE);
        let (buffers, nexts): (ArrayVec<BufferIndex, VECTOR>, ArrayVec<u16, VECTOR>) = onward.unzip();
        call.enqueue(&buffers, &nexts);
        let (mut buffers, mut threads): (ArrayVec<BufferIndex, VECTOR>, ArrayVec<u16, VECTOR>) =
            self.handed.iter().copied().unzip();
        if !buffers.is_empty() {
            let lost = buffers.len() - call.hand_over(&mut buffers, &mut threads);
            if lost > 0 {
                worker.count_dropped(DropReason::HandoverFull, lost as u64);
                call.count(NodeError::For(DropReason::HandoverFull), lost as u64);
            }
        }
        if !self.freed.is_empty() {
            // The worker has copies of these.
            call.free(&mut self.freed);
        }
    }
}

fn add_traces(
    call: &NodeCall<'_>,
    runtime: &Runtime,
    vector: &DecideVector<'_>,
    verdicts: &[Verdict],
    tickets: &[Option<RewriteTicket>],
    traces: &[PacketTrace],
) {
    let packets = vector.packets.iter().zip(&vector.buffers);
    for (((packet, (_, buffer, _)), trace), (verdict, ticket)) in
        packets.zip(traces).zip(verdicts.iter().zip(tickets))
    {
        if !buffer.is_traced() {
            continue;
        }
        let verdict = match *verdict {
            Verdict::Send(_) if ticket.is_some() => TracedVerdict::Rewrite,
            Verdict::Send(_) => TracedVerdict::Next,
            Verdict::Drop(reason) => TracedVerdict::Drop(reason),
            Verdict::Hand(worker) => TracedVerdict::Hand(worker),
            Verdict::Held(_) => TracedVerdict::Held,
            Verdict::Absorbed => TracedVerdict::Absorbed,
        };
        call.add_trace(
            *buffer,
            NodeTrace {
                interface: buffer.interface(),
                len: packet.len() as u32,
                worker: runtime.threads.worker(call.thread.number()) as u16,
                verdict,
                trace: *trace,
            },
        );
    }
}

//! What a thread of VPP works with.

use super::chain::ChainCopies;
use super::pending::PendingQueue;
use super::reorder::ReorderGuard;
use mmb_engine::{DropReason, PacketTrace, RewriteTicket, VECTOR, Verdict, Worker};

/// One thread's part of the engine.
pub(crate) struct ThreadState {
    /// Decides about packets.
    pub(crate) worker: Worker,
    /// Packets in several buffers, in one piece.
    pub(super) copies: ChainCopies,
    pub(super) columns: VectorColumns,
    pub(super) held: HeldMetadata,
    pub(super) reorder: ReorderGuard,
    /// By family.
    pub(super) pending: [PendingQueue; 2],
}

/// What is decided about the packets of a vector.
pub(super) struct VectorColumns {
    pub(super) verdicts: Box<[Verdict; VECTOR]>,
    pub(super) tickets: Box<[Option<RewriteTicket>; VECTOR]>,
    /// Why they get it, while somebody traces.
    pub(super) accounts: Vec<PacketTrace>,
}

/// What VPP knew of held packets, by their numbers.
pub(super) struct HeldMetadata(Vec<BufferMetadata>);

/// What VPP knew of a packet whose buffer is freed; as `mmb_buffer_metadata_t` in buffers.c.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BufferMetadata {
    flags: u32,
    opaque: [u32; 10],
    opaque2: [u32; 14],
}

impl ThreadState {
    pub(crate) fn new(worker: Worker) -> ThreadState {
        let columns = VectorColumns {
            verdicts: Box::new([Verdict::Drop(DropReason::NoWire); VECTOR]),
            tickets: Box::new([None; VECTOR]),
            accounts: Vec::new(),
        };
        ThreadState {
            worker,
            copies: ChainCopies::new(),
            columns,
            held: HeldMetadata(Vec::new()),
            reorder: ReorderGuard::default(),
            pending: [PendingQueue::new(), PendingQueue::new()],
        }
    }
}

impl ThreadState {
    /// A frame ended with a panic: these buffers of it are dropped, and go nowhere that something waits for them.
    pub(super) fn abandon(&mut self, family: u32, buffers: &[u32]) {
        self.pending[family as usize].forget(buffers);
        self.reorder = ReorderGuard::default();
    }
}

impl HeldMetadata {
    /// The place of a packet's way.
    pub(super) fn place(&mut self, number: u16) -> &mut BufferMetadata {
        let number = usize::from(number);
        if self.0.len() <= number {
            self.0.resize(number + 1, BufferMetadata::default());
        }
        &mut self.0[number]
    }

    /// The way of a packet that was held.
    pub(super) fn metadata(&self, number: u16) -> Option<&BufferMetadata> {
        self.0.get(usize::from(number))
    }
}

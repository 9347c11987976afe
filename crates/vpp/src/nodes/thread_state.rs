//! The state of one of VPP's threads: its worker, and what its nodes keep about buffers.

use super::pending::PendingQueue;
use super::reorder::ReorderGuard;
use crate::sys::{BufferIndex, BufferMetadata, ChainCopies};
use mmb_engine::{DropReason, PacketTrace, RewriteTicket, VECTOR, Verdict, Worker};

/// The state of one thread.
pub(crate) struct ThreadState {
    pub(crate) worker: Worker,
    pub(super) buffers: ThreadBuffers,
}

/// The thread's packets, beside its worker.
pub(super) struct ThreadBuffers {
    pub(super) copies: ChainCopies,
    pub(super) columns: VectorColumns,
    pub(super) held: HeldMetadata,
    pub(super) reorder: ReorderGuard,
    /// By family.
    pub(super) pending: [PendingQueue; 2],
}

/// The results of deciding on a vector, by packet.
pub(super) struct VectorColumns {
    pub(super) verdicts: Box<[Verdict; VECTOR]>,
    pub(super) tickets: Box<[Option<RewriteTicket>; VECTOR]>,
    /// Filled while a node is traced.
    pub(super) traces: Vec<PacketTrace>,
}

/// The metadata of held packets, by their numbers.
pub(super) struct HeldMetadata(Vec<BufferMetadata>);

impl ThreadState {
    pub(crate) fn new(worker: Worker) -> ThreadState {
        let columns = VectorColumns {
            verdicts: Box::new([Verdict::Drop(DropReason::NoWire); VECTOR]),
            tickets: Box::new([None; VECTOR]),
            traces: Vec::new(),
        };
        let buffers = ThreadBuffers {
            copies: ChainCopies::new(),
            columns,
            held: HeldMetadata(Vec::new()),
            reorder: ReorderGuard::default(),
            pending: [PendingQueue::new(), PendingQueue::new()],
        };
        ThreadState { worker, buffers }
    }
}

impl ThreadBuffers {
    /// Forgets buffers that a panic left: they are dropped and will not be rewritten.
    pub(super) fn abandon(&mut self, family: u32, buffers: &[BufferIndex]) {
        self.pending[family as usize].forget(buffers);
        self.reorder = ReorderGuard::default();
    }
}

impl HeldMetadata {
    /// The place for a held packet's metadata.
    pub(super) fn place(&mut self, number: u16) -> &mut BufferMetadata {
        let number = usize::from(number);
        if self.0.len() <= number {
            self.0.resize(number + 1, BufferMetadata::default());
        }
        &mut self.0[number]
    }

    /// A held packet's metadata.
    pub(super) fn metadata(&self, number: u16) -> Option<&BufferMetadata> {
        self.0.get(usize::from(number))
    }
}

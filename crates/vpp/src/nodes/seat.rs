//! What a thread of VPP works with.

use super::chain::Copies;
use super::notes::Notes;
use super::order::Detours;
use mmb_engine::{DropReason, PacketTrace, RewriteTicket, VECTOR, Verdict, Worker};

/// One thread's part of the engine.
pub(crate) struct Seat {
    /// Decides about packets.
    pub(crate) worker: Worker,
    /// Packets in several buffers, in one piece.
    pub(super) copies: Copies,
    pub(super) columns: Columns,
    pub(super) held: Held,
    pub(super) detours: Detours,
    /// By family.
    pub(super) notes: [Notes; 2],
}

/// What is decided about the packets of a vector.
pub(super) struct Columns {
    pub(super) verdicts: Box<[Verdict; VECTOR]>,
    pub(super) jobs: Box<[Option<RewriteTicket>; VECTOR]>,
    /// Why they get it, while somebody traces.
    pub(super) accounts: Vec<PacketTrace>,
}

/// What VPP knew of held packets, by their numbers.
pub(super) struct Held(Vec<Way>);

/// What VPP knew of a packet whose buffer is freed; as `mmb_way_t` in buffers.c.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    flags: u32,
    opaque: [u32; 10],
    opaque2: [u32; 14],
}

impl Seat {
    pub(crate) fn new(worker: Worker) -> Seat {
        let columns = Columns {
            verdicts: Box::new([Verdict::Drop(DropReason::NoWire); VECTOR]),
            jobs: Box::new([None; VECTOR]),
            accounts: Vec::new(),
        };
        Seat {
            worker,
            copies: Copies::new(),
            columns,
            held: Held(Vec::new()),
            detours: Detours::default(),
            notes: [Notes::new(), Notes::new()],
        }
    }
}

impl Seat {
    /// A frame ended with a panic: these buffers of it are dropped, and go nowhere that something waits for them.
    pub(super) fn abandon(&mut self, family: u32, buffers: &[u32]) {
        self.notes[family as usize].forget(buffers);
        self.detours = Detours::default();
    }
}

impl Held {
    /// The place of a packet's way.
    pub(super) fn place(&mut self, number: u16) -> &mut Way {
        let number = usize::from(number);
        if self.0.len() <= number {
            self.0.resize(number + 1, Way::default());
        }
        &mut self.0[number]
    }

    /// The way of a packet that was held.
    pub(super) fn way(&self, number: u16) -> Option<&Way> {
        self.0.get(usize::from(number))
    }
}

//! What a thread of VPP works with.

use super::chain::Copies;
use super::order::Detours;
use mmb_engine::{Account, Worker};

/// One thread's part of the engine.
pub(crate) struct Seat {
    /// Decides about packets.
    pub(crate) worker: Worker,
    /// Packets in several buffers, in one piece.
    pub(super) copies: Copies,
    /// Why the packets of a vector get what they get, while somebody traces.
    pub(super) accounts: Vec<Account>,
    pub(super) held: Held,
    pub(super) detours: Detours,
}

/// How the ways of held packets go on, by their numbers.
pub(super) struct Held(Vec<Way>);

/// Where the way of a packet goes on that VPP forgot; as `mmb_way_t` in buffers.c.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    flags: u32,
    current_config_index: u32,
    opaque: [u32; 10],
    opaque2: [u32; 14],
}

impl Seat {
    pub(crate) fn new(worker: Worker) -> Seat {
        Seat {
            worker,
            copies: Copies::new(),
            accounts: Vec::new(),
            held: Held(Vec::new()),
            detours: Detours::new(),
        }
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

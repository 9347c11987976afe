//! Taps: copies of selected packets, with their verdicts and traces.
//!
//! Purpose: the commands `trace` and `capture` show packets as they were received and as they were sent or
//! dropped, and why.
//!
//! Life-cycle: the control side makes a tap with all of its memory ([`TapQueue`]), and sends every worker its
//! part ([`WorkerTap`]) by a task. Before a vector, a worker finds the selected packets and copies their
//! bytes. After the vector, it adds bytes, verdicts and traces, and puts the records into the queue. The
//! control side takes the records from there ([`PacketTap`](crate::PacketTap)). If the queue is full or no
//! memory is free, the worker leaves the packet out and counts it: a worker never waits, allocates or frees.
//! At the end, the worker returns its part of the tap to the control side.
//!
//! Without a tap, a vector costs one branch. With a tap, a vector with selected packets is processed like a
//! traced vector: its packets do not take the quick pass.

use super::search::PacketSearch;
use super::trace::PacketTrace;
use crate::compiled::{PacketSelector, Snapshot};
use crate::drop::DropReason;
use crate::verdict::{Origin, VECTOR, Verdict};
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use mmb_packet::{LinkType, Packet, PortId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a piece of memory. A packet takes as many pieces as it needs.
const PIECE: usize = 2048;
/// The most pieces of one packet.
const MOST_PIECES: usize = 8;

type Piece = Box<[u8; PIECE]>;

/// The most bytes of a packet that a tap keeps.
pub const MOST_TAPPED: usize = PIECE * MOST_PIECES;

/// Which bytes of the selected packets a tap records. A packet is recorded if some of its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapWants {
    /// The bytes of packets that ports received, as they were received.
    pub received: bool,
    /// The bytes of packets that are sent, as they are sent.
    pub sent: bool,
    /// The bytes of packets that are dropped, as they were when they were dropped.
    pub dropped: bool,
    /// The bytes of all packets before and after the stages: also of packets that the worker generated, held,
    /// absorbed or handed over.
    pub all: bool,
    /// Only packets that are dropped for this reason.
    pub reason: Option<DropReason>,
    /// The most bytes to record of a packet; at most [`MOST_TAPPED`].
    pub snaplen: usize,
}

impl TapWants {
    fn takes_received(&self, origin: Origin) -> bool {
        self.all || self.received && origin == Origin::Wire
    }

    fn takes_last(&self, verdict: Verdict) -> bool {
        self.all
            || match verdict {
                Verdict::Send(_) => self.sent,
                Verdict::Drop(_) => self.dropped,
                Verdict::Hand(_) | Verdict::Held(_) | Verdict::Absorbed => false,
            }
    }

    fn takes(&self, verdict: Verdict) -> bool {
        self.reason.is_none_or(|reason| verdict == Verdict::Drop(reason))
    }
}

/// The bytes of a packet before or after the stages, cut to the tap's snaplen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TappedBytes {
    /// The recorded bytes.
    pub bytes: Vec<u8>,
    /// The packet's length.
    pub len: usize,
}

/// A packet that a tap recorded, with its verdict.
#[derive(Clone, Debug)]
pub struct TappedPacket {
    /// The worker that decided.
    pub worker: u16,
    /// When its vector was processed, on the worker's clock.
    pub time_ns: u64,
    /// The origin of its vector.
    pub origin: Origin,
    /// The port on which it arrived, or appears to have arrived.
    pub port: PortId,
    /// Its link header type.
    pub link: LinkType,
    /// The verdict on the packet.
    pub verdict: Verdict,
    /// The reasons for the verdict.
    pub trace: PacketTrace,
    /// Its bytes before the stages, if the tap records them.
    pub received: Option<TappedBytes>,
    /// Its bytes after the stages, if the tap records them.
    pub last: Option<TappedBytes>,
}

/// The bytes of a packet in pieces of the tap's memory.
#[derive(Default)]
struct KeptBytes {
    pieces: ArrayVec<Piece, MOST_PIECES>,
    kept: u32,
    len: u32,
}

/// A packet in the queue.
struct PacketRecord {
    /// The packet without its bytes.
    packet: TappedPacket,
    received: Option<KeptBytes>,
    last: Option<KeptBytes>,
}

/// The memory of a tap: records that wait for the control side, and free pieces.
pub(crate) struct TapQueue {
    records: ArrayQueue<PacketRecord>,
    free: ArrayQueue<Piece>,
    /// Selected packets that were left out, since this number was last taken.
    left_out: AtomicU64,
}

impl TapQueue {
    /// A queue for `packets` packets of at most [`PIECE`] bytes, or for fewer longer ones.
    pub(crate) fn new(packets: usize) -> TapQueue {
        let queue = TapQueue {
            records: ArrayQueue::new(packets),
            free: ArrayQueue::new(packets),
            left_out: AtomicU64::new(0),
        };
        while queue.free.push(Box::new([0; PIECE])).is_ok() {}
        queue
    }

    /// Takes the next packet.
    pub(crate) fn take(&self) -> Option<TappedPacket> {
        let PacketRecord { mut packet, received, last } = self.records.pop()?;
        packet.received = received.map(|kept| self.copied(kept));
        packet.last = last.map(|kept| self.copied(kept));
        Some(packet)
    }

    /// The number of packets that were left out since the last call.
    pub(crate) fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }

    /// Copies bytes of a packet, at most `most`. `None` if too few pieces are free.
    fn keep(&self, bytes: &[u8], most: usize) -> Option<KeptBytes> {
        let mut kept = KeptBytes { len: bytes.len() as u32, ..KeptBytes::default() };
        for part in bytes[..bytes.len().min(most).min(MOST_TAPPED)].chunks(PIECE) {
            let Some(mut piece) = self.free.pop() else {
                self.give_back(kept);
                return None;
            };
            piece[..part.len()].copy_from_slice(part);
            kept.pieces.push(piece);
            kept.kept += part.len() as u32;
        }
        Some(kept)
    }

    fn give_back(&self, kept: KeptBytes) {
        for piece in kept.pieces {
            // The queue has room for all pieces.
            let _ = self.free.push(piece);
        }
    }

    fn copied(&self, kept: KeptBytes) -> TappedBytes {
        let mut bytes = Vec::with_capacity(kept.kept as usize);
        for piece in &kept.pieces {
            let left = kept.kept as usize - bytes.len();
            bytes.extend_from_slice(&piece[..left.min(PIECE)]);
        }
        let len = kept.len as usize;
        self.give_back(kept);
        TappedBytes { bytes, len }
    }

    fn push(&self, record: PacketRecord) {
        if let Err(PacketRecord { received, last, .. }) = self.records.push(record) {
            received.into_iter().chain(last).for_each(|kept| self.give_back(kept));
            self.leave_out();
        }
    }

    fn leave_out(&self) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a tap records of a packet of the vector.
#[derive(Default)]
enum TapState {
    /// The packet was not selected.
    #[default]
    Unselected,
    /// The packet was selected. Contains its bytes as they were received, if the tap records them.
    Selected(Option<KeptBytes>),
}

/// A worker's part of a tap.
pub(crate) struct WorkerTap {
    queue: Arc<TapQueue>,
    selector: Arc<PacketSelector>,
    wants: TapWants,
    search: PacketSearch,
    flow_search: PacketSearch,
    states: Box<[TapState]>,
}

impl WorkerTap {
    pub(crate) fn new(queue: Arc<TapQueue>, selector: Arc<PacketSelector>, wants: TapWants) -> WorkerTap {
        let (mut search, mut flow_search) = (PacketSearch::new(), PacketSearch::new());
        search.fit(selector.packets.as_ref());
        flow_search.fit(selector.flows.as_ref());
        let states = (0..VECTOR).map(|_| TapState::default()).collect();
        WorkerTap { queue, selector, wants, search, flow_search, states }
    }

    /// Whether this is a part of the tap with this queue.
    pub(crate) fn is_of(&self, queue: &Arc<TapQueue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    /// Selects packets of a vector, and copies their bytes. Returns whether some are selected.
    pub(super) fn begin(&mut self, snapshot: &Snapshot, origin: Origin, packets: &[Packet<'_>]) -> bool {
        let WorkerTap { queue, selector, wants, search, states, .. } = self;
        let mut is_selected = [selector.packets.is_none(); VECTOR];
        if let Some(classifier) = &selector.packets {
            let found = search.find(classifier, snapshot, packets, |at| {
                is_selected[at] = selector.takes_malformed(packets[at].port);
            });
            found.iter().for_each(|at| is_selected[usize::from(*at)] = true);
        }
        let mut some = false;
        for ((packet, state), _) in
            packets.iter().zip(&mut states[..]).zip(is_selected).filter(|(_, is_selected)| *is_selected)
        {
            let kept = wants.takes_received(origin).then(|| queue.keep(packet.bytes(), wants.snaplen));
            match kept {
                Some(None) => queue.leave_out(),
                Some(kept @ Some(_)) => *state = TapState::Selected(kept),
                None => *state = TapState::Selected(None),
            }
            some |= matches!(state, TapState::Selected(_));
        }
        some
    }

    pub(super) fn has(&self, at: usize) -> bool {
        matches!(self.states[at], TapState::Selected(_))
    }

    /// Records a packet of the vector, if it was selected. `packet` has no bytes yet.
    pub(super) fn end(&mut self, at: usize, packet: &TappedPacket, bytes: &[u8]) {
        let TapState::Selected(received) = std::mem::take(&mut self.states[at]) else { return };
        let (queue, wants) = (&self.queue, &self.wants);
        let is_wanted = wants.takes(packet.verdict);
        let takes_last = is_wanted && wants.takes_last(packet.verdict);
        let last = takes_last.then(|| queue.keep(bytes, wants.snaplen));
        match last {
            Some(None) => queue.leave_out(),
            last if is_wanted && (received.is_some() || last.is_some()) => {
                let packet = TappedPacket { received: None, last: None, ..*packet };
                return queue.push(PacketRecord { packet, received, last: last.flatten() });
            }
            _ => {}
        }
        received.into_iter().for_each(|kept| queue.give_back(kept));
    }

    /// Whether the tap may select packets of the flow of this packet.
    pub(super) fn concerns_flow(&mut self, snapshot: &Snapshot, packet: &Packet<'_>) -> bool {
        let packets = std::slice::from_ref(packet);
        let WorkerTap { selector, flow_search, .. } = self;
        let flows = selector.flows.as_ref();
        flows.is_some_and(|flows| !flow_search.find(flows, snapshot, packets, |_| {}).is_empty())
    }
}

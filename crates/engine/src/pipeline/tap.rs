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
const PIECE_BYTES: usize = 2048;
/// The most pieces of one packet.
const MAX_PIECES: usize = 8;

type Piece = Box<[u8; PIECE_BYTES]>;

/// The most bytes of a packet that a tap keeps.
pub const MAX_TAPPED_BYTES: usize = PIECE_BYTES * MAX_PIECES;

/// Which bytes of the selected packets a tap records. A packet is recorded if some of its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapOptions {
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
    /// The most bytes to record of a packet; at most [`MAX_TAPPED_BYTES`].
    pub snaplen: usize,
}

impl TapOptions {
    fn records_received(&self, origin: Origin) -> bool {
        self.all || self.received && origin == Origin::Wire
    }

    fn records_last(&self, verdict: Verdict) -> bool {
        self.all
            || match verdict {
                Verdict::Send(_) => self.sent,
                Verdict::Drop(_) => self.dropped,
                Verdict::Hand(_) | Verdict::Held(_) | Verdict::Absorbed => false,
            }
    }

    fn matches_reason(&self, verdict: Verdict) -> bool {
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
struct CopiedBytes {
    pieces: ArrayVec<Piece, MAX_PIECES>,
    copied_len: u32,
    len: u32,
}

/// A packet in the queue.
struct PacketRecord {
    /// The packet without its bytes.
    packet: TappedPacket,
    received: Option<CopiedBytes>,
    last: Option<CopiedBytes>,
}

/// The memory of a tap: records that wait for the control side, and free pieces.
pub(crate) struct TapQueue {
    records: ArrayQueue<PacketRecord>,
    free: ArrayQueue<Piece>,
    /// Selected packets that were left out, since this number was last taken.
    left_out: AtomicU64,
}

impl TapQueue {
    /// A queue for `packets` packets of at most [`PIECE_BYTES`] bytes, or for fewer longer ones.
    pub(crate) fn new(packets: usize) -> TapQueue {
        let queue = TapQueue {
            records: ArrayQueue::new(packets),
            free: ArrayQueue::new(packets),
            left_out: AtomicU64::new(0),
        };
        while queue.free.push(Box::new([0; PIECE_BYTES])).is_ok() {}
        queue
    }

    /// Takes the next packet.
    pub(crate) fn take(&self) -> Option<TappedPacket> {
        let PacketRecord { mut packet, received, last } = self.records.pop()?;
        packet.received = received.map(|copied| self.take_bytes(copied));
        packet.last = last.map(|copied| self.take_bytes(copied));
        Some(packet)
    }

    /// The number of packets that were left out since the last call.
    pub(crate) fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }

    /// Copies bytes of a packet, at most `max`. `None` if too few pieces are free.
    fn copy(&self, bytes: &[u8], max: usize) -> Option<CopiedBytes> {
        let mut copied = CopiedBytes { len: bytes.len() as u32, ..CopiedBytes::default() };
        for part in bytes[..bytes.len().min(max).min(MAX_TAPPED_BYTES)].chunks(PIECE_BYTES) {
            let Some(mut piece) = self.free.pop() else {
                self.free_pieces(copied);
                return None;
            };
            piece[..part.len()].copy_from_slice(part);
            copied.pieces.push(piece);
            copied.copied_len += part.len() as u32;
        }
        Some(copied)
    }

    fn free_pieces(&self, copied: CopiedBytes) {
        for piece in copied.pieces {
            // The queue has room for all pieces.
            let _ = self.free.push(piece);
        }
    }

    fn take_bytes(&self, copied: CopiedBytes) -> TappedBytes {
        let mut bytes = Vec::with_capacity(copied.copied_len as usize);
        for piece in &copied.pieces {
            let left = copied.copied_len as usize - bytes.len();
            bytes.extend_from_slice(&piece[..left.min(PIECE_BYTES)]);
        }
        let len = copied.len as usize;
        self.free_pieces(copied);
        TappedBytes { bytes, len }
    }

    fn push(&self, record: PacketRecord) {
        if let Err(PacketRecord { received, last, .. }) = self.records.push(record) {
            received.into_iter().chain(last).for_each(|copied| self.free_pieces(copied));
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
    Selected(Option<CopiedBytes>),
}

/// A worker's part of a tap.
pub(crate) struct WorkerTap {
    queue: Arc<TapQueue>,
    selector: Arc<PacketSelector>,
    options: TapOptions,
    search: PacketSearch,
    flow_search: PacketSearch,
    states: Box<[TapState]>,
}

impl WorkerTap {
    pub(crate) fn new(queue: Arc<TapQueue>, selector: Arc<PacketSelector>, options: TapOptions) -> WorkerTap {
        let (mut search, mut flow_search) = (PacketSearch::new(), PacketSearch::new());
        search.fit(selector.packets.as_ref());
        flow_search.fit(selector.flows.as_ref());
        let states = (0..VECTOR).map(|_| TapState::default()).collect();
        WorkerTap { queue, selector, options, search, flow_search, states }
    }

    /// Whether this is a part of the tap with this queue.
    pub(crate) fn belongs_to(&self, queue: &Arc<TapQueue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    /// Selects packets of a vector, and copies their bytes. Returns whether some are selected.
    pub(super) fn begin(&mut self, snapshot: &Snapshot, origin: Origin, packets: &[Packet<'_>]) -> bool {
        let WorkerTap { queue, selector, options, search, states, .. } = self;
        let mut is_selected = [selector.packets.is_none(); VECTOR];
        if let Some(classifier) = &selector.packets {
            let found = search.find(classifier, snapshot, packets, |index| {
                is_selected[index] = selector.takes_malformed(packets[index].port);
            });
            found.iter().for_each(|index| is_selected[usize::from(*index)] = true);
        }
        let mut some = false;
        for ((packet, state), _) in
            packets.iter().zip(&mut states[..]).zip(is_selected).filter(|(_, is_selected)| *is_selected)
        {
            let copied =
                options.records_received(origin).then(|| queue.copy(packet.bytes(), options.snaplen));
            match copied {
                Some(None) => queue.leave_out(),
                Some(copied @ Some(_)) => *state = TapState::Selected(copied),
                None => *state = TapState::Selected(None),
            }
            some |= matches!(state, TapState::Selected(_));
        }
        some
    }

    pub(super) fn is_selected(&self, index: usize) -> bool {
        matches!(self.states[index], TapState::Selected(_))
    }

    /// Records a packet of the vector, if it was selected. `packet` has no bytes yet.
    pub(super) fn end(&mut self, index: usize, packet: &TappedPacket, bytes: &[u8]) {
        let TapState::Selected(received) = std::mem::take(&mut self.states[index]) else { return };
        let (queue, options) = (&self.queue, &self.options);
        let is_wanted = options.matches_reason(packet.verdict);
        let records_last = is_wanted && options.records_last(packet.verdict);
        let last = records_last.then(|| queue.copy(bytes, options.snaplen));
        match last {
            Some(None) => queue.leave_out(),
            last if is_wanted && (received.is_some() || last.is_some()) => {
                let packet = TappedPacket { received: None, last: None, ..*packet };
                return queue.push(PacketRecord { packet, received, last: last.flatten() });
            }
            _ => {}
        }
        received.into_iter().for_each(|copied| queue.free_pieces(copied));
    }

    /// Whether the tap may select packets of the flow of this packet.
    pub(super) fn concerns_flow(&mut self, snapshot: &Snapshot, packet: &Packet<'_>) -> bool {
        let packets = std::slice::from_ref(packet);
        let WorkerTap { selector, flow_search, .. } = self;
        let flows = selector.flows.as_ref();
        flows.is_some_and(|flows| !flow_search.find(flows, snapshot, packets, |_| {}).is_empty())
    }
}

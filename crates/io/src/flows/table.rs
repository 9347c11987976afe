//! The flows of one worker, in the map that the programs read.

use super::raw::{CONFIG_WORDS, RawFlow, RawKey};
use crate::bpf::BpfMap;
use crate::mapping::Mapping;
use mmb_packet::Seq;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::time::{Duration, Instant};

/// `struct flow` in shared memory.
#[repr(C, align(64))]
struct SharedFlow {
    /// The words of the first line; the epoch is the first one.
    config: [AtomicU32; CONFIG_WORDS],
    packets: AtomicU64,
    bytes: AtomicU64,
    last_ns: AtomicU64,
    end: AtomicU32,
    ack: AtomicU32,
    window: AtomicU32,
    peer: AtomicU32,
    label: AtomicU32,
    queue: AtomicU32,
    mark: AtomicU32,
    until: AtomicU32,
    overtake_after: AtomicU32,
    _reserved: AtomicU32,
}

const _: () = assert!(size_of::<SharedFlow>() == 128);

/// `struct control` in shared memory.
#[repr(C)]
struct SharedControl {
    epoch: AtomicU32,
    _reserved: AtomicU32,
}

/// `struct queue` in shared memory.
#[repr(C, align(64))]
struct SharedQueue {
    delivered: AtomicU32,
    done: AtomicU32,
    _reserved: [AtomicU32; 14],
}

const _: () = assert!(size_of::<SharedQueue>() == 64);

/// The values of an array map, as memory of this process.
struct MappedArray<T> {
    memory: Mapping,
    count: usize,
    values: PhantomData<T>,
}

impl<T> MappedArray<T> {
    /// Maps the values of an array map with so many entries, whose values have the size of `T`, which consists of atomics.
    fn new(map: BorrowedFd<'_>, count: usize) -> std::io::Result<MappedArray<T>> {
        // The size is a multiple of 8, so that they lie next to each other.
        let memory = Mapping::new(map, count * size_of::<T>())?;
        Ok(MappedArray { memory, count, values: PhantomData })
    }

    fn get(&self) -> &[T] {
        // SAFETY: the mapping has so many values, lasts as long as `self`, and any bytes are valid atomics.
        unsafe { std::slice::from_raw_parts(self.memory.start().cast().as_ptr(), self.count) }
    }
}

/// The maps of the programs.
pub(super) struct SharedFlows {
    /// From keys to places.
    index: BpfMap<44, 4>,
    flows: MappedArray<SharedFlow>,
    control: MappedArray<SharedControl>,
    queues: MappedArray<SharedQueue>,
}

impl std::fmt::Debug for SharedFlows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedFlows").field("capacity", &self.flows.count).finish_non_exhaustive()
    }
}

impl SharedFlows {
    /// Takes the index, and maps the flows, so many, and the control map.
    pub(super) fn new(
        index: BorrowedFd<'_>,
        flows: BorrowedFd<'_>,
        control: BorrowedFd<'_>,
        queues: BorrowedFd<'_>,
        [count, queue_count]: [u32; 2],
    ) -> std::io::Result<SharedFlows> {
        Ok(SharedFlows {
            // SAFETY: the object's map of flows has keys of `struct flow_key` and values of 4 bytes (bpf/lookup.h).
            index: unsafe { BpfMap::from_fd(index.try_clone_to_owned()?) },
            flows: MappedArray::new(flows, count as usize)?,
            control: MappedArray::new(control, 1)?,
            queues: MappedArray::new(queues, queue_count as usize)?,
        })
    }

    /// Flows of another epoch are not used from now on.
    pub(super) fn set_epoch(&self, epoch: u32) {
        self.control.get()[0].epoch.store(epoch, std::sync::atomic::Ordering::SeqCst);
    }

    pub(super) fn capacity(&self) -> u32 {
        self.flows.count as u32
    }
}

/// What the programs have counted for a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawUsage {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Milliseconds since the last one.
    pub idle_ms: u64,
    /// TCP: the number after the last one that the sender has sent.
    pub end: u32,
    /// TCP: the last number that it acknowledged.
    pub ack: u32,
    /// TCP: its largest window, not scaled.
    pub window: u32,
}

/// A part of the table of flows, which one thread writes: places from 0 to [`FlowTable::capacity`].
#[derive(Debug)]
pub struct FlowTable {
    shared: Arc<SharedFlows>,
    first: u32,
    count: u32,
}

impl FlowTable {
    pub(super) fn new(shared: &Arc<SharedFlows>, first: u32, count: u32) -> FlowTable {
        FlowTable { shared: Arc::clone(shared), first, count }
    }

    /// The number of places.
    pub fn capacity(&self) -> u32 {
        self.count
    }

    /// The number of a place among those of all parts, as [`RawFlow::peer`] has it.
    pub fn number(&self, place: u32) -> u32 {
        self.first + place
    }

    fn flow(&self, place: u32) -> &SharedFlow {
        assert!(place < self.count, "a place of this part");
        &self.shared.flows.get()[self.number(place) as usize]
    }

    /// Puts a flow in a place that is free, or has one with the same key. Its counts begin at zero, and no packet takes it until it is enabled.
    ///
    /// # Errors
    /// The kernel refuses another entry.
    pub fn install(&self, place: u32, key: &RawKey, new: &RawFlow) -> std::io::Result<()> {
        let flow = self.flow(place);
        // No packet takes it while it changes.
        flow.config[0].store(0, Release);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        for (word, value) in flow.config.iter().zip(new.config()).skip(1) {
            word.store(value, Relaxed);
        }
        flow.packets.store(0, Relaxed);
        flow.bytes.store(0, Relaxed);
        flow.last_ns.store(now_ns(), Relaxed);
        flow.end.store(new.end, Relaxed);
        flow.ack.store(new.ack, Relaxed);
        flow.window.store(new.window, Relaxed);
        flow.peer.store(new.peer, Relaxed);
        flow.label.store(new.label, Relaxed);
        flow.queue.store(new.queue, Relaxed);
        // Packets of the flow may wait in the queue, without having been counted.
        let queue = &self.shared.queues.get()[new.queue as usize];
        flow.overtake_after.store(new.overtake_after, Relaxed);
        flow.until.store(((now_ns() >> UNIT_SHIFT) as u32).wrapping_add(new.overtake_after), Relaxed);
        flow.mark.store(queue.delivered.fetch_add(1, Relaxed).wrapping_add(1), Relaxed);
        self.shared.index.update(key.bytes(), &self.number(place).to_ne_bytes())?;
        Ok(())
    }

    /// Has packets take the flow in a place from now on, under the policy of this epoch.
    pub fn enable(&self, place: u32, epoch: u32) {
        self.flow(place).config[0].store(epoch, Release);
    }

    /// Has no packet take the flow in a place from now on, except those that are on their way.
    pub fn disable(&self, place: u32) {
        self.flow(place).config[0].store(0, Release);
    }

    /// Removes a key that leads to a place, which then leads to none. Another worker may have given it to a place of its own.
    pub fn remove(&self, key: &RawKey, place: u32) {
        if self.shared.index.get(key.bytes()) == Some(self.number(place).to_ne_bytes()) {
            // There is none if the kernel had no room for it.
            let _ = self.shared.index.delete(key.bytes());
        }
    }

    /// What the programs have counted for the flow in a place.
    pub fn usage(&self, place: u32) -> RawUsage {
        let flow = self.flow(place);
        RawUsage {
            packets: flow.packets.load(Relaxed),
            bytes: flow.bytes.load(Relaxed),
            idle_ms: now_ns().saturating_sub(flow.last_ns.load(Relaxed)) / 1_000_000,
            end: flow.end.load(Relaxed),
            ack: flow.ack.load(Relaxed),
            window: flow.window.load(Relaxed),
        }
    }

    /// Tells a flow how far its sender has come.
    pub fn follow(&self, place: u32, end: u32, ack: u32, window: u32) {
        let flow = self.flow(place);
        for (number, new) in [(&flow.end, end), (&flow.ack, ack)] {
            if Seq(new).after(Seq(number.load(Relaxed))) {
                number.store(new, Relaxed);
            }
        }
        if window > flow.window.load(Relaxed) {
            flow.window.store(window, Relaxed);
        }
    }
}

/// The packets of flows that the sockets of a worker get from an interface: keeps them in order with those that the kernel forwards.
#[derive(Debug)]
pub(crate) struct FlowQueue {
    shared: Arc<SharedFlows>,
    number: u32,
    /// How long a packet may be on its way into the queue.
    delay: Option<Duration>,
    done: u32,
    sample: Option<Sample>,
}

/// A look at the packets that were delivered.
#[derive(Clone, Copy, Debug)]
struct Sample {
    delivered: u32,
    /// Frames that may have been in the queue then, and have not been taken from it.
    left: usize,
    /// When it was, if packets may be on their way for some time.
    at: Option<Instant>,
}

/// Frames that other processors may be about to put into a queue, at most.
const ON_THEIR_WAY: usize = 16;
/// A driver delivers frames to an AF_XDP socket when it has worked off a batch of them, of 64 mostly.
const BATCH: Duration = Duration::from_micros(100);

impl FlowQueue {
    /// The queue with this number: of a packet socket, or of AF_XDP sockets, which get frames in batches.
    pub(super) fn new(shared: &Arc<SharedFlows>, number: u32, in_batches: bool) -> FlowQueue {
        let delay = in_batches.then_some(BATCH);
        let queue = FlowQueue { shared: Arc::clone(shared), number, delay, done: 0, sample: None };
        let done = queue.words().delivered.load(Relaxed);
        queue.words().done.store(done, Relaxed);
        FlowQueue { done, ..queue }
    }

    fn words(&self) -> &SharedQueue {
        &self.shared.queues.get()[self.number as usize]
    }

    /// To be called before frames are taken from the queue, when all that were taken before have been sent. `waiting` is the number of frames in
    /// the queue, or more.
    #[inline]
    pub(crate) fn begin(&mut self, waiting: impl FnOnce() -> usize) {
        self.sent();
        if self.sample.is_none() {
            let delivered = self.words().delivered.load(std::sync::atomic::Ordering::Acquire);
            if delivered != self.done {
                let at = self.delay.map(|_| Instant::now());
                self.sample = Some(Sample { delivered, left: waiting() + ON_THEIR_WAY, at });
            }
        }
    }

    /// All frames that were taken have been sent.
    #[inline]
    pub(crate) fn sent(&mut self) {
        if let Some(Sample { delivered, left: 0, .. }) = self.sample {
            self.words().done.store(delivered, Release);
            self.done = delivered;
            self.sample = None;
        }
    }

    /// So many frames were taken from the queue; `is_empty`: all that there were.
    #[inline]
    pub(crate) fn took(&mut self, frames: usize, is_empty: bool) {
        let delay = self.delay.unwrap_or_default();
        if let Some(Sample { left, at, .. }) = &mut self.sample {
            *left = match frames {
                0 if is_empty && at.is_none_or(|at| at.elapsed() > delay) => 0,
                // Others may be about to be put into it.
                _ if is_empty && at.is_none() => ON_THEIR_WAY,
                _ => left.saturating_sub(frames),
            };
        }
    }

    /// Whether a look soon can tell that all packets have come.
    #[inline]
    pub(crate) fn waits_for_batch(&self) -> bool {
        self.sample.is_some_and(|sample| sample.at.is_some())
    }
}

/// The unit of [`RawFlow::overtake_after`]: 2^20 ns.
const UNIT_SHIFT: u32 = 20;

/// The clock of `last_ns`: `bpf_ktime_get_coarse_ns`.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is filled in.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

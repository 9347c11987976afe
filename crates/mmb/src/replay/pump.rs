//! Moves packets from the readers through the engine to the writers.
//!
//! Packets are copied from a reader's window into slots, which are reused; a vector is a sequence of full slots. Of two
//! inputs the packet with the earlier time comes first; within an input the order of the file is kept. Blocks of a
//! pcapng file that are not packets go directly to the output, so the vector is processed before them. A packet that the
//! engine sends back goes to the output of its ingress port, which has the format of the other input. A fragment that the
//! engine holds is written when the engine releases it, with its original time and number; a packet that it makes is written
//! with the time of the packets before it.

use super::edits::ReplayEdit;
use super::files::Stream;
use anyhow::Context;
use mmb_engine::{
    Count, EditTotals, NoCycles, Origin, PacketHost, ProcessedPacket, ReturnedPacket, VECTOR, Verdict,
    Worker, drive,
};
use mmb_io::pcap::{CaptureError, CaptureItem, CaptureReader, CaptureWriter, Captured, Meta};
use mmb_packet::{Packet, PortId};
use std::io::{Read, Write};

/// The headroom in bytes in front of each packet.
const HEADROOM: usize = 256;
/// The longest time between packets of one vector.
pub(super) const VECTOR_SPAN_NS: u64 = 100_000_000;

type CaptureInput = CaptureReader<Box<dyn Read>>;
type CaptureOutput = CaptureWriter<Box<dyn Write>>;

/// The readers, the engine and the writers of a replay.
pub(super) struct Pump {
    sources: Vec<ReplaySource>,
    engine: ReplayEngine,
}

/// An input and its next packet.
struct ReplaySource {
    reader: CaptureInput,
    name: String,
    from: PortId,
    next: Next,
    cut: Cut,
    error: Option<CaptureError>,
}

/// The next item of an input.
enum Next {
    Unknown(PacketSlot),
    Ready(PacketSlot),
    Ended,
}

/// Packets that the capture does not contain completely.
#[derive(Default)]
struct Cut {
    packets: u64,
    first: u64,
}

/// The worker and its buffers.
struct ReplayEngine {
    worker: Worker,
    host: ReplayHost,
}

/// The next vector, and the outputs.
struct ReplayHost {
    outputs: Vec<ReplayOutput>,
    /// The port of each input.
    sources: Vec<PortId>,
    /// The name of each input.
    names: Vec<String>,
    slots: Vec<PacketSlot>,
    /// The length of the next vector, which is in the first slots.
    filled: usize,
    /// The longest time between its packets.
    span_ns: u64,
    /// The capture metadata of packets that the worker holds, by its numbers.
    held: Vec<Option<CapturedMeta>>,
    now_ns: u64,
    received: Count,
    sent: Count,
    edits: Vec<ReplayEdit>,
}

struct ReplayOutput {
    writer: CaptureOutput,
    name: String,
    /// The port whose packets are written here.
    to: PortId,
}

/// A packet, in memory that is reused.
struct PacketSlot {
    buffer: Vec<u8>,
    start: usize,
    len: usize,
    port: PortId,
    captured: CapturedMeta,
}

/// The metadata of a packet in its capture.
#[derive(Default)]
struct CapturedMeta {
    /// `None` for a slot that was never filled.
    meta: Option<Meta>,
    /// It comes from no capture.
    is_made: bool,
    options: Vec<u8>,
    source: usize,
}

/// The counters of a replay.
pub(super) struct Done {
    /// Packets that entered.
    pub(super) received: Count,
    /// Packets that left.
    pub(super) sent: Count,
    /// The first edits of streams.
    pub(super) edits: Vec<ReplayEdit>,
    /// All of them.
    pub(super) edit_totals: EditTotals,
    /// The error that ended an input.
    pub(super) error: Option<String>,
    notes: Vec<String>,
}

impl Pump {
    /// `span_ns`: the longest time between packets of one vector.
    pub(super) fn new(worker: Worker, streams: Vec<Stream>, span_ns: u64) -> Pump {
        let (mut sources, mut outputs) = (Vec::new(), Vec::new());
        for stream in streams {
            sources.push(ReplaySource {
                reader: stream.reader,
                name: stream.input_name,
                from: stream.from,
                next: Next::Unknown(PacketSlot::default()),
                cut: Cut::default(),
                error: None,
            });
            outputs.push(ReplayOutput { writer: stream.writer, name: stream.output_name, to: stream.to });
        }
        let host = ReplayHost {
            outputs,
            sources: sources.iter().map(|source| source.from).collect(),
            names: sources.iter().map(|source| source.name.clone()).collect(),
            slots: std::iter::repeat_with(PacketSlot::default).take(VECTOR).collect(),
            filled: 0,
            span_ns,
            held: Vec::new(),
            now_ns: 0,
            received: Count::default(),
            sent: Count::default(),
            edits: Vec::new(),
        };
        Pump { sources, engine: ReplayEngine { worker, host } }
    }

    /// Runs every input to its end.
    ///
    /// # Errors
    /// An output cannot be written. An error of an input is part of the result.
    pub(super) fn run(mut self) -> anyhow::Result<Done> {
        loop {
            for (number, source) in self.sources.iter_mut().enumerate() {
                source.look_ahead(number, &mut self.engine)?;
            }
            let earliest = self.sources.iter_mut().filter(|source| source.time_ns().is_some());
            let Some(source) = earliest.min_by_key(|source| source.time_ns()) else { break };
            source.give(&mut self.engine)?;
        }
        self.engine.work()?;
        self.engine.release(u64::MAX)?;
        let ReplayEngine { mut worker, host } = self.engine;
        worker.drop_held();
        worker.fold_counters();
        for output in host.outputs {
            output.writer.finish().with_context(|| format!("cannot write {}", output.name))?;
        }
        Ok(Done {
            received: host.received,
            sent: host.sent,
            edits: host.edits,
            edit_totals: worker.edit_totals(),
            notes: self.sources.iter().filter_map(ReplaySource::note).collect(),
            error: self.sources.iter().find_map(ReplaySource::error_text),
        })
    }
}

impl Done {
    /// Returns notes for the user, the error last.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.notes.iter().chain(&self.error).cloned()
    }
}

impl ReplaySource {
    /// Reads the next packet, unless it was read already.
    fn look_ahead(&mut self, number: usize, engine: &mut ReplayEngine) -> anyhow::Result<()> {
        while let Next::Unknown(slot) = &mut self.next {
            match self.reader.next_item() {
                Ok(Some(CaptureItem::Packet(captured))) => {
                    self.cut.note(&captured.meta);
                    slot.fill(captured, number, self.from);
                    self.next = Next::Ready(std::mem::take(slot));
                }
                Ok(Some(CaptureItem::Block(block))) => engine.block(number, block)?,
                Ok(None) => self.next = Next::Ended,
                Err(error) => {
                    self.error = Some(error);
                    self.next = Next::Ended;
                }
            }
        }
        Ok(())
    }

    /// Returns the time of the next packet.
    fn time_ns(&self) -> Option<u64> {
        match &self.next {
            Next::Ready(slot) => slot.captured.meta.map(|meta| meta.time_ns),
            Next::Unknown(_) | Next::Ended => None,
        }
    }

    /// Takes the next packet.
    fn give(&mut self, engine: &mut ReplayEngine) -> anyhow::Result<()> {
        if let Next::Ready(slot) = std::mem::replace(&mut self.next, Next::Ended) {
            self.next = Next::Unknown(engine.exchange(slot)?);
        }
        Ok(())
    }

    fn note(&self) -> Option<String> {
        let which = match self.cut {
            Cut { packets: 0, .. } => return None,
            Cut { packets: 1, first } => format!("1 packet (number {first}) is"),
            Cut { packets, first } => format!("{packets} packets (the first is number {first}) are"),
        };
        Some(format!(
            "{}: note: {which} in the capture only in part, and dropped as truncated where what is missing is a header \
             or belongs to the IP packet",
            self.name
        ))
    }

    fn error_text(&self) -> Option<String> {
        self.error.as_ref().map(|error| format!("{}: {error}", self.name))
    }
}

impl Cut {
    fn note(&mut self, meta: &Meta) {
        if meta.is_cut() {
            if self.packets == 0 {
                self.first = meta.number;
            }
            self.packets += 1;
        }
    }
}

impl Default for PacketSlot {
    fn default() -> Self {
        PacketSlot {
            buffer: Vec::new(),
            start: 0,
            len: 0,
            port: PortId(0),
            captured: CapturedMeta::default(),
        }
    }
}

impl PacketSlot {
    fn fill(&mut self, captured: Captured<'_>, source: usize, port: PortId) {
        self.put(captured.data, port);
        self.captured.options.clear();
        self.captured.options.extend_from_slice(captured.options);
        self.captured.is_made = false;
        (self.captured.source, self.captured.meta) = (source, Some(captured.meta));
    }

    /// Copies a packet into the buffer.
    fn put(&mut self, data: &[u8], port: PortId) {
        let len = data.len();
        if self.buffer.len() < HEADROOM + len {
            self.buffer.resize((HEADROOM + len).next_power_of_two(), 0);
        }
        self.buffer[HEADROOM..HEADROOM + len].copy_from_slice(data);
        (self.start, self.len, self.port) = (HEADROOM, len, port);
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.len]
    }

    /// Returns the packet for the engine; `None` for a slot that was never filled.
    fn packet(&mut self) -> Option<Packet<'_>> {
        let link = self.captured.meta?.link;
        Packet::new(&mut self.buffer, self.start, self.len, self.port, link)
    }
}

impl ReplayEngine {
    /// Adds a full slot to the vector and returns an empty one for it.
    fn exchange(&mut self, slot: PacketSlot) -> anyhow::Result<PacketSlot> {
        // A vector has one time, so packets that are further apart need another vector, for the timeouts of connections.
        let time = |slot: &PacketSlot| slot.captured.meta.map_or(0, |meta| meta.time_ns);
        let ReplayHost { filled, slots, span_ns, .. } = &self.host;
        let apart = *filled > 0 && time(&slot) > time(&slots[0]).saturating_add(*span_ns);
        if *filled == VECTOR || apart {
            self.work()?;
        }
        if self.host.filled == 0 {
            self.release(time(&slot))?;
        }
        let host = &mut self.host;
        let empty = std::mem::replace(&mut host.slots[host.filled], slot);
        host.filled += 1;
        Ok(empty)
    }

    /// Writes a block after all packets that precede it.
    fn block(&mut self, source: usize, block: &[u8]) -> anyhow::Result<()> {
        self.work()?;
        let output = &mut self.host.outputs[source];
        output.writer.block(block).with_context(|| format!("cannot write {}", output.name))
    }

    /// Has the worker let go what streams have held back for long enough, each at its time, until a time. The vector is empty.
    fn release(&mut self, until_ns: u64) -> anyhow::Result<()> {
        while let Some(due_ns) = self.worker.due_ns().filter(|due_ns| *due_ns <= until_ns) {
            self.host.now_ns = self.host.now_ns.max(due_ns);
            drive(&mut self.worker, &mut self.host, Origin::Wire)?;
        }
        Ok(())
    }

    /// Has the worker process the vector, and then the packets that it releases.
    fn work(&mut self) -> anyhow::Result<()> {
        let host = &mut self.host;
        if host.filled == 0 {
            return Ok(());
        }
        for slot in &host.slots[..host.filled] {
            host.received.packets += 1;
            host.received.bytes += slot.len as u64;
            host.now_ns = host.now_ns.max(slot.captured.meta.map_or(0, |meta| meta.time_ns));
        }
        drive(&mut self.worker, host, Origin::Wire)
    }
}

impl ReplayHost {
    /// The metadata of a packet that the engine made.
    fn made(&self, port: PortId, meta: Meta) -> CapturedMeta {
        // With a single capture there is one source for all ports.
        let source = self.sources.iter().position(|from| *from == port).unwrap_or(0);
        CapturedMeta { meta: Some(meta), is_made: true, options: Vec::new(), source }
    }
}

impl PacketHost for ReplayHost {
    type Error = anyhow::Error;

    fn process(&mut self, worker: &mut Worker, origin: Origin) -> anyhow::Result<()> {
        let slots = &mut self.slots[..std::mem::take(&mut self.filled)];
        let views = slots.iter_mut().filter_map(PacketSlot::packet);
        let processed = worker.process_views(origin, self.now_ns, &NoCycles, views);
        for edit in worker.take_edits() {
            let decided_at = edit.packet.and_then(|packet| slots.get(packet)).map(|slot| &slot.captured);
            let number = decided_at.filter(|captured| !captured.is_made).and_then(|captured| captured.meta);
            let packet =
                decided_at.zip(number).map(|(captured, meta)| (meta.number, &*self.names[captured.source]));
            self.edits.push(ReplayEdit::new(&edit, packet));
        }
        for (slot, ProcessedPacket { verdict, headroom, len }) in slots.iter_mut().zip(processed) {
            (slot.start, slot.len) = (headroom, len);
            match (verdict, &slot.captured.meta) {
                (Verdict::Send(to), Some(meta)) => {
                    self.sent.packets += 1;
                    self.sent.bytes += len as u64;
                    let source = slot.captured.source;
                    // With a single capture there is no other output.
                    let output = self.outputs.iter().position(|output| output.to == to).unwrap_or(source);
                    let ReplayOutput { writer, name, .. } = &mut self.outputs[output];
                    let written = match output == source && !slot.captured.is_made {
                        true => writer.packet(meta, slot.bytes(), &slot.captured.options),
                        false => writer.foreign(meta, slot.bytes()),
                    };
                    written.with_context(|| format!("cannot write {name}"))?;
                }
                (Verdict::Held(number), _) => {
                    let number = usize::from(number);
                    self.held.resize_with(self.held.len().max(number + 1), || None);
                    self.held[number] = Some(std::mem::take(&mut slot.captured));
                }
                // There is one worker.
                (Verdict::Send(_) | Verdict::Drop(_) | Verdict::Hand(_) | Verdict::Absorbed, _) => {}
            }
        }
        Ok(())
    }

    fn accept_returned(&mut self, ReturnedPacket { held, port, link, bytes }: ReturnedPacket<'_>) -> bool {
        let captured = match held {
            Some(number) => self.held.get_mut(usize::from(number)).and_then(Option::take),
            None => Some(self.made(port, Meta::made(link, self.now_ns, bytes.len()))),
        };
        let (Some(slot), Some(captured)) = (self.slots.get_mut(self.filled), captured) else { return false };
        slot.put(bytes, port);
        slot.captured = captured;
        self.filled += 1;
        true
    }
}

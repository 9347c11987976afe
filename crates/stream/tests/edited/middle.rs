//! The table between the ends, and a record of what it forwards.

use super::super::two_ends::wire::Datagram;
use super::editor::Editor;
use mmb_stream::{Level, StreamDrop, StreamId, StreamLimits, StreamTable, StreamVerdict, flag};

pub(crate) struct Middle {
    table: StreamTable,
    levels: [Level; 2],
    id: Option<StreamId>,
    editor: Editor,
    /// The number of each direction's first byte.
    first: [Option<u32>; 2],
    /// Which bytes of output and the FIN have reached the receiver, and how many of them are in order.
    has: [Vec<bool>; 2],
    in_order: [usize; 2],
    /// Input that was there, some of it held, when the receiver had all output.
    promised: [usize; 2],
    /// An end was reset, as its peer forgot the connection while the last acknowledgments were lost.
    is_reset: bool,
    /// The last packet of each end that went on: its headers are those of generated packets.
    template: [Option<Datagram>; 2],
}

impl Middle {
    pub(crate) fn new(levels: [Level; 2], limits: StreamLimits, editor: Editor) -> Middle {
        let mut table = StreamTable::default();
        assert!(table.configure(limits));
        Middle {
            table,
            levels,
            id: None,
            editor,
            first: [None; 2],
            has: Default::default(),
            in_order: [0; 2],
            promised: [0; 2],
            is_reset: false,
            template: [None, None],
        }
    }

    /// What an end is to receive.
    pub(crate) fn expected(&self, direction: usize) -> Vec<u8> {
        let output = match self.levels[direction] {
            Level::None => &self.editor.streams[direction],
            Level::Watch | Level::Guard | Level::Edit => &self.editor.decided[direction].output,
        };
        if self.levels[direction] == Level::Edit && !self.editor.has_released {
            assert!(*output == self.editor.reference(direction), "the output is not the reference edit");
        }
        output.clone()
    }

    /// The bytes that go on: of a direction that is edited, those that are decided.
    fn output(&self, direction: usize) -> &[u8] {
        match self.levels[direction] {
            Level::Edit => &self.editor.decided[direction].output,
            _ => &self.editor.streams[direction],
        }
    }

    /// Takes a packet. Returns the packets that go on.
    pub(crate) fn take(&mut self, mut packet: Datagram, now_ms: u64) -> Vec<Datagram> {
        let (segment, direction) = (packet.segment(), packet.direction());
        let id = match self.id {
            Some(id) => id,
            None => self.table.open(self.levels, false, Some(&segment), now_ms).expect("a fit connection"),
        };
        self.id = Some(id);
        let mut payload = packet.payload().to_vec();
        let outcome = self.table.take(id, direction, &segment, &mut payload, now_ms, &mut self.editor);
        self.note_promises();
        let mut passed = Vec::new();
        if outcome.verdict == StreamVerdict::Pass {
            let is_first = segment.has(flag::SYN) && self.first[direction].is_none();
            if is_first {
                self.first[direction] = Some(segment.seq.wrapping_add(1));
            }
            if self.levels.contains(&Level::Edit) && outcome.edited.is_some() {
                packet = packet.edited(&outcome, &payload, &self.table, id);
            } else {
                packet.apply(&outcome, &payload);
            }
            self.template[direction] = Some(packet.clone());
            self.is_reset |= segment.has(flag::RST);
            passed.push(packet);
        }
        if !segment.is_corrupt {
            passed.iter().for_each(|packet| self.check(packet));
        }
        passed
    }

    /// Asks the editor about bytes that were held for long enough. Returns the generated packets; `None` if a
    /// receiver does not answer and the connection is over.
    pub(crate) fn release(&mut self, now_ms: u64) -> Option<Vec<Datagram>> {
        while let Some((id, direction)) = self.table.next_due(now_ms) {
            match self.table.release(id, direction, now_ms, &mut self.editor) {
                Ok(()) => {}
                // The editor never stops.
                Err(StreamDrop::Stopped) => return None,
                Err(why) => panic!("{why:?}"),
            }
        }
        self.note_promises();
        Some(self.generated())
    }

    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.table.due_ms()
    }

    /// The generated packets.
    pub(crate) fn generated(&mut self) -> Vec<Datagram> {
        let mut packets = Vec::new();
        while let Some(generated) = self.table.generate() {
            let template = self.template[generated.direction].as_ref().expect("packets of that end");
            packets.push(template.generated(&generated));
            assert!(packets.len() < 10_000, "packets without end");
        }
        packets.iter().for_each(|packet| self.check(packet));
        packets
    }

    /// Notes what may be acknowledged though it is held.
    fn note_promises(&mut self) {
        for direction in [0, 1] {
            if self.in_order[direction] >= self.output(direction).len() {
                self.promised[direction] = self.editor.seen[direction];
            }
        }
    }

    /// Checks the bytes and the acknowledgment of a packet that goes on.
    fn check(&self, packet: &Datagram) {
        let (segment, direction) = (packet.segment(), packet.direction());
        if segment.has(flag::RST) {
            return;
        }
        if let Some(first) = self.first[direction].filter(|_| !segment.has(flag::SYN)) {
            let at = segment.seq.wrapping_sub(first).cast_signed();
            let output = self.output(direction);
            // Before the first byte and after the last one lies the byte of a keep-alive, in a direction that
            // is not edited.
            let is_keep_alive = at < 0 || self.levels[direction] != Level::Edit && packet.payload() == [0];
            if !packet.payload().is_empty() && !is_keep_alive && self.levels[direction] >= Level::Guard {
                let at = at as usize;
                assert_eq!(
                    output.get(at..at + packet.payload().len()),
                    Some(packet.payload()),
                    "other bytes at {at}"
                );
            }
            if segment.has(flag::FIN) && self.levels[direction] == Level::Edit {
                assert_eq!(at as usize + packet.payload().len(), output.len(), "a FIN in the middle");
            }
        }
        let other = 1 - direction;
        if let Some(first) = self.first[other].filter(|_| segment.has(flag::ACK)) {
            // What lies before the first byte acknowledges nothing.
            let acked = segment.ack.wrapping_sub(first).cast_signed().max(0) as usize;
            let ends = &self.editor.decided[other].ends;
            let needed = match acked {
                _ if self.levels[other] != Level::Edit => acked,
                0 => 0,
                _ if acked <= self.promised[other] => 0,
                _ if acked <= ends.len() => ends[acked - 1],
                // The FIN.
                _ => self.output(other).len() + 1,
            };
            let is_edited = self.levels[other] == Level::Edit;
            let max = if is_edited { self.editor.seen[other] } else { self.output(other).len() };
            assert!(acked <= max + 1, "acknowledges what was not sent: {acked} of {max}");
            assert!(needed <= self.in_order[other], "acknowledges what is not there");
        }
    }

    /// A packet reaches its end.
    pub(crate) fn delivered(&mut self, packet: &Datagram) {
        let (segment, direction) = (packet.segment(), packet.direction());
        let Some(first) = self.first[direction].filter(|_| !segment.is_corrupt && !segment.has(flag::SYN))
        else {
            return;
        };
        let at = i64::from(segment.seq.wrapping_sub(first).cast_signed());
        let output = match self.levels[direction] {
            Level::Edit => &self.editor.decided[direction].output,
            _ => &self.editor.streams[direction],
        };
        let has = &mut self.has[direction];
        has.resize(has.len().max(output.len() + 1), false);
        for (offset, byte) in (at..).zip(packet.payload()) {
            if let Ok(offset) = usize::try_from(offset)
                && output.get(offset) == Some(byte)
            {
                has[offset] = true;
            }
        }
        if segment.has(flag::FIN) {
            has[at as usize + packet.payload().len()] = true;
        }
        let in_order = &mut self.in_order[direction];
        while has.get(*in_order) == Some(&true) {
            *in_order += 1;
        }
        self.note_promises();
    }

    /// The connection has ended.
    pub(crate) fn end(mut self) {
        let id = self.id.expect("a stream");
        let info = self.table.info(id);
        let is_done =
            info.buffered == [0, 0] && info.edits.iter().all(|edits| edits.held == 0 && edits.unsent == 0);
        assert!(is_done || self.is_reset, "{info:?}");
        self.table.end(id);
        assert_eq!((self.table.payload_memory(), self.table.len()), (0, 0));
        assert_eq!(self.table.edit_records(), 0);
    }
}

//! Our own model of a TCP end, which is closer to Linux than smoltcp. It has SACK and fast retransmit,
//! delayed acknowledgments, timestamps, scaled windows, Reno, tail loss probes, zero-window probes and merged
//! segments. It does not use Nagle's algorithm.
//!
//! Its state machine is simple. An end that has received all bytes, and whose FIN is acknowledged, answers
//! later segments as in TIME-WAIT.

mod receiver;
mod sender;

use self::receiver::Receiver;
use self::sender::{Sender, Sending, Told};
use super::end::Manner;
use super::wire::Datagram;
use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber, TcpTimestampRepr};

/// Ports of the initiator and the responder.
const PORTS: [u16; 2] = [40_000, 80];
/// A SYN is sent again after that time, doubled each time.
const SYN_MS: u64 = 1000;
/// The application reads again after that time.
const READ_MS: u64 = 5;

/// See the module.
pub(crate) struct ModelEnd {
    number: usize,
    manner: Manner,
    /// The number of the first byte of each direction, this end's first.
    first: u32,
    peer_first: Option<u32>,
    sender: Sender,
    receiver: Receiver,
    stream: Vec<u8>,
    scales: Option<(u8, u8)>,
    has_timestamps: bool,
    /// TS.Recent, and the time when this end began.
    recent: u32,
    /// When the SYN, or the SYN-ACK, is to be sent, and how often it was.
    syn: Option<(u64, u32)>,
    is_open: bool,
    is_reset: bool,
    outgoing: Vec<Datagram>,
}

impl ModelEnd {
    /// The end of this number, which sends a stream.
    pub(crate) fn new(number: usize, seed: u64, manner: Manner, stream: Vec<u8>) -> ModelEnd {
        let receiver = Receiver::new(manner.receive_buffer, manner.mtu as i64 - 40);
        ModelEnd {
            number,
            manner,
            first: seed as u32,
            peer_first: None,
            sender: Sender::new(stream.len(), manner.send_buffer),
            receiver,
            stream,
            scales: None,
            has_timestamps: false,
            recent: 0,
            syn: (number == 0).then_some((0, 0)),
            is_open: false,
            is_reset: false,
            outgoing: Vec::new(),
        }
    }

    /// The scale that lets the window field tell the buffer.
    fn own_scale(&self) -> u8 {
        (0..14).find(|scale| self.manner.receive_buffer >> scale <= usize::from(u16::MAX)).unwrap_or(14)
    }

    /// What the application has got.
    pub(crate) fn received(&self) -> &[u8] {
        &self.receiver.bytes[..self.receiver.read]
    }

    /// Whether both directions have ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_reset || self.sender.is_done() && self.receiver.is_done()
    }

    /// When TCP or the application has something to do.
    pub(crate) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let reads = self.receiver.can_read().then_some(now_ms + READ_MS);
        let syn = self.syn.map(|(at, _)| at);
        let timers = [reads, syn, self.receiver.due_ms, self.sender.next_ms()];
        timers.into_iter().flatten().min().map(|at| at.max(now_ms + 1))
    }

    /// A packet arrives.
    pub(crate) fn receive(&mut self, packet: &Datagram, now_ms: u64) {
        if !packet.is_intact() || self.is_reset {
            return;
        }
        packet.read(|repr| match repr.control {
            TcpControl::Syn => self.receive_syn(repr, now_ms),
            TcpControl::Rst => {
                let expected = self.peer_first.map(|first| first.wrapping_add(self.receiver.next as u32));
                self.is_reset |= expected == Some(repr.seq_number.0.cast_unsigned());
            }
            TcpControl::None | TcpControl::Psh | TcpControl::Fin => self.receive_open(repr, now_ms),
        });
    }

    fn receive_syn(&mut self, repr: &TcpRepr<'_>, now_ms: u64) {
        let first = repr.seq_number.0.cast_unsigned().wrapping_add(1);
        if self.peer_first.is_some_and(|before| before == first && self.number == 1 && !self.is_open) {
            self.syn = Some((now_ms, 0));
            return;
        }
        let answers = repr.ack_number.is_some_and(|ack| ack.0.cast_unsigned() == self.first);
        if self.peer_first.is_some() || self.number == 0 && !answers {
            return self.receiver.ask(now_ms);
        }
        self.peer_first = Some(first);
        self.scales = repr.window_scale.map(|scale| (self.own_scale(), scale));
        self.has_timestamps = self.manner.timestamps && repr.timestamp.is_some();
        self.recent = repr.timestamp.map_or(0, |times| times.tsval);
        self.sender.sack_permitted = repr.sack_permitted;
        self.sender.bundle = self.manner.bundle;
        let options = if self.has_timestamps { 12 } else { 0 };
        let mss = i64::from(repr.max_seg_size.unwrap_or(536)).min(self.manner.mtu as i64 - 40) - options;
        self.sender.open(mss, i64::from(repr.window_len));
        if self.scales.is_none() {
            self.receiver.told_unscaled();
        }
        match self.number {
            0 => {
                (self.is_open, self.syn) = (true, None);
                self.receiver.ask(now_ms);
            }
            _ => self.syn = Some((now_ms, 0)),
        }
    }

    fn receive_open(&mut self, repr: &TcpRepr<'_>, now_ms: u64) {
        let (Some(peer_first), Some(ack)) = (self.peer_first, repr.ack_number) else { return };
        let offset = |number: TcpSeqNumber, first: u32, near: i64| {
            let near_number = first.wrapping_add(near as u32);
            near + i64::from(number.0.wrapping_sub(near_number.cast_signed()))
        };
        let at = offset(repr.seq_number, peer_first, self.receiver.next);
        let has_fin = repr.control == TcpControl::Fin;
        let end = at + repr.payload.len() as i64;
        let is_old = self.has_timestamps
            && repr.timestamp.is_some_and(|times| times.tsval.wrapping_sub(self.recent).cast_signed() < 0);
        // PAWS; windows.
        if is_old || !self.receiver.is_acceptable(at, end + i64::from(has_fin)) {
            return self.receiver.ask(now_ms);
        }
        let scale = self.scales.map_or(0, |(_, scale)| scale);
        let first = self.first;
        let near = self.sender.una;
        let edge = |edge: u32| offset(TcpSeqNumber(edge.cast_signed()), first, near);
        let sack: Vec<(i64, i64)> =
            repr.sack_ranges.iter().flatten().map(|(left, right)| (edge(*left), edge(*right))).collect();
        let clock = self.clock(now_ms);
        let told = Told {
            ack: edge(ack.0.cast_unsigned()),
            sack: &sack,
            window: i64::from(repr.window_len) << scale,
            seq: at,
            has_data: !repr.payload.is_empty() || has_fin,
            rtt_ms: repr
                .timestamp
                .map(|times| u64::from(clock.wrapping_sub(times.tsecr)))
                .filter(|rtt| *rtt < 1 << 20),
        };
        if !self.is_open {
            // The SYN-ACK is answered.
            if told.ack < 0 || told.ack > self.sender.next {
                return;
            }
            (self.is_open, self.syn) = (true, None);
        }
        if !self.sender.acknowledged(&told, now_ms) {
            return self.receiver.ask(now_ms);
        }
        if let Some(times) = repr.timestamp.filter(|_| at <= self.receiver.next) {
            self.recent = times.tsval;
        }
        self.receiver.take(at, repr.payload, has_fin, now_ms);
    }

    /// The time as this end's timestamps tell it.
    fn clock(&self, now_ms: u64) -> u32 {
        (now_ms as u32).wrapping_add(self.first.rotate_left(7))
    }

    /// Lets TCP and the application do what they can. Returns the packets that leave.
    pub(crate) fn poll(&mut self, now_ms: u64) -> Vec<Datagram> {
        if self.is_reset {
            self.receiver.read(self.manner.reads, now_ms);
            return Vec::new();
        }
        if let Some((at, times)) = self.syn.filter(|(at, _)| *at <= now_ms) {
            self.syn = Some((at.max(now_ms) + (SYN_MS << times.min(6)), times + 1));
            self.send_syn(now_ms);
        }
        if self.is_open {
            self.receiver.read(self.manner.reads, now_ms);
            for sending in self.sender.poll(now_ms) {
                self.send(sending, now_ms);
            }
            if self.receiver.due_ms.is_some_and(|at| at <= now_ms) {
                let next = self.sender.next;
                self.emit(next, next, now_ms);
            }
        }
        std::mem::take(&mut self.outgoing)
    }

    fn send(&mut self, sending: Sending, now_ms: u64) {
        match sending {
            Sending::Data(start, end) => self.emit(start, end, now_ms),
            Sending::Probe => {
                let at = self.sender.una - 1;
                self.emit(at, at, now_ms);
            }
        }
    }

    fn repr(&self, now_ms: u64) -> TcpRepr<'static> {
        let timestamp =
            self.manner.timestamps.then(|| TcpTimestampRepr::new(self.clock(now_ms), self.recent));
        TcpRepr {
            src_port: PORTS[self.number],
            dst_port: PORTS[1 - self.number],
            control: TcpControl::None,
            seq_number: TcpSeqNumber(0),
            ack_number: None,
            window_len: 0,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp,
            payload: &[],
        }
    }

    fn send_syn(&mut self, now_ms: u64) {
        let repr = TcpRepr {
            control: TcpControl::Syn,
            seq_number: TcpSeqNumber(self.first.wrapping_sub(1).cast_signed()),
            ack_number: self.peer_first.map(|first| TcpSeqNumber(first.cast_signed())),
            window_len: self.manner.receive_buffer.min(usize::from(u16::MAX)) as u16,
            window_scale: (self.number == 0 || self.scales.is_some()).then(|| self.own_scale()),
            max_seg_size: Some((self.manner.mtu - 40) as u16),
            sack_permitted: self.manner.sack && (self.number == 0 || self.sender.sack_permitted),
            timestamp: self.repr(now_ms).timestamp.filter(|_| self.number == 0 || self.has_timestamps),
            ..self.repr(now_ms)
        };
        self.sender.sack_permitted &= self.manner.sack;
        self.outgoing.push(Datagram::new(self.number, &repr));
    }

    /// Sends the bytes between two offsets with an acknowledgment.
    fn emit(&mut self, start: i64, end: i64, now_ms: u64) {
        let Some(peer_first) = self.peer_first else { return };
        let (next, window, blocks) = self.receiver.tell(self.scales.map_or(0, |(scale, _)| scale));
        let len = self.stream.len() as i64;
        let bytes = match start < len && start < end {
            true => self.stream[start as usize..end.min(len) as usize].to_vec(),
            false => Vec::new(),
        };
        let mut repr = TcpRepr {
            seq_number: TcpSeqNumber(self.first.wrapping_add(start as u32).cast_signed()),
            ack_number: Some(TcpSeqNumber(peer_first.wrapping_add(next as u32).cast_signed())),
            window_len: window,
            payload: &bytes,
            ..self.repr(now_ms)
        };
        repr.timestamp = repr.timestamp.filter(|_| self.has_timestamps);
        if end > len && start < end {
            repr.control = TcpControl::Fin;
        }
        if self.sender.sack_permitted && bytes.is_empty() {
            for (range, (left, right)) in repr.sack_ranges.iter_mut().zip(blocks) {
                let edge = |at: i64| peer_first.wrapping_add(at as u32);
                *range = Some((edge(left), edge(right)));
            }
        }
        self.outgoing.push(Datagram::new(self.number, &repr));
    }
}

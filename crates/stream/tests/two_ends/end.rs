//! A TCP end (smoltcp's or our own model) with an application that sends one stream and reads another.

use super::model::ModelEnd;
use super::wire::Datagram;
use mmb_random::RepeatableRandom;
use mmb_stream::{Segment, flag};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::cell::Cell;
use std::collections::VecDeque;

const PORT: u16 = 80;

thread_local! {
    /// The virtual clock, for timestamps.
    static NOW_MS: Cell<u32> = const { Cell::new(0) };
}

/// What a script chooses for its ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) mtu: usize,
    pub(crate) receive_buffer: usize,
    pub(crate) send_buffer: usize,
    pub(crate) timestamps: bool,
    pub(crate) keep_alive: bool,
    /// The most bytes that the application reads at once.
    pub(crate) reads: usize,
    /// smoltcp's end sends bytes beyond the window, as it does when it retransmits a segment that seems to be
    /// lost.
    pub(crate) overshoots: bool,
    /// It is our own model: whether it knows SACK, and how many segments it puts into one packet.
    pub(crate) is_model: bool,
    pub(crate) sack: bool,
    pub(crate) bundle: i64,
}

impl Manner {
    pub(crate) fn random(random: &mut RepeatableRandom) -> Manner {
        Manner {
            mtu: random.of(&[200, 576, 1280, 1500]),
            receive_buffer: random.of(&[300, 2000, 16_000, 65_535, 200_000]),
            send_buffer: random.of(&[1000, 16_000, 65_535]),
            timestamps: random.chance(0.5),
            keep_alive: random.chance(0.2),
            reads: random.of(&[50, 1000, 100_000]),
            overshoots: true,
            is_model: random.chance(0.5),
            sack: random.chance(0.7),
            bundle: random.of(&[1, 1, 3, 10]),
        }
    }
}

/// A TCP end.
pub(crate) enum End {
    Smoltcp(Box<SmoltcpEnd>),
    Model(Box<ModelEnd>),
}

impl End {
    /// The end of this number, which sends a stream.
    pub(crate) fn new(number: usize, seed: u64, manner: Manner, stream: Vec<u8>) -> End {
        match manner.is_model {
            true => End::Model(Box::new(ModelEnd::new(number, seed, manner, stream))),
            false => End::Smoltcp(Box::new(SmoltcpEnd::new(number, seed, manner, stream))),
        }
    }

    /// What its application has got.
    pub(crate) fn received(&self) -> &[u8] {
        match self {
            End::Smoltcp(end) => &end.received,
            End::Model(end) => end.received(),
        }
    }

    /// A packet arrives.
    pub(crate) fn receive(&mut self, packet: Datagram, now_ms: u64) {
        match self {
            End::Smoltcp(end) => end.receive(packet),
            End::Model(end) => end.receive(&packet, now_ms),
        }
    }

    /// Lets TCP and the application do what they can. Returns the packets that leave.
    pub(crate) fn poll(&mut self, now_ms: u64) -> Vec<Datagram> {
        match self {
            End::Smoltcp(end) => end.poll(now_ms),
            End::Model(end) => end.poll(now_ms),
        }
    }

    /// When TCP or the application has something to do.
    pub(crate) fn next_ms(&mut self, now_ms: u64) -> Option<u64> {
        match self {
            End::Smoltcp(end) => end.next_ms(now_ms),
            End::Model(end) => end.next_ms(now_ms),
        }
    }

    /// Whether both directions have ended.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            End::Smoltcp(end) => end.is_closed(),
            End::Model(end) => end.is_closed(),
        }
    }
}

/// Packets to and from the interface of an end.
struct Queues {
    mtu: usize,
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sending<'q>(&'q mut Vec<Vec<u8>>);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Queues {
    type RxToken<'q> = Received;
    type TxToken<'q> = Sending<'q>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        let packet = self.incoming.pop_front()?;
        Some((Received(packet), Sending(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.outgoing))
    }
}

/// smoltcp's end.
pub(crate) struct SmoltcpEnd {
    interface: Interface,
    queues: Queues,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    stream: Vec<u8>,
    written: usize,
    received: Vec<u8>,
    reads: usize,
    /// The window that the peer told last, and the one that this end told last in a packet that is no probe.
    peer_window: u16,
    told: u16,
    overshoots: bool,
    /// The window scales of this end's SYN and of the peer's, and the window edge that the peer has
    /// advertised.
    scales: [Option<u8>; 2],
    edge: Option<u32>,
}

fn instant(now_ms: u64) -> Instant {
    Instant::from_millis(now_ms.cast_signed())
}

impl SmoltcpEnd {
    fn new(number: usize, seed: u64, manner: Manner, stream: Vec<u8>) -> SmoltcpEnd {
        let mut queues = Queues { mtu: manner.mtu, incoming: VecDeque::new(), outgoing: Vec::new() };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut queues, instant(0));
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::Ipv4(super::ADDRESSES[number]), 24)).expect("room for one");
        });
        let buffer = |bytes| tcp::SocketBuffer::new(vec![0; bytes]);
        let mut socket = tcp::Socket::new(buffer(manner.receive_buffer), buffer(manner.send_buffer));
        if manner.timestamps {
            socket.set_tsval_generator(Some(|| NOW_MS.get()));
        }
        if manner.keep_alive {
            socket.set_keep_alive(Some(Duration::from_millis(300)));
        }
        if number == 0 {
            let remote = (IpAddress::Ipv4(super::ADDRESSES[1]), PORT);
            socket.connect(interface.context(), remote, 40_000).expect("a new socket");
        } else {
            socket.listen(PORT).expect("a new socket");
        }
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        SmoltcpEnd {
            interface,
            queues,
            sockets,
            socket,
            stream,
            written: 0,
            received: Vec::new(),
            reads: manner.reads,
            peer_window: u16::MAX,
            told: 0,
            overshoots: manner.overshoots,
            scales: [None; 2],
            edge: None,
        }
    }

    fn receive(&mut self, packet: Datagram) {
        let segment = packet.segment();
        self.peer_window = segment.window;
        if !segment.is_corrupt {
            self.learn_edge(&segment);
        }
        self.queues.incoming.push_back(packet.0);
    }

    fn poll(&mut self, now_ms: u64) -> Vec<Datagram> {
        NOW_MS.set(now_ms as u32);
        self.interface.poll(instant(now_ms), &mut self.queues, &mut self.sockets);
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        if socket.may_send() {
            self.written += socket.send_slice(&self.stream[self.written..]).unwrap_or(0);
            // With bytes left in the state CLOSING, smoltcp stops to probe a closed window.
            let may_close = socket.send_queue() == 0 || !socket.may_recv();
            if self.written == self.stream.len() && may_close {
                socket.close();
            }
        }
        let mut left = self.reads;
        while left > 0 && socket.can_recv() {
            let mut bytes = vec![0; left.min(2000)];
            let count = socket.recv_slice(&mut bytes).unwrap_or(0);
            self.received.extend_from_slice(&bytes[..count]);
            left -= count;
        }
        self.interface.poll(instant(now_ms), &mut self.queues, &mut self.sockets);
        let has_unacknowledged = self.sockets.get::<tcp::Socket<'_>>(self.socket).send_queue() > 0;
        let packets: Vec<Datagram> = self.queues.outgoing.drain(..).map(Datagram).collect();
        let sound = packets.into_iter().filter(|packet| self.is_sound(packet, has_unacknowledged));
        let sound: Vec<Datagram> = sound.collect();
        sound.into_iter().map(|packet| self.corrected(packet)).collect()
    }

    /// Learns the edge of the window that the peer tells.
    fn learn_edge(&mut self, segment: &Segment) {
        let is_syn = segment.has(flag::SYN);
        if is_syn {
            self.scales[1] = segment.scale;
        }
        let scale = match self.scales {
            [Some(_), Some(scale)] if !is_syn => scale,
            _ => 0,
        };
        let edge = segment.ack.wrapping_add(u32::from(segment.window) << scale);
        if segment.has(flag::ACK)
            && self.edge.is_none_or(|before| edge.wrapping_sub(before).cast_signed() > 0)
        {
            self.edge = Some(edge);
        }
    }

    /// Whether a TCP end should send a packet, which smoltcp does not always ask.
    fn is_sound(&mut self, packet: &Datagram, has_unacknowledged: bool) -> bool {
        let (segment, payload) = (packet.segment(), packet.payload());
        if segment.has(flag::SYN) {
            self.scales[0] = segment.scale;
        }
        // smoltcp sends a keep-alive with the byte before its next one, even if the receiver does not have
        // that byte.
        if payload == [0] && has_unacknowledged {
            return false;
        }
        // The probe of a closed window is the byte behind its edge.
        let end = segment.seq.wrapping_add(payload.len() as u32).wrapping_sub(u32::from(payload.len() == 1));
        let is_beyond = self.edge.is_some_and(|edge| end.wrapping_sub(edge).cast_signed() > 0);
        self.overshoots || payload.is_empty() || !is_beyond
    }

    /// A probe of smoltcp advertises a window that smoltcp then forgets. It cuts off the end of a segment in
    /// that window, but takes the FIN. So the probe gets the window that was advertised before.
    fn corrected(&mut self, mut packet: Datagram) -> Datagram {
        let is_probe = match packet.payload() {
            [0] => true,
            [_] => self.peer_window == 0,
            _ => false,
        };
        match is_probe {
            true => packet.set_window(self.told),
            false => self.told = packet.segment().window,
        }
        packet
    }

    fn next_ms(&mut self, now_ms: u64) -> Option<u64> {
        if self.sockets.get::<tcp::Socket<'_>>(self.socket).can_recv() {
            return Some(now_ms + 5);
        }
        let at = self.interface.poll_at(instant(now_ms), &self.sockets)?;
        Some(at.total_millis().max(now_ms.cast_signed() + 1).cast_unsigned())
    }

    fn is_closed(&self) -> bool {
        let state = self.sockets.get::<tcp::Socket<'_>>(self.socket).state();
        matches!(state, tcp::State::Closed | tcp::State::TimeWait)
    }
}

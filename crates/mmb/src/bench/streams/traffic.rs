//! TCP connections whose clients send.
//!
//! Every client sends trains of full segments, as a network card delivers them in bursts, and the server acknowledges every second segment.
//! The acknowledgments of a train come a few trains later: until then the bytes are in flight. A round has one train of each connection.
//! Between rounds, sequence and acknowledgment numbers and timestamps advance in place; the payload of a packet stays the same.

use super::super::arena::Arena;
use super::super::measure::{MeasuredPipeline, Stages};
use crate::tsc::Tsc;
use anyhow::bail;
use mmb_engine::{DropReason, VECTOR, Verdict, Worker};
use mmb_packet::checksum::ChecksumDelta;
use mmb_packet::proto::TCP;
use mmb_packet::{LinkType, PortId};
use mmb_random::RepeatableRandom;
use mmb_workload::PacketHeader;

/// Payload bytes of a segment: what an MTU of 1,500 leaves beside timestamps.
pub(super) const SEGMENT: usize = 1448;
/// A train of 8 segments is what a network card or GRO collects from a connection at high speed.
pub(super) const TRAINS: Trains = Trains { segments: 8, in_flight: 32 };

/// The ports of the clients and of the servers.
const CLIENTS: PortId = PortId(0);
const SERVERS: PortId = PortId(1);
/// The server that all clients know, and its port.
const SERVER: Endpoint = Endpoint { address: 0xc000_0201, port: 80 };
/// The first client's address.
const FIRST_CLIENT: u32 = 0x0a00_0001;
/// Milliseconds of the ends' clocks from round to round.
const TICK_MS: u32 = 10;

/// Offsets in a frame of Ethernet and IPv4 without options.
const ADDRESSES: usize = 14 + 12;
const TRANSPORT: usize = 14 + 20;
const NUMBERS: usize = TRANSPORT + 4;
const CHECKSUM: usize = TRANSPORT + 16;
/// The values of timestamps that two NOPs precede.
const TIMESTAMPS: usize = TRANSPORT + 24;
const HEAD: usize = TRANSPORT + 32;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// The characters of the payload. Their number is a power of two.
const TEXT: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz    01";

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Endpoint {
    address: u32,
    port: u16,
}

/// A connection, with the numbers that its ends chose: the client's first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    client: Endpoint,
    /// What the server sees: the client and the server after translation.
    seen: [Endpoint; 2],
    isn: [u32; 2],
    clock: [u32; 2],
}

/// The sizes of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trains {
    /// Segments of a train; even.
    pub(super) segments: usize,
    /// Trains of other connections between a train and its acknowledgments.
    pub(super) in_flight: usize,
}

/// What processes the packets of streams.
pub(super) trait StreamStages: Stages {
    /// Returns the verdicts of the last vector.
    fn verdicts(&self) -> &[Verdict; VECTOR];
}

impl StreamStages for MeasuredPipeline<'_> {
    fn verdicts(&self) -> &[Verdict; VECTOR] {
        MeasuredPipeline::verdicts(self)
    }
}

/// The packets of a round.
pub(super) struct Round {
    pub(super) arena: Arena,
    packets: Vec<RoundPacket>,
    train: usize,
    number: u32,
}

/// A packet that comes in every round.
struct RoundPacket {
    flow: Flow,
    sent: Sent,
    /// The headers of the current round.
    head: [u8; HEAD],
}

/// What a packet carries.
#[derive(Clone, Copy)]
enum Sent {
    /// A segment of the train, by its number.
    Data(usize),
    /// The acknowledgment of the first segments of a train, of the current round or of the one before.
    Ack { segments: usize, is_of_last_round: bool },
}

/// Returns random text for the segments of connections.
pub(super) fn text(segments: usize, seed: u64) -> Vec<u8> {
    let mut random = RepeatableRandom::for_purpose(seed, "text");
    let mut text = vec![0; segments * SEGMENT];
    for part in text.chunks_mut(8) {
        let mut word = random.word();
        for byte in part {
            *byte = TEXT[word as usize % TEXT.len()];
            word >>= 5;
        }
    }
    text
}

/// Tells which worker owns each connection: the one to which the first worker of several hands its SYN.
pub(super) fn owners(flows: &[Flow], worker: &mut Worker) -> Vec<usize> {
    let mut verdicts = [Verdict::Drop(DropReason::NoBuffer); VECTOR];
    let mut arena = Arena::default();
    flows.iter().for_each(|flow| arena.push_from(CLIENTS, &flow.syn(), LinkType::Ethernet));
    arena.restore();
    let mut owners = Vec::with_capacity(flows.len());
    arena.vectors(|packets| {
        worker.process(0, &Tsc, packets, &mut verdicts);
        owners.extend(verdicts[..packets.len()].iter().map(|verdict| match verdict {
            Verdict::Hand(owner) => usize::from(*owner),
            _ => 0,
        }));
    });
    owners
}

/// Returns connections that do not exist yet, all different.
pub(super) fn flows(count: usize, seed: u64) -> Vec<Flow> {
    let mut random = RepeatableRandom::for_purpose(seed, "connections");
    let flow = |number| {
        let port = 1024 + random.below(60_000) as u16;
        let client = Endpoint { address: FIRST_CLIENT + number as u32, port };
        let mut word = || random.word() as u32;
        Flow { client, seen: [client, SERVER], isn: [word(), word()], clock: [word(), word()] }
    };
    (0..count).map(flow).collect()
}

impl Flow {
    /// A packet of the client. `numbers`: sequence and acknowledgment number, timestamp and its echo.
    fn sent_by_client(&self, flags: u8, numbers: [u32; 4], payload: &[u8]) -> Vec<u8> {
        frame([self.client, SERVER], flags, numbers, payload)
    }

    /// Its first packet.
    fn syn(&self) -> Vec<u8> {
        self.sent_by_client(SYN, [self.isn[0], 0, self.clock[0], 0], &[])
    }

    /// A packet of the server, which answers to what it sees.
    fn sent_by_server(&self, flags: u8, numbers: [u32; 4]) -> Vec<u8> {
        let [client, server] = self.seen;
        frame([server, client], flags, numbers, &[])
    }
}

/// Makes connections: the three packets of each handshake.
///
/// # Errors
/// A packet does not pass.
pub(super) fn establish(flows: &mut [Flow], pipeline: &mut impl StreamStages) -> anyhow::Result<()> {
    let mut open = |port, frames: &mut dyn Iterator<Item = Vec<u8>>| {
        let mut arena = Arena::default();
        frames.for_each(|frame| arena.push_from(port, &frame, LinkType::Ethernet));
        arena.restore();
        pass(pipeline, &mut arena, |_, _, _| ()).map(|()| arena)
    };
    let mut syns = open(CLIENTS, &mut flows.iter().map(Flow::syn))?;
    for (flow, packet) in flows.iter_mut().zip(syns.packets()) {
        flow.seen = ends(packet.bytes());
    }
    let syn_ack = |&Flow { isn, clock, .. }: &Flow| [isn[1], isn[0].wrapping_add(1), clock[1], clock[0]];
    open(SERVERS, &mut flows.iter().map(|flow| flow.sent_by_server(SYN | ACK, syn_ack(flow))))?;
    let ack = |&Flow { isn, clock, .. }: &Flow| {
        [isn[0].wrapping_add(1), isn[1].wrapping_add(1), clock[0].wrapping_add(1), clock[1]]
    };
    open(CLIENTS, &mut flows.iter().map(|flow| flow.sent_by_client(ACK, ack(flow), &[])))?;
    Ok(())
}

/// Processes packets in vectors. `note` gets the number of each vector, the cycles of its stages and of all.
///
/// # Errors
/// A packet does not pass.
pub(super) fn pass(
    pipeline: &mut impl StreamStages,
    arena: &mut Arena,
    mut note: impl FnMut(usize, &[u64], u64),
) -> anyhow::Result<()> {
    let (mut spent, mut number, mut unsent) = (vec![0; pipeline.names().len()], 0, None);
    pipeline.begin();
    arena.vectors(|packets| {
        let whole = pipeline.take(packets, &mut spent);
        let mut verdicts = pipeline.verdicts()[..packets.len()].iter().copied();
        unsent = unsent.or_else(|| verdicts.find(|verdict| !matches!(verdict, Verdict::Send(_))));
        note(number, &spent, whole);
        number += 1;
    });
    match unsent {
        None => Ok(()),
        Some(Verdict::Drop(reason)) => bail!("a packet of a stream was dropped: {}", reason.name()),
        Some(verdict) => bail!("a packet of a stream was not sent: {verdict:?}"),
    }
}

impl Round {
    /// The first round of connections; `text` has the payload of all segments.
    pub(super) fn new(flows: &[Flow], Trains { segments, in_flight }: Trains, text: &[u8]) -> Round {
        let in_flight = in_flight.min(flows.len().saturating_sub(1));
        let mut round = Round { arena: Arena::default(), packets: Vec::new(), train: segments, number: 0 };
        for (number, (flow, text)) in flows.iter().zip(text.chunks(segments * SEGMENT)).enumerate() {
            for (number, payload) in text.chunks(SEGMENT).enumerate() {
                round.push(flow, Sent::Data(number), payload);
            }
            let (other, is_of_last_round) = match number.checked_sub(in_flight) {
                Some(other) => (other, false),
                None => (number + flows.len() - in_flight, true),
            };
            for segments in (2..=segments).step_by(2) {
                round.push(&flows[other], Sent::Ack { segments, is_of_last_round }, &[]);
            }
        }
        round.arena.restore();
        round
    }

    fn push(&mut self, flow: &Flow, sent: Sent, payload: &[u8]) {
        let numbers = numbers(flow, sent, self.train, self.number);
        let (port, frame) = match sent {
            Sent::Data(_) => (CLIENTS, flow.sent_by_client(ACK, numbers, payload)),
            Sent::Ack { .. } => (SERVERS, flow.sent_by_server(ACK, numbers)),
        };
        self.arena.push_from(port, &frame, LinkType::Ethernet);
        let mut head = [0; HEAD];
        head.copy_from_slice(&frame[..HEAD]);
        self.packets.push(RoundPacket { flow: *flow, sent, head });
    }

    /// Goes on to the next round: puts its headers in front of the payloads.
    pub(super) fn advance(&mut self) {
        self.number += 1;
        for (RoundPacket { flow, sent, head }, mut packet) in
            self.packets.iter_mut().zip(self.arena.packets())
        {
            renumber(head, numbers(flow, *sent, self.train, self.number));
            packet.bytes_mut()[..HEAD].copy_from_slice(head);
        }
    }
}

/// Sequence number, acknowledgment number, timestamp and its echo of a packet in a round.
fn numbers(&Flow { isn, clock, .. }: &Flow, sent: Sent, train: usize, round: u32) -> [u32; 4] {
    let first = isn.map(|isn| isn.wrapping_add(1));
    let time = |end: usize, ticks: u32| clock[end].wrapping_add(TICK_MS * ticks);
    let offset = |segments: usize| (segments * SEGMENT) as u32;
    let before = round as usize * train;
    match sent {
        Sent::Data(number) => {
            [first[0].wrapping_add(offset(before + number)), first[1], time(0, round + 1), time(1, round)]
        }
        Sent::Ack { segments, is_of_last_round } => {
            let late = usize::from(is_of_last_round);
            // In the first round, nothing was sent in the one before.
            let acked = if is_of_last_round && round == 0 { 0 } else { before + segments - late * train };
            [
                first[1],
                first[0].wrapping_add(offset(acked)),
                time(1, round + 1),
                time(0, round + 1 - late as u32),
            ]
        }
    }
}

/// Writes numbers into the headers of a packet.
fn renumber(head: &mut [u8; HEAD], numbers: [u32; 4]) {
    let mut delta = ChecksumDelta::default();
    let places = [NUMBERS, NUMBERS + 4, TIMESTAMPS, TIMESTAMPS + 4];
    for (at, number) in places.into_iter().zip(numbers) {
        let new = number.to_be_bytes();
        delta.bytes(false, &head[at..at + 4], &new);
        head[at..at + 4].copy_from_slice(&new);
    }
    let checksum = delta.apply([head[CHECKSUM], head[CHECKSUM + 1]]);
    head[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum);
}

/// Source and destination of a frame.
fn ends(frame: &[u8]) -> [Endpoint; 2] {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let address = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
    [0, 1].map(|end| Endpoint { address: address(ADDRESSES + 4 * end), port: word(TRANSPORT + 2 * end) })
}

/// A frame as Linux would send it.
fn frame([from, to]: [Endpoint; 2], flags: u8, numbers: [u32; 4], payload: &[u8]) -> Vec<u8> {
    let [seq, ack, time, echo] = numbers;
    let times = (8, [time.to_be_bytes(), echo.to_be_bytes()].concat());
    let nop = (1, Vec::new());
    let is_syn = flags & SYN != 0;
    let options = match is_syn {
        true => {
            vec![(2, (SEGMENT as u16 + 12).to_be_bytes().to_vec()), (4, Vec::new()), times, nop, (3, vec![7])]
        }
        false => vec![nop.clone(), nop, times],
    };
    let options_len = if is_syn { 20 } else { 12 };
    let header = PacketHeader {
        source: from.address.into(),
        destination: to.address.into(),
        sport: from.port,
        dport: to.port,
        proto: TCP,
        flags,
        window: if is_syn { 64_240 } else { 501 },
        serial: u64::from(seq) << 32 | u64::from(ack),
        options,
        length: (20 + 20 + options_len + payload.len()) as u16,
        ..PacketHeader::default()
    };
    let mut frame = header.frame();
    if let Some(place) = frame.get_mut(HEAD..).filter(|place| place.len() == payload.len()) {
        let mut delta = ChecksumDelta::default();
        delta.bytes(false, place, payload);
        place.copy_from_slice(payload);
        let checksum = delta.apply([frame[CHECKSUM], frame[CHECKSUM + 1]]);
        frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum);
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_packet::checksum::{Soundness, transport_soundness};
    use mmb_packet::parse::parse;
    use mmb_packet::{Packet, ParserLimits};

    const TRAINS: Trains = Trains { segments: 4, in_flight: 2 };

    /// Sequence number, end, and acknowledgment number of each packet of a round, and whether clients sent it.
    fn sent(round: &mut Round) -> Vec<(bool, u32, u32, u32)> {
        let each = |packet: Packet<'_>| {
            let layout = parse(&packet, &ParserLimits::default()).expect("a sound packet");
            assert_eq!(transport_soundness(packet.bytes(), &layout), Soundness::Right);
            let number =
                |at: usize| u32::from_be_bytes(packet.bytes()[at..at + 4].try_into().expect("four bytes"));
            let length = layout.payload_range().len() as u32;
            (
                packet.port == CLIENTS,
                number(NUMBERS),
                number(NUMBERS).wrapping_add(length),
                number(NUMBERS + 4),
            )
        };
        round.arena.packets().map(each).collect()
    }

    #[test]
    fn streams_go_on_from_round_to_round() {
        let flows = flows(3, 7);
        let mut round = Round::new(&flows, TRAINS, &text(3 * TRAINS.segments, 7));
        let mut next: Vec<u32> = flows.iter().map(|flow| flow.isn[0].wrapping_add(1)).collect();
        let mut acked = next.clone();
        for number in 0..3 {
            let mut packets = sent(&mut round).into_iter();
            for (train, next) in next.iter_mut().enumerate() {
                for (_, seq, end, _) in packets.by_ref().take(4) {
                    assert_eq!((seq, end), (*next, next.wrapping_add(SEGMENT as u32)));
                    *next = end;
                }
                // The train before the last one.
                let other = (train + 1) % 3;
                for (is_client, seq, end, ack) in packets.by_ref().take(2) {
                    assert!(!is_client && seq == end && seq == flows[other].isn[1].wrapping_add(1));
                    let step = if number == 0 && train < 2 { 0 } else { 2 * SEGMENT as u32 };
                    acked[other] = acked[other].wrapping_add(step);
                    assert_eq!(ack, acked[other], "round {number}, train {train}");
                }
            }
            assert_eq!(packets.len(), 0);
            round.advance();
        }
        assert_eq!(next[0].wrapping_sub(acked[0]), 0, "its acknowledgments come behind the last train");
    }
}

//! Frames: some match the rules of a policy, the others come from a background; no two of them are equal.

use crate::allocation::Allocation;
use crate::fulfil::fulfil;
use crate::header::{PacketHeader, any_address};
use crate::rules::TRANSPORTS;
use crate::rules::options::KINDS;
use crate::zipf::ZipfRanks;
use mmb_packet::proto::{GRE, ICMP, ICMP6, SCTP, TCP, UDP};
use mmb_policy::Rule;
use mmb_random::RepeatableRandom;

/// Protocols other than TCP, UDP and ICMP; ESP and OSPF are 50 and 89.
const OTHERS: [u8; 4] = [GRE, SCTP, 50, 89];
const SERVICES: [u16; 8] = [53, 80, 123, 443, 443, 853, 5060, 8080];
/// The most frequent lengths of IP packets: acknowledgments, small packets, full packets.
const LENGTHS: [(u16, u32); 5] = [(52, 40), (0, 15), (576, 10), (1420, 10), (1500, 25)];

/// Packets that do not depend on the rules.
#[derive(Clone, Debug)]
pub enum Background {
    /// Of a private network with a few services, UDP and TCP in halves, one in eight over IPv6.
    Mixed,
    /// The same, one protocol and one family only (`true`: IPv6).
    Plain(u8, bool),
    /// Addresses, ports, TTL and DSCP random, TCP and UDP in halves, IPv4.
    Uniform,
    /// The same, IPv6.
    Uniform6,
    /// Random headers of all kinds: IPv4, one in four IPv6; TCP with and without options, UDP, ICMP and other protocols.
    Various,
    /// Random, with the lengths and the TTLs of real packets.
    Lengths,
    /// TCP with three to five options.
    Options,
    /// Addresses that cluster.
    Clustered(Allocation),
}

/// The kind of packets, and the share of them that match rules.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The source of the other packets.
    pub background: Background,
    /// The share of packets, 0 to 1, that match a rule: each one a random rule.
    pub hit: f64,
    /// How packets share headers.
    pub flows: FlowPattern,
    /// The seed.
    pub seed: u64,
}

/// How packets share headers. Packets with the same header differ in their payload, or in TCP's sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowPattern {
    /// Each packet has a header of its own.
    Distinct,
    /// Headers come in trains whose lengths are Pareto-distributed (as in ClassBench, shape 1).
    Trains,
    /// Each packet has one of `flows` headers, at least one, independently of the other packets: the header of rank r, from 1,
    /// with a probability in proportion to 1 / r^`skew`.
    Zipf {
        /// The number of headers.
        flows: usize,
        /// The exponent.
        skew: f64,
    },
}

/// Frames, and their origin.
#[derive(Clone, Debug)]
pub struct Frames {
    /// Ethernet frames with valid checksums.
    pub frames: Vec<Vec<u8>>,
    /// The number of headers that were generated: one for each frame, or one for each flow.
    pub headers: usize,
    /// The number of them that were generated from a rule.
    pub drawn: usize,
}

impl Traffic {
    /// Generates `count` frames. `rules` yields the `size` rules of the policy; if no packet can be made for a rule, the
    /// background takes its place.
    pub fn frames(&self, count: usize, rules: impl Iterator<Item = Rule>, size: usize) -> Frames {
        let mut random = RepeatableRandom::for_purpose(self.seed, "packets");
        let distinct = match self.flows {
            FlowPattern::Distinct | FlowPattern::Trains => count,
            FlowPattern::Zipf { flows, .. } => flows,
        };
        let (headers, drawn) = self.headers(distinct, rules, size, &mut random);
        let order = self.flows.order(count, &mut random);
        let frames = order.into_iter().enumerate().map(|(number, place)| {
            let mut header = headers[place as usize].clone();
            header.serial = (random.word() & !0xffff_ffff) | number as u64;
            header.frame()
        });
        Frames { frames: frames.collect(), headers: distinct, drawn }
    }

    /// Generates `count` headers; returns the number of those that were generated from a rule too.
    fn headers(
        &self,
        count: usize,
        rules: impl Iterator<Item = Rule>,
        size: usize,
        random: &mut RepeatableRandom,
    ) -> (Vec<PacketHeader>, usize) {
        let mut headers: Vec<Option<PacketHeader>> = vec![None; count];
        let mut drawn = 0;
        for (rule, packets) in picks(count, size, self.hit, random).in_order_of(rules) {
            for packet in packets {
                let base = self.background.header(packet, random);
                headers[packet] = fulfil(&rule, base, random);
                drawn += usize::from(headers[packet].is_some());
            }
        }
        let headers = headers.into_iter().enumerate();
        let headers = headers.map(|(n, header)| header.unwrap_or_else(|| self.background.header(n, random)));
        (headers.collect(), drawn)
    }
}

impl FlowPattern {
    /// The index of the header of each of `count` packets.
    fn order(self, count: usize, random: &mut RepeatableRandom) -> Vec<u32> {
        match self {
            FlowPattern::Distinct => (0..count as u32).collect(),
            FlowPattern::Trains => in_trains(count, random),
            FlowPattern::Zipf { flows, skew } => {
                let ranks = ZipfRanks::new(flows, skew);
                (0..count).map(|_| ranks.draw(random) as u32).collect()
            }
        }
    }
}

/// The assignment of packets to rules.
struct Picks(Vec<(usize, usize)>);

/// Assigns a rule or none to each packet.
fn picks(count: usize, size: usize, hit: f64, random: &mut RepeatableRandom) -> Picks {
    let mut picks = Vec::new();
    for packet in 0..count {
        if size > 0 && random.chance(hit) {
            picks.push((random.below(size as u64) as usize, packet));
        }
    }
    picks.sort_unstable();
    Picks(picks)
}

impl Picks {
    /// Each rule with assigned packets, and these packets: rules are generated once, in their order.
    fn in_order_of(self, rules: impl Iterator<Item = Rule>) -> impl Iterator<Item = (Rule, Vec<usize>)> {
        let mut picks = self.0.into_iter().peekable();
        rules.enumerate().filter_map(move |(number, rule)| {
            let mut packets = Vec::new();
            while let Some((_, packet)) = picks.next_if(|(wanted, _)| *wanted == number) {
                packets.push(packet);
            }
            (!packets.is_empty()).then_some((rule, packets))
        })
    }
}

/// Repeats the indices of headers in trains; the number of packets stays the same.
fn in_trains(count: usize, random: &mut RepeatableRandom) -> Vec<u32> {
    let mut trains = Vec::with_capacity(count);
    for header in 0..count as u32 {
        let length = (1.0 / (1.0 - random.unit())) as usize;
        trains.extend(std::iter::repeat_n(header, length.min(count - trains.len())));
    }
    trains
}

impl Background {
    /// A packet; `number` is its index in the traffic.
    fn header(&self, number: usize, random: &mut RepeatableRandom) -> PacketHeader {
        match self {
            Background::Mixed => {
                let proto = random.of(&TRANSPORTS);
                plain(number, proto, random.below(8) == 0, random)
            }
            Background::Plain(proto, six) => plain(number, *proto, *six, random),
            Background::Uniform => uniform(false, random),
            Background::Uniform6 => uniform(true, random),
            Background::Various => various(random),
            Background::Lengths => PacketHeader {
                length: random.weighted(&LENGTHS),
                ttl: random.of(&[64_u8, 128, 255]) - random.below(30) as u8,
                ..uniform(false, random)
            },
            Background::Options => with_options(number, random),
            Background::Clustered(allocation) => PacketHeader {
                source: allocation.address(random).into(),
                destination: allocation.address(random).into(),
                ..uniform(false, random)
            },
        }
    }
}

/// Addresses of 10.0.0.0/8 and 172.16.0.0/12 (IPv6: fd00::/8), ports above 1023 towards a few well-known ones. One in eight TCP
/// segments is a SYN with typical options, the others have timestamps.
fn plain(number: usize, proto: u8, six: bool, random: &mut RepeatableRandom) -> PacketHeader {
    let syn = proto == TCP && random.below(8) == 0;
    let host = random.below(1 << 20);
    let number = number as u128;
    let (source, destination) = if six {
        (0xfd00 << 112 | number, 0xfd00 << 112 | 1 << 32 | u128::from(host))
    } else {
        (0x0a00_0000 | number & 0x00ff_ffff, u128::from(0xac10_0000 | host))
    };
    let timestamp = (8, vec![0, 1, 2, 3, 0, 4, 5, 6]);
    let options = match (proto, syn) {
        (UDP, _) => Vec::new(),
        (_, true) => vec![(2, vec![5, 180]), (4, Vec::new()), timestamp, (1, Vec::new()), (3, vec![7])],
        (_, false) => vec![(1, Vec::new()), (1, Vec::new()), timestamp],
    };
    PacketHeader {
        six,
        source,
        destination,
        id: random.word() as u16,
        proto,
        sport: 1024 + random.below(64_512) as u16,
        dport: random.of(&SERVICES),
        flags: if syn { 0x02 } else { 0x18 },
        options,
        // 64 bytes of payload after the timestamps.
        length: if proto == TCP && !syn { if six { 136 } else { 116 } } else { 0 },
        ..PacketHeader::default()
    }
}

fn uniform(six: bool, random: &mut RepeatableRandom) -> PacketHeader {
    PacketHeader {
        six,
        source: any_address(six, random),
        destination: any_address(six, random),
        tos: random.word() as u8,
        ttl: random.within(1, 255) as u8,
        id: random.word() as u16,
        proto: random.of(&TRANSPORTS),
        sport: random.word() as u16,
        dport: random.word() as u16,
        ..PacketHeader::default()
    }
}

/// Of eight packets, on average, four are TCP, half of them with timestamps, two UDP, one ICMP and one of another protocol.
fn various(random: &mut RepeatableRandom) -> PacketHeader {
    let six = random.below(4) == 0;
    let mut header = uniform(six, random);
    let icmp = if six { ICMP6 } else { ICMP };
    header.proto = random.weighted(&[(TCP, 4), (UDP, 2), (icmp, 1), (0, 1)]);
    if header.proto == 0 {
        header.proto = random.of(&OTHERS);
    }
    if header.proto == TCP && random.below(2) == 0 {
        header.options = vec![(1, Vec::new()), (1, Vec::new()), (8, random.word().to_be_bytes().to_vec())];
    }
    header
}

/// Some frequent options and some of random kinds and values: three to five in all.
fn with_options(number: usize, random: &mut RepeatableRandom) -> PacketHeader {
    let mut usual =
        vec![(2, vec![5, 180]), (3, vec![7]), (4, Vec::new()), (8, random.word().to_be_bytes().to_vec())];
    random.shuffle(&mut usual);
    usual.truncate(random.within(1, 3) as usize);
    let count = random.within(3, 5) as usize;
    while usual.len() < count {
        let kind = random.within(KINDS.0, KINDS.1) as u8;
        if usual.iter().all(|(other, _)| *other != kind) {
            usual.push((kind, (random.word() as u16).to_be_bytes().to_vec()));
        }
    }
    random.shuffle(&mut usual);
    PacketHeader { options: usual, length: 0, ..plain(number, TCP, false, random) }
}

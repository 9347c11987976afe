//! Packets for measurements: as different from each other as those of many flows, the same for the same seed.
//!
//! Addresses are of 10.0.0.0/8 and 172.16.0.0/12 (on IPv6 of fd00::/8), ports above 1023 towards a few well-known
//! ones. UDP packets are the smallest that Ethernet knows (64 bytes with their checksum, which is not in memory). Of
//! the TCP segments one in eight is a SYN with the options of a usual one, the others carry timestamps.

use super::arena::Arena;
use crate::cli::Traffic;
use mmb_packet::LinkType;
use mmb_packet::checksum::{Sum, pseudo4, pseudo6};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SERVICES: [u16; 8] = [53, 80, 123, 443, 443, 853, 5060, 8080];
const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
const SYN_OPTIONS: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 0, 1, 2, 3, 0, 0, 0, 0, 1, 3, 3, 7];
const OPTIONS: [u8; 12] = [1, 1, 8, 10, 0, 1, 2, 3, 0, 4, 5, 6];

/// That many packets, no two of them the same.
pub(super) fn packets(count: u32, traffic: Traffic, seed: u64) -> Arena {
    let mut random = Random(seed);
    let mut arena = Arena::default();
    for number in 0..count {
        let (six, proto) = match traffic {
            Traffic::Udp => (false, UDP),
            Traffic::Tcp => (false, TCP),
            Traffic::Udp6 => (true, UDP),
            Traffic::Tcp6 => (true, TCP),
            Traffic::Mixed => (random.below(8) == 0, if random.below(2) == 0 { UDP } else { TCP }),
        };
        let frame = if six { frame6(number, proto, &mut random) } else { frame4(number, proto, &mut random) };
        arena.push(&frame, LinkType::Ethernet);
    }
    arena
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }
}

/// The packet's number is in its source address, so that no two are the same.
fn frame4(number: u32, proto: u8, random: &mut Random) -> Vec<u8> {
    let source = (0x0a00_0000 | number & 0x00ff_ffff).to_be_bytes();
    let destination = (0xac10_0000 | random.below(1 << 20)).to_be_bytes();
    let mut segment = segment(proto, 14 + 20, random);
    let len = segment.len() as u16;
    sum_up(&mut segment, proto, pseudo4(source, destination, proto, len));
    let id = random.below(1 << 16) as u16;
    let mut header = vec![0x45, 0];
    header.extend((20 + len).to_be_bytes());
    header.extend(id.to_be_bytes());
    header.extend([0x40, 0, 64, proto, 0, 0]);
    header.extend(source);
    header.extend(destination);
    let checksum = Sum::default().bytes(&header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&ETHERNET[..], &[0x08, 0x00], &header, &segment].concat()
}

fn frame6(number: u32, proto: u8, random: &mut Random) -> Vec<u8> {
    let address = |host: u64| (0xfd00_u128 << 112 | u128::from(host)).to_be_bytes();
    let (source, destination) =
        (address(u64::from(number)), address(1 << 32 | u64::from(random.below(1 << 20))));
    let mut segment = segment(proto, 14 + 40, random);
    let len = segment.len() as u16;
    sum_up(&mut segment, proto, pseudo6(source, destination, proto, len.into()));
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(len.to_be_bytes());
    header.extend([proto, 64]);
    header.extend(source);
    header.extend(destination);
    [&ETHERNET[..], &[0x86, 0xdd], &header, &segment].concat()
}

/// A transport header with its payload; the frame is at least 60 bytes long with it. The checksum is 0 as yet.
fn segment(proto: u8, in_front: usize, random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((1024 + random.below(64_512) as u16).to_be_bytes());
    out.extend(SERVICES[random.below(8) as usize].to_be_bytes());
    let payload = if proto == UDP {
        let payload = 60_usize.saturating_sub(in_front + 8).max(4);
        out.extend((8 + payload as u16).to_be_bytes());
        out.extend([0, 0]);
        payload
    } else {
        let syn = random.below(8) == 0;
        let (options, flags, payload) =
            if syn { (&SYN_OPTIONS[..], 0x02, 0) } else { (&OPTIONS[..], 0x18, 64) };
        out.extend(random.next().to_be_bytes());
        out.extend([(((20 + options.len()) / 4) << 4) as u8, flags, 0x20, 0, 0, 0, 0, 0]);
        out.extend(options);
        payload
    };
    out.extend((0..payload).map(|n| n as u8));
    out
}

fn sum_up(segment: &mut [u8], proto: u8, pseudo: Sum) {
    let at = if proto == UDP { 6 } else { 16 };
    let checksum = pseudo.bytes(segment).checksum();
    let checksum = if proto == UDP && checksum == 0 { 0xffff } else { checksum };
    segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_packet::checksum::transport_sum;
    use mmb_packet::{Limits, parse};
    use std::collections::HashSet;

    #[test]
    fn packets_are_sound_and_distinct() {
        for traffic in [Traffic::Mixed, Traffic::Udp, Traffic::Tcp, Traffic::Udp6, Traffic::Tcp6] {
            let mut arena = packets(5000, traffic, 1);
            arena.restore();
            let mut seen = HashSet::new();
            for packet in arena.packets() {
                let layout = parse::parse(&packet, &Limits::default()).expect("sound");
                let sum = transport_sum(packet.bytes(), &layout).expect("a transport header");
                assert_eq!(sum.fold(), 0xffff);
                assert!(packet.len() >= 60);
                assert!(seen.insert(packet.bytes().to_vec()), "twice the same");
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same_packets() {
        let bytes = |seed| {
            let mut arena = packets(100, Traffic::Mixed, seed);
            arena.restore();
            arena.packets().map(|packet| packet.bytes().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(bytes(3), bytes(3));
        assert_ne!(bytes(3), bytes(4));
    }
}

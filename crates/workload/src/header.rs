//! One packet as plain numbers, and its bytes.

use mmb_packet::checksum::{ChecksumSum, pseudo4, pseudo6};
use mmb_packet::options::{END, MAX_AREA, NOP};
use mmb_packet::proto::{ICMP, ICMP6, TCP, UDP};
use mmb_random::RepeatableRandom;

/// The minimum length of an Ethernet frame without its checksum.
const SHORTEST_FRAME: usize = 60;
const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
const IP4_HEADER: usize = 20;
const IP6_HEADER: usize = 40;

/// The fields of a packet. Lengths and checksums follow from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// IPv6 instead of IPv4.
    pub six: bool,
    /// The source address; of IPv4 in the low 32 bits.
    pub source: u128,
    /// The destination address; of IPv4 in the low 32 bits.
    pub destination: u128,
    /// DSCP and ECN; on IPv6 the traffic class.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Identification of IPv4; the flow label's low bits of IPv6.
    pub id: u16,
    /// The IP protocol. TCP, UDP, ICMP and ICMPv6 get their headers, others 8 bytes of payload.
    pub proto: u8,
    /// The source port.
    pub sport: u16,
    /// The destination port.
    pub dport: u16,
    /// ICMP type and code; by default an echo request.
    pub icmp: Option<(u8, u8)>,
    /// TCP flags.
    pub flags: u8,
    /// The four bits above the TCP flags.
    pub reserved: u8,
    /// The TCP window.
    pub window: u16,
    /// Sequence and acknowledgment number of TCP: 8 bytes that make packets distinct.
    pub serial: u64,
    /// TCP options, kind and data, in their order.
    pub options: Vec<(u8, Vec<u8>)>,
    /// The minimum TCP data offset in words; padding fills the space after the options.
    pub offset: u8,
    /// Length of the IP packet with its header, or the nearest possible length; 0: the length that fills the smallest frame.
    pub length: u16,
}

impl Default for PacketHeader {
    /// The smallest UDP packet over IPv4, with addresses and ports of zero.
    fn default() -> PacketHeader {
        PacketHeader {
            six: false,
            source: 0,
            destination: 0,
            tos: 0,
            ttl: 64,
            id: 0,
            proto: UDP,
            sport: 0,
            dport: 0,
            icmp: None,
            flags: 0x10,
            reserved: 0,
            window: 8192,
            serial: 0,
            options: Vec::new(),
            offset: 5,
            length: 0,
        }
    }
}

impl PacketHeader {
    /// The frame: Ethernet, IP, transport, payload, with valid checksums.
    pub fn frame(&self) -> Vec<u8> {
        let mut segment = self.transport();
        let head = if self.six { IP6_HEADER } else { IP4_HEADER };
        let wanted = if self.length == 0 { SHORTEST_FRAME - 14 } else { usize::from(self.length) };
        segment.extend((0..wanted.saturating_sub(head + segment.len())).map(|n| n as u8));
        self.sum_up(&mut segment);
        let mut frame = ETHERNET.to_vec();
        if self.six {
            self.push_ip6(&mut frame, segment.len())
        } else {
            self.push_ip4(&mut frame, segment.len())
        }
        frame.extend(segment);
        frame.resize(frame.len().max(SHORTEST_FRAME), 0);
        frame
    }

    fn push_ip4(&self, frame: &mut Vec<u8>, behind: usize) {
        frame.extend([0x08, 0x00]);
        let start = frame.len();
        frame.extend([0x45, self.tos]);
        frame.extend(((IP4_HEADER + behind) as u16).to_be_bytes());
        frame.extend(self.id.to_be_bytes());
        frame.extend([0x40, 0, self.ttl, self.proto, 0, 0]);
        frame.extend((self.source as u32).to_be_bytes());
        frame.extend((self.destination as u32).to_be_bytes());
        let checksum = ChecksumSum::default().bytes(&frame[start..]).checksum();
        frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn push_ip6(&self, frame: &mut Vec<u8>, behind: usize) {
        frame.extend([0x86, 0xdd]);
        frame.extend((0x6000_0000 | u32::from(self.tos) << 20 | u32::from(self.id)).to_be_bytes());
        frame.extend((behind as u16).to_be_bytes());
        frame.extend([self.proto, self.ttl]);
        frame.extend(self.source.to_be_bytes());
        frame.extend(self.destination.to_be_bytes());
    }

    /// The transport header, with a checksum of 0; includes UDP's length.
    fn transport(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.proto {
            TCP => {
                let area = self.option_area();
                out.extend(self.sport.to_be_bytes());
                out.extend(self.dport.to_be_bytes());
                out.extend(self.serial.to_be_bytes());
                out.push((((20 + area.len()) / 4) << 4) as u8 | self.reserved & 15);
                out.push(self.flags);
                out.extend(self.window.to_be_bytes());
                out.extend([0; 4]);
                out.extend(area);
            }
            UDP => {
                out.extend(self.sport.to_be_bytes());
                out.extend(self.dport.to_be_bytes());
                out.extend([0; 4]);
                // The bytes that make the packet distinct.
                out.extend(self.serial.to_be_bytes());
            }
            ICMP | ICMP6 => {
                let (kind, code) = self.icmp.unwrap_or((if self.proto == ICMP { 8 } else { 128 }, 0));
                out.extend([kind, code, 0, 0]);
                out.extend(self.serial.to_be_bytes());
            }
            _ => out.extend(self.serial.to_be_bytes()),
        }
        out
    }

    /// The options that fit, padded to words and to the wanted offset.
    fn option_area(&self) -> Vec<u8> {
        let mut area = Vec::new();
        for (kind, data) in &self.options {
            let len = if *kind <= NOP { 1 } else { 2 + data.len() };
            if area.len() + len > MAX_AREA {
                break;
            }
            area.push(*kind);
            if *kind > NOP {
                area.push(len as u8);
                area.extend(data);
            }
        }
        area.resize(area.len().next_multiple_of(4), NOP);
        area.resize(area.len().max(usize::from(self.offset.clamp(5, 15) - 5) * 4), END);
        area
    }

    fn sum_up(&self, segment: &mut [u8]) {
        let len = segment.len();
        let at = match self.proto {
            TCP => 16,
            UDP => {
                segment[4..6].copy_from_slice(&(len as u16).to_be_bytes());
                6
            }
            ICMP | ICMP6 => 2,
            _ => return,
        };
        let pseudo = match (self.proto, self.six) {
            (ICMP, _) => ChecksumSum::default(),
            (_, true) => {
                pseudo6(self.source.to_be_bytes(), self.destination.to_be_bytes(), self.proto, len as u32)
            }
            (_, false) => pseudo4(
                (self.source as u32).to_be_bytes(),
                (self.destination as u32).to_be_bytes(),
                self.proto,
                len as u16,
            ),
        };
        let checksum = match pseudo.bytes(segment).checksum() {
            0 if self.proto == UDP => 0xffff,
            checksum => checksum,
        };
        segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Changes the family of the packet; the addresses are lost.
    pub(crate) fn change_family(&mut self, six: bool, random: &mut RepeatableRandom) {
        if self.six != six {
            self.six = six;
            (self.source, self.destination) = (any_address(six, random), any_address(six, random));
        }
    }
}

/// Any unicast address; of IPv6 any global one.
pub(crate) fn any_address(six: bool, random: &mut RepeatableRandom) -> u128 {
    if six { 0b001 << 125 | random.wide() >> 3 } else { random.within(0x0100_0000, 0xdfff_ffff) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_packet::checksum::transport_sum;
    use mmb_packet::{LinkType, Packet, ParserLimits, PortId, parse};

    #[test]
    fn frames_are_sound_and_as_long_as_asked() {
        for six in [false, true] {
            for (proto, length) in [(TCP, 0), (TCP, 1400), (UDP, 0), (UDP, 61), (ICMP6, 200), (47, 100)] {
                let options = vec![(2, vec![5, 180]), (254, vec![1; 20]), (77, vec![9; 30])];
                let header = PacketHeader { six, proto, length, options, ..PacketHeader::default() };
                let mut frame = header.frame();
                let len = frame.len();
                assert!(len >= SHORTEST_FRAME);
                if length > 60 {
                    assert_eq!(len, usize::from(length) + 14, "{proto}");
                }
                let packet = Packet::new(&mut frame, 0, len, PortId(0), LinkType::Ethernet).expect("fits");
                let layout = parse::parse(&packet, &ParserLimits::default()).expect("sound");
                if let Some(sum) = transport_sum(packet.bytes(), &layout) {
                    assert_eq!(sum.fold(), 0xffff, "{proto} {six}");
                }
                assert_eq!(layout.tcp_options().len(), if proto == TCP { 28 } else { 0 });
            }
        }
    }

    #[test]
    fn an_offset_beyond_the_options_is_padded() {
        let header =
            PacketHeader { proto: TCP, offset: 9, options: vec![(4, Vec::new())], ..PacketHeader::default() };
        assert_eq!(header.frame()[14 + 20 + 12] >> 4, 9);
    }
}

//! The straight run for what most packets are: untagged Ethernet or no link header, an IPv4 header of 20 bytes or an IPv6 header
//! without extensions, a whole TCP or UDP segment. Places are counted as behind an Ethernet header, and put right in the end.
//!
//! A vector's candidates are laid out as columns, one 32-bit word of all packets side by side, in the places that these
//! words have in header keys. So [`PlainCandidates::check`] looks at as many packets at once as a register holds, without a
//! branch, and what it has looked at needs not be gathered again for the classifier. It decides only that a packet is
//! plain; what is not has to be walked.

use crate::key::{ETH_TYPE, IP, L4, L4_KIND, LANE, LANES4, Lanes, PAYLOAD_LEN, PROTO, flags};
use crate::layout::{Class, ETHER_IP4, ETHER_IP6, IP4_HEADER, IP6_HEADER, Layout, SHORT_HEADER, TCP_HEADER};
use crate::proto::{TCP, UDP};
use crate::view::{LinkType, Packet};

/// Offset of the IP header behind an untagged Ethernet header.
const AT: usize = 14;
/// What every candidate has: its IP header and the shorter of the transport headers.
const FIXED_IP4: usize = IP4_HEADER + SHORT_HEADER;
const FIXED_IP6: usize = IP6_HEADER + SHORT_HEADER;
/// The rest of the longer one.
const TAIL: usize = TCP_HEADER - SHORT_HEADER;

/// The lane of a byte of the key.
const fn lane(byte: usize) -> usize {
    byte / LANE
}

/// Packets that are checked together.
const BLOCK: usize = 16;

/// What a packet may be, by its first bytes and its length.
pub(super) enum PlainCandidate<'a> {
    /// A plain IPv4 packet.
    Ip4(PlainHead<'a, FIXED_IP4>),
    /// A plain IPv6 packet.
    Ip6(PlainHead<'a, FIXED_IP6>),
}

/// The bytes of a packet that are looked at.
pub(super) struct PlainHead<'a, const N: usize> {
    fixed: &'a [u8; N],
    /// What follows; nothing if it is too short for TCP.
    tail: Option<&'a [u8; TAIL]>,
    /// With an Ethernet header.
    len: usize,
    /// Bytes of that header which are not there.
    lacks: u16,
}

impl<'a> PlainCandidate<'a> {
    /// A packet's first bytes if it may be plain.
    #[inline(always)]
    pub(super) fn of(packet: &'a Packet<'_>) -> Option<PlainCandidate<'a>> {
        let bytes = packet.bytes();
        let (ether, bytes, lacks) = match packet.link {
            LinkType::Ethernet => {
                let (link, bytes) = bytes.split_first_chunk::<AT>()?;
                (u16::from_be_bytes([link[12], link[13]]), bytes, 0)
            }
            LinkType::RawIp if *bytes.first()? >> 4 == 6 => (ETHER_IP6, bytes, AT),
            LinkType::RawIp => (ETHER_IP4, bytes, AT),
            LinkType::Sll | LinkType::Sll2 => return None,
        };
        let (len, lacks) = (AT + bytes.len(), lacks as u16);
        match ether {
            ETHER_IP4 => {
                let (fixed, rest) = bytes.split_first_chunk()?;
                Some(PlainCandidate::Ip4(PlainHead { fixed, tail: rest.first_chunk(), len, lacks }))
            }
            ETHER_IP6 => {
                let (fixed, rest) = bytes.split_first_chunk()?;
                Some(PlainCandidate::Ip6(PlainHead { fixed, tail: rest.first_chunk(), len, lacks }))
            }
            _ => None,
        }
    }
}

impl<const N: usize> PlainHead<'_, N> {
    /// Puts the words into the columns.
    #[inline(always)]
    fn spread<const V: usize, const L: usize>(&self, lanes: &mut [[u32; V]; L], key: usize) {
        // Loops that are known when compiled: they unroll.
        let words = |bytes: &[u8], at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        for number in 0..(N - SHORT_HEADER) / LANE {
            lanes[lane(IP) + number][key] = words(self.fixed, number * LANE);
        }
        for number in 0..SHORT_HEADER / LANE {
            lanes[lane(L4) + number][key] = words(self.fixed, N - SHORT_HEADER + number * LANE);
        }
        let tail = self.tail.unwrap_or(&[0; TAIL]);
        for number in 0..TAIL / LANE {
            lanes[lane(L4 + SHORT_HEADER) + number][key] = words(tail, number * LANE);
        }
    }
}

/// Candidates of one IP version in a vector of at most `V` packets: what is known of them but for their lanes.
#[derive(Clone, Debug)]
pub(super) struct PlainCandidates<const V: usize> {
    /// Length of the frame.
    lengths: [u32; V],
    /// Bytes of its link header that are not there.
    lacks: [u16; V],
    /// Offset of the end of the IP packet; 0 if the packet is not plain.
    ends: [u32; V],
    payloads: [u32; V],
    payload_ends: [u32; V],
    /// The first lane of the key: family, kind, flags.
    heads: [u32; V],
}

impl<const V: usize> Default for PlainCandidates<V> {
    fn default() -> Self {
        let none = [0; V];
        PlainCandidates {
            lengths: none,
            lacks: [0; V],
            ends: none,
            payloads: none,
            payload_ends: none,
            heads: none,
        }
    }
}

impl<const V: usize> PlainCandidates<V> {
    /// Takes the words of a packet as candidate number `key`.
    #[inline(always)]
    pub(super) fn take<const N: usize, const L: usize>(
        &mut self,
        head: &PlainHead<'_, N>,
        lanes: &mut [[u32; V]; L],
        key: u8,
    ) {
        self.lengths[usize::from(key)] = head.len as u32;
        self.lacks[usize::from(key)] = head.lacks;
        head.spread(lanes, usize::from(key));
    }

    /// Checks the first `len` candidates, and completes those of the `wanted` lanes of their keys that follow from
    /// the packet alone: all but the ports'. The lanes are those of IPv4 or IPv6 by their number.
    #[inline(always)]
    pub(super) fn check<const L: usize>(&mut self, lanes: &mut [[u32; V]; L], len: usize, wanted: Lanes) {
        for block in 0..len.div_ceil(BLOCK).min(V / BLOCK) {
            self.check_block(lanes, block, wanted);
        }
    }

    #[inline(always)]
    fn check_block<const L: usize>(&mut self, lanes: &mut [[u32; V]; L], block: usize, wanted: Lanes) {
        let column = |lane: usize| lanes[lane].as_chunks::<BLOCK>().0[block];
        let [first, second, third] = std::array::from_fn(|word| column(lane(IP) + word));
        let [lengths4, offsets] = [column(lane(L4) + 1), column(lane(L4) + 3)];
        let lengths = self.lengths.as_chunks::<BLOCK>().0[block];
        let mut sums = [0xffff; BLOCK];
        if L == LANES4 {
            let words: [[u32; BLOCK]; IP4_HEADER / LANE] =
                std::array::from_fn(|word| column(lane(IP) + word));
            sums =
                std::array::from_fn(|i| words.iter().map(|word| (word[i] & 0xffff) + (word[i] >> 16)).sum());
        }
        let [mut ends, mut payloads, mut payload_ends, mut heads, mut protos] = [[0; BLOCK]; 5];
        for i in 0..BLOCK {
            let header = match L {
                LANES4 => PlainHeader::ip4(first[i], second[i], third[i], sums[i]),
                _ => PlainHeader::ip6(first[i], second[i]),
            };
            let segment = header.segment(lengths4[i], offsets[i], lengths[i]);
            protos[i] = header.proto;
            ends[i] = segment.end;
            payloads[i] = segment.payload;
            payload_ends[i] = segment.payload_end;
            heads[i] = segment.head;
        }
        self.ends.as_chunks_mut::<BLOCK>().0[block] = ends;
        self.payloads.as_chunks_mut::<BLOCK>().0[block] = payloads;
        self.payload_ends.as_chunks_mut::<BLOCK>().0[block] = payload_ends;
        self.heads.as_chunks_mut::<BLOCK>().0[block] = heads;

        let mut put =
            |lane: usize, words: [u32; BLOCK]| lanes[lane].as_chunks_mut::<BLOCK>().0[block] = words;
        if wanted.has(lane(L4_KIND)) {
            put(lane(L4_KIND), heads);
        }
        if wanted.has(lane(ETH_TYPE)) {
            let ether = if L == LANES4 { ETHER_IP4 } else { ETHER_IP6 };
            put(lane(ETH_TYPE), [(u32::from(ether) << 16).to_be(); BLOCK]);
        }
        if wanted.has(lane(PROTO)) {
            put(lane(PROTO), protos.map(|proto| (proto << 24).to_be()));
        }
        if wanted.has(lane(PAYLOAD_LEN)) {
            let length = |i: usize| payload_ends[i].wrapping_sub(payloads[i]) << 16;
            put(lane(PAYLOAD_LEN), std::array::from_fn(|i| length(i).to_be()));
        }
        if wanted.any_of(Lanes::range(lane(L4) + 2, lane(PAYLOAD_LEN))) {
            for column in &mut lanes[lane(L4) + 2..lane(PAYLOAD_LEN)] {
                let words = &mut column.as_chunks_mut::<BLOCK>().0[block];
                for (word, &proto) in words.iter_mut().zip(&protos) {
                    *word &= all_if(proto == u32::from(TCP));
                }
            }
        }
        if L == LANES4 && wanted.has(LANES4 - 1) {
            lanes[LANES4 - 1].as_chunks_mut::<BLOCK>().0[block] = [0; BLOCK];
        }
    }

    /// The layout of an IPv4 candidate if it is plain.
    #[inline(always)]
    pub(super) fn layout4(&self, key: u8) -> Option<Layout> {
        let ip = Layout { class: Class::Ip4, eth_type: ETHER_IP4, proto_at: AT as u16 + 9, ..PLAIN_LAYOUT };
        self.layout(key, Layout { l4: (AT + IP4_HEADER) as u16, ..ip })
    }

    /// The layout of an IPv6 candidate if it is plain.
    #[inline(always)]
    pub(super) fn layout6(&self, key: u8) -> Option<Layout> {
        let ip = Layout { class: Class::Ip6, eth_type: ETHER_IP6, proto_at: AT as u16 + 6, ..PLAIN_LAYOUT };
        self.layout(key, Layout { l4: (AT + IP6_HEADER) as u16, ..ip })
    }

    #[inline(always)]
    fn layout(&self, key: u8, ip: Layout) -> Option<Layout> {
        let key = usize::from(key);
        let [_, kind, flags, _] = self.heads[key].to_ne_bytes();
        let (end, payload, payload_end) = (self.ends[key], self.payloads[key] as u16, self.payload_ends[key]);
        let lacks = self.lacks[key];
        (end > 0).then(|| Layout {
            l4_kind: kind,
            proto: kind,
            flags,
            ip: ip.ip - lacks,
            proto_at: ip.proto_at - lacks,
            l4: ip.l4 - lacks,
            payload: payload - lacks,
            end: end - u32::from(lacks),
            payload_end: payload_end - u32::from(lacks),
            ..ip
        })
    }
}

/// What all plain packets have in common.
const PLAIN_LAYOUT: Layout = Layout {
    class: Class::Other,
    l4_kind: 0,
    proto: 0,
    flags: 0,
    eh: 0,
    vlan_tags: 0,
    eth_type: 0,
    ip: AT as u16,
    proto_at: 0,
    l4: 0,
    payload: 0,
    end: 0,
    payload_end: 0,
};

/// What an IP header says; all numbers are as wide as lanes.
#[derive(Clone, Copy)]
struct PlainHeader {
    /// All ones if it is plain.
    plain: u32,
    family: u32,
    proto: u32,
    /// Offset of the transport header.
    l4: u32,
    /// Offset of the end of the packet that it announces.
    end: u32,
}

/// What is known of a whole packet.
struct PlainSegment {
    /// 0 if it is not plain.
    end: u32,
    payload: u32,
    payload_end: u32,
    head: u32,
}

impl PlainHeader {
    /// From the first three words, and the sum of the halves of all five.
    #[inline(always)]
    fn ip4(first: u32, second: u32, third: u32, sum: u32) -> PlainHeader {
        let (first, second, third) = (u32::from_be(first), u32::from_be(second), u32::from_be(third));
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        // Neither more fragments nor an offset.
        let plain = all_if(first >> 24 == 0x45) & all_if(second & 0x3fff == 0) & all_if(sum == 0xffff);
        let end = AT as u32 + (first & 0xffff);
        PlainHeader { plain, family: 4, proto: third >> 16 & 0xff, l4: (AT + IP4_HEADER) as u32, end }
    }

    /// From the first two words.
    #[inline(always)]
    fn ip6(first: u32, second: u32) -> PlainHeader {
        let (first, second) = (u32::from_be(first), u32::from_be(second));
        let l4 = (AT + IP6_HEADER) as u32;
        let plain = all_if(first >> 28 == 6);
        PlainHeader { plain, family: 6, proto: second >> 8 & 0xff, l4, end: l4 + (second >> 16) }
    }

    /// Given the word with the UDP length and that with TCP's data offset, of a frame of `len` bytes.
    #[inline(always)]
    fn segment(self, udp_length: u32, offset: u32, len: u32) -> PlainSegment {
        let PlainHeader { family, proto, l4, end, .. } = self;
        let (tcp, udp) = (all_if(proto == u32::from(TCP)), all_if(proto == u32::from(UDP)));
        let header = (u32::from_be(offset) >> 28 << 2) & tcp | SHORT_HEADER as u32 & udp;
        let payload = l4 + header;
        let long_enough = udp | tcp & all_if(header >= TCP_HEADER as u32);
        let whole = all_if(payload <= end) & all_if(end <= len);
        let plain = self.plain & long_enough & whole;
        let udp_end = (l4 + (u32::from_be(udp_length) >> 16)).max(payload);
        let payload_end = end.min(udp_end | !udp);
        let flags = u32::from(flags::HAS_IP_PAYLOAD)
            | all_if(payload_end > payload) & u32::from(flags::HAS_PAYLOAD)
            | all_if(header > TCP_HEADER as u32) & u32::from(flags::TCP_OPTION_AREA);
        let head = (family << 24 | proto << 16 | flags << 8).to_be();
        PlainSegment { end: end & plain, payload, payload_end, head }
    }
}

/// All ones or nothing.
#[inline(always)]
fn all_if(condition: bool) -> u32 {
    u32::from(condition).wrapping_neg()
}

//! The parse stage: parses a vector of packets, and fills the columns of their header keys.
//!
//! Packets that may be plain come into columns before they are checked: these columns are what the check looks at. Only lanes that some
//! rule asks for are completed.

use super::parse_into;
use super::plain::{PlainCandidate, PlainCandidates};
use crate::columns::{FLOW_FACTS, FLOW_LANES, KeyColumns, WantedLanes};
use crate::key::{IN_PORT, LANE, LANES4, LANES6, Lanes};
use crate::{Class, Layout, Malformed, Packet, ParserLimits, PortId, fill_lanes};
use mmb_base::simd::{Kernel, SimdLevel};
use mmb_base::{VECTOR, prefetch};

/// The lane of the ports' numbers.
const PORTS: usize = IN_PORT / LANE;

/// The prefetch distance in packets.
const AHEAD: usize = 8;

/// Asks for the lines of the headers that all plain packets have.
#[inline(always)]
fn fetch(bytes: &[u8]) {
    for at in [0, 53] {
        if let Some(byte) = bytes.get(at) {
            prefetch(byte);
        }
    }
}

/// The keys of a vector.
#[derive(Clone, Debug)]
pub struct VectorKeys {
    /// IPv4 packets.
    pub ip4: KeyColumns<LANES4>,
    /// IPv6 packets.
    pub ip6: KeyColumns<LANES6>,
    /// Frames that are not IP.
    pub other: KeyColumns<LANES4>,
    candidates4: Box<PlainCandidates<VECTOR>>,
    candidates6: Box<PlainCandidates<VECTOR>>,
    /// Packets that have to be walked.
    walked: Vec<u8>,
    /// Candidates that turned out not to be plain.
    doubtful: Vec<u8>,
}

impl Default for VectorKeys {
    fn default() -> Self {
        VectorKeys {
            ip4: KeyColumns::default(),
            ip6: KeyColumns::default(),
            other: KeyColumns::default(),
            candidates4: Box::default(),
            candidates6: Box::default(),
            walked: Vec::with_capacity(VECTOR),
            doubtful: Vec::with_capacity(VECTOR),
        }
    }
}

/// What parsing a vector needs, and what becomes of it.
#[derive(Debug)]
pub struct ParseVector<'a, 'b, O, M> {
    /// The lanes that the classifier looks at.
    pub wanted: WantedLanes,
    /// Bounds of the parser.
    pub limits: ParserLimits,
    /// All packets of the vector.
    pub packets: &'a [Packet<'b>],
    /// Their layouts, to be written.
    pub layouts: &'a mut [Layout; VECTOR],
    /// Tells the port that a packet leaves by.
    pub out: O,
    /// Is told of each packet that cannot be understood.
    pub malformed: M,
}

impl VectorKeys {
    /// Makes room for the next vector.
    #[inline]
    pub fn clear(&mut self) {
        self.ip4.clear();
        self.ip6.clear();
        self.other.clear();
        self.walked.clear();
        self.doubtful.clear();
    }

    /// Number of keys.
    #[inline]
    pub fn count(&self) -> usize {
        self.ip4.len + self.ip6.len + self.other.len
    }

    /// Keeps the keys of those packets, given by their number in the vector, that are still to be classified.
    pub fn retain(&mut self, keep: impl Fn(u8) -> bool) {
        self.ip4.retain(&keep);
        self.ip6.retain(&keep);
        self.other.retain(&keep);
    }

    /// Takes packets that follow each other, the first of them number `first` of the vector, to be parsed.
    #[inline]
    pub fn take(&mut self, first: u8, packets: &[Packet<'_>]) {
        for (number, (at, packet)) in (first..=u8::MAX).zip(packets).enumerate() {
            if let Some(ahead) = packets.get(number + AHEAD) {
                fetch(ahead.bytes());
            }
            match PlainCandidate::of(packet) {
                Some(PlainCandidate::Ip4(head)) => {
                    let key = self.ip4.push(at);
                    self.candidates4.take(&head, &mut self.ip4.lanes, key);
                }
                Some(PlainCandidate::Ip6(head)) => {
                    let key = self.ip6.push(at);
                    self.candidates6.take(&head, &mut self.ip6.lanes, key);
                }
                None => self.walked.push(at),
            }
        }
    }

    /// Finds the headers of all packets taken, and fills their keys. Returns how many packets were understood.
    pub fn parse<O, M>(&mut self, mut parse: ParseVector<'_, '_, O, M>) -> usize
    where
        O: Fn(usize) -> PortId,
        M: FnMut(usize, Malformed),
    {
        // The words of packets among the flow lanes are there before the check.
        let wanted = WantedLanes { ip4: parse.wanted.ip4.with(FLOW_FACTS), ..parse.wanted };
        SimdLevel::detect().run(CheckCandidates { keys: self, wanted });
        let wanted = WantedLanes { ip4: wanted.ip4.with(FLOW_LANES), ..wanted };
        let VectorKeys { ip4, ip6, other, candidates4, candidates6, walked, doubtful } = self;
        let WantedLanes { ip4: wanted4, ip6: wanted6, other: wanted_other } = wanted;

        parse.write_layouts(ip4, doubtful, |key| candidates4.layout4(key));
        parse.fill_ports(ip4, wanted4);
        while let Some(key) = doubtful.pop() {
            match parse.walk(ip4.packets[usize::from(key)]) {
                Some(_) => parse.fill(ip4, key, wanted4),
                None => ip4.swap_remove(key),
            }
        }
        parse.write_layouts(ip6, doubtful, |key| candidates6.layout6(key));
        parse.fill_ports(ip6, wanted6);
        while let Some(key) = doubtful.pop() {
            match parse.walk(ip6.packets[usize::from(key)]) {
                Some(_) => parse.fill(ip6, key, wanted6),
                None => ip6.swap_remove(key),
            }
        }
        let before = [ip4.len, ip6.len, other.len];
        for &at in &*walked {
            match parse.walk(at) {
                Some(Class::Ip4) => _ = ip4.push(at),
                Some(Class::Ip6) => _ = ip6.push(at),
                Some(Class::Other) => _ = other.push(at),
                None => {}
            }
        }
        ip4.is_mixed |= before[0] > 0 && ip4.len > before[0];
        ip6.is_mixed |= before[1] > 0 && ip6.len > before[1];
        // Loops of their own: they read layouts in other widths than they were written in, which is slow right after the
        // writing.
        (before[0]..ip4.len).for_each(|key| parse.fill(ip4, key as u8, wanted4));
        (before[1]..ip6.len).for_each(|key| parse.fill(ip6, key as u8, wanted6));
        (before[2]..other.len).for_each(|key| parse.fill(other, key as u8, wanted_other));
        ip4.len + ip6.len + other.len
    }
}

/// The check of candidates, which is compiled for each level.
struct CheckCandidates<'a> {
    keys: &'a mut VectorKeys,
    wanted: WantedLanes,
}

impl Kernel for CheckCandidates<'_> {
    #[inline(always)]
    fn run(self) {
        let CheckCandidates { keys, wanted } = self;
        keys.candidates4.check(&mut keys.ip4.lanes, keys.ip4.len, wanted.ip4);
        keys.candidates6.check(&mut keys.ip6.lanes, keys.ip6.len, wanted.ip6);
    }
}

impl<O: Fn(usize) -> PortId, M: FnMut(usize, Malformed)> ParseVector<'_, '_, O, M> {
    /// Writes the layouts of plain packets; the others' keys are doubtful, in ascending order.
    #[inline(always)]
    fn write_layouts<const L: usize>(
        &mut self,
        columns: &KeyColumns<L>,
        doubtful: &mut Vec<u8>,
        layout: impl Fn(u8) -> Option<Layout>,
    ) {
        for (key, &at) in (0..=u8::MAX).zip(&columns.packets[..columns.len]) {
            match layout(key) {
                Some(layout) => self.layouts[usize::from(at)] = layout,
                None => doubtful.push(key),
            }
        }
    }

    /// Finds the headers of a packet that is not plain, and says what it is; `None` if it is malformed.
    fn walk(&mut self, at: u8) -> Option<Class> {
        let at = usize::from(at);
        match parse_into(&self.packets[at], &self.limits, &mut self.layouts[at]) {
            Ok(()) => Some(self.layouts[at].class),
            Err(why) => {
                (self.malformed)(at, why);
                None
            }
        }
    }

    /// Fills the ports' lane, the only one that does not follow from the packet's bytes.
    #[inline]
    fn fill_ports<const L: usize>(&self, columns: &mut KeyColumns<L>, wanted: Lanes) {
        if !wanted.has(PORTS) {
            return;
        }
        for (port, &at) in columns.lanes[PORTS].iter_mut().zip(&columns.packets[..columns.len]) {
            let [into, out] = self.ports(at);
            *port = (u32::from(into.0) << 16 | u32::from(out.0)).to_be();
        }
    }

    fn ports(&self, at: u8) -> [PortId; 2] {
        [self.packets[usize::from(at)].port, (self.out)(usize::from(at))]
    }

    /// Fills the key of a packet that was walked.
    fn fill<const L: usize>(&self, columns: &mut KeyColumns<L>, key: u8, wanted: Lanes) {
        let at = columns.packets[usize::from(key)];
        let (packet, layout) = (&self.packets[usize::from(at)], &self.layouts[usize::from(at)]);
        let put = |lane: usize, value| columns.lanes[lane][usize::from(key)] = value;
        fill_lanes(packet, layout, self.ports(at), wanted, put);
    }
}

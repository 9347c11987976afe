//! What a vector's packets matched, and the scratch that finding it needs. One worker owns and writes it.

use crate::VECTOR;
use mmb_packet::options::OptionTable;

/// The most matches of one vector that scratch is made for ahead of any policy. A policy under which a packet can
/// match so many rules that a full vector would pass this gets shorter vectors (see [`Scratch::vector`]).
const MATCHES: usize = 256 * 1024;

/// Scratch of a worker for [`Classifier::classify`](crate::Classifier::classify), and its result: the ranks of the
/// rules that each packet matched.
#[derive(Clone, Debug)]
pub struct Scratch {
    pub(crate) probe: Probe,
    options: OptionTable,
    /// Found so far, in the order of finding: packet and what it hit. Never longer than its capacity.
    pub(crate) log: Vec<Hit>,
    /// The hits' codes by packet; later the ranks.
    ranks: Vec<u32>,
    /// Each packet's place in `ranks`.
    spans: Box<[Span; VECTOR]>,
    /// Packets with at least one match, in order.
    matched: Vec<u16>,
    vector: usize,
}

/// One packet found one rule, but for checks of options.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hit {
    pub(crate) packet: u16,
    /// A rule's rank, or with [`DEFERRED`] the item whose option checks are to be run.
    pub(crate) code: u32,
}

/// Marks a code that is an item with option checks, not a rank.
pub(crate) const DEFERRED: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    len: u32,
}

/// Columns of a vector while one tuple is probed.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) hashes: Box<[u64; VECTOR]>,
    pub(crate) tags: Box<[u64; VECTOR]>,
    /// Keys of the lane that the tuple is probed for.
    pub(crate) picked: Box<[u16; VECTOR]>,
    /// Keys whose tag was found, and then keys that were found with their values.
    pub(crate) found: Box<[(u16, u32); VECTOR]>,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            probe: Probe {
                hashes: Box::new([0; VECTOR]),
                tags: Box::new([0; VECTOR]),
                picked: Box::new(std::array::from_fn(|i| i as u16)),
                found: Box::new([(0, 0); VECTOR]),
            },
            options: OptionTable::default(),
            log: Vec::with_capacity(MATCHES),
            ranks: Vec::with_capacity(MATCHES),
            spans: Box::new([Span::default(); VECTOR]),
            matched: Vec::with_capacity(VECTOR),
            vector: VECTOR,
        }
    }
}

impl Scratch {
    /// Makes the scratch fit a classifier under which one packet matches at most `most` rules. Allocates only if
    /// that is more than any classifier before, and more than some hundred thousand.
    pub fn fit(&mut self, most: usize) {
        self.log.clear();
        self.ranks.clear();
        self.log.reserve(most);
        self.ranks.reserve(most);
        self.vector = (self.log.capacity().min(self.ranks.capacity()) / most.max(1)).clamp(1, VECTOR);
    }

    /// The most packets of one vector under the classifier that the scratch was made to fit.
    pub fn vector(&self) -> usize {
        self.vector
    }

    /// The ranks of the rules that a packet of the vector matched, ascending.
    #[inline]
    pub fn ranks(&self, packet: usize) -> &[u32] {
        let Span { start, len } = self.spans[packet];
        &self.ranks[start as usize..(start + len) as usize]
    }

    /// The packets that matched at least one rule, in order.
    #[inline]
    pub fn matched(&self) -> &[u16] {
        &self.matched
    }

    /// Forgets the vector before.
    pub(crate) fn clear(&mut self) {
        self.log.clear();
        self.ranks.clear();
        for &packet in &self.matched {
            self.spans[usize::from(packet)].len = 0;
        }
        self.matched.clear();
    }

    /// Puts the log in order of packet and rank. `decide` runs the deferred checks of an item on a packet, given a
    /// table for the packet's options that is filled, or else to be filled first.
    pub(crate) fn settle(
        &mut self,
        mut decide: impl FnMut(usize, u32, &mut PacketOptions<'_>) -> Option<u32>,
    ) {
        if self.log.is_empty() {
            return;
        }
        for hit in &self.log {
            self.spans[usize::from(hit.packet)].len += 1;
        }
        let mut start = 0;
        for (packet, span) in self.spans.iter_mut().enumerate().filter(|(_, span)| span.len > 0) {
            self.matched.push(packet as u16);
            let len = std::mem::take(&mut span.len);
            span.start = start;
            start += len;
        }
        self.ranks.resize(self.log.len(), 0);
        for hit in &self.log {
            let span = &mut self.spans[usize::from(hit.packet)];
            self.ranks[(span.start + span.len) as usize] = hit.code;
            span.len += 1;
        }
        let Scratch { ranks, spans, options, matched, .. } = self;
        matched.retain(|&packet| {
            let span = &mut spans[usize::from(packet)];
            let codes = &mut ranks[span.start as usize..][..span.len as usize];
            let mut options = PacketOptions { table: options, filled: false };
            span.len = decided(codes, |item| decide(usize::from(packet), item, &mut options)) as u32;
            codes[..span.len as usize].sort_unstable();
            span.len > 0
        });
    }
}

/// Replaces deferred codes by the ranks that `decide` gives for their items, or drops them; returns how many are left.
#[inline]
fn decided(codes: &mut [u32], mut decide: impl FnMut(u32) -> Option<u32>) -> usize {
    let mut kept = 0;
    for at in 0..codes.len() {
        let code = codes[at];
        let rank = if code & DEFERRED == 0 { Some(code) } else { decide(code & !DEFERRED) };
        if let Some(rank) = rank {
            codes[kept] = rank;
            kept += 1;
        }
    }
    kept
}

/// The options of the packet at hand, parsed when first asked for.
pub(crate) struct PacketOptions<'a> {
    table: &'a mut OptionTable,
    filled: bool,
}

impl PacketOptions<'_> {
    /// The table, filled from the option area that `area` gives.
    #[inline]
    pub(crate) fn table<'p>(&mut self, area: impl FnOnce() -> &'p [u8]) -> &OptionTable {
        if !self.filled {
            self.table.fill(area());
            self.filled = true;
        }
        self.table
    }
}

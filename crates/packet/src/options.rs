//! TCP options: walking the option area of a header, and a table of it by kind.
//!
//! Purpose: [`walk`] decides what an option is; rewriting and [`OptionTable`], by which rules' conditions are checked,
//! stand on it. An area is read until end-of-list (kind 0) or an option that is malformed (no length byte, a length below
//! 2, or one past the area): the options before count. [`OptionArea::each`] decides the same once more, without looking at
//! bounds, for the packets of a vector whose options are looked up; a property test holds it to the walk.
//!
//! Life-cycle: an [`OptionTable`] belongs to a worker and is filled again for each packet that a rule with an
//! option constraint looks at. Filling does not clear its 256 entries: they count only where the bit of
//! their kind is set.

use crate::layout::Layout;
use crate::view::Packet;

/// Kind of end-of-list.
pub const END: u8 = 0;
/// Kind of no-operation.
pub const NOP: u8 = 1;
/// The most bytes of a TCP header's option area.
pub const MAX_AREA: usize = 40;

/// One option of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Its kind.
    pub kind: u8,
    /// The offset of its kind byte in the area.
    pub offset: usize,
    /// Its data, without kind and length. Empty for end-of-list and no-operation, which are one byte each.
    pub data: &'a [u8],
}

/// Walks over an option area; see [`walk`].
#[derive(Clone, Debug)]
pub struct OptionWalk<'a> {
    area: &'a [u8],
    at: usize,
    stop: Option<WalkStop>,
}

/// Why a walk stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStop {
    /// At the end of the area.
    AreaEnd,
    /// Behind an end-of-list.
    EndOfList,
    /// At a malformed option.
    Malformed,
}

/// Walks over the options of `area` in order. End-of-list is the last item where there is one; no-operations are
/// items too.
#[inline]
pub fn walk(area: &[u8]) -> OptionWalk<'_> {
    OptionWalk { area, at: 0, stop: None }
}

impl<'a> OptionWalk<'a> {
    /// The offset behind the last item. After the walk, the first byte that is not an option: what
    /// follows end-of-list, or the malformed option.
    #[inline]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Why the walk stopped; `None` while it goes on.
    #[inline]
    pub fn stop(&self) -> Option<WalkStop> {
        self.stop
    }

    fn end(&mut self, stop: WalkStop) -> Option<TcpOption<'a>> {
        self.stop = Some(stop);
        None
    }
}

impl<'a> Iterator for OptionWalk<'a> {
    type Item = TcpOption<'a>;

    #[inline]
    fn next(&mut self) -> Option<TcpOption<'a>> {
        if self.stop.is_some() {
            return None;
        }
        let offset = self.at;
        let Some((&kind, rest)) = self.area.get(offset..).and_then(|rest| rest.split_first()) else {
            return self.end(WalkStop::AreaEnd);
        };
        if kind <= NOP {
            self.at += 1;
            if kind == END {
                self.stop = Some(WalkStop::EndOfList);
            }
            return Some(TcpOption { kind, offset, data: &[] });
        }
        let Some(data) = rest.first().and_then(|&length| rest.get(1..usize::from(length).checked_sub(1)?))
        else {
            return self.end(WalkStop::Malformed);
        };
        self.at += 2 + data.len();
        Some(TcpOption { kind, offset, data })
    }
}

/// The option area of a packet's TCP header; empty where there is none.
#[inline]
pub fn area<'p>(packet: &'p Packet<'_>, layout: &Layout) -> &'p [u8] {
    packet.bytes().get(layout.tcp_options()).unwrap_or_default()
}

/// Option data as a number: `Some` for 1 to 8 bytes, big-endian.
#[inline]
pub fn number(data: &[u8]) -> Option<u64> {
    if data.is_empty() || data.len() > 8 {
        return None;
    }
    Some(data.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// The kinds of the options of an area that most packets have, a bit each: of none, of timestamps (RFC 7323, appendix A), of those with which
/// Linux opens connections. `None` for another area.
#[inline]
pub fn usual_kinds(area: &[u8]) -> Option<u64> {
    const NOP_NOP_TIMESTAMPS: u32 = 0x0101_080a;
    const SACK_PERMITTED_TIMESTAMPS: u32 = 0x0402_080a;
    let word = |at: usize| area.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
    match area.len() {
        0 => Some(0),
        12 if word(0)? == NOP_NOP_TIMESTAMPS => Some(1 << NOP | 1 << 8),
        20 if word(0)? >> 16 == 0x0204
            && word(4)? == SACK_PERMITTED_TIMESTAMPS
            && word(16)? >> 8 == 0x01_0303 =>
        {
            Some(1 << NOP | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 8)
        }
        _ => None,
    }
}

/// A copy of a header's option area with room behind it, so that options are read without a look at every bound.
#[derive(Clone, Copy, Debug)]
pub struct OptionArea {
    bytes: [u8; MAX_AREA + 16],
    len: usize,
}

impl OptionArea {
    /// A copy of an area, of its first [`MAX_AREA`] bytes if it is longer.
    pub fn new(area: &[u8]) -> OptionArea {
        let mut bytes = [0; MAX_AREA + 16];
        bytes[..MAX_AREA].iter_mut().zip(area).for_each(|(to, from)| *to = *from);
        OptionArea { bytes, len: area.len().min(MAX_AREA) }
    }

    /// The option area of a packet's TCP header; empty where there is none.
    #[inline]
    pub fn of(packet: &Packet<'_>, layout: &Layout) -> OptionArea {
        let range = layout.tcp_options();
        let rest = packet.bytes().get(range.start..).unwrap_or_default();
        // A length that is known when compiled; what lies behind the area is not looked at.
        let Some(whole) = rest.first_chunk::<MAX_AREA>() else {
            return OptionArea::new(area(packet, layout));
        };
        let mut bytes = [0; MAX_AREA + 16];
        bytes[..MAX_AREA].copy_from_slice(whole);
        OptionArea { bytes, len: range.len().min(MAX_AREA) }
    }

    /// Calls `each` with the kind of every option that [`walk`] meets, whether its data is a number (see [`number`]),
    /// and that number (anything if it is none).
    #[inline(always)]
    pub fn each(&self, mut each: impl FnMut(u8, bool, u64)) {
        let mut at = 0;
        while at < self.len.min(MAX_AREA) {
            let (kind, length) = (self.bytes[at], usize::from(self.bytes[at + 1]));
            let padding = kind <= NOP;
            let size = if padding { 1 } else { length };
            if at + size > self.len || (size < 2 && !padding) {
                return;
            }
            let word = self.bytes[at + 2..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
            let data = size.wrapping_sub(2);
            // Of 1 to 8 bytes; what is shifted too far does not count.
            let shift = 64u32.wrapping_sub((data as u32).wrapping_mul(8));
            each(kind, data.wrapping_sub(1) < 8, word.wrapping_shr(shift));
            if kind == END {
                return;
            }
            at += size;
        }
    }
}

/// An area holds at most 20 options with a length byte, and each kind of padding is entered once.
const MAX_SLOTS: usize = MAX_AREA / 2 + 2;

/// One option that was met.
#[derive(Clone, Copy, Debug, Default)]
struct OptionSlot {
    kind: u8,
    /// The range of the data in `OptionTable::area`.
    at: u8,
    len: u8,
}

/// The options of one TCP header by kind.
#[derive(Clone, Debug)]
pub struct OptionTable {
    area: [u8; MAX_AREA],
    /// One bit a kind.
    present: [u64; 4],
    /// The first slot of a kind; means something only where the kind's bit is set.
    first: [u8; 256],
    /// In the order of the header.
    slots: [OptionSlot; MAX_SLOTS],
    used: usize,
}

impl Default for OptionTable {
    fn default() -> Self {
        OptionTable {
            area: [0; MAX_AREA],
            present: [0; 4],
            first: [0; 256],
            slots: [OptionSlot::default(); MAX_SLOTS],
            used: 0,
        }
    }
}

impl OptionTable {
    /// Fills the table from an option area. Bytes past [`MAX_AREA`] are not looked at.
    pub fn fill(&mut self, area: &[u8]) {
        self.present = [0; 4];
        self.used = 0;
        let area = &area[..area.len().min(MAX_AREA)];
        self.area[..area.len()].copy_from_slice(area);
        for option in walk(area) {
            let data_at = option.offset + if option.kind > NOP { 2 } else { 1 };
            self.enter(option.kind, data_at as u8, option.data.len() as u8);
        }
    }

    fn enter(&mut self, kind: u8, at: u8, len: u8) {
        let known = self.has(kind);
        if kind <= NOP && known {
            return;
        }
        let Some(slot) = self.slots.get_mut(self.used) else { return };
        *slot = OptionSlot { kind, at, len };
        if !known {
            self.present[usize::from(kind >> 6)] |= 1 << (kind & 63);
            self.first[usize::from(kind)] = self.used as u8;
        }
        self.used += 1;
    }

    /// Whether the header has an option of that kind.
    #[inline]
    pub fn has(&self, kind: u8) -> bool {
        self.present[usize::from(kind >> 6)] >> (kind & 63) & 1 != 0
    }

    /// Whether the header has any option but padding (end-of-list, no-operation).
    #[inline]
    pub fn any(&self) -> bool {
        let [low, rest @ ..] = self.present;
        low & !0b11 != 0 || rest != [0; 3]
    }

    /// The kinds that are there, one bit each: kind k is bit k % 64 of word k / 64.
    #[inline]
    pub fn present(&self) -> [u64; 4] {
        self.present
    }

    /// The data of every option of that kind, in order. Padding kinds count once, with no data.
    #[inline]
    pub fn data(&self, kind: u8) -> impl Iterator<Item = &[u8]> {
        let first = if self.has(kind) { usize::from(self.first[usize::from(kind)]) } else { self.used };
        let slots = self.slots.get(first..self.used).unwrap_or_default();
        let same = slots.iter().filter(move |slot| slot.kind == kind);
        same.filter_map(|slot| self.area.get(usize::from(slot.at)..)?.get(..usize::from(slot.len)))
    }

    /// The data of the first option of that kind.
    #[inline]
    pub fn first(&self, kind: u8) -> Option<&[u8]> {
        self.data(kind).next()
    }
}

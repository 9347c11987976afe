//! Lookups in the option table: the options of packets, each with the list that requests it.
//!
//! They are collected over many packets and looked up together, as the keys of a vector are. One worker owns them.

use crate::VECTOR;
use crate::ids::ListId;
use crate::option_key::{OptionKey, OptionKinds};
use mmb_packet::columns::Column;
use mmb_packet::options::{END, MAX_AREA, NOP, OptionArea};

/// Lookups of an option for a list, as columns of the option table's keys.
#[derive(Clone, Debug)]
pub(crate) struct OptionLookups {
    lanes: Box<[Column; 4]>,
    /// The packets' keys that they are of.
    keys: Box<[u8; VECTOR]>,
    len: usize,
}

impl Default for OptionLookups {
    fn default() -> Self {
        OptionLookups { lanes: Box::new([[0; VECTOR]; 4]), keys: Box::new([0; VECTOR]), len: 0 }
    }
}

impl OptionLookups {
    /// Whether the options of one more packet fit: an area holds as many as it has bytes, each of which may be requested
    /// with its value and without.
    #[inline]
    pub(crate) fn have_room(&self) -> bool {
        self.len + 2 * MAX_AREA <= VECTOR
    }

    /// Number of lookups.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Their keys' columns.
    #[inline]
    pub(crate) fn lanes(&self) -> &[Column] {
        &self.lanes[..]
    }

    /// The packet's key of a lookup.
    #[inline]
    pub(crate) fn key(&self, lookup: u8) -> u8 {
        self.keys[usize::from(lookup)]
    }

    /// Forgets them.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds those options of a packet that a list requests. A rule is found once, however often an option stands there.
    #[inline]
    pub(crate) fn request(&mut self, key: u8, list: ListId, kinds: &OptionKinds, area: &OptionArea) {
        let first = self.len;
        // Most policies request one of the two: a branch that is always the same.
        let (some_present, some_valued) = kinds.key_types();
        let mut met = [0u64; 4];
        area.each(|kind, is_number, value| {
            let (word, bit) = (usize::from(kind) / 64, 1 << (kind % 64));
            let again = met[word] & bit != 0;
            met[word] |= bit;
            // Which of them a list requests is a coin toss: no branches but where a kind comes twice.
            let before = self.len;
            if some_present {
                self.push(key, OptionKey::Present(kind).lanes(list), kinds.has_presence_key(kind) && !again);
            }
            if !some_valued {
                return;
            }
            let padding = kind == END || kind == NOP;
            let requested = is_number & !padding & kinds.has_value_key(kind);
            self.push(key, OptionKey::Value(kind, value).lanes(list), requested);
            if again && requested && self.is_repeated(first, before) {
                self.len = before;
            }
        });
    }

    /// Writes a lookup after the others, and keeps it if it counts.
    #[inline(always)]
    fn push(&mut self, key: u8, lanes: [u32; 4], counts: bool) {
        // There was room before the packet's first option.
        let index = self.len & (VECTOR - 1);
        for (column, lane) in self.lanes.iter_mut().zip(lanes) {
            column[index] = lane;
        }
        self.keys[index] = key;
        self.len += usize::from(counts);
    }

    /// Whether the lookup at `index` is also among those from `first` on before it.
    fn is_repeated(&self, first: usize, index: usize) -> bool {
        let same = |other: usize| self.lanes.iter().all(|column| column[other] == column[index]);
        (first..index).any(same)
    }
}

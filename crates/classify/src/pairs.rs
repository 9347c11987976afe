//! Questions to the option table: the options of packets, each with the list that asks for it.
//!
//! They are collected over many packets and looked up together, as the keys of a vector are. One worker owns them.

use crate::VECTOR;
use crate::ids::ListId;
use crate::option_key::{OptionKey, OptionKinds};
use mmb_packet::columns::Column;
use mmb_packet::options::{END, MAX_AREA, NOP, OptionArea};

/// Pairs of an option and a list, as columns of the option table's keys.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    lanes: Box<[Column; 4]>,
    /// The packets' keys that they are of.
    keys: Box<[u8; VECTOR]>,
    len: usize,
}

impl Default for Pairs {
    fn default() -> Self {
        Pairs { lanes: Box::new([[0; VECTOR]; 4]), keys: Box::new([0; VECTOR]), len: 0 }
    }
}

impl Pairs {
    /// Whether the options of one more packet fit: an area holds as many as it has bytes, each of which may be asked for
    /// with its value and without.
    #[inline]
    pub(crate) fn have_room(&self) -> bool {
        self.len + 2 * MAX_AREA <= VECTOR
    }

    /// Number of pairs.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Their keys' columns.
    #[inline]
    pub(crate) fn lanes(&self) -> &[Column] {
        &self.lanes[..]
    }

    /// The packet's key that a pair is of.
    #[inline]
    pub(crate) fn key(&self, pair: u8) -> u8 {
        self.keys[usize::from(pair)]
    }

    /// Forgets them.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds those options of a packet that a list asks for. A rule is found once, however often an option stands there.
    #[inline]
    pub(crate) fn ask(&mut self, key: u8, list: ListId, kinds: &OptionKinds, area: &OptionArea) {
        let first = self.len;
        // Most policies ask for one of the two: a branch that is always the same.
        let (some_present, some_valued) = kinds.asks();
        let mut met = [0u64; 4];
        area.each(|kind, is_number, value| {
            let (word, bit) = (usize::from(kind) / 64, 1 << (kind % 64));
            let again = met[word] & bit != 0;
            met[word] |= bit;
            // Which of them a list asks for is a coin toss: no branches but where a kind comes twice.
            let before = self.len;
            if some_present {
                self.push(key, OptionKey::Present(kind).lanes(list), kinds.asks_presence(kind) && !again);
            }
            if !some_valued {
                return;
            }
            let padding = kind == END || kind == NOP;
            let asked = is_number & !padding & kinds.asks_value(kind);
            self.push(key, OptionKey::Value(kind, value).lanes(list), asked);
            if again && asked && self.stands_twice(first, before) {
                self.len = before;
            }
        });
    }

    /// Writes a pair behind the others, and keeps it if it counts.
    #[inline(always)]
    fn push(&mut self, key: u8, lanes: [u32; 4], counts: bool) {
        // There was room before the packet's first option.
        let at = self.len & (VECTOR - 1);
        for (column, lane) in self.lanes.iter_mut().zip(lanes) {
            column[at] = lane;
        }
        self.keys[at] = key;
        self.len += usize::from(counts);
    }

    /// Whether pair `at` is also among those from `first` on before it.
    fn stands_twice(&self, first: usize, at: usize) -> bool {
        let same = |other: usize| self.lanes.iter().all(|column| column[other] == column[at]);
        (first..at).any(same)
    }
}

//! Keys of the option table: a list, an option kind and a value.

use crate::ids::ListId;
use crate::lane_mask::LaneMask;
use mmb_base::Id;

/// The option kinds for which a list has keys in the option table.
#[derive(Clone, Debug, Default)]
pub(crate) struct OptionKinds {
    /// Kinds with values, a bit each; some may have none any more.
    valued: [u64; 4],
    /// Kinds without.
    present: [u64; 4],
    /// Rules.
    pub(crate) rules: usize,
}

impl OptionKinds {
    /// Whether a kind has keys with values.
    #[inline]
    pub(crate) fn has_value_key(&self, kind: u8) -> bool {
        self.valued[usize::from(kind) / 64] >> (kind % 64) & 1 == 1
    }

    /// Whether a kind has keys without values.
    #[inline]
    pub(crate) fn has_presence_key(&self, kind: u8) -> bool {
        self.present[usize::from(kind) / 64] >> (kind % 64) & 1 == 1
    }

    /// Whether any of some kinds has keys, given as a bit for each kind below 64.
    #[inline]
    pub(crate) fn has_any(&self, kinds: u64) -> bool {
        (self.valued[0] | self.present[0]) & kinds != 0
    }

    /// Whether any kind has keys without values, and whether any has keys with values.
    #[inline]
    pub(crate) fn key_types(&self) -> (bool, bool) {
        (self.present != [0; 4], self.valued != [0; 4])
    }

    pub(crate) fn add(&mut self, key: OptionKey) {
        let (bits, kind) = match key {
            OptionKey::Value(kind, _) => (&mut self.valued, kind),
            OptionKey::Present(kind) => (&mut self.present, kind),
        };
        bits[usize::from(kind) / 64] |= 1 << (kind % 64);
        self.rules += 1;
    }
}

/// The option by which a rule is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionKey {
    /// An option of that kind whose data is that number.
    Value(u8, u64),
    /// An option of that kind.
    Present(u8),
}

impl OptionKey {
    /// Set in the lane of the kind for a key without value.
    const PRESENT: u32 = 1 << 8;

    /// The key of a list in the option table.
    #[inline]
    pub(crate) fn lanes(self, list: ListId) -> [u32; 4] {
        let list = list.number();
        match self {
            OptionKey::Value(kind, value) => [list, kind.into(), (value >> 32) as u32, value as u32],
            OptionKey::Present(kind) => [list, u32::from(kind) | OptionKey::PRESENT, 0, 0],
        }
    }

    /// The mask over them.
    pub(crate) fn mask() -> LaneMask {
        OptionKey::wide([u32::MAX; 4])
    }

    /// A key of the option table as one of a table.
    pub(crate) fn wide(lanes: [u32; 4]) -> LaneMask {
        let mut wide = LaneMask::default();
        wide[..4].copy_from_slice(&lanes);
        wide
    }
}

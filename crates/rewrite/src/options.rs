//! Steps on the options of a TCP header.

use crate::not_applied::NotApplied;
use crate::option_area::OptionList;
use mmb_packet::options::{END, NOP, WalkStop, walk};

/// A set of option kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionKindSet([u64; 4]);

impl OptionKindSet {
    pub(crate) fn of(kind: u8) -> OptionKindSet {
        let mut kinds = OptionKindSet::default();
        kinds.insert(kind);
        kinds
    }

    pub(crate) fn insert(&mut self, kind: u8) {
        self.0[usize::from(kind >> 6)] |= 1 << (kind & 63);
    }

    pub(crate) fn has(&self, kind: u8) -> bool {
        self.0[usize::from(kind >> 6)] >> (kind & 63) & 1 != 0
    }
}

/// One target on options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OptionStep {
    /// Writes a big-endian number into the existing data of the options of a kind.
    Number { kind: u8, number: u128 },
    /// Replaces the data of the options of a kind.
    Data { kind: u8, data: Box<[u8]> },
    /// Appends an option.
    Add { kind: u8, data: Box<[u8]> },
    /// Removes the options of a kind. For the padding kinds: the area is rebuilt without padding between options.
    Strip(u8),
    /// Removes all options except those of some kinds, and the malformed rest. Padding is not an option.
    Keep(OptionKindSet),
    /// Removes the whole area.
    Clear,
}

impl OptionStep {
    /// The kinds of a whitelist.
    pub(crate) fn whitelist(&mut self) -> Option<&mut OptionKindSet> {
        match self {
            OptionStep::Keep(kinds) => Some(kinds),
            _ => None,
        }
    }

    /// Whether the step changes a header with that option area. If no step does, the area need not be loaded.
    pub(crate) fn concerns(&self, area: &[u8]) -> bool {
        match self {
            OptionStep::Number { kind, .. } | OptionStep::Data { kind, .. } | OptionStep::Strip(kind) => {
                walk(area).any(|option| option.kind == *kind)
            }
            OptionStep::Add { .. } => true,
            OptionStep::Keep(kinds) => {
                let mut options = walk(area);
                options.any(|option| option.kind > NOP && !kinds.has(option.kind))
                    || options.stop() == Some(WalkStop::Malformed)
            }
            OptionStep::Clear => !area.is_empty(),
        }
    }

    /// Applies the step to the list.
    ///
    /// # Errors
    /// Why the list, or part of it, is unchanged.
    pub(crate) fn apply(&self, list: &mut OptionList) -> Result<(), NotApplied> {
        match self {
            OptionStep::Number { kind, number } => list.set_number(*kind, *number),
            OptionStep::Data { kind, data } => list.set_data(*kind, data),
            OptionStep::Add { kind, data } => list.push(*kind, data),
            OptionStep::Strip(kind @ (END | NOP)) => {
                list.strip_padding(*kind);
                Ok(())
            }
            OptionStep::Strip(kind) => {
                list.retain(|other| other != *kind);
                Ok(())
            }
            OptionStep::Keep(kinds) => {
                list.retain(|kind| kinds.has(kind));
                list.drop_tail();
                Ok(())
            }
            OptionStep::Clear => {
                list.clear();
                Ok(())
            }
        }
    }
}

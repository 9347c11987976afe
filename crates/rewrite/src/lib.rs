//! Edits: what rules write into packets, compiled once and applied to many.
//!
//! Purpose: [`Edit::compile`] turns the rewriting targets of one rule into masks, keys and option steps;
//! [`Editor::apply`] runs the edits of all rules that a packet matched over it, in the order given, and keeps
//! lengths, padding and checksums right.
//!
//! Order within one packet: fields in place, then the option area (rebuilt once however many rules ask), then
//! payload bytes, then raw fields (lengths and versions, checksums last of all).
#![forbid(unsafe_code)]

use mmb_packet::{Layout, Packet};
use mmb_policy::Target;

/// The rewriting targets of one rule, compiled.
#[derive(Clone, Debug, Default)]
pub struct Edit {}

impl Edit {
    /// Compiles a rule's targets; `None` if none of them rewrites.
    pub fn compile(targets: &[Target]) -> Option<Edit> {
        let _ = targets;
        None
    }
}

/// Why a target left a packet as it was. Counted, never fatal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NotApplied {
    /// The option area would pass 40 bytes.
    OptionSpace,
    /// The value does not fit the data that the option has.
    OptionWidth,
    /// A fragment's transport header cannot change its length.
    Fragment,
    /// The payload is shorter than the bytes to write.
    PayloadShort,
    /// The packet's buffer has no room in front, or the IP length would pass 65,535.
    NoRoom,
}

/// How often targets were not applied, by reason.
#[derive(Clone, Debug, Default)]
pub struct NotAppliedCounts(pub [u64; NotApplied::ALL.len()]);

impl NotApplied {
    /// Every reason.
    pub const ALL: [NotApplied; 5] = [
        NotApplied::OptionSpace,
        NotApplied::OptionWidth,
        NotApplied::Fragment,
        NotApplied::PayloadShort,
        NotApplied::NoRoom,
    ];

    /// The reason's name in counters.
    pub fn name(self) -> &'static str {
        match self {
            NotApplied::OptionSpace => "option-space",
            NotApplied::OptionWidth => "option-width",
            NotApplied::Fragment => "fragment",
            NotApplied::PayloadShort => "payload-short",
            NotApplied::NoRoom => "no-room",
        }
    }
}

/// Applies edits; holds the scratch for one worker.
#[derive(Default)]
pub struct Editor {}

impl Editor {
    /// Applies `edits` in order to one packet whose layout is `layout`, and keeps the layout true.
    pub fn apply<'e>(
        &mut self,
        packet: &mut Packet<'_>,
        layout: &mut Layout,
        edits: impl Iterator<Item = &'e Edit> + Clone,
        not_applied: &mut NotAppliedCounts,
    ) {
        let _ = (packet, layout, edits, not_applied);
    }
}

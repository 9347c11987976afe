//! Edits: the rewriting targets of rules, compiled once and applied to many packets.
//!
//! Purpose: [`Edit::compile`] compiles the rewriting targets of one rule to masks, keys and option steps; [`PacketEditor::apply`]
//! applies the edits of all rules that a packet matched, in the given order, and keeps lengths, padding and checksums correct.
//!
//! Order within one packet: fields at fixed places, then the option area (rebuilt once for all rules), then payload bytes, then
//! raw fields (lengths and versions; checksums last). The layout determines the places of headers, not rewritten fields.
//! Checksums are updated incrementally (RFC 1624): all changes of a packet are collected in one delta for each checksum, which is
//! applied once.
//!
//! Life-cycle: an [`Edit`] belongs to a published policy and is immutable; a [`PacketEditor`] belongs to one worker. Applying
//! edits allocates nothing. Where the bytes of a packet do not fit its layout, they stay unchanged.
#![forbid(unsafe_code)]

mod compile;
mod editor;
mod fields;
mod not_applied;
mod option_area;
mod options;
mod payload;
mod resize;
mod traits;
mod translate;

pub use compile::Edit;
pub use editor::PacketEditor;
pub use not_applied::{NotApplied, NotAppliedCounts};
pub use translate::{Ip4Translation, Translation};

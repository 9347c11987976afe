//! Edits: what rules write into packets, compiled once and applied to many.
//!
//! Purpose: [`Edit::compile`] turns the rewriting targets of one rule into masks, keys and option steps;
//! [`PacketEditor::apply`] runs the edits of all rules that a packet matched over it, in the order given, and keeps
//! lengths, padding and checksums right.
//!
//! Order within one packet: fields in place, then the option area (rebuilt once however many rules ask), then
//! payload bytes, then raw fields (lengths and versions, checksums last of all). Where headers lie is taken from
//! the layout, never from what was rewritten. Checksums follow by what changed (RFC 1624): all changes of one
//! packet are collected in one delta a checksum, applied once.
//!
//! Life-cycle: an [`Edit`] belongs to a published policy and is never written again; an [`PacketEditor`] belongs to one worker.
//! Applying allocates nothing. A packet whose bytes do not fit its layout is left alone where they do not.
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
pub use translate::Translation;

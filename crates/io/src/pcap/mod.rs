//! Capture files: pcap and pcapng, read and written as streams.
//!
//! Purpose: `mmb replay` and `mmb bench` read packets from captures; replay writes them again, in the format in which
//! they came, with everything that a capture says beside packets (interfaces, names, comments, statistics) in its
//! place. A capture whose packets are left alone comes out byte for byte the same, but for the length of a section,
//! which is left open.
//!
//! Life-cycle: a [`CaptureReader`] recognises the format and hands out [`CaptureItem`]s, each borrowed until the next one is
//! asked for; a [`CaptureWriter`] takes the same items. Memory is bounded whatever a file says: one block
//! ([`MAX_BLOCK_BYTES`]), [`MAX_INTERFACES`] interfaces.
//!
//! Captures are untrusted. Every length is checked against the available bytes before it is used, and
//! errors name the packet's number and the offset in the file. After an error a reader yields nothing
//! more, since a stream of records has no marks by which to find the next one.
//!
//! The formats are read here and not by a library: of those looked at, one hangs on bad records in its stable version,
//! and the other allocates for each packet, knows no obsolete packet blocks, misreads time resolutions that are powers
//! of two, and cannot tell a length that lies from a file that ends.

mod bytes;
mod classic;
mod error;
mod input;
mod item;
mod ng;
mod reader;
mod writer;

pub use error::CaptureError;
pub use item::{
    CaptureItem, Captured, Format, MAX_BLOCK_BYTES, MAX_GROWTH_BYTES, MAX_INTERFACES, MAX_PACKET_BYTES, Meta,
};
pub use reader::CaptureReader;
pub use writer::CaptureWriter;

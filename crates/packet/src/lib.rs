//! Packets: views over bytes, layouts, the header key, options, extension headers, checksums.
//!
//! Purpose: everything above this room sees a packet through three things. [`Packet`] is the buffer, with
//! room to grow at both ends. [`parse`](parse::parse) checks a packet once and says where its headers lie
//! ([`Layout`]). The [`key`] holds the packet's fields at fixed places, so that classification is mask
//! arithmetic on aligned bytes and never looks at the packet again.
//!
//! Life-cycle: a host makes the view, the engine parses it once a vector, later stages use the layout. Nothing
//! here owns memory, knows a clock or a port's name, or panics on what a packet says: reads go through checked
//! slices, and a layout that [`parse`](parse::parse) returned lies inside its packet.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod columns;
pub mod crc;
pub mod fill;
pub mod flow;
pub mod key;
mod layout;
mod malformed;
pub mod offload;
pub mod options;
pub mod parse;
pub mod proto;
mod resize;
pub mod segment;
pub mod seq;
pub mod superframe;
mod tunnel;
pub mod view;

pub use fill::{fill_key4, fill_key6, fill_lanes};
pub use key::{HeaderKey, Key4, Key6, Lanes};
pub use layout::{Class, Layout, ParserLimits};
pub use malformed::Malformed;
pub use offload::finish_checksum;
pub use resize::resize_payload;
pub use segment::{SegmentError, Segments};
pub use seq::Seq;
pub use superframe::{Joinable, Superframe, TunnelHeaders, TunnelKind};
pub use tunnel::Tunnels;
pub use view::{LinkType, Packet, PortId};

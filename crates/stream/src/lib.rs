//! Streams: the bytes of TCP and UDP connections, in order.
//!
//! Purpose: a [`StreamTable`] follows the bytes of connections. Each direction has one of three levels:
//!
//! - *Watch* passes the bytes to a scanner. It never changes or delays a packet.
//! - *Guard* ensures that the receiver gets exactly the bytes that were scanned. The first copy of each byte
//!   wins. It is buffered until the receiver acknowledges it, and every later copy is overwritten with it.
//!   The window that the receiver advertises is clamped to the size of this buffer, which bounds the memory.
//! - *Edit* sends the receiver the output of an editor, of any length. It translates sequence numbers between
//!   the two ends (module `edit`).
//!
//! Life-cycle: call [`StreamTable::open`] for the first packet of a connection. Call [`StreamTable::take`]
//! for each packet that would pass, in the order in which they pass, and [`StreamTable::end`] at the end.
//! `take` overwrites bytes of the payload where the guard has a different first copy. It returns the other
//! changes and actions for the packet, such as a new payload in an edited direction.
//! [`StreamTable::generate`] returns packets that the stream generates. [`StreamTable::next_due`] and
//! [`StreamTable::release`] ask the editor again about bytes that were held for long enough.
//!
//! Numbers: an offset counts the bytes of a direction. Offset 0 is the byte after the SYN, or the first byte
//! that was seen. Sequence numbers are those of the packets. In an edited direction, sender and receiver use
//! different ones.
//!
//! One worker owns a table. The table knows no clock, port or rule. The memory for payload ([`ChunkPool`]) is
//! allocated elsewhere and adopted. The records of streams grow in chunks.
#![forbid(unsafe_code)]

mod edit;
mod eviction;
mod finished;
mod id;
mod limits;
mod out_of_order;
mod predecessor;
mod reader;
mod rope;
mod segment;
mod side;
mod table;
mod tcp;

pub use edit::generate::{GeneratedSegment, SegmentPurpose};
pub use edit::hold_time::{HoldTime, LONG_HOLD_MS};
pub use edit::side::EditStats;
pub use edit::sink::{EditSink, Undecided};
pub use finished::{FinishedEnds, FinishedStream};
pub use id::StreamId;
pub use limits::{AckSpace, StreamLimits, Urgent};
pub use predecessor::Predecessor;
pub use reader::{ScanAnswer, StreamReader};
pub use rope::ChunkPool;
pub use segment::{
    EditedPayload, EditedSegment, InOrder, Outcome, ResetTarget, Segment, StreamDrop, StreamVerdict, flag,
};
pub use side::{Level, SideStats, StreamProto};
pub use table::{StreamInfo, StreamTable, StreamUsage, Unfit};

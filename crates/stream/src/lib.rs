//! Streams: the bytes of TCP and UDP connections in order.
//!
//! Purpose: a [`StreamTable`] follows connections at three levels, which differ by direction. *Watch* gives the bytes to a scanner and never
//! changes or delays anything. *Guard* also holds the receiver to one version of the bytes, the one that was scanned: the first copy of each
//! byte wins, and is kept until the receiver has acknowledged it; whatever the sender sends again for the same numbers, carries the same
//! bytes. The window that the receiver advertises is clamped to what is kept, so that memory is bounded. *Edit* gives the receiver what an editor
//! makes of the bytes, of any length, and maps the numbers of both ends (see `edit`).
//!
//! Life-cycle: [`StreamTable::open`] with a connection's first packet, [`StreamTable::take`] for each packet that would pass, in the order in
//! which they pass, and [`StreamTable::end`]. `take` changes the payload where a guard has other bytes, and returns what else is to be changed or
//! done: for a direction that is edited another payload, too. [`StreamTable::make`] gives the packets that are made, [`StreamTable::next_due`] and
//! [`StreamTable::release`] what was held back for long enough.
//!
//! Numbers: an offset counts the bytes of a direction from the one behind its SYN, or from the first one that was seen. Sequence numbers are as
//! both ends count them; where bytes are edited, each end has its own.
//!
//! The table belongs to one worker. It knows no clock, no port and no rule. The memory for payload ([`ChunkPool`]) is made
//! elsewhere and adopted; the records of streams grow in chunks.
#![forbid(unsafe_code)]

mod early;
mod edit;
mod finished;
mod id;
mod limits;
mod predecessor;
mod reader;
mod rope;
mod segment;
mod side;
mod table;
mod tcp;
mod victims;

pub use edit::made::{MadeFor, MadeSegment};
pub use edit::patience::{EditPatience, LONG_MS};
pub use edit::side::EditStats;
pub use edit::sink::{EditSink, Undecided};
pub use finished::{FinishedEnds, FinishedStream};
pub use id::StreamId;
pub use limits::{AckSpace, StreamLimits, Urgent};
pub use predecessor::Predecessor;
pub use reader::{Passes, StreamReader};
pub use rope::ChunkPool;
pub use segment::{
    EditedPayload, EditedSegment, InOrder, Outcome, ResetTarget, Segment, StreamDrop, StreamVerdict, flag,
};
pub use side::{Level, SideStats, StreamProto};
pub use table::{StreamInfo, StreamTable, StreamUsage, Unfit};

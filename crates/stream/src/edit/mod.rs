//! Directions whose bytes are edited.
//!
//! Purpose: the receiver gets the output of an editor instead of the sender's bytes. The two ends still talk
//! TCP with each other: mmb does not terminate the connection. [`map`] and [`seq_translation`] translate
//! sequence numbers. Output is buffered until the receiver acknowledges it. When the sender retransmits, mmb
//! retransmits from this buffer, however the sender has cut its segments.
//!
//! No byte of input is acknowledged to the sender before the receiver has acknowledged all of its output. The
//! only exception is held bytes ([`early_ack`]). The sender stays responsible for lost packets, so this
//! module has no other retransmission timer.
//!
//! Life-cycle of a byte:
//!
//! 1. The byte arrives. If it is out of order, it is buffered until the bytes before it arrive ([`receive`]).
//! 2. In order, the byte is *undecided*: the editor is asked about it ([`decide`]).
//! 3. While the editor does not decide, the byte is *held*, for a bounded time.
//! 4. After the decision, its output is *buffered* until the receiver acknowledges it. Output is sent
//!    as far as the receiver's window allows, in the current packet ([`forward`]) or in generated packets
//!    ([`generate`]).
//!
//! A stream in which nothing was edited and nothing is held is [`plain`]. It has the record of a guarded
//! stream, and recorded header values ([`header_values`]).
//!
//! Bounds of a direction:
//!
//! - At most [`side::MAX_HELD_BYTES`] bytes are held.
//! - At most twice [`StreamLimits::window`](crate::StreamLimits::window) bytes of output are buffered, plus
//!   the output of one packet.
//! - At most [`map::MAX_EDITS`] edits are recorded.
//! - A packet that arrives causes generated packets with at most [`side::CREDIT`] bytes, plus one packet.

pub(crate) mod context;
pub(crate) mod datagram;
pub(crate) mod datagram_ends;
pub(crate) mod decide;
pub(crate) mod early_ack;
pub(crate) mod forward;
pub(crate) mod generate;
pub(crate) mod header_values;
pub(crate) mod hold_time;
pub(crate) mod links;
pub(crate) mod map;
pub(crate) mod next_packet;
pub(crate) mod plain;
pub(crate) mod queue;
pub(crate) mod receive;
pub(crate) mod retransmit;
pub(crate) mod seq_translation;
pub(crate) mod side;
pub(crate) mod sink;
pub(crate) mod streams;
pub(crate) mod table;

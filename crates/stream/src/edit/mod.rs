//! Directions whose bytes are edited.
//!
//! Purpose: the receiver gets the output of an editor instead of the sender's bytes. The two ends still talk
//! TCP with each other: mmb does not terminate the connection. [`map`] and [`numbers`] translate sequence
//! numbers. Output is buffered until the receiver acknowledges it. When the sender retransmits, mmb
//! retransmits from this buffer, however the sender has cut its segments.
//!
//! No byte of input is acknowledged to the sender before the receiver has acknowledged all of its output. The
//! only exception is held bytes ([`promise`]). The sender stays responsible for lost packets, so there is no
//! other retransmission timer here.
//!
//! Life-cycle of a byte:
//!
//! 1. The byte arrives. If it is out of order, it is buffered until the bytes before it arrive ([`take`]).
//! 2. In order, the byte is *undecided*: the editor is asked about it ([`decide`]).
//! 3. While the editor does not decide, the byte is *held*, for a bounded time.
//! 4. After the decision, its output is *kept*: buffered until the receiver acknowledges it. Output is sent
//!    as far as the receiver's window allows, in the current packet ([`let_go`]) or in generated packets
//!    ([`made`]).
//!
//! A stream in which nothing was edited and nothing is held is [`plain`]. It has the record of a guarded
//! stream, and recorded header values ([`noted`]).
//!
//! Bounds of a direction:
//!
//! - At most [`side::MOST_HELD`] bytes are held.
//! - At most twice [`StreamLimits::window`](crate::StreamLimits::window) bytes of output are buffered, plus
//!   the output of one packet.
//! - At most [`map::EDITS`] edits are recorded.
//! - A packet that arrives causes generated packets with at most [`side::CREDIT`] bytes, plus one packet.

pub(crate) mod again;
pub(crate) mod datagram;
pub(crate) mod decide;
pub(crate) mod ends;
pub(crate) mod let_go;
pub(crate) mod links;
pub(crate) mod made;
pub(crate) mod map;
pub(crate) mod noted;
pub(crate) mod numbers;
pub(crate) mod pair;
pub(crate) mod patience;
pub(crate) mod plain;
pub(crate) mod promise;
pub(crate) mod queue;
pub(crate) mod side;
pub(crate) mod sink;
pub(crate) mod streams;
pub(crate) mod table;
pub(crate) mod take;
pub(crate) mod work;

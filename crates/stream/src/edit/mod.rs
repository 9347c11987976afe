//! Directions whose bytes are changed.
//!
//! Purpose: the receiver gets the output of an editor instead of what the sender sent, and both ends still talk to each other: TCP is not ended
//! here. Numbers are mapped ([`map`], [`numbers`]), the output is kept until the receiver has acknowledged it, and what the sender sends again is
//! sent again from there, however it is cut. No byte of input is acknowledged to the sender before the receiver has acknowledged all of its
//! output, but for those that are held ([`promise`]): the sender stays responsible for what is lost, and there is no other timer for
//! retransmissions here.
//!
//! Life-cycle of a byte: it arrives, early bytes wait for those in front of them ([`take`]); in order it is *undecided*, and the editor is asked
//! ([`decide`]); as long as the editor does not decide it is *held*, for a bounded time; then its output is *kept*, and let go as far as the
//! receiver's window allows: in the packet that is at hand ([`let_go`]), or in packets that are made ([`made`]).
//!
//! A stream in which nothing was edited and nothing is held is [`plain`]: it has the record of a guarded one, and what is [`noted`].
//!
//! Bounds of a direction: [`side::MOST_HELD`] bytes are held; output is kept for twice [`StreamLimits::window`](crate::StreamLimits::window) at
//! most, and the output of one packet more; [`map::EDITS`] edits are recorded; a packet that comes makes others for [`side::CREDIT`] bytes.

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

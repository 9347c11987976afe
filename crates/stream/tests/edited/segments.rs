//! What happens to each kind of segment at level edit: one test for each case of the design. Numbers follow from the rules of TCP and from the
//! lengths of the words, never from what the code returned.

mod bytes;
mod ends;
mod handshakes;
mod limits;
mod numbers;
mod windows;

use crate::support::edited::{Asked, EditedConn, LIMITS, Words};
use crate::support::{Seg, ack, seg, syn, syn_ack};

/// One word that grows by three bytes, one that vanishes, one that keeps its length.
const WORDS: [(&str, &str); 3] = [("up", "UPPER"), ("cut", ""), ("one", "two")];

/// A connection with these words.
fn conn() -> EditedConn {
    EditedConn::established(&WORDS)
}

/// Nothing goes on.
const NOTHING: [&str; 0] = [];

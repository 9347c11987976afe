//! The treatment of each kind of segment at level edit: one test for each case of the design. Numbers follow
//! from the rules of TCP and from the lengths of the words, never from what the code returned.

mod bytes;
mod ends;
mod handshakes;
mod limits;
mod numbers;
mod plain;
mod promises;
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

/// A text with all words.
const TEXT: &[u8] = b"ab up cd cut one upup";

/// The lengths of its words and of the bytes between them: of input and of output.
fn pieces() -> Vec<(usize, usize)> {
    let plain = |count| vec![(1, 1); count];
    let pieces =
        [plain(3), vec![(2, 5)], plain(4), vec![(3, 0)], plain(1), vec![(3, 3)], plain(1), vec![(2, 5); 2]]
            .concat();
    assert_eq!(pieces.iter().map(|(len, _)| len).sum::<usize>(), TEXT.len());
    pieces
}

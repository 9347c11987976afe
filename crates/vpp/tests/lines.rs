//! Answers are cut at their lines' ends only.

#[path = "../src/lines.rs"]
mod lines;

use lines::LineBuffer;

/// What is shown of an answer that comes in these pieces, piece by piece.
fn shown(pieces: &[&str]) -> Vec<String> {
    let mut lines = LineBuffer::default();
    let mut shown: Vec<String> = pieces.iter().map(|piece| lines.take(piece)).collect();
    shown.push(lines.rest());
    shown
}

#[test]
fn a_line_is_shown_when_it_is_whole() {
    assert_eq!(shown(&["a\nb\nc", "d", "e\n"]), ["a\nb\n", "", "cde\n", ""]);
    assert_eq!(shown(&["a", "\n", "\n"]), ["", "a\n", "\n", ""]);
}

#[test]
fn a_last_line_without_an_end_is_shown_in_the_end() {
    assert_eq!(shown(&["a\nb", "é"]), ["a\n", "", "bé"]);
    assert_eq!(shown(&[]), [""]);
}

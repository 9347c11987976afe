//! Fragments of a connection's packets count for it, and a complete datagram tells how far its sender came. No fragment changes the
//! connection's state, since nobody can verify its checksum alone.

use crate::host::Middlebox;
use crate::one_connection::{
    A, ACK, B, FIN, INSIDE, REFLEXIVE, RST, SERVER, SYN, echo, ip4, segment, tcp, udp,
};
use crate::witnessed::Witnessed;
use mmb_engine::{DropReason, Verdict};
use mmb_testkit::{Ip4, Upper};

/// The frame of a fragment that begins at a byte behind the IP header.
fn piece(forward: bool, proto: u8, bytes: &[u8], start: usize, more: bool) -> Vec<u8> {
    let (source, destination) = if forward { (INSIDE, SERVER) } else { (SERVER, INSIDE) };
    let frag_offset = (start / 8) as u16;
    let head =
        Ip4 { id: 7, frag_offset, flags: u8::from(more), ..Ip4::new(Upper::Raw(proto, bytes.to_vec())) };
    Ip4 { source, destination, ..head }.frame().bytes()
}

/// The frames of a packet in two pieces, the first with so many bytes behind the IP header.
fn pieces(forward: bool, upper: Upper, proto: u8, first: usize) -> [Vec<u8>; 2] {
    let whole = ip4(forward, upper);
    let (start, rest) = whole[34..].split_at(first);
    [piece(forward, proto, start, 0, true), piece(forward, proto, rest, first, false)]
}

/// Who writes half an answer, or one with a wrong checksum in pieces, would have its receiver drop it and the connection stay.
#[test]
fn an_answer_in_fragments_counts_and_changes_no_state() {
    for (proto, request, answer) in [(17, udp(true), udp(false)), (1, echo(8), echo(0))] {
        let mut mmb = Witnessed::new(REFLEXIVE);
        mmb.states(A, &ip4(true, request.clone()));
        mmb.0.now_ms += 1000;
        for piece in pieces(false, answer.clone(), proto, 8) {
            assert!(mmb.0.passes(B, &piece));
        }
        let now = mmb.0.list().remove(0);
        assert_eq!((now.state, now.packets, now.idle_ms), ("unreplied", [1, 2], 0), "{proto}");
        assert_eq!(mmb.states(A, &ip4(true, request)), ["new"]);
        mmb.0.passes(B, &ip4(false, answer));
        assert_eq!(mmb.0.state(), "replied", "{proto}");
        assert!(mmb.0.invalid().is_empty());
    }
    // Picked up in mid-flow.
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.passes(A, &segment(true, ACK, 100, 500));
    for piece in pieces(false, tcp(false, ACK, 500, 100, 20), 6, 32) {
        assert!(mmb.passes(B, &piece));
    }
    assert_eq!(mmb.state(), "unreplied");
    mmb.passes(B, &segment(false, ACK, 520, 100));
    assert_eq!(mmb.state(), "established");
}

/// Only the first fragment has numbers; the other end acknowledges what all of them held.
#[test]
fn data_in_fragments_may_be_acknowledged() {
    for at_once in [false, true] {
        let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
        mmb.open();
        let mut data = pieces(true, tcp(true, ACK, 101, 501, 60), 6, 40);
        if at_once {
            mmb.pass_all(&[A; 2], &mut data);
        } else {
            data.iter().for_each(|piece| assert!(mmb.passes(A, piece)));
        }
        assert!(mmb.passes(B, &segment(false, ACK, 501, 161)));
        assert_eq!(mmb.dropped(B, &segment(false, ACK, 501, 162)), DropReason::ConnInvalid);
    }
}

/// Of a connection that begins with a fragment too; and an acknowledgment may come in the vector of the data, as in a capture.
#[test]
fn data_in_fragments_that_begins_a_connection_may_be_acknowledged() {
    let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
    let mut frames = pieces(true, tcp(true, ACK, 101, 501, 60), 6, 40).to_vec();
    frames.push(segment(false, ACK, 501, 161));
    frames.extend(pieces(true, tcp(true, ACK, 161, 501, 60), 6, 40));
    frames.push(segment(false, ACK, 501, 221));
    let verdicts = mmb.pass_all(&[A, A, B, A, A, B], &mut frames);
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Send(_))), "{verdicts:?}");
    assert_eq!(mmb.state(), "established");
}

/// Only a datagram that is complete says how far its sender came: another fragment of it may be anybody's.
#[test]
fn a_forged_fragment_of_a_datagram_changes_nothing() {
    let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
    mmb.open();
    let [first, _] = pieces(true, tcp(true, ACK, 101, 501, 60), 6, 40);
    assert!(mmb.passes(A, &first));
    let far = piece(true, 6, &[9; 80], 800, true);
    assert!(mmb.passes(A, &far));
    assert_eq!(mmb.dropped(B, &segment(false, ACK, 501, 901)), DropReason::ConnInvalid);
    assert!(mmb.passes(A, &segment(true, FIN | ACK, 121, 501)));
    assert_eq!(mmb.state(), "fin-wait");
}

/// Who does not know what the other end sent cannot have a RST believed by making its number the one that is waited for.
#[test]
fn fragments_of_an_invalid_first_one_change_nothing() {
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.open();
    for piece in pieces(true, tcp(true, ACK, 101, 900_000, 60), 6, 40) {
        assert!(mmb.passes(A, &piece));
    }
    // Beyond the window that the other end announced, and the last byte in it.
    for piece in pieces(true, tcp(true, ACK, 101 + 2000, 501, 60), 6, 40) {
        assert!(mmb.passes(A, &piece));
    }
    for seq in [161, 2161] {
        mmb.passes(A, &segment(true, RST, seq, 0));
        assert_eq!(mmb.state(), "established");
    }
    mmb.passes(A, &segment(true, RST, 101, 0));
    assert_eq!(mmb.state(), "reset");
}

/// The last data of a transfer come with a FIN, and may come in pieces.
#[test]
fn a_fin_in_fragments_passes_as_data_and_changes_no_state() {
    let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
    mmb.open();
    for piece in pieces(true, tcp(true, FIN | ACK, 101, 501, 40), 6, 40) {
        assert!(mmb.passes(A, &piece));
    }
    assert_eq!(mmb.state(), "established");
    assert!(mmb.passes(B, &segment(false, ACK, 501, 142)), "its acknowledgment");
    for flags in [SYN, RST] {
        mmb.now_ms += 1000;
        let [first, _] = pieces(true, tcp(true, flags, 142, 501, 40), 6, 40);
        assert_eq!(mmb.dropped(A, &first), DropReason::ConnInvalid);
    }
    assert_eq!(mmb.state(), "established");
}

/// A checksum over pieces that never come together cannot be verified, and no end sends such a RST.
#[test]
fn a_reset_in_pieces_ends_nothing() {
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.open();
    let upper = tcp(false, RST, 501, 0, 12);
    let whole = Ip4 { source: SERVER, destination: INSIDE, ..Ip4::new(upper) };
    let piece = Ip4 { flags: 1, ..whole };
    assert!(mmb.passes(B, &piece.frame().bytes()));
    assert_eq!(mmb.state(), "established");
}

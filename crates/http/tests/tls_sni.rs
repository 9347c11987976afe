//! Server names of hellos that OpenSSL's `s_client` and Python's `ssl` sent, and of hellos that are cut, changed or hostile.
//!
//! The expected names are those that the clients were asked to send; scapy's parser reads the same from the files.

use mmb_http::{ClientHello, HelloProgress};
use proptest::prelude::*;

const CAPTURED: [(&str, &str, Option<&str>); 10] = [
    ("python", include_str!("captured/python.hex"), Some("www.example.com")),
    ("python-alpn", include_str!("captured/python-alpn.hex"), Some("a.b.example.org")),
    ("python-nameless", include_str!("captured/python-nameless.hex"), None),
    ("python-tls12", include_str!("captured/python-tls12.hex"), Some("tls12.example.net")),
    ("s-client", include_str!("captured/s-client.hex"), Some("www.example.com")),
    ("s-client-dot", include_str!("captured/s-client-dot.hex"), Some("www.example.com")),
    ("s-client-nameless", include_str!("captured/s-client-nameless.hex"), None),
    ("s-client-records", include_str!("captured/s-client-records.hex"), Some("split.example.com")),
    ("s-client-tls10", include_str!("captured/s-client-tls10.hex"), Some("old.example.com")),
    ("s-client-tls12", include_str!("captured/s-client-tls12.hex"), Some("xn--bcher-kva.example")),
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The hello without the records that hold it.
fn message(bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes;
    let mut message = Vec::new();
    while let [_, _, _, high, low, after @ ..] = rest {
        let count = usize::from(u16::from_be_bytes([*high, *low]));
        message.extend(&after[..count]);
        rest = &after[count..];
    }
    message
}

/// Records that hold a hello in pieces of a length.
fn records(message: &[u8], length: usize) -> Vec<u8> {
    let mut records = Vec::new();
    for fragment in message.chunks(length) {
        records.extend([22, 3, 1]);
        records.extend((fragment.len() as u16).to_be_bytes());
        records.extend(fragment);
    }
    records
}

fn feed(bytes: &[u8], piece: usize) -> ClientHello {
    let mut hello = ClientHello::default();
    bytes.chunks(piece).for_each(|piece| {
        hello.feed(piece);
    });
    hello
}

/// The progress and name that a captured hello has.
fn expected(name: Option<&str>) -> (HelloProgress, Option<&[u8]>) {
    (if name.is_some() { HelloProgress::Named } else { HelloProgress::Nameless }, name.map(str::as_bytes))
}

#[test]
fn captured_hellos_in_pieces_of_any_length() {
    for (client, hex, name) in CAPTURED {
        let bytes = bytes(hex);
        for piece in [1, 2, 3, 5, 6, 7, 64, 100, bytes.len()] {
            let hello = feed(&bytes, piece);
            assert_eq!((hello.progress(), hello.server_name()), expected(name), "{client} by {piece}");
        }
    }
}

#[test]
fn nothing_is_decided_before_the_last_byte() {
    for (client, hex, name) in CAPTURED {
        let bytes = bytes(hex);
        let (last, before) = bytes.split_last().unwrap();
        let mut hello = feed(before, 1);
        assert_eq!((hello.progress(), hello.server_name()), (HelloProgress::More, None), "{client}");
        assert_eq!(hello.feed(&[*last]), expected(name).0, "{client}");
    }
}

#[test]
fn what_is_decided_stays() {
    let mut hello = feed(&bytes(CAPTURED[0].1), 1000);
    assert_eq!(hello.feed(b"\x16\x03\x01\x00\x01\x00"), HelloProgress::Named);
    assert_eq!(hello.server_name(), Some(&b"www.example.com"[..]));
}

#[test]
fn a_hello_may_be_cut_over_records() {
    for (client, hex, name) in CAPTURED {
        let message = message(&bytes(hex));
        for length in [1, 2, 4, 5, 43, 100] {
            let hello = feed(&records(&message, length), 7);
            assert_eq!(
                (hello.progress(), hello.server_name()),
                expected(name),
                "{client} in records of {length}"
            );
        }
    }
}

#[test]
fn other_protocols_are_not_tls() {
    for bytes in
        [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-OpenSSH", b"\x00\x00\x00\x00\x00\x00", b"PRI * HTTP/2.0\r\n"]
    {
        assert_eq!(feed(bytes, 1).progress(), HelloProgress::NotTls, "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_name_that_no_host_has_is_invalid() {
    let bytes = bytes(CAPTURED[4].1);
    let at = bytes.windows(15).position(|window| window == b"www.example.com").unwrap();
    for (place, byte) in [(0, b'.'), (4, b'.'), (3, 0), (8, b' '), (9, 0xff), (14, b'/')] {
        let mut changed = bytes.clone();
        changed[at + place] = byte;
        assert_eq!(feed(&changed, 50).progress(), HelloProgress::Invalid, "{byte} at {place}");
    }
}

#[test]
fn lengths_that_lie_are_invalid() {
    let bytes = bytes(CAPTURED[4].1);
    let at = bytes.windows(15).position(|window| window == b"www.example.com").unwrap();
    // The lengths of the name, of the list of names and of the extension, one too large and one too small.
    for place in [at - 1, at - 4, at - 6] {
        for difference in [1, -1i8] {
            let mut changed = bytes.clone();
            changed[place] = changed[place].wrapping_add_signed(difference);
            assert_eq!(feed(&changed, 50).progress(), HelloProgress::Invalid, "{difference} at {place}");
        }
    }
}

#[test]
fn idle_records_are_bounded() {
    let alert = [21, 3, 1, 0, 2, 1, 0];
    let hello = bytes(CAPTURED[4].1);
    let after = |count: usize| feed(&[alert.repeat(count), hello.clone()].concat(), 33).progress();
    assert_eq!(after(10), HelloProgress::Named);
    assert_eq!(after(1000), HelloProgress::Invalid);
}

proptest! {
    #[test]
    fn the_cut_makes_no_difference(
        which in 0..CAPTURED.len(), changes in prop::collection::vec((0..300usize, any::<u8>()), 0..4),
        pieces in prop::collection::vec(1..90usize, 1..8),
    ) {
        let mut bytes = bytes(CAPTURED[which].1);
        let length = bytes.len();
        changes.into_iter().for_each(|(at, byte)| bytes[at % length] = byte);
        let whole = feed(&bytes, length);
        let mut cut = ClientHello::default();
        let (mut rest, mut pieces) = (&bytes[..], pieces.iter().cycle());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
            cut.feed(piece);
            rest = behind;
        }
        prop_assert_eq!((whole.progress(), whole.server_name()), (cut.progress(), cut.server_name()));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let hello = feed(&[&[22, 3, 1][..], &bytes].concat(), 11);
        prop_assert_eq!(hello.server_name().is_some(), hello.progress() == HelloProgress::Named);
    }
}

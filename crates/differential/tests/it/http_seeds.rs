//! Inputs made from the corpus of `http` at random: the reader agrees with the model of the grammar.

use mmb_differential::http::http;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::path::Path;

fn seeds() -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http");
    let mut files: Vec<_> =
        std::fs::read_dir(corpus).expect("a corpus").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a seed")).collect()
}

/// Bytes and words that mean something.
const WORDS: &[&[u8]] = &[
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b":",
    b";",
    b"0",
    b"5",
    b",",
    b"\0",
    b"\x7f",
    b"/",
    b"\xfe",
    b"\xfd",
    b"\xfc",
    b"@",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"HEAD",
    b"CONNECT",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Proxy-Connection: Close\r\n",
    b"Expect: x\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Upgrade: x\r\n",
    b"Host: a.org\r\n",
    b"http://a.org",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HTTP/1.1 101 a\r\n\r\n",
    b"HTTP/1.1 304 a\r\n\r\n",
    b"\xfeGET / HTTP/1.0\r\n\r\n\xfdHTTP/1.0 200 OK\r\n\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_reader_agrees_with_the_model(
        seed in select(seeds()),
        changes in vec((any::<Index>(), select(WORDS.to_vec()), 0..6usize), 0..5),
    ) {
        let mut input = seed;
        for (place, word, removed) in changes {
            let start = place.index(input.len() + 1);
            let end = (start + removed).min(input.len());
            input.splice(start..end, word.iter().copied());
        }
        prop_assert_eq!(http(&input), Ok(()), "{}", input.escape_ascii());
    }
}

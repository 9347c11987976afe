//! Names of HTTP header fields, and texts in which a part stands for what was matched.
//!
//! The checker makes these values, and only from what may stand in a message, so that nothing later escapes or checks them again.

use std::fmt;

/// The name of an HTTP header field: a token (RFC 9110, section 5.6.2) of at most [`HeaderName::MAX_LEN`] bytes, as the rule has it.
///
/// Names of messages are compared without regard to case ([`HeaderName::is`]); names of rules are equal if they are written alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeaderName(Box<str>);

impl HeaderName {
    /// The most bytes of a name.
    pub const MAX_LEN: usize = 256;

    /// The name of these bytes; `None` if they are no token or too many.
    pub fn new(name: &[u8]) -> Option<HeaderName> {
        let is_good = is_token(name) && name.len() <= HeaderName::MAX_LEN;
        let name = is_good.then(|| std::str::from_utf8(name).ok())??;
        Some(HeaderName(name.into()))
    }

    /// The name in the record of a rule, where it was checked.
    pub(crate) fn of_record(name: &str) -> HeaderName {
        HeaderName(name.into())
    }

    /// The name as the rule has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a message's header field has this name.
    pub fn is(&self, name: &[u8]) -> bool {
        self.0.as_bytes().eq_ignore_ascii_case(name)
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Header fields that rules do not write, with the reason. `strip !` keeps them, whatever it names.
const FIXED: &[(&str, &str)] = &[
    ("Connection", HOP_BY_HOP),
    ("Content-Length", FRAMING),
    ("Host", "a request has exactly one (RFC 9112, section 3.2), which `mod http-host` writes"),
    ("Keep-Alive", HOP_BY_HOP),
    ("Proxy-Connection", HOP_BY_HOP),
    ("TE", HOP_BY_HOP),
    ("Trailer", FRAMING),
    ("Transfer-Encoding", FRAMING),
    ("Upgrade", HOP_BY_HOP),
];

const FRAMING: &str = "it says where a message ends, and mmb writes it where a body changes";
const HOP_BY_HOP: &str = "it is about one connection (RFC 9110, section 7.6.1), which mmb does not end";

/// The reason why rules do not write a header field of this name, and why `strip !` keeps it; `None` if they may.
pub fn fixed_header(name: &[u8]) -> Option<&'static str> {
    let fixed = FIXED.iter().find(|(fixed, _)| fixed.as_bytes().eq_ignore_ascii_case(name));
    fixed.map(|(_, reason)| *reason)
}

/// The names of the header fields that rules do not write.
pub fn fixed_headers() -> impl Iterator<Item = &'static str> {
    FIXED.iter().map(|(name, _)| *name)
}

/// Whether bytes are a token (RFC 9110, section 5.6.2), as methods and names of header fields are.
pub fn is_token(bytes: &[u8]) -> bool {
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_good)
}

/// What an edit puts in the place of what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Replacement {
    /// No part of bytes is empty, and no two of them are neighbours.
    parts: Vec<ReplacementPart>,
}

/// A part of a [`Replacement`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReplacementPart {
    /// These bytes.
    Bytes(Vec<u8>),
    /// `\m`: the bytes that the edit replaces.
    Matched,
}

impl Replacement {
    /// The most bytes, `\m` aside.
    pub const MAX_BYTES: usize = 4096;
    /// The most parts that are what was matched.
    pub const MAX_MATCHED: usize = 16;

    /// The replacement of these parts, in the order given. Neighbouring bytes become one part.
    pub fn new(parts: impl IntoIterator<Item = ReplacementPart>) -> Replacement {
        let mut replacement = Replacement::default();
        for part in parts {
            match (part, replacement.parts.last_mut()) {
                (ReplacementPart::Bytes(bytes), _) if bytes.is_empty() => {}
                (ReplacementPart::Bytes(bytes), Some(ReplacementPart::Bytes(before))) => before.extend(bytes),
                (part, _) => replacement.parts.push(part),
            }
        }
        replacement
    }

    /// The replacement by these bytes alone.
    pub fn of_bytes(bytes: Vec<u8>) -> Replacement {
        Replacement::new([ReplacementPart::Bytes(bytes)])
    }

    /// The parts in order; none: what was found goes.
    pub fn parts(&self) -> &[ReplacementPart] {
        &self.parts
    }

    /// All its bytes, one part after the other, without what was matched.
    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        self.parts
            .iter()
            .flat_map(|part| match part {
                ReplacementPart::Bytes(bytes) => &bytes[..],
                ReplacementPart::Matched => &[],
            })
            .copied()
    }

    /// The number of parts that are what was matched.
    pub fn matched(&self) -> usize {
        self.parts.iter().filter(|part| **part == ReplacementPart::Matched).count()
    }

    /// Appends what stands in the place of `matched`.
    pub fn write(&self, matched: &[u8], out: &mut Vec<u8>) {
        for part in &self.parts {
            out.extend_from_slice(match part {
                ReplacementPart::Bytes(bytes) => bytes,
                ReplacementPart::Matched => matched,
            });
        }
    }

    /// The number of bytes that stand in the place of `matched` bytes.
    pub fn len_for(&self, matched: usize) -> usize {
        let len = |part: &ReplacementPart| match part {
            ReplacementPart::Bytes(bytes) => bytes.len(),
            ReplacementPart::Matched => matched,
        };
        self.parts.iter().map(len).fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tokens_and_compare_in_either_case() {
        let name = HeaderName::new(b"X-By").expect("a token");
        assert!(name.is(b"x-bY") && !name.is(b"X-B"));
        assert_eq!(name.as_str(), "X-By");
        for bad in [&b""[..], b"a b", b"a:", b"a\r", b"\xc3\xa9", &[b'a'; HeaderName::MAX_LEN + 1]] {
            assert_eq!(HeaderName::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_frames_a_message_is_fixed_in_either_case() {
        assert!(fixed_headers().all(|name| fixed_header(name.to_lowercase().as_bytes()).is_some()));
        assert!(fixed_header(b"content-length").is_some_and(|reason| reason.contains("ends")));
        assert_eq!(fixed_header(b"Content-Lengt"), None);
    }

    #[test]
    fn a_replacement_has_one_form() {
        use ReplacementPart::{Bytes, Matched};
        let parts = [Bytes(vec![]), Bytes(b"a".to_vec()), Bytes(b"b".to_vec()), Matched, Bytes(vec![])];
        let replacement = Replacement::new(parts);
        assert_eq!(replacement.parts(), [Bytes(b"ab".to_vec()), Matched]);
        let mut out = b"<".to_vec();
        replacement.write(b"xyz", &mut out);
        assert_eq!((&out[..], replacement.len_for(3)), (&b"<abxyz"[..], 5));
        assert_eq!(Replacement::of_bytes(Vec::new()).parts(), []);
    }
}

//! Texts of a command as its remedies repeat them.

use mmb_policy::http::HeaderName;

/// The longest text that a remedy repeats, in bytes.
const MAX_SHOWN: usize = 64;

/// A text between quotes that needs no escapes there, or in the remedy around it; `None` for other texts, and long ones.
pub(super) fn shown(text: &[u8]) -> Option<&str> {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !b"\"\\`".contains(byte);
    let is_shown = text.len() <= MAX_SHOWN && text.iter().all(is_plain);
    if is_shown { std::str::from_utf8(text).ok() } else { None }
}

/// How a header field is written that was given as one text.
pub(super) fn header_field(text: &[u8]) -> String {
    let (name, value) = shown(text).and_then(|text| text.split_once(':')).unwrap_or_default();
    match (HeaderName::new(name.trim().as_bytes()), value.trim()) {
        (Some(name), "") => format!("`http-header \"{name}\"`"),
        (Some(name), value) => format!("`http-header \"{name}\" \"{value}\"`"),
        (None, _) => "`http-header \"NAME\" \"VALUE\"`".to_owned(),
    }
}

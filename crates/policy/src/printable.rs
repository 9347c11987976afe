//! Escapes invisible characters in texts of users, clients and files before a terminal or a log shows them.
//!
//! Invisible characters can change how a text appears: control characters move the cursor, bidirectional embeddings and
//! isolates reorder the text after them (CVE-2021-42574), separators begin a line, and characters without width hide.
//! mmb escapes them in every text from outside that it prints or logs.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character must be escaped: control characters (Unicode category Cc), line and paragraph separators (Zl, Zp),
/// format characters (Cf, among them those of bidirectional text), and fillers without width.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Escapes a text that is part of a line. Each hidden character becomes an escape such as `\u{202e}`; line breaks and tabs
/// are escaped too.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false, |c, out| out.extend(c.escape_default()))
}

/// Escapes a text of whole lines: as [`printable`], but line breaks stay.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n', |c, out| out.extend(c.escape_default()))
}

/// Escapes lines of JSON. Each hidden character becomes an escape of JSON (RFC 8259, section 7). Only strings can have
/// such characters, so the values stay the same.
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    escaped(
        json,
        |c| c == '\n',
        |c, out| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string never fails.
                let _ = write!(out, "\\u{unit:04x}");
            }
        },
    )
}

fn escaped(text: &str, stays: impl Fn(char) -> bool, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let is_escaped = |c: char| is_hidden(c) && !stays(c);
    let Some(first) = text.find(is_escaped) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..first]);
    for c in text[first..].chars() {
        if is_escaped(c) { escape(c, &mut out) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Characters that reorder, hide or break lines, by the code charts of Unicode.
    const TRICKS: [char; 20] = [
        '\0',
        '\t',
        '\r',
        '\u{1b}',
        '\u{7f}',
        '\u{85}',
        '\u{9b}',
        '\u{ad}',
        '\u{61c}',
        '\u{200b}',
        '\u{200e}',
        '\u{2028}',
        '\u{2029}',
        '\u{202a}',
        '\u{202e}',
        '\u{2066}',
        '\u{2069}',
        '\u{feff}',
        '\u{e0041}',
        '\u{fff9}',
    ];

    fn texts() -> impl Strategy<Value = String> {
        let chars = prop_oneof![any::<char>(), prop::sample::select(&TRICKS[..]), Just('\n'), Just('a')];
        prop::collection::vec(chars, 0..40).prop_map(|chars| chars.into_iter().collect())
    }

    #[test]
    fn tricks_are_hidden_and_letters_of_all_scripts_are_not() {
        assert!(TRICKS.into_iter().all(is_hidden));
        assert!(!"aé ñ שלום مرحبا 世界 हिन्दी €🙂".chars().any(is_hidden));
        assert_eq!(printable("a\u{202e}b\n\u{85}é"), r"a\u{202e}b\n\u{85}é");
        assert_eq!(printable_lines("a\nb\tc\n"), "a\nb\\tc\n");
        assert_eq!(printable_json("\"\u{202e}\u{e0041}\"\n"), "\"\\u202e\\udb40\\udc41\"\n");
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left(text in texts()) {
            prop_assert!(!printable(&text).chars().any(is_hidden));
            prop_assert!(!printable_lines(&text).chars().any(|c| is_hidden(c) && c != '\n'));
            prop_assert_eq!(printable_lines(&text).lines().count(), text.lines().count());
            prop_assert!(!printable_json(&text).chars().any(|c| is_hidden(c) && c != '\n'));
            if !text.chars().any(is_hidden) {
                prop_assert_eq!(printable(&text), text.as_str());
            }
        }
    }
}

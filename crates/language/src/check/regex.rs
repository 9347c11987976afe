//! Checks the regexes of patterns: what they are over, and what no scanner of streams can do.

use mmb_policy::pattern::Regex;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Checks a regex; an error is the message and the remedy. `late_end` is what it searches and why its end is not known; `None`: it is.
///
/// Whether a scanner takes it is known only when it is compiled.
pub(super) fn check(regex: &Regex, late_end: Option<&str>) -> Result<(), (String, &'static str)> {
    if regex.source.len() > Regex::MAX_LEN {
        return Err((format!("this regex has {} bytes", regex.source.len()), "at most 4096"));
    }
    let hir = parse(regex).map_err(|error| {
        let reason = match &*error {
            regex_syntax::Error::Parse(error) => error.kind().to_string(),
            regex_syntax::Error::Translate(error) => error.kind().to_string(),
            _ => error.to_string(),
        };
        (format!("this regex is not understood: {reason}"), "a regex over bytes, with `\\/` for a slash")
    })?;
    match hir.properties().minimum_len() {
        Some(0) => {
            return Err((
                "this regex matches the empty string, which is everywhere".into(),
                "a regex that needs a byte",
            ));
        }
        None => return Err(("this regex can match nothing".into(), "a regex that some bytes match")),
        Some(_) => {}
    }
    if let Some(late) = late_end.filter(|_| hir.properties().look_set().contains(Look::End)) {
        return Err((format!("`$` asks for the end of {late}"), "the regex without `$`"));
    }
    if !is_over_bytes(&hir) {
        return Err((
            "regexes are over bytes, and `(?u)` asks for characters".into(),
            "the regex without `u`",
        ));
    }
    Ok(())
}

/// The most bytes of a match that a rule edits: while more bytes may belong to it, the ones before are held back.
const LONGEST_EDITED: usize = 4096;

/// Checks that no match of a regex, which has passed [`check`], has more than [`LONGEST_EDITED`] bytes; an error is the message and the remedy.
pub(super) fn is_bounded(regex: &Regex) -> Result<(), (String, &'static str)> {
    // Errors of the regex were told before.
    let longest = parse(regex).map_or(Some(0), |hir| hir.properties().maximum_len());
    let (reason, remedy) = match longest {
        Some(..=LONGEST_EDITED) => return Ok(()),
        Some(bytes) => {
            (format!("a match of this regex has up to {bytes} bytes"), "smaller bounds, such as `{0,200}`")
        }
        None => (
            "a match of this regex may have any length".to_owned(),
            "bounds in place of `*` and `+`, as in `[^>]{0,200}` for `[^>]*`",
        ),
    };
    let message = format!("{reason}, and an edit waits for its end: at most {LONGEST_EDITED} bytes");
    Err((message, remedy))
}

fn parse(regex: &Regex) -> Result<Hir, Box<regex_syntax::Error>> {
    let mut parser =
        ParserBuilder::new().utf8(false).unicode(false).case_insensitive(regex.ignores_case).build();
    parser.parse(&regex.source).map_err(Box::new)
}

/// Whether no class of a regex is of characters. The parser bounds how deeply a regex is nested.
fn is_over_bytes(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => true,
        HirKind::Class(Class::Bytes(_)) => true,
        // That of ASCII is one of bytes: `a|b` is read so.
        HirKind::Class(Class::Unicode(class)) => class.is_ascii(),
        HirKind::Repetition(repetition) => is_over_bytes(&repetition.sub),
        HirKind::Capture(capture) => is_over_bytes(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().all(is_over_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(source: &str) -> Option<String> {
        check(&Regex { source: source.to_owned(), ignores_case: false }, Some("the stream"))
            .err()
            .map(|(message, _)| message)
    }

    #[test]
    fn regexes_over_bytes_are_taken() {
        for source in [
            "cmd\\.exe",
            "\\xff\\x00[^>]{0,200}a",
            "^GET ",
            "(?i)a|b+",
            "gr(a|e)y",
            "a|b",
            "\\bword\\b",
            "(?m)a$",
            "é",
            ".",
            "\\w{3}",
        ] {
            assert_eq!(refusal(source), None, "{source}");
        }
    }

    #[test]
    fn a_name_has_an_end() {
        let regex = Regex { source: "\\.org$".to_owned(), ignores_case: false };
        assert_eq!((check(&regex, None), check(&regex, Some("the stream")).is_err()), (Ok(()), true));
    }

    #[test]
    fn what_no_scanner_does_is_refused() {
        let long = "a".repeat(Regex::MAX_LEN + 1);
        for (source, why) in [
            ("", "empty string"),
            ("a*", "empty string"),
            ("^", "empty string"),
            ("[a&&b]", "nothing"),
            ("a(?=b)", "look-around"),
            ("(a)\\1", "backreferences"),
            ("a$", "end of the stream"),
            ("(a", "unclosed group"),
            ("(?u)[é-ü]", "over bytes"),
            ("\\pL", "not understood"),
            (&long, "4097 bytes"),
        ] {
            let message = refusal(source).unwrap_or_default();
            assert!(message.contains(why), "{source}: {message}");
        }
    }
}

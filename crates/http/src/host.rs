//! Host names and the patterns that match them.

/// Whether a pattern of host names matches a name.
///
/// The pattern is a whole name; with a leading dot it is a domain, which matches the domain and all names below it. The case of ASCII
/// letters and one trailing dot, of the pattern or the name, make no difference. An empty name or pattern, or one that is only a dot,
/// matches nothing.
///
/// ```
/// use mmb_http::host_matches;
///
/// assert!(host_matches(b".example.com", b"WWW.Example.com"));
/// assert!(host_matches(b".example.com", b"example.com."));
/// assert!(!host_matches(b".example.com", b"badexample.com"));
/// assert!(!host_matches(b"example.com", b"www.example.com"));
/// ```
#[must_use]
pub fn host_matches(pattern: &[u8], name: &[u8]) -> bool {
    let name = without_trailing_dot(name);
    let pattern = without_trailing_dot(pattern);
    let Some(domain) = pattern.strip_prefix(b".") else {
        return !name.is_empty() && name.eq_ignore_ascii_case(pattern);
    };
    if domain.is_empty() || name.len() < domain.len() {
        return false;
    }
    let (below, end) = name.split_at(name.len() - domain.len());
    end.eq_ignore_ascii_case(domain) && (below.is_empty() || below.ends_with(b"."))
}

/// A name as a key: in lower case and without the dot at its end, so that names that are equal have equal keys.
#[must_use]
pub fn name_key(name: &[u8]) -> Vec<u8> {
    without_trailing_dot(name).to_ascii_lowercase()
}

/// The name without the dot at its end that stands for the root.
pub(crate) fn without_trailing_dot(name: &[u8]) -> &[u8] {
    name.strip_suffix(b".").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_whole_name() {
        assert!(host_matches(b"example.com", b"example.com"));
        for name in [&b"www.example.com"[..], b"example.co", b"example.com.org", b"xample.com", b""] {
            assert!(!host_matches(b"example.com", name), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_leading_dot_takes_in_what_is_below() {
        for name in [&b"example.com"[..], b"a.example.com", b"b.a.example.com"] {
            assert!(host_matches(b".example.com", name), "{}", name.escape_ascii());
        }
        for name in [&b"badexample.com"[..], b"com", b"example.com.org", b""] {
            assert!(!host_matches(b".example.com", name), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn case_and_a_trailing_dot_make_no_difference() {
        assert!(host_matches(b"Example.COM", b"eXAMPLE.com"));
        assert!(host_matches(b".Example.COM.", b"www.eXAMPLE.com"));
        assert!(host_matches(b"example.com", b"example.com."));
        assert!(!host_matches(b"example.com", b"example.com.."));
        // Bytes that differ in the bit of the case but are no letters.
        assert!(!host_matches(b"a@b", b"a`b"));
    }

    #[test]
    fn nothing_matches_nothing() {
        for pattern in [&b""[..], b".", b".."] {
            for name in [&b""[..], b".", b"..", b"example.com", b"example.com."] {
                assert!(!host_matches(pattern, name), "{pattern:?} {name:?}");
            }
        }
    }
}

//! Names of one word or several, read word by word: `poll`, `conn max`.
//!
//! In the tables, names that begin alike stand together, and none is the beginning of another.

/// The beginning of a name that becomes of `begun` (nothing, or whole words) with another word, which may be all of the
/// name; `None` if no name begins so.
pub(crate) fn longer(
    mut names: impl Iterator<Item = &'static str>,
    begun: &str,
    word: &str,
) -> Option<&'static str> {
    names.find_map(|name| {
        let rest = behind(name, begun)?;
        let next = first_word(rest);
        (next == word).then(|| &name[..name.len() - rest.len() + next.len()])
    })
}

/// The words that may follow the beginning of a name, each with the first name that it leads to.
pub(crate) fn next_words(
    names: impl Iterator<Item = &'static str>,
    begun: &str,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut last = "";
    names.filter_map(move |name| {
        let next = first_word(behind(name, begun).filter(|rest| !rest.is_empty())?);
        (std::mem::replace(&mut last, next) != next).then_some((next, name))
    })
}

/// The rest of a name behind its beginning.
fn behind(name: &'static str, begun: &str) -> Option<&'static str> {
    if begun.is_empty() { Some(name) } else { name.strip_prefix(begun)?.strip_prefix(' ') }
}

fn first_word(text: &'static str) -> &'static str {
    text.split(' ').next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::SHOWS;
    use mmb_policy::setting_table::SETTINGS;
    use std::collections::HashSet;

    fn told_apart(names: &[&'static str]) {
        let all = || names.iter().copied();
        for name in all() {
            let mut begun = "";
            for word in name.split(' ') {
                assert!(!names.contains(&begun), "`{begun}` is whole before `{name}`");
                assert!(next_words(all(), begun).any(|(next, _)| next == word));
                begun = longer(all(), begun, word).expect("it goes on");
            }
            assert_eq!(begun, name);
            assert_eq!(next_words(all(), begun).count(), 0);
        }
        let first: Vec<_> = next_words(all(), "").map(|(word, _)| word).collect();
        assert_eq!(
            first.iter().collect::<HashSet<_>>().len(),
            first.len(),
            "what begins alike is in one piece"
        );
    }

    #[test]
    fn names_are_told_apart_word_by_word() {
        told_apart(&SETTINGS.iter().map(|info| info.name).collect::<Vec<_>>());
        told_apart(&SHOWS.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
        let names = || ["conn max", "conn pickup", "poll"].into_iter();
        assert_eq!(longer(names(), "conn", "maxx"), None);
        assert_eq!(longer(names(), "con", "max"), None);
        assert_eq!(next_words(names(), "").collect::<Vec<_>>(), [("conn", "conn max"), ("poll", "poll")]);
    }
}

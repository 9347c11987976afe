//! Lists of words in messages.

/// `a, b or c`, each as code.
pub(crate) fn list<'s>(words: impl Iterator<Item = &'s str>) -> String {
    let words: Vec<_> = words.map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

//! The nearest known word to one that is not known.

/// The candidate that `word` was most likely meant to be: of the smallest edit distance, if that is small for the
/// length of the word; of several the first.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A long word is no slip of a short one, and distances cost the product of the lengths.
    if word.len() > 40 {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let bound = match word.chars().count() {
        0..=4 => 1,
        5..=7 => 2,
        _ => 3,
    };
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= bound && distance < candidate.chars().count())
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Edit distance; a candidate that `word` begins counts as near.
fn distance(word: &str, candidate: &str) -> usize {
    if word.len() >= 3 && candidate.starts_with(word) {
        return 1;
    }
    strsim::damerau_levenshtein(word, candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_finds_its_word() {
        let words = ["tcp-dport", "tcp-sport", "udp-dport", "ip-ttl", "drop"];
        assert_eq!(nearest("tcp-dprt", words), Some("tcp-dport"));
        assert_eq!(nearest("TCP-DPORT", words), Some("tcp-dport"));
        assert_eq!(nearest("dorp", words), Some("drop"));
        assert_eq!(nearest("ip-tl", words), Some("ip-ttl"));
        assert_eq!(nearest("banana", words), None);
        assert_eq!(nearest("", words), None);
    }
}

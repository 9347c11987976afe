//! "Did you mean …?"

/// The known name that is most similar to a wrong one, if any is similar.
pub fn nearest<'a>(wrong: &str, known: &'a [String]) -> Option<&'a str> {
    let bound = (wrong.chars().count() / 2).clamp(1, 3);
    let scored = known.iter().map(|name| (distance(wrong, name), name.as_str()));
    scored.filter(|&(far, _)| far <= bound).min().map(|(_, name)| name)
}

/// Edit distance where two letters swapped count once (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    rows[i - 2][j - 2] + 1
                } else {
                    usize::MAX
                };
                replaced.min(swapped).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1)
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let known: Vec<String> = ["lo", "eth0", "veth-a"].map(str::to_owned).into();
        assert_eq!(nearest("eht0", &known), Some("eth0"));
        assert_eq!(nearest("vetha", &known), Some("veth-a"));
        assert_eq!(nearest("wlan0", &known), None);
    }
}

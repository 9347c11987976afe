//! The policies that are measured.

use super::traffic::SEGMENT;
use anyhow::anyhow;
use mmb_language::parse_policy_with;
use mmb_policy::{PatternList, Policy};
use mmb_random::RepeatableRandom;
use std::collections::HashSet;

const ACCEPT: &str = "add-stateful tcp-dport 80 accept\n";
const NAT: &str =
    "add-stateful tcp-dport 80 map ip-saddr 198.51.100.0/24 lb ip-daddr {10.1.0.1, 10.1.0.2, 10.1.0.3}\n";
const SOURCE_NAT: &str = "add-stateful tcp-dport 80 map ip-saddr 198.51.100.0/24\n";
const DIGEST: &str = "add-stateful tcp-dport 80 digest\n";
const SERVER_NAME: &str = "add-stateful tcp-dport 80 tls-sni \"none.example\" close\n";
const LITERALS: &str =
    "patterns literals literals\nadd-stateful tcp-dport 80 stream-forward @literals close\n";

const STRIPS: &str =
    "patterns literals literals\nadd-stateful tcp-dport 80 stream-forward @literals strip stream-forward\n";
const GROWS: &str = "add-stateful tcp-dport 80 stream-forward \"MARK\" mod stream-forward \"replaced \\m\"\n";

/// What the rows that edit replace; the text has no such letters.
const MARK: &[u8] = b"MARK";

/// Bytes of a literal.
const SHORTEST: usize = 8;
const LONGEST: u64 = 16;

/// A policy.
pub(super) struct Chain {
    pub(super) name: &'static str,
    commands: &'static [&'static str],
    /// The number of literals in the list of patterns.
    pub(super) literals: usize,
    /// Cycles for a byte of payload that it may cost with AVX-512.
    pub(super) target: Option<f64>,
    /// Of how many segments one has a match that an edit replaces; 0 for none.
    marks: usize,
}

const fn row(
    name: &'static str,
    commands: &'static [&'static str],
    literals: usize,
    target: Option<f64>,
) -> Chain {
    Chain { name, commands, literals, target, marks: 0 }
}

/// A row whose streams have a match in one of `marks` segments.
const fn marked(name: &'static str, marks: usize, target: f64) -> Chain {
    Chain { name, commands: &[GROWS], literals: 0, target: Some(target), marks }
}

/// The rows of the table. Each row of the chain has the functions of the one before and another one.
pub(super) const CHAINS: [Chain; 18] = [
    row("no rules", &[], 0, None),
    row("connections", &[ACCEPT], 0, None),
    row("NAT and balancing", &[NAT], 0, Some(0.30)),
    row("watch: digest", &[DIGEST], 0, None),
    row("guard", &[SERVER_NAME], 0, Some(0.55)),
    row("guard and digest", &[SERVER_NAME, DIGEST], 0, Some(0.62)),
    row("guard, 1 literal", &[LITERALS], 1, Some(0.75)),
    row("guard, 100 literals", &[LITERALS], 100, Some(1.3)),
    row("guard, 1000 literals", &[LITERALS], 1000, Some(1.5)),
    row("guard, 10000 literals", &[LITERALS], 10_000, Some(2.2)),
    row("edit, no match", &[STRIPS], 1, Some(0.80)),
    marked("edit, a growing match every 10 KB", 7, 1.2),
    marked("edit, a growing match in every segment", 1, 2.5),
    row("chain: NAT", &[SOURCE_NAT], 0, None),
    row("chain: + reassembly", &[SOURCE_NAT, SERVER_NAME], 0, None),
    row("chain: + balancing", &[NAT, SERVER_NAME], 0, None),
    row("chain: + digest", &[NAT, SERVER_NAME, DIGEST], 0, None),
    row("chain: + 100 literals", &[NAT, SERVER_NAME, DIGEST, LITERALS], 100, None),
];

/// The policies of the measurement of memory: with streams, and with the same connections without them.
pub(super) const WITH_STREAMS: Chain = row("guard, 100 literals", &[LITERALS], 100, None);
pub(super) const WITHOUT_STREAMS: Chain = row("connections", &[ACCEPT], 0, None);

impl Chain {
    /// The text of its streams: `text`, with matches.
    pub(super) fn text(&self, text: &[u8]) -> Vec<u8> {
        let mut text = text.to_vec();
        if self.marks > 0 {
            for segment in text.chunks_mut(SEGMENT).step_by(self.marks) {
                segment[SEGMENT / 2..][..MARK.len()].copy_from_slice(MARK);
            }
        }
        text
    }

    /// Whether its packets are changed: an edit holds back what may be the beginning of a match, so that others carry it.
    pub(super) fn changes_payload(&self) -> bool {
        self.commands.iter().any(|command| [STRIPS, GROWS].contains(command))
    }

    /// The policy, with room for that many connections.
    ///
    /// # Errors
    /// A command is wrong.
    pub(super) fn policy(&self, literals: &[Vec<u8>], connections: usize) -> anyhow::Result<Policy> {
        let list = |file: &str| Ok(PatternList::new(file.to_owned(), literals[..self.literals].to_vec()));
        let parsed = parse_policy_with(&self.commands.concat(), &list);
        let (mut policy, _) = parsed.map_err(|errors| anyhow!("{}: {}", self.name, errors[0].message))?;
        let settings = &mut policy.settings;
        settings.connections.max = settings.connections.max.max(connections as u32);
        settings.streams.max = settings.streams.max.max(connections as u32);
        Ok(policy)
    }
}

/// Returns random literals that do not occur in the streams of a text, which each repeat their part of `stream` bytes.
pub(super) fn literals(count: usize, text: &[u8], stream: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = RepeatableRandom::for_purpose(seed, "literals");
    let mut draw = || {
        let length = SHORTEST as u64 + random.below(LONGEST - SHORTEST as u64 + 1);
        (0..length).map(|_| b'a' + random.below(26) as u8).collect::<Vec<u8>>()
    };
    let mut literals: Vec<Vec<u8>> = (0..count).map(|_| draw()).collect();
    loop {
        let begins: HashSet<&[u8]> = literals.iter().map(|literal| &literal[..SHORTEST]).collect();
        let found = found(&begins, text, stream);
        if found.is_empty() {
            return literals;
        }
        let is_found = |literal: &Vec<u8>| found.contains(&literal[..SHORTEST]);
        let again: Vec<usize> = (0..count).filter(|number| is_found(&literals[*number])).collect();
        again.into_iter().for_each(|number| literals[number] = draw());
    }
}

/// The beginnings of literals that occur in a stream.
fn found(begins: &HashSet<&[u8]>, text: &[u8], stream: usize) -> HashSet<Vec<u8>> {
    debug_assert_eq!(stream % SEGMENT, 0);
    let mut found = HashSet::new();
    for part in text.chunks(stream) {
        let across = [&part[part.len() - SHORTEST + 1..], &part[..SHORTEST - 1]].concat();
        let windows = part.windows(SHORTEST).chain(across.windows(SHORTEST));
        found.extend(windows.filter(|window| begins.contains(window)).map(<[u8]>::to_vec));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::traffic;
    use super::*;

    #[test]
    fn literals_do_not_occur_in_the_text() {
        let text = traffic::text(2, 3);
        let all = literals(50, &text, SEGMENT, 3);
        assert!(all.iter().all(|literal| (8..=16).contains(&literal.len())));
        let stream = [&text[..SEGMENT], &text[..SEGMENT]].concat();
        assert!(all.iter().all(|literal| !stream.windows(literal.len()).any(|window| window == literal)));
        assert_eq!(all, literals(50, &text, SEGMENT, 3));
        // What occurs is drawn again, also where a stream goes on from its end to its begin.
        let begin = &stream[SEGMENT - 3..SEGMENT + 5];
        assert_eq!(found(&HashSet::from([begin]), &text, SEGMENT), HashSet::from([begin.to_vec()]));
    }

    #[test]
    fn every_policy_is_valid() {
        let all = vec![b"abcdefgh".to_vec(); 10_000];
        for chain in &CHAINS {
            let policy = chain.policy(&all, 7).expect(chain.name);
            assert_eq!(policy.lists.is_empty(), chain.literals == 0);
        }
    }
}

//! The state of each packet in connection tracking as rules see it, for tests.

use crate::host::Middlebox;

/// Which of the words of `ct` hold of a packet: each has a rule of its own, that counts.
pub(crate) struct Witnessed(pub(crate) Middlebox);

const WORDS: [&str; 5] = ["new", "established", "related", "reply", "invalid"];

impl Witnessed {
    pub(crate) fn new(more: &str) -> Witnessed {
        let rules = WORDS.iter().zip(1..).map(|(word, id)| format!("add id {id} ct {word} mod ip-ttl 9\n"));
        let rules: String = rules.collect();
        Witnessed(Middlebox::new(&format!("{rules}{more}")))
    }

    fn counts(&self) -> Vec<u64> {
        (1..=5).map(|id| self.0.engine.rule_count(mmb_policy::RuleId(id)).matched.packets).collect()
    }

    pub(crate) fn states(&mut self, port: u16, frame: &[u8]) -> Vec<&'static str> {
        let before = self.counts();
        self.0.pass(port, frame);
        let after = self.counts();
        let held = WORDS.iter().zip(before.iter().zip(&after));
        held.filter(|(_, (before, after))| after > before).map(|(word, _)| *word).collect()
    }
}

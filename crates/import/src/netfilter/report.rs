//! What is told about a translation besides its rules: omissions, each once, and remarks that are collected by their text.

use super::ruleset::Ruleset;
use crate::draft::{Effect, LeftOut, Place, PolicyDraft, count};
use std::collections::{BTreeMap, BTreeSet};

/// A rule that no packet reaches, in words.
const NO_PACKET: &str = "no packet gets to the rule and matches it";

/// What is told at the end.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Remarks that are listed once, for all their places.
    remarks: BTreeMap<&'static str, BTreeSet<Place>>,
    /// Omissions that are listed already: each is listed once, however often its chain is called.
    left_out: BTreeSet<(Place, String)>,
    /// Rules that some packet reaches and matches, in some call of their chain.
    pub(super) matched: BTreeSet<Place>,
    /// Rules that no packet reaches and matches in some call of their chain. Another call may have such packets.
    pub(super) unmatched: BTreeSet<Place>,
    /// The chains that some rule or hook calls.
    pub(super) seen: BTreeSet<usize>,
    /// Some rule matches connection states.
    pub(super) asks_state: bool,
}

impl Report {
    pub(super) fn remark(&mut self, text: &'static str, place: &Place) {
        self.remarks.entry(text).or_default().insert(place.clone());
    }

    /// An omission, if it is not listed already.
    pub(super) fn leave_out(
        &mut self,
        place: &Place,
        text: &str,
        reason: String,
        effect: Effect,
    ) -> Option<LeftOut> {
        let new = self.left_out.insert((place.clone(), reason.clone()));
        new.then(|| LeftOut { place: place.clone(), text: text.to_owned(), reason, effect })
    }

    /// Lists the remarks, and the chains that the policy does not contain.
    pub(super) fn finish(mut self, ruleset: &Ruleset, draft: &mut PolicyDraft) {
        let unmatched: Vec<Place> = self.unmatched.difference(&self.matched).cloned().collect();
        for place in unmatched {
            self.remark(NO_PACKET, &place);
        }
        for (text, places) in &self.remarks {
            draft.note(format!("{}: {text}", listed(places)));
        }
        for (id, chain) in ruleset.chains.iter().enumerate() {
            if !self.seen.contains(&id) && !chain.rules.is_empty() {
                let rules = count(chain.rules.len(), "rule");
                let (place, about) = (&chain.place, &ruleset.about);
                let name = match chain.table.as_str() {
                    "filter" => format!("chain {}", chain.name),
                    table => format!("chain {} of table {table}", chain.name),
                };
                draft.note(format!("{place}: {name} with {rules} does not belong to {about}"));
            }
        }
    }
}

/// Places in words: lines together.
fn listed(places: &BTreeSet<Place>) -> String {
    let lines: Vec<String> = places
        .iter()
        .filter_map(|place| match place {
            Place::Line { line } => Some(line.to_string()),
            Place::Handle { .. } => None,
        })
        .collect();
    let others = places.iter().filter(|place| matches!(place, Place::Handle { .. })).map(Place::to_string);
    let mut words: Vec<String> = match lines.len() {
        0 => Vec::new(),
        1 => vec![format!("line {}", lines[0])],
        _ => vec![format!("lines {}", lines.join(", "))],
    };
    words.extend(others);
    words.join(", ")
}

//! The list of rules with their counters: a page of it, searched and sorted here, so that a browser can show a million rules.

use mmb_protocol::answer::{Answer, RuleLine, TrafficLine};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// The most rules on a page.
pub(crate) const LONGEST_PAGE: usize = 1000;

/// Rules on a page, if the client does not say.
const PAGE: usize = 100;

/// All rules in force at one moment.
#[derive(Debug, Default)]
pub(crate) struct RuleList {
    /// In the order of their ids.
    pub(crate) rules: Vec<RuleLine>,
    /// What rules dropped that are gone.
    former: Option<TrafficLine>,
}

/// Which rules are asked for, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct RuleQuery {
    /// Words that all occur in the text of a rule, in any case of letters; a number is also the id of a rule
    q: String,
    /// A word of the language that the rule has as a whole word: a field (`tcp-dport`) or a target (`drop`)
    field: String,
    /// What the rules are sorted by
    #[param(inline)]
    sort: SortBy,
    /// The greatest first, or the smallest; without it, ids ascend and counters descend
    #[param(inline)]
    order: Option<Order>,
    /// How many rules are left out before the page
    offset: usize,
    /// The most rules of the page: 1 to 1000, 100 without it
    limit: Option<usize>,
}

/// What rules are sorted by; rules that are equal in it stay in the order of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SortBy {
    /// The number of the rule.
    #[default]
    Id,
    /// Packets that matched.
    Packets,
    /// Bytes of these packets.
    Bytes,
    /// Packets that the rule dropped.
    DroppedPackets,
    /// Matches in streams.
    Hits,
}

/// The direction in which rules are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The smallest first.
    Asc,
    /// The greatest first.
    Desc,
}

/// A part of the list of rules.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct RulePage {
    /// Rules in force.
    pub(crate) total: usize,
    /// Rules that match the search.
    pub(crate) matched: usize,
    /// Rules before the first one of this page.
    pub(crate) offset: usize,
    /// Milliseconds since the list was read from the daemon.
    pub(crate) age_ms: u64,
    /// The rules of this page.
    pub(crate) rules: Vec<RuleLine>,
    /// Packets that were dropped by rules that are no longer in force.
    pub(crate) dropped_by_former_rules: Option<TrafficLine>,
}

impl RuleList {
    /// Takes a line of the answer to `list`. They arrive one by one, so that a million rules are never there twice.
    pub(crate) fn take(&mut self, line: Answer) {
        match line {
            Answer::Rule(rule) => self.rules.push(rule),
            Answer::DroppedByFormerRules(traffic) => self.former = Some(traffic),
            // The begin of the answer.
            _ => {}
        }
    }

    /// The rule of this id.
    pub(crate) fn rule(&self, id: u32) -> Option<&RuleLine> {
        let at = self.rules.binary_search_by_key(&id, |rule| rule.id).ok()?;
        self.rules.get(at)
    }

    /// The page that a query asks for.
    pub(crate) fn page(&self, query: &RuleQuery, age_ms: u64) -> RulePage {
        let search = Search::new(query);
        let mut matched: Vec<&RuleLine> = self.rules.iter().filter(|rule| search.matches(rule)).collect();
        sort(&mut matched, query);
        let limit = query.limit.unwrap_or(PAGE).clamp(1, LONGEST_PAGE);
        RulePage {
            total: self.rules.len(),
            matched: matched.len(),
            offset: query.offset,
            age_ms,
            rules: matched.into_iter().skip(query.offset).take(limit).cloned().collect(),
            dropped_by_former_rules: self.former,
        }
    }
}

fn sort(rules: &mut [&RuleLine], query: &RuleQuery) {
    let key: fn(&RuleLine) -> u64 = match query.sort {
        SortBy::Id => |rule| rule.id.into(),
        SortBy::Packets => |rule| rule.packets.unwrap_or_default(),
        SortBy::Bytes => |rule| rule.bytes.unwrap_or_default(),
        SortBy::DroppedPackets => |rule| rule.dropped_packets.unwrap_or_default(),
        SortBy::Hits => |rule| rule.hits.unwrap_or_default(),
    };
    let default = if query.sort == SortBy::Id { Order::Asc } else { Order::Desc };
    match query.order.unwrap_or(default) {
        // The list has this order.
        Order::Asc if query.sort == SortBy::Id => {}
        Order::Asc => rules.sort_by_key(|rule| key(rule)),
        Order::Desc => rules.sort_by_key(|rule| Reverse(key(rule))),
    }
}

/// What a rule has to have.
struct Search {
    /// In lower case.
    words: Vec<String>,
    field: Option<String>,
}

impl Search {
    fn new(query: &RuleQuery) -> Search {
        let words = query.q.split_whitespace().map(str::to_lowercase).collect();
        let field = Some(query.field.trim()).filter(|field| !field.is_empty()).map(str::to_owned);
        Search { words, field }
    }

    fn matches(&self, rule: &RuleLine) -> bool {
        let has_field = |field: &String| rule.rule.split_whitespace().any(|word| word == field);
        if !self.field.as_ref().is_none_or(has_field) {
            return false;
        }
        if self.words.is_empty() {
            return true;
        }
        let text = rule.rule.to_lowercase();
        self.words.iter().all(|word| text.contains(word.as_str()) || rule.id.to_string() == *word)
    }
}

/// The name in the text of a rule, if it has one: it stands before the constraints, after `add` and `prio`.
pub(crate) fn name(rule: &str) -> Option<&str> {
    let mut words = rule.split(' ');
    words.next().filter(|word| word.starts_with("add"))?;
    loop {
        match words.next()? {
            "name" => return words.next(),
            "prio" => words.next()?,
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_language::{Command, parse_command};

    fn rule(id: u32, text: &str, packets: u64) -> RuleLine {
        RuleLine {
            id,
            rule: text.into(),
            packets: Some(packets),
            bytes: Some(packets * 100),
            dropped_packets: None,
            dropped_bytes: None,
            hits: None,
            shadowed_by: None,
        }
    }

    fn list() -> RuleList {
        let rules = [
            rule(1, "add tcp-dport 80 drop", 5),
            rule(3, "add prio 10 name Web ip-daddr 10.0.0.3 accept", 9),
            rule(80, "add udp-dport 53 accept", 5),
        ];
        let mut list = RuleList::default();
        rules.into_iter().map(Answer::Rule).for_each(|line| list.take(line));
        list
    }

    fn ids(query: RuleQuery) -> Vec<u32> {
        list().page(&query, 0).rules.into_iter().map(|rule| rule.id).collect()
    }

    #[test]
    fn words_and_fields_select_rules() {
        let q = |q: &str| ids(RuleQuery { q: q.into(), ..RuleQuery::default() });
        assert_eq!(q(""), [1, 3, 80]);
        assert_eq!(q("ACCEPT"), [3, 80]);
        assert_eq!(q("accept  udp"), [80]);
        assert_eq!(q("80"), [1, 80], "in a text, and as an id");
        assert_eq!(q("web"), [3]);
        assert_eq!(q("nothing"), [0; 0]);
        let field = |field: &str| ids(RuleQuery { field: field.into(), ..RuleQuery::default() });
        assert_eq!((field("tcp-dport"), field("dport"), field("accept")), (vec![1], vec![], vec![3, 80]));
    }

    #[test]
    fn pages_are_cut_from_the_sorted_matches() {
        let by = |sort, order| ids(RuleQuery { sort, order, ..RuleQuery::default() });
        assert_eq!(by(SortBy::Packets, None), [3, 1, 80], "equal counts by id");
        assert_eq!(by(SortBy::Packets, Some(Order::Asc)), [1, 80, 3]);
        assert_eq!(by(SortBy::Id, Some(Order::Desc)), [80, 3, 1]);
        assert_eq!(by(SortBy::Hits, None), [1, 3, 80]);
        let query = RuleQuery { offset: 1, limit: Some(1), ..RuleQuery::default() };
        let page = list().page(&query, 7);
        assert_eq!((page.total, page.matched, page.offset, page.age_ms), (3, 3, 1, 7));
        assert_eq!(page.rules[0].id, 3);
        assert_eq!(ids(RuleQuery { offset: 9, ..RuleQuery::default() }), [0; 0]);
        assert_eq!(ids(RuleQuery { limit: Some(0), ..RuleQuery::default() }), [1], "a page has a rule");
    }

    #[test]
    fn a_rule_is_found_by_its_id() {
        assert_eq!(list().rule(3).map(|rule| rule.id), Some(3));
        assert_eq!(list().rule(2), None);
    }

    #[test]
    fn names_are_those_that_the_language_reads() {
        for text in [
            "add name a drop all",
            "add name web-1 tcp-dport 80 drop",
            "add prio 3 name b.c tcp-dport 80 drop",
            "add-stateful prio 3 name x draining all accept",
            "add prio 3 tcp-dport 80 drop",
            "add payload \"name x\" drop",
        ] {
            let Ok((Command::Add(rule), _)) = parse_command(text) else { continue };
            assert_eq!(name(text), rule.name.as_deref(), "{text}");
        }
    }
}

//! Named sets of a rule set that stay sets of the policy: those that are too large to be written in the rules that ask them, and those whose
//! elements expire.
//!
//! A front end adds what its rule set names ([`ImportedSets::add`]). Chains are followed with the values of the sets; a constraint with exactly
//! the values of a set becomes one on its name, and the sets that are named so are written before the rules.

use crate::cube::{Dim, Family};
use mmb_policy::sets::{Element, ElementList, NEVER, NamedSet, SetOperation};
use mmb_policy::{Intervals, Policy};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Sets of so many intervals without timeouts are written in the rules.
const MAX_INLINE_INTERVALS: usize = 32;
/// So many ports, too: a set is known by its values, and a rule may have the same few ports without asking the set.
const MAX_INLINE_PORTS: usize = 8;

/// What the elements of a set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValuesOf {
    /// Addresses of a family.
    Addresses(Family),
    /// Ports of TCP and UDP.
    Ports,
}

/// A member: its numbers, and the seconds that it stays, if it expires.
pub(crate) type Member = (Intervals, Option<u64>);

/// The sets.
#[derive(Debug, Default)]
pub(crate) struct ImportedSets {
    sets: Vec<ImportedSet>,
    /// Those that rules name.
    named: RefCell<BTreeSet<usize>>,
}

#[derive(Debug)]
struct ImportedSet {
    name: String,
    of: ValuesOf,
    values: Intervals,
    set: NamedSet,
}

impl ImportedSets {
    /// Adds a set with these members, together `values`, unless it is small and stays as it is.
    pub(crate) fn add(&mut self, name: &str, of: ValuesOf, values: Intervals, members: &[Member]) {
        let expires = members.iter().any(|(_, left_s)| left_s.is_some());
        let max_inline = match of {
            _ if !expires => MAX_INLINE_INTERVALS,
            ValuesOf::Addresses(_) => 0,
            ValuesOf::Ports => MAX_INLINE_PORTS,
        };
        if values.as_slice().len() <= max_inline {
            return;
        }
        let mut list = ElementList::default();
        for (numbers, left_s) in members {
            let expires_ms = left_s.map_or(NEVER, |left_s| left_s.max(1).saturating_mul(1000));
            for &(first, last) in numbers.as_slice() {
                // Addresses of IPv4 and ports fit in 32 bits.
                let narrow = Element { first: first as u32, last: last as u32, expires_ms };
                match of {
                    ValuesOf::Addresses(Family::Ip6) => list.ip6.push(Element { first, last, expires_ms }),
                    ValuesOf::Addresses(Family::Ip4 | Family::Frame) => list.ip4.push(narrow),
                    ValuesOf::Ports => list.numbers.push(narrow),
                }
            }
        }
        let mut set = NamedSet::default();
        if list.len() > Policy::MAX_ELEMENTS || set.change(SetOperation::Replace, list, 0).is_err() {
            return;
        }
        let name = self.free_name(name);
        self.sets.push(ImportedSet { name, of, values, set });
    }

    /// The name of the original as the language takes it, and as no other set has it.
    fn free_name(&self, name: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
        let name: String = name.chars().map(plain).collect();
        let is_taken = |name: &str| {
            let line = format!("set {name} {{}}");
            mmb_language::parse_command(&line).is_err() || self.sets.iter().any(|set| set.name == name)
        };
        let others = (2..).map(|number| format!("{name}-{number}"));
        let names = std::iter::once(name.clone()).chain(std::iter::once(format!("set-{name}"))).chain(others);
        names.take(self.sets.len() + 4).find(|name| !is_taken(name)).unwrap_or(name)
    }

    /// The words that ask for exactly these values of a dimension, if a set has them, or all others.
    pub(crate) fn words(&self, dim: Dim, family: Family, values: &Intervals) -> Option<String> {
        let of = match dim {
            Dim::Source | Dim::Destination => ValuesOf::Addresses(family),
            Dim::SourcePort | Dim::DestinationPort => ValuesOf::Ports,
            _ => return None,
        };
        let len = values.as_slice().len();
        for (number, set) in self.sets.iter().enumerate().filter(|(_, set)| set.of == of) {
            if set.values.as_slice().len().abs_diff(len) > 1 {
                continue;
            }
            let condition = if set.values == *values {
                ""
            } else if dim.all(family).minus(&set.values) == *values {
                "!= "
            } else {
                continue;
            };
            self.named.borrow_mut().insert(number);
            return Some(format!("{condition}@{}", set.name));
        }
        None
    }

    /// The commands that make the sets that rules name.
    pub(crate) fn lines(&self) -> Vec<String> {
        let named = self.named.borrow();
        let named = named.iter().filter_map(|&number| self.sets.get(number));
        named.flat_map(|set| mmb_language::set_lines(&set.name, &set.set, 0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_named_where_a_rule_asks_for_its_values() {
        let mut sets = ImportedSets::default();
        let hosts: Vec<Member> = (0..100).map(|n| (Intervals::one(n * 2), None)).collect();
        let values: Intervals = hosts.iter().flat_map(|(one, _)| one.as_slice().iter().copied()).collect();
        sets.add("bad hosts", ValuesOf::Addresses(Family::Ip4), values.clone(), &hosts);
        sets.add("bad hosts", ValuesOf::Addresses(Family::Ip6), values.clone(), &hosts);
        sets.add("small", ValuesOf::Ports, Intervals::one(80), &[(Intervals::one(80), None)]);
        sets.add("knocked", ValuesOf::Ports, Intervals::one(22), &[(Intervals::one(22), Some(90))]);
        let ports: Vec<Member> = (0..10).map(|n| (Intervals::one(n * 2), Some(90))).collect();
        let ten: Intervals = ports.iter().flat_map(|(one, _)| one.as_slice().iter().copied()).collect();
        sets.add("conn", ValuesOf::Ports, ten.clone(), &ports);
        let words = |dim, values: &Intervals| sets.words(dim, Family::Ip4, values);
        assert_eq!(words(Dim::Destination, &values).as_deref(), Some("@bad-hosts"));
        let others = Dim::Source.all(Family::Ip4).minus(&values);
        assert_eq!(words(Dim::Source, &others).as_deref(), Some("!= @bad-hosts"));
        assert_eq!(words(Dim::Source, &Intervals::one(0)), None);
        assert_eq!(words(Dim::DestinationPort, &Intervals::one(80)), None);
        assert_eq!(words(Dim::DestinationPort, &Intervals::one(22)), None, "a rule may mean the port");
        assert_eq!(words(Dim::DestinationPort, &ten).as_deref(), Some("@set-conn"));
        let lines = sets.lines();
        assert!(lines[0].starts_with("set bad-hosts {0.0.0.0, 0.0.0.2, ") && lines.len() == 2, "{lines:?}");
        assert!(lines[1].starts_with("set set-conn {0 timeout 1m30s, 2 timeout 1m30s, "), "{lines:?}");
        let text = lines.join("\n") + "\nadd ip-saddr @bad-hosts tcp-dport @set-conn drop\n";
        assert!(mmb_language::parse_policy(&text).is_ok());
    }
}

//! The named sets of a policy: how commands and time change them.

use crate::policy::{Policy, PolicyError};
use crate::rule::RuleId;
use crate::sets::{ElementList, NEVER, NamedSet, SetOperation};
use std::sync::Arc;

impl Policy {
    /// Changes a set, for all rules that name it.
    ///
    /// # Errors
    /// There is no such set to add to or to remove from, or it cannot have the elements, or not those that rules name it with; the policy is as
    /// before.
    pub fn change_set(
        &mut self,
        name: &str,
        operation: SetOperation,
        list: ElementList,
    ) -> Result<(), PolicyError> {
        let before = self.sets.get(name);
        if before.is_none() && operation != SetOperation::Replace {
            return Err(self.no_such_set(name));
        }
        let stays = |other: &String| operation == SetOperation::Add || *other != name;
        let others = self.sets.iter().filter(|(other, _)| stays(other)).map(|(_, set)| set.len());
        if operation != SetOperation::Remove && others.sum::<usize>() + list.len() > Policy::MAX_ELEMENTS {
            return Err(PolicyError::SetsTooLarge);
        }
        if before.is_some() && operation != SetOperation::Remove {
            self.users_fit(name, &list)?;
        }
        let refused = |error| PolicyError::Set { name: name.to_owned(), error };
        let now_ms = self.now_ms;
        match self.sets.get_mut(name) {
            Some(set) => Arc::make_mut(set).change(operation, list, now_ms).map_err(refused),
            None => {
                let mut set = NamedSet::default();
                set.change(operation, list, now_ms).map_err(refused)?;
                self.sets.insert(name.to_owned(), Arc::new(set));
                Ok(())
            }
        }
    }

    /// Deletes a set.
    ///
    /// # Errors
    /// There is none of that name, or rules name it.
    pub fn delete_set(&mut self, name: &str) -> Result<(), PolicyError> {
        if !self.sets.contains_key(name) {
            return Err(self.no_such_set(name));
        }
        let rules = self.rules_of_set(name);
        if !rules.is_empty() {
            return Err(PolicyError::SetInUse { name: name.to_owned(), rules });
        }
        self.sets.remove(name);
        Ok(())
    }

    /// The rules that name a set.
    pub fn rules_of_set(&self, name: &str) -> Vec<RuleId> {
        let rules = self.rules.entries().filter(|entry| entry.names_sets()).map(|entry| entry.rule());
        rules.filter(|rule| rule.sets().any(|(named, _)| named == name)).filter_map(|rule| rule.id).collect()
    }

    /// The number of rules that name each set, in the order of the sets' names.
    pub fn set_uses(&self) -> Vec<(&str, usize)> {
        let mut uses: std::collections::BTreeMap<&str, usize> =
            self.sets.keys().map(|name| (&**name, 0)).collect();
        for rule in self.rules.entries().filter(|entry| entry.names_sets()).map(|entry| entry.rule()) {
            let mut names: Vec<_> = rule.sets().map(|(name, _)| name).collect();
            names.sort_unstable();
            names.dedup();
            names.into_iter().for_each(|name| uses.get_mut(name).into_iter().for_each(|count| *count += 1));
        }
        uses.into_iter().collect()
    }

    /// About the bytes of the sets that it does not share with an earlier policy in memory.
    pub fn set_bytes_beyond(&self, before: &Policy) -> u64 {
        let own = self.sets.iter().map(|(name, set)| match before.sets.get(name) {
            Some(old) if Arc::ptr_eq(old, set) => 0,
            Some(old) => set.bytes_beyond(old),
            None => set.bytes(),
        });
        own.sum::<usize>() as u64
    }

    /// The time at which the first element of a set expires, or [`NEVER`].
    pub fn expires_ms(&self) -> u64 {
        self.sets.values().map(|set| set.expires_ms()).min().unwrap_or(NEVER)
    }

    /// Removes the elements that have expired. Returns how many.
    pub fn expire(&mut self, now_ms: u64) -> usize {
        let due = self.sets.values_mut().filter(|set| set.expires_ms() <= now_ms);
        due.map(|set| Arc::make_mut(set).expire(now_ms)).sum()
    }

    /// Sets the time; all elements have as much time left as before.
    pub fn begin_timeouts(&mut self, now_ms: u64) {
        let before_ms = std::mem::replace(&mut self.now_ms, now_ms);
        let timed = self.sets.values_mut().filter(|set| set.expires_ms() != NEVER);
        timed.for_each(|set| Arc::make_mut(set).restart_clock(before_ms, now_ms));
    }

    fn no_such_set(&self, name: &str) -> PolicyError {
        PolicyError::NoSuchSet { name: name.to_owned(), known: self.sets.keys().cloned().collect() }
    }

    /// Checks that the rules that name a set can compare their fields with these elements.
    fn users_fit(&self, name: &str, list: &ElementList) -> Result<(), PolicyError> {
        let rules = self.rules.entries().filter(|entry| entry.names_sets()).map(|entry| entry.rule());
        for rule in rules {
            for (_, field) in rule.sets().filter(|(named, _)| *named == name) {
                if let Some(has) = list.misfit(field) {
                    let name = name.to_owned();
                    return Err(PolicyError::SetDoesNotFit { name, field, has, rule: rule.id });
                }
            }
        }
        Ok(())
    }
}

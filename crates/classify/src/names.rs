//! The names that rules say: of ports, to the numbers that keys hold, and of sets, to the numbers by which compiled rules look them up.

use mmb_policy::NamedSet;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The ports' names by number, and the sets.
#[derive(Clone, Debug, Default)]
pub struct RuleNames {
    names: Vec<String>,
    numbers: HashMap<String, u16>,
    set_numbers: BTreeMap<String, SetNumber>,
    sets: SetTable,
}

/// The number of a set. It is given again when the set is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetNumber(u32);

impl SetNumber {
    /// The number of a set that there is not.
    const NONE: SetNumber = SetNumber(u32::MAX);
}

/// The sets by number. A clone shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetTable(Arc<Vec<Arc<NamedSet>>>);

impl SetTable {
    /// Whether there are no sets.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The set of a number; `None` if there is none, which is as good as an empty one.
    #[inline]
    pub(crate) fn get(&self, number: SetNumber) -> Option<&NamedSet> {
        self.0.get(number.0 as usize).map(|set| &**set)
    }
}

/// A rule names a port that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no port is called '{0}'")]
pub struct UnknownPort(pub String);

impl RuleNames {
    /// No sets, and the ports in the order of their numbers. A name that stands twice means the first.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> RuleNames {
        let mut ports = RuleNames::default();
        names.into_iter().for_each(|name| ports.push(name.into()));
        ports
    }

    /// One more port. The last number means no port.
    pub fn push(&mut self, name: String) {
        if let Ok(number) = u16::try_from(self.names.len())
            && number != u16::MAX
        {
            self.numbers.entry(name.clone()).or_insert(number);
        }
        self.names.push(name);
    }

    /// Gives a port another name; none that rules could have said where that is empty. There is nothing to do where there is no such
    /// port.
    pub fn rename(&mut self, number: u16, name: &str) {
        let Some(place) = self.names.get_mut(usize::from(number)) else { return };
        if self.numbers.get(place) == Some(&number) {
            self.numbers.remove(place);
        }
        name.clone_into(place);
        if !name.is_empty() && number != u16::MAX {
            self.numbers.entry(name.to_owned()).or_insert(number);
        }
    }

    /// The names by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of the port of that name.
    ///
    /// # Errors
    /// The name, if no port has it.
    pub fn number(&self, name: &str) -> Result<u16, UnknownPort> {
        self.numbers.get(name).copied().ok_or_else(|| UnknownPort(name.to_owned()))
    }

    /// Rules that name a set ask this one from now on.
    pub fn put_set(&mut self, name: &str, set: Arc<NamedSet>) {
        let sets = Arc::make_mut(&mut self.sets.0);
        if let Some(number) = self.set_numbers.get(name) {
            sets[number.0 as usize] = set;
            return;
        }
        // The least number that is free; there are few sets.
        let is_used = |number: &u32| self.set_numbers.values().any(|used| used.0 == *number);
        let number = (0..).find(|number| !is_used(number)).unwrap_or_default();
        self.set_numbers.insert(name.to_owned(), SetNumber(number));
        match sets.get_mut(number as usize) {
            Some(place) => *place = set,
            None => sets.push(set),
        }
    }

    /// No rule names a set any more.
    pub fn remove_set(&mut self, name: &str) {
        if let Some(number) = self.set_numbers.remove(name) {
            Arc::make_mut(&mut self.sets.0)[number.0 as usize] = Arc::default();
        }
    }

    /// The number of the set of that name.
    pub(crate) fn set_number(&self, name: &str) -> SetNumber {
        self.set_numbers.get(name).copied().unwrap_or(SetNumber::NONE)
    }

    /// The sets by number.
    pub(crate) fn sets(&self) -> &SetTable {
        &self.sets
    }
}

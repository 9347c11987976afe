//! Names of ports, as rules say them, to the numbers that keys hold.

use std::collections::HashMap;

/// The ports' names by number.
#[derive(Clone, Debug, Default)]
pub struct PortNumbers {
    names: Vec<String>,
    numbers: HashMap<String, u16>,
}

/// A rule names a port that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no port is called '{0}'")]
pub struct UnknownPort(pub String);

impl PortNumbers {
    /// The ports in the order of their numbers. A name that stands twice means the first.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> PortNumbers {
        let mut ports = PortNumbers::default();
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
}

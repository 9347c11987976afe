//! Named sets: addresses or numbers under a name, which rules ask for as `@NAME`.
//!
//! A [`NamedSet`] is a plain value that shares its elements with clones: a policy holds it behind an [`Arc`](std::sync::Arc), and so does what a policy is
//! compiled to. [`Elements`] keeps what was given, with the time at which each element expires, and [`IntervalIndex`] the union of it,
//! which packets are held against. Adding one element to a million costs a chunk of each and their lists.
//!
//! Times are milliseconds of the clock of whoever owns the policy ([`Policy::now_ms`](crate::Policy)); nothing here reads a clock.

mod element;
mod elements;
mod intervals;

pub use element::{Element, NEVER, Number};
use elements::ElementChange;
pub use elements::Elements;
pub use intervals::IntervalIndex;

use crate::field::{Field, FieldPlace, ValueKind, ones};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The kinds of elements. A set holds addresses of both versions, or numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementKind {
    /// IPv4 addresses.
    Ip4,
    /// IPv6 addresses.
    Ip6,
    /// Numbers of at most 32 bits.
    Number,
}

impl ElementKind {
    /// The kind that a field is compared with; `None` if it takes no named set.
    pub fn of_field(field: Field) -> Option<ElementKind> {
        let (FieldPlace::Key { width, .. }, info) = (field.info().place, field.info()) else { return None };
        match info.values {
            ValueKind::Ip4 => Some(ElementKind::Ip4),
            ValueKind::Ip6 => Some(ElementKind::Ip6),
            ValueKind::Number if width <= 32 => Some(ElementKind::Number),
            ValueKind::Number | ValueKind::Port | ValueKind::OptionData(_) | ValueKind::Bytes => None,
            ValueKind::State | ValueKind::Nothing | ValueKind::Pattern | ValueKind::ServerName => None,
            ValueKind::Method | ValueKind::Header => None,
        }
    }
}

/// Elements of all kinds: as a command names them, with timeouts in place of times, or of a difference of sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementList {
    /// IPv4 addresses.
    pub ip4: Vec<Element<u32>>,
    /// IPv6 addresses.
    pub ip6: Vec<Element<u128>>,
    /// Numbers.
    pub numbers: Vec<Element<u32>>,
}

impl ElementList {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.ip4.len() + self.ip6.len() + self.numbers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements that a field cannot be compared with, as a text for people.
    pub(crate) fn misfit(&self, field: Field) -> Option<String> {
        let greatest = || self.numbers.iter().map(|element| element.last).max();
        let width = field.info().place.key_bits().map_or(32, |(_, width)| width);
        match ElementKind::of_field(field) {
            Some(ElementKind::Number) if !(self.ip4.is_empty() && self.ip6.is_empty()) => {
                Some("addresses".to_owned())
            }
            Some(ElementKind::Number) => {
                let number = greatest().filter(|number| u128::from(*number) > ones(width))?;
                Some(format!("the number {number}"))
            }
            Some(ElementKind::Ip4 | ElementKind::Ip6) | None => {
                (!self.numbers.is_empty()).then(|| "numbers".to_owned())
            }
        }
    }

    /// Calls `each` with every element as text, and its timeout.
    ///
    /// # Errors
    /// That of `each`, which ends it.
    pub fn each<E>(&self, mut each: impl FnMut(&dyn fmt::Display, u64) -> Result<(), E>) -> Result<(), E> {
        for element in &self.ip4 {
            each(&AddressText::ip4((element.first, element.last)), element.expires_ms)?;
        }
        for element in &self.ip6 {
            each(&AddressText::ip6((element.first, element.last)), element.expires_ms)?;
        }
        let text = |element: &Element<u32>| number_text((element.first, element.last));
        self.numbers.iter().try_for_each(|element| each(&text(element), element.expires_ms))
    }

    /// Has timeouts begin now, so that they become times.
    fn begin(&mut self, now_ms: u64) {
        fn begin<N>(elements: &mut [Element<N>], now_ms: u64) {
            let timed = elements.iter_mut().filter(|element| element.expires_ms != NEVER);
            timed.for_each(|element| {
                element.expires_ms = element.expires_ms.saturating_add(now_ms).min(NEVER - 1)
            });
        }
        if now_ms > 0 {
            begin(&mut self.ip4, now_ms);
            begin(&mut self.ip6, now_ms);
            begin(&mut self.numbers, now_ms);
        }
    }
}

/// A change of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// `set NAME {…}`: the set has these elements and no others; it need not be there before.
    Replace,
    /// `set NAME += {…}`: the set has these elements too. Those that it has get the new timeouts.
    Add,
    /// `set NAME -= {…}`: the set has these elements no more.
    Remove,
}

/// The reason why a set refuses a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// Addresses and numbers in one set.
    #[error("a set has either addresses or numbers; use two sets")]
    Mixed,
    /// An element is to be removed that the set has not.
    #[error("the set has no element {0}; `show set` tells its elements")]
    NoSuchElement(String),
}

/// A set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedSet {
    ip4: Elements<u32>,
    ip6: Elements<u128>,
    numbers: Elements<u32>,
}

impl NamedSet {
    /// The IPv4 addresses.
    pub fn ip4(&self) -> &Elements<u32> {
        &self.ip4
    }

    /// The IPv6 addresses.
    pub fn ip6(&self) -> &Elements<u128> {
        &self.ip6
    }

    /// The numbers.
    pub fn numbers(&self) -> &Elements<u32> {
        &self.numbers
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.ip4.len() + self.ip6.len() + self.numbers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a number of a kind is a member.
    pub fn contains(&self, kind: ElementKind, number: u128) -> bool {
        let narrow =
            |elements: &Elements<u32>| u32::try_from(number).is_ok_and(|n| elements.index().contains(n));
        match kind {
            ElementKind::Ip4 => narrow(&self.ip4),
            ElementKind::Ip6 => self.ip6.index().contains(number),
            ElementKind::Number => narrow(&self.numbers),
        }
    }

    /// About the bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<NamedSet>() + self.ip4.bytes() + self.ip6.bytes() + self.numbers.bytes()
    }

    /// About the bytes of what it does not share with another set in memory.
    pub fn bytes_beyond(&self, other: &NamedSet) -> usize {
        self.ip4.bytes_beyond(&other.ip4)
            + self.ip6.bytes_beyond(&other.ip6)
            + self.numbers.bytes_beyond(&other.numbers)
    }

    /// The time at which the first element expires, or [`NEVER`].
    pub fn expires_ms(&self) -> u64 {
        self.ip4.expires_ms().min(self.ip6.expires_ms()).min(self.numbers.expires_ms())
    }

    /// Whether a field can be compared with it: with a set of addresses fields of addresses of both versions, with a set of numbers those that can
    /// have them all, and with an empty one all that take sets.
    pub fn fits(&self, field: Field) -> bool {
        match ElementKind::of_field(field) {
            None => false,
            Some(ElementKind::Ip4 | ElementKind::Ip6) => self.numbers.is_empty(),
            Some(ElementKind::Number) => {
                self.ip4.is_empty() && self.ip6.is_empty() && self.too_large(field).is_none()
            }
        }
    }

    /// The greatest number, if it does not fit a field of numbers.
    pub fn too_large(&self, field: Field) -> Option<u32> {
        let width = field.info().place.key_bits().map_or(32, |(_, width)| width);
        self.numbers.index().last().filter(|last| u128::from(*last) > ones(width))
    }

    /// The kinds of its elements, as a text for people.
    pub fn kinds(&self) -> &'static str {
        match (self.ip4.is_empty(), self.ip6.is_empty(), self.numbers.is_empty()) {
            (true, true, true) => "no elements",
            (_, _, false) => "numbers",
            (false, true, true) => "IPv4 addresses",
            (true, false, true) => "IPv6 addresses",
            (false, false, true) => "IPv4 and IPv6 addresses",
        }
    }

    /// Changes the elements. The timeouts of the list begin now.
    ///
    /// # Errors
    /// The set cannot have these elements, or has not those that are to be removed; it is as before.
    pub fn change(
        &mut self,
        operation: SetOperation,
        mut list: ElementList,
        now_ms: u64,
    ) -> Result<(), SetError> {
        list.begin(now_ms);
        let stays = operation == SetOperation::Add;
        let has_addresses = stays && !(self.ip4.is_empty() && self.ip6.is_empty());
        let has_numbers = stays && !self.numbers.is_empty();
        let gets_addresses = !(list.ip4.is_empty() && list.ip6.is_empty());
        let is_mixed = operation != SetOperation::Remove
            && (has_addresses || gets_addresses)
            && (has_numbers || !list.numbers.is_empty());
        if is_mixed {
            return Err(SetError::Mixed);
        }
        match operation {
            SetOperation::Replace => *self = NamedSet::default(),
            SetOperation::Add => {}
            SetOperation::Remove => return self.remove(&list),
        }
        self.ip4.add(&list.ip4);
        self.ip6.add(&list.ip6);
        self.numbers.add(&list.numbers);
        Ok(())
    }

    fn remove(&mut self, list: &ElementList) -> Result<(), SetError> {
        fn ends<N: Number>(elements: &[Element<N>]) -> Vec<(N, N)> {
            elements.iter().map(|element| (element.first, element.last)).collect()
        }
        let (ip4, ip6, numbers) = (ends(&list.ip4), ends(&list.ip6), ends(&list.numbers));
        let missing = self.ip4.missing(&ip4).map(|ends| AddressText::ip4(ends).to_string());
        let missing =
            missing.or_else(|| self.ip6.missing(&ip6).map(|ends| AddressText::ip6(ends).to_string()));
        let missing =
            missing.or_else(|| self.numbers.missing(&numbers).map(|ends| number_text(ends).to_string()));
        if let Some(missing) = missing {
            return Err(SetError::NoSuchElement(missing));
        }
        self.ip4.remove(&ip4);
        self.ip6.remove(&ip6);
        self.numbers.remove(&numbers);
        Ok(())
    }

    /// Removes the elements that have expired. Returns how many.
    pub fn expire(&mut self, now_ms: u64) -> usize {
        self.ip4.expire(now_ms) + self.ip6.expire(now_ms) + self.numbers.expire(now_ms)
    }

    /// Counts time by another clock: what `before_ms` was is `now_ms`. All elements have as much time left as before.
    pub fn restart_clock(&mut self, before_ms: u64, now_ms: u64) {
        self.ip4.restart_clock(before_ms, now_ms);
        self.ip6.restart_clock(before_ms, now_ms);
        self.numbers.restart_clock(before_ms, now_ms);
    }

    /// The elements that are gone, and those that are new or expire at another time, with these times. What the sets share in memory takes no time.
    pub fn diff(before: &NamedSet, after: &NamedSet) -> (ElementList, ElementList) {
        fn diff<N: Number>(before: &Elements<N>, after: &Elements<N>) -> (Vec<Element<N>>, Vec<Element<N>>) {
            let (mut removed, mut added) = (Vec::new(), Vec::new());
            Elements::changes(before, after).for_each(|change| match change {
                ElementChange::Removed(element) => removed.push(element),
                ElementChange::Added(element) => added.push(element),
            });
            (removed, added)
        }
        let ip4 = diff(&before.ip4, &after.ip4);
        let ip6 = diff(&before.ip6, &after.ip6);
        let numbers = diff(&before.numbers, &after.numbers);
        let removed = ElementList { ip4: ip4.0, ip6: ip6.0, numbers: numbers.0 };
        (removed, ElementList { ip4: ip4.1, ip6: ip6.1, numbers: numbers.1 })
    }

    /// Calls `each` with every element as text, and the time at which it expires.
    ///
    /// # Errors
    /// That of `each`, which ends it.
    pub fn each<E>(&self, mut each: impl FnMut(&dyn fmt::Display, u64) -> Result<(), E>) -> Result<(), E> {
        for element in self.ip4.iter() {
            each(&AddressText::ip4((element.first, element.last)), element.expires_ms)?;
        }
        for element in self.ip6.iter() {
            each(&AddressText::ip6((element.first, element.last)), element.expires_ms)?;
        }
        self.numbers
            .iter()
            .try_for_each(|element| each(&number_text((element.first, element.last)), element.expires_ms))
    }
}

/// Addresses as text: one, a prefix, or a range.
struct AddressText<A> {
    first: A,
    last: A,
    /// The length, if they are a prefix.
    prefix: Option<u32>,
}

impl AddressText<Ipv4Addr> {
    fn ip4((first, last): (u32, u32)) -> AddressText<Ipv4Addr> {
        let host = (first ^ last).count_ones();
        let is_prefix = first ^ last == ones(host as u8) as u32 && first & last == first;
        AddressText { first: first.into(), last: last.into(), prefix: is_prefix.then_some(32 - host) }
    }
}

impl AddressText<Ipv6Addr> {
    fn ip6((first, last): (u128, u128)) -> AddressText<Ipv6Addr> {
        let host = (first ^ last).count_ones();
        let is_prefix = first ^ last == ones(host as u8) && first & last == first;
        AddressText { first: first.into(), last: last.into(), prefix: is_prefix.then_some(128 - host) }
    }
}

impl<A: fmt::Display + PartialEq> fmt::Display for AddressText<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.first, f)?;
        match self.prefix {
            _ if self.first == self.last => Ok(()),
            Some(len) => write!(f, "/{len}"),
            None => write!(f, "-{}", self.last),
        }
    }
}

/// Numbers as text: one, or a range.
fn number_text((first, last): (u32, u32)) -> AddressText<u32> {
    AddressText { first, last, prefix: None }
}

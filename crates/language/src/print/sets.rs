//! Named sets back to the commands that make them.

use crate::element::{TIMEOUT, Timeout};
use mmb_policy::sets::{ElementList, NEVER, NamedSet, SetOperation};
use std::fmt::{Display, Formatter, Result, Write as _};

/// Elements of one line: a set of a million is some hundred lines.
const ELEMENTS: usize = 2000;

/// An element as text, and behind it the time that it has left if it does not stay.
pub struct SetText<'a> {
    /// The element.
    pub element: &'a dyn Display,
    /// The time at which it expires, in milliseconds.
    pub expires_ms: u64,
    /// The time now.
    pub now_ms: u64,
}

impl Display for SetText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.element.fmt(f)?;
        match self.expires_ms {
            NEVER => Ok(()),
            expires_ms => write!(f, " {TIMEOUT} {}", Timeout(expires_ms.saturating_sub(self.now_ms))),
        }
    }
}

/// The commands that make a set, without line ends.
pub fn set_lines(name: &str, set: &NamedSet, now_ms: u64) -> Vec<String> {
    let mut lines = SetLines::new(name, "");
    let each = set.each(|element, expires_ms| lines.add(&SetText { element, expires_ms, now_ms }));
    // Writing to a string does not fail.
    debug_assert!(each.is_ok());
    lines.end()
}

/// The commands that turn one set into another one, without line ends.
pub fn set_difference(name: &str, before: &NamedSet, after: &NamedSet, now_ms: u64) -> Vec<String> {
    let (gone, new) = NamedSet::diff(before, after);
    let mut lines = Vec::new();
    for (sign, list) in [("-= ", gone), ("+= ", new)].into_iter().filter(|(_, list)| !list.is_empty()) {
        let mut of_list = SetLines::new(name, sign);
        let each = list.each(|element, expires_ms| match sign {
            "-= " => of_list.add(element),
            _ => of_list.add(&SetText { element, expires_ms, now_ms }),
        });
        // Writing to a string does not fail.
        debug_assert!(each.is_ok());
        lines.append(&mut of_list.end());
    }
    lines
}

/// Commands about a set while elements are added to them.
struct SetLines<'n> {
    name: &'n str,
    /// How the lines behind the first one begin behind the name.
    sign: &'static str,
    lines: Vec<String>,
    /// Elements of the last line.
    count: usize,
}

impl<'n> SetLines<'n> {
    /// `sign` is that of the first line; without one, which makes the set anew, the others add.
    fn new(name: &'n str, sign: &'static str) -> SetLines<'n> {
        let lines = vec![format!("set {name} {sign}{{")];
        SetLines { name, sign: if sign.is_empty() { "+= " } else { sign }, lines, count: 0 }
    }

    fn add(&mut self, text: &dyn Display) -> Result {
        if self.count == ELEMENTS {
            self.lines.push(format!("set {} {}{{", self.name, self.sign));
            self.count = 0;
        }
        let separator = if self.count > 0 { ", " } else { "" };
        self.count += 1;
        self.lines.last_mut().map_or(Ok(()), |line| write!(line, "{separator}{text}"))
    }

    fn end(mut self) -> Vec<String> {
        self.lines.iter_mut().for_each(|line| line.push('}'));
        self.lines
    }
}

/// A change of a set.
pub(super) fn change(
    f: &mut Formatter<'_>,
    name: &str,
    operation: SetOperation,
    list: &ElementList,
) -> Result {
    let sign = match operation {
        SetOperation::Replace => "",
        SetOperation::Add => "+= ",
        SetOperation::Remove => "-= ",
    };
    write!(f, "set {name} {sign}{{")?;
    let mut separator = "";
    list.each(|element, expires_ms| {
        let text = SetText { element, expires_ms, now_ms: 0 };
        write!(f, "{}{text}", std::mem::replace(&mut separator, ", "))
    })?;
    f.write_char('}')
}

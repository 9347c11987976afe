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
    let mut lines = vec![format!("set {name} {{")];
    let mut count = 0;
    let each = set.each(|element, expires_ms| {
        if count == ELEMENTS {
            lines.push(format!("set {name} += {{"));
            count = 0;
        }
        let separator = if count > 0 { ", " } else { "" };
        count += 1;
        let text = SetText { element, expires_ms, now_ms };
        lines.last_mut().map_or(Ok(()), |line| write!(line, "{separator}{text}"))
    });
    // Writing to a string does not fail.
    debug_assert!(each.is_ok());
    lines.iter_mut().for_each(|line| line.push('}'));
    lines
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

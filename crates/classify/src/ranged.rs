//! Rules with conditions, one after the other.
use crate::check::{Check, Subject};
use mmb_packet::options::{self, OptionTable};

/// The options of the packet that is looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct LazyOptions {
    table: OptionTable,
    filled: bool,
}
impl LazyOptions {
    pub(crate) fn clear(&mut self) {
        self.filled = false;
    }
    pub(crate) fn of(&mut self, subject: &Subject<'_, '_>) -> &OptionTable {
        if !self.filled {
            self.table.fill(options::area(subject.packet, subject.layout));
            self.filled = true;
        }
        &self.table
    }
}
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranged {
    rules: Vec<(u32, Vec<Check>)>,
}
impl Ranged {
    pub(crate) fn insert(&mut self, handle: u32, checks: Vec<Check>) {
        self.rules.push((handle, checks));
    }
    pub(crate) fn remove(&mut self, handle: u32) -> bool {
        let at = self.rules.iter().position(|r| r.0 == handle);
        if let Some(at) = at {
            self.rules.swap_remove(at);
        }
        at.is_some()
    }
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
    pub(crate) fn find(
        &self,
        subject: &Subject<'_, '_>,
        options: &mut LazyOptions,
        mut hit: impl FnMut(u32),
    ) {
        for (handle, checks) in &self.rules {
            if checks
                .iter()
                .all(|c| if c.about_options() { c.holds_for(options.of(subject)) } else { c.holds(subject) })
            {
                hit(*handle);
            }
        }
    }
}

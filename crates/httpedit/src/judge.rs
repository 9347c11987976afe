//! Which constraints of which rules a head meets.

use crate::plan::FAILED;
use crate::rule::{Constraint, HeaderValue, HttpRule, HttpRules, HttpTest, PatternUse};
use crate::texts::HostName;
use mmb_http::{Headers, RequestHead, ResponseHead, is_folded, unfold};
use mmb_policy::rule::{Cond, NumberItem, NumberSet};
use mmb_scan::Scanner;
use std::ops::ControlFlow;

/// A state of a rule in an exchange: [`FAILED`], or a bit for each constraint that is met.
type Slot = u16;

/// Judges heads by a connection's rules.
pub(crate) struct Judge<'j> {
    pub(crate) rules: &'j HttpRules,
    /// The connection's rules in their order, by their places in `rules`.
    pub(crate) live: &'j [u32],
    pub(crate) scanner: &'j mut Scanner,
    /// For each of the live rules, the constraints whose regexes were found.
    pub(crate) found: &'j mut Vec<Slot>,
    /// Memory for a value that was folded.
    pub(crate) unfolded: &'j mut Vec<u8>,
}

/// There was no room for the state of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl Judge<'_> {
    /// The slots of an exchange that begins with a request, into `slots`.
    pub(crate) fn request(&mut self, head: &RequestHead<'_>, slots: &mut Vec<Slot>) -> Result<(), NoRoom> {
        let host = HostName::new(head.headers.text(head.host));
        let uri = uri(head);
        self.found.clear();
        self.found.resize(self.live.len(), 0);
        let parts = self.rules.regex_parts;
        if parts.method {
            self.search(head.method(), |test| matches!(test, HttpTest::Method(_)))?;
        }
        if parts.host {
            self.search(host.bytes(), |test| matches!(test, HttpTest::Host(_)))?;
        }
        if parts.uri {
            self.search(uri, |test| matches!(test, HttpTest::Uri(_)))?;
        }
        self.search_headers(&head.headers)?;
        slots.clear();
        for (place, index) in self.live.iter().enumerate() {
            let found = self.found.get(place).copied().unwrap_or_default();
            let slot = match self.rules.rules.get(*index as usize) {
                Some(rule) => request_slot(rule, found, head, (&host, uri), self.unfolded),
                None => FAILED,
            };
            slots.push(slot);
        }
        Ok(())
    }

    /// Adds to slots what the head of the final response meets.
    pub(crate) fn response(&mut self, head: &ResponseHead<'_>, slots: &mut [Slot]) -> Result<(), NoRoom> {
        self.found.clear();
        self.found.resize(self.live.len(), 0);
        self.search_headers(&head.headers)?;
        for (place, index) in self.live.iter().enumerate() {
            let found = self.found.get(place).copied().unwrap_or_default();
            if let (Some(rule), Some(slot)) = (self.rules.rules.get(*index as usize), slots.get_mut(place)) {
                *slot = response_slot(rule, *slot, found, head, self.unfolded);
            }
        }
        Ok(())
    }

    fn search_headers(&mut self, headers: &Headers<'_>) -> Result<(), NoRoom> {
        if !self.rules.regex_parts.header {
            return Ok(());
        }
        for line in headers.lines {
            let name = headers.text(line.name);
            let is_asked = |test: &HttpTest| matches!(test, HttpTest::Header(asked, _) if asked.is(name));
            let rules = self.live.iter().filter_map(|index| self.rules.rules.get(*index as usize));
            if rules.flat_map(|rule| &rule.constraints).any(|constraint| is_asked(&constraint.test)) {
                let mut memory = std::mem::take(self.unfolded);
                let searched = self.search(unfolded(headers.text(line.value), &mut memory), is_asked);
                *self.unfolded = memory;
                searched?;
            }
        }
        Ok(())
    }

    /// Notes the constraints, of those that `is_asked`, whose regexes match in a value.
    fn search(&mut self, value: &[u8], is_asked: impl Fn(&HttpTest) -> bool) -> Result<(), NoRoom> {
        let Some(set) = &self.rules.heads else { return Ok(()) };
        let mut state = self.scanner.open(set).ok_or(NoRoom)?;
        let (rules, live, found) = (self.rules, self.live, &mut *self.found);
        let mut note = |id: u32, _: u64| {
            let Some(PatternUse { rule, constraint }) = rules.head_uses.get(id as usize).copied() else {
                return ControlFlow::Continue(());
            };
            let test =
                rules.rules.get(rule as usize).and_then(|rule| rule.constraints.get(usize::from(constraint)));
            if test.is_some_and(|constraint| is_asked(&constraint.test))
                && let Some(place) = live.iter().position(|live| *live == rule)
                && let Some(found) = found.get_mut(place)
            {
                *found |= 1 << constraint;
            }
            ControlFlow::Continue(())
        };
        let scanned = self.scanner.scan(&mut state, value, &mut note);
        let finished = self.scanner.finish(state, &mut note);
        let is_scanned = [scanned, finished].into_iter().all(|end| end == mmb_scan::ScanEnd::AllScanned);
        if is_scanned { Ok(()) } else { Err(NoRoom) }
    }
}

/// The target of a request without scheme and authority, which is what a server with the request's host looks at (RFC 9112, section 3.2.2).
pub(crate) fn uri<'b>(head: &RequestHead<'b>) -> &'b [u8] {
    let path = head.headers.text(head.path);
    match path {
        [] if head.method() == b"CONNECT" => head.headers.text(head.target),
        [] => b"/",
        path => path,
    }
}

/// What a request's head makes of a rule.
fn request_slot(
    rule: &HttpRule,
    found: Slot,
    head: &RequestHead<'_>,
    (host, uri): (&HostName, &[u8]),
    memory: &mut Vec<u8>,
) -> Slot {
    let mut slot = 0;
    for (place, Constraint { negated, test }) in rule.constraints.iter().enumerate() {
        let bit = 1 << place;
        let is_found = found & bit != 0;
        let holds = match test {
            HttpTest::Any => true,
            HttpTest::Method(texts) => is_found || texts.has(head.method()),
            HttpTest::Host(hosts) => is_found || hosts.has(host),
            HttpTest::Uri(texts) => is_found || texts.begins(uri),
            HttpTest::Header(name, value) => {
                let name = name.as_str().as_bytes();
                match (is_found || has_header(&head.headers, name, value, memory), negated) {
                    (true, false) => slot |= bit,
                    (true, true) => return FAILED,
                    // The response may have it.
                    (false, _) => {}
                }
                continue;
            }
            // That a body does not have something is known too late.
            HttpTest::Body if *negated => return FAILED,
            HttpTest::Status(..) | HttpTest::Body => continue,
        };
        if holds == *negated {
            return FAILED;
        }
        slot |= bit;
    }
    slot
}

/// What the head of a response makes of a rule whose slot the request has made.
fn response_slot(
    rule: &HttpRule,
    mut slot: Slot,
    found: Slot,
    head: &ResponseHead<'_>,
    memory: &mut Vec<u8>,
) -> Slot {
    if slot == FAILED {
        return slot;
    }
    for (place, Constraint { negated, test }) in rule.constraints.iter().enumerate() {
        let bit = 1 << place;
        let holds = match test {
            HttpTest::Status(cond, set) => compares(*cond, set, head.status),
            HttpTest::Header(name, value) => {
                slot & bit != 0
                    || found & bit != 0
                    || has_header(&head.headers, name.as_str().as_bytes(), value, memory)
            }
            HttpTest::Any | HttpTest::Method(_) | HttpTest::Host(_) | HttpTest::Uri(_) | HttpTest::Body => {
                continue;
            }
        };
        if holds == *negated {
            return FAILED;
        }
        slot |= bit;
    }
    slot
}

fn has_header(headers: &Headers<'_>, name: &[u8], value: &HeaderValue, memory: &mut Vec<u8>) -> bool {
    headers.all(name).any(|line| match value {
        HeaderValue::Any => true,
        HeaderValue::Is(texts) => texts.has(unfolded(headers.text(line.value), memory)),
    })
}

/// A value as it is to be read; one that is folded is copied.
fn unfolded<'v>(value: &'v [u8], memory: &'v mut Vec<u8>) -> &'v [u8] {
    if !is_folded(value) {
        return value;
    }
    memory.clear();
    unfold(&value[..value.len().min(memory.capacity())], memory);
    memory
}

fn compares(cond: Cond, set: &NumberSet, status: u16) -> bool {
    let status = u128::from(status);
    let is_in = |item: &NumberItem| {
        let (first, last) = item.bounds(10);
        (first..=last).contains(&status)
    };
    let bound = set.0.first().map_or(0, |item| item.bounds(10).0);
    match cond {
        Cond::Eq => set.0.iter().any(is_in),
        Cond::Ne => !set.0.iter().any(is_in),
        Cond::Lt => status < bound,
        Cond::Le => status <= bound,
        Cond::Gt => status > bound,
        Cond::Ge => status >= bound,
    }
}

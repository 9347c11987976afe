//! TCP options as a plain list (RFC 9293 section 3.2).

use super::fields;
use mmb_policy::rule::Write;
use mmb_policy::{Rule, Target};
use mmb_rewrite::NotApplied;

pub(super) const END: u8 = 0;
pub(super) const NOP: u8 = 1;
/// The most bytes of options in a TCP header.
const MAX_BYTES: usize = 40;

/// One option. End-of-list and no-operation have no data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OracleOption {
    pub(super) kind: u8,
    pub(super) data: Vec<u8>,
}

/// A parsed options area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OracleOptionList {
    /// The options in order, including padding.
    pub(super) options: Vec<OracleOption>,
    /// From a malformed option to the end of the area.
    tail: Vec<u8>,
    /// The bytes after an end-of-list option.
    unused: Vec<u8>,
}

impl OracleOption {
    fn is_padding(&self) -> bool {
        self.kind == END || self.kind == NOP
    }

    /// Bytes on the wire.
    fn len(&self) -> usize {
        if self.is_padding() { 1 } else { 2 + self.data.len() }
    }

    fn write(&self, area: &mut Vec<u8>) {
        area.push(self.kind);
        if !self.is_padding() {
            area.push(self.len() as u8);
            area.extend(&self.data);
        }
    }
}

impl OracleOptionList {
    /// Reads options up to end-of-list or a malformed one, whose length is below 2 or extends beyond the area.
    pub(super) fn read(area: &[u8]) -> OracleOptionList {
        let mut list = OracleOptionList { options: Vec::new(), tail: Vec::new(), unused: Vec::new() };
        let mut rest = area;
        while let [kind, behind @ ..] = rest {
            let mut data = Vec::new();
            match *kind {
                END => {
                    list.unused = behind.to_vec();
                    rest = &[];
                }
                NOP => rest = behind,
                _ => match behind {
                    [len, ..] if *len >= 2 && usize::from(*len) <= rest.len() => {
                        let len = usize::from(*len);
                        data = rest[2..len].to_vec();
                        rest = &rest[len..];
                    }
                    _ => {
                        list.tail = rest.to_vec();
                        return list;
                    }
                },
            }
            list.options.push(OracleOption { kind: *kind, data });
        }
        list
    }

    /// The area as it was read, with its padding, and with the values of `now`.
    fn write_in_place(&self, now: &OracleOptionList) -> Vec<u8> {
        let mut area = Vec::new();
        let mut values = now.without_padding();
        for option in &self.options {
            let option = if option.is_padding() { Some(option) } else { values.next() };
            option.into_iter().for_each(|option| option.write(&mut area));
        }
        area.extend(&self.tail);
        area.extend(&self.unused);
        area
    }

    /// The area rebuilt: no padding between options, zeroes up to a multiple of four bytes.
    fn encode(&self) -> Vec<u8> {
        let mut area = Vec::new();
        for option in self.without_padding() {
            option.write(&mut area);
        }
        area.extend(&self.tail);
        area.resize(area.len().next_multiple_of(4), END);
        area
    }

    fn without_padding(&self) -> impl Iterator<Item = &OracleOption> {
        self.options.iter().filter(|option| !option.is_padding())
    }

    /// Whether `other` has the same kinds of options in the same order with data of the same lengths, the same amount of padding, and the
    /// same tail.
    fn same_shape(&self, other: &OracleOptionList) -> bool {
        let shape = |list: &OracleOptionList| {
            list.without_padding().map(|o| (o.kind, o.data.len())).collect::<Vec<_>>()
        };
        shape(self) == shape(other) && self.options.len() == other.options.len() && self.tail == other.tail
    }
}

/// Applies the option targets of `rules` in order, on one list, which becomes the new area. In a fragment the area keeps its length.
pub(super) fn edit(area: &[u8], fragment: bool, rules: &[&Rule]) -> (Vec<u8>, Vec<NotApplied>) {
    let before = OracleOptionList::read(area);
    let limit = if fragment { area.len() } else { MAX_BYTES };
    let mut editor = OracleEditor { list: before.clone(), limit, not_applied: Vec::new() };
    for rule in rules {
        let mut whitelist = Some(whitelist(rule));
        for target in &rule.targets {
            match target {
                Target::Mod(field, write) => {
                    if let Some(kind) = fields::place(*field).option_kind() {
                        editor.modify(kind, write);
                    }
                }
                Target::AddOption(kind, data) => editor.add(*kind, data),
                Target::Strip(kind) => editor.list.options.retain(|o| o.kind != *kind),
                Target::Keep(_) => {
                    if let Some(kinds) = whitelist.take() {
                        editor.list.options.retain(|o| o.is_padding() || kinds.contains(&o.kind));
                        editor.list.tail.clear();
                    }
                }
                Target::StripAll => {
                    editor.list.options.clear();
                    editor.list.tail.clear();
                }
                Target::Drop(_) | Target::Reject(_) | Target::Limit(_) | Target::Accept => {}
                Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => {}
                Target::Log(_) | Target::Alert(_) | Target::Close | Target::Digest => {}
                Target::Edit(_) | Target::Helper(_) => {}
            }
        }
    }
    let after = if editor.list.same_shape(&before) {
        before.write_in_place(&editor.list)
    } else {
        let mut rewritten = editor.list.encode();
        if fragment {
            rewritten.resize(area.len(), END);
        }
        rewritten
    };
    (after, editor.not_applied)
}

/// The kinds that the `strip !` targets of a rule exempt, all together.
fn whitelist(rule: &Rule) -> Vec<u8> {
    rule.targets
        .iter()
        .filter_map(|target| if let Target::Keep(kind) = target { Some(*kind) } else { None })
        .collect()
}

struct OracleEditor {
    list: OracleOptionList,
    /// The most bytes that the area may have.
    limit: usize,
    not_applied: Vec<NotApplied>,
}

impl OracleEditor {
    fn add(&mut self, kind: u8, data: &[u8]) {
        let mut longer = self.list.clone();
        longer.options.push(OracleOption { kind, data: data.to_vec() });
        self.replace_if_it_fits(longer);
    }

    /// Changes every option of the kind.
    fn modify(&mut self, kind: u8, write: &Write) {
        let mut changed = self.list.clone();
        let mut too_narrow = false;
        for option in changed.options.iter_mut().filter(|o| o.kind == kind) {
            match write {
                Write::Bytes(bytes) => option.data = bytes.clone(),
                Write::Number(number) => match number_in(*number, option.data.len()) {
                    Some(data) => option.data = data,
                    None => too_narrow = true,
                },
            }
        }
        if too_narrow {
            self.not_applied.push(NotApplied::OptionWidth);
        }
        self.replace_if_it_fits(changed);
    }

    fn replace_if_it_fits(&mut self, list: OracleOptionList) {
        match list.encode().len() {
            len if len > MAX_BYTES => self.not_applied.push(NotApplied::OptionSpace),
            len if len > self.limit => self.not_applied.push(NotApplied::Fragment),
            _ => self.list = list,
        }
    }
}

/// A number as `len` big-endian bytes, if it fits.
fn number_in(number: u128, len: usize) -> Option<Vec<u8>> {
    let bytes = number.to_be_bytes();
    let significant = bytes.iter().skip_while(|byte| **byte == 0).count();
    let mut data = vec![0; len.checked_sub(significant)?];
    data.extend(&bytes[bytes.len() - significant..]);
    Some(data)
}

//! Compiles the targets of a rule to steps.

use crate::fields::{FieldStep, is_checksum};
use crate::options::{OptionKindSet, OptionStep};
use crate::payload::PayloadStep;
use mmb_policy::Target;
use mmb_policy::field::{Field, FieldPlace, Writable};
use mmb_policy::rule::Write;

/// The rewriting targets of one rule, compiled. The steps of each list are in the order written.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    pub(crate) fields: Vec<FieldStep>,
    pub(crate) options: Vec<OptionStep>,
    pub(crate) payloads: Vec<PayloadStep>,
    /// Lengths, versions and offsets: checksums are updated.
    pub(crate) raw: Vec<FieldStep>,
    /// Checksums, written without correction.
    pub(crate) checksums: Vec<FieldStep>,
    /// The lists after the fields that have steps, as bits.
    pub(crate) lists: u8,
}

impl Edit {
    /// Options, payloads, lengths and versions.
    pub(crate) const BEHIND_FIELDS: u8 = 1 << 0;
    pub(crate) const CHECKSUMS: u8 = 1 << 1;

    /// Compiles a rule's targets; `None` if none of them rewrites.
    pub fn compile(targets: &[Target]) -> Option<Edit> {
        let mut edit = Edit::default();
        for target in targets {
            edit.add(target);
        }
        let none_behind = edit.options.is_empty() && edit.payloads.is_empty() && edit.raw.is_empty();
        let bit = |empty: bool, bit| if empty { 0 } else { bit };
        edit.lists = bit(none_behind, Self::BEHIND_FIELDS) | bit(edit.checksums.is_empty(), Self::CHECKSUMS);
        (!edit.fields.is_empty() || edit.lists != 0).then_some(edit)
    }

    /// Whether it writes constants to fields of IP and transport headers, and nothing else.
    pub fn writes_fields_only(&self) -> bool {
        self.lists == 0 && self.fields.iter().all(FieldStep::is_of_header)
    }

    fn add(&mut self, target: &Target) {
        match target {
            Target::Mod(field, write) => self.add_mod(*field, write),
            Target::AddOption(kind, data) => {
                self.options.push(OptionStep::Add { kind: *kind, data: data.as_slice().into() });
            }
            Target::Strip(kind) => self.options.push(OptionStep::Strip(*kind)),
            Target::Keep(kind) => match self.options.iter_mut().find_map(OptionStep::whitelist) {
                // One whitelist per rule, at the place of its first `strip !`.
                Some(kinds) => kinds.insert(*kind),
                None => self.options.push(OptionStep::Keep(OptionKindSet::of(*kind))),
            },
            Target::StripAll => self.options.push(OptionStep::Clear),
            Target::Drop(_) | Target::Reject(_) | Target::Limit(_) | Target::Accept => {}
            Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => {}
            Target::Log(_) | Target::Alert(_) | Target::Close | Target::Digest => {}
            Target::Edit(_) | Target::Helper(_) => {}
        }
    }

    fn add_mod(&mut self, field: Field, write: &Write) {
        let info = field.info();
        match (info.place, write) {
            (FieldPlace::Key { .. }, Write::Number(number)) => {
                let Some(step) = FieldStep::new(info, *number) else { return };
                match info.writable {
                    Writable::Raw if is_checksum(info) => self.checksums.push(step),
                    Writable::Raw => self.raw.push(step),
                    Writable::InPlace => self.fields.push(step),
                    // The checker has refused the one; the others are not in the key.
                    Writable::No(_) | Writable::Option | Writable::Payload => {}
                    Writable::Stream | Writable::Header | Writable::Whole => {}
                }
            }
            (FieldPlace::Option(_) | FieldPlace::NamedOption, write) => {
                let Some(kind) = field.option_kind() else { return };
                self.options.push(match write {
                    Write::Number(number) => OptionStep::Number { kind, number: *number },
                    Write::Bytes(data) => OptionStep::Data { kind, data: data.as_slice().into() },
                });
            }
            (FieldPlace::Payload(place), Write::Bytes(bytes)) => {
                self.payloads.push(PayloadStep::new(info.implies, place, bytes));
            }
            // The checker allows bytes only for options and payloads, and numbers for everything except payloads.
            (FieldPlace::Key { .. } | FieldPlace::AnyOption | FieldPlace::Connection, _)
            | (FieldPlace::Payload(_), Write::Number(_)) => {}
            // The checker refuses edits of streams.
            (FieldPlace::Stream(_), _) => {}
        }
    }
}

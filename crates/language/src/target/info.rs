//! A row of the table of targets, and a target as it is written.

use crate::diagnostic::TextSpan;
use crate::report::CheckReport;
use crate::syntax::value::{FieldSyntax, ItemSyntax, ValueSyntax, WeightSyntax};
use mmb_policy::Target;
use mmb_policy::field::FieldInfo;

/// One target.
#[derive(Debug)]
pub struct TargetInfo {
    /// The word that begins it.
    pub name: &'static str,
    /// The text that follows it, as shown in help.
    pub arguments: &'static str,
    /// Only a stateful rule may hold it.
    pub stateful: bool,
    /// One line of help.
    pub help: &'static str,
    /// A paragraph of the reference.
    pub reference: &'static str,
    /// Words of other tools, and slips, for which errors suggest this target.
    pub(crate) synonyms: &'static [&'static str],
    /// The arguments in their order.
    pub(crate) slots: &'static [Slot],
    /// Returns whether it takes a field. Not called for targets without one.
    pub(crate) takes: fn(&FieldInfo) -> bool,
    /// Checks the target by itself. `None` if there were errors.
    pub(crate) check: fn(&TargetArguments<'_>, &mut CheckReport<'_>) -> Option<Target>,
    /// The reason why it cannot stand behind other targets of a rule, of which there is one of each kind.
    pub(crate) clash: fn(&Target, &[&Target]) -> Option<&'static str>,
}

/// An argument of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    /// A field; the text names it in errors.
    Field(&'static str),
    /// `all`, or a field with or without `!` before it.
    Selection,
    /// A value of the field.
    Value,
    /// A value of the field; members of a set may have a weight.
    WeightedValue,
    /// A value of the field, or nothing.
    OptionalValue,
    /// A percentage, or nothing.
    Percentage,
    /// `"text"`, or nothing.
    OptionalText,
    /// One of these words, or nothing; each with its help. The text names it in errors.
    Choice(&'static str, &'static [(&'static str, &'static str)]),
    /// One of these words; each with its help. The text names it in errors.
    Name(&'static str, &'static [(&'static str, &'static str)]),
    /// A rate.
    Rate,
    /// This word and an argument of this form, or nothing; with help for the word. Such slots come last, and in any order.
    Behind { word: &'static str, expected: &'static str, help: &'static str },
    /// Behind this word of the choice: one of these words or a number, or nothing; else nothing.
    Code { behind: &'static str, words: &'static [(&'static str, &'static str)] },
}

/// A target and where it stands.
#[derive(Debug)]
pub(crate) struct TargetSyntax<'t> {
    pub(crate) info: &'static TargetInfo,
    pub(crate) arguments: TargetArguments<'t>,
    pub(crate) span: TextSpan,
}

/// The arguments of a target. Which there are follows from its [`TargetInfo::slots`].
#[derive(Debug, Default)]
pub(crate) struct TargetArguments<'t> {
    /// The field of [`Slot::Field`] or [`Slot::Selection`]; none with `all`.
    pub(crate) field: Option<FieldSyntax<'t>>,
    /// `all` stands in place of a selection.
    pub(crate) all: bool,
    /// `!` stands before a selection.
    pub(crate) negated: bool,
    /// The value of [`Slot::Value`], [`Slot::WeightedValue`] or [`Slot::OptionalValue`].
    pub(crate) value: Option<ValueSyntax<'t>>,
    /// The weights of members of the value, those that are given.
    pub(crate) weights: Vec<WeightSyntax>,
    /// The percentage of [`Slot::Percentage`].
    pub(crate) percentage: Option<ItemSyntax<'t>>,
    /// The rate of [`Slot::Rate`].
    pub(crate) rate: Option<ItemSyntax<'t>>,
    /// The arguments of [`Slot::Behind`], each with the word before it.
    behind: Vec<(&'static str, ItemSyntax<'t>)>,
    /// The text of [`Slot::OptionalText`].
    pub(crate) text: Option<(&'t [u8], TextSpan)>,
    /// The word of [`Slot::Choice`] or [`Slot::Name`].
    pub(crate) choice: Option<&'static str>,
    /// The word or number of [`Slot::Code`].
    pub(crate) code: Option<ItemSyntax<'t>>,
}

impl Slot {
    /// Returns whether a field is read here.
    pub(crate) fn is_field(&self) -> bool {
        match self {
            Slot::Field(_) | Slot::Selection => true,
            Slot::Value | Slot::WeightedValue | Slot::OptionalValue => false,
            Slot::Percentage | Slot::OptionalText | Slot::Choice(..) | Slot::Code { .. } => false,
            Slot::Name(..) | Slot::Rate | Slot::Behind { .. } => false,
        }
    }
}

impl<'t> TargetArguments<'t> {
    /// The argument behind a word of [`Slot::Behind`].
    pub(crate) fn behind(&self, word: &str) -> Option<&ItemSyntax<'t>> {
        self.behind.iter().find(|(before, _)| *before == word).map(|(_, item)| item)
    }

    pub(crate) fn put_behind(&mut self, word: &'static str, item: ItemSyntax<'t>) {
        self.behind.push((word, item));
    }
}

impl TargetInfo {
    /// A row of a target without arguments that any rule may hold, beside any other target.
    pub(super) const fn new(
        name: &'static str,
        check: fn(&TargetArguments<'_>, &mut CheckReport<'_>) -> Option<Target>,
    ) -> TargetInfo {
        TargetInfo {
            name,
            arguments: "",
            stateful: false,
            help: "",
            reference: "",
            synonyms: &[],
            slots: &[],
            takes: |_| false,
            check,
            clash: |_, _| None,
        }
    }
}

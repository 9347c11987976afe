//! The syntax tree of one command: what was written and where, fields recognized, values still as text.
//!
//! It lives from the parser to the checker and borrows from the tokens of its line.

use crate::command::Command;
use crate::diagnostic::TextSpan;
use crate::filter::TermInfo;
use mmb_policy::field::Field;
use mmb_policy::rule::{Cond, LbMethod, Prio, RuleId};

/// One command as written.
#[derive(Debug)]
pub(crate) enum CommandSyntax<'t> {
    /// A rule, still to be checked.
    Rule(RuleSyntax<'t>),
    /// `show connections`, and whether it is to be verbose.
    Connections(FilterSyntax<'t>, bool),
    /// `conn kill`
    Kill(FilterSyntax<'t>),
    /// A command that the parser understood wholly.
    Other(Command),
}

/// `[WORD VALUE]…`, connections.
pub(crate) type FilterSyntax<'t> = Vec<TermSyntax<'t>>;

/// A word of a filter and its value.
#[derive(Debug)]
pub(crate) struct TermSyntax<'t> {
    pub(crate) term: &'static TermInfo,
    /// Where the word stands.
    pub(crate) span: TextSpan,
    pub(crate) value: ItemSyntax<'t>,
}

/// An `add`.
#[derive(Debug)]
pub(crate) struct RuleSyntax<'t> {
    pub(crate) stateful: bool,
    pub(crate) id: Option<RuleId>,
    pub(crate) prio: Option<Prio>,
    pub(crate) name: Option<String>,
    /// Where `all` stands.
    pub(crate) all: Option<TextSpan>,
    pub(crate) matches: Vec<MatchSyntax<'t>>,
    pub(crate) targets: Vec<TargetSyntax<'t>>,
    /// Its text had errors, and parts of it may be missing here.
    pub(crate) broken: bool,
}

/// `[!] FIELD [[COND] VALUE]`
#[derive(Debug)]
pub(crate) struct MatchSyntax<'t> {
    pub(crate) negated: bool,
    pub(crate) field: FieldSyntax,
    pub(crate) cond: Option<(Cond, TextSpan)>,
    pub(crate) value: Option<ValueSyntax<'t>>,
    pub(crate) span: TextSpan,
}

/// A field and where it stands, the kind of `tcp-opt KIND` included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSyntax {
    pub(crate) field: Field,
    pub(crate) span: TextSpan,
}

/// A value.
#[derive(Debug)]
pub(crate) enum ValueSyntax<'t> {
    /// One.
    One(ItemSyntax<'t>),
    /// `{…}`, not empty.
    Set(Vec<ItemSyntax<'t>>, TextSpan),
}

/// One value, or one member of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemSyntax<'t> {
    pub(crate) kind: ItemKind<'t>,
    pub(crate) span: TextSpan,
}

/// How a value is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ItemKind<'t> {
    /// A number, a name, an address, a prefix, a range.
    Word(&'t str),
    /// `"text"` or `|bytes|`.
    Bytes(&'t [u8]),
}

/// A target and where it stands.
#[derive(Debug)]
pub(crate) struct TargetSyntax<'t> {
    pub(crate) kind: TargetKind<'t>,
    pub(crate) span: TextSpan,
}

/// What a target is.
#[derive(Debug)]
pub(crate) enum TargetKind<'t> {
    Mod(FieldSyntax, ValueSyntax<'t>),
    Add(FieldSyntax, Option<ValueSyntax<'t>>),
    Strip(FieldSyntax),
    Keep(FieldSyntax),
    StripAll,
    Drop(Option<ItemSyntax<'t>>),
    Accept,
    Map(FieldSyntax, ValueSyntax<'t>),
    Shuffle(FieldSyntax, Option<ValueSyntax<'t>>),
    Lb(FieldSyntax, ValueSyntax<'t>, Option<LbMethod>),
}

impl<'t> ValueSyntax<'t> {
    pub(crate) fn span(&self) -> TextSpan {
        match self {
            ValueSyntax::One(item) => item.span,
            ValueSyntax::Set(_, span) => *span,
        }
    }

    pub(crate) fn items(&self) -> &[ItemSyntax<'t>] {
        match self {
            ValueSyntax::One(item) => std::slice::from_ref(item),
            ValueSyntax::Set(items, _) => items,
        }
    }
}

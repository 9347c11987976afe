//! The syntax tree of one command: words with their places, fields recognized, values still as text.
//!
//! It lives from the parser to the checker and borrows from the tokens of its line.

pub(crate) mod value;

use crate::command::Command;
use crate::diagnostic::TextSpan;
use crate::filter::TermInfo;
use crate::target::info::TargetSyntax;
use mmb_policy::rule::{Cond, Prio, RuleId};
use mmb_policy::sets::{ElementList, SetOperation};
use value::{FieldSyntax, ItemSyntax, ValueSyntax};

/// One command as written.
#[derive(Debug)]
pub(crate) enum CommandSyntax<'t> {
    /// A rule, still to be checked.
    Rule(RuleSyntax<'t>),
    /// `show connections`, and whether it is to be verbose.
    Connections(FilterSyntax<'t>, bool),
    /// `show streams`, and whether it is to be verbose.
    Streams(FilterSyntax<'t>, bool),
    /// `conn kill`
    Kill(FilterSyntax<'t>),
    /// `patterns`, whose file is still to be read.
    Patterns(PatternsSyntax<'t>),
    /// `set NAME` and elements, whose file may still have to be read.
    Set(SetSyntax<'t>),
    /// A command that the parser understood wholly.
    Other(Command),
}

/// `patterns LIST FILE`
#[derive(Debug)]
pub(crate) struct PatternsSyntax<'t> {
    pub(crate) name: &'t str,
    pub(crate) file: &'t str,
    /// The place of the file's name.
    pub(crate) span: TextSpan,
}

/// `set NAME {…}` and the like.
#[derive(Debug)]
pub(crate) struct SetSyntax<'t> {
    pub(crate) name: &'t str,
    pub(crate) operation: SetOperation,
    pub(crate) elements: ElementsSyntax<'t>,
}

/// The elements of a `set`.
#[derive(Debug)]
pub(crate) enum ElementsSyntax<'t> {
    /// `{…}`
    List(ElementList),
    /// `file FILE`, and the place of the file's name.
    File(&'t str, TextSpan),
}

/// `[WORD VALUE]…`, connections.
pub(crate) type FilterSyntax<'t> = Vec<TermSyntax<'t>>;

/// A word of a filter and its value.
#[derive(Debug)]
pub(crate) struct TermSyntax<'t> {
    pub(crate) term: &'static TermInfo,
    /// The place of the word.
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
    /// The place of `draining`.
    pub(crate) draining: Option<TextSpan>,
    /// The place of `all`.
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
    pub(crate) field: FieldSyntax<'t>,
    pub(crate) cond: Option<(Cond, TextSpan)>,
    pub(crate) value: Option<ValueSyntax<'t>>,
    pub(crate) span: TextSpan,
}

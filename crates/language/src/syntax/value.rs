//! Fields and values as they are written.

use crate::diagnostic::TextSpan;
use mmb_policy::field::Field;
use mmb_policy::http::Replacement;
use mmb_policy::pattern::Regex;

/// A field and where it stands, the kind of `tcp-opt KIND` and the name of `http-header NAME` included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSyntax<'t> {
    pub(crate) field: Field,
    /// The name of the header field, of `http-header` only.
    pub(crate) header: Option<ItemSyntax<'t>>,
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

/// `weight N` behind a member of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightSyntax {
    /// The index of the member.
    pub(crate) member: usize,
    pub(crate) weight: u8,
}

/// The form in which a value is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ItemKind<'t> {
    /// A number, a name, an address, a prefix, a range.
    Word(&'t str),
    /// `"text"` or `|bytes|`.
    Bytes(&'t [u8]),
    /// `"text"` with `\m` in it.
    Replacement(&'t Replacement),
    /// `/regex/` or `/regex/i`, of fields that take patterns only.
    Regex(&'t Regex),
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

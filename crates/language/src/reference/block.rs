//! The pieces that the reference is made of.

/// A piece of the reference. Texts may hold `code` in backquotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A heading, of level 1 to 3.
    Heading(u8, String),
    /// A paragraph.
    Paragraph(String),
    /// Points of a list.
    List(Vec<String>),
    /// Commands, or a grammar.
    Code(CodeKind, String),
    /// A table: its head and its rows.
    Table(Vec<&'static str>, Vec<Vec<String>>),
}

/// The kind of a block of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeKind {
    /// Commands that can be pasted.
    Commands,
    /// Anything else.
    Text,
}

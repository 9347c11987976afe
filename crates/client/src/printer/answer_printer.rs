//! The interface of a printer.

use crate::report::SourceText;
use mmb_protocol::answer::{Answer, AnswerEnd, ErrorLine};

/// Prints an answer as its lines arrive.
pub(crate) trait AnswerPrinter {
    /// Prints a line that is no note, error or end.
    fn line(&mut self, answer: Answer);
    /// Prints a note about the text that was sent.
    fn note(&mut self, note: &ErrorLine, source: SourceText<'_>);
    /// Returns whether the reader of the output has gone.
    fn is_closed(&self) -> bool;
    /// Prints what remains of an answer that is complete and without errors.
    fn end(self: Box<Self>, end: AnswerEnd);
}

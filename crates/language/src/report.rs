//! The errors and notes of a text that is checked.

use crate::diagnostic::{Diagnostic, Errors, Notes};

/// The lists of errors and notes to which the checker adds.
pub(crate) struct CheckReport<'e> {
    pub(crate) errors: &'e mut Errors,
    pub(crate) notes: &'e mut Notes,
    /// The text is a command that a user may have typed in a shell, not a file.
    pub(crate) is_typed: bool,
}

impl CheckReport<'_> {
    pub(crate) fn error(&mut self, error: Diagnostic) {
        self.errors.push(error);
    }
}

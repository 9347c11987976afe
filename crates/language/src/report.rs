//! The errors and notes of a text that is checked.

use crate::diagnostic::{Diagnostic, Errors, Notes};

/// Where the checker says what it finds.
pub(crate) struct CheckReport<'e> {
    pub(crate) errors: &'e mut Errors,
    pub(crate) notes: &'e mut Notes,
}

impl CheckReport<'_> {
    pub(crate) fn error(&mut self, error: Diagnostic) {
        self.errors.push(error);
    }
}

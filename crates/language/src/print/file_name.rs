//! Names of files back to their text.

use super::value::{Printed, bytes};
use crate::lexer::is_word;

/// The name of a file as `patterns` takes it: a word, or in quotes.
pub fn file_name(file: &str) -> String {
    if is_word(file) {
        return file.to_owned();
    }
    Printed(|f: &mut std::fmt::Formatter<'_>| bytes(f, file.as_bytes())).to_string()
}

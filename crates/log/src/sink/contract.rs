//! What the log asks of a sink.

use crate::record::Record;
use std::io;

/// What a sink writes records to.
pub(crate) trait Sink: Send {
    /// Writes records, from the first one on, as many as fit at a time, and returns how many that were. A sink that has failed is called again with the
    /// same records.
    ///
    /// # Errors
    /// It cannot write now.
    fn write(&mut self, records: &[Record]) -> io::Result<usize>;

    /// Opens its file again, which was renamed.
    fn reopen(&mut self) {}
}

//! The interface to the code that scans and edits the bytes of a stream.

use crate::edit::sink::{EditSink, Undecided};
use crate::segment::InOrder;
use std::ops::ControlFlow;

/// The answer of a reader to new bytes, before it is asked to edit them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanAnswer {
    /// All bytes are decided: they pass unchanged.
    PassAll,
    /// The reader has read the bytes and must be asked to edit them.
    AskToEdit,
    /// The reader has not read the bytes. It never answers before it is asked to edit, so the stream must not
    /// become plain again.
    CannotScan,
}

/// Scans or edits the bytes of a stream.
pub trait StreamReader {
    /// Scans in-order bytes of a direction that is not edited. If it breaks, the packet is dropped, and the
    /// caller of the table should end the connection.
    fn scan(&mut self, in_order: InOrder<'_>) -> ControlFlow<()>;

    /// Scans new bytes of an edited direction while its stream is plain: nothing was edited in the stream and
    /// no byte is undecided. If it breaks, the packet is dropped, and the caller of the table should end the
    /// connection. After [`ScanAnswer::AskToEdit`], [`StreamReader::edit`] is called next, with only these
    /// bytes.
    fn scan_plain(&mut self, _new: InOrder<'_>) -> ControlFlow<(), ScanAnswer> {
        ControlFlow::Continue(ScanAnswer::CannotScan)
    }

    /// Decides about undecided bytes of an edited direction: all of them, or some from the first one on. If
    /// it breaks, the packet is dropped, and the caller of the table should end the connection. The default
    /// passes all bytes unchanged.
    fn edit(&mut self, undecided: Undecided<'_>, sink: &mut EditSink<'_>) -> ControlFlow<()> {
        sink.pass(undecided.bytes.len());
        ControlFlow::Continue(())
    }
}

impl<F: FnMut(InOrder<'_>) -> ControlFlow<()>> StreamReader for F {
    fn scan(&mut self, in_order: InOrder<'_>) -> ControlFlow<()> {
        self(in_order)
    }
}

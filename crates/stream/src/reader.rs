//! The interface to the code that scans and edits the bytes of a stream.

use crate::edit::sink::{EditSink, Undecided};
use crate::segment::InOrder;
use std::ops::ControlFlow;

/// The answer of a reader to new bytes, before it is asked to edit them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// All bytes are decided: they pass unchanged.
    All,
    /// The reader has read the bytes and must be asked to edit them.
    Asks,
    /// The reader has not read the bytes. It never answers before it is asked to edit, so the stream must not
    /// become plain again.
    Never,
}

/// Scans or edits the bytes of a stream.
pub trait StreamReader {
    /// Scans in-order bytes of a direction that is not edited. If it breaks, the packet is dropped, and the
    /// caller of the table should end the connection.
    fn scan(&mut self, in_order: InOrder<'_>) -> ControlFlow<()>;

    /// Reads new bytes of an edited direction, while nothing was edited in the stream and no byte is
    /// undecided. If it breaks, the packet is dropped, and the caller of the table should end the connection.
    /// After [`Passes::Asks`], [`StreamReader::edit`] is called next, with only these bytes.
    fn passes(&mut self, _new: InOrder<'_>) -> ControlFlow<(), Passes> {
        ControlFlow::Continue(Passes::Never)
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

//! What reads and changes the bytes of a stream.

use crate::edit::sink::{EditSink, Undecided};
use crate::segment::InOrder;
use std::ops::ControlFlow;

/// Reads the bytes of a stream.
pub trait StreamReader {
    /// Reads bytes that are in order. If it breaks, the packet is dropped, and the caller should end the connection.
    fn scan(&mut self, in_order: InOrder<'_>) -> ControlFlow<()>;

    /// Decides about bytes of a direction that is edited: all of them or some, from the first one on. If it breaks, the packet is dropped, and the
    /// caller should end the connection. Without an implementation all go on as they are.
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

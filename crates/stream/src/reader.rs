//! What reads and changes the bytes of a stream.

use crate::edit::sink::{EditSink, Undecided};
use crate::segment::InOrder;
use std::ops::ControlFlow;

/// What a reader says of new bytes before it is asked to edit them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// All of them are decided: they go on as they are.
    All,
    /// It has read them, and is to be asked to edit them.
    Asks,
    /// It has not read them, and never tells before it is asked: the stream is not to be plain again.
    Never,
}

/// Reads the bytes of a stream.
pub trait StreamReader {
    /// Reads bytes that are in order, of a direction that is not edited. If it breaks, the packet is dropped, and the caller should end the connection.
    fn scan(&mut self, in_order: InOrder<'_>) -> ControlFlow<()>;

    /// Reads new bytes of a direction that is edited, while nothing was edited in the stream and no byte is undecided. If it breaks, the packet
    /// is dropped, and the caller should end the connection. After [`Passes::Asks`], [`StreamReader::edit`] comes next, with these bytes alone.
    fn passes(&mut self, _new: InOrder<'_>) -> ControlFlow<(), Passes> {
        ControlFlow::Continue(Passes::Never)
    }

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

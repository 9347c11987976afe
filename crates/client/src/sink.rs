//! The destination of a command's output.

/// The reader of the answer has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader of the answer has gone")]
pub struct SinkClosed;

/// The kinds of output that may be coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColorChoice {
    /// Answers.
    pub out: bool,
    /// Errors and notes.
    pub err: bool,
}

/// Delivers the output of a command to the user, piece by piece as it arrives. A piece may end in the middle of a line.
pub trait OutputSink {
    /// Takes a piece of an answer: text, or JSON.
    ///
    /// # Errors
    /// The reader has gone, so that the command may end.
    fn out(&self, text: &str) -> Result<(), SinkClosed>;

    /// Takes an error, a note or a hint. A failure to deliver it is ignored, since nothing could report it.
    fn err(&self, text: &str);

    /// Returns which output may be coloured; none by default.
    fn colors(&self) -> ColorChoice {
        ColorChoice::default()
    }
}

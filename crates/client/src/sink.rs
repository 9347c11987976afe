//! Where the words of errands go.

/// Nobody is left to read answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody reads the answer any more")]
pub struct SinkClosed;

/// Which words may be coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColorChoice {
    /// Those of answers.
    pub out: bool,
    /// Those of errors and notes.
    pub err: bool,
}

/// Brings words to whoever asked for an errand, piece by piece as they come. A piece need not end with a line.
pub trait OutputSink {
    /// Takes a piece of an answer: text, or JSON.
    ///
    /// # Errors
    /// Nobody reads it, so that the errand may end.
    fn out(&self, text: &str) -> Result<(), SinkClosed>;

    /// Takes an error, a note or a hint. Where nobody reads it there is nobody else to tell.
    fn err(&self, text: &str);

    /// Which words are coloured; none unless this says otherwise.
    fn colors(&self) -> ColorChoice {
        ColorChoice::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::screen::Screen;
    use std::cell::RefCell;

    /// Keeps what it is told.
    #[derive(Default)]
    struct CapturedOutput(RefCell<String>);

    impl OutputSink for CapturedOutput {
        fn out(&self, text: &str) -> Result<(), SinkClosed> {
            self.0.borrow_mut().push_str(text);
            Ok(())
        }

        fn err(&self, text: &str) {
            self.0.borrow_mut().push_str(text);
        }
    }

    /// What is shown on a screen.
    pub(crate) fn shown(show: impl FnOnce(&mut Screen<'_>)) -> String {
        let kept = CapturedOutput::default();
        show(&mut Screen::new(&kept));
        kept.0.into_inner()
    }
}

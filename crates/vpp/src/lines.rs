//! Whole lines of an answer whose pieces may end anywhere: VPP ends a line wherever it is given text.

/// The line that is not whole yet.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    begun: String,
}

impl LineBuffer {
    /// Takes a piece; returns the lines that are whole now.
    pub(crate) fn take(&mut self, piece: &str) -> String {
        let Some(end) = piece.rfind('\n') else {
            self.begun.push_str(piece);
            return String::new();
        };
        let mut whole = std::mem::take(&mut self.begun);
        let (lines, begun) = piece.split_at(end + 1);
        whole.push_str(lines);
        self.begun.push_str(begun);
        whole
    }

    /// What is left when no piece comes any more.
    pub(crate) fn rest(self) -> String {
        self.begun
    }
}

//! Joins pieces of output to whole lines, since VPP ends a line behind each text that it prints.

/// The begun last line.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    begun: String,
}

impl LineBuffer {
    /// Adds a piece; returns the lines that are complete now.
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

    /// The unfinished last line.
    pub(crate) fn rest(self) -> String {
        self.begun
    }
}

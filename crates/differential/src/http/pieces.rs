//! Scripts of both ends of a connection, and what their bytes are.

use mmb_http::{FramingKind, HttpDirection};

/// What bytes are; their number stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response,
    Body,
    Framing(FramingKind),
    Trailers,
    End,
    Truncated,
    Opaque,
}

impl Kind {
    /// Whether pieces of the kind that follow each other are one.
    fn has_no_border(self) -> bool {
        matches!(self, Kind::Body | Kind::Framing(FramingKind::BehindLast))
    }
}

/// Pieces of a direction in their order, content that follows content as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces(pub(super) Vec<(Kind, usize)>);

impl Pieces {
    pub(super) fn push(&mut self, kind: Kind, len: usize) {
        match self.0.last_mut() {
            Some((before_kind, before)) if kind.has_no_border() && *before_kind == kind => *before += len,
            Some((Kind::Opaque, _)) => {}
            _ => self.0.push((kind, len)),
        }
    }

    /// Without a truncation at the end: a reader may have refused the line that is truncated.
    pub(super) fn untruncated(&self) -> Pieces {
        let mut pieces = self.clone();
        pieces.0.pop_if(|(kind, _)| *kind == Kind::Truncated);
        pieces
    }

    /// Whether these are the first ones of others. The last one may be the start of more content.
    pub(super) fn begin(&self, others: &Pieces) -> bool {
        let Some(((last, len), before)) = self.0.split_last() else { return true };
        let Some((other, other_len)) = others.0.get(before.len()) else { return false };
        let is_start = len == other_len || (last.has_no_border() && len < other_len);
        others.0.starts_with(before) && last == other && is_start
    }
}

/// A step of the script.
pub(super) struct Step {
    pub(super) direction: HttpDirection,
    pub(super) bytes: Vec<u8>,
    pub(super) is_end: bool,
}

/// The direction that is not this one.
pub(super) fn other(direction: HttpDirection) -> HttpDirection {
    match direction {
        HttpDirection::Requests => HttpDirection::Responses,
        HttpDirection::Responses => HttpDirection::Requests,
    }
}

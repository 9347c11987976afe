//! One direction of a connection: where it is in a message.

use super::chunk::{chunk_size, max_chunk_line};
use super::framing::check_trailers;
use super::head::{BodyFraming, HeadBuffer, Headers};
use super::line::line_content;
use super::piece::{FramingKind, HttpDirection, HttpPiece};
use super::section::{LineSearch, read_headers};
use super::start_line::{check_request_start, check_response_start, request_line, status_line};
use super::unfit::HttpUnfit;

/// What comes next in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A head.
    Head,
    /// Content up to a length, of which so much is left.
    Length(u64),
    /// Content up to the end of the connection.
    UntilClose,
    /// The line with a chunk's size.
    ChunkSize,
    /// Data of a chunk, of which so much is left.
    ChunkData(u64),
    /// CRLF behind the data of a chunk.
    ChunkEnd,
    /// The trailer section.
    Trailers,
    /// The end of the message was not yet told.
    End,
    /// What the response to the last request says.
    Answer,
    /// Nothing: a message was truncated.
    Nothing,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) place: Place,
    pub(crate) search: LineSearch,
    /// How much of the start of the head was checked.
    start: Start,
    /// An empty line came in front of the head.
    after_blank: bool,
    /// The first message has not begun.
    is_first: bool,
    /// No message may follow.
    pub(crate) saw_last_message: bool,
    /// After the last message, some receivers keep the connection.
    pub(crate) may_persist: bool,
    /// What follows the message depends on its response.
    awaits_answer: bool,
    /// Bytes behind the message wait for its response; now they are requests, if it came.
    pub(crate) has_waiting: bool,
}

/// How much of the start of a head was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Unchecked,
    Begun,
    Line,
}

impl Default for Side {
    fn default() -> Self {
        Side {
            place: Place::Head,
            search: LineSearch::default(),
            start: Start::Unchecked,
            after_blank: false,
            is_first: true,
            saw_last_message: false,
            may_persist: false,
            awaits_answer: false,
            has_waiting: false,
        }
    }
}

/// What bytes at the place of a head are.
pub(crate) enum HeadProgress {
    More,
    /// An empty line.
    Blank,
    /// A head of so many bytes.
    Complete(usize),
}

impl Side {
    /// Looks for the end of a head. What is refused is refused as early as it can be known, so that it makes no difference how the bytes are cut.
    pub(crate) fn head(
        &mut self,
        direction: HttpDirection,
        bytes: &[u8],
        limit: usize,
    ) -> Result<HeadProgress, HttpUnfit> {
        let Some(first) = bytes.first() else { return Ok(HeadProgress::More) };
        if direction == HttpDirection::Requests && *first == b'\r' {
            return self.blank_line(bytes);
        }
        if self.saw_last_message {
            return Err(HttpUnfit::RequestBehindLast);
        }
        let within = &bytes[..bytes.len().min(limit)];
        if self.start == Start::Unchecked {
            let is_enough = match direction {
                HttpDirection::Requests => check_request_start(within)?,
                HttpDirection::Responses => check_response_start(within)?,
            };
            if is_enough {
                self.start = Start::Begun;
            }
        }
        if self.start != Start::Line
            && let Some(end) = self.search.next_line(direction, within)?
        {
            let line = line_content(&within[..end]);
            match direction {
                HttpDirection::Requests => request_line(line).map(drop)?,
                HttpDirection::Responses => status_line(line).map(drop)?,
            }
            self.start = Start::Line;
        }
        if self.start == Start::Line
            && let Some(end) = self.search.section_end(direction, within)?
        {
            return Ok(HeadProgress::Complete(end));
        }
        if within.len() == limit { Err(HttpUnfit::HeadTooLong) } else { Ok(HeadProgress::More) }
    }

    fn blank_line(&mut self, bytes: &[u8]) -> Result<HeadProgress, HttpUnfit> {
        match bytes.get(1) {
            None => Ok(HeadProgress::More),
            Some(b'\n') if self.after_blank => Err(HttpUnfit::BlankLines),
            Some(b'\n') => {
                self.after_blank = true;
                Ok(HeadProgress::Blank)
            }
            Some(_) => Err(HttpUnfit::BareCr),
        }
    }

    /// A head was read, of a message with such a body.
    pub(crate) fn begin_body(&mut self, body: BodyFraming) {
        self.start = Start::Unchecked;
        self.after_blank = false;
        self.is_first = false;
        self.search.restart();
        self.place = match body {
            BodyFraming::None | BodyFraming::Length(0) => Place::End,
            BodyFraming::Length(length) => Place::Length(length),
            BodyFraming::Chunked => Place::ChunkSize,
            BodyFraming::UntilClose => Place::UntilClose,
        };
    }

    /// What follows the message whose head was read depends on its response.
    pub(crate) fn await_answer(&mut self) {
        self.awaits_answer = true;
    }

    /// At a place that the response decides.
    pub(crate) fn wait(&mut self, bytes: &[u8]) -> HttpPiece<'static> {
        self.has_waiting = !bytes.is_empty();
        if self.has_waiting { HttpPiece::Wait } else { HttpPiece::More }
    }

    /// The response came, and messages follow.
    pub(crate) fn answered(&mut self) {
        self.awaits_answer = false;
        if self.place == Place::Answer {
            self.place = Place::Head;
        }
    }

    /// Whether a message has begun whose body goes on.
    pub(crate) fn is_within_body(&self) -> bool {
        match self.place {
            Place::Head | Place::Answer | Place::Nothing => false,
            Place::Length(_) | Place::UntilClose | Place::ChunkSize | Place::ChunkData(_) => true,
            Place::ChunkEnd | Place::Trailers | Place::End => true,
        }
    }

    /// Whether nothing came before what comes now.
    pub(crate) fn is_at_start(&self) -> bool {
        self.is_first && !self.after_blank
    }

    /// The next piece of a body: at any place but those of heads and answers.
    pub(crate) fn body<'b>(
        &mut self,
        direction: HttpDirection,
        bytes: &'b [u8],
        is_end: bool,
        limit: usize,
        buffer: &'b mut HeadBuffer,
    ) -> Result<HttpPiece<'b>, HttpUnfit> {
        let piece = match self.place {
            Place::Length(left) => self.content(bytes, left, Place::End, Place::Length),
            Place::ChunkData(left) => self.content(bytes, left, Place::ChunkEnd, Place::ChunkData),
            Place::UntilClose if !bytes.is_empty() => HttpPiece::Body { len: bytes.len() },
            Place::UntilClose if is_end => {
                self.place = Place::Head;
                return Ok(HttpPiece::End);
            }
            Place::ChunkSize => self.chunk_line(direction, bytes)?,
            Place::ChunkEnd => self.chunk_end(direction, bytes)?,
            Place::Trailers => self.trailers(direction, bytes, limit, buffer)?,
            Place::End => {
                self.place = if self.awaits_answer { Place::Answer } else { Place::Head };
                return Ok(HttpPiece::End);
            }
            Place::UntilClose | Place::Head | Place::Answer | Place::Nothing => HttpPiece::More,
        };
        if is_end && piece == HttpPiece::More && self.place != Place::Nothing {
            self.place = Place::Nothing;
            return Ok(HttpPiece::Truncated { len: bytes.len() });
        }
        Ok(piece)
    }

    fn content(
        &mut self,
        bytes: &[u8],
        left: u64,
        behind: Place,
        within: fn(u64) -> Place,
    ) -> HttpPiece<'static> {
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        if len == 0 {
            return HttpPiece::More;
        }
        let left = left - len as u64;
        self.place = if left == 0 { behind } else { within(left) };
        HttpPiece::Body { len }
    }

    fn chunk_line(
        &mut self,
        direction: HttpDirection,
        bytes: &[u8],
    ) -> Result<HttpPiece<'static>, HttpUnfit> {
        let max = max_chunk_line(direction);
        let within = &bytes[..bytes.len().min(max)];
        let Some(len) = self.search.next_line(direction, within)? else {
            let is_full = within.len() == max;
            return if is_full { Err(HttpUnfit::ChunkLineTooLong) } else { Ok(HttpPiece::More) };
        };
        let size = chunk_size(direction, line_content(&within[..len]))?;
        self.search.restart();
        self.place = if size == 0 { Place::Trailers } else { Place::ChunkData(size) };
        Ok(HttpPiece::Framing {
            len,
            kind: if size == 0 { FramingKind::LastChunk } else { FramingKind::ChunkSize },
        })
    }

    fn chunk_end(&mut self, direction: HttpDirection, bytes: &[u8]) -> Result<HttpPiece<'static>, HttpUnfit> {
        let len = match bytes {
            [] | [b'\r'] => return Ok(HttpPiece::More),
            [b'\r', b'\n', ..] => 2,
            [b'\n', ..] if direction == HttpDirection::Responses => 1,
            _ => return Err(HttpUnfit::ChunkEnd),
        };
        self.place = Place::ChunkSize;
        Ok(HttpPiece::Framing { len, kind: FramingKind::ChunkEnd })
    }

    fn trailers<'b>(
        &mut self,
        direction: HttpDirection,
        bytes: &'b [u8],
        limit: usize,
        buffer: &'b mut HeadBuffer,
    ) -> Result<HttpPiece<'b>, HttpUnfit> {
        let within = &bytes[..bytes.len().min(limit)];
        let Some(end) = self.search.section_end(direction, within)? else {
            let is_full = within.len() == limit;
            return if is_full { Err(HttpUnfit::TrailersTooLong) } else { Ok(HttpPiece::More) };
        };
        let section = &bytes[..end];
        read_headers(direction, section, 0, &mut buffer.lines)?;
        let headers = Headers { bytes: section, lines: &buffer.lines };
        if direction == HttpDirection::Requests {
            check_trailers(&headers)?;
        }
        self.search.restart();
        self.place = Place::End;
        Ok(HttpPiece::Trailers(headers))
    }
}

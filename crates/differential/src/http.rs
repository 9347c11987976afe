//! The bytes of both directions of an HTTP connection: the reader against a plain model of the grammar, and cut against whole; editors of the
//! connection too.
//!
//! An input is a byte that selects the length of pieces, and a script: 0xFE begins bytes of the client, 0xFD bytes of the server, and 0xFC says that
//! the one whose bytes come closes behind them. The model knows whole heads only, as regexes from RFC 9110 and RFC 9112; it
//! reads no bytes early and names no reasons. So a reader may refuse bytes before the model can, but nothing that the model reads, and
//! must refuse what the model refuses.

use mmb_http::{HeadBuffer, HttpConnection, HttpDirection, HttpPiece, HttpUnfit};
use model::Model;
use pieces::{Kind, Pieces, Step, other};

mod editing;
mod model;
mod pieces;

const CLIENT: u8 = 0xFE;
const SERVER: u8 = 0xFD;
const CLOSES: u8 = 0xFC;

/// The limit of heads: small, so that inputs reach it.
const HEAD_LIMIT: u32 = 300;
/// The most bytes of an input.
const MAX_BYTES: usize = 4000;

/// Runs an input.
///
/// # Errors
/// The reader and the model differ, or the reader with itself when the bytes are cut.
pub fn http(data: &[u8]) -> Result<(), String> {
    let Some((first, script)) = data.split_first() else { return Ok(()) };
    let lengths = [usize::MAX, 1, 1 + usize::from(first & 63)];
    let mut readers = lengths.map(|_| Reader::new());
    let mut model = Model::new(HEAD_LIMIT as usize);
    let steps = steps(&script[..script.len().min(MAX_BYTES)]);
    editing::edit(&steps, &lengths)?;
    for step in steps {
        for (reader, length) in readers.iter_mut().zip(lengths) {
            reader.read(&step, length);
        }
        model.read(&step);
        let [whole, cut @ ..] = &readers;
        for (reader, length) in cut.iter().zip(&lengths[1..]) {
            if !whole.agrees_with_cut(reader) {
                let (a, b) = ((&reader.pieces, reader.unfit), (&whole.pieces, whole.unfit));
                return Err(format!("in pieces of {length}: {a:?}; as a whole: {b:?}"));
            }
        }
        if !whole.agrees(&model.pieces) {
            return Err(format!(
                "read {:?}, {:?}; by the model {:?}",
                whole.pieces, whole.unfit, model.pieces
            ));
        }
        if whole.unfit.is_some() {
            break;
        }
        if model.is_bad {
            return Err(format!("the model refuses what follows {:?}", whole.pieces));
        }
    }
    Ok(())
}

fn steps(script: &[u8]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut has_ended = [false; 2];
    for byte in script {
        let direction = match *byte {
            CLIENT => HttpDirection::Requests,
            SERVER => HttpDirection::Responses,
            CLOSES => {
                if let Some(step) = steps.last_mut() {
                    step.is_end = true;
                    has_ended[step.direction as usize] = true;
                }
                continue;
            }
            byte => {
                if let Some(step) = steps.last_mut().filter(|step| !step.is_end) {
                    step.bytes.push(byte);
                }
                continue;
            }
        };
        let is_end = has_ended[direction as usize];
        if !is_end {
            steps.push(Step { direction, bytes: Vec::new(), is_end });
        }
    }
    steps
}

/// The reader, and what it told.
struct Reader {
    connection: HttpConnection,
    buffer: HeadBuffer,
    undecided: [Vec<u8>; 2],
    has_ended: [bool; 2],
    pieces: [Pieces; 2],
    /// Where it refused the connection, and why.
    unfit: Option<(HttpDirection, HttpUnfit)>,
}

impl Reader {
    fn new() -> Reader {
        Reader {
            connection: HttpConnection::new(HEAD_LIMIT),
            buffer: HeadBuffer::default(),
            undecided: Default::default(),
            has_ended: [false; 2],
            pieces: Default::default(),
            unfit: None,
        }
    }

    /// Reads a step in pieces of a length, each followed by what waits in the other direction.
    fn read(&mut self, step: &Step, length: usize) {
        let mut rest = &step.bytes[..];
        loop {
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            rest = behind;
            let index = step.direction as usize;
            self.undecided[index].extend(piece);
            self.has_ended[index] |= step.is_end && rest.is_empty();
            for direction in [step.direction, other(step.direction), step.direction] {
                self.ask(direction);
            }
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Whether others are the same pieces. Who has refused a connection reads neither direction, so that more or less may be read in the one in which
    /// it was not refused.
    fn agrees(&self, others: &[Pieces; 2]) -> bool {
        let mut directions = [HttpDirection::Requests, HttpDirection::Responses].into_iter();
        directions.all(|direction| {
            let (own, others) = (&self.pieces[direction as usize], &others[direction as usize]);
            match self.unfit {
                Some((refused, _)) if refused != direction => own.begin(others) || others.begin(own),
                Some(_) => others.untruncated().begin(own),
                None => own == others,
            }
        })
    }

    /// Whether a reader of the same bytes in pieces has told the same. Where both directions are to be refused, either may be the first: what
    /// waits behind a CONNECT is read as soon as its response is.
    fn agrees_with_cut(&self, cut: &Reader) -> bool {
        match (self.unfit, cut.unfit) {
            (Some((own, _)), Some((other, _))) if own != other => {
                let mut pairs = self.pieces.iter().zip(&cut.pieces);
                pairs.all(|(own, others)| own.begin(others) || others.begin(own))
            }
            (own, other) => own == other && self.agrees(&cut.pieces),
        }
    }

    fn ask(&mut self, direction: HttpDirection) {
        let index = direction as usize;
        while self.unfit.is_none() {
            let bytes = &self.undecided[index];
            let piece = self.connection.next(direction, bytes, self.has_ended[index], &mut self.buffer);
            let len = piece.consumed();
            assert!(len <= bytes.len(), "consumed {len} of {} bytes", bytes.len());
            let kind = match piece {
                HttpPiece::More | HttpPiece::Wait => return,
                HttpPiece::Request(head) => {
                    check_places(&head.headers);
                    Kind::Request
                }
                HttpPiece::Response(head) => {
                    check_places(&head.headers);
                    Kind::Response
                }
                HttpPiece::Trailers(headers) => {
                    check_places(&headers);
                    Kind::Trailers
                }
                HttpPiece::Body { .. } => Kind::Body,
                HttpPiece::Framing { kind, .. } => Kind::Framing(kind),
                HttpPiece::End => Kind::End,
                HttpPiece::Truncated { .. } => Kind::Truncated,
                HttpPiece::Opaque => {
                    self.pieces[index].push(Kind::Opaque, 0);
                    return;
                }
                HttpPiece::Unfit(reason) => {
                    self.unfit = Some((direction, reason));
                    return;
                }
            };
            self.pieces[index].push(kind, len);
            self.undecided[index].drain(..len);
        }
    }
}

/// Without blanks and line ends at both ends.
fn trim(text: &[u8]) -> &[u8] {
    let is_kept = |byte: &u8| !b" \t\r\n".contains(byte);
    let start = text.iter().position(is_kept).unwrap_or(text.len());
    let end = text.iter().rposition(is_kept).map_or(start, |at| at + 1);
    &text[start..end]
}

/// The header lines follow each other up to the empty line, and their parts lie in them.
fn check_places(headers: &mmb_http::Headers<'_>) {
    let empty_line: &[u8] = if headers.bytes.ends_with(b"\r\n") { b"\r\n" } else { b"\n" };
    let end = headers.len() - empty_line.len();
    let mut at = headers.lines.first().map_or(end, |line| line.line.range().start);
    for line in headers.lines {
        assert_eq!(line.line.range().start, at, "{line:?}");
        at = line.line.range().end;
        let text = headers.text(line.line);
        assert!(text.ends_with(b"\n") && text.starts_with(headers.text(line.name)), "{line:?}");
        let behind = trim(&text[line.name.range().len()..]);
        assert_eq!(behind.first(), Some(&b':'), "{line:?}");
        assert_eq!(headers.text(line.value), trim(&behind[1..]), "{line:?}");
    }
    assert_eq!(&headers.bytes[at..], empty_line);
}

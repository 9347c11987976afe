//! Scripts of bytes for both directions, and what a reader tells of them.

use mmb_http::{
    BodyFraming, DEFAULT_HEAD_LIMIT, FramingKind, HeadBuffer, HttpConnection, HttpDirection, HttpPiece,
    HttpUnfit,
};

/// A step of a script.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) direction: HttpDirection,
    pub(crate) bytes: Vec<u8>,
    /// The sender closes behind them.
    pub(crate) is_end: bool,
}

/// Bytes of the client.
pub(crate) fn client(bytes: &[u8]) -> Step {
    Step { direction: HttpDirection::Requests, bytes: bytes.to_vec(), is_end: false }
}

/// Bytes of the server.
pub(crate) fn server(bytes: &[u8]) -> Step {
    Step { direction: HttpDirection::Responses, bytes: bytes.to_vec(), is_end: false }
}

impl Step {
    pub(crate) fn closes(mut self) -> Step {
        self.is_end = true;
        self
    }
}

/// What was told, as values of its own; content that follows content is one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Request { head: Vec<u8>, method: Vec<u8>, host: Vec<u8>, path: Vec<u8>, body: BodyFraming },
    Response { head: Vec<u8>, status: u16, body: BodyFraming },
    Body(Vec<u8>),
    Framing(FramingKind, Vec<u8>),
    Trailers(Vec<u8>),
    End,
    Truncated(Vec<u8>),
    Opaque,
    Unfit(HttpUnfit),
}

/// A connection and what was told of its directions.
pub(crate) struct Reading {
    pub(crate) connection: HttpConnection,
    buffer: HeadBuffer,
    undecided: [Vec<u8>; 2],
    pub(crate) told: [Vec<Told>; 2],
}

impl Default for Reading {
    fn default() -> Self {
        Reading::with_limit(DEFAULT_HEAD_LIMIT)
    }
}

impl Reading {
    pub(crate) fn with_limit(head_limit: u32) -> Reading {
        Reading {
            connection: HttpConnection::new(head_limit),
            buffer: HeadBuffer::default(),
            undecided: Default::default(),
            told: Default::default(),
        }
    }

    /// Reads a script, each step as a whole.
    pub(crate) fn of(script: &[Step]) -> Reading {
        let mut reading = Reading::default();
        for step in script {
            reading.read(step.direction, &step.bytes, step.is_end);
        }
        reading
    }

    /// Reads more bytes of a direction, and then what waits in the other one.
    pub(crate) fn read(&mut self, direction: HttpDirection, bytes: &[u8], is_end: bool) {
        self.undecided[direction as usize].extend_from_slice(bytes);
        self.ask(direction, is_end);
        let other = match direction {
            HttpDirection::Requests => HttpDirection::Responses,
            HttpDirection::Responses => HttpDirection::Requests,
        };
        self.ask(other, false);
        self.ask(direction, is_end);
    }

    fn ask(&mut self, direction: HttpDirection, is_end: bool) {
        let undecided = &mut self.undecided[direction as usize];
        let told = &mut self.told[direction as usize];
        loop {
            let piece = self.connection.next(direction, undecided, is_end, &mut self.buffer);
            let len = piece.consumed();
            let news = match owned(&piece, undecided) {
                None => return,
                Some(news) => news,
            };
            let is_over = matches!(news, Told::Opaque | Told::Unfit(_));
            match (told.last_mut(), news) {
                (Some(Told::Body(before)), Told::Body(more)) => before.extend(more),
                (Some(Told::Opaque | Told::Unfit(_)), _) => {}
                (_, news) => told.push(news),
            }
            if is_over {
                return;
            }
            undecided.drain(..len);
        }
    }

    pub(crate) fn requests(&self) -> &[Told] {
        &self.told[HttpDirection::Requests as usize]
    }

    pub(crate) fn responses(&self) -> &[Told] {
        &self.told[HttpDirection::Responses as usize]
    }

    /// The reason for which the connection is not read.
    pub(crate) fn unfit(&self) -> Option<HttpUnfit> {
        self.told.iter().flatten().find_map(|told| match told {
            Told::Unfit(reason) => Some(*reason),
            _ => None,
        })
    }

    /// Bytes that are not told.
    pub(crate) fn left(&self, direction: HttpDirection) -> &[u8] {
        &self.undecided[direction as usize]
    }
}

fn owned(piece: &HttpPiece<'_>, bytes: &[u8]) -> Option<Told> {
    let taken = bytes[..piece.consumed()].to_vec();
    Some(match piece {
        HttpPiece::More | HttpPiece::Wait => return None,
        HttpPiece::Request(head) => Told::Request {
            head: taken,
            method: head.method().to_vec(),
            host: head.headers.text(head.host).to_vec(),
            path: head.headers.text(head.path).to_vec(),
            body: head.body,
        },
        HttpPiece::Response(head) => Told::Response { head: taken, status: head.status, body: head.body },
        HttpPiece::Body { .. } => Told::Body(taken),
        HttpPiece::Framing { kind, .. } => Told::Framing(*kind, taken),
        HttpPiece::Trailers(_) => Told::Trailers(taken),
        HttpPiece::End => Told::End,
        HttpPiece::Truncated { .. } => Told::Truncated(taken),
        HttpPiece::Opaque => Told::Opaque,
        HttpPiece::Unfit(reason) => Told::Unfit(*reason),
    })
}

/// A GET with such header lines, each with its line end.
pub(crate) fn get(lines: &str) -> Step {
    client(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes())
}

/// A request that has a response.
pub(crate) fn asked(response: &str) -> [Step; 2] {
    [get(""), server(response.as_bytes())]
}

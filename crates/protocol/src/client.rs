//! The client's end of the wire: one connection, one question at a time, the answer as it comes.

use crate::answer::{Answer, AnswerEnd};
use crate::framing::{AnswerReadError, read_answer};
use crate::hex;
use crate::request::{self, Request};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Bytes collected before they are sent.
const BUFFER: usize = 64 << 10;

/// Bytes of a state in one piece.
const PIECE: usize = 24 << 10;

/// How often whoever follows is asked whether that is enough.
const PULSE: Duration = Duration::from_millis(100);

/// Why a question got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no mmb answers at {}", .path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The user may not talk to the daemon.
    #[error("{}: you may not talk to this mmb: be root, or in the group of its socket", .0.display())]
    NotAllowed(PathBuf),
    /// The daemon went, or let us go, before it had answered.
    #[error("mmb went away before it had answered; what was asked may be done or not")]
    Lost,
    /// What came is no answer.
    #[error("what answers is no mmb of this version: {0}")]
    Garbled(String),
    /// What was to be sent cannot be read.
    #[error("the state cannot be read to its end")]
    StateSource(#[source] io::Error),
    /// The system refused.
    #[error("the connection to mmb broke")]
    Io(#[from] io::Error),
}

impl From<AnswerReadError> for ClientError {
    fn from(error: AnswerReadError) -> ClientError {
        match error {
            AnswerReadError::Malformed(error) => ClientError::Garbled(error.to_string()),
            AnswerReadError::Io(error) => ClientError::Io(error),
        }
    }
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
}

impl Client {
    /// Connects to the daemon that listens at `path`.
    ///
    /// # Errors
    /// Nobody listens, or the user may not connect.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NotAllowed(path.to_owned()),
            _ => ClientError::NoDaemon { path: path.to_owned(), error },
        })?;
        Ok(Client::from_stream(stream))
    }

    /// Talks over a stream whose other end is the daemon's.
    pub fn from_stream(stream: UnixStream) -> Client {
        Client { stream }
    }

    /// Gives up when the daemon says nothing for so long. Without this, it may take its time: a large policy
    /// does.
    ///
    /// # Errors
    /// The duration is zero.
    pub fn with_timeout(self, patience: Duration) -> Result<Client, ClientError> {
        self.stream.set_read_timeout(Some(patience))?;
        self.stream.set_write_timeout(Some(patience))?;
        Ok(self)
    }

    /// Asks, and hands each line of the answer to `take` until the end, which is returned. A `take` that is
    /// slow (a pager that is not read) does not make the daemon wait: what comes meanwhile is kept here.
    ///
    /// # Errors
    /// The connection broke, or what came is no answer.
    pub fn ask<E: From<ClientError>>(
        &mut self,
        request: &Request,
        take: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<AnswerEnd, E> {
        // The daemon may refuse before it has read everything: then its answer tells more than our failure to
        // write.
        let sent = self.send(request);
        self.answer()?.receive(sent, take)
    }

    /// Sends a state of connections, as pieces, and hands each line of the answer to `take` until the end. A state that is refused
    /// is not sent to its end, which it may not have.
    ///
    /// # Errors
    /// The state cannot be read, the connection broke, or what came is no answer.
    pub fn load<E: From<ClientError>>(
        &mut self,
        state: &mut impl Read,
        take: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<AnswerEnd, E> {
        let mut answer = self.answer()?;
        let mut sent = self.send(&Request::LoadState);
        let mut piece = vec![0; PIECE];
        while sent.is_ok() {
            let read = if answer.has_begun() { Ok(0) } else { read_full(state, &mut piece) };
            let read = read.map_err(|error| {
                // Without a last piece nothing is made of it.
                let _ = self.stream.shutdown(Shutdown::Both);
                ClientError::StateSource(error)
            })?;
            sent = self.send(&Request::Piece(hex::encode(&piece[..read])));
            if read == 0 {
                break;
            }
        }
        answer.receive(sent, take)
    }

    /// Asks what has no end of its own, and hands each line to `take` until `enough`, which is asked now and then. What `take`
    /// is too slow for waits at the daemon.
    ///
    /// # Errors
    /// The connection broke, or what came is no answer.
    pub fn follow<E: From<ClientError>>(
        &mut self,
        request: &Request,
        enough: impl Fn() -> bool,
        mut take: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<AnswerEnd, E> {
        self.send(request).map_err(ClientError::from)?;
        self.stream.set_read_timeout(Some(PULSE)).map_err(ClientError::from)?;
        let mut stream = BufReader::with_capacity(BUFFER, &self.stream);
        let mut line = Vec::new();
        loop {
            match read_answer(&mut stream, &mut line) {
                Ok(Some(Answer::End(end))) => return Ok(end),
                Ok(Some(answer)) => take(answer)?,
                Ok(None) => return Err(ClientError::Lost.into()),
                Err(AnswerReadError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(ClientError::from(error).into()),
            }
            if enough() {
                return Ok(AnswerEnd::new(true));
            }
        }
    }

    /// The lines that come from now on, up to the end of an answer.
    fn answer(&self) -> Result<Lines, ClientError> {
        let reader = self.stream.try_clone()?;
        let (lines, coming) = mpsc::channel();
        let reading = thread::Builder::new().name("mmb-answer".to_owned());
        reading.spawn(move || drain(reader, &lines))?;
        Ok(Lines { coming, first: Vec::new() })
    }

    fn send(&self, request: &Request) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(BUFFER, &self.stream);
        request::encode(request, &mut out)?;
        out.flush()
    }
}

/// Lines that came together.
type Together = Vec<Result<Answer, ClientError>>;

/// The lines of an answer, which a thread reads as they come.
struct Lines {
    coming: mpsc::Receiver<Together>,
    /// What was taken out already.
    first: Together,
}

impl Lines {
    /// Whether something has come.
    fn has_begun(&mut self) -> bool {
        self.first.extend(self.coming.try_iter().flatten());
        !self.first.is_empty()
    }

    /// Hands each line to `take` until the end, which is returned. `sent` is what came of asking.
    fn receive<E: From<ClientError>>(
        self,
        sent: io::Result<()>,
        mut take: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<AnswerEnd, E> {
        for line in self.first.into_iter().chain(self.coming.into_iter().flatten()) {
            match line? {
                Answer::End(end) => return Ok(end),
                other => take(other)?,
            }
        }
        Err(sent.err().map_or(ClientError::Lost, ClientError::from).into())
    }
}

/// Reads lines until the answer's end, the connection's, or that of the one who listens. Lines that came together are
/// handed on together.
fn drain(stream: UnixStream, lines: &mpsc::Sender<Together>) {
    let mut stream = BufReader::with_capacity(BUFFER, stream);
    let (mut together, mut line) = (Vec::new(), Vec::new());
    loop {
        let answer = match read_answer(&mut stream, &mut line) {
            Ok(None) => {
                // Nobody is left to tell if this fails.
                let _ = lines.send(together);
                return;
            }
            Ok(Some(answer)) => Ok(answer),
            Err(error) => Err(ClientError::from(error)),
        };
        let last = matches!(answer, Ok(Answer::End(_)) | Err(_));
        together.push(answer);
        let waits = last || !stream.buffer().contains(&b'\n');
        if waits && lines.send(std::mem::take(&mut together)).is_err() || last {
            return;
        }
    }
}

/// Reads until the buffer is full or there is no more.
fn read_full(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match from.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

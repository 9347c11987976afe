//! The client's end of a connection: one request at a time, and its answer as it arrives.

use crate::answer::{Answer, AnswerEnd};
use crate::framing::{AnswerReadError, read_answer};
use crate::request::{self, Request};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The size in bytes of the buffers in front of the socket.
const BUFFER_BYTES: usize = 64 << 10;

/// The bytes of a state in one piece.
const PIECE_BYTES: usize = 24 << 10;

/// The interval at which [`Client::follow`] checks for an interruption.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The reason why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens on the socket.
    #[error("no mmb answers at {}", .path.display())]
    NoDaemon {
        /// The path of the socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The user has no permission to connect.
    #[error("{}: no permission to connect to this mmb: be root, or a member of the socket's group", .0.display())]
    NotAllowed(PathBuf),
    /// The daemon closed the connection before the end of its answer.
    #[error(
        "mmb closed the connection before the end of its answer; the request may or may not have been executed"
    )]
    Lost,
    /// A received line is no answer.
    #[error("the answer is not from an mmb of this version: {0}")]
    Garbled(String),
    /// The state to be sent cannot be read.
    #[error("the state cannot be read to its end")]
    StateSource(#[source] io::Error),
    /// The system refused.
    #[error("the connection to mmb failed")]
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
    /// No daemon listens, or the user has no permission to connect.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NotAllowed(path.to_owned()),
            _ => ClientError::NoDaemon { path: path.to_owned(), error },
        })?;
        Ok(Client::from_stream(stream))
    }

    /// Uses a stream whose other end is the daemon's.
    pub fn from_stream(stream: UnixStream) -> Client {
        Client { stream }
    }

    /// Sets a timeout: requests fail if the daemon sends nothing for so long. There is none by default, since a large policy takes time.
    ///
    /// # Errors
    /// The duration is zero.
    pub fn with_timeout(self, timeout: Duration) -> Result<Client, ClientError> {
        self.stream.set_read_timeout(Some(timeout))?;
        self.stream.set_write_timeout(Some(timeout))?;
        Ok(self)
    }

    /// Sends a request, passes each line of the answer to `take`, and returns the end. A slow `take` (for example, a pager that is not read)
    /// does not delay the daemon: the lines that arrive meanwhile are kept in memory.
    ///
    /// # Errors
    /// The connection failed, or a line is no answer.
    pub fn ask<E: From<ClientError>>(
        &mut self,
        request: &Request,
        take: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<AnswerEnd, E> {
        // The daemon may refuse a request before it has read all of it. Its answer then says more than the failure to write.
        let sent = self.send(request);
        self.answer()?.receive(sent, take)
    }

    /// Sends a state of connections, as pieces, passes each line of the answer to `take`, and returns the end. With `verbose`, each connection that was left out has a line. Stops sending when the daemon
    /// refuses the state, since a state may have no end.
    ///
    /// # Errors
    /// The state cannot be read, the connection failed, or a line is no answer.
    pub fn load<E: From<ClientError>>(
        &mut self,
        state: &mut impl Read,
        verbose: bool,
        take: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<AnswerEnd, E> {
        let mut answer = self.answer()?;
        let mut sent = self.send(&Request::LoadState { verbose });
        let (mut piece, mut line) = (vec![0; PIECE_BYTES], Vec::new());
        while sent.is_ok() {
            let read = if answer.has_begun() { Ok(0) } else { read_full(state, &mut piece) };
            let read = read.map_err(|error| {
                // Without a last piece the daemon discards the state.
                let _ = self.stream.shutdown(Shutdown::Both);
                ClientError::StateSource(error)
            })?;
            line.clear();
            request::push_piece(&piece[..read], &mut line);
            sent = (&self.stream).write_all(&line);
            if read == 0 {
                break;
            }
        }
        answer.receive(sent, take)
    }

    /// Sends a request whose answer has no end of its own, and passes each line to `take` until `is_interrupted` returns true. Lines that
    /// `take` is too slow for wait at the daemon.
    ///
    /// # Errors
    /// The connection failed, or a line is no answer.
    pub fn follow<E: From<ClientError>>(
        &mut self,
        request: &Request,
        is_interrupted: impl Fn() -> bool,
        mut take: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<AnswerEnd, E> {
        self.send(request).map_err(ClientError::from)?;
        self.stream.set_read_timeout(Some(CHECK_INTERVAL)).map_err(ClientError::from)?;
        let mut stream = BufReader::with_capacity(BUFFER_BYTES, &self.stream);
        let mut line = Vec::new();
        loop {
            match read_answer(&mut stream, &mut line) {
                Ok(Some(Answer::End(end))) => return Ok(end),
                Ok(Some(answer)) => take(answer)?,
                Ok(None) => return Err(ClientError::Lost.into()),
                Err(AnswerReadError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(ClientError::from(error).into()),
            }
            if is_interrupted() {
                return Ok(AnswerEnd::new(true));
            }
        }
    }

    /// Starts to receive the lines of an answer.
    fn answer(&self) -> Result<AnswerLines, ClientError> {
        let reader = self.stream.try_clone()?;
        let (lines, received) = mpsc::channel();
        let reader_thread = thread::Builder::new().name("mmb-answer".to_owned());
        reader_thread.spawn(move || receive_lines(reader, &lines))?;
        Ok(AnswerLines { received, first: Vec::new() })
    }

    fn send(&self, request: &Request) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, &self.stream);
        request::encode(request, &mut out)?;
        out.flush()
    }
}

/// Lines that arrived together.
type LineBatch = Vec<Result<Answer, ClientError>>;

/// The lines of an answer, which a thread reads as they arrive.
struct AnswerLines {
    received: mpsc::Receiver<LineBatch>,
    /// Lines that were taken from `received`.
    first: LineBatch,
}

impl AnswerLines {
    /// Returns whether a line has arrived.
    fn has_begun(&mut self) -> bool {
        self.first.extend(self.received.try_iter().flatten());
        !self.first.is_empty()
    }

    /// Passes each line to `take` and returns the end. `sent` is the result of sending the request.
    fn receive<E: From<ClientError>>(
        self,
        sent: io::Result<()>,
        mut take: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<AnswerEnd, E> {
        for line in self.first.into_iter().chain(self.received.into_iter().flatten()) {
            match line? {
                Answer::End(end) => return Ok(end),
                other => take(other)?,
            }
        }
        Err(sent.err().map_or(ClientError::Lost, ClientError::from).into())
    }
}

/// Reads lines until the end of the answer, or until the connection or the receiver has gone. Lines that arrived together are sent on
/// together.
fn receive_lines(stream: UnixStream, lines: &mpsc::Sender<LineBatch>) {
    let mut stream = BufReader::with_capacity(BUFFER_BYTES, stream);
    let (mut batch, mut line) = (Vec::new(), Vec::new());
    loop {
        let answer = match read_answer(&mut stream, &mut line) {
            Ok(None) => {
                // If this fails, the receiver has gone.
                let _ = lines.send(batch);
                return;
            }
            Ok(Some(answer)) => Ok(answer),
            Err(error) => Err(ClientError::from(error)),
        };
        let last = matches!(answer, Ok(Answer::End(_)) | Err(_));
        batch.push(answer);
        let is_complete = last || !stream.buffer().contains(&b'\n');
        if is_complete && lines.send(std::mem::take(&mut batch)).is_err() || last {
            return;
        }
    }
}

/// Reads until the buffer is full or the input ends.
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

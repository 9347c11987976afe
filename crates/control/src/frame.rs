//! Requests from a client's bytes, and answers to it, within the server's [`Limits`].
//!
//! [`Requests`] reads lines: it waits for a request's first byte as long as it takes, and for the rest of it
//! only as long as [`Limits::time_for`] allows. [`Paced`] writes, and gives up on a client that reads too
//! slowly. Both use the timeouts of the socket, so each must be the only one to read or to write it.

use crate::limits::{Budget, Limits, Share};
use crate::memory::{self, Short};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// The socket refuses a timeout of zero.
const SHORTEST: Duration = Duration::from_millis(1);

/// Why there is no further request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the request is longer than {0} bytes")]
    TooLong(usize),
    #[error("other clients' requests take all the memory that there is for them; try again")]
    Busy,
    #[error("no request came within {} s of connecting", .0.as_secs_f32())]
    Silent(Duration),
    #[error(transparent)]
    Memory(#[from] Short),
    #[error("the rest of the request did not come in time")]
    Late,
    #[error("the request ends in the middle of its line")]
    Half,
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// One request's bytes, which count against the budget until dropped.
pub(crate) struct Line {
    pub(crate) bytes: Vec<u8>,
    /// Held for as long as the request is worked on.
    pub(crate) share: Share,
}

/// Reads requests from a client.
pub(crate) struct Requests<'a> {
    stream: &'a UnixStream,
    limits: &'a Limits,
    budget: &'a Budget,
    chunk: Box<[u8]>,
    /// What of `chunk` is read but not used: a client may send ahead.
    start: usize,
    end: usize,
}

impl<'a> Requests<'a> {
    pub(crate) fn new(stream: &'a UnixStream, limits: &'a Limits, budget: &'a Budget) -> Requests<'a> {
        Requests { stream, limits, budget, chunk: vec![0; CHUNK].into_boxed_slice(), start: 0, end: 0 }
    }

    /// The next request, which must begin to come within `patience`, where there is an end to that; `None` where the client has
    /// ended. `begun` is called when its first byte is there.
    pub(crate) fn next(
        &mut self,
        patience: Option<Duration>,
        begun: impl FnOnce(),
    ) -> Result<Option<Line>, FrameError> {
        if patience.is_some_and(|patience| patience.is_zero()) {
            return Err(FrameError::Silent(self.limits.greeting));
        }
        match self.await_more(patience) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if timed_out(&error) => return Err(FrameError::Silent(self.limits.greeting)),
            Err(error) => return Err(error.into()),
        }
        begun();
        self.line().map(Some)
    }

    /// The next request, which must begin to come soon.
    pub(crate) fn next_soon(&mut self) -> Result<Line, FrameError> {
        match self.await_more(Some(self.limits.grace)) {
            Ok(true) => self.line(),
            Ok(false) => Err(FrameError::Half),
            Err(error) if timed_out(&error) => Err(FrameError::Late),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until there is something to read; `false`: the client has ended.
    fn await_more(&mut self, patience: Option<Duration>) -> std::io::Result<bool> {
        if self.start < self.end {
            return Ok(true);
        }
        self.stream.set_read_timeout(patience.map(|patience| patience.max(SHORTEST)))?;
        Ok(self.fill()? > 0)
    }

    /// Whether the client has sent more, or has ended.
    pub(crate) fn is_more(&self) -> bool {
        let mut fds = [PollFd::new(self.stream, PollFlags::IN)];
        // A socket that cannot be asked is none that is listened to.
        self.start < self.end
            || !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0) | Err(Errno::INTR))
    }

    /// The request that has begun to come.
    fn line(&mut self) -> Result<Line, FrameError> {
        let started = Instant::now();
        let mut line = Line { bytes: Vec::new(), share: self.budget.share() };
        loop {
            let fresh = &self.chunk[self.start..self.end];
            let newline = fresh.iter().position(|&byte| byte == b'\n');
            let piece = &fresh[..newline.unwrap_or(fresh.len())];
            self.make_room(&mut line, piece.len())?;
            line.bytes.extend_from_slice(piece);
            self.start += piece.len() + usize::from(newline.is_some());
            if newline.is_some() {
                return Ok(line);
            }
            let left = self.limits.time_for(line.bytes.len()).checked_sub(started.elapsed());
            let left = left.ok_or(FrameError::Late)?;
            self.stream.set_read_timeout(Some(left.max(SHORTEST)))?;
            match self.fill() {
                Ok(0) => return Err(FrameError::Half),
                Ok(_) => {}
                Err(error) if timed_out(&error) => return Err(FrameError::Late),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether one more request has come as a whole.
    pub(crate) fn has_next(&self) -> bool {
        self.chunk[self.start..self.end].contains(&b'\n')
    }

    /// Grows the line for `more` bytes, as far as the limits go.
    fn make_room(&self, line: &mut Line, more: usize) -> Result<(), FrameError> {
        let wanted = line.bytes.len() + more;
        if wanted > self.limits.request_bytes {
            return Err(FrameError::TooLong(self.limits.request_bytes));
        }
        if wanted > line.bytes.capacity() {
            let capacity = (line.bytes.capacity() * 3 / 2).clamp(wanted, self.limits.request_bytes);
            if capacity > self.limits.small_request_bytes && !line.share.grow_to(capacity) {
                return Err(FrameError::Busy);
            }
            // What a request becomes takes more than itself, and where there is too little for that the process would end.
            if capacity > self.limits.small_request_bytes
                && let Some(available) = memory::available()
            {
                available.check(wanted as u64 * memory::TEXT_BYTES, 0)?;
            }
            line.bytes.reserve_exact(capacity - line.bytes.len());
        }
        Ok(())
    }

    fn fill(&mut self) -> std::io::Result<usize> {
        let read = loop {
            match self.stream.read(&mut self.chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        (self.start, self.end) = (0, read);
        Ok(read)
    }
}

/// Writes an answer to a client that must keep reading it.
pub(crate) struct Paced<'a> {
    stream: &'a UnixStream,
    limits: &'a Limits,
    written: usize,
    /// Time spent waiting for the client, not for the answer.
    waited: Duration,
}

impl<'a> Paced<'a> {
    pub(crate) fn new(stream: &'a UnixStream, limits: &'a Limits) -> Paced<'a> {
        Paced { stream, limits, written: 0, waited: Duration::ZERO }
    }
}

impl Write for Paced<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let late = || std::io::Error::new(ErrorKind::TimedOut, "the client does not read its answer");
        let left = self.limits.time_for(self.written).checked_sub(self.waited).ok_or_else(late)?;
        self.stream.set_write_timeout(Some(left.max(SHORTEST)))?;
        let started = Instant::now();
        let result = self.stream.write(bytes);
        self.waited += started.elapsed();
        match result {
            Ok(written) => {
                self.written += written;
                Ok(written)
            }
            Err(error) if timed_out(&error) => Err(late()),
            Err(error) => Err(error),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn timed_out(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

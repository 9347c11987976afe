//! Reads requests from a client and writes answers to it, within the server's [`ServerLimits`].
//!
//! [`RequestReader`] reads lines: it waits for the first byte of a request without limit, unless the caller sets one, and for the rest as
//! long as [`ServerLimits::time_for`] allows. [`AnswerWriter`] writes, and fails if the client reads too slowly. Both set timeouts of the
//! socket, so each must be its only reader or writer.

use crate::limits::{Budget, BudgetShare, ServerLimits};
use crate::memory::{self, MemoryNeed, MemoryShortage};
use memchr::memchr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// The socket refuses a timeout of zero.
const SHORTEST: Duration = Duration::from_millis(1);

/// The reason why there is no further request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the request is longer than {0} bytes")]
    TooLong(usize),
    #[error("other clients' requests take all the memory for requests; try again")]
    Busy,
    #[error("no request came within {} s of connecting", .0.as_secs_f32())]
    Silent(Duration),
    #[error(transparent)]
    Memory(#[from] MemoryShortage),
    #[error("the rest of the request did not come in time")]
    Late,
    #[error("the request ends in the middle of its line")]
    Half,
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// The bytes of one request, which are counted in the budget until the share is dropped.
pub(crate) struct RequestLine {
    pub(crate) bytes: Vec<u8>,
    /// Held until the request was executed.
    pub(crate) share: BudgetShare,
}

/// Reads requests from a client.
pub(crate) struct RequestReader<'a> {
    stream: &'a UnixStream,
    limits: &'a ServerLimits,
    budget: &'a Budget,
    chunk: Box<[u8]>,
    /// The bytes of `chunk` from `start` to `end` are not used yet: a client may send ahead.
    start: usize,
    end: usize,
}

impl<'a> RequestReader<'a> {
    pub(crate) fn new(
        stream: &'a UnixStream,
        limits: &'a ServerLimits,
        budget: &'a Budget,
    ) -> RequestReader<'a> {
        RequestReader { stream, limits, budget, chunk: vec![0; CHUNK].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Reads the next request, whose first byte must arrive within `timeout`, if there is one; calls `begun` then. `None`: the client has
    /// disconnected.
    pub(crate) fn next(
        &mut self,
        timeout: Option<Duration>,
        begun: impl FnOnce(),
    ) -> Result<Option<RequestLine>, FrameError> {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(FrameError::Silent(self.limits.greeting));
        }
        match self.await_input(timeout) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if timed_out(&error) => return Err(FrameError::Silent(self.limits.greeting)),
            Err(error) => return Err(error.into()),
        }
        begun();
        self.line().map(Some)
    }

    /// Reads the next request, whose first byte must arrive soon.
    pub(crate) fn next_soon(&mut self) -> Result<RequestLine, FrameError> {
        match self.await_input(Some(self.limits.grace)) {
            Ok(true) => self.line(),
            Ok(false) => Err(FrameError::Half),
            Err(error) if timed_out(&error) => Err(FrameError::Late),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for input; `false`: the client has disconnected.
    fn await_input(&mut self, timeout: Option<Duration>) -> std::io::Result<bool> {
        if self.start < self.end {
            return Ok(true);
        }
        self.stream.set_read_timeout(timeout.map(|timeout| timeout.max(SHORTEST)))?;
        Ok(self.fill()? > 0)
    }

    /// Returns whether the client has sent more, or has disconnected.
    pub(crate) fn has_input(&self) -> bool {
        let mut fds = [PollFd::new(self.stream, PollFlags::IN)];
        // A socket that cannot be polled counts as disconnected.
        self.start < self.end
            || !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0) | Err(Errno::INTR))
    }

    /// Reads the rest of a request whose first bytes have arrived.
    fn line(&mut self) -> Result<RequestLine, FrameError> {
        let started = Instant::now();
        let mut line = RequestLine { bytes: Vec::new(), share: self.budget.share() };
        loop {
            let fresh = &self.chunk[self.start..self.end];
            let newline = memchr(b'\n', fresh);
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

    /// Returns whether one more request has arrived completely.
    pub(crate) fn has_next(&self) -> bool {
        memchr(b'\n', &self.chunk[self.start..self.end]).is_some()
    }

    /// Grows the line by `more` bytes, within the limits.
    fn make_room(&self, line: &mut RequestLine, more: usize) -> Result<(), FrameError> {
        let wanted = line.bytes.len() + more;
        if wanted > self.limits.request_bytes {
            return Err(FrameError::TooLong(self.limits.request_bytes));
        }
        if wanted > line.bytes.capacity() {
            let capacity = (line.bytes.capacity() * 3 / 2).clamp(wanted, self.limits.request_bytes);
            if capacity > self.limits.small_request_bytes && !line.share.grow_to(capacity) {
                return Err(FrameError::Busy);
            }
            // The execution of a request takes more memory than its text, and a lack of it would end the process.
            if capacity > self.limits.small_request_bytes
                && let Some(available) = memory::available()
            {
                available.check(MemoryNeed::of(wanted as u64 * memory::TEXT_BYTES), 0)?;
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

/// Returns whether the client has closed its end of the connection: it neither sends nor reads any more.
pub(crate) fn is_disconnected(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

/// Writes an answer to a client, which must read it fast enough.
pub(crate) struct AnswerWriter<'a> {
    stream: &'a UnixStream,
    limits: &'a ServerLimits,
    written: usize,
    /// The time spent waiting for the client.
    waited: Duration,
}

impl<'a> AnswerWriter<'a> {
    pub(crate) fn new(stream: &'a UnixStream, limits: &'a ServerLimits) -> AnswerWriter<'a> {
        AnswerWriter { stream, limits, written: 0, waited: Duration::ZERO }
    }
}

impl Write for AnswerWriter<'_> {
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

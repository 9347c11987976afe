//! The session of one client, on a thread of its own: requests are read, executed and answered in the order of their arrival. It ends when
//! the client disconnects or exceeds a limit. A client can end no session but its own.

use crate::author::Author;
use crate::commit_queue::CommitQueue;
use crate::daemon::Daemon;
use crate::frame::{AnswerWriter, FrameError, RequestLine, RequestReader, is_disconnected};
use crate::limits::{BudgetPools, BudgetShare, ServerLimits};
use crate::respond::{FollowingRequests, RequestContext, refuse, respond};
use mmb_compile::Applicant;
use mmb_protocol::request::{self, DecodeError, Request};
use std::io::{self, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Bytes of an answer that are collected before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// The most requests of a client that are executed together. A change keeps the policies before and after it until its answer is written;
/// they differ by a chunk of rules, some 50 KB.
const BATCH_SIZE: usize = 64;

/// The environment of a session.
pub(crate) struct SessionContext<'a> {
    pub(crate) daemon: &'a Mutex<Daemon>,
    pub(crate) queue: &'a CommitQueue,
    pub(crate) limits: &'a ServerLimits,
    /// The client.
    pub(crate) author: Author,
    /// The applicant for which the compiler of patterns takes the client.
    pub(crate) applicant: Applicant,
    /// The budgets of the client's group.
    pub(crate) pools: &'a BudgetPools,
    /// The server stops.
    pub(crate) stopping: &'a AtomicBool,
}

/// Serves a client until its session ends. `set_idle` is called when the client becomes idle or active.
pub(crate) fn serve(stream: &UnixStream, context: &SessionContext<'_>, set_idle: impl Fn(bool)) {
    let mut requests = RequestReader::new(stream, context.limits, &context.pools.pending);
    let connected = Instant::now();
    let mut is_known = false;
    loop {
        set_idle(true);
        // A client that has not sent a valid request yet must send one soon.
        let timeout = (!is_known).then(|| context.limits.greeting.saturating_sub(connected.elapsed()));
        let (mut batch, mut shares, mut end) = (Vec::new(), Vec::new(), None);
        // Requests that the client sent ahead are executed together. Those after the beginning of a state are its pieces.
        while end.is_none()
            && batch.len() < BATCH_SIZE
            && (batch.is_empty() || requests.has_next())
            && !matches!(batch.last(), Some(Ok(Request::LoadState { .. })))
        {
            match requests.next(timeout, || set_idle(false)) {
                Ok(Some(RequestLine { bytes, share })) => {
                    // From here on only the decoded request is kept; its share is returned after it was answered.
                    shares.push(share);
                    batch.push(request::decode(&bytes));
                    is_known |= batch.last().is_some_and(Result::is_ok);
                }
                Ok(None) => end = Some(None),
                Err(error) => end = Some(Some(error)),
            }
        }
        let mut following = SessionRequests { requests: &mut requests, share: None, error: None };
        let is_gone = || context.stopping.load(Ordering::SeqCst) || is_disconnected(stream);
        let request_context = RequestContext {
            daemon: context.daemon,
            queue: context.queue,
            author: context.author,
            applicant: context.applicant,
            is_gone: &is_gone,
            monitors: &context.pools.monitors,
            taps: &context.pools.taps,
            differences: &context.pools.differences,
        };
        let answered =
            write_answer(stream, context, |out| respond(&request_context, batch, &mut following, out));
        let error = following.error.take();
        if answered.is_err() {
            return;
        }
        match end.or(error.map(Some)) {
            None => {}
            Some(None | Some(FrameError::Io(_))) => return,
            Some(Some(error)) => {
                // The client may have disconnected; the session ends either way.
                let _ = write_answer(stream, context, |out| refuse(error.to_string(), out));
                return;
            }
        }
    }
}

/// The requests that a client sends after those that are being answered.
struct SessionRequests<'r, 'a> {
    requests: &'r mut RequestReader<'a>,
    /// The share of the last request, which is executed until the next one is read.
    share: Option<BudgetShare>,
    error: Option<FrameError>,
}

impl FollowingRequests for SessionRequests<'_, '_> {
    fn has_arrived(&self) -> bool {
        self.requests.has_input()
    }

    fn next(&mut self) -> Option<Result<Request, DecodeError>> {
        match self.requests.next_soon() {
            Ok(RequestLine { bytes, share }) => {
                self.share = Some(share);
                Some(request::decode(&bytes))
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }
}

fn write_answer(
    stream: &UnixStream,
    context: &SessionContext<'_>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, AnswerWriter::new(stream, context.limits));
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) => {
            // The drop of the writer would try again to write to the client.
            drop(out.into_parts());
            Err(error)
        }
    }
}

//! One client's conversation, on a thread of its own: requests are read, carried out and answered in the
//! order they come. It ends when the client does, or when the client breaks a bound; nothing that a client
//! sends ends anything else.

use crate::commit_queue::CommitQueue;
use crate::daemon::Daemon;
use crate::frame::{AnswerWriter, FrameError, RequestLine, RequestReader};
use crate::limits::{BudgetPools, BudgetShare, ServerLimits};
use crate::respond::{FollowingRequests, RequestContext, refuse, respond};
use mmb_protocol::request::{self, DecodeError, Request};
use std::io::{self, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Instant;

/// Bytes of an answer that are collected before they are written.
const BUFFER: usize = 64 << 10;

/// Requests of a client that are worked on together. Until its answer is written, a change holds the policies before and
/// after it, which differ by a chunk of rules: some 50 KB for each.
const MOST_TOGETHER: usize = 64;

/// What every conversation needs.
pub(crate) struct SessionContext<'a> {
    pub(crate) daemon: &'a Mutex<Daemon>,
    pub(crate) queue: &'a CommitQueue,
    pub(crate) limits: &'a ServerLimits,
    /// What it and clients like it draw on.
    pub(crate) pools: &'a BudgetPools,
}

/// Talks to a client until it goes. `idle` is told whenever the client begins and ends to ask nothing.
pub(crate) fn serve(stream: &UnixStream, context: &SessionContext<'_>, idle: impl Fn(bool)) {
    let mut requests = RequestReader::new(stream, context.limits, &context.pools.pending);
    let connected = Instant::now();
    let mut greeted = false;
    loop {
        idle(true);
        // Whoever has not shown yet that it knows the protocol does not keep a place for long.
        let patience = (!greeted).then(|| context.limits.greeting.saturating_sub(connected.elapsed()));
        let (mut asked, mut shares, mut end) = (Vec::new(), Vec::new(), None);
        // What the client sent ahead is worked on together. What follows the beginning of a state belongs to it.
        while end.is_none()
            && asked.len() < MOST_TOGETHER
            && (asked.is_empty() || requests.has_next())
            && !matches!(asked.last(), Some(Ok(Request::LoadState)))
        {
            match requests.next(patience, || idle(false)) {
                Ok(Some(RequestLine { bytes, share })) => {
                    // The text is kept only in one form from here on, for as long as the request is worked on.
                    shares.push(share);
                    asked.push(request::decode(&bytes));
                    greeted |= asked.last().is_some_and(Result::is_ok);
                }
                Ok(None) => end = Some(None),
                Err(error) => end = Some(Some(error)),
            }
        }
        let mut rest = SessionRequests { requests: &mut requests, share: None, broken: None };
        let room = RequestContext {
            daemon: context.daemon,
            queue: context.queue,
            monitors: &context.pools.monitors,
        };
        let answered = write_answer(stream, context, |out| respond(&room, asked, &mut rest, out));
        let broken = rest.broken.take();
        if answered.is_err() {
            return;
        }
        match end.or(broken.map(Some)) {
            None => {}
            Some(None | Some(FrameError::Io(_))) => return,
            Some(Some(error)) => {
                // It may be gone, and it is let go either way.
                let _ = write_answer(stream, context, |out| refuse(error.to_string(), out));
                return;
            }
        }
    }
}

/// What a client sends behind the requests that are being answered.
struct SessionRequests<'r, 'a> {
    requests: &'r mut RequestReader<'a>,
    /// That of the last one, which is worked on until the next is asked for.
    share: Option<BudgetShare>,
    broken: Option<FrameError>,
}

impl FollowingRequests for SessionRequests<'_, '_> {
    fn is_there(&self) -> bool {
        self.requests.is_more()
    }

    fn next(&mut self) -> Option<Result<Request, DecodeError>> {
        match self.requests.next_soon() {
            Ok(RequestLine { bytes, share }) => {
                self.share = Some(share);
                Some(request::decode(&bytes))
            }
            Err(error) => {
                self.broken = Some(error);
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
    let mut out = BufWriter::with_capacity(BUFFER, AnswerWriter::new(stream, context.limits));
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) => {
            // Without this, dropping the writer would try again to write to a client that is given up.
            drop(out.into_parts());
            Err(error)
        }
    }
}

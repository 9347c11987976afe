//! One client's conversation, on a thread of its own: requests are read, carried out and answered in the
//! order they come. It ends when the client does, or when the client breaks a bound; nothing that a client
//! sends ends anything else.

use crate::daemon::Daemon;
use crate::frame::{FrameError, Paced, Requests};
use crate::limits::{Budget, Limits};
use crate::protocol;
use crate::respond::{refuse, respond};
use std::io::{self, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// Bytes of an answer that are collected before they are written.
const BUFFER: usize = 64 << 10;

/// What every conversation needs.
pub(crate) struct Context<'a> {
    pub(crate) daemon: &'a Mutex<Daemon>,
    pub(crate) limits: &'a Limits,
    pub(crate) budget: &'a Budget,
}

/// Talks to a client until it goes. `idle` is told whenever the client begins and ends to ask nothing.
pub(crate) fn converse(stream: &UnixStream, context: &Context<'_>, idle: impl Fn(bool)) {
    let mut requests = Requests::new(stream, context.limits, context.budget);
    loop {
        idle(true);
        let line = match requests.next(|| idle(false)) {
            Ok(Some(line)) => line,
            Ok(None) | Err(FrameError::Io(_)) => return,
            Err(error) => {
                // It may be gone, and it is let go either way.
                let _ = write_answer(stream, context, |out| refuse(error.to_string(), out));
                return;
            }
        };
        let answered = write_answer(stream, context, |out| {
            let request = protocol::decode(&line.bytes);
            // The text is kept only in one form, for as long as the request is worked on.
            let share = line.share;
            drop(line.bytes);
            let answered = match request {
                Ok(request) => guarded(context.daemon, request, out),
                Err(error) => refuse(error.to_string(), out),
            };
            drop(share);
            answered
        });
        if answered.is_err() {
            return;
        }
    }
}

fn write_answer(
    stream: &UnixStream,
    context: &Context<'_>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, Paced::new(stream, context.limits));
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) => {
            // Without this, dropping the writer would try again to write to a client that is given up.
            drop(out.into_parts());
            Err(error)
        }
    }
}

/// Carries a request out. A fault of ours is an answer to this client and no more than that.
fn guarded(daemon: &Mutex<Daemon>, request: protocol::Request, out: &mut dyn Write) -> io::Result<()> {
    match catch_unwind(AssertUnwindSafe(|| respond(daemon, request, &mut *out))) {
        Ok(answered) => answered,
        Err(_) => refuse("an internal error; the daemon's standard error tells more".to_owned(), out),
    }
}

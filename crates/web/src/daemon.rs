//! Requests to the daemon, over a connection of its own each, on threads that may wait.

use crate::problem::Problem;
use mmb_protocol::answer::{Answer, AnswerEnd, ChangeCount};
use mmb_protocol::{Client, ClientError, Request};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Requests to the daemon at once. It gives a user 64 connections.
const MAX_REQUESTS: usize = 8;

/// A request fails if the daemon sends nothing for so long: a policy of a million rules takes less.
const PATIENCE: Duration = Duration::from_secs(120);

/// The daemon behind a control socket.
#[derive(Debug)]
pub(crate) struct DaemonSocket {
    path: PathBuf,
    free: Semaphore,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply<T = Vec<Answer>> {
    /// What the lines were made into: the lines themselves, without errors and the end, if the caller does not say.
    pub(crate) lines: T,
    /// What was changed, if the request had a change.
    pub(crate) change: Option<ChangeCount>,
    /// There are more lines than were asked for.
    pub(crate) is_cut: bool,
}

/// Why an answer was not read to its end.
enum Stop {
    Client(ClientError),
    Enough,
}

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Stop {
        Stop::Client(error)
    }
}

impl DaemonSocket {
    pub(crate) fn new(path: PathBuf) -> DaemonSocket {
        DaemonSocket { path, free: Semaphore::new(MAX_REQUESTS) }
    }

    /// Asks, and returns the whole answer.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the request.
    pub(crate) async fn ask(&self, request: Request) -> Result<Reply, Problem> {
        self.ask_for(request, usize::MAX).await
    }

    /// Runs commands.
    ///
    /// # Errors
    /// As [`DaemonSocket::ask`].
    pub(crate) async fn run(&self, commands: &[&str]) -> Result<Reply, Problem> {
        self.ask(Request::Run(commands.iter().map(|command| (*command).to_owned()).collect())).await
    }

    /// Asks, and returns the first `max` lines of the answer. The daemon stops when the connection closes.
    ///
    /// # Errors
    /// As [`DaemonSocket::ask`].
    pub(crate) async fn ask_for(&self, request: Request, max: usize) -> Result<Reply, Problem> {
        self.ask_into(request, Vec::new(), move |lines, line| {
            let has_room = lines.len() < max;
            if has_room {
                lines.push(line);
            }
            has_room
        })
        .await
    }

    /// Asks, and has `take` put each line into `lines`, until it returns false. The daemon stops when the connection closes.
    ///
    /// # Errors
    /// As [`DaemonSocket::ask`].
    pub(crate) async fn ask_into<T: Send + 'static>(
        &self,
        request: Request,
        lines: T,
        take: impl Fn(&mut T, Answer) -> bool + Send + 'static,
    ) -> Result<Reply<T>, Problem> {
        let path = self.path.clone();
        let permit = self.free.acquire().await.map_err(|_| Problem::internal())?;
        let reply = tokio::task::spawn_blocking(move || exchange(&path, &request, lines, take)).await;
        drop(permit);
        reply.unwrap_or_else(|_| Err(Problem::internal()))
    }
}

fn exchange<T>(
    path: &Path,
    request: &Request,
    mut lines: T,
    take: impl Fn(&mut T, Answer) -> bool,
) -> Result<Reply<T>, Problem> {
    let mut client = Client::connect(path)?.with_timeout(PATIENCE)?;
    let mut errors = Vec::new();
    let end = client.ask(request, |answer| {
        match answer {
            Answer::Error(error) => errors.push(error),
            other => {
                if !take(&mut lines, other) {
                    return Err(Stop::Enough);
                }
            }
        }
        Ok(())
    });
    match end {
        Ok(AnswerEnd { ok: true, change, .. }) => Ok(Reply { lines, change, is_cut: false }),
        // The changes were made, and a question after them was not answered.
        Ok(AnswerEnd { change: Some(change), .. }) => {
            for error in errors {
                take(&mut lines, Answer::Error(error));
            }
            Ok(Reply { lines, change: Some(change), is_cut: false })
        }
        Ok(_) => Err(Problem::refused(errors)),
        Err(Stop::Enough) => Ok(Reply { lines, change: None, is_cut: true }),
        Err(Stop::Client(error)) => Err(error.into()),
    }
}

//! Connections: accepting them, their number and their times, TLS.

use crate::access::Access;
use crate::listen::{Accepted, ListenError, Listener};
use crate::options::{OptionsError, WebOptions};
use crate::peer::{Peer, PeerPlaces};
use crate::router;
use crate::tls::{self, TlsError};
use crate::token::{Token, TokenError};
use axum::Router;
use axum::extract::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Connections at once; others wait in the kernel's queue.
const CONNECTIONS: usize = 128;

/// The time for the handshake of TLS, and for the head of each request.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// The time after which a connection gets no further request, and then the time for the answer that it reads.
const LIFETIME: Duration = Duration::from_secs(300);

/// The largest head of a request.
const HEAD_BYTES: usize = 32 << 10;

/// The time before another attempt to accept a connection, after the system refused.
const PAUSE: Duration = Duration::from_millis(100);

/// The reason why `mmb web` does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The options do not go together.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// There is no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system refused.
    #[error("the server cannot run")]
    Io(#[from] io::Error),
}

/// A server that listens, and answers when it is run.
pub struct WebServer {
    listener: Listener,
    router: Router,
    tls: Option<TlsAcceptor>,
    access: Arc<Access>,
    runtime: Runtime,
}

impl fmt::Debug for WebServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebServer").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl WebServer {
    /// Reads the files that the options name, and listens.
    ///
    /// # Errors
    /// The options do not go together, or something that they name cannot be used.
    pub fn bind(options: &WebOptions) -> Result<WebServer, ServeError> {
        options.check()?;
        let tls = options.tls.as_ref().map(tls::acceptor).transpose()?;
        let access = Arc::new(Access::new(options)?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(Listener::bind(&options.listen, options.group))?;
        let router = router::new(options, Arc::clone(&access));
        Ok(WebServer { listener, router, tls, access, runtime })
    }

    /// Where the page is: `http://127.0.0.1:8090/`, or `unix:PATH`.
    pub fn url(&self) -> String {
        match (&self.listener, &self.tls) {
            (Listener::Unix(..), _) => self.listener.name(),
            (Listener::Tcp(_), None) => format!("http://{}/", self.listener.name()),
            (Listener::Tcp(_), Some(_)) => format!("https://{}/", self.listener.name()),
        }
    }

    /// The token that clients need, if they need one.
    pub fn token(&self) -> Option<&Token> {
        self.access.token.as_ref()
    }

    /// Answers until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// The system gives no signals.
    pub fn run(self) -> Result<(), ServeError> {
        let (mut terminate, mut interrupt) = {
            let _entered = self.runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        self.run_until(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        Ok(())
    }

    /// Answers until `stop` is ready. Requests that are being answered are given up then.
    pub fn run_until(self, stop: impl Future<Output = ()>) {
        let WebServer { listener, router, tls, runtime, .. } = self;
        runtime.block_on(async {
            tokio::select! {
                () = stop => {}
                () = accept(&listener, &router, tls.as_ref()) => {}
            }
        });
        // A request to the daemon may still wait for its answer.
        runtime.shutdown_background();
    }
}

/// Accepts connections for ever.
async fn accept(listener: &Listener, router: &Router, tls: Option<&TlsAcceptor>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let places = PeerPlaces::default();
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let Ok(accepted) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let place = match &accepted {
            Accepted::Tcp(_, peer) => places.take(peer.ip()),
            Accepted::Unix(_) => Some(None),
        };
        // A peer that has its share already is disconnected.
        let Some(place) = place else { continue };
        let (router, tls) = (router.clone(), tls.cloned());
        tokio::spawn(async move {
            match (accepted, tls) {
                (Accepted::Tcp(stream, peer), None) => serve(stream, Peer::Address(peer), router).await,
                (Accepted::Tcp(stream, peer), Some(tls)) => {
                    if let Ok(Ok(stream)) = timeout(HEAD_TIME, tls.accept(stream)).await {
                        serve(stream, Peer::Address(peer), router).await;
                    }
                }
                (Accepted::Unix(stream), _) => {
                    let peer = stream
                        .peer_cred()
                        .map_or(Peer::Unknown, |peer| Peer::Process { pid: peer.pid(), uid: peer.uid() });
                    serve(stream, peer, router).await;
                }
            }
            drop((permit, place));
        });
    }
}

/// Answers the requests of a connection, for a bounded time.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer, router: Router) {
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // An error is of this client alone.
        _ = &mut connection => return,
        () = sleep(LIFETIME) => connection.as_mut().graceful_shutdown(),
    }
    let _ = timeout(LIFETIME, connection).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    /// What a client gets that sends these bytes and then nothing more, and after how long. Time passes when everything waits.
    fn patience(bytes: &str) -> (String, Duration) {
        answers(&[bytes]).pop().expect("one client")
    }

    /// The same of clients that come one after the other.
    fn answers(clients: &[&str]) -> Vec<(String, Duration)> {
        let directory = tempfile::tempdir().expect("a directory");
        let options = WebOptions {
            listen: crate::Listen::Unix("/x".into()),
            group: None,
            socket: directory.path().join("no-daemon"),
            tls: None,
            token_file: None,
            metrics_token_file: None,
            hosts: Vec::new(),
            read_only: false,
            metrics_rules: 0,
            explain: |_, _, _| Err("no".into()),
            check_patterns: |_, _| Ok(()),
        };
        let access = Arc::new(Access::new(&options).expect("no token"));
        let router = router::new(&options, access);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let begun = Instant::now();
            let mut waiting = Vec::new();
            for bytes in clients {
                let (mut client, server) = duplex(1 << 16);
                tokio::spawn(serve(server, Peer::Unknown, router.clone()));
                client.write_all(bytes.as_bytes()).await.expect("writes");
                waiting.push(tokio::spawn(async move {
                    let mut reply = String::new();
                    client.read_to_string(&mut reply).await.expect("reads");
                    (reply, begun.elapsed())
                }));
                // So that requests arrive in this order.
                sleep(Duration::from_millis(1)).await;
            }
            let mut answers = Vec::new();
            for answer in waiting {
                answers.push(answer.await.expect("no panic"));
            }
            answers
        })
    }

    #[test]
    fn clients_that_send_slowly_are_disconnected() {
        let seconds = |bytes: &str| patience(bytes).1.as_secs();
        assert_eq!(seconds(""), HEAD_TIME.as_secs());
        assert_eq!(seconds("GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "), HEAD_TIME.as_secs());
        let (reply, time) = patience("GET /style.css HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 200"));
        assert_eq!(time.as_secs(), HEAD_TIME.as_secs(), "idle between requests");
        let head = "POST /api/v1/commands HTTP/1.1\r\nHost: localhost\r\nX-Mmb-Request: 1\r\nContent-Type: application/json\r\n";
        let (reply, time) = patience(&format!("{head}Content-Length: 100\r\n\r\n{{"));
        assert!(reply.starts_with("HTTP/1.1 408"), "{reply}");
        assert!(time < LIFETIME, "{time:?}");
    }

    #[test]
    fn large_bodies_wait_for_each_other_and_small_ones_do_not() {
        let head = "POST /api/v1/commands HTTP/1.1\r\nHost: localhost\r\nX-Mmb-Request: 1\r\nContent-Type: application/json\r\n";
        let large = format!("{head}Content-Length: {}\r\n\r\n{{", 64 << 20);
        let complete = format!("{head}Content-Length: 70000\r\n\r\n{}", "x".repeat(70_000));
        let small = format!("{head}Content-Length: 1\r\n\r\nx");
        let answers = answers(&[&large, &large, &complete, &small]);
        let statuses: Vec<&str> = answers.iter().map(|(reply, _)| &reply[9..12]).collect();
        assert_eq!(statuses, ["408", "408", "400", "400"]);
        assert!(answers[3].1 < answers[0].1, "a small one is answered at once");
        assert!(answers[2].1 >= answers[0].1, "a larger one when there is room again");
    }
}

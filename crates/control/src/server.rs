//! The server of the control socket: accepts clients and starts a thread for each, within its [`ServerLimits`].
//!
//! [`Server::bind`] starts one thread that accepts; [`Server::adopt`] takes a client that is connected already, and a server that is
//! [`Server::unbound`] has no others. [`Server::shutdown`] (or the drop) stops accepting, removes the socket, gives answers that are being
//! written a moment to end, and then disconnects all clients. Packet threads are not involved.

use crate::author::Author;
use crate::client_slots::{ClientSlots, PeerUser};
use crate::commit_queue::CommitQueue;
use crate::daemon::Daemon;
use crate::frame::AnswerWriter;
use crate::limits::{BudgetPools, ServerLimits};
use crate::respond::refuse;
use crate::session::{SessionContext, serve};
use crate::socket::ListeningSocket;
use mmb_base::lock;
use std::fmt;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use crate::socket::BindError;

/// Stack of a client's thread in bytes.
const STACK_BYTES: usize = 1 << 20;

/// The pause after the system refused to accept (no file descriptors, no memory).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The time that answers in progress have after a shutdown has begun.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// Options of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The group whose members may connect, by name or number; `None`: the socket keeps the group that the system gives it.
    pub group: Option<String>,
    /// The limits of clients.
    pub limits: ServerLimits,
}

/// A running server. Its drop is [`Server::shutdown`].
#[derive(Debug)]
pub struct Server {
    acceptor: Acceptor,
    listener: Option<Listener>,
}

/// The socket and the thread that accepts its clients.
#[derive(Debug)]
struct Listener {
    socket: Arc<ListeningSocket>,
    acceptor: JoinHandle<()>,
}

impl Server {
    /// Listens at `path` and serves clients on threads of its own.
    ///
    /// # Errors
    /// Another daemon listens at that path, or the system refused.
    pub fn bind(path: &Path, daemon: Arc<Mutex<Daemon>>) -> Result<Server, BindError> {
        Server::bind_with(path, daemon, ServerOptions::default())
    }

    /// [`Server::bind`] with options.
    ///
    /// # Errors
    /// As [`Server::bind`], and the group does not exist.
    pub fn bind_with(
        path: &Path,
        daemon: Arc<Mutex<Daemon>>,
        options: ServerOptions,
    ) -> Result<Server, BindError> {
        let socket = Arc::new(ListeningSocket::bind(path, options.group.as_deref())?);
        let mut server = Server::unbound(daemon, options.limits);
        let acceptor = {
            let (socket, acceptor) = (Arc::clone(&socket), server.acceptor.clone());
            thread::Builder::new()
                .name("mmb-control".to_owned())
                .spawn(move || acceptor.accept(&socket.listener))
        };
        match acceptor {
            Ok(acceptor) => {
                server.listener = Some(Listener { socket, acceptor });
                Ok(server)
            }
            Err(error) => {
                socket.remove();
                Err(BindError::Io { path: path.to_owned(), what: "start the thread that accepts", error })
            }
        }
    }

    /// Creates a server without a socket, for clients of [`Server::adopt`].
    pub fn unbound(daemon: Arc<Mutex<Daemon>>, limits: ServerLimits) -> Server {
        Server { acceptor: Acceptor { daemon, clients: Arc::new(Clients::new(limits)) }, listener: None }
    }

    /// Serves the other end of a stream like a client that connected to the socket. If too many clients are connected, it is refused with an
    /// error.
    pub fn adopt(&self, stream: UnixStream) {
        self.acceptor.start_session(stream);
    }

    /// Stops listening, removes the socket and disconnects the clients.
    pub fn shutdown(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        let clients = &self.acceptor.clients;
        clients.stopping.store(true, Ordering::SeqCst);
        if let Some(Listener { socket, acceptor }) = self.listener.take() {
            socket.remove();
            // Wakes the thread that accepts, since accepting fails from now on.
            let _ = rustix::net::shutdown(&socket.listener, rustix::net::Shutdown::Both);
            let _ = acceptor.join();
        }
        clients.disconnect_all();
    }
}

/// Admits clients and starts their sessions.
#[derive(Clone)]
struct Acceptor {
    daemon: Arc<Mutex<Daemon>>,
    clients: Arc<Clients>,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("clients", &self.clients).finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Accepts clients of the socket until the server stops.
    fn accept(&self, listener: &UnixListener) {
        loop {
            let accepted = listener.accept();
            if self.clients.stopping.load(Ordering::SeqCst) {
                return;
            }
            match accepted {
                Ok((stream, _)) => self.start_session(stream),
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    /// Gives a client a slot and a thread.
    fn start_session(&self, stream: UnixStream) {
        let Some(handle) = self.clients.admit(stream) else { return };
        let daemon = Arc::clone(&self.daemon);
        let session = move || {
            // Moves the handle into the thread, so that the slot is freed at the end of the session.
            let handle = handle;
            let clients = &handle.clients;
            let Clients { queue, limits, .. } = &**clients;
            let (author, pools) = (Author::of(&handle.stream), clients.pools(handle.peer));
            let (applicant, stopping) = (handle.peer.applicant(), &clients.stopping);
            let context =
                SessionContext { daemon: &daemon, queue, limits, author, applicant, pools, stopping };
            serve(&handle.stream, &context, |idle| clients.slots().set_idle(handle.number, idle));
            drop(daemon);
        };
        // If the system refuses a thread, the drop of the closure disconnects the client.
        let _ = thread::Builder::new().name("mmb-client".to_owned()).stack_size(STACK_BYTES).spawn(session);
    }
}

/// The clients that are connected.
#[derive(Debug)]
struct Clients {
    queue: CommitQueue,
    limits: ServerLimits,
    /// The budgets of trusted clients, which others cannot use up.
    trusted: BudgetPools,
    /// The budgets of all other clients.
    others: BudgetPools,
    stopping: AtomicBool,
    slots: Mutex<ClientSlots>,
    slot_freed: Condvar,
}

/// An admitted client; its slot is freed on drop.
struct ClientHandle {
    clients: Arc<Clients>,
    number: u64,
    stream: Arc<UnixStream>,
    peer: PeerUser,
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.clients.slots().free(self.number);
        self.clients.slot_freed.notify_all();
    }
}

impl Clients {
    fn new(limits: ServerLimits) -> Clients {
        Clients {
            queue: CommitQueue::default(),
            limits,
            trusted: BudgetPools::new(&limits),
            others: BudgetPools::new(&limits),
            stopping: AtomicBool::new(false),
            slots: Mutex::default(),
            slot_freed: Condvar::new(),
        }
    }

    fn slots(&self) -> MutexGuard<'_, ClientSlots> {
        lock(&self.slots)
    }

    /// Gives a client a slot, or refuses it with an error.
    fn admit(self: &Arc<Self>, stream: UnixStream) -> Option<ClientHandle> {
        let (peer, stream) = (PeerUser::of(&stream), Arc::new(stream));
        let taken = self.slots().take(&stream, peer, &self.limits);
        match taken {
            Ok(number) => Some(ClientHandle { clients: Arc::clone(self), number, stream, peer }),
            Err(refusal) => {
                // The line fits into the buffer of a new socket, so this does not wait.
                let _ = refuse(refusal.to_string(), &mut AnswerWriter::new(&stream, &self.limits));
                None
            }
        }
    }

    fn pools(&self, peer: PeerUser) -> &BudgetPools {
        match peer {
            PeerUser::Trusted => &self.trusted,
            PeerUser::Other(_) => &self.others,
        }
    }

    /// Ends all sessions: no further request is read, and answers in progress get a moment to end.
    fn disconnect_all(&self) {
        let slots = self.slots();
        slots.shut(Shutdown::Read);
        let wait = self.slot_freed.wait_timeout_while(slots, SHUTDOWN_GRACE, |slots| !slots.is_empty());
        let (slots, _) = wait.unwrap_or_else(PoisonError::into_inner);
        slots.shut(Shutdown::Both);
        let wait = self.slot_freed.wait_timeout_while(slots, SHUTDOWN_GRACE, |slots| !slots.is_empty());
        drop(wait);
    }
}

//! The control socket's server: accepts clients and gives each a thread, within its [`ServerLimits`].
//!
//! [`Server::bind`] starts one thread that accepts; [`Server::adopt`] takes a client that is connected already, and a server
//! that is [`Server::unbound`] has no others. [`Server::shutdown`] (or dropping) stops it, removes the
//! socket, lets answers that are being written end for a moment, and then lets every client go. Packets know
//! nothing of all this.

use crate::client_slots::{ClientSlots, PeerUser};
use crate::commit_queue::CommitQueue;
use crate::daemon::Daemon;
use crate::frame::AnswerWriter;
use crate::limits::{BudgetPools, ServerLimits};
use crate::respond::refuse;
use crate::session::{SessionContext, serve};
use crate::socket::ListeningSocket;
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
const STACK: usize = 1 << 20;

/// How long the system's refusal to accept (no file descriptors, no memory) is waited out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long answers in progress may go on after a shutdown has begun.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How to serve; the default is what the daemon does unless told otherwise.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The group whose members may talk to the daemon, by name or number; `None`: the socket keeps the group
    /// that the system gives it.
    pub group: Option<String>,
    /// What clients may take.
    pub limits: ServerLimits,
}

/// The daemon as clients see it. Dropping it is [`Server::shutdown`].
#[derive(Debug)]
pub struct Server {
    acceptor: Acceptor,
    listener: Option<Listener>,
}

/// Where clients come in by themselves.
#[derive(Debug)]
struct Listener {
    socket: Arc<ListeningSocket>,
    acceptor: JoinHandle<()>,
}

impl Server {
    /// Listens at `path` and answers clients from threads of its own.
    ///
    /// # Errors
    /// A live daemon at that path, or what the system refused.
    pub fn bind(path: &Path, daemon: Arc<Mutex<Daemon>>) -> Result<Server, BindError> {
        Server::bind_with(path, daemon, ServerOptions::default())
    }

    /// [`Server::bind`] with options.
    ///
    /// # Errors
    /// As [`Server::bind`], and a group that does not exist.
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

    /// Listens nowhere: its clients are those that it is given with [`Server::adopt`].
    pub fn unbound(daemon: Arc<Mutex<Daemon>>, limits: ServerLimits) -> Server {
        Server { acceptor: Acceptor { daemon, clients: Arc::new(Clients::new(limits)) }, listener: None }
    }

    /// Takes whoever is at the other end of a stream for a client, like one that came by the socket. Where there is no
    /// place for it, it is told so and let go.
    pub fn adopt(&self, stream: UnixStream) {
        self.acceptor.receive(stream);
    }

    /// Stops listening, lets the clients go and removes the socket.
    pub fn shutdown(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        let clients = &self.acceptor.clients;
        clients.stopping.store(true, Ordering::SeqCst);
        if let Some(Listener { socket, acceptor }) = self.listener.take() {
            socket.remove();
            // Wakes the thread that accepts: it gets an error from now on.
            let _ = rustix::net::shutdown(&socket.listener, rustix::net::Shutdown::Both);
            let _ = acceptor.join();
        }
        clients.disconnect_all();
    }
}

/// Lets clients in and has them talked to.
#[derive(Clone)]
struct Acceptor {
    daemon: Arc<Mutex<Daemon>>,
    clients: Arc<Clients>,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reception").field("clients", &self.clients).finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Receives who comes to the socket, until the server stops.
    fn accept(&self, listener: &UnixListener) {
        loop {
            let accepted = listener.accept();
            if self.clients.stopping.load(Ordering::SeqCst) {
                return;
            }
            match accepted {
                Ok((stream, _)) => self.receive(stream),
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    /// Gives a client a seat and a thread, if there is one of each.
    fn receive(&self, stream: UnixStream) {
        let Some(handle) = self.clients.admit(stream) else { return };
        let daemon = Arc::clone(&self.daemon);
        let talk = move || {
            // Its seat is free only when nothing of the conversation is left.
            let handle = handle;
            let clients = &handle.clients;
            let Clients { queue, limits, .. } = &**clients;
            let context =
                SessionContext { daemon: &daemon, queue, limits, pools: clients.pools(handle.peer) };
            serve(&handle.stream, &context, |idle| clients.slots().set_idle(handle.number, idle));
            drop(daemon);
        };
        // Where no thread can be had, the guest is dropped with the closure and so sent away.
        let _ = thread::Builder::new().name("mmb-client".to_owned()).stack_size(STACK).spawn(talk);
    }
}

/// The clients that are connected.
#[derive(Debug)]
struct Clients {
    queue: CommitQueue,
    limits: ServerLimits,
    /// What root's clients draw on, and what others do: nobody else uses up what is root's.
    trusted: BudgetPools,
    others: BudgetPools,
    stopping: AtomicBool,
    slots: Mutex<ClientSlots>,
    left: Condvar,
}

/// A client that is let in; its seat is free again when this is dropped.
struct ClientHandle {
    clients: Arc<Clients>,
    number: u64,
    stream: Arc<UnixStream>,
    peer: PeerUser,
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.clients.slots().free(self.number);
        self.clients.left.notify_all();
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
            left: Condvar::new(),
        }
    }

    fn slots(&self) -> MutexGuard<'_, ClientSlots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a client a seat, or tells it that there is none.
    fn admit(self: &Arc<Self>, stream: UnixStream) -> Option<ClientHandle> {
        let (peer, stream) = (PeerUser::of(&stream), Arc::new(stream));
        let taken = self.slots().take(&stream, peer, &self.limits);
        match taken {
            Ok(number) => Some(ClientHandle { clients: Arc::clone(self), number, stream, peer }),
            Err(full) => {
                // The line fits an empty socket's buffer, so this does not wait.
                let _ = refuse(full.to_string(), &mut AnswerWriter::new(&stream, &self.limits));
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

    /// Ends every conversation: no further request is read, answers in progress get a moment.
    fn disconnect_all(&self) {
        let slots = self.slots();
        slots.shut(Shutdown::Read);
        let wait = self.left.wait_timeout_while(slots, LAST_WORDS, |slots| !slots.is_empty());
        let (slots, _) = wait.unwrap_or_else(PoisonError::into_inner);
        slots.shut(Shutdown::Both);
        let wait = self.left.wait_timeout_while(slots, LAST_WORDS, |slots| !slots.is_empty());
        drop(wait);
    }
}

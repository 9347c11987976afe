//! The control socket's server: accepts clients and gives each a thread, within its [`Limits`].
//!
//! [`Server::bind`] starts one thread that accepts; [`Server::adopt`] takes a client that is connected already, and a server
//! that is [`Server::unbound`] has no others. [`Server::shutdown`] (or dropping) stops it, removes the
//! socket, lets answers that are being written end for a moment, and then lets every client go. Packets know
//! nothing of all this.

use crate::daemon::Daemon;
use crate::desk::Desk;
use crate::frame::Paced;
use crate::limits::{Limits, Pools};
use crate::respond::refuse;
use crate::seats::{Peer, Seats};
use crate::session::{Context, converse};
use crate::socket::Socket;
use std::fmt;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use crate::socket::{BindError, DEFAULT_SOCKET};

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
    pub limits: Limits,
}

/// The daemon as clients see it. Dropping it is [`Server::shutdown`].
#[derive(Debug)]
pub struct Server {
    reception: Reception,
    door: Option<Door>,
}

/// Where clients come in by themselves.
#[derive(Debug)]
struct Door {
    socket: Arc<Socket>,
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
        let socket = Arc::new(Socket::bind(path, options.group.as_deref())?);
        let mut server = Server::unbound(daemon, options.limits);
        let acceptor = {
            let (socket, reception) = (Arc::clone(&socket), server.reception.clone());
            thread::Builder::new()
                .name("mmb-control".to_owned())
                .spawn(move || reception.accept(&socket.listener))
        };
        match acceptor {
            Ok(acceptor) => {
                server.door = Some(Door { socket, acceptor });
                Ok(server)
            }
            Err(error) => {
                socket.remove();
                Err(BindError::Io { path: path.to_owned(), what: "start the thread that accepts", error })
            }
        }
    }

    /// Listens nowhere: its clients are those that it is given with [`Server::adopt`].
    pub fn unbound(daemon: Arc<Mutex<Daemon>>, limits: Limits) -> Server {
        Server { reception: Reception { daemon, clients: Arc::new(Clients::new(limits)) }, door: None }
    }

    /// Takes whoever is at the other end of a stream for a client, like one that came by the socket. Where there is no
    /// place for it, it is told so and let go.
    pub fn adopt(&self, stream: UnixStream) {
        self.reception.receive(stream);
    }

    /// Stops listening, lets the clients go and removes the socket.
    pub fn shutdown(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        let clients = &self.reception.clients;
        clients.stopping.store(true, Ordering::SeqCst);
        if let Some(Door { socket, acceptor }) = self.door.take() {
            socket.remove();
            // Wakes the thread that accepts: it gets an error from now on.
            let _ = rustix::net::shutdown(&socket.listener, rustix::net::Shutdown::Both);
            let _ = acceptor.join();
        }
        clients.let_all_go();
    }
}

/// Lets clients in and has them talked to.
#[derive(Clone)]
struct Reception {
    daemon: Arc<Mutex<Daemon>>,
    clients: Arc<Clients>,
}

impl fmt::Debug for Reception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reception").field("clients", &self.clients).finish_non_exhaustive()
    }
}

impl Reception {
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
        let Some(guest) = self.clients.admit(stream) else { return };
        let daemon = Arc::clone(&self.daemon);
        let talk = move || {
            // Its seat is free only when nothing of the conversation is left.
            let guest = guest;
            let clients = &guest.clients;
            let Clients { desk, limits, .. } = &**clients;
            let context = Context { daemon: &daemon, desk, limits, pools: clients.pools(guest.peer) };
            converse(&guest.stream, &context, |idle| clients.seats().set_idle(guest.number, idle));
            drop(daemon);
        };
        // Where no thread can be had, the guest is dropped with the closure and so sent away.
        let _ = thread::Builder::new().name("mmb-client".to_owned()).stack_size(STACK).spawn(talk);
    }
}

/// The clients that are connected.
#[derive(Debug)]
struct Clients {
    desk: Desk,
    limits: Limits,
    /// What root's clients draw on, and what others do: nobody else uses up what is root's.
    trusted: Pools,
    others: Pools,
    stopping: AtomicBool,
    seats: Mutex<Seats>,
    left: Condvar,
}

/// A client that is let in; its seat is free again when this is dropped.
struct Guest {
    clients: Arc<Clients>,
    number: u64,
    stream: Arc<UnixStream>,
    peer: Peer,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.clients.seats().leave(self.number);
        self.clients.left.notify_all();
    }
}

impl Clients {
    fn new(limits: Limits) -> Clients {
        Clients {
            desk: Desk::default(),
            limits,
            trusted: Pools::new(&limits),
            others: Pools::new(&limits),
            stopping: AtomicBool::new(false),
            seats: Mutex::default(),
            left: Condvar::new(),
        }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a client a seat, or tells it that there is none.
    fn admit(self: &Arc<Self>, stream: UnixStream) -> Option<Guest> {
        let (peer, stream) = (Peer::of(&stream), Arc::new(stream));
        let taken = self.seats().take(&stream, peer, &self.limits);
        match taken {
            Ok(number) => Some(Guest { clients: Arc::clone(self), number, stream, peer }),
            Err(full) => {
                // The line fits an empty socket's buffer, so this does not wait.
                let _ = refuse(full.to_string(), &mut Paced::new(&stream, &self.limits));
                None
            }
        }
    }

    fn pools(&self, peer: Peer) -> &Pools {
        match peer {
            Peer::Trusted => &self.trusted,
            Peer::Other(_) => &self.others,
        }
    }

    /// Ends every conversation: no further request is read, answers in progress get a moment.
    fn let_all_go(&self) {
        let seats = self.seats();
        seats.shut(Shutdown::Read);
        let wait = self.left.wait_timeout_while(seats, LAST_WORDS, |seats| !seats.is_empty());
        let (seats, _) = wait.unwrap_or_else(PoisonError::into_inner);
        seats.shut(Shutdown::Both);
        let wait = self.left.wait_timeout_while(seats, LAST_WORDS, |seats| !seats.is_empty());
        drop(wait);
    }
}

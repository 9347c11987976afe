//! The plugin's state: made when VPP reads its configuration, there for as long as VPP runs.
//!
//! Each thread of VPP, the main one among them, has a [`Seat`] with its worker of the engine. The lock of a seat is taken once a
//! vector and never contended: nobody but the thread itself takes it. Clients' threads change the policy behind the daemon's lock,
//! which VPP's threads never take: whoever holds it may be compiling. What the control side needs done now and then, the keeper
//! does, a thread of our own.

use crate::config::{Config, ConfigError, Socket};
use crate::host::VppHost;
use crate::interfaces::Interfaces;
use crate::nodes::seat::Seat;
use crate::policy_file::{self, PolicyError};
use crate::ports::Ports;
use crate::sys::{Level, Main};
use mmb_control::{BindError, Daemon, Refusal, Server};
use mmb_engine::{Engine, Forward, PortSpec, PortTable};
use mmb_policy::{Policy, Test};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The control socket's name in VPP's runtime directory.
const SOCKET: &str = "mmb.sock";

/// How often the keeper frees what nobody uses any more.
const HOUSEKEEPING: Duration = Duration::from_millis(250);

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Everything of mmb in this VPP.
pub(crate) struct Runtime {
    started: Instant,
    /// By thread.
    seats: Box<[Mutex<Seat>]>,
    /// VPP's interfaces, and the ports that they are.
    pub(crate) interfaces: Arc<Interfaces>,
    /// By thread, once they run.
    cores: Arc<OnceLock<Vec<Option<u32>>>>,
    server: Mutex<Option<Server>>,
}

/// Why VPP does not start with mmb.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The section of startup.conf is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The policy file is.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy fits no engine.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The socket that was asked for cannot be.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// VPP reads its configuration once.
    #[error("started twice")]
    Twice,
}

/// Reads the section of startup.conf and starts. A policy that is wrong, or a socket that was asked for and cannot be, is an error:
/// a firewall that comes up without its rules is worse than none.
///
/// # Errors
/// Why VPP is not to start.
pub(crate) fn start(main: Main, section: &str) -> Result<(), StartError> {
    let config = Config::parse(section)?;
    let policy = match &config.policy {
        Some(file) => policy_file::load(main, file)?,
        None => Policy::default(),
    };
    let interfaces = Arc::new(Interfaces::new());
    reserve_ports(&policy, &interfaces.ports);
    interfaces.look(main);
    let threads = main.threads();
    let seed = config.seed.unwrap_or_else(random_seed);
    let (engine, workers) = Engine::new(table(&interfaces), threads, seed);
    let cores = Arc::default();
    let host = VppHost::new(&interfaces, threads, &cores);
    let daemon = Arc::new(Mutex::new(Daemon::new(engine, policy, Box::new(host))?));
    let server = listen(main, &config.socket, &daemon)?;
    let runtime = Runtime {
        started: Instant::now(),
        seats: workers.into_iter().map(|worker| Mutex::new(Seat::new(worker))).collect(),
        interfaces,
        cores,
        server: Mutex::new(server),
    };
    RUNTIME.set(runtime).map_err(|_| StartError::Twice)?;
    thread::Builder::new().name("mmb-keeper".to_owned()).spawn(move || keep(&daemon))?;
    Ok(())
}

/// VPP ends: lets clients go and removes the socket.
pub(crate) fn stop() {
    if let Some(runtime) = Runtime::running() {
        drop(lock(&runtime.server).take());
    }
}

/// What VPP's main thread does now and then.
pub(crate) fn look(main: Main) {
    let Some(runtime) = Runtime::running() else { return };
    runtime.cores.get_or_init(|| (0..runtime.seats.len()).map(|thread| main.core(thread)).collect());
    runtime.interfaces.reconcile(main);
}

impl Runtime {
    /// What was started.
    #[inline]
    pub(crate) fn running() -> Option<&'static Runtime> {
        RUNTIME.get()
    }

    /// What a thread of VPP works with.
    ///
    /// # Panics
    /// If VPP has no such thread.
    #[inline]
    pub(crate) fn seat(&self, thread: u16) -> MutexGuard<'_, Seat> {
        lock(&self.seats[usize::from(thread)])
    }

    /// The time for workers.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

/// Makes ports of the names that a policy uses: their interfaces may come later. Where there is no room, the engine refuses the
/// policy.
fn reserve_ports(policy: &Policy, ports: &Ports) {
    let mut reserve = |name: &String| {
        let _ = ports.reserve(name);
    };
    policy.ports.keys().for_each(&mut reserve);
    for rule in policy.rules.iter() {
        for constraint in &rule.matches {
            if let Test::Port(_, names) = &constraint.test {
                names.iter().for_each(&mut reserve);
            }
        }
    }
}

/// The ports as the engine takes them.
fn table(interfaces: &Interfaces) -> PortTable {
    let spec = |name| PortSpec { name, mtu: None, forward: Forward::Routed };
    PortTable(interfaces.ports.names().into_iter().map(spec).collect())
}

/// Opens the control socket. The usual one need not be: VPP's own command line needs none.
fn listen(main: Main, socket: &Socket, daemon: &Arc<Mutex<Daemon>>) -> Result<Option<Server>, StartError> {
    match socket {
        Socket::Off => Ok(None),
        Socket::At(path) => Ok(Some(Server::bind(path, Arc::clone(daemon))?)),
        Socket::Usual => {
            let folder = main.runtime_dir().unwrap_or(Path::new("/run/vpp"));
            let server = Server::bind(&folder.join(SOCKET), Arc::clone(daemon));
            if let Err(why) = &server {
                main.log(Level::Warning, &format!("no control socket: {why}"));
            }
            Ok(server.ok())
        }
    }
}

/// Frees what is used no more, where nobody waits for it.
fn keep(daemon: &Mutex<Daemon>) {
    loop {
        thread::sleep(HOUSEKEEPING);
        lock(daemon).tidy();
    }
}

/// A lock, whoever panicked while holding it: a policy is replaced as a whole or not at all, and a worker that failed within a
/// vector begins the next one anew.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

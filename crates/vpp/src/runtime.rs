//! The plugin's state: made when VPP reads its configuration, there for as long as VPP runs.
//!
//! Each thread of VPP, the main one among them, has a [`ThreadState`] with its worker of the engine ([`ThreadMap`]). The lock of a seat is taken once a
//! vector and never contended: nobody but the thread itself takes it. Clients' threads change the policy behind the daemon's lock,
//! which VPP's threads never take: whoever holds it may be compiling. What the control side needs done now and then, the keeper
//! does, a thread of our own.

use crate::cli;
use crate::config::{ConfigError, PluginConfig, SocketConfig};
use crate::host::VppHost;
use crate::interfaces::Interfaces;
use crate::memory;
use crate::nodes::thread_state::ThreadState;
use crate::ports::{self, InterfacePorts};
use crate::sys::{self, LogLevel, MainThread};
use crate::threads::ThreadMap;
use mmb_base::lock;
use mmb_client::policy_file::{self, PolicyFileError};
use mmb_client::{CommandFailed, CommandRunner, OutputSink, SinkClosed, UserCommand};
use mmb_control::{BindError, CommitError, Daemon, Server, ServerLimits};
use mmb_engine::{Engine, Forward, NoCycles, PortSpec};
use mmb_packet::PortId;
use mmb_policy::{Policy, Test};
use mmb_protocol::{Client, ClientError};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// The control socket's name in VPP's runtime directory.
const SOCKET: &str = "mmb.sock";

/// How often the keeper frees what nobody uses any more.
const HOUSEKEEPING: Duration = Duration::from_millis(250);

/// Turns of VPP's process after which the interfaces' state is looked at again: a second, about.
const TURNS_A_LOOK: u32 = 20;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Everything of mmb in this VPP.
pub(crate) struct Runtime {
    started: Instant,
    pub(crate) threads: ThreadMap,
    /// By worker of the engine.
    states: Box<[Mutex<ThreadState>]>,
    /// VPP's interfaces, and the ports that they are.
    pub(crate) interfaces: Arc<Interfaces>,
    /// By worker of the engine, once they run.
    cores: Arc<OnceLock<Vec<Option<u32>>>>,
    daemon: Arc<Mutex<Daemon>>,
    /// Until VPP ends.
    server: Mutex<Option<Server>>,
    socket: Option<PathBuf>,
    /// The engine's workers that are to share the connections to come.
    sharing: Mutex<Vec<u16>>,
    /// How many names of ports the engine was told that took others' places.
    renamed: AtomicU64,
}

/// Why VPP does not start with mmb.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The section of startup.conf is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The policy file cannot be read.
    #[error("the policy cannot be read")]
    Unreadable(#[from] PolicyFileError),
    /// What it says is wrong; each error with its line, as `mmb check` shows it.
    #[error("the policy is wrong\n{0}")]
    Policy(String),
    /// The policy fits no engine.
    #[error(transparent)]
    Refused(#[from] CommitError),
    /// The socket that was asked for cannot be.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The system gives no random numbers.
    #[error(transparent)]
    Entropy(#[from] mmb_control::entropy::EntropyError),
    /// VPP has a command of ours already.
    #[error("{0}")]
    Command(String),
}

/// Reads the section of startup.conf and starts. A policy that is wrong, or a socket that was asked for and cannot be, is an error:
/// a firewall that comes up without its rules is worse than none.
///
/// # Errors
/// Why VPP is not to start.
pub(crate) fn start(main: MainThread, section: &str) -> Result<(), StartError> {
    let config = PluginConfig::parse(section)?;
    let policy = match &config.policy {
        Some(file) => load(main, file)?,
        None => Policy::default(),
    };
    let interfaces = Arc::new(Interfaces::new());
    reserve_ports(&policy, &interfaces.ports);
    interfaces.poll(main);
    let threads = ThreadMap::new(main.threads());
    let seeds = mmb_control::entropy::seed_tree()?;
    let (mut engine, workers) = Engine::with_room(ports::MOST, threads.owning(), threads.others(), &seeds);
    for name in interfaces.ports.names(0) {
        engine.add_port(port(name));
    }
    let cores = Arc::default();
    let host = VppHost::new(&interfaces, threads.all(), &cores);
    let daemon = Arc::new(Mutex::new(Daemon::new(engine, policy, Box::new(host))?));
    let (server, socket) = listen(main, config.socket, &daemon)?;
    let runtime = Runtime {
        started: Instant::now(),
        threads,
        states: workers.into_iter().map(|worker| Mutex::new(ThreadState::new(worker))).collect(),
        interfaces,
        cores,
        daemon,
        server: Mutex::new(Some(server)),
        socket,
        sharing: Mutex::new(threads.sharing(&[])),
        renamed: AtomicU64::new(0),
    };
    cli::add_commands(main).map_err(StartError::Command)?;
    let runtime = RUNTIME.get_or_init(|| runtime);
    thread::Builder::new().name("mmb-keeper".to_owned()).spawn(|| runtime.housekeeping())?;
    Ok(())
}

/// VPP ends: lets clients go and removes the socket.
pub(crate) fn stop() {
    if let Some(runtime) = Runtime::running() {
        drop(lock(&runtime.server).take());
    }
}

/// What VPP's main thread does now and then, each time in another turn.
pub(crate) fn poll(main: MainThread, turn: u32) {
    let Some(runtime) = Runtime::running() else { return };
    if turn.is_multiple_of(TURNS_A_LOOK) {
        runtime.interfaces.poll(main);
        *lock(&runtime.sharing) = runtime.threads.sharing(&main.queues(runtime.threads.all()));
    }
    runtime.cores.get_or_init(|| {
        let core = |worker| main.core(usize::from(runtime.threads.thread(worker as u16)));
        (0..runtime.states.len()).map(core).collect()
    });
    runtime.interfaces.keep_up(main);
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
    pub(crate) fn thread_state(&self, thread: u16) -> MutexGuard<'_, ThreadState> {
        lock(&self.states[self.threads.worker(thread)])
    }

    /// Has the workers of the first so many threads do what is not about packets, while the threads cannot: VPP's main thread, which
    /// this runs on, and workers that stand still.
    pub(crate) fn process_idle_threads(&self, threads: usize) {
        for thread in 0..threads.min(self.threads.all()) {
            self.thread_state(thread as u16).worker.process(self.now_ns(), &NoCycles, &mut [], &mut []);
        }
    }

    /// Makes interfaces that came known to the engine and frees what is used no more, where nobody waits for it.
    fn housekeeping(&self) {
        sys::step_aside();
        let mut sharing = self.threads.sharing(&[]);
        loop {
            thread::sleep(HOUSEKEEPING);
            self.sync_ports();
            self.share(&mut sharing);
            let large = lock(&self.daemon).reclaim();
            if large {
                memory::trim();
            }
        }
    }

    /// Has those workers share the connections to come that are to, if others do.
    fn share(&self, sharing: &mut Vec<u16>) {
        let wanted = lock(&self.sharing).clone();
        if wanted == *sharing {
            return;
        }
        let connections = lock(&self.daemon).engine().connections();
        // A worker that does not answer in time is asked again.
        if connections.share_among(&wanted).is_ok() {
            *sharing = wanted;
        }
    }

    /// Makes interfaces that came known to the engine, so that rules may name them; and forgets names that nobody uses where there is no
    /// room for others.
    fn sync_ports(&self) {
        let mut daemon = lock(&self.daemon);
        let ports = &self.interfaces.ports;
        if ports.is_full() {
            let named = names_of_ports(daemon.policy());
            ports.recycle(|name| named.contains(name));
        }
        let (names, changes) = (ports.names(0), ports.changes());
        if self.renamed.swap(changes, Ordering::Relaxed) != changes {
            for (number, name) in (0u16..).zip(&names) {
                if daemon.engine().ports().0.get(usize::from(number)).is_some_and(|known| known.name != *name)
                {
                    daemon.rename_port(PortId(number), name);
                }
            }
        }
        let known = daemon.engine().ports().0.len();
        for name in names.into_iter().skip(known) {
            daemon.add_port(port(name));
        }
    }

    /// Does an errand of VPP's command line, as the client that it is. One that has no end of its own ends at `enough`.
    ///
    /// # Errors
    /// It did not work, and the sink was told why.
    pub(crate) fn run_command(
        &self,
        command: &UserCommand,
        sink: &dyn OutputSink,
        enough: &dyn Fn() -> bool,
    ) -> Result<(), CommandFailed> {
        let connect = || {
            let (ours, theirs) = UnixStream::pair()?;
            let server = lock(&self.server);
            server.as_ref().ok_or(ClientError::Lost)?.adopt(theirs);
            Ok(Client::from_stream(ours))
        };
        let runner = CommandRunner {
            connect: &connect,
            sink,
            is_interrupted: enough,
            json: false,
            standard_streams: false,
            program_words: &[],
            no_daemon_hint: "",
            monitor_hint: "",
        };
        sys::step_aside();
        self.sync_ports();
        runner.run(command)
    }

    /// Where the control socket is, if there is one.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// The time for workers.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

/// Reads the policy to start with; what is remarkable about it is told in VPP's log.
fn load(main: MainThread, file: &Path) -> Result<Policy, StartError> {
    let told = StartOutput::default();
    let policy = policy_file::load(file, false, &told)?;
    let told = told.0.into_inner();
    let policy = policy.ok_or_else(|| StartError::Policy(told.trim_end().to_owned()))?;
    if !told.is_empty() {
        main.log(LogLevel::Notice, told.trim_end());
    }
    Ok(policy)
}

/// What is told about the policy file.
#[derive(Default)]
struct StartOutput(RefCell<String>);

impl OutputSink for StartOutput {
    fn out(&self, text: &str) -> Result<(), SinkClosed> {
        self.err(text);
        Ok(())
    }

    fn err(&self, text: &str) {
        self.0.borrow_mut().push_str(text);
    }
}

/// Makes ports of the names that a policy uses: their interfaces may come later. Where there is no room, the engine refuses the
/// policy.
fn reserve_ports(policy: &Policy, ports: &InterfacePorts) {
    for name in names_of_ports(policy) {
        let _ = ports.reserve(&name);
    }
}

/// The names of ports that a policy uses.
fn names_of_ports(policy: &Policy) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = policy.ports.keys().cloned().collect();
    for rule in policy.rules.iter() {
        for constraint in &rule.matches {
            if let Test::Port(_, names) = &constraint.test {
                all.extend(names.iter().cloned());
            }
        }
    }
    all
}

/// A port as the engine takes it: where packets go, VPP says.
fn port(name: String) -> PortSpec {
    PortSpec { name, mtu: None, forward: Forward::Routed }
}

/// Opens the control socket, and tells where it is. The usual one need not be: VPP's own command line needs none.
fn listen(
    main: MainThread,
    socket: SocketConfig,
    daemon: &Arc<Mutex<Daemon>>,
) -> Result<(Server, Option<PathBuf>), StartError> {
    let (path, must) = match socket {
        SocketConfig::Off => return Ok((unbound(daemon), None)),
        SocketConfig::At(path) => (path, true),
        SocketConfig::Usual => (main.runtime_dir().unwrap_or(Path::new("/run/vpp")).join(SOCKET), false),
    };
    // The thread that accepts runs where the one that starts it does.
    let bound = thread::scope(|scope| {
        let bind = scope.spawn(|| {
            sys::step_aside();
            Server::bind(&path, Arc::clone(daemon))
        });
        bind.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    match bound {
        Ok(server) => Ok((server, Some(path))),
        Err(why) if must => Err(why.into()),
        Err(why) => {
            main.log(LogLevel::Warning, &format!("no control socket: {}", sys::chain(&why)));
            Ok((unbound(daemon), None))
        }
    }
}

/// A server whose only clients are commands of VPP's.
fn unbound(daemon: &Arc<Mutex<Daemon>>) -> Server {
    Server::unbound(Arc::clone(daemon), ServerLimits::default())
}

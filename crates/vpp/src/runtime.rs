//! The plugin's state: created when VPP reads its configuration, and kept as long as VPP runs.
//!
//! Each thread of VPP, with the main one, has a [`ThreadState`] with its worker of the engine ([`ThreadMap`]). The lock of a thread's state is
//! taken once per call of a node and never contended: only the thread itself takes it. Clients' threads change the policy under the
//! daemon's lock, which VPP's threads never take, since its holder may be compiling. A thread of the plugin does the housekeeping.

use crate::config::{ConfigError, PluginConfig, SocketConfig};
use crate::host::VppHost;
use crate::interfaces::Interfaces;
use crate::memory;
use crate::nodes::thread_state::ThreadState;
use crate::ports::{self, InterfacePorts};
use crate::sys::{self, LogLevel, MainThread};
use crate::threads::ThreadMap;
use mmb_base::{lock, start_supplier};
use mmb_client::policy_file::{self, PolicyFileError};
use mmb_client::{CommandFailed, CommandRunner, OutputSink, SinkClosed, UserCommand};
use mmb_compile::{CompileBudget, PatternCompiler};
use mmb_control::{BindError, CommitError, Daemon, Housekeeper, Server, ServerLimits};
use mmb_engine::{Engine, Forward, NoCycles, PortSpec, SetCache, SetSource, compile_patterns};
use mmb_packet::PortId;
use mmb_policy::{Policy, Test};
use mmb_protocol::{Client, ClientError};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::error::Error;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// The control socket's name in VPP's runtime directory.
const SOCKET: &str = "mmb.sock";

/// The time between two rounds of housekeeping.
const HOUSEKEEPING: Duration = Duration::from_millis(250);

/// Turns of mmb-process between two reads of all interfaces: about a second.
const TURNS_PER_POLL: u32 = 20;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// The running plugin.
pub(crate) struct Runtime {
    started: Instant,
    pub(crate) threads: ThreadMap,
    /// By worker of the engine.
    states: Box<[Mutex<ThreadState>]>,
    /// VPP's interfaces and their ports.
    pub(crate) interfaces: Arc<Interfaces>,
    /// By worker of the engine, once the threads run.
    cores: Arc<OnceLock<Vec<Option<u32>>>>,
    daemon: Arc<Mutex<Daemon>>,
    /// Until VPP ends.
    server: Mutex<Option<Server>>,
    socket: Option<PathBuf>,
    /// The engine's workers that are to share new connections.
    sharing: Mutex<Vec<u16>>,
    /// The number of port renames that the engine knows.
    renames: AtomicU64,
}

/// A reason to stop VPP's start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The section of startup.conf is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The policy file cannot be read.
    #[error("the policy cannot be read")]
    Unreadable(#[from] PolicyFileError),
    /// The policy has errors; each with its line, as `mmb check` shows it.
    #[error("the policy is wrong\n{0}")]
    Policy(String),
    /// The engine refuses the policy.
    #[error(transparent)]
    Refused(#[from] CommitError),
    /// The configured socket cannot be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The system gives no random numbers.
    #[error(transparent)]
    Entropy(#[from] mmb_control::entropy::EntropyError),
}

/// Reads the section of startup.conf and starts. An erroneous policy, or a configured socket that cannot be opened, stops VPP: a firewall
/// without its rules is worse than none.
///
/// # Errors
/// The reason to stop VPP's start.
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
    start_supplier(sys::step_aside);
    let (mut engine, workers) =
        Engine::with_max_ports(ports::MAX_PORTS, threads.owning(), threads.others(), &seeds);
    for name in interfaces.ports.names(0) {
        engine.add_port(port(name));
    }
    let cores = Arc::default();
    let started = Instant::now();
    let host = VppHost::new(&interfaces, threads.all(), &cores, started);
    let daemon = Arc::new(Mutex::new(Daemon::new(engine, policy, Box::new(host))?));
    let (server, socket) = listen(main, config.socket, &daemon)?;
    let runtime = Runtime {
        started,
        threads,
        states: workers
            .into_iter()
            .map(|mut worker| {
                worker.populate();
                Mutex::new(ThreadState::new(worker))
            })
            .collect(),
        interfaces,
        cores,
        daemon,
        server: Mutex::new(Some(server)),
        socket,
        sharing: Mutex::new(threads.sharing(&[])),
        renames: AtomicU64::new(0),
    };
    let runtime = RUNTIME.get_or_init(|| runtime);
    runtime.interfaces.set_running();
    thread::Builder::new().name("mmb-housekeep".to_owned()).spawn(|| runtime.housekeeping())?;
    Ok(())
}

/// VPP ends: closes the clients' connections and removes the socket.
pub(crate) fn stop() {
    if let Some(runtime) = Runtime::running() {
        drop(lock(&runtime.server).take());
    }
}

/// Periodic work on VPP's main thread; `turn` counts the calls.
pub(crate) fn poll(main: MainThread, turn: u32) {
    let Some(runtime) = Runtime::running() else { return };
    if turn.is_multiple_of(TURNS_PER_POLL) {
        runtime.interfaces.poll(main);
        *lock(&runtime.sharing) = runtime.threads.sharing(&main.queues(runtime.threads.all()));
    }
    runtime.cores.get_or_init(|| {
        let core = |worker| main.core(usize::from(runtime.threads.thread(worker as u16)));
        (0..runtime.states.len()).map(core).collect()
    });
    runtime.interfaces.reconcile_logged(main);
}

/// An interface was created or deleted.
pub(crate) fn interface_changed(main: MainThread, number: u32, exists: bool) {
    // At the start all interfaces are read anyway.
    let Some(runtime) = Runtime::running() else { return };
    if exists {
        runtime.interfaces.on_add(main, number);
        runtime.interfaces.reconcile_logged(main);
    } else {
        runtime.interfaces.on_delete(number);
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Runtime {
    /// The plugin, once it is started.
    #[inline]
    pub(crate) fn running() -> Option<&'static Runtime> {
        RUNTIME.get()
    }

    /// The state of a thread of VPP.
    ///
    /// # Panics
    /// If VPP has no such thread.
    #[inline]
    pub(crate) fn thread_state(&self, thread: u16) -> MutexGuard<'_, ThreadState> {
        lock(&self.states[self.threads.worker(thread)])
    }

    /// Runs the workers of the first `threads` threads without packets while these cannot: VPP's main thread, on which this runs, and stopped
    /// workers.
    pub(crate) fn process_idle_threads(&self, threads: usize) {
        for thread in 0..threads.min(self.threads.all()) {
            self.thread_state(thread as u16).worker.process(self.now_ns(), &NoCycles, &mut [], &mut []);
        }
    }

    /// Tells the engine about new interfaces and frees memory, for ever.
    fn housekeeping(&self) {
        sys::step_aside();
        let mut sharing = self.threads.sharing(&[]);
        // Its threads inherit the cores of this one.
        let mut housekeeper = Housekeeper::new(&self.daemon);
        loop {
            thread::sleep(HOUSEKEEPING);
            self.sync_ports();
            self.share(&mut sharing);
            housekeeper.look();
            let large = lock(&self.daemon).reclaim();
            if large {
                memory::trim();
            }
        }
    }

    /// Changes which workers share new connections, if that is necessary.
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

    /// Tells the engine about new interfaces, so that rules may name them. When names run out, unused ones are forgotten.
    fn sync_ports(&self) {
        let mut daemon = lock(&self.daemon);
        let ports = &self.interfaces.ports;
        if ports.is_full() {
            let named = names_of_ports(daemon.policy());
            ports.recycle(|name| named.contains(name));
        }
        let (names, changes) = (ports.names(0), ports.changes());
        if self.renames.swap(changes, Ordering::Relaxed) != changes {
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

    /// Runs a command of VPP's command line as a client of the daemon. A command without an end of its own ends when `is_interrupted` is true.
    ///
    /// # Errors
    /// The command failed, and the sink got the reason.
    pub(crate) fn run_command(
        &self,
        command: &UserCommand,
        sink: &dyn OutputSink,
        is_interrupted: &dyn Fn() -> bool,
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
            is_interrupted,
            json: false,
            compile: check_patterns,
            standard_streams: false,
            program_words: &[],
            no_daemon_hint: "",
            monitor_hint: "",
        };
        sys::step_aside();
        self.sync_ports();
        runner.run(command)
    }

    /// The path of the control socket, if there is one.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// The time, for workers.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

/// Tells why the patterns of a policy cannot be searched for, if they cannot.
fn check_patterns(policy: &Policy) -> Result<(), String> {
    let policy = policy.clone();
    let compiled = PatternCompiler::default().run_once(CompileBudget::CHANGE, &|| false, move |runner| {
        compile_patterns(&policy, SetSource::compiling(&SetCache::default(), runner)).map(drop)
    });
    match compiled {
        Ok(checked) => checked.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads the first policy; warnings about it go to VPP's log.
fn load(main: MainThread, file: &Path) -> Result<Policy, StartError> {
    let output = StartOutput::default();
    let policy = policy_file::load(file, false, &output)?;
    let messages = output.0.into_inner();
    let policy = policy.ok_or_else(|| StartError::Policy(messages.trim_end().to_owned()))?;
    if !messages.is_empty() {
        main.log(LogLevel::Notice, messages.trim_end());
    }
    Ok(policy)
}

/// Collects messages about the policy file.
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

/// Reserves ports for the names in a policy, whose interfaces may come later. Without room for them the engine refuses the policy.
fn reserve_ports(policy: &Policy, ports: &InterfacePorts) {
    for name in names_of_ports(policy) {
        let _ = ports.reserve(&name);
    }
}

/// The names of ports in a policy.
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

/// A port of the engine; VPP decides where its packets go.
fn port(name: String) -> PortSpec {
    PortSpec { name, mtu: None, forward: Forward::Routed }
}

/// Opens the control socket; returns its path. Without the usual one VPP starts all the same: its own command line needs none.
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
    // The accepting thread inherits the cores of the thread that starts it.
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
            main.log(LogLevel::Warning, &format!("no control socket: {}", chain(&why)));
            Ok((unbound(daemon), None))
        }
    }
}

/// A server without a socket, for the commands of VPP's command line.
fn unbound(daemon: &Arc<Mutex<Daemon>>) -> Server {
    Server::unbound(Arc::clone(daemon), ServerLimits::default())
}

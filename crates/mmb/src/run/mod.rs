//! `mmb run`: live ports, packet threads, the control socket.
//!
//! Life-cycle: the policy and the state file are read, the ports are opened, the control socket opens; the state is restored while the
//! packet threads do not run yet ([`state`]); then they start, and the state file is removed. This thread monitors the ports until a
//! signal to stop arrives. Then the socket closes, the packet threads end after their current vector, the state is saved, the counters are
//! printed, and the ports are closed.
//!
//! A packet thread ([`packets`]) owns its part of the engine, its queues and its vectors; it shares with other threads
//! only the words of [`orders::ThreadOrders`], and gets new links through a channel ([`links`]).

mod exchange;
mod host;
mod idle;
mod links;
mod notify;
mod offload;
mod orders;
mod packets;
mod policy;
mod reload;
mod state;
mod summary;
mod taking_over;
mod trimming;
mod wiring;

use crate::cli::{Global, RunArgs};
use crate::output;
use anyhow::Context;
use exchange::HandoverRings;
use host::LiveHost;
use links::{LinkInbox, PortMonitor};
use mmb_base::lock;
use mmb_compile::PatternCompiler;
use mmb_control::{
    BindError, Daemon, History, HistoryLimits, Housekeeper, OpenHistoryError, Server, ServerOptions, memory,
};
use mmb_engine::{Engine, Worker};
use mmb_io::{LinkWatch, OpenOptions, OpenPorts, PortError, kernel};
use mmb_log::{EventLog, LogHandle, WorkerClock};
use mmb_policy::settings::Offload;
use offload::{FlowInterfaces, KernelEpoch};
use orders::ThreadOrders;
use packets::PacketThread;
use policy::{policy, with_options};
use state::{ParkedWorkers, StateFile};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use taking_over::TakeoverWait;
use trimming::TrimSchedule;
use wiring::PortWiring;

/// The interval at which ports and memory are checked.
const HOUSEKEEPING: Duration = Duration::from_millis(250);

/// The address space that threads take at the start: their stacks, the queues of the log, the first clients.
const THREAD_BYTES: u64 = 64 << 20;

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// The daemon cannot start.
pub(crate) fn main(args: &RunArgs, global: &Global) -> anyhow::Result<ExitCode> {
    kernel::set_up_heap();
    // What DPDK takes is not known before, so this is checked again when the ports are open.
    let check_space = || {
        let bytes = Engine::start_bytes(usize::from(args.workers)) + THREAD_BYTES;
        memory::check_space(bytes).context("cannot start")
    };
    check_space()?;
    let wiring = PortWiring::read(&args.ports, &args.wires)?;
    let Some(mut policy) = policy(args, global)? else { return Ok(ExitCode::FAILURE) };
    let mut wait = TakeoverWait::new();
    let history = args.history.as_deref().map(|directory| open_history(directory, &mut wait)).transpose()?;
    let mut started_with = "start".to_owned();
    if let Some((instead, reason)) = history.as_ref().and_then(|history| history.instead_of(&policy)) {
        output::report_error(&reason);
        policy = instead.map_or(policy, |instead| with_options(instead, args));
        started_with = format!("start: {reason}");
    }
    let max = u64::from(policy.settings.connections.max);
    let mut state = args.state.as_deref().map(|path| StateFile::open(path, max)).transpose()?;
    if let Some(saved) = state.as_ref().and_then(StateFile::saved) {
        policy = mmb_control::state::followed(saved, policy);
    }
    let compiler = Arc::new(crate::compile::compiler());
    let events = events(&compiler)?;
    let pause = |interval| !matches!(events.recv_timeout(interval), Ok(ControlEvent::Stop));
    let names = wiring.devices.iter().map(|(name, _)| name.clone()).collect();
    let mut log = EventLog::open(&args.log, names, Arc::new(output::report_error))?;
    let workers = args.workers;
    let flows = if policy.settings.offload == Offload::Auto { offload::FLOWS } else { 0 };
    let options = OpenOptions { workers, mtu: args.mtu, flows };
    let open = || OpenPorts::open(&wiring.devices, &options);
    let mut ports = wait.take(PortError::held_resource, open, pause)?;
    ports.take_notes().iter().for_each(|note| output::report_error(note));
    let mtus: Vec<u32> = ports.ports().iter().map(mmb_io::Port::mtu).collect();
    wiring.notes_on_mtus(&mtus).iter().for_each(|note| output::report_error(note));
    check_space()?;
    let seeds = mmb_control::entropy::seed_tree()?;
    let (mut engine, mut engine_workers) = Engine::new(wiring.table(&ports), usize::from(workers), &seeds);
    let exchange = HandoverRings::new(usize::from(workers)).context("cannot join the packet threads")?;
    let exchange = Arc::new(exchange);
    let rings = Arc::clone(&exchange);
    engine.set_waker(Arc::new(move |worker| rings.wake(worker)));
    let interfaces = FlowInterfaces::new(&ports);
    if let Ok(programs) = ports.flows() {
        engine.set_offload(Box::new(KernelEpoch(programs.epoch_setter())));
    }
    for (worker, table) in engine_workers.iter_mut().zip(offload::tables(&ports, &interfaces, workers)) {
        worker.set_offload(Box::new(table));
    }
    let orders = Arc::new(ThreadOrders::default());
    let links = packets::links_by_worker(&ports, workers)?;
    let cores = packets::cores(workers);
    if cores.contains(&None) {
        let available = kernel::cores().len();
        output::report_error(&format!(
            "there are more workers ({workers}) than cores for them ({available}): workers share cores, and none is pinned"
        ));
    }
    let ports = Arc::new(Mutex::new(ports));
    let started = Instant::now();
    let host = LiveHost::new(&ports, &orders, &wiring, (&cores, started), log.handle());
    let mut daemon = Daemon::with_compiler(engine, policy, Box::new(host), Arc::clone(&compiler))?;
    if let Some(history) = history {
        daemon.keep_history(history, started_with);
    }
    daemon.log_audit(log.handle());
    note_connection_limit(&daemon);
    let daemon = Arc::new(Mutex::new(daemon));
    let path = global.socket.clone().unwrap_or_else(|| PathBuf::from(mmb_protocol::DEFAULT_SOCKET));
    let listening = || listen(&path, args.socket_group.as_deref(), &daemon);
    let server = wait.take(BindError::held_resource, listening, pause)?;
    let parked = ParkedWorkers::new(engine_workers.into_iter().map(Some).collect());
    log.watch(&parked.connections(&daemon, started), WorkerClock::new(Some(started)))?;
    if let Some(state) = &mut state {
        state.restore(&daemon, &parked, started, args.verbose)?;
    }
    let (mut monitor, inboxes) = PortMonitor::new(&ports, &orders, &interfaces, workers);
    let links = links.into_iter().zip(inboxes).collect();
    let threads = start(parked.unpark(), links, &cores, (&orders, &exchange), started)?;
    announce_ready(&lock(&ports), &path);
    state.iter().for_each(StateFile::remove);
    let mut housekeeper = Housekeeper::new(&daemon);
    let options = Arc::new((args.clone(), global.clone()));
    let reload = |housekeeper: &mut Housekeeper| {
        let options = Arc::clone(&options);
        housekeeper.start(move |daemon| reload::reload(&options.0, &options.1, daemon))
    };
    let actions = SignalActions { reload: &reload, log: &log.handle() };
    let verdict = watch(&events, &mut monitor, (&daemon, &mut housekeeper), &threads, actions);
    notify::notify(notify::STOPPING);
    // The housekeeper waits for its jobs: without a signal to stop, they could still be compiling.
    compiler.stop();
    server.shutdown();
    drop(housekeeper);
    lock(&daemon).stop_flows();
    orders.stop.store(true, Ordering::Relaxed);
    let parked: Vec<_> = threads.into_iter().map(|thread| thread.join().ok()).collect();
    let mut whole = parked.iter().all(Option::is_some);
    if let Some(state) = &state
        && let Err(error) = state.save(&daemon, &ParkedWorkers::new(parked), started)
    {
        output::report_error(&format!("the state is not saved: {error:#}"));
        whole = false;
    }
    log.stop();
    summary::print(&lock(&daemon), &wiring, global);
    // The host in the daemon and the monitor hold references to the ports too.
    drop(daemon);
    drop(monitor);
    drop(ports);
    verdict?;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reports that memory suffices for fewer connections than the policy allows.
fn note_connection_limit(daemon: &Daemon) {
    let (max, allowed) =
        (daemon.policy().settings.connections.max, daemon.engine().connections().summary().max);
    if allowed < u64::from(max) {
        output::report_error(&format!(
            "there is memory for {allowed} connections at once, fewer than `conn max` ({max})"
        ));
    }
}

/// An event that wakes the control thread.
enum ControlEvent {
    /// A signal to stop.
    Stop,
    /// A signal to apply the policy file, and to open the files of the log, again.
    Reload,
    /// A signal to open the files of the log again.
    Reopen,
    /// A change of an interface.
    Links,
}

/// Receives signals and changes of interfaces. The second signal to stop ends the program at once. SIGUSR2, which would end the program by
/// default, is ignored. A signal to stop also gives up compilations of patterns, so that the end does not wait for them.
fn events(compiler: &Arc<PatternCompiler>) -> anyhow::Result<Receiver<ControlEvent>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    let (sender, receiver) = mpsc::channel();
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])
        .context("cannot wait for signals")?;
    let links = LinkWatch::new()?;
    let (signals_sender, compiler) = (sender.clone(), Arc::clone(compiler));
    std::thread::Builder::new().name("mmb-signals".into()).spawn(move || {
        let mut is_stopping = false;
        for signal in signals.forever() {
            let event = match signal {
                SIGTERM | SIGINT if is_stopping => std::process::exit(128 + signal),
                SIGTERM | SIGINT => {
                    compiler.stop();
                    ControlEvent::Stop
                }
                SIGHUP if !is_stopping => ControlEvent::Reload,
                SIGUSR1 if !is_stopping => ControlEvent::Reopen,
                _ => continue,
            };
            is_stopping |= matches!(event, ControlEvent::Stop);
            if signals_sender.send(event).is_err() {
                std::process::exit(128 + signal);
            }
        }
    })?;
    std::thread::Builder::new().name("mmb-links".into()).spawn(move || {
        while sender.send(ControlEvent::Links).is_ok() {
            links.wait();
        }
    })?;
    Ok(receiver)
}

fn open_history(directory: &Path, wait: &mut TakeoverWait) -> Result<History, OpenHistoryError> {
    // Signals still end the process by default.
    let pause = |interval| {
        std::thread::sleep(interval);
        true
    };
    let open = || History::open(directory, HistoryLimits::DIRECTORY);
    wait.take(OpenHistoryError::held_resource, open, pause)
}

fn listen(path: &Path, group: Option<&str>, daemon: &Arc<Mutex<Daemon>>) -> Result<Server, BindError> {
    let options = ServerOptions { group: group.map(str::to_owned), ..ServerOptions::default() };
    Server::bind_with(path, Arc::clone(daemon), options)
}

fn start(
    workers: Vec<Worker>,
    links: Vec<(Vec<mmb_io::PortLink>, LinkInbox)>,
    cores: &[Option<usize>],
    (orders, exchange): (&Arc<ThreadOrders>, &Arc<HandoverRings>),
    started: Instant,
) -> anyhow::Result<Vec<JoinHandle<Worker>>> {
    let mut threads = Vec::new();
    for (number, ((worker, links), core)) in workers.into_iter().zip(links).zip(cores).enumerate() {
        let (core, orders) = (*core, Arc::clone(orders));
        let exchange = Arc::clone(exchange);
        let run = move || PacketThread::new((number, worker), exchange, links, (core, started)).run(&orders);
        let thread = std::thread::Builder::new().name(format!("mmb-worker-{number}"));
        threads.push(thread.spawn(run).context("cannot start a packet thread")?);
    }
    Ok(threads)
}

fn announce_ready(ports: &OpenPorts, socket: &Path) {
    for port in ports.ports() {
        let driver = &port.info().driver;
        output::report_error(&format!(
            "port {}: {} ({driver}), MTU {}",
            port.name(),
            port.device(),
            port.mtu()
        ));
    }
    output::report_error(&format!("ready; listening on {}", socket.display()));
    notify::notify(notify::READY);
}

/// What signals ask for.
#[derive(Clone, Copy)]
struct SignalActions<'a> {
    /// Starts to apply the policy file. Returns false if the housekeeper is making another change.
    reload: &'a dyn Fn(&mut Housekeeper) -> bool,
    log: &'a LogHandle,
}

/// Checks ports and memory until a signal to stop.
///
/// # Errors
/// A packet thread has ended.
fn watch(
    events: &Receiver<ControlEvent>,
    monitor: &mut PortMonitor,
    (daemon, housekeeper): (&Mutex<Daemon>, &mut Housekeeper),
    threads: &[JoinHandle<Worker>],
    signals: SignalActions<'_>,
) -> anyhow::Result<()> {
    let mut trimming = TrimSchedule::new(lock(daemon).version(), Instant::now());
    let mut is_reload_due = false;
    loop {
        match events.recv_timeout(HOUSEKEEPING) {
            Ok(ControlEvent::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(ControlEvent::Reload) => {
                signals.log.reopen();
                is_reload_due = true;
            }
            Ok(ControlEvent::Reopen) => signals.log.reopen(),
            Ok(ControlEvent::Links) | Err(RecvTimeoutError::Timeout) => {}
        }
        monitor.look(daemon);
        housekeeper.look();
        // A reload during another change follows it. Several of them become one.
        is_reload_due = is_reload_due && !(signals.reload)(housekeeper);
        let (freed, version) = {
            let mut daemon = lock(daemon);
            (daemon.reclaim(), daemon.version())
        };
        if trimming.is_due(version, freed, Instant::now()) {
            kernel::give_back_memory();
        }
        anyhow::ensure!(!threads.iter().any(JoinHandle::is_finished), "a packet thread has failed; stopping");
    }
}

//! The log of a daemon: takes the events of its workers, and hands them to the sinks.
//!
//! Life-cycle: [`EventLog::open`] opens the sinks and starts a thread for each; [`EventLog::watch`] starts the thread that takes events from the workers.
//! [`EventLog::stop`] writes what is there and ends all threads.
//!
//! Nothing waits for a sink. Workers put events into a bounded queue ([`ConnectionWatch`]), without a lock or a system call: the thread behind it polls,
//! so that nobody has to wake it. Each sink has a bounded queue of its own. Events that find no room are lost; their number is counted and written to the sink as soon as
//! it takes something again.

use crate::audit::AuditEvent;
use crate::clock::WorkerClock;
use crate::queue::{Batch, Queued, SinkQueue};
use crate::record::{Record, RecordedEvent};
use crate::sink::{self, Sink};
use crate::spec::SinkSpec;
use mmb_base::lock;
use mmb_engine::{ConnectionWatch, Connections, NoAnswer};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// Events that wait for the thread that collects them: some 16 MB.
const EVENTS: usize = 1 << 16;
/// Events that are handed on at once.
const BATCH: usize = 1024;
/// The pause of the thread that collects events while there are some, and when there are none.
const POLL: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(20)];
/// How often the thread of a sink looks around without records.
const IDLE: Duration = Duration::from_secs(1);
/// The pause after a sink has failed.
const RETRY: Duration = Duration::from_secs(1);
/// How long sinks have to write the rest at the end.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Takes a message for the people who look after the daemon.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// The log of a daemon.
pub struct EventLog {
    handle: LogHandle,
    report: Report,
    sinks: Vec<JoinHandle<()>>,
    collector: Option<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
}

/// A sink cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("--log {spec}: {error}")]
pub struct OpenError {
    spec: String,
    error: io::Error,
}

/// The sinks of a log, for other threads.
#[derive(Clone)]
pub struct LogHandle(Arc<[SinkChannel]>);

/// One sink, as other threads know it.
struct SinkChannel {
    spec: SinkSpec,
    queue: SinkQueue,
    written: AtomicU64,
    errors: AtomicU64,
    /// Why it fails now.
    error: Mutex<Option<String>>,
}

/// The state of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkStatus {
    /// The `--log` that it is of.
    pub spec: String,
    /// Events that were written.
    pub written: u64,
    /// Events that wait.
    pub queued: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Attempts that failed.
    pub errors: u64,
    /// Why the last attempt failed; none: it did not.
    pub error: Option<String>,
}

impl EventLog {
    /// Opens sinks, and starts their threads. `ports` are the names of the ports by number.
    ///
    /// # Errors
    /// One of the sinks cannot be opened, or the system gives no thread.
    pub fn open(specs: &[SinkSpec], ports: Vec<String>, report: Report) -> Result<EventLog, OpenError> {
        let ports = ports.into();
        let failed = |spec: &SinkSpec| {
            let spec = spec.text.clone();
            move |error| OpenError { spec, error }
        };
        let mut opened = Vec::new();
        for spec in specs {
            opened.push(sink::open(spec, &ports).map_err(failed(spec))?);
        }
        let handle = LogHandle(specs.iter().map(|spec| SinkChannel::new(spec.clone())).collect());
        let mut log =
            EventLog { handle, report, sinks: Vec::new(), collector: None, stopping: Arc::default() };
        for (number, (spec, sink)) in specs.iter().zip(opened).enumerate() {
            let (channels, report) = (log.handle.clone(), Arc::clone(&log.report));
            let run =
                move || SinkThread { channel: &channels.0[number], sink, report, is_failing: false }.run();
            let thread = thread::Builder::new().name(format!("mmb-log-{number}")).spawn(run);
            log.sinks.push(thread.map_err(failed(spec))?);
        }
        Ok(log)
    }

    /// Takes the events of workers from now on, whose times `clock` translates.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn watch(&mut self, connections: &Connections, clock: WorkerClock) -> Result<(), NoAnswer> {
        if self.handle.0.is_empty() {
            return Ok(());
        }
        let watch = connections.watch_with_capacity(EVENTS)?;
        let collector =
            Collector { watch, clock, log: self.handle.clone(), stopping: Arc::clone(&self.stopping) };
        let thread = thread::Builder::new().name("mmb-log".to_owned()).spawn(move || collector.run());
        match thread {
            Ok(thread) => self.collector = Some(thread),
            Err(error) => (self.report)(&format!("the log tells of no connections and packets: {error}")),
        }
        Ok(())
    }

    /// The sinks.
    pub fn handle(&self) -> LogHandle {
        self.handle.clone()
    }

    /// Writes what there is, and ends the threads. What a sink does not take within two seconds is given up, and reported.
    pub fn stop(self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(collector) = self.collector {
            collector.thread().unpark();
            let _ = collector.join();
        }
        self.handle.0.iter().for_each(|channel| channel.queue.close());
        let deadline = Instant::now() + STOP_GRACE;
        for (thread, channel) in self.sinks.into_iter().zip(&*self.handle.0) {
            while !thread.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            let SinkStatus { queued, lost, .. } = channel.status();
            if queued > 0 || lost > 0 {
                (self.report)(&format!("--log {}: {} events are not written", channel.spec, queued + lost));
            }
        }
    }
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|channel| &channel.spec)).finish()
    }
}

impl LogHandle {
    /// Hands an audit event to the sinks that want it.
    pub fn audit(&self, time: SystemTime, event: AuditEvent) {
        self.push(&Batch::from([Record { time, event: RecordedEvent::Audit(event) }]));
    }

    /// Has files opened again, which were renamed.
    pub fn reopen(&self) {
        self.0.iter().for_each(|channel| channel.queue.reopen());
    }

    /// The state of each sink.
    pub fn status(&self) -> Vec<SinkStatus> {
        self.0.iter().map(SinkChannel::status).collect()
    }

    fn push(&self, batch: &Batch) {
        self.0.iter().for_each(|channel| channel.queue.push(batch));
    }

    /// Counts events that came to no queue.
    fn lose(&self, events: u64) {
        self.0.iter().for_each(|channel| channel.queue.lose(events));
    }
}

impl SinkChannel {
    fn new(spec: SinkSpec) -> SinkChannel {
        let queue = SinkQueue::new(spec.kinds);
        SinkChannel {
            spec,
            queue,
            written: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            error: Mutex::default(),
        }
    }

    fn status(&self) -> SinkStatus {
        let (queued, lost) = self.queue.counts();
        SinkStatus {
            spec: self.spec.text.clone(),
            written: self.written.load(Ordering::Relaxed),
            queued: queued as u64,
            lost,
            errors: self.errors.load(Ordering::Relaxed),
            error: lock(&self.error).clone(),
        }
    }
}

/// Takes events from the workers.
struct Collector {
    watch: ConnectionWatch,
    clock: WorkerClock,
    log: LogHandle,
    stopping: Arc<AtomicBool>,
}

impl Collector {
    fn run(self) {
        loop {
            // Read before the queue: what came before is still taken.
            let stopping = self.stopping.load(Ordering::Relaxed);
            let events = self.watch.try_iter().take(BATCH);
            let batch: Batch = events
                .map(|event| Record {
                    time: self.clock.time_of_day(event.at_ns()),
                    event: RecordedEvent::Worker(event),
                })
                .collect();
            let lost = self.watch.take_lost();
            if lost > 0 {
                self.log.lose(lost);
            }
            match batch.len() {
                0 if stopping => return,
                0 => thread::park_timeout(POLL[1]),
                count => {
                    self.log.push(&batch);
                    if count < BATCH && !stopping {
                        thread::park_timeout(POLL[0]);
                    }
                }
            }
        }
    }
}

/// Writes the records of a queue to a sink.
struct SinkThread<'c> {
    channel: &'c SinkChannel,
    sink: Box<dyn Sink>,
    report: Report,
    is_failing: bool,
}

impl SinkThread<'_> {
    fn run(mut self) {
        loop {
            self.reopen_if_asked();
            match self.channel.queue.next(IDLE) {
                Queued::Records(lost, batch) => {
                    if lost > 0 {
                        let event = RecordedEvent::Lost(lost);
                        self.write(&[Record { time: SystemTime::now(), event }]);
                    }
                    self.write(&batch);
                }
                Queued::Nothing => {}
                Queued::End => return,
            }
        }
    }

    /// Writes records, as often as it takes. At the end of the daemon a sink that fails gets no more chances.
    fn write(&mut self, records: &[Record]) {
        let mut left = records;
        while !left.is_empty() {
            match self.sink.write(left) {
                Ok(count) => {
                    let (written, rest) = left.split_at(count);
                    self.channel.written.fetch_add(events(written), Ordering::Relaxed);
                    left = rest;
                    self.note_success();
                }
                Err(error) => {
                    self.note_failure(&error);
                    if !self.channel.queue.wait_to_retry(RETRY) {
                        return self.channel.queue.lose(events(left));
                    }
                    self.reopen_if_asked();
                }
            }
        }
    }

    fn reopen_if_asked(&mut self) {
        if self.channel.queue.take_reopen() {
            self.sink.reopen();
        }
    }

    fn note_success(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            *lock(&self.channel.error) = None;
            (self.report)(&format!("--log {}: works again", self.channel.spec));
        }
    }

    fn note_failure(&mut self, error: &io::Error) {
        self.channel.errors.fetch_add(1, Ordering::Relaxed);
        *lock(&self.channel.error) = Some(error.to_string());
        if !std::mem::replace(&mut self.is_failing, true) {
            let spec = &self.channel.spec;
            (self.report)(&format!("--log {spec}: {error}; it is tried again, and events wait (`show log`)"));
        }
    }
}

/// How many events records are.
fn events(records: &[Record]) -> u64 {
    records.iter().map(|record| record.event.events()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::audit_event;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;

    /// A log with these sinks, and what it reports.
    fn open(specs: &[&str]) -> (EventLog, Arc<Mutex<Vec<String>>>) {
        let specs: Vec<SinkSpec> = specs.iter().map(|spec| spec.parse().expect("a log")).collect();
        let reports = Arc::<Mutex<Vec<String>>>::default();
        let report: Report = {
            let reports = Arc::clone(&reports);
            Arc::new(move |text| lock(&reports).push(text.to_owned()))
        };
        (EventLog::open(&specs, Vec::new(), report).expect("opened"), reports)
    }

    fn wait_for(what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn lines(path: &Path) -> usize {
        std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
    }

    #[test]
    fn each_sink_gets_its_events_and_the_rest_is_written_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let [all, none] = ["all.json", "none.json"].map(|name| folder.path().join(name));
        let [first, second] =
            [format!("file:{}", all.display()), format!("file:{},events=connections", none.display())];
        let (log, reports) = open(&[&first, &second]);
        let handle = log.handle();
        (0..500).for_each(|_| handle.audit(SystemTime::now(), audit_event("apply")));
        log.stop();
        assert_eq!((lines(&all), lines(&none)), (500, 0));
        let written = handle.status().iter().map(|status| (status.written, status.lost)).collect::<Vec<_>>();
        assert_eq!(written, [(500, 0), (0, 0)]);
        assert!(lock(&reports).is_empty());
    }

    #[test]
    fn a_peer_that_is_not_there_delays_no_other_and_gets_what_waits_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, socket] = ["log.json", "log.sock"].map(|name| folder.path().join(name));
        let [to_file, to_socket] =
            [format!("file:{}", file.display()), format!("syslog:{}", socket.display())];
        let (log, reports) = open(&[&to_socket, &to_file]);
        let handle = log.handle();
        handle.audit(SystemTime::now(), audit_event("one"));
        wait_for("it has failed", || handle.status()[0].errors > 0);
        handle.audit(SystemTime::now(), audit_event("two"));
        wait_for("the other one works", || lines(&file) == 2);
        let [failing, works] = &handle.status()[..] else { panic!("two sinks") };
        assert!(failing.error.is_some() && failing.written == 0 && failing.lost == 0, "{failing:?}");
        assert_eq!((works.error.as_deref(), works.written), (None, 2));
        let peer = UnixDatagram::bind(&socket).expect("bound");
        peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        for action in ["one", "two"] {
            let mut message = [0; 1000];
            let len = peer.recv(&mut message).expect("a message");
            let text = String::from_utf8_lossy(&message[..len]);
            assert!(text.contains(&format!("action=\"{action}\"")), "{text}");
        }
        wait_for("it works again", || handle.status()[0].error.is_none());
        let said = lock(&reports).clone();
        assert!(said[0].contains("is tried again") && said[1].ends_with("works again"), "{said:?}");
        log.stop();
    }

    /// A refused datagram is told once, and is no success in between.
    #[test]
    fn a_udp_peer_that_is_not_there_is_told_once_and_gets_what_waits_for_it() {
        let place = UdpSocket::bind("127.0.0.1:0").expect("bound").local_addr().expect("an address");
        let (log, reports) = open(&[&format!("syslog:udp:{place}")]);
        let handle = log.handle();
        for action in ["one", "two", "three"] {
            handle.audit(SystemTime::now(), audit_event(action));
        }
        wait_for("it has failed twice", || handle.status()[0].errors > 1);
        assert_eq!((handle.status()[0].written, lock(&reports).len()), (0, 1), "{reports:?}");
        let peer = UdpSocket::bind(place).expect("bound again");
        peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        for action in ["one", "two", "three"] {
            let mut message = [0; 1000];
            let len = peer.recv(&mut message).expect("a message");
            let text = String::from_utf8_lossy(&message[..len]);
            assert!(text.contains(&format!("action=\"{action}\"")), "{text}");
        }
        wait_for("it works again", || handle.status()[0].written == 3);
        let said = lock(&reports).clone();
        assert!(said.len() == 2 && said[1].ends_with("works again"), "{said:?}");
        log.stop();
    }

    #[test]
    fn what_a_sink_does_not_take_is_told_at_the_end() {
        let (log, reports) = open(&["file:/dev/full"]);
        let handle = log.handle();
        (0..3).for_each(|_| handle.audit(SystemTime::now(), audit_event("apply")));
        wait_for("it has failed", || handle.status()[0].errors > 0);
        log.stop();
        assert_eq!((handle.status()[0].written, handle.status()[0].lost), (0, 3));
        let said = lock(&reports).join("\n");
        assert!(said.contains("No space left") && said.ends_with("3 events are not written"), "{said}");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error_at_once() {
        let spec = "file:/nonexistent/log.json".parse().expect("a log");
        let error = EventLog::open(&[spec], Vec::new(), Arc::new(|_| {})).err().expect("an error");
        assert!(error.to_string().starts_with("--log file:/nonexistent/log.json: No such file"), "{error}");
        // The path is in the name of the log.
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("log.json");
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        let spec = format!("file:{}", link.display()).parse().expect("a log");
        let error = EventLog::open(&[spec], Vec::new(), Arc::new(|_| {})).err().expect("an error");
        assert!(error.to_string().contains("log.json: it is a symbolic link"), "{error}");
        assert_eq!(error.to_string().matches("log.json").count(), 1, "{error}");
    }
}

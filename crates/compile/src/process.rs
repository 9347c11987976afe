//! A child process that compiles databases.
//!
//! The child reads a job from its standard input and writes the outcome to its standard output. Its processor time
//! and memory are limited. It is killed when the thread that started it ends, and it is the first process that the
//! kernel kills when the machine lacks memory. It has a low priority (nice 10) and inherits no descriptors. `mmb` passes
//! `/proc/self/exe` as the program, so that parent and child have the same library also after an upgrade.
//!
//! When a job exceeds its budget, a second child compiles each expression alone and writes a byte after each. The
//! error then names the expression that took longest.

use mmb_scan::{CompileJob, CompiledJob, JobRefusal, outcome_from_bytes, outcome_to_bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, set_parent_process_death_signal,
    setpriority_process, setrlimit, waitid,
};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often the parent checks whether the job was given up.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The signal of a process that has used up its processor time.
const XCPU: i32 = Signal::XCPU.as_raw();
const KILL: i32 = Signal::KILL.as_raw();

/// The nice value of the child. Beside a busy packet thread on its core it gets a tenth of the core (weights 110 and
/// 1024); at 19 it would get a seventieth and exceed the elapsed time of its budget.
const NICE: i32 = 10;

/// Units of time in a second in `/proc/PID/stat` (`USER_HZ`), on x86-64 and ARM.
const TICKS_PER_SECOND: u32 = 100;

/// A program that calls [`serve`] when it is run with these arguments.
#[derive(Clone, Debug)]
pub struct CompilerProgram {
    /// The path of the program.
    pub path: PathBuf,
    /// Its first arguments; the arguments of [`serve`] follow.
    pub words: Vec<String>,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) enum ProcessEnd {
    /// It has compiled the job, or the library refused the job.
    Outcome(Result<CompiledJob, JobRefusal>),
    /// It has used up its processor time.
    OutOfTime,
    /// The job was given up, and the process was killed.
    Killed,
    /// It could not be started, or it failed.
    Failed(String),
}

/// How a process compiles a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// All expressions become one database.
    All,
    /// Each expression is compiled alone; the process writes a byte after each.
    Each,
}

impl ProcessEnd {
    /// The end of a process with this status, which has written this answer.
    fn of(status: ExitStatus, answer: &[u8]) -> ProcessEnd {
        if status.success()
            && let Some(outcome) = outcome_from_bytes(answer)
        {
            return ProcessEnd::Outcome(outcome);
        }
        match status.signal() {
            Some(XCPU) => ProcessEnd::OutOfTime,
            // The machine, or the control group, lacks memory.
            Some(KILL) => ProcessEnd::Failed("the process that compiles patterns was killed".to_owned()),
            _ => ProcessEnd::Failed(format!("the process that compiles patterns failed ({status})")),
        }
    }
}

impl CompilerProgram {
    /// Compiles a job in a process of its own. Returns the processor time of the process, too.
    pub(crate) fn compile(
        &self,
        job: &CompileJob,
        processor_time: Duration,
        memory: u64,
        must_end: &dyn Fn() -> bool,
    ) -> (ProcessEnd, Duration) {
        let (mut answer, mut is_short) = (Vec::new(), false);
        let exit = match self.run(job, (Mode::All, processor_time, memory), must_end, &mut |bytes| {
            is_short |= answer.try_reserve(bytes.len()).is_err();
            if !is_short {
                answer.extend_from_slice(bytes);
            }
        }) {
            Ok(exit) => exit,
            Err(error) => {
                let reason = format!("no process to compile patterns: {error}");
                return (ProcessEnd::Failed(reason), Duration::ZERO);
            }
        };
        let end = match exit.status {
            None => ProcessEnd::Killed,
            Some(_) if is_short => ProcessEnd::Failed("no memory for the compiled patterns".to_owned()),
            Some(status) => ProcessEnd::of(status, &answer),
        };
        (end, exit.processor_time)
    }

    /// Returns the index of the expression that takes the most time if it is compiled alone, among those that a
    /// process compiles within `processor_time`.
    pub(crate) fn costliest(
        &self,
        job: &CompileJob,
        processor_time: Duration,
        memory: u64,
        must_end: &dyn Fn() -> bool,
    ) -> Option<usize> {
        let mut times = Vec::new();
        let mut began = Instant::now();
        let mut note = |count: usize| {
            for _ in 0..count {
                times.push(began.elapsed());
                began = Instant::now();
            }
        };
        let status = self.run(job, (Mode::Each, processor_time, memory), must_end, &mut |bytes| {
            note(bytes.len());
        });
        // The expression that it was compiling when its time was over counts, too.
        if !status.is_ok_and(|exit| exit.status.is_some_and(|status| status.success())) {
            note(1);
        }
        let times = times.iter().take(job.len()).enumerate();
        times.max_by_key(|(_, time)| **time).map(|(place, _)| place)
    }

    /// Runs a process and passes its output to `read`.
    fn run(
        &self,
        job: &CompileJob,
        (mode, processor_time, memory): (Mode, Duration, u64),
        must_end: &dyn Fn() -> bool,
        read: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Exit> {
        // The limit is in whole seconds.
        let seconds = processor_time.as_secs() + u64::from(processor_time.subsec_nanos() > 0);
        let mode = match mode {
            Mode::All => "all",
            Mode::Each => "each",
        };
        let mut command = Command::new(&self.path);
        command.args(&self.words).args([mode, &seconds.to_string(), &memory.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Before Linux 5.11 this fails: the child then inherits what libraries in C have opened.
        let _ = mmb_base::set_close_on_exec();
        let began = Instant::now();
        let mut child = Running(command.spawn()?);
        let input = child.0.stdin.take();
        let bytes = job.to_bytes();
        let mut buffer = vec![0; 64 << 10];
        thread::scope(|scope| {
            // The process reads the whole job before it compiles. If it ends earlier, its status says more than this error.
            scope.spawn(move || input.map(|mut input| input.write_all(&bytes)));
            let is_read = child.read(&mut buffer, must_end, read);
            if !matches!(is_read, Ok(true)) {
                // The thread that writes the job would wait for the process.
                let _ = child.0.kill();
            }
            let is_read = is_read?;
            let processor_time = child.processor_time().unwrap_or_else(|| began.elapsed());
            let status = child.0.wait()?;
            Ok(Exit { status: is_read.then_some(status), processor_time })
        })
    }
}

/// A process that has ended.
struct Exit {
    /// `None`: the job was given up, and the process was killed.
    status: Option<ExitStatus>,
    /// The processor time that the process has used.
    processor_time: Duration,
}

/// A process that is killed when this value is dropped.
struct Running(Child);

impl Running {
    /// Waits until the process ends and returns its processor time; `None` if the system does not say it. The process
    /// has still to be waited for: until then, the system has its times.
    fn processor_time(&self) -> Option<Duration> {
        let pid = Pid::from_child(&self.0);
        while let Err(error) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            if error != Errno::INTR {
                return None;
            }
        }
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        // The name of the program, in parentheses, may have spaces.
        let (_, fields) = stat.rsplit_once(')')?;
        // The times in user mode and in the kernel are the fields 14 and 15 of proc_pid_stat(5).
        let mut times = fields.split_ascii_whitespace().skip(11).map_while(|field| field.parse::<u32>().ok());
        Some(Duration::from_secs(1) * times.next()?.checked_add(times.next()?)? / TICKS_PER_SECOND)
    }

    /// Passes all output of the process to `read`. Returns false if the job is given up before the output ends.
    fn read(
        &mut self,
        buffer: &mut [u8],
        must_end: &dyn Fn() -> bool,
        read: &mut dyn FnMut(&[u8]),
    ) -> io::Result<bool> {
        let Some(output) = &mut self.0.stdout else { return Ok(false) };
        loop {
            if must_end() {
                return Ok(false);
            }
            let mut fds = [PollFd::new(output, PollFlags::IN)];
            match poll(&mut fds, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match output.read(buffer)? {
                0 => return Ok(true),
                length => read(&buffer[..length]),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs in the child process: reads a job, compiles it and writes the outcome. The arguments are those that the
/// parent passed.
///
/// # Errors
/// The arguments or the job are not those of a parent of the same version, or the parent is gone.
pub fn serve(mode: &str, processor_time_s: u64, memory: u64) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    limit(Resource::Cpu, processor_time_s, processor_time_s + 1)?;
    limit(Resource::Core, 0, 0)?;
    // RLIMIT_DATA and not RLIMIT_AS: the libraries that the program is linked with use address space as well.
    limit(Resource::Data, memory, memory)?;
    // If the machine or the control group lacks memory, the kernel kills this process, not the one that forwards packets.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // Packets, clients and health checks come first.
    setpriority_process(None, NICE)?;
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "this is not a job to compile");
    let job = CompileJob::from_bytes(&bytes).ok_or_else(wrong)?;
    let mut output = io::stdout().lock();
    match mode {
        "all" => output.write_all(&outcome_to_bytes(&job.run()))?,
        "each" => job.run_each(|_| {
            let _ = output.write_all(&[0]).and_then(|()| output.flush());
        }),
        _ => return Err(wrong()),
    }
    output.flush()
}

/// Sets a limit of this process; the hard limit that it has already is not exceeded.
fn limit(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    let ceiling = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(current.min(ceiling)), maximum: Some(maximum.min(ceiling)) };
    Ok(setrlimit(resource, limit)?)
}

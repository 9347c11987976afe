//! `capture`: packets of a running mmb to a file.
//!
//! A thread reads the lines of the answer as they arrive. What the file takes too slowly for is left out and counted: neither this program nor the
//! daemon waits for a reader. A reader that goes ends the capture, and so does Ctrl-C.

use crate::file::is_own_stream;
use crate::pcapng::PcapngWriter;
use mmb_files::Directory;
use mmb_protocol::answer::{Answer, AnswerEnd, ErrorLine};
use mmb_protocol::{Client, ClientError, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// Lines that wait for the file; further packets are left out. They take some MB.
const WAITING: usize = 1024;
/// How often an interruption is looked for.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A pipe that is ready takes so many bytes at once.
const PIPE_BYTES: usize = 4096;

/// Why a capture failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureFailure {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot write {name}")]
    Write {
        name: String,
        #[source]
        error: io::Error,
    },
}

/// What was captured.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    /// Packets in the file.
    pub(crate) packets: u64,
    /// Packets that were left out.
    pub(crate) left_out: u64,
    /// The daemon refused.
    pub(crate) errors: Vec<ErrorLine>,
}

/// What a capture goes to, and when it ends.
#[derive(Clone, Copy)]
pub(crate) struct CaptureTarget<'t> {
    /// The file; `-` is standard output.
    pub(crate) name: &'t str,
    /// The user wants it to end.
    pub(crate) is_interrupted: &'t dyn Fn() -> bool,
    /// Called when packets are being captured.
    pub(crate) begun: &'t dyn Fn(),
}

/// Captures until the daemon ends the answer, the user interrupts, or the reader of the file has gone.
///
/// # Errors
/// The connection failed, or the file cannot be written.
pub(crate) fn capture(
    mut client: Client,
    request: &Request,
    target: CaptureTarget<'_>,
) -> Result<Captured, CaptureFailure> {
    let (stop, lost) = (AtomicBool::new(false), AtomicU64::new(0));
    let (lines, received) = sync_channel(WAITING);
    let mut session = CaptureSession { target, writer: None, captured: Captured::default(), pending: 0 };
    let (written, end) = thread::scope(|scope| {
        let (stop, lost) = (&stop, &lost);
        let reader = scope.spawn(move || {
            client.follow::<ClientError>(
                request,
                || stop.load(Ordering::Relaxed),
                |answer| {
                    pass_on(answer, &lines, lost);
                    Ok(())
                },
            )
        });
        let written = session.run(&received, lost);
        stop.store(true, Ordering::Relaxed);
        // What waits is not for the file any more, and the reader must not wait for room.
        session.leave_out_rest(received.try_iter().take(WAITING));
        drop(received);
        session.leave_out(lost.swap(0, Ordering::Relaxed));
        // It does not panic.
        (written, reader.join().unwrap_or(Ok(AnswerEnd::new(false))))
    });
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe && error.kind() != STOPPED => {
            Err(CaptureFailure::Write { name: target.name.to_owned(), error })
        }
        _ => {
            // Error lines say why the answer was no success.
            end?;
            Ok(session.captured)
        }
    }
}

/// Passes a line on, but for packets without room.
fn pass_on(answer: Answer, lines: &SyncSender<Answer>, lost: &AtomicU64) {
    let is_packet = matches!(answer, Answer::Captured(_));
    match lines.try_send(answer) {
        Err(TrySendError::Full(_)) if is_packet => {
            lost.fetch_add(1, Ordering::Relaxed);
        }
        // Others are few. Whoever takes them may have gone.
        Err(TrySendError::Full(answer)) => drop(lines.send(answer)),
        Ok(()) | Err(TrySendError::Disconnected(_)) => {}
    }
}

/// The writing half of a capture.
struct CaptureSession<'t> {
    target: CaptureTarget<'t>,
    /// Once the daemon has agreed, so that a refusal leaves the file as it is.
    writer: Option<PcapngWriter<CaptureOutput<'t>>>,
    captured: Captured,
    /// Packets that were left out since the last one that was written.
    pending: u64,
}

impl CaptureSession<'_> {
    fn run(&mut self, received: &Receiver<Answer>, lost: &AtomicU64) -> io::Result<()> {
        loop {
            let answer = match received.recv_timeout(CHECK_INTERVAL) {
                Ok(answer) => Some(answer),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            self.leave_out(lost.swap(0, Ordering::Relaxed));
            match answer {
                Some(answer) => self.take(answer)?,
                None if self.writer.as_ref().is_some_and(|writer| writer.out().is_gone()) => return Ok(()),
                None => {}
            }
            if (self.target.is_interrupted)() {
                return Ok(());
            }
        }
    }

    fn leave_out(&mut self, packets: u64) {
        self.pending += packets;
        self.captured.left_out += packets;
    }

    fn leave_out_rest(&mut self, waiting: impl Iterator<Item = Answer>) {
        for answer in waiting {
            match answer {
                Answer::Captured(_) => self.leave_out(1),
                Answer::Lost(packets) => self.leave_out(packets),
                _ => {}
            }
        }
    }

    /// Takes a line of the answer.
    fn take(&mut self, answer: Answer) -> io::Result<()> {
        match answer {
            Answer::Tap(line) => {
                let output = CaptureOutput::open(self.target)?;
                self.writer = Some(PcapngWriter::new(output, &line.ports, line.snaplen)?);
                (self.target.begun)();
            }
            Answer::Captured(line) => {
                if let Some(writer) = &mut self.writer {
                    let written = writer.packet(&line, std::mem::take(&mut self.pending));
                    match &written {
                        Ok(()) => self.captured.packets += 1,
                        Err(_) => self.captured.left_out += 1,
                    }
                    return written;
                }
            }
            Answer::Lost(packets) => self.leave_out(packets),
            Answer::Error(error) => self.captured.errors.push(error),
            // Of a newer daemon.
            _ => {}
        }
        Ok(())
    }
}

/// The user has interrupted while the file was not ready.
const STOPPED: ErrorKind = ErrorKind::ConnectionAborted;

/// The file of a capture. It is written at once, and waiting for a reader can be interrupted.
struct CaptureOutput<'t> {
    file: OwnedFd,
    is_interrupted: &'t dyn Fn() -> bool,
}

impl<'t> CaptureOutput<'t> {
    /// Opens the file. What it held is replaced, and only its owner may read it: packets have secrets. A pipe or a stream of this process is taken as it
    /// is; a symbolic link is not followed, and a file of another user is refused where others may write.
    fn open(target: CaptureTarget<'t>) -> io::Result<CaptureOutput<'t>> {
        let file = match target.name {
            "-" => rustix::io::dup(io::stdout())?,
            name if is_own_stream(name) => {
                rustix::fs::open(name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?
            }
            name => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
                let private = Mode::RUSR | Mode::WUSR;
                let (directory, target) = Directory::of_file(Path::new(name))?;
                let file = rustix::fs::openat(&directory, &target, flags, private)?;
                // The owner of the file could read the capture.
                directory.refuse_foreign(&target, &file)?;
                if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) == FileType::RegularFile {
                    rustix::fs::fchmod(&file, private)?;
                    rustix::fs::ftruncate(&file, 0)?;
                }
                file
            }
        };
        Ok(CaptureOutput { file, is_interrupted: target.is_interrupted })
    }

    /// Whether the reader of a pipe has gone.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.file, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default())).is_ok()
            && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
    }

    /// Waits until the file takes bytes.
    fn wait(&self) -> io::Result<()> {
        let interval = Timespec { tv_sec: 0, tv_nsec: CHECK_INTERVAL.as_nanos() as i64 };
        loop {
            let mut fds = [PollFd::new(&self.file, PollFlags::OUT)];
            match poll(&mut fds, Some(&interval)) {
                Ok(0) | Err(Errno::INTR) if (self.is_interrupted)() => return Err(STOPPED.into()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Write for CaptureOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait()?;
        Ok(rustix::io::write(&self.file, &bytes[..bytes.len().min(PIPE_BYTES)])?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

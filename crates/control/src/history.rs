//! The history of the policy: who has changed it, when, by which command, and the versions before, to compare and to restore them.
//!
//! The daemon numbers the versions and hands over entries while it is locked, which costs a clone of two shared policies. A thread writes
//! them to the archive and, a line for each, to the audit. If it falls behind, several changes are written as one, so that
//! it holds little memory: the versions between them are listed, but cannot be restored.
//!
//! With a directory ([`History::open`]) the versions are found again after a restart. Otherwise they are in memory.

mod archive;
pub(crate) mod entry;
mod mark;
pub(crate) mod record;
mod segment;

pub use archive::HistoryLimits;

use crate::audit;
use archive::{Archive, LOCK};
use entry::{Entry, EntryContent, HistoryError};
use mark::{MarkedVersion, UnconfirmedMark, is_same, lasting_rules};
use mmb_base::lock;
use mmb_files::{Directory, FileError, LockError, LockFile};
use mmb_log::LogHandle;
use mmb_policy::Policy;
use record::EntryHeader;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Entries that wait with their policies: two versions of a million rules differ by some 80 KB. Later ones are merged.
const MAX_WAITING: usize = 256;

/// The same for the bytes of sets that their policies do not share.
const MAX_SET_BYTES: u64 = 128 << 20;

/// Entries that wait; more are left out.
const MAX_LISTED: usize = 1 << 16;

/// The time that a question waits for entries that are not written yet, and the end for the last ones.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time in which entries gather that are written together, unless there is a question.
const GATHERING: Duration = Duration::from_millis(10);

/// Stack of the thread in bytes.
const STACK_BYTES: usize = 1 << 20;

/// The reason why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenHistoryError {
    /// Another daemon uses it, whose process id this is, if it is known.
    #[error(
        "{path}: another mmb{} keeps its history here; give this one a directory of its own (--history)",
        crate::socket::process_name(*.process)
    )]
    InUse {
        /// The directory.
        path: String,
        /// The other daemon.
        process: Option<u32>,
    },
    /// Other users could change what is restored from it.
    #[error("the history (--history) is not safe here")]
    Unsafe(#[source] FileError),
    /// The system refused.
    #[error("{path}: cannot {what}")]
    Io {
        /// The directory.
        path: String,
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

impl OpenHistoryError {
    /// The directory, and the process if it is known, if another daemon uses the directory.
    pub fn held_resource(&self) -> Option<(String, Option<u32>)> {
        let OpenHistoryError::InUse { path, process } = self else { return None };
        Some((format!("history {path}"), *process))
    }
}

/// The history of one daemon. Its drop writes what is left.
#[derive(Debug)]
pub struct History {
    shared: Arc<SharedHistory>,
    /// The last version of the runs before.
    last: u64,
    /// Locked, as long as the daemon runs.
    _lock: Option<LockFile>,
}

/// The history, for questions.
#[derive(Clone, Debug)]
pub(crate) struct HistoryReader(Arc<SharedHistory>);

#[derive(Debug)]
struct SharedHistory {
    queue: Mutex<EntryQueue>,
    /// The queue has changed.
    changed: Condvar,
    archive: Mutex<Archive>,
    mark: UnconfirmedMark,
    /// Where the audit goes besides the standard error.
    log: OnceLock<LogHandle>,
}

#[derive(Debug, Default)]
struct EntryQueue {
    entries: Vec<Entry>,
    /// Bytes of sets that the policies of the entries do not share, about.
    set_bytes: u64,
    /// Entries that were left out.
    left_out: u64,
    /// The policy before the changes that were left out: the next change is written as the difference from it.
    left_out_from: Option<Arc<Policy>>,
    /// Entries that were handed over, and those of them that are written.
    recorded: u64,
    written: u64,
    has_thread: bool,
    /// Questions that wait for the entries before them.
    questions: usize,
    is_closed: bool,
}

impl History {
    /// A history in memory.
    pub fn in_memory(limits: HistoryLimits) -> History {
        History::new(Archive::in_memory(limits), UnconfirmedMark::default(), (0, None))
    }

    /// Opens the history in a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// Another daemon uses it, or the system refuses.
    pub fn open(directory: &Path, limits: HistoryLimits) -> Result<History, OpenHistoryError> {
        let path = directory.display().to_string();
        let failed =
            |what| move |error| OpenHistoryError::Io { path: directory.display().to_string(), what, error };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed("make the directory"))?;
        let directory = Directory::open(directory).map_err(OpenHistoryError::Unsafe)?;
        // A user who can write to it decides which policy a rollback restores.
        directory.refuse_others().map_err(OpenHistoryError::Unsafe)?;
        let directory = Arc::new(directory);
        let lock = LockFile::take(&directory, LOCK).map_err(|error| match error {
            LockError::Held(process) => OpenHistoryError::InUse { path, process },
            LockError::System(error) => failed("lock it")(error),
        })?;
        let (archive, last) = Archive::open(&directory, limits).map_err(failed("read it"))?;
        let mark = UnconfirmedMark::open(&directory);
        // A version that was not written has its number for ever: the mark is about no other one.
        let marked = mark.version().map_or(0, |marked| marked.version.max(marked.before));
        Ok(History::new(archive, mark, (last.max(marked), Some(lock))))
    }

    fn new(archive: Archive, mark: UnconfirmedMark, (last, lock): (u64, Option<LockFile>)) -> History {
        let archive = Mutex::new(archive);
        let shared = SharedHistory {
            queue: Mutex::default(),
            changed: Condvar::new(),
            archive,
            mark,
            log: OnceLock::new(),
        };
        History { shared: Arc::new(shared), last, _lock: lock }
    }

    /// Has the audit go to the sinks of a log, too.
    pub(crate) fn log_to(&self, log: LogHandle) {
        // The first one stays.
        let _ = self.shared.log.set(log);
    }

    /// Returns the policy to start with instead of that of a file, and why: the file is a policy that was not confirmed in an earlier run.
    /// `None` in place of the policy: none before is kept, and the file is used.
    pub fn instead_of(&self, file: &Policy) -> Option<(Option<Policy>, String)> {
        let MarkedVersion { version, before, .. } = self.shared.mark.version()?;
        let archive = lock(&self.shared.archive);
        // If the version was not written to its end, it is that of the file: it is marked right after it was applied.
        if archive.policy_as_it_was(version).is_ok_and(|unconfirmed| !is_same(&unconfirmed, file)) {
            return None;
        }
        let found = [self.last, before]
            .into_iter()
            .chain(archive.written_before(version))
            .filter(|last| *last != version)
            .find_map(|last| Some((last, archive.policy(last).ok()?)));
        let unconfirmed = format!("the file has version {version} of the policy, which was not confirmed");
        let Some((instead, mut policy)) = found else {
            return Some((None, format!("{unconfirmed}, and no version before it is kept: it is in force")));
        };
        policy.begin_timeouts(file.now_ms);
        Some((Some(policy), format!("{unconfirmed}: version {instead} is in force")))
    }

    /// The last version of the runs before; 0 if there was none.
    pub(crate) fn last_version(&self) -> u64 {
        self.last
    }

    /// Returns the history for questions.
    pub(crate) fn reader(&self) -> HistoryReader {
        HistoryReader(Arc::clone(&self.shared))
    }

    /// Hands over an entry.
    pub(crate) fn record(&self, mut entry: Entry) {
        let mut queue = lock(&self.shared.queue);
        if queue.entries.len() >= MAX_LISTED {
            queue.left_out += 1;
            if let EntryContent::Change(before, _) = entry.content {
                queue.left_out_from.get_or_insert(before);
            }
            return;
        }
        if let EntryContent::Change(before, _) = &mut entry.content
            && let Some(recorded) = queue.left_out_from.take()
        {
            *before = recorded;
        }
        if let EntryContent::Change(before, after) = &entry.content {
            queue.set_bytes += after.set_bytes_beyond(before);
        }
        let is_full = queue.entries.len() >= MAX_WAITING || queue.set_bytes > MAX_SET_BYTES;
        if is_full
            && let EntryContent::Change(before, _) = &mut entry.content
            && let Some(last) = queue.entries.iter_mut().rev().find(|last| last.version.is_some())
            && let EntryContent::Change(before_both, _) = &last.content
        {
            *before = Arc::clone(before_both);
            last.content = EntryContent::Merged;
        }
        queue.entries.push(entry);
        queue.recorded += 1;
        if !queue.has_thread {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("mmb-history".to_owned()).stack_size(STACK_BYTES);
            // Without a thread the entries wait for the next attempt.
            queue.has_thread = thread.spawn(move || shared.run()).is_ok();
        }
        drop(queue);
        self.shared.changed.notify_all();
    }
}

impl Drop for History {
    fn drop(&mut self) {
        lock(&self.shared.queue).is_closed = true;
        self.shared.changed.notify_all();
        // What is not written by then is lost.
        let _ = self.shared.settled();
    }
}

impl SharedHistory {
    /// Writes entries until the history is closed.
    fn run(&self) {
        lock(&self.archive).read_older();
        loop {
            let (entries, left_out) = {
                let queue = lock(&self.queue);
                let waits = |queue: &mut EntryQueue| queue.entries.is_empty() && !queue.is_closed;
                let mut queue = self.changed.wait_while(queue, waits).unwrap_or_else(PoisonError::into_inner);
                if queue.entries.is_empty() {
                    return;
                }
                let gathers = |queue: &mut EntryQueue| {
                    queue.questions == 0 && !queue.is_closed && queue.entries.len() < MAX_WAITING / 2
                };
                let gathered = self.changed.wait_timeout_while(queue, GATHERING, gathers);
                (queue, _) = gathered.unwrap_or_else(PoisonError::into_inner);
                queue.set_bytes = 0;
                (std::mem::take(&mut queue.entries), std::mem::take(&mut queue.left_out))
            };
            let (headers, notes) = {
                let mut archive = lock(&self.archive);
                (archive.append(entries), archive.take_notes())
            };
            lock(&self.queue).written += headers.len() as u64;
            self.changed.notify_all();
            audit::write(&headers, left_out, &notes);
            if let Some(log) = self.log.get() {
                audit::log(&headers, log);
            }
        }
    }

    /// Waits until the entries that are there now are written. Others may come meanwhile.
    ///
    /// # Errors
    /// They are not written after a while.
    fn settled(&self) -> Result<(), HistoryError> {
        let mut queue = lock(&self.queue);
        let recorded = queue.recorded;
        let is_busy = |queue: &mut EntryQueue| queue.has_thread && queue.written < recorded;
        queue.questions += 1;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(queue, PATIENCE, is_busy);
        let (mut queue, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.questions -= 1;
        if timeout.timed_out() { Err(HistoryError::Busy) } else { Ok(()) }
    }
}

impl HistoryReader {
    /// Calls `take` with each entry, the oldest first, and whether its version can be restored.
    ///
    /// # Errors
    /// Entries are still being written.
    pub(crate) fn entries(&self) -> Result<Vec<(EntryHeader, bool)>, HistoryError> {
        self.0.settled()?;
        let archive = lock(&self.0.archive);
        Ok(archive.entries().map(|(header, is_kept)| (header.clone(), is_kept)).collect())
    }

    /// The policy of a version.
    ///
    /// # Errors
    /// It is not kept, or entries are still being written.
    pub(crate) fn policy(&self, version: u64) -> Result<Policy, HistoryError> {
        self.0.settled()?;
        lock(&self.0.archive).policy(version)
    }

    /// Notes on the disk that a version is not confirmed, when it is written itself.
    ///
    /// # Errors
    /// The system refuses, or entries are still being written, or the version before is in no file.
    pub(crate) fn mark_unconfirmed(&self, version: u64, before: u64, policy: &Policy) -> io::Result<()> {
        self.0.settled().map_err(io::Error::other)?;
        self.0.mark.set(Some(MarkedVersion { version, before, rules: lasting_rules(policy) }))?;
        let archive = lock(&self.0.archive);
        match archive.is_in_directory() && !archive.is_written(before) {
            true => Err(io::Error::other(format!("version {before}, the one before, is not written"))),
            false => Ok(()),
        }
    }

    /// Notes that the unconfirmed version is confirmed.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn mark_confirmed(&self) -> io::Result<()> {
        self.0.mark.set(None)
    }

    /// Notes that a policy is in force which nobody has to confirm: a version that was not confirmed once, if it is the same.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn mark_applied(&self, policy: &Policy) -> io::Result<()> {
        let Some(MarkedVersion { version, rules, .. }) = self.0.mark.version() else { return Ok(()) };
        if lasting_rules(policy) != rules {
            return Ok(());
        }
        match lock(&self.0.archive).policy_as_it_was(version) {
            Ok(unconfirmed) if !is_same(&unconfirmed, policy) => Ok(()),
            _ => self.0.mark.set(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::Author;
    use entry::EntryAction;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    /// An entry that the audit has no line for.
    fn entry() -> Entry {
        Entry::new(Author::default(), EntryAction::Start, String::new())
    }

    #[test]
    fn a_question_waits_only_for_the_entries_before_it() {
        let history = History::in_memory(HistoryLimits::MEMORY);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if lock(&history.shared.queue).entries.len() < 1000 {
                        history.record(entry());
                    }
                }
            });
            let begin = Instant::now();
            while lock(&history.shared.queue).recorded == 0 {
                thread::yield_now();
            }
            let answers = [(); 3].map(|()| history.reader().entries().map(|entries| entries.is_empty()));
            done.store(true, Ordering::Relaxed);
            assert!(answers.iter().all(|answer| matches!(answer, Ok(false))), "{answers:?}");
            assert!(begin.elapsed() < PATIENCE);
        });
    }

    /// The versions behind changes that were left out are what they were.
    #[test]
    fn a_change_that_is_left_out_breaks_no_later_one() {
        let policy = |rules: u64| {
            let lines: String = (0..rules).map(|port| format!("add tcp-dport {port} drop\n")).collect();
            Arc::new(mmb_language::parse_policy(&lines).expect("a policy").0)
        };
        let change = |version: u64, content| Entry { version: Some(version), content, ..entry() };
        let history = History::in_memory(HistoryLimits::MEMORY);
        let first = || change(1, EntryContent::Start(policy(1)));
        let next = |version| change(version, EntryContent::Change(policy(version - 1), policy(version)));
        history.record(first());
        history.reader().entries().expect("is written");
        {
            // The thread cannot write.
            let _archive = lock(&history.shared.archive);
            while lock(&history.shared.queue).left_out == 0 {
                history.record(entry());
            }
            (2..=3).for_each(|version| history.record(next(version)));
        }
        history.reader().entries().expect("is written");
        (4..=5).for_each(|version| history.record(next(version)));
        for version in [1, 4, 5] {
            assert_eq!(
                history.reader().policy(version).expect("is kept").rules.len(),
                policy(version).rules.len()
            );
        }
        assert!(matches!(history.reader().policy(3), Err(HistoryError::NotKept(3))));
    }
}

//! The state file of `mmb run --state`: loaded before the first packet, and saved after the last one.
//!
//! The workers' threads do not run then. [`ParkedWorkers`] answers the questions of the control side instead, on its thread.
//!
//! The file exists only while no daemon runs: the daemon removes it when it is ready. After a crash there is none, rather than one of a time
//! when other connections existed.

use crate::output;
use anyhow::Context;
use mmb_base::lock;
use mmb_client::file::{FileContent, FileWriter, is_own_stream};
use mmb_control::{Daemon, state};
use mmb_engine::{Connections, LeftOutConnection, NoCycles, SavedState, Worker};
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The bytes that are read or written at once.
const BUFFER_BYTES: usize = 1 << 18;

/// Workers whose threads do not run.
pub(super) struct ParkedWorkers(Arc<Mutex<Vec<Option<Worker>>>>);

impl ParkedWorkers {
    /// Workers by number; `None` for one whose thread has failed.
    pub(super) fn new(workers: Vec<Option<Worker>>) -> ParkedWorkers {
        ParkedWorkers(Arc::new(Mutex::new(workers)))
    }

    /// Returns the daemon's connections, about which these workers answer. Their clock began at `started`.
    pub(super) fn connections(&self, daemon: &Mutex<Daemon>, started: Instant) -> Connections {
        let workers = Arc::clone(&self.0);
        let drive = move |worker: usize| {
            if let Some(Some(worker)) = lock(&workers).get_mut(worker) {
                worker.process(started.elapsed().as_nanos() as u64, &NoCycles, &mut [], &mut []);
            }
        };
        lock(daemon).engine().connections().driven_by(Arc::new(drive))
    }

    /// Returns the workers, to run them.
    pub(super) fn unpark(self) -> Vec<Worker> {
        std::mem::take(&mut *lock(&self.0)).into_iter().flatten().collect()
    }
}

/// A state file, and the state that it had.
pub(super) struct StateFile {
    path: PathBuf,
    saved: Option<SavedState>,
}

impl StateFile {
    /// Reads the file, with at most so many connections. A file that does not exist yet is no error. One that is damaged is reported
    /// and renamed, since packets must pass after a restart.
    ///
    /// # Errors
    /// The file cannot be opened, or could not be written at the end.
    pub(super) fn open(path: &Path, max: u64) -> anyhow::Result<StateFile> {
        let name = path.display().to_string();
        anyhow::ensure!(!is_own_stream(&name), "--state {name}: a state file is a regular file");
        // The writer of a file that is not finished leaves nothing.
        FileWriter::begin(&name, FileContent::State).context("--state")?;
        let saved = match path.try_exists() {
            Ok(false) => None,
            _ => {
                let file = mmb_files::open_trusted(path).context("--state")?;
                match SavedState::read(&mut BufReader::with_capacity(BUFFER_BYTES, file), max) {
                    Ok(saved) => Some(saved),
                    Err(error) => {
                        set_aside(path, &error);
                        None
                    }
                }
            }
        };
        Ok(StateFile { path: path.to_owned(), saved })
    }

    /// The state that was read.
    pub(super) fn saved(&self) -> Option<&SavedState> {
        self.saved.as_ref()
    }

    /// Restores the connections and the counters of the state. With `verbose`, reports each one that is left out.
    ///
    /// # Errors
    /// A worker does not answer.
    pub(super) fn restore(
        &mut self,
        daemon: &Mutex<Daemon>,
        workers: &ParkedWorkers,
        started: Instant,
        verbose: bool,
    ) -> anyhow::Result<()> {
        let Some(saved) = self.saved.take() else { return Ok(()) };
        let connections = workers.connections(daemon, started);
        let loaded = state::load(daemon, &connections, &saved, &mut |left_out: LeftOutConnection| {
            if verbose {
                output::report_error(mmb_client::left_out(&state::left_out_line(&left_out)).trim_end());
            }
        })?;
        lock(daemon).restore_counters(&saved);
        output::report_error(&format!("{}: {}", self.path.display(), mmb_client::loaded(&loaded)));
        Ok(())
    }

    /// Removes the file: the daemon has its connections now.
    pub(super) fn remove(&self) {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                output::report_error(&format!("{} cannot be removed: {error}", self.path.display()));
            }
            _ => {}
        }
    }

    /// Saves the state.
    ///
    /// # Errors
    /// The file cannot be written, or a worker does not answer.
    pub(super) fn save(
        &self,
        daemon: &Mutex<Daemon>,
        workers: &ParkedWorkers,
        started: Instant,
    ) -> anyhow::Result<()> {
        let name = self.path.display().to_string();
        let connections = workers.connections(daemon, started);
        let mut file = FileWriter::begin(&name, FileContent::State)?;
        let (saved, over) = {
            let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, &mut file);
            let saved = state::save(daemon, &connections, &mut buffered).with_context(|| name.clone())?;
            buffered.flush()?;
            saved
        };
        file.finish()?;
        output::report_error(&format!("{name}: {saved} connections saved"));
        if over > 0 {
            let why = "edits of their bytes were in flight, or a rule had ended them";
            output::report_error(&format!("{name}: {over} of them will be closed: {why}"));
        }
        Ok(())
    }
}

/// Reports a state that cannot be read, and renames its file.
fn set_aside(path: &Path, error: &str) {
    let mut damaged = path.as_os_str().to_owned();
    damaged.push(".damaged");
    let kept = match std::fs::rename(path, &damaged) {
        Ok(()) => format!("; it is kept as {}", Path::new(&damaged).display()),
        Err(why) => format!("; it cannot be renamed to {}: {why}", Path::new(&damaged).display()),
    };
    output::report_error(&format!("{}: {error}; starting without its connections{kept}", path.display()));
}

//! The note on the disk that a version of the policy was not confirmed, so that a restart does not make it permanent: the policy file may hold it.
//!
//! The file exists from the change to its confirmation, also after the version was taken back. It is replaced as a whole.

use mmb_base::lock;
use mmb_files::Directory;
use mmb_language::Print;
use mmb_policy::Policy;
use mmb_policy::sets::NamedSet;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

/// The name of the file.
pub(super) const FILE: &str = "unconfirmed";

/// The permissions of the file.
const MODE: u32 = 0o600;

/// The most bytes of the file that are read.
const MAX_FILE_BYTES: u64 = 4096;

/// A version that was not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MarkedVersion {
    pub(super) version: u64,
    /// The version before it.
    pub(super) before: u64,
    /// The rules of the version, without those that drain.
    pub(super) rules: usize,
}

/// The note; in memory too, where there is no directory.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedMark {
    directory: Option<Arc<Directory>>,
    version: Mutex<Option<MarkedVersion>>,
}

impl UnconfirmedMark {
    /// Reads the note in a directory. One that is broken marks nothing.
    pub(super) fn open(directory: &Arc<Directory>) -> UnconfirmedMark {
        let mut text = Vec::new();
        if let Ok(file) = directory.open_file(FILE, OFlags::RDONLY) {
            // A longer file is cut, and then names no version.
            let _ = file.take(MAX_FILE_BYTES).read_to_end(&mut text);
        }
        let version = Mutex::new(serde_json::from_slice(&text).ok());
        UnconfirmedMark { directory: Some(Arc::clone(directory)), version }
    }

    pub(super) fn version(&self) -> Option<MarkedVersion> {
        *lock(&self.version)
    }

    /// Marks a version, or none.
    pub(super) fn set(&self, version: Option<MarkedVersion>) -> io::Result<()> {
        let mut marked = lock(&self.version);
        *marked = version;
        let Some(directory) = &self.directory else { return Ok(()) };
        let Some(version) = version else {
            return match directory.remove(FILE) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(error) => Err(error.into()),
            };
        };
        let temporary = format!(".policy-{FILE}.tmp");
        // A crash may have left one behind.
        let _ = directory.remove(&temporary);
        let mut file = directory.create_file(&temporary, OFlags::WRONLY, MODE)?;
        file.write_all(&serde_json::to_vec(&version)?)?;
        file.sync_all()?;
        Ok(directory.rename(&temporary, FILE)?)
    }
}

/// The number of a policy's rules, without those that drain.
pub(super) fn lasting_rules(policy: &Policy) -> usize {
    policy.rules.iter().filter(|rule| !rule.draining).count()
}

/// Whether two policies are the same but for the numbers of their rules, rules that drain, and `set poll`, which the command line has too.
pub(super) fn is_same(one: &Policy, other: &Policy) -> bool {
    let settings = |policy: &Policy| {
        let mut settings = policy.settings.clone();
        settings.poll = one.settings.poll;
        settings
    };
    let rules = |policy: &Policy| {
        let rules = policy.rules.iter().filter(|rule| !rule.draining);
        let mut rules: Vec<String> = rules.map(|rule| rule.text().to_string()).collect();
        rules.sort_unstable();
        rules
    };
    settings(one) == settings(other)
        && one.ports == other.ports
        && one.lists == other.lists
        && same_elements(one, other)
        && rules(one) == rules(other)
}

/// Whether the sets of two policies have the same elements. When they expire does not count: the times of a file begin when it is read.
fn same_elements(one: &Policy, other: &Policy) -> bool {
    let same = |name: &String, set: &NamedSet| {
        let other = other.sets.get(name);
        other.is_some_and(|other| set.len() == other.len() && NamedSet::diff(set, other).0.is_empty())
    };
    one.sets.len() == other.sets.len() && one.sets.iter().all(|(name, set)| same(name, set))
}

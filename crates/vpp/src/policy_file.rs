//! The policy that VPP starts with.

use crate::sys::{Level, Main};
use mmb_policy::Policy;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A file that holds more than this is no policy: a million rules take a tenth of it.
const MAX_BYTES: u64 = 1 << 30;

/// Why a file is no policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// It cannot be read.
    #[error("policy {}: {error}", .path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// What it says is wrong; each error with its line, as `mmb check` shows it.
    #[error("the policy is wrong\n{0}")]
    Wrong(String),
}

/// Reads a policy; what is remarkable about it is told in VPP's log.
///
/// # Errors
/// It cannot be read, or is wrong.
pub(crate) fn load(main: Main, path: &Path) -> Result<Policy, PolicyError> {
    let text = read(path).map_err(|error| PolicyError::Unread { path: path.to_owned(), error })?;
    let name = path.display().to_string();
    match Policy::parse(&text) {
        Ok((policy, notes)) => {
            notes.iter().for_each(|note| main.log(Level::Notice, note.render(&name, &text).trim_end()));
            Ok(policy)
        }
        Err(errors) => {
            let mut told = String::new();
            errors.iter().for_each(|error| told.push_str(&error.render(&name, &text)));
            if errors.len() > 1 {
                // Writing to a string does not fail.
                let _ = writeln!(told, "{name}: {} errors", errors.len());
            }
            Err(PolicyError::Wrong(told))
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than a policy can be"));
    }
    Ok(text)
}

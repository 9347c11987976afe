//! Who makes a change, as the kernel recorded it when the client connected.

use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixStream;

/// The process at the other end of a connection, or the daemon itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// The user; `None`: the system does not tell.
    pub uid: Option<u32>,
    /// The process, which may have ended.
    pub pid: Option<u32>,
}

impl Author {
    /// Returns the process that connected.
    pub(crate) fn of(stream: &UnixStream) -> Author {
        match rustix::net::sockopt::socket_peercred(stream) {
            Ok(peer) => Author {
                uid: Some(peer.uid.as_raw()),
                pid: u32::try_from(peer.pid.as_raw_nonzero().get()).ok(),
            },
            Err(_) => Author::default(),
        }
    }

    /// Returns the daemon, which acts on a signal or when a time is over.
    pub fn daemon() -> Author {
        Author { uid: Some(rustix::process::geteuid().as_raw()), pid: Some(std::process::id()) }
    }
}

/// Names of users, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct UserNames(HashMap<u32, Option<String>>);

impl UserNames {
    /// The most names that are kept.
    const MAX: usize = 1024;

    /// Returns the name of a user in /etc/passwd. Users of a directory service are known by their number only.
    pub(crate) fn name(&mut self, uid: u32) -> Option<String> {
        if self.0.len() >= UserNames::MAX {
            self.0.clear();
        }
        self.0.entry(uid).or_insert_with(|| look_up(uid)).clone()
    }
}

fn look_up(uid: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut parts = line.split(':');
        let (name, _, number) = (parts.next()?, parts.next()?, parts.next()?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_the_process_at_the_other_end() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        assert_eq!(Author::of(&ours), Author::daemon(), "this process itself");
        let mut names = UserNames::default();
        assert_eq!(names.name(0).as_deref(), Some("root"));
        assert_eq!((names.name(u32::MAX - 7), names.name(u32::MAX - 7)), (None, None));
    }
}

//! The claim of a kernel interface: one mmb of a network namespace has it at a time.
//!
//! A claim is a listening socket with an abstract name of the network namespace (unix(7)). The kernel releases the
//! name when the process ends, also after a crash, and reports who listens (`SO_PEERCRED`). Any user can take such a
//! name, so each interface has several. A name whose owner is neither root nor the user of this process is no claim:
//! the next name is taken.
#![allow(unsafe_code)]

use crate::error::PortError;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// The number of names of an interface. If other users take all of them, the interface is used without a claim.
const NAMES: usize = 8;

/// The claim of an interface. It ends when this value is dropped.
#[derive(Debug)]
pub struct InterfaceClaim {
    _listener: Option<UnixListener>,
}

/// The owner of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NameHolder {
    user: u32,
    process: i32,
}

impl InterfaceClaim {
    /// Claims an interface for this process among all mmbs of the network namespace.
    ///
    /// # Errors
    /// [`PortError::InUse`] if another mmb has it.
    pub(crate) fn new(interface: &str) -> Result<InterfaceClaim, PortError> {
        let failed = |_| PortError::system(format!("interface {interface}: claiming it"));
        let (mut listener, mut own) = (None, NAMES);
        for number in 0..NAMES {
            match UnixListener::bind_addr(&address(interface, number).map_err(failed)?) {
                Ok(bound) => {
                    (listener, own) = (Some(bound), number);
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(failed(error)),
            }
        }
        // Another mmb may have any of the other names.
        for number in (0..NAMES).filter(|number| *number != own) {
            let holder = holder(interface, number).map_err(failed)?;
            if let Some(NameHolder { process, .. }) = holder.filter(NameHolder::is_trusted) {
                let process = u32::try_from(process).ok().filter(|process| *process > 0);
                return Err(PortError::InUse { interface: interface.to_owned(), process });
            }
        }
        Ok(InterfaceClaim { _listener: listener })
    }
}

impl NameHolder {
    /// Whether the claim of this owner counts: that of root, and of the user that mmb runs as.
    fn is_trusted(&self) -> bool {
        // SAFETY: the call only returns a number.
        self.user == 0 || self.user == unsafe { libc::geteuid() }
    }
}

fn name(interface: &str, number: usize) -> String {
    format!("mmb-interface-{interface}/{number}")
}

fn address(interface: &str, number: usize) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name(interface, number))
}

/// The owner of a name. `None` if nobody listens there, or if the queue of connections to the name is full.
fn holder(interface: &str, number: usize) -> io::Result<Option<NameHolder>> {
    let name = name(interface, number);
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // An abstract name begins with a zero byte.
    for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of::<libc::sa_family_t>() + 1 + name.len();
    // SAFETY: the descriptor is new and belongs to the value alone; `address` is valid for `length` bytes,
    // since names of interfaces are shorter than its path; the kernel writes no more than the size of the
    // credentials.
    unsafe {
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = libc::socket(libc::AF_UNIX, flags, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        if libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length as libc::socklen_t) < 0 {
            return Ok(None);
        }
        let mut found: libc::ucred = std::mem::zeroed();
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        if libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut found).cast(), &raw mut size) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Some(NameHolder { user: found.uid, process: found.pid }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Binds a name as another user, and keeps it until the descriptor is closed. `None`: only root becomes
    /// another user.
    fn bind_as_another(interface: &str, number: usize) -> Option<UnixListener> {
        let address = address(interface, number).expect("an address");
        let thread = std::thread::spawn(move || {
            // SAFETY: changes the user of this thread alone, which ends soon.
            (unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) } == 0)
                .then(|| UnixListener::bind_addr(&address).expect("binds"))
        });
        thread.join().expect("no panic")
    }

    #[test]
    fn an_interface_is_claimed_once() {
        let claim = InterfaceClaim::new("claimed-once").expect("free");
        let error = InterfaceClaim::new("claimed-once").expect_err("taken");
        let own = std::process::id();
        assert!(
            matches!(error, PortError::InUse { process: Some(process), .. } if process == own),
            "{error}"
        );
        assert!(error.to_string().contains(&format!("another mmb (process {own})")), "{error}");
        InterfaceClaim::new("claimed-twice").expect("another interface is free");
        drop(claim);
        InterfaceClaim::new("claimed-once").expect("free again");
    }

    #[test]
    fn the_names_of_another_user_are_no_claim() {
        let Some(theirs) = bind_as_another("claimed-by-user", 0) else { return };
        let claim = InterfaceClaim::new("claimed-by-user").expect("they cannot keep us from it");
        drop(theirs);
        // The first name is free now, and the claim is found at another one.
        assert!(matches!(InterfaceClaim::new("claimed-by-user"), Err(PortError::InUse { .. })));
        drop(claim);
        let all: Vec<_> = (0..NAMES).map(|number| bind_as_another("claimed-by-user", number)).collect();
        InterfaceClaim::new("claimed-by-user").expect("it is used without a claim");
        drop(all);
    }
}

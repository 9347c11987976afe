//! The claim of a kernel interface: one mmb of a network namespace has it at a time.
//!
//! A claim is a listening socket with an abstract name (unix(7)). Such a name belongs to a network namespace, and the
//! kernel releases it when the process ends, also after a crash.
//!
//! Any user can bind such a name, so a socket counts only if it belongs to root or to the user of this process. The
//! kernel lists the sockets with their users. A connection reports the user too (`SO_PEERCRED`), but any user can
//! fill the queue of a listener, and then nobody can connect. A connection therefore only looks up the process for
//! a message.
//!
//! Every start first tries to bind the same name. Of two starts at the same moment one gets it, and the other one
//! finds it in the list. If another user has that name, each start binds a random one. Both bind before they read
//! the list, so at least one finds the other one there. The lower name wins.
#![allow(unsafe_code)]

use crate::error::PortError;
use crate::unix_diag::{AbstractSocket, abstract_sockets};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread::sleep;
use std::time::Duration;

/// How often binding is tried again if the first name changes hands meanwhile.
const ATTEMPTS: usize = 16;

/// How often the list is read while another start may still release its higher name.
const LOOKS: usize = 100;

/// The time between two reads of the list.
const PAUSE: Duration = Duration::from_millis(10);

/// The claim of an interface. It ends when this value is dropped.
#[derive(Debug)]
pub struct InterfaceClaim {
    _listener: UnixListener,
}

impl InterfaceClaim {
    /// Claims an interface for this process among all mmbs of the network namespace.
    ///
    /// # Errors
    /// [`PortError::InUse`] if another mmb has it.
    pub(crate) fn new(interface: &str) -> Result<InterfaceClaim, PortError> {
        let (listener, own) = bind(interface)?;
        for look in 1.. {
            let others = claims(interface)?.unwrap_or_default().into_iter();
            let lowest = others
                .filter(|other| other.name != own && is_trusted(other))
                .min_by(|a, b| a.name.cmp(&b.name));
            match lowest {
                None => break,
                Some(other) if other.name < own || look == LOOKS => {
                    return Err(in_use(interface, &other.name));
                }
                Some(_) => sleep(PAUSE),
            }
        }
        Ok(InterfaceClaim { _listener: listener })
    }
}

/// Binds the first name of an interface, or a random one if another user has the first.
fn bind(interface: &str) -> Result<(UnixListener, String), PortError> {
    let failed = |error| failed(interface, &error);
    let first = format!("{}0", prefix(interface));
    for _ in 0..ATTEMPTS {
        if let Some(listener) = bind_name(&first).map_err(failed)? {
            return Ok((listener, first));
        }
        // Without a list nobody knows who has the name, and it counts.
        let Some(claims) = claims(interface)? else { break };
        if let Some(other) = claims.iter().find(|claim| is_trusted(claim)) {
            return Err(in_use(interface, &other.name));
        }
        if claims.iter().any(|claim| claim.name == first) {
            let random = format!("{}{:016x}", prefix(interface), random().map_err(failed)?);
            if let Some(listener) = bind_name(&random).map_err(failed)? {
                return Ok((listener, random));
            }
        }
    }
    Err(in_use(interface, &first))
}

/// Listens at an abstract name. `None` if it is in use.
fn bind_name(name: &str) -> io::Result<Option<UnixListener>> {
    match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// The sockets of all users with names of an interface. `None` if the kernel has no list of them: then nobody binds
/// any name but the first.
fn claims(interface: &str) -> Result<Option<Vec<AbstractSocket>>, PortError> {
    abstract_sockets(&prefix(interface)).map_err(|error| failed(interface, &error))
}

/// Whether a claim counts: that of root, of the user that mmb runs as, and of a user that the kernel does not report.
fn is_trusted(claim: &AbstractSocket) -> bool {
    // SAFETY: the call only returns a number.
    claim.user.is_none_or(|user| user == 0 || user == unsafe { libc::geteuid() })
}

fn prefix(interface: &str) -> String {
    format!("mmb-interface-{interface}/")
}

fn in_use(interface: &str, name: &str) -> PortError {
    PortError::InUse { interface: interface.to_owned(), process: listener_process(name) }
}

fn failed(interface: &str, error: &io::Error) -> PortError {
    PortError::refused(format!("interface {interface}: claiming it"), error)
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: memory of the length given.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(u64::from_ne_bytes(bytes)) }
}

/// The process that listens at an abstract name. `None` if nobody does, or if its queue of connections is full.
fn listener_process(name: &str) -> Option<u32> {
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // An abstract name begins with a zero byte.
    for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of::<libc::sa_family_t>() + 1 + name.len();
    if length > size_of::<libc::sockaddr_un>() {
        return None;
    }
    // SAFETY: the descriptor is new and belongs to the value alone; `address` is valid for `length` bytes; the kernel
    // writes no more than the size of the credentials.
    unsafe {
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = libc::socket(libc::AF_UNIX, flags, 0);
        if socket < 0 {
            return None;
        }
        let socket = OwnedFd::from_raw_fd(socket);
        if libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length as libc::socklen_t) < 0 {
            return None;
        }
        let mut found: libc::ucred = std::mem::zeroed();
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        if libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut found).cast(), &raw mut size) < 0 {
            return None;
        }
        // A process outside the process namespace has the number 0.
        u32::try_from(found.pid).ok().filter(|process| *process > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Barrier;
    use std::thread;

    /// Binds a name as another user, and keeps it until the descriptor is closed. `None`: only root becomes
    /// another user.
    fn bind_as_another(name: &str) -> Option<UnixListener> {
        // SAFETY: the call only returns a number.
        if unsafe { libc::geteuid() } != 0 {
            return None;
        }
        let address = SocketAddr::from_abstract_name(name).expect("an address");
        let thread = thread::spawn(move || {
            // SAFETY: changes the user of this thread alone, which ends soon.
            (unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) } == 0)
                .then(|| UnixListener::bind_addr(&address).expect("binds"))
        });
        thread.join().expect("no panic")
    }

    fn first_name(interface: &str) -> String {
        format!("{}0", prefix(interface))
    }

    /// Connects until the queue of the listener is full. The connections are closed again, and stay in the queue.
    fn fill_queue(listener: &UnixListener, name: &str) {
        // SAFETY: a call on an open listener, which changes only the length of its queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 3) }, 0);
        let address = SocketAddr::from_abstract_name(name).expect("an address");
        for _ in 0..4 {
            UnixStream::connect_addr(&address).expect("connects");
        }
        assert_eq!(listener_process(name), None, "the queue is full");
    }

    /// Starts several claims at the same moment, and returns how many got the interface.
    fn winners(interface: &str) -> usize {
        let barrier = Barrier::new(3);
        let claim = || {
            barrier.wait();
            InterfaceClaim::new(interface)
        };
        thread::scope(|scope| {
            let starts: Vec<_> = (0..3).map(|_| scope.spawn(claim)).collect();
            let claims: Vec<_> = starts.into_iter().map(|start| start.join().expect("no panic")).collect();
            claims.iter().filter(|claim| claim.is_ok()).count()
        })
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
    fn refused_claims_do_not_use_up_the_claim() {
        let claim = InterfaceClaim::new("claimed-often").expect("free");
        // More than the longest queue of a listener (`net.core.somaxconn`), whose connections nobody accepts.
        for attempt in 0..5_001 {
            let refused = InterfaceClaim::new("claimed-often");
            assert!(matches!(refused, Err(PortError::InUse { .. })), "attempt {attempt}: {refused:?}");
        }
        drop(claim);
        InterfaceClaim::new("claimed-often").expect("free again");
    }

    #[test]
    fn a_claim_with_a_full_queue_counts() {
        let claim = InterfaceClaim::new("claimed-full").expect("free");
        fill_queue(&claim._listener, &first_name("claimed-full"));
        assert!(matches!(InterfaceClaim::new("claimed-full"), Err(PortError::InUse { .. })));
    }

    #[test]
    fn a_name_that_is_bound_counts_before_it_listens() {
        let name = first_name("claimed-early");
        let socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("an address"));
        let socket = socket.expect("binds");
        // SAFETY: a call on an open socket. After it, a connection is refused as before `listen`.
        assert_eq!(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RD) }, 0);
        assert_eq!(listener_process(&name), None);
        assert!(matches!(InterfaceClaim::new("claimed-early"), Err(PortError::InUse { .. })));
    }

    #[test]
    fn the_names_of_another_user_are_no_claim() {
        let interface = "claimed-by-user";
        let first = first_name(interface);
        let Some(theirs) = bind_as_another(&first) else { return };
        fill_queue(&theirs, &first);
        let others: Vec<_> =
            (1..=100).map(|number| bind_as_another(&format!("{}{number}", prefix(interface)))).collect();
        let claim = InterfaceClaim::new(interface).expect("they cannot keep us from it");
        assert!(matches!(InterfaceClaim::new(interface), Err(PortError::InUse { process: Some(_), .. })));
        drop((theirs, others));
        // The first name is free now, and the claim is found at another one.
        assert!(matches!(InterfaceClaim::new(interface), Err(PortError::InUse { process: Some(_), .. })));
        drop(claim);
        InterfaceClaim::new(interface).expect("free again");
    }

    #[test]
    fn a_start_with_the_first_name_waits_for_another_start_to_give_up() {
        let interface = "claimed-in-turn";
        let higher = bind_name(&format!("{}1", prefix(interface))).expect("binds").expect("free");
        thread::scope(|scope| {
            let start = scope.spawn(|| InterfaceClaim::new(interface));
            while listener_process(&first_name(interface)).is_none() && !start.is_finished() {
                thread::yield_now();
            }
            drop(higher);
            start.join().expect("no panic").expect("the other start has given up");
        });
    }

    #[test]
    fn a_start_finds_a_claim_with_a_higher_name() {
        let interface = "claimed-higher";
        let _higher = bind_name(&format!("{}1", prefix(interface))).expect("binds").expect("free");
        assert!(matches!(InterfaceClaim::new(interface), Err(PortError::InUse { process: Some(_), .. })));
    }

    #[test]
    fn of_starts_at_the_same_moment_one_wins() {
        for round in 0..100 {
            assert_eq!(winners("claimed-at-once"), 1, "round {round}");
        }
        let Some(theirs) = bind_as_another(&first_name("claimed-at-once")) else { return };
        for round in 0..20 {
            assert_eq!(winners("claimed-at-once"), 1, "round {round}, with the first name of another user");
        }
        drop(theirs);
    }
}

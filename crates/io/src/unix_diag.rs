//! The sockets with abstract names of the network namespace, with the user of each (sock_diag(7), `unix_diag`).

use crate::netlink;
use std::io;

/// The request and each message of the answer (`SOCK_DIAG_BY_FAMILY`).
const BY_FAMILY: u16 = 20;

/// Which attributes are requested (`UDIAG_SHOW_NAME`, `UDIAG_SHOW_UID`), and those of the answer.
const SHOW: u32 = 0x01 | 0x40;
const NAME: u16 = 0;
const USER: u16 = 7;

/// The states of a socket that is bound (`TCP_CLOSE`), and of one that listens. Others also have names: the two
/// ends of a connection to a listener.
const STATES: u32 = 1 << 7 | 1 << 10;

/// A header, then `struct unix_diag_msg`: the attributes of an answer begin after them.
const FIXED: usize = 16 + 16;

/// A socket that has an abstract name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AbstractSocket {
    pub(crate) name: String,
    /// The user that made the socket. `None`: the kernel is older than Linux 5.3 and does not report it.
    pub(crate) user: Option<u32>,
}

/// The bound sockets of every type whose abstract names begin with `prefix`. `None` if the kernel has no such list
/// (`CONFIG_UNIX_DIAG`).
///
/// # Errors
/// A refusal by the kernel.
pub(crate) fn abstract_sockets(prefix: &str) -> io::Result<Option<Vec<AbstractSocket>>> {
    let mut found = Vec::new();
    let visit =
        |message: &[u8]| found.extend(parse(message).filter(|socket| socket.name.starts_with(prefix)));
    let listed =
        netlink::open(libc::NETLINK_SOCK_DIAG).and_then(|socket| netlink::list(&socket, &request(), visit));
    match listed {
        Ok(()) => Ok(Some(found)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EPROTONOSUPPORT)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn request() -> Vec<u8> {
    // struct unix_diag_req: family, protocol, padding, states, inode, show, cookie.
    let mut content = vec![libc::AF_UNIX as u8, 0, 0, 0];
    for field in [STATES, 0, SHOW, u32::MAX, u32::MAX] {
        content.extend(field.to_ne_bytes());
    }
    netlink::message(BY_FAMILY, libc::NLM_F_REQUEST | libc::NLM_F_DUMP, &content)
}

/// The socket that a message describes. `None` if it has no abstract name.
fn parse(message: &[u8]) -> Option<AbstractSocket> {
    let attributes = message.get(FIXED..)?;
    // The zero byte before an abstract name is part of the attribute.
    let name = netlink::attribute(attributes, NAME)?.strip_prefix(b"\0")?;
    let name = std::str::from_utf8(name).ok()?.to_owned();
    let user = netlink::attribute(attributes, USER);
    Some(AbstractSocket {
        name,
        user: user.and_then(|id| id.first_chunk()).map(|id| u32::from_ne_bytes(*id)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

    fn address(name: &str) -> SocketAddr {
        SocketAddr::from_abstract_name(name).expect("an address")
    }

    #[test]
    fn bound_sockets_are_listed_with_their_user_and_connections_are_not() {
        let prefix = format!("mmb-unix-diag-{}/", std::process::id());
        let [first, second] = ["a", "b"].map(|name| format!("{prefix}{name}"));
        let listener = UnixListener::bind_addr(&address(&first)).expect("binds");
        let _bound = UnixDatagram::bind_addr(&address(&second)).expect("binds");
        let connections = [(); 2].map(|()| UnixStream::connect_addr(&address(&first)).expect("connects"));
        let _accepted = listener.accept().expect("accepts");
        let Some(mut found) = abstract_sockets(&prefix).expect("lists") else { return };
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("there"));
        assert_eq!(found, [first, second].map(|name| AbstractSocket { name, user: Some(user) }));
        drop((listener, connections));
        assert_eq!(abstract_sockets(&prefix).expect("lists").expect("as before").len(), 1);
    }

    #[test]
    fn a_long_list_is_complete() {
        let prefix = format!("mmb-unix-diag-long-{}/", std::process::id());
        // The names alone are longer than a datagram of the kernel.
        let names: Vec<String> = (0..500).map(|number| format!("{prefix}{number:080}")).collect();
        let _bound: Vec<_> =
            names.iter().map(|name| UnixDatagram::bind_addr(&address(name)).expect("binds")).collect();
        let Some(found) = abstract_sockets(&prefix).expect("lists") else { return };
        let mut found: Vec<String> = found.into_iter().map(|socket| socket.name).collect();
        found.sort();
        assert_eq!(found, names);
    }

    #[test]
    fn sockets_without_an_abstract_name_and_short_messages_are_skipped() {
        let message = |name: &[u8]| {
            let attributes =
                [netlink::attribute_bytes(NAME, name), netlink::attribute_bytes(USER, &9u32.to_ne_bytes())];
            netlink::message(BY_FAMILY, 0, &[&[0; 16][..], &attributes.concat()].concat())
        };
        let socket = AbstractSocket { name: "x".into(), user: Some(9) };
        assert_eq!(parse(&message(b"\0x")), Some(socket.clone()));
        assert_eq!(parse(&message(b"/run/x\0")), None);
        assert_eq!(parse(&message(b"\0\xff")), None);
        assert_eq!(parse(&message(b"\0x")[..FIXED + 8]), Some(AbstractSocket { user: None, ..socket }));
        assert_eq!(parse(&message(b"\0x")[..FIXED]), None);
    }
}

//! Notifications to the service manager (`sd_notify(3)`): a line of text to the socket in `NOTIFY_SOCKET`, if it is set.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The daemon is ready.
pub(super) const READY: &str = "READY=1";
/// The daemon is about to end.
pub(super) const STOPPING: &str = "STOPPING=1";

/// Sends a notification. A failure is ignored.
pub(super) fn notify(state: &str) {
    if let Some(place) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = send(&place, state);
    }
}

fn send(place: &OsStr, state: &str) -> std::io::Result<()> {
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_sent_to_sockets_with_and_without_a_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let name = format!("mmb-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).expect("a name");
        for (socket, place) in [
            (UnixDatagram::bind(&path), path.as_os_str().to_owned()),
            (UnixDatagram::bind_addr(&abstract_name), format!("@{name}").into()),
        ] {
            let socket = socket.expect("bound");
            send(&place, READY).expect("sent");
            let mut text = [0; 64];
            let length = socket.recv(&mut text).expect("received");
            assert_eq!(&text[..length], READY.as_bytes());
        }
    }

    #[test]
    fn nobody_there_is_an_error_and_no_panic() {
        assert!(send(OsStr::new("/nonexistent/notify"), READY).is_err());
        assert!(send(OsStr::new(""), READY).is_err());
    }
}

//! Datagrams to a socket of this host or by UDP: one for each record.

use super::contract::Sink;
use crate::record::Record;
use crate::spec::Peer;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

/// How long a send may wait for a receiver on this host that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the first datagram of a socket waits for the error of a peer that is not there (ICMP, RFC 1122 section 4.1.3.3).
const FIRST_ANSWER: Duration = Duration::from_millis(100);

/// The form of a record in a datagram.
pub(super) trait DatagramFormat: Send {
    /// Appends a record.
    fn write(&mut self, record: &Record, out: &mut Vec<u8>);
}

/// Sends each record in a datagram.
pub(super) struct DatagramSink<F> {
    transport: Transport,
    format: F,
    datagram: Vec<u8>,
}

impl<F: DatagramFormat> DatagramSink<F> {
    /// To a socket of this host.
    pub(super) fn new(path: &Path, format: F) -> DatagramSink<F> {
        DatagramSink::to(&Peer::Unix(path.to_owned()), format)
    }

    pub(super) fn to(peer: &Peer, format: F) -> DatagramSink<F> {
        DatagramSink { transport: Transport::new(peer), format, datagram: Vec::new() }
    }
}

impl<F: DatagramFormat> Sink for DatagramSink<F> {
    fn write(&mut self, records: &[Record]) -> io::Result<usize> {
        let Some(record) = records.first() else { return Ok(0) };
        self.datagram.clear();
        self.format.write(record, &mut self.datagram);
        self.transport.send(&self.datagram).map(|()| 1)
    }
}

/// A way to a peer that may come and go.
pub(super) struct Transport {
    peer: Peer,
    socket: Option<Socket>,
}

enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Transport {
    pub(super) fn new(peer: &Peer) -> Transport {
        Transport { peer: peer.clone(), socket: None }
    }

    /// Sends a datagram. UDP tells of a peer that is not there with the first datagram or with a later one, if at all.
    ///
    /// # Errors
    /// The peer is not there, or does not read. The next call tries again.
    pub(super) fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let (socket, is_new) = match &self.socket {
            Some(socket) => (socket, false),
            None => (&*self.socket.insert(connect(&self.peer)?), true),
        };
        let sent = match socket {
            Socket::Unix(socket) => socket.send(datagram).map(drop),
            Socket::Udp(socket) => socket.send(datagram).and_then(|_| match is_new {
                true => await_refusal(socket),
                false => Ok(()),
            }),
        };
        // A name may mean another address by now, and a path another socket.
        sent.inspect_err(|_| self.socket = None)
    }
}

/// Waits for the error that a datagram may bring.
fn await_refusal(socket: &UdpSocket) -> io::Result<()> {
    socket.set_read_timeout(Some(FIRST_ANSWER))?;
    match socket.recv(&mut [0]) {
        Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Err(error)
        }
        Err(_) | Ok(_) => Ok(()),
    }
}

fn connect(peer: &Peer) -> io::Result<Socket> {
    Ok(match peer {
        Peer::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.set_write_timeout(Some(SEND_TIMEOUT))?;
            socket.connect(path)?;
            Socket::Unix(socket)
        }
        Peer::Udp(peer) => {
            let address = peer.to_socket_addrs()?.next();
            let address = address.ok_or_else(|| io::Error::other(format!("{peer} has no address")))?;
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any)?;
            socket.set_write_timeout(Some(SEND_TIMEOUT))?;
            socket.connect(address)?;
            Socket::Udp(socket)
        }
    })
}

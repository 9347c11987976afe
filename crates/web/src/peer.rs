//! The other end of a connection: its name for the record of changes, and its share of the connections.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections of one address at once, or of one /64 of IPv6. A browser uses six.
const MAX_PER_PEER: usize = 32;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Address(SocketAddr),
    /// A process of this machine, with its user.
    Process {
        pid: Option<i32>,
        uid: u32,
    },
    Unknown,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::Process { pid: Some(pid), uid } => write!(f, "process {pid} of user {uid}"),
            Peer::Process { pid: None, uid } => write!(f, "user {uid}"),
            Peer::Unknown => f.write_str("unknown"),
        }
    }
}

/// How many connections each address has. This machine's own addresses have no share of their own: proxies connect from there.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerPlaces(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection that is counted for its peer until this is dropped.
#[derive(Debug)]
pub(crate) struct PeerPlace {
    places: PeerPlaces,
    peer: IpAddr,
}

impl PeerPlaces {
    /// A place for a connection; `Some(None)` if its peer has no share. `None`: the peer has all that it gets.
    #[expect(clippy::option_option, reason = "refused, not counted and counted are three")]
    pub(crate) fn take(&self, address: IpAddr) -> Option<Option<PeerPlace>> {
        let address = address.to_canonical();
        if address.is_loopback() {
            return Some(None);
        }
        let peer = network(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(peer).or_default();
        if *count == MAX_PER_PEER {
            return None;
        }
        *count += 1;
        Some(Some(PeerPlace { places: self.clone(), peer }))
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut counts = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

/// What counts as one peer: an address of IPv4, 64 bits of one of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_share_of_the_connections() {
        let places = PeerPlaces::default();
        let take = |address: &str| places.take(address.parse().expect("an address"));
        let mut held: Vec<_> = (0..MAX_PER_PEER).map(|_| take("2001:db8::1").expect("a place")).collect();
        assert!(take("2001:db8::ffff:2").is_none(), "the same network");
        assert!(take("2001:db8:0:1::1").is_some() && take("192.0.2.1").is_some());
        held.pop();
        held.extend([take("2001:db8::2").expect("one has become free")]);
        assert!(take("2001:db8::1").is_none());
        drop(held);
        assert!(places.0.lock().expect("not poisoned").is_empty(), "nothing remains");
        let local: Vec<_> = (0..1000).map(|_| take("127.0.0.1")).collect();
        assert!(local.iter().all(|place| matches!(place, Some(None))));
        let mapped: Vec<_> = (0..MAX_PER_PEER).map(|_| take("::ffff:192.0.2.1")).collect();
        assert!(
            mapped.iter().all(Option::is_some) && take("192.0.2.1").is_none(),
            "one address in two forms"
        );
    }
}

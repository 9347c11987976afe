//! The addresses of connections whose flow line has no room for them.

use crate::tuple::has_common_ports;
use crate::{Connection, Direction, Tuple};

/// The addresses of both tuples of a connection.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct WideTuples([[u128; 2]; 2]);

impl WideTuples {
    /// The addresses of the tuple of a direction.
    #[inline(always)]
    pub(crate) fn addresses(&self, direction: Direction) -> [u128; 2] {
        self.0[direction as usize]
    }
}

/// The addresses of a connection if its flow line has no room for them.
pub(crate) fn wide_tuples(connection: &Connection) -> Option<WideTuples> {
    let tuples = connection.tuples();
    let addresses = tuples.map(|tuple| tuple.addresses);
    let is_short = tuples[0].family == 4 && addresses.as_flattened().iter().all(|address| is_short(*address));
    let fits = is_short
        && match changed_end(&tuples) {
            Ok(None) => true,
            Ok(Some(_)) => !has_common_ports(tuples[0].proto),
            Err(()) => false,
        };
    (!fits).then_some(WideTuples(addresses))
}

/// The index of the end that NAT changes in a connection with these tuples: none, the initiator's (0) or the
/// responder's (1). `Err` if it changes both.
pub(crate) fn changed_end([forward, reply]: &[Tuple; 2]) -> Result<Option<usize>, ()> {
    let plain = forward.hairpinned();
    let common = has_common_ports(forward.proto);
    let changes = |end: usize| {
        let port = if common { end } else { 1 - end };
        plain.addresses[1 - end] != reply.addresses[1 - end] || plain.ports[port] != reply.ports[port]
    };
    match [changes(0), changes(1)] {
        [false, false] => Ok(None),
        [true, false] => Ok(Some(0)),
        [false, true] => Ok(Some(1)),
        [true, true] => Err(()),
    }
}

/// Whether an address is one of IPv4.
fn is_short(address: u128) -> bool {
    address <= u128::from(u32::MAX)
}

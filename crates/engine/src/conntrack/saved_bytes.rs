//! A connection as bytes in a state.

use super::extension::ConnectionExtension;
use super::saved::{SavedConnection, SavedEnd};
use mmb_conn::{ConnState, ConnectionSnapshot, IngressPorts, Side, TcpTracker, Tuple, Vlans, Wire};
use mmb_policy::RuleId;

/// Bits of an extension's first byte, which has no others beyond the first three: the connection [must not go on](SavedEnd), or was
/// [expected](mmb_conn::Connection::is_expected).
const ENDS_ANSWERED: u8 = 1 << 3;
const ENDS_SILENT: u8 = 1 << 4;
const EXPECTED: u8 = 1 << 5;
/// The place of its state in a record.
const STATE: usize = 4 + 9 + 2 * (5 + 32 + 4);
/// Bytes of a record without its rules.
const FIXED: usize = STATE + 1 + 22 + 32 + 16 + 27 + 1;

impl SavedConnection {
    /// Appends the bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let ConnectionSnapshot {
            tuples,
            state,
            tracker,
            packets,
            bytes,
            arrivals,
            is_expected,
            age_ms,
            idle_ms,
        } = &self.connection;
        let [forward, reply] = tuples;
        out.reserve(FIXED + 4 * self.rules.len());
        out.extend([forward.family, forward.proto]);
        out.extend(forward.wire.port.to_be_bytes());
        out.extend(arrivals.to_bytes());
        for tuple in [forward, reply] {
            let Vlans { outer, inner } = tuple.wire.vlans;
            [outer, inner].iter().for_each(|id| out.extend(id.to_be_bytes()));
            out.push(tuple.side as u8);
            tuple.addresses.iter().for_each(|address| out.extend(address.to_be_bytes()));
            tuple.ports.iter().for_each(|port| out.extend(port.to_be_bytes()));
        }
        out.push(ConnState::ALL.iter().position(|other| other == state).map_or(0, |place| place as u8));
        out.extend(tracker.to_bytes());
        packets
            .iter()
            .chain(bytes)
            .chain([age_ms, idle_ms])
            .for_each(|number| out.extend(number.to_be_bytes()));
        let mut extension = self.extension.to_bytes();
        extension[0] |= match self.over {
            None => 0,
            Some(SavedEnd::Answered) => ENDS_ANSWERED,
            Some(SavedEnd::Silent) => ENDS_SILENT,
        };
        extension[0] |= if *is_expected { EXPECTED } else { 0 };
        out.extend(extension);
        // A connection has at most this many rules.
        out.push(self.rules.len().min(usize::from(u8::MAX)) as u8);
        self.rules.iter().take(usize::from(u8::MAX)).for_each(|id| out.extend(id.0.to_be_bytes()));
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<SavedConnection> {
        let mut left = ByteCursor(bytes);
        let [family, proto] = left.array()?;
        let port = u16::from_be_bytes(left.array()?);
        let arrivals = IngressPorts::from_bytes(left.array()?)?;
        let mut tuple = || {
            let [outer, inner] = [left.array()?, left.array()?].map(u16::from_be_bytes);
            let wire = Wire { port, vlans: Vlans { outer, inner } };
            let [side] = left.array()?;
            let side = *Side::ALL.get(usize::from(side))?;
            let mut addresses = [0; 2];
            for address in &mut addresses {
                *address = u128::from_be_bytes(left.array()?);
            }
            let mut ports = [0; 2];
            for port in &mut ports {
                *port = u16::from_be_bytes(left.array()?);
            }
            (outer < 4096 && inner < 4096).then_some(Tuple { addresses, ports, wire, side, proto, family })
        };
        let tuples = [tuple()?, tuple()?];
        let [state] = left.array()?;
        let state = *ConnState::ALL.get(usize::from(state))?;
        let tracker = TcpTracker::from_bytes(left.array()?);
        let mut number = || left.array().map(u64::from_be_bytes);
        let (packets, bytes) = ([number()?, number()?], [number()?, number()?]);
        let (age_ms, idle_ms) = (number()?, number()?);
        let mut extension = left.array()?;
        let over = match extension[0] & (ENDS_ANSWERED | ENDS_SILENT) {
            0 => None,
            ENDS_ANSWERED => Some(SavedEnd::Answered),
            ENDS_SILENT => Some(SavedEnd::Silent),
            _ => return None,
        };
        let is_expected = extension[0] & EXPECTED != 0;
        extension[0] &= !(ENDS_ANSWERED | ENDS_SILENT | EXPECTED);
        let extension = ConnectionExtension::from_bytes(extension)?;
        let [rules] = left.array()?;
        let rules = (0..rules)
            .map(|_| left.array().map(|id| RuleId(u32::from_be_bytes(id))))
            .collect::<Option<_>>()?;
        let sound = matches!(family, 4 | 6) && left.0.is_empty();
        let connection = ConnectionSnapshot {
            tuples,
            state,
            tracker,
            packets,
            bytes,
            arrivals,
            is_expected,
            age_ms,
            idle_ms,
        };
        sound.then_some(SavedConnection { connection, extension, over, rules })
    }
}

/// Whether the connection with these bytes is closed, if it is one.
pub(super) fn is_closed(bytes: &[u8]) -> Option<bool> {
    let state = ConnState::ALL.get(usize::from(*bytes.get(STATE)?))?;
    Some(state.is_closed())
}

/// Bytes still to be read.
struct ByteCursor<'a>(&'a [u8]);

impl ByteCursor<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
}

//! The bytes of a connection in a state.

use super::extension::ConnectionExtension;
use super::saved_connection::{SavedConnection, SavedEnd};
use mmb_conn::{ConnState, ConnTracker, ConnectionSnapshot, IngressPorts, Side, Tuple, Vlans, Wire};
use mmb_policy::RuleId;

/// Bits of the first byte of an extension, of which the extension itself uses only the first three. The
/// connection [must not continue](SavedEnd), or was [expected](mmb_conn::Connection::is_expected).
const ENDS_ANSWERED: u8 = 1 << 3;
const ENDS_SILENT: u8 = 1 << 4;
const EXPECTED: u8 = 1 << 5;
/// The size of the length before a record, in bytes.
pub(super) const LENGTH: usize = 2;
/// The offset of the connection's state in a record.
const STATE: usize = 4 + 9 + 2 * (5 + 32 + 4);
/// The length of a record without rules, in bytes.
const FIXED: usize = STATE + 1 + 22 + 32 + 16 + 27 + 1;

impl SavedConnection {
    /// Appends the record of the connection, after its length.
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
        // A connection has fewer rules than this.
        let rules = &self.rules[..self.rules.len().min(usize::from(u8::MAX))];
        let length = FIXED + 4 * rules.len();
        out.reserve(LENGTH + length);
        out.extend_from_slice(&(length as u16).to_be_bytes());
        out.extend_from_slice(&[forward.family, forward.proto]);
        out.extend_from_slice(&forward.wire.port.to_be_bytes());
        out.extend_from_slice(&arrivals.to_bytes());
        for tuple in [forward, reply] {
            let Vlans { outer, inner } = tuple.wire.vlans;
            out.extend_from_slice(&outer.to_be_bytes());
            out.extend_from_slice(&inner.to_be_bytes());
            out.push(tuple.side as u8);
            tuple.addresses.iter().for_each(|address| out.extend_from_slice(&address.to_be_bytes()));
            tuple.ports.iter().for_each(|port| out.extend_from_slice(&port.to_be_bytes()));
        }
        out.push(ConnState::ALL.iter().position(|other| other == state).map_or(0, |place| place as u8));
        out.extend_from_slice(&tracker.to_bytes());
        for number in [packets[0], packets[1], bytes[0], bytes[1], *age_ms, *idle_ms] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        let mut extension = self.extension.to_bytes();
        extension[0] |= match self.end {
            None => 0,
            Some(SavedEnd::Answered) => ENDS_ANSWERED,
            Some(SavedEnd::Silent) => ENDS_SILENT,
        };
        extension[0] |= if *is_expected { EXPECTED } else { 0 };
        out.extend_from_slice(&extension);
        out.push(rules.len() as u8);
        rules.iter().for_each(|id| out.extend_from_slice(&id.0.to_be_bytes()));
    }

    /// Decodes a record; `None` if it is damaged. `rules` is a vector to reuse.
    pub(crate) fn decode(bytes: &[u8], mut rules: Vec<RuleId>) -> Option<SavedConnection> {
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
        let tracker = ConnTracker::from_bytes(left.array()?);
        let mut number = || left.array().map(u64::from_be_bytes);
        let (packets, bytes) = ([number()?, number()?], [number()?, number()?]);
        let (age_ms, idle_ms) = (number()?, number()?);
        let mut extension = left.array()?;
        let end = match extension[0] & (ENDS_ANSWERED | ENDS_SILENT) {
            0 => None,
            ENDS_ANSWERED => Some(SavedEnd::Answered),
            ENDS_SILENT => Some(SavedEnd::Silent),
            _ => return None,
        };
        let is_expected = extension[0] & EXPECTED != 0;
        extension[0] &= !(ENDS_ANSWERED | ENDS_SILENT | EXPECTED);
        let extension = ConnectionExtension::from_bytes(extension)?;
        let [count] = left.array()?;
        rules.clear();
        for _ in 0..count {
            rules.push(RuleId(u32::from_be_bytes(left.array()?)));
        }
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
        sound.then_some(SavedConnection { connection, extension, end, rules })
    }
}

/// Whether the connection of a record is closed; `None` if the record has no valid state.
pub(super) fn is_closed(bytes: &[u8]) -> Option<bool> {
    let state = ConnState::ALL.get(usize::from(*bytes.get(STATE)?))?;
    Some(state.is_closed())
}

/// The bytes that are still to be read.
struct ByteCursor<'a>(&'a [u8]);

impl ByteCursor<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
}

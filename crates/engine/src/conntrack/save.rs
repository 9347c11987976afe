//! Connections as bytes in a file: the format that `save-state` writes and `load-state` reads.
//!
//! A state consists of [`MAGIC`], records with a two-byte length in front of each, a length of zero, and the number of records in eight
//! bytes. Numbers are big-endian. Reading fails at a record that this version does not understand.

use super::checked;
use super::extension::ConnectionExtension;
use super::saved::SavedConnection;
use mmb_conn::{ConnState, ConnectionSnapshot, IngressPorts, Side, TcpTracker, Tuple, Vlans, Wire};
use mmb_policy::RuleId;
use std::io::{self, Read, Write};

/// The first bytes of a state.
const MAGIC: &[u8; 8] = b"MMBCONN2";
/// Bytes of a record without its rules.
const FIXED: usize = 4 + 9 + 2 * (5 + 32 + 4) + 1 + 22 + 32 + 16 + 27 + 1;

impl SavedConnection {
    fn encode(&self) -> Vec<u8> {
        let ConnectionSnapshot { tuples, state, tracker, packets, bytes, arrivals, age_ms, idle_ms } =
            &self.connection;
        let [forward, reply] = tuples;
        let mut out = Vec::with_capacity(FIXED + 4 * self.rules.len());
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
        out.extend(self.extension.to_bytes());
        // A connection has at most this many rules.
        out.push(self.rules.len().min(usize::from(u8::MAX)) as u8);
        self.rules.iter().take(usize::from(u8::MAX)).for_each(|id| out.extend(id.0.to_be_bytes()));
        out
    }

    fn decode(bytes: &[u8]) -> Option<SavedConnection> {
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
        let extension = ConnectionExtension::from_bytes(left.array()?)?;
        let [rules] = left.array()?;
        let rules = (0..rules)
            .map(|_| left.array().map(|id| RuleId(u32::from_be_bytes(id))))
            .collect::<Option<_>>()?;
        let sound = matches!(family, 4 | 6) && left.0.is_empty();
        let connection =
            ConnectionSnapshot { tuples, state, tracker, packets, bytes, arrivals, age_ms, idle_ms };
        sound.then_some(SavedConnection { connection, extension, rules })
    }
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

/// Writes a state record by record.
pub(crate) struct StateWriter<'w> {
    out: &'w mut dyn Write,
    records: u64,
}

impl<'w> StateWriter<'w> {
    pub(crate) fn new(out: &'w mut dyn Write) -> io::Result<StateWriter<'w>> {
        out.write_all(MAGIC)?;
        Ok(StateWriter { out, records: 0 })
    }

    pub(crate) fn write(&mut self, saved: &SavedConnection) -> io::Result<()> {
        let record = saved.encode();
        self.out.write_all(&(record.len() as u16).to_be_bytes())?;
        self.records += 1;
        self.out.write_all(&record)
    }

    /// Ends the state; returns its number of records.
    pub(crate) fn end(self) -> io::Result<u64> {
        self.out.write_all(&[0; 2])?;
        self.out.write_all(&self.records.to_be_bytes())?;
        self.out.flush()?;
        Ok(self.records)
    }
}

/// A state that was read completely and checked, as contiguous encoded records. Nothing is restored before all of it has arrived.
#[derive(Default)]
pub(crate) struct LoadedState {
    /// Records, each after its length.
    chunks: Vec<Vec<u8>>,
    /// The number of records that were only checked, and not kept.
    pub(crate) beyond: u64,
}

/// Capacity of a chunk of records in bytes.
const CHUNK: usize = 1 << 20;

impl LoadedState {
    /// Reads a state and keeps its first `most` connections; the rest is only checked.
    ///
    /// # Errors
    /// The fault in the state, or a lack of memory for it.
    pub(crate) fn read(input: &mut dyn Read, most: u64) -> Result<LoadedState, String> {
        let mut reader = StateReader::new(input)?;
        let mut whole = LoadedState::default();
        while let Some(saved) = reader.next()? {
            if reader.records <= most {
                whole.push(&saved.encode())?;
            } else {
                whole.beyond += 1;
            }
        }
        reader.expect_end()?;
        Ok(whole)
    }

    fn push(&mut self, record: &[u8]) -> Result<(), String> {
        let length = (record.len() as u16).to_be_bytes();
        let has_room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= length.len() + record.len();
        if !self.chunks.last().is_some_and(has_room) {
            let mut chunk = Vec::new();
            let reserved = chunk.try_reserve_exact(CHUNK).and_then(|()| self.chunks.try_reserve(1));
            reserved.map_err(|_| "there is no memory for so long a state".to_owned())?;
            self.chunks.push(chunk);
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.extend_from_slice(&length);
            chunk.extend_from_slice(record);
        }
        Ok(())
    }

    /// The connections, in order.
    pub(crate) fn connections(&self) -> impl Iterator<Item = SavedConnection> + '_ {
        self.chunks.iter().flat_map(|chunk| {
            let mut at = 0;
            std::iter::from_fn(move || {
                let (length, rest) = chunk.get(at..)?.split_first_chunk()?;
                let length = usize::from(u16::from_be_bytes(*length));
                at += 2 + length;
                SavedConnection::decode(rest.get(..length)?)
            })
        })
    }
}

/// Checks a state as [`Connections::load`](crate::Connections::load) does, without a daemon; returns its number of connections. A function
/// of the bytes alone, for fuzzing.
///
/// # Errors
/// The fault in the state.
pub fn check_state(mut bytes: &[u8]) -> Result<u64, String> {
    let mut reader = StateReader::new(&mut bytes)?;
    while reader.next()?.is_some() {}
    reader.expect_end()?;
    Ok(reader.records)
}

/// Reads a state record by record.
pub(crate) struct StateReader<'r> {
    input: &'r mut dyn Read,
    records: u64,
}

impl<'r> StateReader<'r> {
    pub(crate) fn new(input: &'r mut dyn Read) -> Result<StateReader<'r>, String> {
        let mut magic = [0; 8];
        input.read_exact(&mut magic).map_err(|error| describe(&error))?;
        match &magic {
            MAGIC => Ok(StateReader { input, records: 0 }),
            b"MMBCONN1" => {
                Err("this state was saved by an mmb whose connections had neither sides nor VLANs; \
                it cannot be loaded"
                    .to_owned())
            }
            _ => Err("this is no state of connections that this version of mmb can read".to_owned()),
        }
    }

    /// The next record; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<SavedConnection>, String> {
        let mut length = [0; 2];
        self.read(&mut length)?;
        let length = usize::from(u16::from_be_bytes(length));
        if length == 0 {
            let mut records = [0; 8];
            self.read(&mut records)?;
            let expected = u64::from_be_bytes(records);
            return match expected == self.records {
                true => Ok(None),
                false => {
                    Err(format!("the state has {} connections, and should have {expected}", self.records))
                }
            };
        }
        let mut record = vec![0; length];
        self.read(&mut record)?;
        self.records += 1;
        let damaged = || format!("connection {} of the state is damaged", self.records);
        let saved = SavedConnection::decode(&record).ok_or_else(damaged)?;
        match checked::fault(&saved) {
            None => Ok(Some(saved)),
            Some(why) => Err(format!("{}: {why}", damaged())),
        }
    }

    /// Nothing follows.
    fn expect_end(&mut self) -> Result<(), String> {
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err("there is more behind the end of the state".to_owned()),
            Err(error) => Err(describe(&error)),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        self.input.read_exact(bytes).map_err(|error| describe(&error))
    }
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the state ends in the middle".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_packet::PortId;

    fn saved(number: u16) -> SavedConnection {
        let forward = Tuple {
            addresses: [u128::MAX - u128::from(number), 7],
            ports: [number, 80],
            wire: Wire { port: 2, vlans: Vlans { outer: number % 4096, inner: 9 } },
            side: Side::ALL[usize::from(number % 3)],
            proto: 6,
            family: 6,
        };
        let mut reply = forward.reversed();
        reply.ports[1] = 9;
        // TCP has no such state.
        let states = ConnState::ALL
            .map(|state| if state == ConnState::Replied { ConnState::Established } else { state });
        SavedConnection {
            connection: ConnectionSnapshot {
                tuples: [forward, reply],
                state: states[usize::from(number) % states.len()],
                tracker: TcpTracker::from_bytes([0; 22]),
                packets: [1, 1 << 60],
                bytes: [3, 4],
                arrivals: IngressPorts::new(PortId(number), number.is_multiple_of(3)),
                age_ms: 6,
                idle_ms: 5,
            },
            extension: ConnectionExtension::from_bytes(std::array::from_fn(|at| {
                u8::from((1..9).contains(&at))
            }))
            .expect("sound"),
            rules: (0..u32::from(number % 4)).map(RuleId).collect(),
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_refused_if_it_is_not_whole() {
        let mut bytes = Vec::new();
        let mut writer = StateWriter::new(&mut bytes).expect("memory takes it");
        (0..50).for_each(|number| writer.write(&saved(number)).expect("memory takes it"));
        assert_eq!(writer.end().expect("memory takes it"), 50);
        let read = |mut bytes: &[u8]| {
            let mut reader = StateReader::new(&mut bytes)?;
            let mut all = Vec::new();
            while let Some(saved) = reader.next()? {
                all.push(saved);
            }
            Ok::<_, String>(all)
        };
        assert_eq!(read(&bytes).expect("it is whole"), (0..50).map(saved).collect::<Vec<_>>());
        let kept = |most| {
            let whole = LoadedState::read(&mut &bytes[..], most).expect("it is whole");
            whole.connections().collect::<Vec<_>>()
        };
        assert_eq!(kept(50), (0..50).map(saved).collect::<Vec<_>>());
        assert_eq!(kept(7), (0..7).map(saved).collect::<Vec<_>>());
        assert_eq!(check_state(&bytes), Ok(50));
        assert!(check_state(&[&bytes[..], b"x"].concat()).is_err(), "something follows");
        let older = check_state(&[&b"MMBCONN1"[..], &bytes[8..]].concat()).expect_err("of another version");
        assert!(older.contains("neither sides nor VLANs"), "{older}");
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        // No change of a byte makes decoding panic.
        for at in 0..600 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            let _ = read(&damaged);
        }
    }
}

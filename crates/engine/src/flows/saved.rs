//! Connections as bytes, for a file: what `save-state` writes and `load-state` reads.
//!
//! A state is [`MAGIC`], records, each behind its length in two bytes, and a length of zero with the number of records in
//! eight bytes behind it. Numbers are big-endian. A record that this version does not understand ends the reading.

use super::extra::Extra;
use mmb_conn::{Connection, Snapshot, State, Tracker, Tuple};
use mmb_policy::RuleId;
use std::io::{self, Read, Write};

/// How a state begins.
const MAGIC: &[u8; 8] = b"MMBCONN1";
/// Bytes of a record without its rules.
const FIXED: usize = 4 + 64 + 8 + 1 + 22 + 32 + 16 + 27 + 1;

/// A connection on its way from one daemon to the next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Saved {
    pub(crate) connection: Snapshot,
    pub(crate) extra: Extra,
    /// The rules that made it.
    pub(crate) rules: Vec<RuleId>,
}

impl Saved {
    pub(crate) fn of(connection: &Connection, now_ms: u64, extra: Extra, rules: Vec<RuleId>) -> Saved {
        Saved { connection: connection.snapshot(now_ms), extra, rules }
    }

    fn encode(&self) -> Vec<u8> {
        let Snapshot { tuples, state, tracker, packets, bytes, age_ms, idle_ms } = &self.connection;
        let [forward, reply] = tuples;
        let mut out = Vec::with_capacity(FIXED + 4 * self.rules.len());
        out.extend([forward.family, forward.proto]);
        out.extend(forward.wire.to_be_bytes());
        for tuple in [forward, reply] {
            tuple.addresses.iter().for_each(|address| out.extend(address.to_be_bytes()));
            tuple.ports.iter().for_each(|port| out.extend(port.to_be_bytes()));
        }
        out.push(State::ALL.iter().position(|other| other == state).map_or(0, |place| place as u8));
        out.extend(tracker.to_bytes());
        packets
            .iter()
            .chain(bytes)
            .chain([age_ms, idle_ms])
            .for_each(|number| out.extend(number.to_be_bytes()));
        out.extend(self.extra.to_bytes());
        // A connection has no more rules than that.
        out.push(self.rules.len().min(usize::from(u8::MAX)) as u8);
        self.rules.iter().take(usize::from(u8::MAX)).for_each(|id| out.extend(id.0.to_be_bytes()));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Saved> {
        let mut left = Left(bytes);
        let [family, proto] = left.array()?;
        let wire = u16::from_be_bytes(left.array()?);
        let mut tuple = || {
            let mut addresses = [0; 2];
            for address in &mut addresses {
                *address = u128::from_be_bytes(left.array()?);
            }
            let mut ports = [0; 2];
            for port in &mut ports {
                *port = u16::from_be_bytes(left.array()?);
            }
            Some(Tuple { addresses, ports, wire, proto, family })
        };
        let tuples = [tuple()?, tuple()?];
        let [state] = left.array()?;
        let state = *State::ALL.get(usize::from(state))?;
        let tracker = Tracker::from_bytes(left.array()?);
        let mut number = || left.array().map(u64::from_be_bytes);
        let (packets, bytes) = ([number()?, number()?], [number()?, number()?]);
        let (age_ms, idle_ms) = (number()?, number()?);
        let extra = Extra::from_bytes(left.array()?)?;
        let [rules] = left.array()?;
        let rules = (0..rules)
            .map(|_| left.array().map(|id| RuleId(u32::from_be_bytes(id))))
            .collect::<Option<_>>()?;
        let sound = matches!(family, 4 | 6) && left.0.is_empty();
        let connection = Snapshot { tuples, state, tracker, packets, bytes, age_ms, idle_ms };
        sound.then_some(Saved { connection, extra, rules })
    }
}

/// Bytes that are still to be read.
struct Left<'a>(&'a [u8]);

impl Left<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
}

/// Writes a state, record by record.
pub(crate) struct Writer<'w> {
    out: &'w mut dyn Write,
    records: u64,
}

impl<'w> Writer<'w> {
    pub(crate) fn new(out: &'w mut dyn Write) -> io::Result<Writer<'w>> {
        out.write_all(MAGIC)?;
        Ok(Writer { out, records: 0 })
    }

    pub(crate) fn write(&mut self, saved: &Saved) -> io::Result<()> {
        let record = saved.encode();
        self.out.write_all(&(record.len() as u16).to_be_bytes())?;
        self.records += 1;
        self.out.write_all(&record)
    }

    /// Ends the state; returns how many records it has.
    pub(crate) fn end(self) -> io::Result<u64> {
        self.out.write_all(&[0; 2])?;
        self.out.write_all(&self.records.to_be_bytes())?;
        self.out.flush()?;
        Ok(self.records)
    }
}

/// Reads a state, record by record.
pub(crate) struct Reader<'r> {
    input: &'r mut dyn Read,
    records: u64,
}

impl<'r> Reader<'r> {
    pub(crate) fn new(input: &'r mut dyn Read) -> Result<Reader<'r>, String> {
        let mut magic = [0; 8];
        input.read_exact(&mut magic).map_err(|error| told(&error))?;
        match &magic {
            MAGIC => Ok(Reader { input, records: 0 }),
            _ => Err("this is no state of connections that this version of mmb can read".to_owned()),
        }
    }

    /// The next record; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Saved>, String> {
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
        let saved = Saved::decode(&record);
        saved.map(Some).ok_or_else(|| format!("connection {} of the state is damaged", self.records))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        self.input.read_exact(bytes).map_err(|error| told(&error))
    }
}

fn told(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the state ends in the middle".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(number: u16) -> Saved {
        let forward = Tuple {
            addresses: [u128::MAX - u128::from(number), 7],
            ports: [number, 80],
            wire: 2,
            proto: 6,
            family: 6,
        };
        let mut reply = forward.reversed();
        reply.ports[1] = 9;
        Saved {
            connection: Snapshot {
                tuples: [forward, reply],
                state: State::ALL[usize::from(number) % State::ALL.len()],
                tracker: Tracker::from_bytes([0; 22]),
                packets: [1, u64::MAX],
                bytes: [3, 4],
                age_ms: 5,
                idle_ms: 6,
            },
            extra: Extra::from_bytes(std::array::from_fn(|at| u8::from(at < 11))).expect("sound"),
            rules: (0..u32::from(number % 4)).map(RuleId).collect(),
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_refused_if_it_is_not_whole() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes).expect("memory takes it");
        (0..50).for_each(|number| writer.write(&saved(number)).expect("memory takes it"));
        assert_eq!(writer.end().expect("memory takes it"), 50);
        let read = |mut bytes: &[u8]| {
            let mut reader = Reader::new(&mut bytes)?;
            let mut all = Vec::new();
            while let Some(saved) = reader.next()? {
                all.push(saved);
            }
            Ok::<_, String>(all)
        };
        assert_eq!(read(&bytes).expect("it is whole"), (0..50).map(saved).collect::<Vec<_>>());
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        // Whatever is changed, nothing breaks.
        for at in 0..600 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            let _ = read(&damaged);
        }
    }
}

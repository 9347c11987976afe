//! The file format that `save-state` writes and `load-state` reads: the state of a daemon as bytes.
//!
//! A state consists of the following parts. Numbers are big-endian. Texts are UTF-8, each after its length.
//!
//! - [`MAGIC`]: 8 bytes.
//! - Clock: 8 bytes, the time of saving in milliseconds since 1970.
//! - Ports: 2 bytes, their number; for each port its name (1-byte length), its wire (2 bytes) and its side (1
//!   byte).
//! - Connections: records, each after a 2-byte length; a length of zero; 8 bytes, their number.
//! - Rules: records, each after a 4-byte length, with the id (4 bytes), matched packets and bytes, dropped
//!   packets and bytes (8 bytes each) and the text; a length of zero.
//! - Counters: for each its kind (1 byte, not zero), its name (1-byte length), packets and bytes (8 bytes
//!   each); a kind of zero.
//!
//! Connections refer to rules by id and to ports by number. The texts of the rules and the names of the ports
//! identify them, so that another daemon can find its own rules and ports. Rules follow the connections: a
//! connection whose rule was replaced meanwhile finds the successor under the same id.
//!
//! A thread checks connections while the next ones are read. Reading fails at a record that this version does
//! not understand.

use super::checked::{self, LARGEST_COUNT};
use super::saved_bytes::{LENGTH, is_closed};
use super::saved_connection::SavedConnection;
use crate::counters::Count;
use mmb_conn::Side;
use mmb_policy::RuleId;
use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The first bytes of a state.
const MAGIC: &[u8; 8] = b"MMBSTAT3";
/// The longest text of a rule in bytes: that of a command.
const LONGEST_RULE: u32 = 16 << 20;

/// A port of the daemon that saved a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPort {
    /// Its name.
    pub name: String,
    /// The number of its wire in tuples: [`Wire::port`](mmb_conn::Wire::port).
    pub wire: u16,
    /// The side of the wire.
    pub side: Side,
}

/// The part of a state that precedes its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateHeader {
    /// The time at which it was saved, in milliseconds since 1970.
    pub saved_at_ms: u64,
    /// The ports, by number.
    pub ports: Vec<SavedPort>,
}

/// A rule of the daemon that saved a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedRule {
    /// Its id.
    pub id: RuleId,
    /// The packets that it matched.
    pub matched: Count,
    /// The packets that it dropped.
    pub dropped: Count,
    /// Its text, as a line of a policy file.
    pub text: String,
}

/// The subject of a [`SavedCounter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CounterKind {
    /// Packets that were dropped for a reason.
    Drop = 1,
    /// Packets that came in by a port.
    Rx,
    /// Packets that left by a port.
    Tx,
    /// Packets of a kind that workers generated.
    Generated,
    /// Packets that workers absorbed.
    Absorbed,
}

impl CounterKind {
    const ALL: [CounterKind; 5] =
        [CounterKind::Drop, CounterKind::Rx, CounterKind::Tx, CounterKind::Generated, CounterKind::Absorbed];
}

/// A counter of the daemon that saved a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCounter {
    /// Its subject.
    pub kind: CounterKind,
    /// The name of the drop reason or of the port.
    pub name: String,
    /// Its value.
    pub count: Count,
}

/// The records of connections, each after its length.
#[derive(Debug, Default)]
pub(crate) struct EncodedConnections {
    bytes: Vec<u8>,
    connections: u64,
}

impl EncodedConnections {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.connections = 0;
    }

    pub(crate) fn push(&mut self, saved: &SavedConnection) {
        saved.encode(&mut self.bytes);
        self.connections += 1;
    }
}

/// Writes a state in parts: connections, then rules, then counters.
pub struct StateWriter<'w> {
    out: &'w mut dyn Write,
    connections: u64,
}

impl<'w> StateWriter<'w> {
    /// Starts a state: writes everything before the connections.
    ///
    /// # Errors
    /// An error of `out`.
    pub fn new(out: &'w mut dyn Write, header: &StateHeader) -> io::Result<StateWriter<'w>> {
        out.write_all(MAGIC)?;
        out.write_all(&header.saved_at_ms.to_be_bytes())?;
        out.write_all(&(header.ports.len() as u16).to_be_bytes())?;
        for port in &header.ports {
            write_name(out, &port.name)?;
            out.write_all(&port.wire.to_be_bytes())?;
            out.write_all(&[port.side as u8])?;
        }
        Ok(StateWriter { out, connections: 0 })
    }

    /// Writes encoded connections.
    pub(crate) fn records(&mut self, records: &EncodedConnections) -> io::Result<()> {
        self.connections += records.connections;
        self.out.write_all(&records.bytes)
    }

    /// Writes the end of the connections. Returns their number.
    pub(crate) fn end_connections(&mut self) -> io::Result<u64> {
        self.out.write_all(&[0; LENGTH])?;
        self.out.write_all(&self.connections.to_be_bytes())?;
        Ok(self.connections)
    }

    /// Writes a rule.
    ///
    /// # Errors
    /// An error of the output.
    pub fn rule(&mut self, rule: &SavedRule) -> io::Result<()> {
        let length = 4 + 32 + rule.text.len();
        self.out.write_all(&(length as u32).to_be_bytes())?;
        self.out.write_all(&rule.id.0.to_be_bytes())?;
        for count in [rule.matched, rule.dropped] {
            write_count(self.out, count)?;
        }
        self.out.write_all(rule.text.as_bytes())
    }

    /// Writes the end of the rules, then the counters, and ends the state.
    ///
    /// # Errors
    /// An error of the output.
    pub fn end(self, counters: &[SavedCounter]) -> io::Result<()> {
        self.out.write_all(&[0; 4])?;
        for counter in counters {
            self.out.write_all(&[counter.kind as u8])?;
            write_name(self.out, &counter.name)?;
            write_count(self.out, counter.count)?;
        }
        self.out.write_all(&[0])?;
        self.out.flush()
    }
}

/// Writes a name after its length. Names of interfaces and ports are far shorter than the limit of 255 bytes.
fn write_name(out: &mut dyn Write, name: &str) -> io::Result<()> {
    let name = &name.as_bytes()[..name.len().min(usize::from(u8::MAX))];
    out.write_all(&[name.len() as u8])?;
    out.write_all(name)
}

fn write_count(out: &mut dyn Write, count: Count) -> io::Result<()> {
    out.write_all(&count.packets.to_be_bytes())?;
    out.write_all(&count.bytes.to_be_bytes())
}

/// A state that was read completely and checked. Nothing is restored before the whole state has arrived.
#[derive(Debug, Default)]
pub struct SavedState {
    /// The clock and the ports.
    pub header: StateHeader,
    /// The rules, by id.
    pub rules: Vec<SavedRule>,
    /// The counters.
    pub counters: Vec<SavedCounter>,
    /// The records of connections, each after its length.
    chunks: Vec<Vec<u8>>,
    /// The number of connections that were checked and not kept.
    pub(crate) surplus: u64,
}

/// The capacity of a chunk of connections in bytes.
const CHUNK: usize = 1 << 20;
/// The number of chunks that may wait for the checker while the next one is read.
const WAITING: usize = 2;

/// A chunk of connections that are not checked yet.
struct UncheckedChunk {
    /// The records, each after its length.
    records: Vec<u8>,
    /// The number of connections in the state before this chunk.
    preceding: u64,
    is_kept: bool,
}

impl SavedState {
    /// Reads a state and keeps its first `max` connections. The other connections are only checked. A thread
    /// checks connections while the next ones are read.
    ///
    /// # Errors
    /// The first fault in the state, or a lack of memory for it.
    pub fn read(input: &mut dyn Read, max: u64) -> Result<SavedState, String> {
        std::thread::scope(|scope| {
            let (unchecked, chunks) = sync_channel(WAITING);
            let thread = std::thread::Builder::new().name("mmb-state".to_owned());
            let checker = thread
                .spawn_scoped(scope, move || checked_chunks(&chunks))
                .map_err(|error| format!("cannot start the thread that checks the state: {error}"))?;
            let read = SavedState::read_unchecked(input, max, unchecked);
            let checked = checker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // If a connection has a fault, that fault is before the place where reading ended, so it is
            // reported first.
            let chunks = checked?;
            Ok(SavedState { chunks, ..read? })
        })
    }

    /// Reads everything, and sends the connections to the thread that checks them.
    fn read_unchecked(
        input: &mut dyn Read,
        max: u64,
        unchecked: SyncSender<UncheckedChunk>,
    ) -> Result<SavedState, String> {
        let mut reader = StateReader { input, connections: 0 };
        let header = reader.header()?;
        let mut chunk = UncheckedChunk { records: Vec::new(), preceding: 0, is_kept: true };
        let read = reader.connections(max, &mut chunk, &unchecked);
        // The connections read so far are checked, whatever ended the reading. If the checker has ended, it
        // found a fault.
        let _ = unchecked.send(chunk);
        drop(unchecked);
        if !read? {
            return Ok(SavedState::default());
        }
        let surplus = reader.connections.saturating_sub(max);
        let mut state = SavedState { header, surplus, ..SavedState::default() };
        while let Some(rule) = reader.rule()? {
            state.rules.try_reserve(1).map_err(|_| no_memory())?;
            state.rules.push(rule);
        }
        while let Some(counter) = reader.counter()? {
            state.counters.try_reserve(1).map_err(|_| no_memory())?;
            state.counters.push(counter);
        }
        reader.expect_end()?;
        Ok(state)
    }

    /// The records of all closed connections, or of all others, in order.
    pub(crate) fn connections(&self, closed: bool) -> impl Iterator<Item = &[u8]> {
        self.records().filter(move |record| is_closed(record) == Some(closed))
    }

    fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().flat_map(|chunk| records(chunk))
    }
}

/// The records of a chunk.
fn records(chunk: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let (length, rest) = chunk.get(offset..)?.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes(*length));
        offset += LENGTH + length;
        rest.get(..length)
    })
}

/// Checks all chunks. Returns the chunks to keep.
fn checked_chunks(unchecked: &Receiver<UncheckedChunk>) -> Result<Vec<Vec<u8>>, String> {
    let (mut chunks, mut rules) = (Vec::new(), Vec::new());
    for UncheckedChunk { records: bytes, preceding, is_kept } in unchecked {
        for (record, number) in records(&bytes).zip(preceding + 1..) {
            let damaged = || format!("connection {number} of the state is damaged");
            let saved = SavedConnection::decode(record, rules).ok_or_else(damaged)?;
            if let Some(why) = checked::fault(&saved) {
                return Err(format!("{}: {why}", damaged()));
            }
            rules = saved.rules;
        }
        if is_kept {
            chunks.try_reserve(1).map_err(|_| no_memory())?;
            chunks.push(bytes);
        }
    }
    Ok(chunks)
}

/// Reads a state record by record.
struct StateReader<'r> {
    input: &'r mut dyn Read,
    connections: u64,
}

impl StateReader<'_> {
    fn header(&mut self) -> Result<StateHeader, String> {
        match &self.array()? {
            MAGIC => {}
            b"MMBCONN1" | b"MMBCONN2" => {
                return Err("this state was saved by an older version of mmb; it cannot be loaded".to_owned());
            }
            _ => return Err("this is no state of connections that this version of mmb can read".to_owned()),
        }
        let saved_at_ms = u64::from_be_bytes(self.array()?);
        let ports = u16::from_be_bytes(self.array()?);
        let port = |_| {
            let name = self.name()?;
            let wire = u16::from_be_bytes(self.array()?);
            let [side] = self.array()?;
            let side = Side::ALL.get(usize::from(side)).ok_or("a port of the state is damaged")?;
            Ok::<_, String>(SavedPort { name, wire, side: *side })
        };
        Ok(StateHeader { saved_at_ms, ports: (0..ports).map(port).collect::<Result<_, _>>()? })
    }

    /// Reads all connections; the first `max` are to be kept. Sends full chunks to the checker and leaves
    /// the last chunk in `chunk`, also after an error. Returns false if the checker has ended.
    fn connections(
        &mut self,
        max: u64,
        chunk: &mut UncheckedChunk,
        unchecked: &SyncSender<UncheckedChunk>,
    ) -> Result<bool, String> {
        loop {
            let length = usize::from(u16::from_be_bytes(self.array()?));
            if length == 0 {
                break;
            }
            let is_kept = self.connections < max;
            let has_room = chunk.records.capacity() - chunk.records.len() >= LENGTH + length;
            if !has_room || is_kept != chunk.is_kept {
                let mut records = Vec::new();
                records.try_reserve_exact(CHUNK).map_err(|_| no_memory())?;
                let next = UncheckedChunk { records, preceding: self.connections, is_kept };
                let full = std::mem::replace(chunk, next);
                if !full.records.is_empty() && unchecked.send(full).is_err() {
                    return Ok(false);
                }
            }
            let start = chunk.records.len();
            chunk.records.extend_from_slice(&(length as u16).to_be_bytes());
            chunk.records.resize(start + LENGTH + length, 0);
            if let Err(why) = self.read(&mut chunk.records[start + LENGTH..]) {
                chunk.records.truncate(start);
                return Err(why);
            }
            self.connections += 1;
        }
        let expected = u64::from_be_bytes(self.array()?);
        match expected == self.connections {
            true => Ok(true),
            false => {
                Err(format!("the state has {} connections, and should have {expected}", self.connections))
            }
        }
    }

    /// The next rule; `None` at the end of the rules.
    fn rule(&mut self) -> Result<Option<SavedRule>, String> {
        let length = u32::from_be_bytes(self.array()?);
        if length == 0 {
            return Ok(None);
        }
        let damaged = || "a rule of the state is damaged".to_owned();
        let text = length.checked_sub(4 + 32).filter(|text| *text <= LONGEST_RULE).ok_or_else(damaged)?;
        let id = RuleId(u32::from_be_bytes(self.array()?));
        let (matched, dropped) = (self.count()?, self.count()?);
        // A wrong length allocates no more memory than there are bytes in the input.
        let mut bytes = Vec::new();
        let read =
            self.input.take(u64::from(text)).read_to_end(&mut bytes).map_err(|error| describe(&error))?;
        if read < text as usize {
            return Err(describe(&io::ErrorKind::UnexpectedEof.into()));
        }
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        Ok(Some(SavedRule { id, matched, dropped, text }))
    }

    /// The next counter; `None` at the end.
    fn counter(&mut self) -> Result<Option<SavedCounter>, String> {
        let [kind] = self.array()?;
        if kind == 0 {
            return Ok(None);
        }
        let kind = CounterKind::ALL.into_iter().find(|known| *known as u8 == kind);
        let kind = kind.ok_or("a counter of the state is damaged")?;
        Ok(Some(SavedCounter { kind, name: self.name()?, count: self.count()? }))
    }

    fn name(&mut self) -> Result<String, String> {
        let [length] = self.array()?;
        let mut name = vec![0; usize::from(length)];
        self.read(&mut name)?;
        String::from_utf8(name).map_err(|_| "a name in the state is damaged".to_owned())
    }

    fn count(&mut self) -> Result<Count, String> {
        let [packets, bytes] = [self.array()?, self.array()?].map(u64::from_be_bytes);
        match packets.max(bytes) {
            0..=LARGEST_COUNT => Ok(Count { packets, bytes }),
            _ => Err("a counter of the state is out of range".to_owned()),
        }
    }

    /// Returns an error if any byte follows.
    fn expect_end(&mut self) -> Result<(), String> {
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err("there is more behind the end of the state".to_owned()),
            Err(error) => Err(describe(&error)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        self.input.read_exact(bytes).map_err(|error| describe(&error))
    }
}

fn no_memory() -> String {
    "there is no memory for so long a state".to_owned()
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the state ends in the middle".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::extension::ConnectionExtension;
    use super::super::saved_connection::SavedEnd;
    use super::*;
    use mmb_conn::{ConnState, ConnTracker, ConnectionSnapshot, IngressPorts, Tuple, Vlans, Wire};
    use mmb_packet::PortId;

    fn decoded(state: &SavedState) -> Vec<SavedConnection> {
        state.records().map(read_record).collect()
    }

    /// The first record of a state, with its length.
    fn first_record(bytes: &[u8]) -> Vec<u8> {
        let state = read(bytes).expect("it is whole");
        let record = state.records().next().expect("there is one").to_vec();
        [&(record.len() as u16).to_be_bytes()[..], &record].concat()
    }

    fn read_record(record: &[u8]) -> SavedConnection {
        SavedConnection::decode(record, Vec::new()).expect("was checked")
    }

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
        // TCP connections are never in state `Replied`.
        let states = ConnState::ALL
            .map(|state| if state == ConnState::Replied { ConnState::Established } else { state });
        SavedConnection {
            connection: ConnectionSnapshot {
                tuples: [forward, reply],
                state: states[usize::from(number) % states.len()],
                tracker: ConnTracker::from_bytes([0; 22]),
                packets: [1, 1 << 60],
                bytes: [3, 4],
                arrivals: IngressPorts::new(PortId(number), number.is_multiple_of(3)),
                is_expected: number.is_multiple_of(2),
                age_ms: 6,
                idle_ms: 5,
            },
            extension: ConnectionExtension::from_bytes(std::array::from_fn(|index| {
                u8::from((1..9).contains(&index))
            }))
            .expect("sound"),
            end: [None, Some(SavedEnd::Answered), Some(SavedEnd::Silent)][usize::from(number % 3)],
            rules: (0..u32::from(number % 4)).map(RuleId).collect(),
        }
    }

    fn header() -> StateHeader {
        let port = |(name, side): (&str, Side)| SavedPort { name: name.to_owned(), wire: 2, side };
        StateHeader { saved_at_ms: 1 << 40, ports: [("in", Side::Low), ("out", Side::High)].map(port).into() }
    }

    fn rule(number: u32) -> SavedRule {
        let text = format!("add id {number} tcp-dport {number} drop");
        let count = |packets| Count { packets, bytes: 60 * packets };
        SavedRule { id: RuleId(number), matched: count(7), dropped: count(u64::from(number)), text }
    }

    fn counter(kind: CounterKind, name: &str) -> SavedCounter {
        SavedCounter { kind, name: name.to_owned(), count: Count { packets: 5, bytes: 300 } }
    }

    fn counters() -> Vec<SavedCounter> {
        CounterKind::ALL.map(|kind| counter(kind, "in")).into()
    }

    /// A state with this number of connections.
    fn state(connections: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = StateWriter::new(&mut bytes, &header()).expect("memory takes it");
        let mut records = EncodedConnections::default();
        (0..connections).for_each(|number| records.push(&saved(number)));
        writer.records(&records).expect("memory takes it");
        assert_eq!(writer.end_connections().expect("memory takes it"), u64::from(connections));
        (1..4).for_each(|number| writer.rule(&rule(number)).expect("memory takes it"));
        writer.end(&counters()).expect("memory takes it");
        bytes
    }

    fn read(mut bytes: &[u8]) -> Result<SavedState, String> {
        SavedState::read(&mut bytes, u64::MAX)
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_refused_if_it_is_not_whole() {
        let bytes = state(50);
        let whole = read(&bytes).expect("it is whole");
        assert_eq!(decoded(&whole), (0..50).map(saved).collect::<Vec<_>>());
        assert_eq!((whole.header, whole.counters), (header(), counters()));
        assert_eq!(whole.rules, (1..4).map(rule).collect::<Vec<_>>());
        let kept = SavedState::read(&mut &bytes[..], 7).expect("it is whole");
        assert_eq!(decoded(&kept), (0..7).map(saved).collect::<Vec<_>>());
        assert_eq!(kept.surplus, 43);
        let error = |bytes: &[u8]| read(bytes).expect_err("refused");
        assert!(error(&[&bytes[..], b"x"].concat()).contains("more behind the end"));
        assert!(error(&[&b"MMBCONN2"[..], &bytes[8..]].concat()).contains("older version"));
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        // The error names the first fault, even if the state is cut off after it.
        let mut damaged = bytes.clone();
        let record = first_record(&bytes);
        let first = bytes.windows(record.len()).position(|window| window == record).expect("it is there");
        damaged[first + LENGTH] = 5;
        damaged.truncate(bytes.len() / 2);
        assert_eq!(error(&damaged), "connection 1 of the state is damaged");
        // No changed byte makes reading panic.
        let bytes = state(5);
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 0xff;
            let _ = read(&damaged);
        }
    }

    #[test]
    fn closed_connections_are_told_apart_by_their_bytes() {
        let state = read(&state(50)).expect("it is whole");
        for closed in [false, true] {
            let expected = (0..50).map(saved).filter(|saved| saved.connection.state.is_closed() == closed);
            let expected: Vec<_> = expected.collect();
            assert!(!expected.is_empty());
            assert_eq!(state.connections(closed).map(read_record).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn lengths_that_lie_are_refused_without_taking_memory() {
        let bytes = state(0);
        let text = rule(1).text;
        let start =
            bytes.windows(text.len()).position(|window| window == text.as_bytes()).expect("there") - 40;
        for length in [1_u32, 35, u32::MAX] {
            let mut lying = bytes.clone();
            lying[start..start + 4].copy_from_slice(&length.to_be_bytes());
            assert!(read(&lying).is_err(), "{length}");
        }
    }
}

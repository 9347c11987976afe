//! Connections in IPFIX (RFC 7011) over UDP, with the information elements of NAT events (RFC 8158) and of both directions (RFC 5103).
//!
//! A connection of IPv4 that NAT translates is a NAT44 session (`natEvent` 4 and 5); for all others, and for IPv6, for which RFC 8158 has no event,
//! `firewallEvent` tells that a flow was created or deleted. Those that end have their packets, bytes, duration and reason. Templates go before the first
//! records, and again every minute, since UDP may lose them (RFC 7011 section 8.4).

use super::contract::Sink;
use super::datagram::Transport;
use crate::record::{Record, RecordedEvent};
use crate::spec::Peer;
use mmb_engine::{ConnectionEvent, Endpoints, WatchedEvent};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

/// The most bytes of a message: an Ethernet frame has room for them, with some tunnels around it (RFC 7011 section 10.3.3).
const MAX_BYTES: usize = 1400;
/// How often templates are sent.
const TEMPLATE_INTERVAL: Duration = Duration::from_secs(60);
const VERSION: u16 = 10;
const HEADER: usize = 16;
/// Ids of sets (RFC 7011 section 3.3.2).
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
/// The first id of a template.
const FIRST_TEMPLATE: u16 = 256;
/// The template of lost events, behind those of connections.
const LOST_TEMPLATE: u16 = FIRST_TEMPLATE + 8;
/// The enterprise number of the elements of the reverse direction (RFC 5103 section 6.1).
const REVERSE: u32 = 29_305;

/// An information element of IANA's registry, its length in bytes, and whether it is of the reverse direction.
#[derive(Clone, Copy, Debug)]
struct Element(u16, u16, bool);

const OBSERVATION_TIME_MS: Element = Element(323, 8, false);
const NAT_EVENT: Element = Element(230, 1, false);
const FIREWALL_EVENT: Element = Element(233, 1, false);
const PROTOCOL: Element = Element(4, 1, false);
const PORTS: [Element; 2] = [Element(7, 2, false), Element(11, 2, false)];
const ADDRESSES4: [Element; 2] = [Element(8, 4, false), Element(12, 4, false)];
const ADDRESSES6: [Element; 2] = [Element(27, 16, false), Element(28, 16, false)];
const POST_NAT_ADDRESSES4: [Element; 2] = [Element(225, 4, false), Element(226, 4, false)];
const POST_NAT_ADDRESSES6: [Element; 2] = [Element(281, 16, false), Element(282, 16, false)];
const POST_NAPT_PORTS: [Element; 2] = [Element(227, 2, false), Element(228, 2, false)];
/// packetTotalCount and layer2OctetTotalCount of both directions, flowDurationMilliseconds, flowEndReason.
const TOTALS: [Element; 6] = [
    Element(86, 8, false),
    Element(353, 8, false),
    Element(86, 8, true),
    Element(353, 8, true),
    Element(161, 4, false),
    Element(136, 1, false),
];
/// exportingProcessId, the scope, and notSentFlowTotalCount (RFC 7011 section 4.3).
const LOST: [Element; 2] = [Element(144, 4, false), Element(166, 8, false)];

/// Sends connections to a collector.
pub(super) struct IpfixSink {
    transport: Transport,
    /// Data records that were sent: the sequence number of the next message.
    sent: u32,
    templates_sent: Option<Instant>,
    /// Events that were lost until now.
    lost: u64,
}

/// The form of a record of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConnectionTemplate {
    is_ip6: bool,
    is_translated: bool,
    is_closed: bool,
}

impl IpfixSink {
    pub(super) fn new(peer: &Peer) -> IpfixSink {
        IpfixSink { transport: Transport::new(peer), sent: 0, templates_sent: None, lost: 0 }
    }
}

impl Sink for IpfixSink {
    fn write(&mut self, records: &[Record]) -> io::Result<usize> {
        if self.templates_sent.is_none_or(|sent| sent.elapsed() >= TEMPLATE_INTERVAL) {
            self.transport.send(&Message::of_templates().end(SystemTime::now(), self.sent))?;
            self.templates_sent = Some(Instant::now());
        }
        let mut message = Message::new();
        let (mut taken, mut lost) = (0, self.lost);
        for record in records {
            match &record.event {
                RecordedEvent::Worker(WatchedEvent::Connection(event)) => {
                    let template = ConnectionTemplate::of(event);
                    if !message.begin_record(template.id(), template.len()) {
                        break;
                    }
                    template.write(event, record.time, &mut message.bytes);
                }
                RecordedEvent::Lost(events) => {
                    if !message.begin_record(LOST_TEMPLATE, length(&LOST)) {
                        break;
                    }
                    lost += events;
                    message.bytes.extend(std::process::id().to_be_bytes());
                    message.bytes.extend(lost.to_be_bytes());
                }
                // The queue has none of these kinds.
                RecordedEvent::Worker(
                    WatchedEvent::Stream(_) | WatchedEvent::Packet(_) | WatchedEvent::Suppressed(_),
                )
                | RecordedEvent::Audit(_) => {}
            }
            taken += 1;
        }
        let count = message.records;
        if count > 0 {
            let sent = self.transport.send(&message.end(SystemTime::now(), self.sent));
            // A collector that was away needs the templates again.
            sent.inspect_err(|_| self.templates_sent = None)?;
        }
        self.sent = self.sent.wrapping_add(count);
        self.lost = lost;
        Ok(taken)
    }
}

/// A message while it is written.
struct Message {
    bytes: Vec<u8>,
    /// Where the last set begins, and its template; none before the first one.
    set: Option<(usize, u16)>,
    records: u32,
}

impl Message {
    fn new() -> Message {
        let mut bytes = Vec::with_capacity(MAX_BYTES);
        bytes.resize(HEADER, 0);
        Message { bytes, set: None, records: 0 }
    }

    /// All templates.
    fn of_templates() -> Message {
        let mut message = Message::new();
        message.begin_set(TEMPLATE_SET);
        for template in ConnectionTemplate::all() {
            let elements = template.elements();
            message.words(&[template.id(), elements.len() as u16]);
            elements.iter().for_each(|element| message.describe(*element));
        }
        message.begin_set(OPTIONS_TEMPLATE_SET);
        // One of the fields is the scope.
        message.words(&[LOST_TEMPLATE, LOST.len() as u16, 1]);
        LOST.iter().for_each(|element| message.describe(*element));
        message
    }

    /// Makes room for a record of so many bytes; returns false if there is none.
    fn begin_record(&mut self, template: u16, len: usize) -> bool {
        const SET_HEADER: usize = 4;
        let is_open = matches!(self.set, Some((_, id)) if id == template);
        let set_header = if is_open { 0 } else { SET_HEADER };
        let end = self.bytes.len().next_multiple_of(4) + set_header + len;
        if end.next_multiple_of(4) > MAX_BYTES {
            return false;
        }
        if !is_open {
            self.begin_set(template);
        }
        self.records += 1;
        true
    }

    fn begin_set(&mut self, id: u16) {
        self.end_set();
        self.set = Some((self.bytes.len(), id));
        self.words(&[id, 0]);
    }

    fn end_set(&mut self) {
        if let Some((at, _)) = self.set {
            // The next set begins at a multiple of four (RFC 7011 section 3.3.1).
            self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
            let len = (self.bytes.len() - at) as u16;
            self.bytes[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
        }
    }

    /// Returns the bytes, with the header (RFC 7011 section 3.1). There is one observation domain, 0.
    fn end(mut self, now: SystemTime, sequence: u32) -> Vec<u8> {
        self.end_set();
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() as u32;
        let len = self.bytes.len() as u16;
        let header = [VERSION, len].into_iter().flat_map(u16::to_be_bytes);
        let header: Vec<u8> = header.chain(seconds.to_be_bytes()).chain(sequence.to_be_bytes()).collect();
        self.bytes[..header.len()].copy_from_slice(&header);
        self.bytes
    }

    fn describe(&mut self, Element(id, len, is_reverse): Element) {
        const ENTERPRISE: u16 = 0x8000;
        self.words(&[if is_reverse { id | ENTERPRISE } else { id }, len]);
        if is_reverse {
            self.bytes.extend(REVERSE.to_be_bytes());
        }
    }

    fn words(&mut self, words: &[u16]) {
        words.iter().for_each(|word| self.bytes.extend(word.to_be_bytes()));
    }
}

impl ConnectionTemplate {
    fn of(event: &ConnectionEvent) -> ConnectionTemplate {
        ConnectionTemplate {
            is_ip6: event.info.arrived.src.is_ipv6(),
            is_translated: event.info.sent != event.info.arrived,
            is_closed: !event.created,
        }
    }

    /// Every template, in the order of their ids.
    fn all() -> impl Iterator<Item = ConnectionTemplate> {
        (0..8_u8).map(|bits| ConnectionTemplate {
            is_ip6: bits & 1 != 0,
            is_translated: bits & 2 != 0,
            is_closed: bits & 4 != 0,
        })
    }

    fn id(self) -> u16 {
        FIRST_TEMPLATE
            + u16::from(self.is_ip6)
            + (u16::from(self.is_translated) << 1)
            + (u16::from(self.is_closed) << 2)
    }

    fn is_nat44(self) -> bool {
        self.is_translated && !self.is_ip6
    }

    fn elements(self) -> Vec<Element> {
        let event = if self.is_nat44() { NAT_EVENT } else { FIREWALL_EVENT };
        let (addresses, post_nat) = match self.is_ip6 {
            false => (ADDRESSES4, POST_NAT_ADDRESSES4),
            true => (ADDRESSES6, POST_NAT_ADDRESSES6),
        };
        let mut elements = vec![OBSERVATION_TIME_MS, event, PROTOCOL];
        elements.extend(addresses.into_iter().chain(PORTS));
        if self.is_translated {
            elements.extend(post_nat.into_iter().chain(POST_NAPT_PORTS));
        }
        if self.is_closed {
            elements.extend(TOTALS);
        }
        elements
    }

    /// Bytes of a record.
    fn len(self) -> usize {
        length(&self.elements())
    }

    fn write(self, event: &ConnectionEvent, time: SystemTime, out: &mut Vec<u8>) {
        let info = &event.info;
        let ms = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        out.extend(ms.to_be_bytes());
        // NAT44 session create and delete (RFC 8158 section 4); flow created and deleted.
        let [created, deleted] = if self.is_nat44() { [4, 5] } else { [1, 2] };
        out.extend([if event.created { created } else { deleted }, info.proto]);
        ends(&info.arrived, out);
        if self.is_translated {
            ends(&info.sent, out);
        }
        if self.is_closed {
            for way in 0..2 {
                out.extend(info.packets[way].to_be_bytes());
                out.extend(info.bytes[way].to_be_bytes());
            }
            out.extend(u32::try_from(info.age_ms).unwrap_or(u32::MAX).to_be_bytes());
            out.push(end_reason(event.reason));
        }
    }
}

/// Addresses, then ports.
fn ends(ends: &Endpoints, out: &mut Vec<u8>) {
    for address in [ends.src, ends.dst] {
        match address {
            IpAddr::V4(address) => out.extend(address.octets()),
            IpAddr::V6(address) => out.extend(address.octets()),
        }
    }
    out.extend([ends.sport, ends.dport].into_iter().flat_map(u16::to_be_bytes));
}

/// The value of flowEndReason: idle timeout, end of flow detected, forced end, lack of resources.
fn end_reason(reason: Option<&str>) -> u8 {
    match reason {
        Some("timeout") => 1,
        Some("finished" | "reset") => 3,
        Some("evicted") => 5,
        _ => 4,
    }
}

fn length(elements: &[Element]) -> usize {
    elements.iter().map(|Element(_, len, _)| usize::from(*len)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{closed, connection, record};
    use std::collections::BTreeMap;
    use std::net::UdpSocket;

    /// A record: its elements, by enterprise and number, as bytes.
    type Decoded = BTreeMap<(u32, u16), Vec<u8>>;

    /// The elements of a template, by enterprise and number, and their lengths in bytes.
    type Template = Vec<((u32, u16), usize)>;

    /// A collector by the letter of RFC 7011 that knows no more than the templates tell.
    #[derive(Default)]
    struct Collector {
        templates: BTreeMap<u16, Template>,
    }

    impl Collector {
        /// Returns the sequence number and the records, with the ids of their templates.
        fn read(&mut self, message: &[u8]) -> (u32, Vec<(u16, Decoded)>) {
            let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
            let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
            assert_eq!((word(0), usize::from(word(2))), (10, message.len()));
            assert_eq!(long(12), 0, "observation domain");
            let (mut at, mut records) = (16, Vec::new());
            while at < message.len() {
                let (set, end) = (word(at), at + usize::from(word(at + 2)));
                at += 4;
                match set {
                    2 | 3 => {
                        while at + 4 <= end {
                            let (id, count) = (word(at), word(at + 2));
                            at += if set == 3 { 6 } else { 4 };
                            let mut elements = Vec::new();
                            for _ in 0..count {
                                let (element, len) = (word(at), usize::from(word(at + 2)));
                                at += 4;
                                let is_enterprise = element & 0x8000 != 0;
                                let enterprise = if is_enterprise { long(at) } else { 0 };
                                at += if is_enterprise { 4 } else { 0 };
                                elements.push(((enterprise, element & 0x7fff), len));
                            }
                            self.templates.insert(id, elements);
                        }
                    }
                    id => {
                        let size: usize = self.templates[&id].iter().map(|(_, len)| len).sum();
                        while at + size <= end {
                            let mut record = Decoded::new();
                            for (element, len) in &self.templates[&id] {
                                record.insert(*element, message[at..at + len].to_vec());
                                at += len;
                            }
                            records.push((id, record));
                        }
                    }
                }
                assert!(at <= end && end.is_multiple_of(4), "sets end where they say");
                assert!(message[at..end].iter().all(|byte| *byte == 0), "padding");
                at = end;
            }
            (long(8), records)
        }
    }

    fn number(record: &Decoded, element: u16) -> u64 {
        number_of(record, 0, element)
    }

    fn number_of(record: &Decoded, enterprise: u32, element: u16) -> u64 {
        record[&(enterprise, element)].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// A sink, and what it sends.
    fn collected() -> (IpfixSink, UdpSocket) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let peer = Peer::Udp(socket.local_addr().expect("an address").to_string());
        (IpfixSink::new(&peer), socket)
    }

    /// The first message with records.
    fn records(socket: &UdpSocket, collector: &mut Collector) -> (u32, Vec<(u16, Decoded)>) {
        loop {
            let (sequence, records) = collector.read(&received(socket));
            if !records.is_empty() {
                return (sequence, records);
            }
        }
    }

    fn received(socket: &UdpSocket) -> Vec<u8> {
        let mut message = vec![0; 65_536];
        let len = socket.recv(&mut message).expect("a message");
        message.truncate(len);
        message
    }

    #[test]
    fn a_collector_reads_nat_sessions() {
        let (mut sink, socket) = collected();
        let mut collector = Collector::default();
        assert_eq!(sink.write(&[record(closed())]).expect("sent"), 1);
        let (sequence, records) = records(&socket, &mut collector);
        let [(_, session)] = &records[..] else { panic!("{records:?}") };
        assert_eq!(sequence, 0);
        assert_eq!(number(session, 323), 1_709_210_096_789, "observationTimeMilliseconds");
        assert_eq!((number(session, 230), number(session, 4)), (5, 17), "NAT44 session delete, UDP");
        assert_eq!(session[&(0, 8)], [10, 0, 0, 5]);
        assert_eq!(session[&(0, 12)], [192, 0, 2, 1]);
        assert_eq!((number(session, 7), number(session, 11)), (4000, 53));
        assert_eq!(session[&(0, 225)], [198, 51, 100, 1]);
        assert_eq!(session[&(0, 226)], [192, 0, 2, 1]);
        assert_eq!((number(session, 227), number(session, 228)), (61_000, 53));
        assert_eq!((number(session, 86), number(session, 353)), (2, 180));
        assert_eq!((number_of(session, 29_305, 86), number_of(session, 29_305, 353)), (1, 95));
        assert_eq!((number(session, 161), number(session, 136)), (120_500, 1), "idle timeout");
    }

    #[test]
    fn connections_without_nat_and_of_ipv6_are_flows() {
        let (mut sink, socket) = collected();
        let mut collector = Collector::default();
        let [inside, outside, server] = ["2001:db8::5", "2001:db8:f::1", "2001:db8:5::80"];
        let events = [
            connection(true, ["10.0.0.5", "192.0.2.1"], ["10.0.0.5", "192.0.2.1"]),
            connection(true, [inside, server], [outside, server]),
            connection(false, [inside, server], [inside, server]),
        ];
        assert_eq!(sink.write(&events.map(record)).expect("sent"), 3);
        let (_, records) = records(&socket, &mut collector);
        let [plain, translated, ended] = [0, 1, 2].map(|at| &records[at].1);
        assert_eq!((number(plain, 233), plain.contains_key(&(0, 230))), (1, false), "created, no NAT");
        assert!(!plain.contains_key(&(0, 225)) && !plain.contains_key(&(0, 86)));
        assert_eq!((number(translated, 233), translated[&(0, 281)].len()), (1, 16));
        assert_eq!(
            translated[&(0, 281)],
            outside.parse::<std::net::Ipv6Addr>().expect("an address").octets()
        );
        assert_eq!(translated[&(0, 27)], inside.parse::<std::net::Ipv6Addr>().expect("an address").octets());
        assert_eq!((number(ended, 233), ended.contains_key(&(0, 281))), (2, false), "deleted");
        assert_eq!(number(ended, 86), 2);
    }

    #[test]
    fn many_records_are_several_messages_with_one_sequence() {
        let (mut sink, socket) = collected();
        let mut collector = Collector::default();
        let events: Vec<Record> =
            (0..200).map(|n| record(if n % 3 == 0 { RecordedEvent::Lost(n) } else { closed() })).collect();
        let (mut done, mut read) = (0, 0);
        while done < events.len() {
            let taken = sink.write(&events[done..]).expect("sent");
            let (sequence, records) = records(&socket, &mut collector);
            assert_eq!((sequence, records.len()), (read, taken), "it counts the records before");
            for (event, (_, record)) in events[done..].iter().zip(&records) {
                assert_eq!(record.contains_key(&(0, 166)), matches!(event.event, RecordedEvent::Lost(_)));
            }
            (done, read) = (done + taken, read + taken as u32);
        }
        assert_eq!(sink.lost, (0..200).step_by(3).sum::<u64>(), "notSentFlowTotalCount is a total");
    }

    #[test]
    fn templates_are_sent_again() {
        let (mut sink, socket) = collected();
        let has_templates = |sink: &mut IpfixSink| {
            sink.write(&[record(closed())]).expect("sent");
            let is_templates = received(&socket)[16..18] == [0, 2];
            is_templates && received(&socket)[16..18] != [0, 2]
        };
        assert_eq!([has_templates(&mut sink), has_templates(&mut sink)], [true, false]);
        sink.templates_sent = Instant::now().checked_sub(TEMPLATE_INTERVAL);
        assert!(has_templates(&mut sink));
    }

    #[test]
    fn a_message_has_room_for_the_templates_and_for_some_records() {
        assert!(Message::of_templates().end(SystemTime::now(), 0).len() <= MAX_BYTES);
        let mut message = Message::new();
        let template = ConnectionTemplate { is_ip6: true, is_translated: true, is_closed: true };
        let mut records = 0;
        while message.begin_record(template.id(), template.len()) {
            message.bytes.resize(message.bytes.len() + template.len(), 0);
            records += 1;
        }
        let len = message.end(SystemTime::now(), 0).len();
        assert!(records >= 10 && len <= MAX_BYTES, "{records} records, {len} bytes");
    }
}

//! The bodies of the fuzz targets. Each takes any bytes and panics if an invariant is violated.

use crate::stateless::{DifferentialTest, Incoming, ports};
use mmb_language::{
    Command, CompletionContext, Print, complete, help_at, parse_command, parse_command_with, parse_policy,
    parse_policy_with, with_files, with_id,
};
use mmb_packet::{LinkType, PortId};
use mmb_policy::{PatternList, Policy};
use mmb_protocol::request;
use mmb_testkit::strategy::repair_ip4_checksum;

/// Cursors tried in one line: long lines would take the fuzzer's time.
const MAX_CURSORS: usize = 40;

/// A fuzz target.
pub struct FuzzTarget {
    /// Its name, which is also that of its corpus.
    pub name: &'static str,
    /// What it does with an input.
    pub run: fn(&[u8]),
}

/// Every fuzz target.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "parser", run: parser },
    FuzzTarget { name: "packet", run: packet },
    FuzzTarget { name: "socket", run: socket },
    FuzzTarget { name: "connections", run: connections },
    FuzzTarget { name: "errors", run: errors },
    FuzzTarget { name: "fragments", run: fragments },
    FuzzTarget { name: "state", run: state },
    FuzzTarget { name: "scan", run: scan },
    FuzzTarget { name: "edit_patterns", run: edit_patterns },
    FuzzTarget { name: "stream", run: stream },
    FuzzTarget { name: "http", run: http },
];

/// Any text: the parser and all that completes and explains commands never panic; what parses prints as a text that
/// parses to the same.
pub fn parser(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        if let Ok((command, _)) = parse_command_with(line, &list) {
            prints_as_itself(&command);
        }
        completes(line);
    }
    with_files(text, &|file, _| format!("/{file}"));
    match parse_policy_with(text, &list) {
        Ok((policy, _)) => {
            let printed = policy.text().to_string();
            let again = parse_policy_with(&printed, &list).map(|(policy, _)| policy);
            assert_eq!(again.as_ref(), Ok(&policy), "printed as\n{printed}");
        }
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a reason");
            for error in errors {
                assert!(!error.render("fuzz", text).is_empty());
            }
        }
    }
}

/// Stands for the file of a list: its name is its only pattern.
fn list(file: &str) -> Result<PatternList, String> {
    Ok(PatternList::new(file.to_owned(), vec![file.as_bytes().to_vec()]))
}

fn prints_as_itself(command: &Command) {
    if let Command::Patterns(..) | Command::ChangeSet(..) = command {
        let printed = command.to_string();
        let again = parse_command_with(&printed, &list).map(|(command, _)| command);
        assert_eq!(again.as_ref(), Ok(command), "printed as {printed}");
    }
    if let Command::Add(rule) = command {
        let printed = with_id(rule).to_string();
        let again = parse_command(&printed).map(|(command, _)| command);
        assert_eq!(again.as_ref(), Ok(command), "printed as {printed}");
    }
}

/// Completion replaces what stands before the cursor, at every place that a cursor can have.
fn completes(line: &str) {
    let context = CompletionContext {
        ids: vec![1, 12],
        ports: vec!["a".to_owned(), "b".to_owned()],
        lists: vec!["l".to_owned()],
        sets: vec!["s".to_owned()],
    };
    let cursors = (0..=line.len()).filter(|at| line.is_char_boundary(*at));
    for cursor in cursors.take(MAX_CURSORS) {
        for candidate in complete(line, cursor, &context) {
            assert!(candidate.start <= cursor && line.is_char_boundary(candidate.start), "{candidate:?}");
        }
        help_at(line, cursor);
    }
}

/// A policy and packets: the engine and the oracle return the same. See [`read_packets`] for the input.
pub fn packet(data: &[u8]) {
    let Some((policy, packets)) = read_packets(data) else { return };
    // The oracle keeps nothing between packets.
    if policy.rules.iter().any(|rule| rule.stateful) {
        return;
    }
    let mut test = DifferentialTest::new(ports(200), 1);
    if test.publish(&policy).is_err() {
        return;
    }
    if let Err(difference) = test.run(&packets) {
        panic!("{difference}");
    }
}

/// Reads a policy's text, a zero byte, then packets. A packet is a byte of [choices](Choices), its length in two bytes,
/// and its bytes; the last one may be cut off. `None` if the text is no policy.
pub fn read_packets(data: &[u8]) -> Option<(Policy, Vec<Incoming>)> {
    let end = data.iter().position(|byte| *byte == 0)?;
    let (policy, _) = parse_policy(std::str::from_utf8(&data[..end]).ok()?).ok()?;
    let mut packets = Vec::new();
    let mut rest = &data[end + 1..];
    while let [choices, high, low, bytes @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(bytes.len());
        packets.push(Choices(*choices).incoming(&bytes[..len]));
        rest = &bytes[len..];
    }
    Some((policy, packets))
}

/// The parameters of the packet behind it, in a byte. Bits 0–1: link type. Bits 2–3: port. Bits 4–5: headroom. Bit 6: the
/// header checksum of IPv4 is made right first.
#[derive(Clone, Copy, Debug)]
pub struct Choices(pub u8);

impl Choices {
    fn incoming(self, bytes: &[u8]) -> Incoming {
        let two_bits = |shift: u8| usize::from(self.0 >> shift & 3);
        let link = [LinkType::Ethernet, LinkType::RawIp, LinkType::Sll, LinkType::Sll2][two_bits(0)];
        let port = PortId([0, 1, 2, 0][two_bits(2)]);
        let headroom = [64, 0, 4, 40][two_bits(4)];
        let mut bytes = bytes.to_vec();
        if self.0 & 0x40 != 0 {
            repair_ip4_checksum(link, &mut bytes);
        }
        Incoming { port, link, headroom, bytes }
    }
}

/// Lines of the control protocol: none panics, and what is a request is the same after it went over the wire.
pub fn socket(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(request) = request::decode(line) {
            let mut wire = Vec::new();
            assert!(request::encode(&request, &mut wire).is_ok(), "a vector takes everything");
            assert_eq!(request::decode(wire.trim_ascii_end()), Ok(request));
        }
    }
}

/// A script of packets, time and policies: see [`crate::connections`].
pub fn connections(data: &[u8]) {
    if let Err(broken) = crate::connections::connections(data) {
        panic!("{broken}");
    }
}

/// ICMP errors about packets of connections: see [`crate::connections::errors`].
pub fn errors(data: &[u8]) {
    if let Err(broken) = crate::connections::errors(data) {
        panic!("{broken}");
    }
}

/// Pieces of datagrams in any order: see [`crate::connections::fragments`].
pub fn fragments(data: &[u8]) {
    if let Err(broken) = crate::connections::fragments(data) {
        panic!("{broken}");
    }
}

/// Files of connections: see [`crate::connections::state`].
pub fn state(data: &[u8]) {
    if let Err(broken) = crate::connections::state(data) {
        panic!("{broken}");
    }
}

/// Patterns and a stream in pieces: see [`crate::scan`].
pub fn scan(data: &[u8]) {
    if let Err(difference) = crate::scan::scan(data) {
        panic!("{difference}");
    }
}

/// Patterns and a stream in pieces whose matches are edited: see [`crate::edit_patterns`].
pub fn edit_patterns(data: &[u8]) {
    if let Err(difference) = crate::edit_patterns::edit_patterns(data) {
        panic!("{difference}");
    }
}

/// Segments of a connection: see [`crate::stream`].
pub fn stream(data: &[u8]) {
    if let Err(broken) = crate::stream::stream(data) {
        panic!("{broken}");
    }
}

/// Bytes of both ends of an HTTP connection: see [`crate::http`].
pub fn http(data: &[u8]) {
    if let Err(difference) = crate::http::http(data) {
        panic!("{difference}");
    }
}

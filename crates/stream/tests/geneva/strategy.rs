//! Geneva's strategies as text, and their effect on a client's segments.
//!
//! Syntax and meaning follow Bock, Hughey, Qiang and Levin, "Geneva: Evolving Censorship Evasion Strategies"
//! (CCS 2019): a trigger and a tree of actions, `[TCP:flags:PA]-duplicate(tamper{TCP:chksum:corrupt},)-|`. A
//! missing branch sends the packet.

use crate::support::Seg;
use mmb_random::RepeatableRandom;
use mmb_stream::flag;

/// PSH, which a table does not look at.
pub(crate) const PSH: u8 = 0x08;

/// Letters of flags; those without a bit here are the table's and receivers' concern no more than PSH.
const FLAGS: [(char, u8); 6] =
    [('F', flag::FIN), ('S', flag::SYN), ('R', flag::RST), ('P', PSH), ('A', flag::ACK), ('U', flag::URG)];

/// Bytes of the headers that the client sends: IPv4 and TCP without options.
const HEADERS: usize = 40;
/// Packets with a lower TTL do not reach the receiver.
const HOPS: u32 = 20;
/// Random bytes where there were none.
const LOAD: usize = 10;

/// A client's packet: a segment, and whether it gets farther than the middle.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) segment: Seg,
    pub(crate) arrives: bool,
}

/// A tree of actions.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Send,
    Drop,
    Duplicate(Box<[Action; 2]>),
    /// A field, and its new value if it is not random.
    Tamper(String, Option<String>, Box<Action>),
    /// Where to cut, `None` in the middle; whether the pieces stay in order.
    Fragment(Option<usize>, bool, Box<[Action; 2]>),
}

/// A strategy: actions by the flags that trigger them.
#[derive(Clone, Debug)]
pub(crate) struct Strategy(Vec<(u8, Action)>);

impl Strategy {
    /// Reads a strategy.
    pub(crate) fn parse(text: &str) -> Result<Strategy, String> {
        let mut trees = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (trigger, behind) = rest
                .strip_prefix("[TCP:flags:")
                .and_then(|rest| rest.split_once("]-"))
                .ok_or_else(|| format!("no trigger at {rest:?}"))?;
            let (tree, behind) = behind.split_once("-|").ok_or_else(|| format!("no end in {behind:?}"))?;
            let mut reader = Reader(tree);
            let action = reader.action()?;
            if !reader.0.is_empty() {
                return Err(format!("{:?} behind the actions", reader.0));
            }
            trees.push((flags(trigger), action));
            rest = behind.trim();
        }
        Ok(Strategy(trees))
    }

    /// What is sent instead of a packet.
    pub(crate) fn apply(&self, packet: Packet, random: &mut RepeatableRandom) -> Vec<Packet> {
        let flags = packet.segment.header.flags;
        let mut sent = Vec::new();
        match self.0.iter().find(|(trigger, _)| *trigger == flags) {
            Some((_, action)) => action.apply(packet, random, &mut sent),
            None => sent.push(packet),
        }
        sent
    }
}

fn flags(letters: &str) -> u8 {
    FLAGS.iter().filter(|(letter, _)| letters.contains(*letter)).fold(0, |flags, (_, bit)| flags | bit)
}

/// Reads a tree of actions.
struct Reader<'t>(&'t str);

impl<'t> Reader<'t> {
    fn takes(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn action(&mut self) -> Result<Action, String> {
        if self.takes("duplicate") {
            return Ok(Action::Duplicate(Box::new(self.branches()?)));
        }
        if self.takes("tamper") {
            let [_, field, mode, value] = self.arguments()?;
            let value = (mode == "replace").then(|| value.to_owned());
            let [next, _] = self.branches()?;
            return Ok(Action::Tamper(field.to_owned(), value, Box::new(next)));
        }
        if self.takes("fragment") {
            let [_, at, in_order, _] = self.arguments()?;
            let is_in_order = in_order.eq_ignore_ascii_case("true");
            return Ok(Action::Fragment(at.parse().ok(), is_in_order, Box::new(self.branches()?)));
        }
        if self.takes("drop") {
            return Ok(Action::Drop);
        }
        Ok(Action::Send)
    }

    /// `{a:b:c:d}`; those that are missing are empty.
    fn arguments(&mut self) -> Result<[&'t str; 4], String> {
        let (inside, rest) =
            self.0.strip_prefix('{').and_then(|rest| rest.split_once('}')).ok_or("no arguments")?;
        self.0 = rest;
        let mut arguments = inside.split(':');
        Ok([(); 4].map(|()| arguments.next().unwrap_or_default()))
    }

    /// `(a,b)`, or nothing.
    fn branches(&mut self) -> Result<[Action; 2], String> {
        if !self.takes("(") {
            return Ok([Action::Send, Action::Send]);
        }
        let first = self.action()?;
        let second = if self.takes(",") { self.action()? } else { Action::Send };
        if self.takes(")") { Ok([first, second]) } else { Err(format!("no ) at {:?}", self.0)) }
    }
}

impl Action {
    fn apply(&self, mut packet: Packet, random: &mut RepeatableRandom, sent: &mut Vec<Packet>) {
        match self {
            Action::Send => sent.push(packet),
            Action::Drop => {}
            Action::Duplicate(next) => {
                next[0].apply(packet.clone(), random, sent);
                next[1].apply(packet, random, sent);
            }
            Action::Tamper(field, value, next) => {
                tamper(&mut packet, field, value.as_deref(), random);
                next.apply(packet, random, sent);
            }
            Action::Fragment(at, is_in_order, next) => {
                let len = packet.segment.data.len();
                let at = at.unwrap_or(len / 2).min(len);
                let mut second = packet.clone();
                second.segment.data = packet.segment.data.split_off(at);
                second.segment.offset += at as i64;
                if *is_in_order {
                    next[0].apply(packet, random, sent);
                    next[1].apply(second, random, sent);
                } else {
                    next[1].apply(second, random, sent);
                    next[0].apply(packet, random, sent);
                }
            }
        }
    }
}

/// Changes a field to a value, or to a random one. Checksums are right, but if they are what is changed.
fn tamper(packet: &mut Packet, field: &str, value: Option<&str>, random: &mut RepeatableRandom) {
    let number = value.and_then(|value| value.parse::<u32>().ok()).unwrap_or_else(|| random.word() as u32);
    let segment = &mut packet.segment;
    match field {
        "chksum" => segment.header.is_corrupt = true,
        "ttl" => packet.arrives &= number % 256 >= HOPS,
        "seq" => segment.offset += i64::from(number.cast_signed()),
        "ack" => segment.ack += i64::from(number.cast_signed()),
        "window" => segment.header.window = number as u16,
        "flags" => segment.header.flags = value.map_or_else(|| random.word() as u8, flags),
        "load" => {
            let len = if segment.data.is_empty() { LOAD } else { segment.data.len() };
            segment.data = (0..len).map(|_| random.word() as u8).collect();
        }
        // The first bytes of the payload count as options.
        "dataofs" => {
            let words = (number % 16) as usize;
            let options = (words * 4).saturating_sub(20);
            segment.header.is_corrupt |= words < 5 || options > segment.data.len();
            segment.data.drain(..options.min(segment.data.len()));
        }
        // Bytes beyond the length are not part of the packet. The sender chooses whether the checksum covers
        // only the rest.
        "len" => {
            segment.data.truncate((number as usize).saturating_sub(HEADERS));
            segment.header.is_corrupt |= random.chance(0.5);
        }
        "options-md5header" => segment.header.is_signed = true,
        // Other options and fields are nothing to the bytes.
        _ => {}
    }
}

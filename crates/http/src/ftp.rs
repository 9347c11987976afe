//! Commands of FTP by which a client announces where it listens for data connections: PORT (RFC 959, section 4.1.2) and EPRT (RFC 2428,
//! section 2).
//!
//! A command is a line, its verb in either case. A server may take LF alone for the end of a line, so that it ends one here as well. Numbers are
//! plain decimals: what servers may read differently (leading zeros, signs, hexadecimal digits) is no command.

use memchr::memchr;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest line that is read, without its end: the longest EPRT has 52 bytes.
const MAX_LINE_BYTES: usize = 64;

/// The most bytes of an end as an argument.
pub const MAX_FTP_END_BYTES: usize = 64;

/// Verbs with which a client begins (RFC 959, 2228, 2389, 2640, 3659, 7151).
const FIRST_VERBS: [&[u8]; 13] = [
    b"USER", b"AUTH", b"FEAT", b"HOST", b"OPTS", b"SYST", b"CLNT", b"NOOP", b"HELP", b"LANG", b"STAT",
    b"QUIT", b"CSID",
];

/// Where a client listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FtpEnd {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
}

/// How a command says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FtpForm {
    /// `PORT h1,h2,h3,h4,p1,p2`
    Port,
    /// `EPRT |1|132.235.1.2|6275|`, with this delimiter.
    Eprt(u8),
}

/// What the bytes of a client hold next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FtpStep {
    /// No command, nor the beginning of one.
    Nothing,
    /// A line that is not complete may become one.
    Begun {
        /// Where it starts.
        start: usize,
    },
    /// A command.
    Command {
        /// Where its argument starts.
        start: usize,
        /// Where its argument ends.
        end: usize,
        /// What it announces.
        announced: FtpEnd,
        /// How it does.
        form: FtpForm,
    },
}

impl FtpStep {
    /// Looks for a command whose line starts at or behind a place. `before` is the byte before all of them; `None` at the beginning of a
    /// connection.
    pub fn next(bytes: &[u8], at: usize, before: Option<u8>) -> FtpStep {
        let previous = if at == 0 { before } else { bytes.get(at - 1).copied() };
        let mut start = at;
        if previous.is_some_and(|previous| previous != b'\n') {
            let Some(end) = bytes.get(at..).and_then(|rest| memchr(b'\n', rest)) else {
                return FtpStep::Nothing;
            };
            start = at + end + 1;
        }
        while let Some(rest) = bytes.get(start..).filter(|rest| !rest.is_empty()) {
            let Some(len) = memchr(b'\n', rest) else {
                return if may_become_command(rest) { FtpStep::Begun { start } } else { FtpStep::Nothing };
            };
            let line = &rest[..len];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some((skipped, announced, form)) = command(line) {
                return FtpStep::Command { start: start + skipped, end: start + line.len(), announced, form };
            }
            start += len + 1;
        }
        FtpStep::Nothing
    }
}

impl FtpEnd {
    /// Writes it as an argument; `None` if the form has no room for its address.
    pub fn write(&self, form: FtpForm, buffer: &mut [u8; MAX_FTP_END_BYTES]) -> Option<usize> {
        let FtpEnd { address, port } = *self;
        let mut rest = &mut buffer[..];
        let written = match (form, address) {
            (FtpForm::Port, IpAddr::V4(address)) => {
                let ([a, b, c, d], [high, low]) = (address.octets(), port.to_be_bytes());
                write!(rest, "{a},{b},{c},{d},{high},{low}")
            }
            (FtpForm::Port, IpAddr::V6(_)) => return None,
            (FtpForm::Eprt(delimiter), address) => {
                let by = char::from(delimiter);
                let family = if address.is_ipv4() { 1 } else { 2 };
                write!(rest, "{by}{family}{by}{address}{by}{port}{by}")
            }
        };
        let left = rest.len();
        written.ok().map(|()| buffer.len() - left)
    }
}

/// The most bytes of a client's first line, with its end, that tell that a connection is one of FTP.
pub const MAX_FIRST_LINE_BYTES: usize = 128;

/// Whether the first line of a client, which is complete in these bytes, is a command of FTP. Requests of other protocols are not: one of HTTP
/// may have any method, but names its version (RFC 9112, section 3).
pub fn begins_ftp(bytes: &[u8]) -> bool {
    let Some(end) = memchr(b'\n', &bytes[..bytes.len().min(MAX_FIRST_LINE_BYTES)]) else { return false };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let (verb, rest) = line.split_at(line.len().min(4));
    let is_verb = FIRST_VERBS.iter().any(|known| known.eq_ignore_ascii_case(verb));
    let names_http = rest.windows(5).any(|five| five.eq_ignore_ascii_case(b"HTTP/"));
    is_verb && rest.first().is_none_or(|next| *next == b' ') && !names_http
}

/// Whether a line of which these bytes have come may be a command.
fn may_become_command(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let verb = &line[..line.len().min(5)];
    let is = |known: &[u8; 5]| known[..verb.len()].eq_ignore_ascii_case(verb);
    let argument = line.get(5..).unwrap_or_default();
    let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b',' | b' ');
    line.len() <= MAX_LINE_BYTES
        && (is(b"PORT ") && argument.iter().all(is_number)
            || is(b"EPRT ") && argument.iter().all(|byte| matches!(byte, b' '..=b'~')))
}

/// The command that a line is: where its argument starts, and what it says.
fn command(line: &[u8]) -> Option<(usize, FtpEnd, FtpForm)> {
    let (verb, rest) = line.split_at_checked(5)?;
    if line.len() > MAX_LINE_BYTES {
        return None;
    }
    let argument = rest.trim_ascii_start();
    let skipped = line.len() - argument.len();
    if verb.eq_ignore_ascii_case(b"PORT ") {
        return Some((skipped, port(argument)?, FtpForm::Port));
    }
    let (announced, delimiter) = verb.eq_ignore_ascii_case(b"EPRT ").then(|| eprt(argument)).flatten()?;
    Some((skipped, announced, FtpForm::Eprt(delimiter)))
}

/// `h1,h2,h3,h4,p1,p2`
fn port(argument: &[u8]) -> Option<FtpEnd> {
    let mut parts = argument.split(|byte| *byte == b',').map(|part| decimal(part, 255));
    let mut part = || parts.next().flatten().map(|number| number as u8);
    let address = Ipv4Addr::new(part()?, part()?, part()?, part()?);
    let port = u16::from_be_bytes([part()?, part()?]);
    parts.next().is_none().then_some(FtpEnd { address: address.into(), port })
}

/// `|family|address|port|`, and its delimiter.
fn eprt(argument: &[u8]) -> Option<(FtpEnd, u8)> {
    let (&delimiter, rest) = argument.split_first()?;
    // RFC 2428: a printable character; not one that the parts have.
    let is_delimiter = (b'!'..=b'~').contains(&delimiter) && !delimiter.is_ascii_alphanumeric();
    if !is_delimiter || matches!(delimiter, b'.' | b':') {
        return None;
    }
    let mut parts = rest.split(|byte| *byte == delimiter);
    let mut part = || parts.next();
    let (family, address, port, end) = (part()?, part()?, part()?, part()?);
    let address = str::from_utf8(address).ok()?;
    let address = match family {
        b"1" => IpAddr::V4(address.parse::<Ipv4Addr>().ok()?),
        b"2" => IpAddr::V6(address.parse::<Ipv6Addr>().ok()?),
        _ => return None,
    };
    let port = decimal(port, u16::MAX)?;
    (end.is_empty() && parts.next().is_none()).then_some((FtpEnd { address, port }, delimiter))
}

/// A plain decimal number.
fn decimal(digits: &[u8], max: u16) -> Option<u16> {
    let is_plain = (1..=5).contains(&digits.len())
        && digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits[0] != b'0');
    if !is_plain {
        return None;
    }
    let number = digits.iter().fold(0_u32, |number, digit| number * 10 + u32::from(digit - b'0'));
    u16::try_from(number).ok().filter(|number| *number <= max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first(bytes: &[u8]) -> FtpStep {
        FtpStep::next(bytes, 0, None)
    }

    fn announced(line: &str) -> Option<(IpAddr, u16)> {
        match first(line.as_bytes()) {
            FtpStep::Command { announced: FtpEnd { address, port }, .. } => Some((address, port)),
            FtpStep::Nothing | FtpStep::Begun { .. } => None,
        }
    }

    fn end(address: &str, port: u16) -> Option<(IpAddr, u16)> {
        Some((address.parse().expect("an address"), port))
    }

    #[test]
    fn examples_of_the_rfcs() {
        assert_eq!(announced("PORT 132,235,1,2,24,131\r\n"), end("132.235.1.2", 6275));
        assert_eq!(announced("EPRT |1|132.235.1.2|6275|\r\n"), end("132.235.1.2", 6275));
        let ip6 = "EPRT |2|1080::8:800:200C:417A|5282|\r\n";
        assert_eq!(announced(ip6), end("1080::8:800:200c:417a", 5282));
        assert_eq!(announced("port 10,0,0,1,4,1\n"), end("10.0.0.1", 1025));
        assert_eq!(announced("eprt !1!10.0.0.1!1025!\r\n"), end("10.0.0.1", 1025));
    }

    #[test]
    fn what_is_read_in_several_ways_is_no_command() {
        for line in [
            "PORT 10,0,0,1,4\r\n",
            "PORT 10,0,0,1,4,1,1\r\n",
            "PORT 10,0,0,256,4,1\r\n",
            "PORT 10,0,0,01,4,1\r\n",
            "PORT 10,0,0,+1,4,1\r\n",
            "PORT 10,0,0,0x1,4,1\r\n",
            "PORT 10,0,0,1,4,1 \r\n",
            "PORT 10,0,0,1,4,1\r\r\n",
            "PORT\t10,0,0,1,4,1\r\n",
            " PORT 10,0,0,1,4,1\r\n",
            "PORTS 10,0,0,1,4,1\r\n",
            "EPRT |1|10.0.0.1|65536|\r\n",
            "EPRT |1|10.0.0.01|1025|\r\n",
            "EPRT |2|10.0.0.1|1025|\r\n",
            "EPRT |1|::1|1025|\r\n",
            "EPRT |3|10.0.0.1|1025|\r\n",
            "EPRT |1|10.0.0.1|1025\r\n",
            "EPRT |1|10.0.0.1|1025||\r\n",
            "EPRT 111.0.0.111025.\r\n",
        ] {
            assert_eq!(first(line.as_bytes()), FtpStep::Nothing, "{line:?}");
        }
        let long = format!("PORT {}10,0,0,1,4,1\r\n", " ".repeat(MAX_LINE_BYTES));
        assert_eq!(first(long.as_bytes()), FtpStep::Nothing);
    }

    #[test]
    fn commands_begin_lines() {
        assert_eq!(announced("USER a\r\nPORT 10,0,0,1,4,1\r\n"), end("10.0.0.1", 1025));
        assert_eq!(FtpStep::next(b"PORT 10,0,0,1,4,1\r\n", 0, Some(b'x')), FtpStep::Nothing);
        assert!(matches!(
            FtpStep::next(b"PORT 10,0,0,1,4,1\r\n", 0, Some(b'\n')),
            FtpStep::Command { start: 5, end: 17, .. }
        ));
        assert_eq!(FtpStep::next(b"PORT 10,0,0,1,4,1\r\n", 5, None), FtpStep::Nothing);
    }

    #[test]
    fn lines_that_may_become_commands_are_waited_for() {
        let whole = b"PORT 10,0,0,1,4,1\r\n";
        for cut in 1..whole.len() {
            assert_eq!(first(&whole[..cut]), FtpStep::Begun { start: 0 }, "{cut}");
        }
        for other in [&b""[..], b"USER", b"PASV", b"PORT x", b"EPSV", b"EPRT \x01", b"USER a\r\n"] {
            assert_eq!(first(other), FtpStep::Nothing, "{}", other.escape_ascii());
        }
        assert_eq!(first(b"USER a\r\nEP"), FtpStep::Begun { start: 8 });
        assert_eq!(first(&[b"EPRT ", &[b'1'; 60][..]].concat()), FtpStep::Nothing, "it is too long");
    }

    #[test]
    fn other_protocols_do_not_begin_so() {
        for ftp in [&b"USER a\n"[..], b"user a\r\nPORT ", b"AUTH TLS\r\n", b"FEAT\r\n", b"SYST\n"] {
            assert!(begins_ftp(ftp), "{}", ftp.escape_ascii());
        }
        for other in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"USER /x HTTP/1.1\r\n",
            b"stat / http/1.0\n",
            b"OPTIONS *\r\n",
            b"\x16\x03\x01\n",
            b"USERS a\n",
            b"PORT 1\n",
            b"",
            b"USER a",
            b"\n",
        ] {
            assert!(!begins_ftp(other), "{}", other.escape_ascii());
        }
        let long = [b"USER ", &[b'a'; MAX_FIRST_LINE_BYTES][..], b"\n"].concat();
        assert!(!begins_ftp(&long), "nobody has such a name");
    }

    fn ends() -> impl Strategy<Value = FtpEnd> {
        let address = prop_oneof![
            any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
            any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
        ];
        (address, any::<u16>()).prop_map(|(address, port)| FtpEnd { address, port })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(end in ends(), delimiter in 0..4_usize, is_port: bool) {
            let form = if is_port { FtpForm::Port } else { FtpForm::Eprt(b"|!#$"[delimiter]) };
            let mut buffer = [0; MAX_FTP_END_BYTES];
            let Some(len) = end.write(form, &mut buffer) else {
                prop_assert!(is_port && end.address.is_ipv6());
                return Ok(());
            };
            let verb: &[u8] = if is_port { b"PORT " } else { b"EPRT " };
            let line = [verb, &buffer[..len], b"\r\n"].concat();
            let read = FtpStep::Command { start: 5, end: 5 + len, announced: end, form };
            prop_assert_eq!(first(&line), read);
        }

        #[test]
        fn whatever_comes_places_are_within(bytes in "[PORTEport |,0-9\r\n.:]{0,80}", at in 0..90_usize) {
            match FtpStep::next(bytes.as_bytes(), at, None) {
                FtpStep::Nothing => {}
                FtpStep::Begun { start } => prop_assert!(at <= start && start < bytes.len()),
                FtpStep::Command { start, end, .. } => prop_assert!(at <= start && start < end && end <= bytes.len()),
            }
        }
    }
}

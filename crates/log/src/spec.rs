//! Where `--log` sends events: `TARGET[,events=KIND+KIND…]`.

use crate::record::{EventKind, EventKinds};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The socket of the journal (systemd's native protocol).
const JOURNAL: &str = "/run/systemd/journal/socket";
/// The socket of the syslog daemon of this host.
const DEV_LOG: &str = "/dev/log";

/// One `--log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSpec {
    /// As it was written.
    pub text: String,
    /// Where events go.
    pub target: SinkTarget,
    /// Which do.
    pub kinds: EventKinds,
}

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkTarget {
    /// `journald[:SOCKET]`
    Journald(PathBuf),
    /// `file:PATH`: JSON, one object a line.
    File(PathBuf),
    /// `syslog`, `syslog:PATH`, `syslog:udp:HOST:PORT`: RFC 5424.
    Syslog(Peer),
    /// `ipfix:udp:HOST:PORT`: RFC 7011 and RFC 8158.
    Ipfix(Peer),
}

/// Who gets datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The socket at a path.
    Unix(PathBuf),
    /// A host and a port: `192.0.2.1:514`, `[2001:db8::1]:514`, `collector.example:4739`.
    Udp(String),
}

/// A `--log` that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// An unknown target.
    #[error(
        "no log is called '{0}': write journald, file:PATH, syslog[:PATH|:udp:HOST:PORT] or ipfix:udp:HOST:PORT"
    )]
    Target(String),
    /// A host without a port.
    #[error("'{0}' is no HOST:PORT; an IPv6 address stands in brackets")]
    Peer(String),
    /// A path that is missing or relative.
    #[error("{0} needs an absolute path")]
    Path(&'static str),
    /// An unknown word behind a comma.
    #[error("'{0}' is unknown: write events=KIND+KIND… with {kinds}", kinds = kinds())]
    Option(String),
    /// A kind that a target does not carry.
    #[error("ipfix carries connections: write events=connections, or leave it out")]
    IpfixKinds,
}

fn kinds() -> String {
    EventKind::ALL.map(EventKind::name).join(", ")
}

impl FromStr for SinkSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<SinkSpec, SpecError> {
        let mut parts = text.split(',');
        let target = parts.next().unwrap_or_default().parse()?;
        let mut kinds = match target {
            SinkTarget::Ipfix(_) => EventKinds::of([EventKind::Connections]),
            SinkTarget::Journald(_) | SinkTarget::File(_) | SinkTarget::Syslog(_) => EventKinds::ALL,
        };
        for part in parts {
            let unknown = || SpecError::Option(part.to_owned());
            let names = part.strip_prefix("events=").ok_or_else(unknown)?;
            let kind = |name: &str| EventKind::ALL.into_iter().find(|kind| kind.name() == name);
            let wanted = names.split('+').map(|name| kind(name).ok_or_else(unknown));
            let wanted = EventKinds::of(wanted.collect::<Result<Vec<_>, _>>()?);
            if matches!(target, SinkTarget::Ipfix(_)) && wanted != kinds {
                return Err(SpecError::IpfixKinds);
            }
            kinds = wanted;
        }
        Ok(SinkSpec { text: text.to_owned(), target, kinds })
    }
}

impl FromStr for SinkTarget {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<SinkTarget, SpecError> {
        let unknown = || SpecError::Target(text.to_owned());
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        match (name, rest) {
            ("journald", None) => Ok(SinkTarget::Journald(JOURNAL.into())),
            ("journald", Some(path)) => path_of("journald", path).map(SinkTarget::Journald),
            ("file", Some(path)) => path_of("file", path).map(SinkTarget::File),
            ("file", None) => Err(SpecError::Path("file")),
            ("syslog", None) => Ok(SinkTarget::Syslog(Peer::Unix(DEV_LOG.into()))),
            ("syslog", Some(peer)) => match peer.strip_prefix("udp:") {
                Some(peer) => udp(peer).map(SinkTarget::Syslog),
                None => path_of("syslog", peer).map(Peer::Unix).map(SinkTarget::Syslog),
            },
            ("ipfix", Some(peer)) => {
                udp(peer.strip_prefix("udp:").ok_or_else(unknown)?).map(SinkTarget::Ipfix)
            }
            _ => Err(unknown()),
        }
    }
}

fn path_of(name: &'static str, path: &str) -> Result<PathBuf, SpecError> {
    Some(PathBuf::from(path)).filter(|path| path.is_absolute()).ok_or(SpecError::Path(name))
}

fn udp(peer: &str) -> Result<Peer, SpecError> {
    let wrong = || SpecError::Peer(peer.to_owned());
    let (host, port) = peer.rsplit_once(':').ok_or_else(wrong)?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let is_host = !host.is_empty() && (bracketed || !host.contains(':'));
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if is_host && is_port { Ok(Peer::Udp(peer.to_owned())) } else { Err(wrong()) }
}

impl fmt::Display for SinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_their_kinds_are_read() {
        let path = |path: &str| PathBuf::from(path);
        let udp = |peer: &str| Peer::Udp(peer.to_owned());
        for (text, target) in [
            ("journald", SinkTarget::Journald(path("/run/systemd/journal/socket"))),
            ("journald:/tmp/j", SinkTarget::Journald(path("/tmp/j"))),
            ("file:/var/log/mmb/log.json", SinkTarget::File(path("/var/log/mmb/log.json"))),
            ("syslog", SinkTarget::Syslog(Peer::Unix(path("/dev/log")))),
            ("syslog:/run/log", SinkTarget::Syslog(Peer::Unix(path("/run/log")))),
            ("syslog:udp:192.0.2.1:514", SinkTarget::Syslog(udp("192.0.2.1:514"))),
            ("syslog:udp:[2001:db8::1]:514", SinkTarget::Syslog(udp("[2001:db8::1]:514"))),
            ("ipfix:udp:collector.example:4739", SinkTarget::Ipfix(udp("collector.example:4739"))),
        ] {
            let spec: SinkSpec = text.parse().expect(text);
            assert_eq!((spec.target, spec.text.as_str()), (target, text));
        }
        let kinds = |text: &str| text.parse::<SinkSpec>().expect(text).kinds;
        assert_eq!(kinds("syslog"), EventKinds::ALL);
        let some = EventKinds::of([EventKind::Log, EventKind::Audit]);
        assert_eq!(kinds("syslog,events=log+audit"), some);
        assert!(some.contains(EventKind::Audit) && !some.contains(EventKind::Connections));
        assert_eq!(kinds("ipfix:udp:a:1"), EventKinds::of([EventKind::Connections]));
        assert_eq!(kinds("ipfix:udp:a:1,events=connections"), kinds("ipfix:udp:a:1"));
    }

    #[test]
    fn mistakes_name_the_thing_and_the_remedy() {
        for (text, part) in [
            ("", "no log is called ''"),
            ("jornald", "write journald, file:PATH"),
            ("file", "file needs an absolute path"),
            ("file:log.json", "file needs an absolute path"),
            ("syslog:udp:192.0.2.1", "'192.0.2.1' is no HOST:PORT"),
            ("syslog:udp:2001:db8::1:514", "in brackets"),
            ("syslog:udp::514", "is no HOST:PORT"),
            ("ipfix:udp:a:0", "is no HOST:PORT"),
            ("ipfix:tcp:a:4739", "no log is called"),
            ("syslog,events=all", "events=KIND+KIND… with connections, log, streams, audit"),
            ("syslog,kind=log", "'kind=log' is unknown"),
            ("ipfix:udp:a:1,events=log", "ipfix carries connections"),
        ] {
            let error = text.parse::<SinkSpec>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

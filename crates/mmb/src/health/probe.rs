//! Probes of servers: a TCP connection, an HTTP request, a program. They fail, with the reason, when their time is over.

use mmb_policy::ServerName;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest status line that is read.
const STATUS_LINE: usize = 1024;

/// How often a program is asked whether it has ended.
const POLL: Duration = Duration::from_millis(10);

/// What is asked of a server.
#[derive(Clone, Debug)]
pub(super) enum Probe {
    /// It accepts a connection.
    Tcp,
    /// It answers a request with one of these statuses.
    Http { path: String, host: Option<String>, statuses: (u16, u16) },
    /// A program with these arguments ends with the exit status 0.
    Exec { program: String, arguments: Vec<String> },
}

/// The part of a server's place that its name does not tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerPlace {
    pub(super) address: Option<IpAddr>,
    pub(super) port: Option<u16>,
}

/// Why a probe does not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProbeFailure {
    /// The server does not answer as it should.
    Server(String),
    /// The prober cannot probe, which says nothing about the server.
    Prober(String),
}

impl ServerPlace {
    /// The endpoint of a server.
    fn of(self, server: ServerName) -> Result<SocketAddr, ProbeFailure> {
        match (server, self.address, self.port) {
            (ServerName::Address(address), _, Some(port)) => Ok(SocketAddr::new(address, port)),
            (ServerName::Port(port), Some(address), _) => Ok(SocketAddr::new(address, port)),
            (ServerName::Address(_), _, None) => {
                Err(ProbeFailure::Prober("the port of this server is not known: --port N".to_owned()))
            }
            (ServerName::Port(_), None, _) => Err(ProbeFailure::Prober(
                "the address of this server is not known: --address ADDRESS".to_owned(),
            )),
        }
    }
}

impl Probe {
    /// Probes a server of a rule.
    pub(super) fn run(
        &self,
        (rule, server): (u32, ServerName),
        place: ServerPlace,
        timeout: Duration,
    ) -> Result<(), ProbeFailure> {
        let deadline = Instant::now() + timeout;
        match self {
            Probe::Tcp => connect(place.of(server)?, timeout).map(drop),
            Probe::Http { path, host, statuses } => {
                let to = place.of(server)?;
                let host = host.clone().unwrap_or_else(|| to.to_string());
                let status = status_of(connect(to, timeout)?, (path, &host), deadline);
                let status = status.map_err(ProbeFailure::Server)?;
                let is_good = (statuses.0..=statuses.1).contains(&status);
                if is_good { Ok(()) } else { Err(ProbeFailure::Server(format!("HTTP status {status}"))) }
            }
            Probe::Exec { program, arguments } => {
                let mut command = Command::new(program);
                command.args(arguments).arg(server.to_string());
                command.env("MMB_RULE", rule.to_string()).env("MMB_SERVER", server.to_string());
                run_program(command, deadline)
            }
        }
    }
}

fn connect(to: SocketAddr, timeout: Duration) -> Result<TcpStream, ProbeFailure> {
    TcpStream::connect_timeout(&to, timeout).map_err(|error| {
        let text = format!("connect: {}", reason(&error));
        // No descriptors, memory or ports are left here.
        let is_own = matches!(
            Errno::from_io_error(&error),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::ADDRNOTAVAIL)
        );
        if is_own { ProbeFailure::Prober(text) } else { ProbeFailure::Server(text) }
    })
}

/// The status with which a server answers a request.
fn status_of(mut stream: TcpStream, (path, host): (&str, &str), deadline: Instant) -> Result<u16, String> {
    let left = || deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    let timed_out = || "HTTP: timed out".to_owned();
    let failed = |error: std::io::Error| format!("HTTP: {}", reason(&error));
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: mmb-health\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    stream.set_write_timeout(Some(left().ok_or_else(timed_out)?)).map_err(failed)?;
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut line = Vec::new();
    let mut piece = [0; 256];
    while !line.contains(&b'\n') {
        if line.len() >= STATUS_LINE {
            return Err("HTTP: the answer has no status line".to_owned());
        }
        stream.set_read_timeout(Some(left().ok_or_else(timed_out)?)).map_err(failed)?;
        match stream.read(&mut piece).map_err(failed)? {
            0 => return Err("HTTP: the connection was closed before a status line".to_owned()),
            read => line.extend_from_slice(&piece[..read]),
        }
    }
    status(&line).ok_or_else(|| "HTTP: the answer has no status line".to_owned())
}

/// The status of an answer that begins with its status line (RFC 9112 section 4).
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next().filter(|status| status.len() == 3)?.parse().ok()
}

fn run_program(mut command: Command, deadline: Instant) -> Result<(), ProbeFailure> {
    // In a group of its own, with what it starts.
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| ProbeFailure::Prober(format!("the program cannot be run: {}", reason(&error))))?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(ProbeFailure::Server(format!("the program ended with {status}"))),
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(None) => {
                // It may have ended just now. The group exists as long as its leader is not waited for.
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
                return Err(ProbeFailure::Server("the program timed out".to_owned()));
            }
            Err(error) => {
                return Err(ProbeFailure::Prober(format!("the program is lost: {}", reason(&error))));
            }
        }
    }
}

/// An error in few words.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "timed out".to_owned(),
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        ErrorKind::ConnectionReset => "connection reset".to_owned(),
        ErrorKind::HostUnreachable => "host unreachable".to_owned(),
        ErrorKind::NetworkUnreachable => "network unreachable".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    /// Where no other test listens.
    const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77));
    const PLENTY: Duration = Duration::from_secs(20);

    /// Probes a server that takes one connection, reads the request and answers with these bytes.
    fn answered(probe: &Probe, answer: &'static [u8]) -> (Result<(), ProbeFailure>, Vec<u8>) {
        let listener = TcpListener::bind((LOOPBACK, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection comes");
            let mut request = vec![0; 1000];
            let read = stream.read(&mut request).unwrap_or(0);
            request.truncate(read);
            stream.write_all(answer).expect("it is read");
            request
        });
        let place = ServerPlace { address: None, port: Some(port) };
        let result = probe.run((5, ServerName::Address(LOOPBACK)), place, PLENTY);
        (result, server.join().expect("it does not panic"))
    }

    fn server(reason: &str) -> ProbeFailure {
        ProbeFailure::Server(reason.to_owned())
    }

    fn http(statuses: (u16, u16)) -> Probe {
        Probe::Http { path: "/health".to_owned(), host: Some("www.example".to_owned()), statuses }
    }

    #[test]
    fn the_status_of_an_answer_decides() {
        let (result, request) = answered(&http((200, 299)), b"HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(result, Ok(()));
        let request = String::from_utf8(request).expect("it is text");
        assert!(request.starts_with("GET /health HTTP/1.1\r\nHost: www.example\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\n"));
        let refused = |answer| match answered(&http((200, 299)), answer).0 {
            Err(ProbeFailure::Server(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(b"HTTP/1.0 503 Busy\r\n\r\n"), "HTTP status 503");
        assert_eq!(refused(b"SSH-2.0-x\r\n"), "HTTP: the answer has no status line");
        assert_eq!(refused(b"HTTP/1.1 2"), "HTTP: the connection was closed before a status line");
        assert_eq!(refused(&[b'x'; 2000]), "HTTP: the answer has no status line");
    }

    #[test]
    fn a_connection_is_accepted_or_refused() {
        let listener = TcpListener::bind((OWN, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let by_port = ServerPlace { address: Some(OWN), port: None };
        assert_eq!(Probe::Tcp.run((5, ServerName::Port(port)), by_port, PLENTY), Ok(()));
        drop(listener);
        let refused = Probe::Tcp.run((5, ServerName::Port(port)), by_port, PLENTY);
        assert_eq!(refused, Err(server("connect: connection refused")));
        let lost = Probe::Tcp.run((5, ServerName::Address(LOOPBACK)), by_port, PLENTY);
        assert!(matches!(lost, Err(ProbeFailure::Prober(why)) if why.contains("--port")));
    }

    #[test]
    fn the_exit_status_of_a_program_decides() {
        let nowhere = ServerPlace { address: None, port: None };
        let run = |script: &str, timeout| {
            let arguments = vec!["-c".to_owned(), script.to_owned(), "check".to_owned()];
            let probe = Probe::Exec { program: "sh".to_owned(), arguments };
            probe.run((5, ServerName::Address(LOOPBACK)), nowhere, timeout)
        };
        assert_eq!(run("test $1 = 127.0.0.1 -a $MMB_SERVER = $1 -a $MMB_RULE = 5", PLENTY), Ok(()));
        assert_eq!(run("exit 3", PLENTY), Err(server("the program ended with exit status: 3")));
        assert_eq!(run("exec sleep 60", Duration::from_millis(50)), Err(server("the program timed out")));
        let missing = Probe::Exec { program: "/nowhere/check".to_owned(), arguments: Vec::new() };
        let missing = missing.run((5, ServerName::Address(LOOPBACK)), nowhere, PLENTY);
        assert!(
            matches!(missing, Err(ProbeFailure::Prober(why)) if why.starts_with("the program cannot be run"))
        );
    }
}

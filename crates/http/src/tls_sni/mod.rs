//! The server name of a TLS connection (RFC 6066, section 3), from the bytes that the client sends.
//!
//! A [`ClientHello`] gets the client's bytes in order, in slices of any length, and decides at the last byte of the hello: a server does
//! not answer before it has that byte, so that a filter that holds it back keeps the handshake from beginning. What is decided depends
//! only on the bytes, not on how they are cut, and stays: later bytes are ignored.
//!
//! Servers differ in what they put up with, and a hostile client chooses what suits its server. The parser therefore reads on wherever
//! *some* server does and only one name is possible: records of any length from 0 to 2^14 and of any version that some server takes,
//! messages cut over records, alerts, change_cipher_spec and heartbeat records before and between (RFC 6520 has them ignored), entries of other
//! types in the list of names. Where two servers could see two names, or none could see one, it says [`HelloProgress::Invalid`]. A filter
//! that blocks names must refuse `Invalid` too; no usual client sends such a hello. A filter that allows names refuses all but the
//! names that it knows.
//!
//! What a filter cannot learn here:
//! - With Encrypted ClientHello the name is that of the outer hello, the public name of the client-facing server.
//! - Only the first hello is read. After a HelloRetryRequest a client must repeat its name (RFC 8446, section 4.1.2), but not every server
//!   checks that it does.
//! - A server may choose its content by what comes later, encrypted (the host of an HTTP request).

mod hello;
mod progress;

use hello::Hello;
pub use progress::HelloProgress;
use std::ops::ControlFlow;

/// Bytes of a record's header: type, version, length.
const HEADER: usize = 5;
/// The longest fragment of a record (RFC 8446, section 5.1).
const LONGEST_FRAGMENT: u16 = 1 << 14;
/// Records without a byte of the hello that may come before its end. Servers take at most 32.
const MAX_IDLE_RECORDS: u8 = 64;

/// Types of records (RFC 8446, section 5.1; RFC 6520).
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const HEARTBEAT: u8 = 24;

/// A TLS client's first message, read for its server name.
///
/// ```
/// use mmb_http::{ClientHello, HelloProgress};
///
/// let mut hello = ClientHello::default();
/// assert_eq!(hello.feed(b"\x16\x03\x01"), HelloProgress::More);
/// assert_eq!(ClientHello::default().feed(b"GET / HTTP/1.1\r\n"), HelloProgress::NotTls);
/// ```
#[derive(Clone, Debug)]
pub struct ClientHello {
    decided: HelloProgress,
    /// The header of the record that is read, of which `header_len` bytes are known.
    header: [u8; HEADER],
    header_len: u8,
    /// Whether the first record's header was one of TLS.
    is_tls: bool,
    /// Bytes of the record that are still to come.
    record_left: u16,
    /// Records without a byte of the hello so far.
    idle_records: u8,
    hello: Hello,
}

impl Default for ClientHello {
    fn default() -> Self {
        ClientHello {
            decided: HelloProgress::More,
            header: [0; HEADER],
            header_len: 0,
            is_tls: false,
            record_left: 0,
            idle_records: 0,
            hello: Hello::default(),
        }
    }
}

impl ClientHello {
    /// Reads the next bytes of the client's direction and returns what is known now.
    pub fn feed(&mut self, bytes: &[u8]) -> HelloProgress {
        if self.decided == HelloProgress::More
            && let ControlFlow::Break(decided) = self.read(bytes)
        {
            self.decided = decided;
        }
        self.decided
    }

    /// What is known after the bytes so far.
    #[must_use]
    pub fn progress(&self) -> HelloProgress {
        self.decided
    }

    /// The server name in lower case, without a trailing dot; `None` unless the hello is [`HelloProgress::Named`].
    #[must_use]
    pub fn server_name(&self) -> Option<&[u8]> {
        (self.decided == HelloProgress::Named).then(|| self.hello.name())
    }

    fn read(&mut self, mut bytes: &[u8]) -> ControlFlow<HelloProgress> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.record_left == 0 {
                self.read_header(*first)?;
                bytes = rest;
                continue;
            }
            let (fragment, rest) = bytes.split_at(bytes.len().min(usize::from(self.record_left)));
            self.record_left -= fragment.len() as u16;
            bytes = rest;
            if self.header[0] == HANDSHAKE {
                self.hello.read(fragment)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads a byte of a record's header. Decides as soon as the bytes cannot be TLS.
    fn read_header(&mut self, byte: u8) -> ControlFlow<HelloProgress> {
        self.header[usize::from(self.header_len)] = byte;
        self.header_len += 1;
        let start = &self.header[..usize::from(self.header_len)];
        if !self.is_tls && self.header[0] >= 0x80 {
            return begin_ssl2(start);
        }
        if !can_begin_record(start) {
            return ControlFlow::Break(if self.is_tls {
                HelloProgress::Invalid
            } else {
                HelloProgress::NotTls
            });
        }
        if start.len() == HEADER { self.begin_record() } else { ControlFlow::Continue(()) }
    }

    fn begin_record(&mut self) -> ControlFlow<HelloProgress> {
        let [kind, _, _, high, low] = self.header;
        self.is_tls = true;
        self.header_len = 0;
        self.record_left = u16::from_be_bytes([high, low]);
        if kind != HANDSHAKE || self.record_left == 0 {
            self.idle_records += 1;
        }
        if self.record_left > LONGEST_FRAGMENT || self.idle_records > MAX_IDLE_RECORDS {
            return ControlFlow::Break(HelloProgress::Invalid);
        }
        ControlFlow::Continue(())
    }
}

/// Whether a record may begin with these bytes. A server that has agreed on no version yet takes any (RFC 8446, section 5.1), or all
/// below 16.0; DTLS has 254.
fn can_begin_record(start: &[u8]) -> bool {
    match *start {
        [kind] => matches!(kind, CHANGE_CIPHER_SPEC | ALERT | HANDSHAKE | HEARTBEAT),
        [_, major] => major < 16,
        _ => true,
    }
}

/// Tells whether the first bytes, whose highest bit is set, begin a hello in the format of SSL 2.0: a length, the type 1, a version.
fn begin_ssl2(start: &[u8]) -> ControlFlow<HelloProgress> {
    match *start {
        [_, _, 1, 0, 2] | [_, _, 1, 3, _] => ControlFlow::Break(HelloProgress::Nameless),
        [_] | [_, _] | [_, _, 1] | [_, _, 1, 0 | 3] => ControlFlow::Continue(()),
        _ => ControlFlow::Break(HelloProgress::NotTls),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_small() {
        assert!(size_of::<ClientHello>() <= 300, "{}", size_of::<ClientHello>());
    }
}

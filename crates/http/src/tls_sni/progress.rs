//! How far a hello is read.

/// What is known of a hello after some of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloProgress {
    /// It is not decided: more bytes are needed.
    More,
    /// The hello has one server name, [`ClientHello::server_name`](crate::ClientHello::server_name).
    Named,
    /// The hello has no server name. A hello in the format of SSL 2.0 (RFC 5246, appendix E.2) cannot have one.
    Nameless,
    /// TLS, but not a hello with at most one server name: it violates the format, is longer than 64 KiB, has the extension or a name
    /// twice, or a name that no host has: empty, longer than 255 bytes, with an empty label, or with other bytes than ASCII letters,
    /// digits, `-`, `_` and `.`.
    Invalid,
    /// The bytes do not begin as TLS does. DTLS is not TLS.
    NotTls,
}

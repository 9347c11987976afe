//! Errors of captures.

use std::io;

/// An error that ends the reading of a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// No bytes at all.
    #[error("it is empty, not a capture")]
    Empty,
    /// A compressed file.
    #[error(
        "it is compressed with {with}, which mmb does not read: unpack it first (`{unpack} FILE`), or pipe it in as -"
    )]
    Compressed {
        /// The compression.
        with: &'static str,
        /// The program that undoes it to standard output.
        unpack: &'static str,
    },
    /// Neither pcap nor pcapng.
    #[error("it is neither pcap nor pcapng: it begins with the bytes {0}")]
    NotACapture(String),
    /// A capture of a sort that mmb does not read.
    #[error("{0} is not supported: convert it with editcap or tcpdump -w")]
    Unsupported(String),
    /// A link type that mmb does not know.
    #[error(
        "{what} has link type {code}: mmb knows Ethernet (1), raw IP (101, 228, 229) and Linux cooked (113, 276)"
    )]
    LinkType {
        /// The packet, or the file header.
        what: CapturePlace,
        /// The link type's number in the tcpdump.org registry.
        code: u32,
    },
    /// The file ends inside a packet, a block or a header.
    #[error("{what} at byte {offset} is cut off: {have} of its {need} bytes are there")]
    Truncated {
        /// The truncated part.
        what: CapturePlace,
        /// The offset of its start in the file.
        offset: u64,
        /// Bytes that it should have.
        need: u64,
        /// Bytes that are there.
        have: u64,
    },
    /// A length that cannot be.
    #[error("{what} at byte {offset} is broken: {why}")]
    Broken {
        /// The broken part.
        what: CapturePlace,
        /// The offset of its start in the file.
        offset: u64,
        /// The error in it.
        why: String,
    },
    /// The operating system failed to read.
    #[error("cannot be read at byte {offset}: {source}")]
    Read {
        /// The place.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
}

/// A place in a capture, in the words of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePlace {
    /// The header of a pcap file.
    FileHeader,
    /// A packet by its number.
    Packet(u64),
    /// A pcapng block in front of the packet of that number.
    Block {
        /// The block's type, once it is known.
        kind: Option<u32>,
        /// The number of the packet that would have come next.
        before: u64,
    },
}

impl std::fmt::Display for CapturePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            CapturePlace::FileHeader => f.write_str("the pcap header"),
            CapturePlace::Packet(number) => write!(f, "packet {number}"),
            CapturePlace::Block { kind: None, before } => write!(f, "the block in front of packet {before}"),
            CapturePlace::Block { kind: Some(kind), before } => {
                write!(f, "the block of type {kind:#x} in front of packet {before}")
            }
        }
    }
}

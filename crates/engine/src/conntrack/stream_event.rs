//! What streams tell watchers: matches, connections that rules end, messages of HTTP that are not read, checksums. Bounded in number.

use super::info::Endpoints;
use mmb_http::HttpUnfit;
use mmb_policy::RuleId;
use std::sync::Arc;

/// The most events of one worker in a second; further ones are only counted.
const A_SECOND: u32 = 1000;

/// What a stream tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEventKind {
    /// A rule with `alert` has matched.
    Alert {
        /// The rule's text; may be empty.
        text: Arc<str>,
    },
    /// A rule has closed the connection.
    Close,
    /// A rule has silenced the connection.
    Drop,
    /// A message is not read as HTTP/1.x, for this reason: the connection is closed, or passes unedited from there on.
    HttpUnfit {
        /// Why.
        reason: HttpUnfit,
        /// It passes.
        passes: bool,
    },
    /// A connection with a rule that asks for checksums has ended: for the initiator's and the responder's bytes, how many were in order, and their
    /// CRC-32C.
    Digest {
        /// Bytes.
        bytes: [u64; 2],
        /// Checksums.
        crc32c: [u32; 2],
    },
}

impl StreamEventKind {
    /// Its name: stable.
    pub fn name(&self) -> &'static str {
        match self {
            StreamEventKind::Alert { .. } => "alert",
            StreamEventKind::Close => "close",
            StreamEventKind::Drop => "drop",
            StreamEventKind::HttpUnfit { passes: false, .. } => "http-unfit-closed",
            StreamEventKind::HttpUnfit { passes: true, .. } => "http-unfit-passed",
            StreamEventKind::Digest { .. } => "digest",
        }
    }
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// When, by the clock of the worker.
    pub at_ns: u64,
    /// What happened.
    pub kind: StreamEventKind,
    /// The rule; none for messages that are not read.
    pub rule: Option<RuleId>,
    /// The worker that owns the connection.
    pub worker: u16,
    /// The IP protocol.
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
    /// The initiator's packets as they arrive.
    pub arrived: Endpoints,
    /// The bytes are the responder's.
    pub is_reply: bool,
    /// How many bytes of this direction end with the match; of messages that are not read, with those that were looked at last; 0 for checksums.
    pub offset: u64,
}

/// A message that is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnfitMessage {
    pub(super) direction: usize,
    /// Bytes of the direction up to the end of those that were looked at.
    pub(super) end: u64,
    pub(super) reason: HttpUnfit,
    /// Its connection passes unedited.
    pub(super) passes: bool,
}

/// Limits the events of a worker.
#[derive(Debug, Default)]
pub(crate) struct StreamEvents {
    second: u64,
    told: u32,
}

impl StreamEvents {
    /// Whether one more event may be told now.
    pub(crate) fn admits(&mut self, now_ms: u64) -> bool {
        let second = now_ms / 1000;
        if second != self.second {
            *self = StreamEvents { second, told: 0 };
        }
        self.told += 1;
        self.told <= A_SECOND
    }
}

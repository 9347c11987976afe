//! Events of streams for watchers: matches, connections that rules end, messages that are not read as HTTP,
//! and checksums. The number of events per second is limited.

use super::info::Endpoints;
use mmb_http::HttpUnfit;
use mmb_policy::RuleId;
use std::sync::Arc;

/// The most events of one worker in a second. Further events are only counted.
const MAX_PER_SECOND: u32 = 1000;

/// The kind of a stream event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEventKind {
    /// A rule with `alert` has matched.
    Alert {
        /// The text of the rule; empty if it has none.
        text: Arc<str>,
    },
    /// A rule has closed the connection.
    Close,
    /// A rule has silenced the connection: all its packets are dropped.
    Drop,
    /// A message is not read as HTTP/1.x. The connection is closed, or passes unedited from there on.
    HttpUnfit {
        /// The reason.
        reason: HttpUnfit,
        /// The connection passes.
        passes: bool,
    },
    /// A connection with a rule that asks for checksums has ended. The values are those of the initiator's
    /// and of the responder's bytes.
    Digest {
        /// The number of bytes that were in order.
        bytes: [u64; 2],
        /// Their CRC-32C.
        crc32c: [u32; 2],
    },
}

impl StreamEventKind {
    /// The event's name in output: stable.
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
    /// The time of the worker's clock.
    pub at_ns: u64,
    /// What happened.
    pub kind: StreamEventKind,
    /// The rule; `None` for messages that are not read as HTTP.
    pub rule: Option<RuleId>,
    /// The worker that owns the connection.
    pub worker: u16,
    /// The IP protocol.
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
    /// The addresses and ports of the initiator's packets as they arrive.
    pub arrived: Endpoints,
    /// The bytes are those of the responder.
    pub is_reply: bool,
    /// The number of bytes of this direction up to the end of the match. For a message that is not read as
    /// HTTP, up to the end of the last bytes that were examined. 0 for checksums.
    pub offset: u64,
}

/// A message that is not read as HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnfitMessage {
    pub(super) direction: usize,
    /// The number of bytes of the direction up to the end of those that were examined.
    pub(super) end: u64,
    pub(super) reason: HttpUnfit,
    /// The connection passes unedited.
    pub(super) passes: bool,
}

/// Limits the stream events of a worker.
#[derive(Debug, Default)]
pub(crate) struct StreamEvents {
    second: u64,
    sent: u32,
}

impl StreamEvents {
    /// Counts an event. Returns false if it exceeds the limit of this second.
    pub(crate) fn admits(&mut self, now_ms: u64) -> bool {
        let second = now_ms / 1000;
        if second != self.second {
            *self = StreamEvents { second, sent: 0 };
        }
        self.sent += 1;
        self.sent <= MAX_PER_SECOND
    }
}

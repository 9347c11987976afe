//! What streams tell watchers: matches, connections that rules end, checksums. Bounded in number.

use super::info::Endpoints;
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
            StreamEventKind::Digest { .. } => "digest",
        }
    }
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// What happened.
    pub kind: StreamEventKind,
    /// The rule.
    pub rule: RuleId,
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
    /// How many bytes of this direction end with the match; 0 for checksums.
    pub offset: u64,
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

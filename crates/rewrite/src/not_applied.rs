//! Targets that could not be applied to a packet.

/// Why a target did not change a packet. Counted, never fatal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NotApplied {
    /// The option area would exceed 40 bytes.
    OptionSpace,
    /// The value does not fit the data of the option.
    OptionWidth,
    /// A fragment's transport header cannot change its length.
    Fragment,
    /// The payload is shorter than the bytes to write.
    PayloadShort,
    /// The packet's buffer has no headroom, or the IP length would exceed 65,535.
    NoRoom,
    /// A packet is not answered: answers exceed `answer rate`, or wait for buffers in a full queue.
    AnswerRate,
    /// A packet is not answered: it is one of those that nobody answers, such as ICMP errors, RSTs, packets of groups and damaged ones.
    Unanswerable,
    /// A limit with `per` forgot an address in use for another one: more of them came at once than `limit keys`.
    LimitKeys,
    /// A connection passes without rules on its bytes: its stream cannot be followed, and `stream unfit` is `pass`.
    StreamUnfit,
    /// A connection passes without rules on its bytes: its source has its share of the streams already, and `stream unfit` is `pass`.
    StreamPerSource,
    /// The beginning of a match passes: the rest did not come within `stream hold`, and `stream hold-over` is `pass`.
    StreamHoldOver,
    /// Messages of HTTP pass: their connection is not read as HTTP/1.x, and `http unfit` is `pass` or its rules only report.
    HttpUnfit,
    /// Messages of HTTP pass: there is no memory to search them, and the rules of their connection only report.
    HttpNoRoom,
    /// A body of HTTP passes unedited: it has a content coding.
    HttpEncodedBody,
    /// A body of HTTP passes unedited: it is a part of another one.
    HttpPartialBody,
    /// A body of HTTP passes unedited: its message forbids changes.
    HttpNoTransform,
    /// A body of HTTP/1.0 passes unedited: it is longer than can be held.
    HttpLongBody,
    /// A body of HTTP/1.0 passes unedited: it came too slowly.
    HttpSlowBody,
    /// What is added to a body of HTTP is left out: the last byte had left before its end was known.
    HttpLostTail,
    /// Bytes of HTTP come after the response that ends the connection: they are not searched, and removed if a rule does more than report.
    HttpSurplus,
    /// Messages of HTTP that are under way pass unedited: the rules that they began with were changed too often since.
    HttpRulesChanged,
    /// A change of a head of HTTP is left out: the head would become too long.
    HttpLongHead,
    /// A change of a head of HTTP is left out: the new value cannot stand there.
    HttpBadValue,
    /// A connection that a client announces is not expected: the address is not the client's, or the port is below 1024.
    HelperRefused,
    /// A connection that a client announces is not expected: too many are, or no outside port is free.
    HelperNoRoom,
}

/// How often targets were not applied, by reason.
#[derive(Clone, Debug, Default)]
pub struct NotAppliedCounts(pub [u64; NotApplied::ALL.len()]);

impl NotApplied {
    /// Every reason.
    pub const ALL: [NotApplied; 25] = [
        NotApplied::OptionSpace,
        NotApplied::OptionWidth,
        NotApplied::Fragment,
        NotApplied::PayloadShort,
        NotApplied::NoRoom,
        NotApplied::AnswerRate,
        NotApplied::Unanswerable,
        NotApplied::LimitKeys,
        NotApplied::StreamUnfit,
        NotApplied::StreamPerSource,
        NotApplied::StreamHoldOver,
        NotApplied::HttpUnfit,
        NotApplied::HttpNoRoom,
        NotApplied::HttpEncodedBody,
        NotApplied::HttpPartialBody,
        NotApplied::HttpNoTransform,
        NotApplied::HttpLongBody,
        NotApplied::HttpSlowBody,
        NotApplied::HttpLostTail,
        NotApplied::HttpSurplus,
        NotApplied::HttpRulesChanged,
        NotApplied::HttpLongHead,
        NotApplied::HttpBadValue,
        NotApplied::HelperRefused,
        NotApplied::HelperNoRoom,
    ];

    /// The reason's name in counters.
    pub fn name(self) -> &'static str {
        match self {
            NotApplied::OptionSpace => "option-space",
            NotApplied::OptionWidth => "option-width",
            NotApplied::Fragment => "fragment",
            NotApplied::PayloadShort => "payload-short",
            NotApplied::NoRoom => "no-room",
            NotApplied::AnswerRate => "answer-rate",
            NotApplied::Unanswerable => "unanswerable",
            NotApplied::LimitKeys => "limit-keys",
            NotApplied::StreamUnfit => "stream-unfit",
            NotApplied::StreamPerSource => "stream-per-source",
            NotApplied::StreamHoldOver => "stream-hold-over",
            NotApplied::HttpUnfit => "http-unfit",
            NotApplied::HttpNoRoom => "http-no-room",
            NotApplied::HttpEncodedBody => "http-encoded-body",
            NotApplied::HttpPartialBody => "http-partial-body",
            NotApplied::HttpNoTransform => "http-no-transform",
            NotApplied::HttpLongBody => "http-long-body",
            NotApplied::HttpSlowBody => "http-slow-body",
            NotApplied::HttpLostTail => "http-lost-tail",
            NotApplied::HttpSurplus => "http-surplus",
            NotApplied::HttpRulesChanged => "http-rules-changed",
            NotApplied::HttpLongHead => "http-long-head",
            NotApplied::HttpBadValue => "http-bad-value",
            NotApplied::HelperRefused => "helper-refused",
            NotApplied::HelperNoRoom => "helper-no-room",
        }
    }
}

impl NotAppliedCounts {
    /// Counts one target.
    #[inline]
    pub fn count(&mut self, reason: NotApplied) {
        self.0[reason as usize] += 1;
    }
}

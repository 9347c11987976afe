//! What a table gets of a segment, and what it answers.

/// TCP flags.
pub mod flag {
    /// FIN
    pub const FIN: u8 = 0x01;
    /// SYN
    pub const SYN: u8 = 0x02;
    /// RST
    pub const RST: u8 = 0x04;
    /// ACK
    pub const ACK: u8 = 0x10;
    /// URG
    pub const URG: u8 = 0x20;
}

/// The header of a TCP segment; of a UDP datagram the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number; meaningless without the flag.
    pub ack: u32,
    /// The bits of [`flag`].
    pub flags: u8,
    /// The window field.
    pub window: u16,
    /// The window scale option of a SYN.
    pub scale: Option<u8>,
    /// TSval and TSecr of the timestamps option (RFC 7323).
    pub timestamps: Option<[u32; 2]>,
    /// The SYN has the option MP_CAPABLE of Multipath TCP (RFC 8684).
    pub is_multipath: bool,
    /// It has the option of TCP-AO (RFC 5925) or of MD5 signatures (RFC 2385).
    pub is_signed: bool,
    /// Its checksum is wrong: no receiver takes it.
    pub is_corrupt: bool,
    /// The option maximum segment size of a SYN.
    pub mss: Option<u16>,
    /// The SYN has the option SACK-permitted (RFC 2018).
    pub knows_sack: bool,
    /// It has SACK blocks.
    pub has_sack: bool,
    /// Its packet has the congestion mark CE (RFC 3168).
    pub is_marked: bool,
    /// Bytes of its TCP options.
    pub options: u8,
    /// The most bytes of payload with these headers on the link that it leaves by, if that is known.
    pub most_payload: Option<u16>,
    /// Bytes of its payload.
    pub payload: u32,
}

impl Segment {
    /// Whether it has a flag.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Bytes that are in order, for the scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InOrder<'b> {
    /// 0 for the initiator's bytes, 1 for the responder's.
    pub direction: usize,
    /// Bytes of the direction before them.
    pub offset: u64,
    /// Between them and the bytes before are others that were never seen.
    pub is_behind_gap: bool,
    /// The bytes.
    pub bytes: &'b [u8],
}

/// The numbers of a RST that one end accepts (RFC 5961 section 3.2, RFC 9293 section 3.10.7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetTarget {
    /// Sequence number: the one that the receiver expects next.
    pub seq: u32,
    /// Acknowledgment number, if the other end has sent one or the receiver needs one.
    pub ack: Option<u32>,
}

/// Why a segment must not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamDrop {
    /// Its checksum is wrong.
    BadChecksum,
    /// There is no room to keep its bytes.
    NoRoom,
    /// It is no segment that its receiver could accept now: beyond the window or behind a FIN, acknowledges what was not sent, is too old by
    /// its timestamp, has no ACK flag.
    OutOfWindow,
    /// It has urgent data, which are not allowed.
    Urgent,
    /// The scanner or the editor said stop.
    Stopped,
    /// There is no memory to go on with a stream that is edited: the caller ends its connection.
    Broken,
}

/// Whether a segment goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamVerdict {
    /// It does.
    Pass,
    /// It is dropped.
    Drop(StreamDrop),
    /// Its bytes live on in the stream, and it says nothing else.
    Absorb,
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it goes on.
    pub verdict: StreamVerdict,
    /// Bytes of the payload were changed.
    pub is_changed: bool,
    /// The new value of the window field.
    pub window: Option<u16>,
    /// The URG flag and the urgent pointer are to be cleared.
    pub clear_urgent: bool,
    /// The option MP_CAPABLE is to be overwritten with NOPs.
    pub blank_multipath: bool,
    /// The numbers and the payload of a segment of a stream with edits.
    pub edited: Option<EditedSegment>,
}

/// How a segment of a stream with edits goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditedSegment {
    /// Its sequence number.
    pub seq: u32,
    /// Its acknowledgment number.
    pub ack: u32,
    /// Its payload.
    pub payload: EditedPayload,
    /// Whether it has a FIN.
    pub has_fin: bool,
    /// It only asks the receiver for an acknowledgment.
    pub(crate) is_probe: bool,
}

/// The payload of a segment of a stream with edits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EditedPayload {
    /// The one that it has.
    #[default]
    Same,
    /// Bytes that the stream keeps: see [`StreamTable::copy_kept`](crate::StreamTable::copy_kept).
    Kept {
        /// Where they begin.
        offset: u64,
        /// Their number.
        len: usize,
    },
}

impl EditedSegment {
    /// The numbers and the payload that a segment has.
    #[inline]
    pub(crate) fn same(segment: &Segment) -> EditedSegment {
        let (seq, ack, has_fin) = (segment.seq, segment.ack, segment.has(flag::FIN));
        EditedSegment { seq, ack, has_fin, ..EditedSegment::default() }
    }
}

impl Outcome {
    /// The segment goes on as it is.
    pub const PASS: Outcome = Outcome {
        verdict: StreamVerdict::Pass,
        is_changed: false,
        window: None,
        clear_urgent: false,
        blank_multipath: false,
        edited: None,
    };

    /// How a segment that passes goes on: as its stream says, or as it came.
    pub fn edited(&self, segment: &Segment) -> EditedSegment {
        self.edited.unwrap_or(EditedSegment::same(segment))
    }

    /// Whether a segment, which passes, goes on just as it came.
    #[inline]
    pub fn keeps(&self, segment: &Segment) -> bool {
        let is_same = |edited: &EditedSegment| *edited == EditedSegment::same(segment) && !segment.has_sack;
        self.window.is_none_or(|window| window == segment.window)
            && !(self.is_changed | self.clear_urgent | self.blank_multipath)
            && self.edited.as_ref().is_none_or(is_same)
    }

    /// The segment is dropped.
    pub(crate) fn drop(why: StreamDrop) -> Outcome {
        Outcome { verdict: StreamVerdict::Drop(why), ..Outcome::PASS }
    }
}

//! The input and the result of [`StreamTable::take`](crate::StreamTable::take).

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

/// The header of a TCP segment. For a UDP datagram, most fields keep their defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number; undefined without the ACK flag.
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
    /// The segment has the option of TCP-AO (RFC 5925) or of MD5 signatures (RFC 2385).
    pub is_signed: bool,
    /// The checksum is wrong: no receiver accepts the segment.
    pub is_corrupt: bool,
    /// The maximum segment size option of a SYN.
    pub mss: Option<u16>,
    /// The SYN has the option SACK-permitted (RFC 2018).
    pub sack_permitted: bool,
    /// The segment has SACK blocks.
    pub has_sack: bool,
    /// The packet has the ECN mark CE (RFC 3168).
    pub has_ce_mark: bool,
    /// Bytes of TCP options.
    pub options: u8,
    /// The most bytes of payload that fit beside these headers on the outgoing link, if known.
    pub max_payload: Option<u16>,
    /// Bytes of payload.
    pub payload: u32,
}

impl Segment {
    /// Whether the segment has a flag, or at least one of several.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// In-order bytes for the scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InOrder<'b> {
    /// 0 for the initiator's bytes, 1 for the responder's.
    pub direction: usize,
    /// Offset of the first byte.
    pub offset: u64,
    /// Bytes that were never seen lie between these bytes and those before.
    pub follows_gap: bool,
    /// The bytes.
    pub bytes: &'b [u8],
}

/// The numbers of a RST that an end accepts (RFC 5961 section 3.2, RFC 9293 section 3.10.7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetTarget {
    /// Sequence number: the next that the end expects (RCV.NXT).
    pub seq: u32,
    /// Acknowledgment number, if the other end has sent one or the end requires one.
    pub ack: Option<u32>,
}

/// Why a segment is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamDrop {
    /// The checksum is wrong.
    BadChecksum,
    /// No space is left to buffer the bytes.
    NoRoom,
    /// Its receiver cannot accept it now: it lies beyond the window or after a FIN, acknowledges bytes that
    /// were not sent, has a timestamp that is too old, or has no ACK flag.
    OutOfWindow,
    /// It has urgent data, which are not allowed.
    Urgent,
    /// The scanner or the editor has stopped the stream, or the receiver did not acknowledge in time what
    /// mmb had acknowledged early.
    Stopped,
    /// Memory is exhausted, so an edited stream cannot continue. The caller ends its connection.
    Broken,
}

/// What to do with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamVerdict {
    /// Forward the segment, with the changes in [`Outcome`].
    Pass,
    /// Drop the segment.
    Drop(StreamDrop),
    /// Do not forward the segment: the stream has its bytes, and nothing else in it is new.
    Absorb,
}

/// The result of taking a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What to do with the segment.
    pub verdict: StreamVerdict,
    /// Bytes of the payload were changed.
    pub is_changed: bool,
    /// New value of the window field.
    pub window: Option<u16>,
    /// The caller must clear the URG flag and the urgent pointer.
    pub clear_urgent: bool,
    /// The caller must overwrite the MP_CAPABLE option with NOPs.
    pub blank_multipath: bool,
    /// Numbers and payload of the segment to forward, if the stream has edits.
    pub edited: Option<EditedSegment>,
}

/// The segment to forward on a stream with edits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditedSegment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Payload.
    pub payload: EditedPayload,
    /// Whether the segment has a FIN.
    pub has_fin: bool,
    /// The segment only asks the receiver for an acknowledgment.
    pub(crate) is_probe: bool,
}

/// The payload of a segment to forward on a stream with edits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EditedPayload {
    /// The original payload.
    #[default]
    Same,
    /// Bytes that the stream has buffered: see
    /// [`StreamTable::copy_buffered`](crate::StreamTable::copy_buffered).
    Buffered {
        /// Output offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: usize,
    },
}

impl EditedSegment {
    /// The original numbers and payload of a segment.
    #[inline]
    pub(crate) fn same(segment: &Segment) -> EditedSegment {
        let (seq, ack, has_fin) = (segment.seq, segment.ack, segment.has(flag::FIN));
        EditedSegment { seq, ack, has_fin, ..EditedSegment::default() }
    }
}

impl Outcome {
    /// The segment passes unchanged.
    pub const PASS: Outcome = Outcome {
        verdict: StreamVerdict::Pass,
        is_changed: false,
        window: None,
        clear_urgent: false,
        blank_multipath: false,
        edited: None,
    };

    /// The segment to forward, if `segment` passes: the stream's version, or `segment` itself.
    pub fn edited(&self, segment: &Segment) -> EditedSegment {
        self.edited.unwrap_or(EditedSegment::same(segment))
    }

    /// Whether `segment`, which passes, is forwarded unchanged.
    #[inline]
    pub fn leaves_unchanged(&self, segment: &Segment) -> bool {
        let is_same = |edited: &EditedSegment| *edited == EditedSegment::same(segment) && !segment.has_sack;
        self.window.is_none_or(|window| window == segment.window)
            && !(self.is_changed | self.clear_urgent | self.blank_multipath)
            && self.edited.as_ref().is_none_or(is_same)
    }

    /// The segment is dropped.
    pub(crate) fn drop(reason: StreamDrop) -> Outcome {
        Outcome { verdict: StreamVerdict::Drop(reason), ..Outcome::PASS }
    }
}

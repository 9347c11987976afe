//! Header values of an end's packets, for packets that are generated in its name.

use crate::segment::Segment;

/// The payload that any path carries: 576 bytes less the headers (RFC 9293 section 3.7.1) and options.
pub(super) const MIN_PAYLOAD: u16 = 500;

/// Lower bound of `HeaderValues::max_payload`, whatever a receiver's SYN says. Smaller segments would turn
/// one packet into many.
const FLOOR: u16 = 64;

/// The bytes of the timestamps option in a segment (RFC 7323 appendix A).
const TIMESTAMPS: u16 = 12;

/// Header values of one end's packets, and the windows that the end is offered. Edits need them for as long
/// as the stream lives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeaderValues {
    /// The end's SYN allowed SACK.
    pub(crate) sack_permitted: bool,
    /// The MSS option of the end's SYN, if there was one.
    pub(crate) mss: Option<u16>,
    /// The largest payload that the end has sent.
    pub(crate) largest_payload: u16,
    /// Right edge of the widest window that the receiver has offered, as an offset of output.
    pub(crate) window_edge: u64,
    /// The largest payload that the path carries, as far as is known.
    pub(crate) path_payload: Option<u16>,
    /// The largest payload that fits on the outgoing link, if known.
    pub(crate) link_payload: Option<u16>,
    /// The window field of the end's last packet that was forwarded.
    pub(crate) window: u16,
    /// TSval and TSecr of the end's last segment, if it uses timestamps.
    pub(crate) timestamps: Option<[u32; 2]>,
}

impl HeaderValues {
    /// Records the right edge of a window that the receiver offers.
    #[inline]
    pub(crate) fn record_window_edge(&mut self, edge: u64) {
        self.window_edge = self.window_edge.max(edge);
    }

    /// Records the payload length of a segment.
    #[inline]
    pub(crate) fn record_payload(&mut self, len: usize) {
        self.largest_payload = self.largest_payload.max(len.min(usize::from(u16::MAX)) as u16);
    }

    /// The most payload of a segment with output. It is at most the largest payload that the sender has sent,
    /// or what any path carries if that is more. The receiver's SYN, the path and the link bound it too.
    pub(crate) fn max_payload(&self, receiver_mss: Option<u16>) -> u64 {
        let options = if self.timestamps.is_some() { TIMESTAMPS } else { 0 };
        let receiver = receiver_mss.map_or(u16::MAX, |mss| mss.saturating_sub(options));
        let path = self.path_payload.unwrap_or(u16::MAX);
        let max = self.largest_payload.max(MIN_PAYLOAD).min(receiver).min(path).max(FLOOR);
        u64::from(max.min(self.link_payload.unwrap_or(u16::MAX)).max(1))
    }

    /// The same for the current packet. Options that other packets do not have, such as SACK blocks, reduce
    /// its payload (RFC 6691).
    pub(crate) fn max_payload_of(&self, segment: &Segment, receiver_mss: Option<u16>) -> u64 {
        let usual = if segment.timestamps.is_some() { TIMESTAMPS } else { 0 };
        let more = u64::from(u16::from(segment.options).saturating_sub(usual));
        let max = self.max_payload(receiver_mss).saturating_sub(more);
        max.min(segment.max_payload.map_or(u64::MAX, u64::from)).max(1)
    }
}

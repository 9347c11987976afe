//! What is noted of the packets of an end, for packets that are made in its place.

use crate::segment::Segment;

/// The payload that any path carries (RFC 9293 section 3.7.1: 576 bytes without headers), without options.
pub(super) const LEAST_PAYLOAD: u16 = 500;

/// No segment is cut into smaller ones, whatever a receiver's SYN says: that would make many packets of one.
const FLOOR: u16 = 64;

/// The bytes of the timestamps option in a segment (RFC 7323 appendix A).
const TIMESTAMPS: u16 = 12;

/// What is noted of one end, and of the windows that it gets: what edits need of a direction for as long as its stream lives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noted {
    /// The end's SYN allowed SACK.
    pub(crate) knows_sack: bool,
    /// The largest segment that its SYN allows, if it says so.
    pub(crate) mss: Option<u16>,
    /// The largest payload that it has sent.
    pub(crate) largest: u16,
    /// The end of the widest window that its receiver has offered, in output.
    pub(crate) edge: u64,
    /// The largest payload that the path carries, as far as is known.
    pub(crate) path: Option<u16>,
    /// The largest payload that the link has room for, if that is known.
    pub(crate) room: Option<u16>,
    /// The window field of its last packet that went on.
    pub(crate) window: u16,
    /// TSval and TSecr of its last segment, if it uses timestamps.
    pub(crate) timestamps: Option<[u32; 2]>,
}

impl Noted {
    /// Notes the end of a window that the receiver offers.
    #[inline]
    pub(crate) fn note_edge(&mut self, edge: u64) {
        self.edge = self.edge.max(edge);
    }

    /// Notes how much payload the end puts into a segment.
    #[inline]
    pub(crate) fn note_payload(&mut self, len: usize) {
        self.largest = self.largest.max(len.min(usize::from(u16::MAX)) as u16);
    }

    /// The most payload of a segment that is let go: no more than the sender has put into one, or what any path carries; and no more than the
    /// receiver's SYN and the path allow.
    pub(crate) fn most_payload(&self, receiver_mss: Option<u16>) -> u64 {
        let options = if self.timestamps.is_some() { TIMESTAMPS } else { 0 };
        let receiver = receiver_mss.map_or(u16::MAX, |mss| mss.saturating_sub(options));
        let path = self.path.unwrap_or(u16::MAX);
        let most = self.largest.max(LEAST_PAYLOAD).min(receiver).min(path).max(FLOOR);
        u64::from(most.min(self.room.unwrap_or(u16::MAX)).max(1))
    }

    /// The same for the packet at hand: what options it has beyond those of all packets, such as SACK blocks, take from its payload (RFC 6691).
    pub(crate) fn most_payload_of(&self, segment: &Segment, receiver_mss: Option<u16>) -> u64 {
        let usual = if segment.timestamps.is_some() { TIMESTAMPS } else { 0 };
        let more = u64::from(u16::from(segment.options).saturating_sub(usual));
        let most = self.most_payload(receiver_mss).saturating_sub(more);
        most.min(segment.most_payload.map_or(u64::MAX, u64::from)).max(1)
    }
}

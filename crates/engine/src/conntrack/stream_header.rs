//! TCP headers as streams read and change them. Lengths never change.

use mmb_conn::TcpSegment;
use mmb_packet::checksum::{ChecksumDelta, transport_sum};
use mmb_packet::{Layout, Packet, options};
use mmb_stream::{Outcome, Segment, flag};

/// Kinds of TCP options.
const NOP: u8 = 1;
const WINDOW_SCALE: u8 = 3;
const TIMESTAMPS: u8 = 8;
const MD5: u8 = 19;
const AO: u8 = 29;
const MULTIPATH: u8 = 30;
/// The subtype of MP_CAPABLE (RFC 8684 section 3.1).
const MP_CAPABLE: u8 = 0;

/// The header of a segment as streams need it.
pub(super) fn stream_segment(segment: &TcpSegment, packet: &Packet<'_>, layout: &Layout) -> Segment {
    let TcpSegment { seq, ack, flags, window, .. } = *segment;
    let mut read = Segment { seq, ack, flags, window, ..Segment::default() };
    let area = options::area(packet, layout);
    // Nearly all segments have nothing but timestamps, aligned (RFC 7323 appendix A).
    if let [NOP, NOP, TIMESTAMPS, 10, data @ ..] = area
        && let Some(data) = data.first_chunk::<8>()
        && area.len() == 12
    {
        read.timestamps = Some(timestamps(data));
        return read;
    }
    for option in options::walk(area) {
        match option.kind {
            WINDOW_SCALE if read.has(flag::SYN) => read.scale = read.scale.or(option.data.first().copied()),
            TIMESTAMPS => read.timestamps = option.data.first_chunk().map(timestamps).or(read.timestamps),
            MD5 | AO => read.is_signed = true,
            MULTIPATH if read.has(flag::SYN) => {
                read.is_multipath |= option.data.first().is_some_and(|first| first >> 4 == MP_CAPABLE);
            }
            _ => {}
        }
    }
    read
}

fn timestamps([a, b, c, d, e, f, g, h]: &[u8; 8]) -> [u32; 2] {
    [u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])]
}

/// Changes a segment as its stream demands.
pub(super) fn change_segment(outcome: &Outcome, packet: &mut Packet<'_>, layout: &Layout) {
    const FLAGS: usize = 13;
    const WINDOW: usize = 14;
    const CHECKSUM: usize = 16;
    const URGENT: usize = 18;
    if !outcome.is_changed && outcome.window.is_none() && !outcome.clear_urgent && !outcome.blank_multipath {
        return;
    }
    if outcome.blank_multipath {
        blank_multipath(packet, layout);
    }
    let l4 = usize::from(layout.l4);
    let Some(header) = packet.bytes_mut().get_mut(l4..).and_then(|header| header.first_chunk_mut::<20>())
    else {
        return;
    };
    let mut delta = ChecksumDelta::default();
    if let Some(window) = outcome.window {
        let new = window.to_be_bytes();
        delta.word([header[WINDOW], header[WINDOW + 1]], new);
        header[WINDOW..WINDOW + 2].copy_from_slice(&new);
    }
    if outcome.clear_urgent {
        delta.byte(true, header[FLAGS], header[FLAGS] & !flag::URG);
        delta.word([header[URGENT], header[URGENT + 1]], [0; 2]);
        header[FLAGS] &= !flag::URG;
        header[URGENT..URGENT + 2].fill(0);
    }
    let checksum = [header[CHECKSUM], header[CHECKSUM + 1]];
    if !outcome.is_changed && !outcome.blank_multipath {
        header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&delta.apply(checksum));
        return;
    }
    header[CHECKSUM..CHECKSUM + 2].fill(0);
    if let Some(sum) = transport_sum(packet.bytes(), layout) {
        let checksum = sum.checksum().to_be_bytes();
        packet.bytes_mut()[l4 + CHECKSUM..l4 + CHECKSUM + 2].copy_from_slice(&checksum);
    }
}

/// Overwrites the options MP_CAPABLE of a SYN with NOPs.
#[cold]
fn blank_multipath(packet: &mut Packet<'_>, layout: &Layout) {
    let range = layout.tcp_options();
    let Some(area) = packet.bytes_mut().get_mut(range) else { return };
    let mut at = 0;
    while let Some(&kind) = area.get(at) {
        let len = match kind {
            0 => return,
            NOP => 1,
            _ => usize::from(area.get(at + 1).copied().unwrap_or_default()),
        };
        if len == 0 || (kind != NOP && len < 2) || at + len > area.len() {
            return;
        }
        if kind == MULTIPATH && area.get(at + 2).is_some_and(|first| first >> 4 == MP_CAPABLE) && len > 2 {
            area[at..at + len].fill(NOP);
        }
        at += len;
    }
}

//! Reads and changes the TCP headers of packets of streams, and replaces the payloads of edited packets.

use mmb_conn::TcpSegment;
use mmb_packet::checksum::{ChecksumDelta, field_offset, transport_sum};
use mmb_packet::{Class, Layout, Packet, options, proto, resize_payload};
use mmb_stream::{EditedPayload, EditedSegment, Outcome, Segment, flag};

/// Kinds of TCP options.
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const MD5: u8 = 19;
const AO: u8 = 29;
const MULTIPATH: u8 = 30;
/// The subtype of MP_CAPABLE (RFC 8684 section 3.1).
const MP_CAPABLE: u8 = 0;

/// The header fields of a segment that streams need.
pub(super) fn stream_segment(segment: &TcpSegment, packet: &Packet<'_>, layout: &Layout) -> Segment {
    let TcpSegment { seq, ack, flags, window, .. } = *segment;
    let mut read =
        Segment { seq, ack, flags, window, has_ce_mark: has_ce_mark(packet, layout), ..Segment::default() };
    let area = options::area(packet, layout);
    read.options = area.len() as u8;
    // Nearly all segments have only aligned timestamps (RFC 7323, appendix A).
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
            MSS if read.has(flag::SYN) => {
                read.mss = option.data.first_chunk().map(|mss| u16::from_be_bytes(*mss))
            }
            SACK_PERMITTED if read.has(flag::SYN) => read.sack_permitted = true,
            SACK => read.has_sack = true,
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

/// Whether a packet has the congestion mark CE (RFC 3168 section 5).
fn has_ce_mark(packet: &Packet<'_>, layout: &Layout) -> bool {
    const MARK: u8 = 0b11;
    let ip = usize::from(layout.ip);
    let traffic_class = match layout.class {
        Class::Ip4 => packet.bytes().get(ip + 1).copied(),
        Class::Ip6 => packet.bytes().get(ip + 1).map(|byte| byte >> 4),
        Class::Other => None,
    };
    traffic_class.is_some_and(|class| class & MARK == MARK)
}

/// Offsets in a TCP header.
const FLAGS: usize = 13;
const WINDOW: usize = 14;
const CHECKSUM: usize = 16;
const URGENT: usize = 18;

/// Applies the outcome of a stream without edits to the header of a segment, and updates the checksum.
pub(super) fn change_segment(outcome: &Outcome, packet: &mut Packet<'_>, layout: &Layout) {
    if !outcome.is_changed && outcome.window.is_none() && !outcome.clear_urgent && !outcome.blank_multipath {
        return;
    }
    let delta = change_header(outcome, packet, layout);
    if outcome.is_changed || outcome.blank_multipath {
        return mend_checksum(packet, layout);
    }
    apply(delta, packet, layout);
}

/// Updates the checksum of a TCP segment.
fn apply(delta: ChecksumDelta, packet: &mut Packet<'_>, layout: &Layout) {
    let start = usize::from(layout.l4) + CHECKSUM;
    if layout.l4_kind == proto::TCP
        && let Some(place) = packet.bytes_mut().get_mut(start..).and_then(|rest| rest.first_chunk_mut::<2>())
    {
        *place = delta.apply(*place);
    }
}

/// Changes the fields of a header. Returns the change of the checksum, without that of options that were
/// overwritten.
fn change_header(outcome: &Outcome, packet: &mut Packet<'_>, layout: &Layout) -> ChecksumDelta {
    let mut delta = ChecksumDelta::default();
    if outcome.blank_multipath {
        blank_multipath(packet, layout);
    }
    let l4 = usize::from(layout.l4);
    let Some(header) = packet.bytes_mut().get_mut(l4..).and_then(|header| header.first_chunk_mut::<20>())
    else {
        return delta;
    };
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
    delta
}

/// Computes the transport checksum of the whole packet.
fn mend_checksum(packet: &mut Packet<'_>, layout: &Layout) {
    let Some(field) = field_offset(layout.l4_kind) else { return };
    let start = usize::from(layout.l4) + field;
    let Some(place) = packet.bytes_mut().get_mut(start..start + 2) else { return };
    // A UDP datagram without a checksum is sent without one (RFC 768).
    if layout.l4_kind == proto::UDP && *place == [0; 2] {
        return;
    }
    place.fill(0);
    let Some(sum) = transport_sum(packet.bytes(), layout) else { return };
    let checksum = match sum.checksum() {
        0 if layout.l4_kind == proto::UDP => u16::MAX,
        checksum => checksum,
    };
    packet.bytes_mut()[start..start + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Applies the outcome of a stream with edits to a segment or datagram: its numbers, its payload and its FIN.
/// `shift` is the value of `Conntrack::ack_shift`. `copy` writes the bytes of the stream from an offset on;
/// `sack` maps a SACK block. Returns false if the packet has no room for the payload.
pub(super) fn edit_segment(
    (outcome, shift): (&Outcome, u32),
    packet: &mut Packet<'_>,
    layout: &mut Layout,
    copy: impl FnOnce(u64, &mut [u8]),
    sack: impl Fn([u32; 2]) -> Option<[u32; 2]>,
) -> bool {
    let Some(edited) = outcome.edited else {
        change_segment(outcome, packet, layout);
        return true;
    };
    let mut is_same = !(outcome.blank_multipath | outcome.is_changed);
    if let EditedPayload::Buffered { offset, len } = edited.payload {
        if len != layout.payload_range().len() && !resize_payload(packet, layout, len) {
            return false;
        }
        let payload = packet.bytes_mut().get_mut(layout.payload_range()).unwrap_or_default();
        copy(offset, payload);
        is_same = false;
    }
    let mut delta = ChecksumDelta::default();
    if layout.l4_kind == proto::TCP {
        delta = change_numbers((&edited, shift), packet, layout);
        is_same &= !map_sack(packet, layout, |[left, right]| {
            let mapped = sack([left.wrapping_add(shift), right.wrapping_add(shift)])?;
            Some(mapped.map(|edge| edge.wrapping_sub(shift)))
        });
        delta = delta.and(change_header(outcome, packet, layout));
    }
    if is_same {
        apply(delta, packet, layout)
    } else {
        mend_checksum(packet, layout)
    }
    true
}

/// Changes the numbers and the FIN of a TCP header. Returns the change of the checksum.
fn change_numbers(
    (edited, shift): (&EditedSegment, u32),
    packet: &mut Packet<'_>,
    layout: &Layout,
) -> ChecksumDelta {
    let mut delta = ChecksumDelta::default();
    let l4 = usize::from(layout.l4);
    let Some(header) = packet.bytes_mut().get_mut(l4..).and_then(|header| header.first_chunk_mut::<20>())
    else {
        return delta;
    };
    let has_ack = header[FLAGS] & flag::ACK != 0;
    let numbers = [(4, Some(edited.seq)), (8, has_ack.then(|| edited.ack.wrapping_sub(shift)))];
    for (offset, new) in numbers {
        if let (Some(new), Some(place)) = (new, header[offset..].first_chunk_mut::<4>()) {
            let before = std::mem::replace(place, new.to_be_bytes());
            delta.long(u32::from_ne_bytes(before), u32::from_ne_bytes(*place));
        }
    }
    let flags = if edited.has_fin { header[FLAGS] | flag::FIN } else { header[FLAGS] & !flag::FIN };
    delta.byte(true, header[FLAGS], flags);
    header[FLAGS] = flags;
    delta
}

/// Maps the SACK blocks of a segment, and returns whether it has the option. A block for which `map` returns
/// `None` is removed: the option becomes shorter, and NOPs fill the rest.
fn map_sack(packet: &mut Packet<'_>, layout: &Layout, map: impl Fn([u32; 2]) -> Option<[u32; 2]>) -> bool {
    let range = layout.tcp_options();
    let Some(area) = packet.bytes_mut().get_mut(range) else { return false };
    let found = options::walk(area).find(|option| option.kind == SACK);
    let Some((start, len)) = found.map(|option| (option.offset, option.data.len())) else { return false };
    let Some(option) = area.get_mut(start..start + 2 + len) else { return false };
    let mut kept = 0;
    for number in 0..len / 8 {
        let block = 2 + 8 * number;
        let edge = |offset: usize| {
            u32::from_be_bytes([option[offset], option[offset + 1], option[offset + 2], option[offset + 3]])
        };
        if let Some([left, right]) = map([edge(block), edge(block + 4)]) {
            let place = 2 + 8 * kept;
            option[place..place + 4].copy_from_slice(&left.to_be_bytes());
            option[place + 4..place + 8].copy_from_slice(&right.to_be_bytes());
            kept += 1;
        }
    }
    let end = if kept == 0 { 0 } else { 2 + 8 * kept };
    if kept > 0 {
        option[1] = end as u8;
    }
    option[end..].fill(NOP);
    true
}

/// Overwrites the MP_CAPABLE options of a SYN with NOPs.
#[cold]
fn blank_multipath(packet: &mut Packet<'_>, layout: &Layout) {
    let range = layout.tcp_options();
    let Some(area) = packet.bytes_mut().get_mut(range) else { return };
    let mut position = 0;
    while let Some(&kind) = area.get(position) {
        let len = match kind {
            0 => return,
            NOP => 1,
            _ => usize::from(area.get(position + 1).copied().unwrap_or_default()),
        };
        if len == 0 || (kind != NOP && len < 2) || position + len > area.len() {
            return;
        }
        if kind == MULTIPATH
            && area.get(position + 2).is_some_and(|first| first >> 4 == MP_CAPABLE)
            && len > 2
        {
            area[position..position + len].fill(NOP);
        }
        position += len;
    }
}

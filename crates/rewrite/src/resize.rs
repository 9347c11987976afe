//! Writes a changed option area back to its packet.

use crate::fields::RewritePass;
use crate::option_area::OptionList;
use mmb_packet::checksum::ChecksumDelta;
use mmb_packet::key::flags;
use mmb_packet::options::{END, NOP, walk};
use mmb_packet::parse::{IP6_HEADER, TCP_HEADER};
use mmb_packet::{Class, Layout, Packet};

/// Writes the values of options that stay at their places.
pub(crate) fn write_values(area: &mut [u8], list: &OptionList, delta: &mut ChecksumDelta) {
    let mut options = list.options();
    let mut at = 0;
    // The iteration restarts after each option, because the area is written in between.
    while let Some(option) = area.get(at..).and_then(|rest| walk(rest).next()) {
        if matches!(option.kind, END | NOP) {
            at += 1;
            continue;
        }
        let data = at + 2..at + 2 + option.data.len();
        at = data.end;
        let odd = data.start % 2 != 0;
        let (Some(new), Some(old)) = (options.next(), area.get_mut(data)) else { return };
        if old.len() == new.data.len() {
            delta.bytes(odd, old, new.data);
            old.copy_from_slice(new.data);
        }
    }
}

/// Gives a TCP packet another option area, whose length is a multiple of 4. The headers before it move, the payload does not.
/// `None`, without a change, if there is no room.
pub(crate) fn write_area(
    packet: &mut Packet<'_>,
    layout: &mut Layout,
    area: &[u8],
    pass: &mut RewritePass,
) -> Option<()> {
    let old_area = layout.tcp_options();
    let (headers, old_len) = (old_area.start, old_area.len());
    let moved = moved(layout, area.len())?;
    let mut delta = pass.transport;
    delta.bytes(false, packet.bytes().get(old_area)?, area);
    // The old area is in the packet, so the headers before it are, before and after the move.
    if area.len() > old_len {
        let by = area.len() - old_len;
        if !packet.grow_front(by) {
            return None;
        }
        packet.bytes_mut().copy_within(by..by + headers, 0);
    } else {
        let by = old_len - area.len();
        packet.bytes_mut().copy_within(..headers, by);
        packet.shrink_front(by);
    }
    pass.transport = delta;
    let bytes = packet.bytes_mut();
    if let Some(place) = bytes.get_mut(headers..).and_then(|rest| rest.get_mut(..area.len())) {
        place.copy_from_slice(area);
    }
    write_lengths(bytes, layout, &moved, pass);
    *layout = moved;
    Some(())
}

/// The layout with an option area of `len` bytes; `None` if a length or an offset would exceed its field.
fn moved(layout: &Layout, len: usize) -> Option<Layout> {
    let old_len = layout.tcp_options().len() as u32;
    let len = u32::try_from(len).ok()?;
    let shift = |offset: u32| Some(offset.checked_add(len)? - old_len);
    let mut moved = *layout;
    moved.payload = shift(u32::from(layout.payload))?.try_into().ok()?;
    moved.payload_end = shift(layout.payload_end)?;
    moved.end = shift(layout.end)?;
    moved.flags &= !flags::TCP_OPTION_AREA;
    if len > 0 {
        moved.flags |= flags::TCP_OPTION_AREA;
    }
    ip_length(&moved)?;
    Some(moved)
}

/// The number in the IP header's length field, and the place of the field.
fn ip_length(layout: &Layout) -> Option<(u16, usize)> {
    let ip = u32::from(layout.ip);
    let (start, field) = if layout.class == Class::Ip6 { (ip + IP6_HEADER as u32, 4) } else { (ip, 2) };
    let length = layout.end.checked_sub(start)?.try_into().ok()?;
    Some((length, usize::from(layout.ip) + field))
}

/// Writes the IP length and the TCP data offset and updates the checksums, including the length in the pseudo header.
fn write_lengths(bytes: &mut [u8], old: &Layout, new: &Layout, pass: &mut RewritePass) {
    if let Some((length, field)) = ip_length(new)
        && let Some(place) = bytes.get_mut(field..).and_then(|rest| rest.first_chunk_mut::<2>())
    {
        let length = length.to_be_bytes();
        if new.class == Class::Ip4 {
            pass.header.word(*place, length);
        }
        *place = length;
    }
    let segment = |layout: &Layout| ((layout.end - u32::from(layout.l4)) as u16).to_be_bytes();
    pass.transport.word(segment(old), segment(new));

    let offset_at = usize::from(new.l4) + 12;
    if let Some(place) = bytes.get_mut(offset_at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        let words = (TCP_HEADER + new.tcp_options().len()) / 4;
        let changed = [(words as u8) << 4 | place[0] & 0x0f, place[1]];
        pass.transport.word(*place, changed);
        *place = changed;
    }
}

//! Finishing what a sender left to hardware that is not there.
//!
//! A Linux sender whose device promises to compute transport checksums (veth does) leaves the checksum field holding the
//! folded sum of the pseudo header, not inverted, for the device to sum up the rest. mmb receives such frames
//! unfinished. [`finish_checksum`] tells them by exactly that value.
//!
//! A finished checksum can have that value by chance (1 in 65,536). It is then computed again: a right one comes
//! out the same.

use crate::checksum::{self, Sum, TCP, UDP, field_offset};
use crate::parse::Layout;
use crate::view::Packet;

/// Completes an unfinished TCP or UDP checksum; true if the packet had one.
///
/// Fragments and packets that are source-routed are left alone: their checksum does not cover what is here.
#[inline]
pub fn finish_checksum(packet: &mut Packet<'_>, layout: &Layout) -> bool {
    if !matches!(layout.l4_kind, TCP | UDP) || layout.is_fragment() || layout.routed {
        return false;
    }
    finish(packet.bytes_mut(), layout).is_some()
}

fn finish(bytes: &mut [u8], layout: &Layout) -> Option<()> {
    let unfinished = checksum::pseudo_header(bytes, layout)?.fold();
    let segment = bytes.get_mut(usize::from(layout.l4)..layout.payload_end as usize)?;
    let field = field_offset(layout.l4_kind)?;
    if segment.get(field..)?.first_chunk() != Some(&unfinished.to_be_bytes()) {
        return None;
    }
    // The field stands for the pseudo header in this sum.
    let sum = match Sum::default().bytes(segment).checksum() {
        0 if layout.l4_kind == UDP => 0xffff,
        sum => sum,
    };
    *segment.get_mut(field..)?.first_chunk_mut()? = sum.to_be_bytes();
    Some(())
}

//! Finishing what a sender left to hardware that is not there.
//!
//! A Linux sender whose device promises to compute transport checksums (veth does) leaves the checksum field holding the
//! folded sum of the pseudo header, not inverted, for the device to sum up the rest. mmb receives such frames
//! unfinished. [`finish_checksum`] tells them by exactly that value. In a tunnel it is the inner checksum that is unfinished; that of the tunnel is
//! right as soon as the inner one is finished.
//!
//! SCTP senders leave zero. [`finish_sctp`] completes what a host knows to be unfinished.
//!
//! A finished checksum can have that value by chance (1 in 65,536, with SCTP 1 in 4 billion). It is then computed again: a right one comes
//! out the same.

use crate::checksum::{self, ChecksumSum, field_offset};
use crate::crc::crc32c;
use crate::layout::Layout;
use crate::proto::SCTP;
use crate::proto::{TCP, UDP};
use crate::tunnel::{self, MAX_TUNNELS};
use crate::view::Packet;

/// The offset of the checksum in an SCTP header.
const SCTP_CHECKSUM: usize = 8;

/// Completes an unfinished TCP, UDP or SCTP checksum, of the packet or of one in a tunnel; true if there was one.
///
/// Fragments and packets that are source-routed are left alone: their checksum does not cover what is here.
#[inline]
pub fn finish_checksum(packet: &mut Packet<'_>, layout: &Layout) -> bool {
    if finish_outer(packet, layout) {
        return true;
    }
    let mut outer = *layout;
    for _ in 0..MAX_TUNNELS {
        let Some(inner) = tunnel::inner(packet.bytes(), &outer, usize::MAX) else { return false };
        if finish_outer(packet, &inner) {
            return true;
        }
        outer = inner;
    }
    false
}

/// As [`finish_checksum`], for the packet itself and not for one in a tunnel.
#[inline]
fn finish_outer(packet: &mut Packet<'_>, layout: &Layout) -> bool {
    if layout.is_fragment() || layout.is_routed() {
        return false;
    }
    if layout.proto == SCTP {
        let covered = packet.bytes_mut().get_mut(usize::from(layout.l4)..layout.payload_end as usize);
        return covered.is_some_and(|packet| {
            packet.get(SCTP_CHECKSUM..SCTP_CHECKSUM + 4) == Some(&[0; 4]) && finish_sctp(packet)
        });
    }
    if !matches!(layout.l4_kind, TCP | UDP) {
        return false;
    }
    finish(packet.bytes_mut(), layout).is_some()
}

/// Computes the checksum of an SCTP packet, from its header to its end. False if it is too short to have one.
pub fn finish_sctp(packet: &mut [u8]) -> bool {
    if let Some(field) = packet.get_mut(SCTP_CHECKSUM..SCTP_CHECKSUM + 4) {
        field.fill(0);
    }
    let sum = crc32c(packet);
    match packet.get_mut(SCTP_CHECKSUM..SCTP_CHECKSUM + 4) {
        // The one number in an IP packet that is sent with its lowest byte first.
        Some(field) => {
            field.copy_from_slice(&sum.to_le_bytes());
            true
        }
        None => false,
    }
}

fn finish(bytes: &mut [u8], layout: &Layout) -> Option<()> {
    let unfinished = checksum::pseudo_header(bytes, layout)?.fold();
    let segment = bytes.get_mut(usize::from(layout.l4)..layout.payload_end as usize)?;
    let field = field_offset(layout.l4_kind)?;
    if segment.get(field..)?.first_chunk() != Some(&unfinished.to_be_bytes()) {
        return None;
    }
    // The field stands for the pseudo header in this sum.
    let sum = match ChecksumSum::default().bytes(segment).checksum() {
        0 if layout.l4_kind == UDP => 0xffff,
        sum => sum,
    };
    *segment.get_mut(field..)?.first_chunk_mut()? = sum.to_be_bytes();
    Some(())
}

//! The transport header, the same over both IP versions.

use crate::key::flags;
use crate::layout::{Class, Layout, SHORT_HEADER, TCP_HEADER};
use crate::malformed::Malformed;
use crate::proto::{ICMP, ICMP6, TCP, UDP};

/// Checks what lies at `layout.l4` and fills in what depends on it.
pub(super) fn walk(bytes: &[u8], layout: &mut Layout) -> Result<(), Malformed> {
    layout.payload = layout.l4;
    layout.payload_end = layout.end;
    if layout.is_later_fragment() {
        layout.payload_end = u32::from(layout.l4);
        return Ok(());
    }
    let segment = bytes.get(usize::from(layout.l4)..layout.end as usize).unwrap_or_default();
    let header_len = match (layout.proto, layout.class) {
        (TCP, _) => tcp(segment, layout)?,
        (UDP, _) => udp(segment, layout)?,
        (ICMP, Class::Ip4) | (ICMP6, Class::Ip6) => {
            require(segment, SHORT_HEADER, layout)?;
            SHORT_HEADER
        }
        _ => 0,
    };
    if header_len > 0 {
        layout.l4_kind = layout.proto;
    }
    // Only a chain of IPv6 extension headers can bring the header this far behind.
    layout.payload =
        u16::try_from(usize::from(layout.l4) + header_len).map_err(|_| Malformed::Ip6ChainTooLong)?;
    layout.payload_end = layout.payload_end.max(u32::from(layout.payload));
    if layout.payload_end > u32::from(layout.payload) {
        layout.flags |= flags::HAS_PAYLOAD;
    }
    Ok(())
}

fn tcp(segment: &[u8], layout: &mut Layout) -> Result<usize, Malformed> {
    require(segment, TCP_HEADER, layout)?;
    let header_len = usize::from(segment[12] >> 4) * 4;
    if header_len < TCP_HEADER {
        return Err(Malformed::TcpBadOffset);
    }
    if header_len > segment.len() {
        return Err(if layout.is_fragment() { Malformed::TinyFragment } else { Malformed::TcpBadOffset });
    }
    if header_len > TCP_HEADER {
        layout.flags |= flags::TCP_OPTION_AREA;
    }
    Ok(header_len)
}

fn udp(segment: &[u8], layout: &mut Layout) -> Result<usize, Malformed> {
    require(segment, SHORT_HEADER, layout)?;
    let announced = u32::from(u16::from_be_bytes([segment[4], segment[5]]));
    layout.payload_end = layout.end.min(u32::from(layout.l4) + announced);
    Ok(SHORT_HEADER)
}

/// The segment has at least `len` bytes, so that it may be indexed below that.
fn require(segment: &[u8], len: usize, layout: &Layout) -> Result<(), Malformed> {
    if segment.len() >= len {
        Ok(())
    } else if layout.is_fragment() {
        Err(Malformed::TinyFragment)
    } else {
        Err(Malformed::L4Truncated)
    }
}

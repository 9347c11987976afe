//! pcapng: blocks of a type, a length, a body padded to 4 bytes, and the length again
//! (draft-ietf-opsawg-pcapng).

use super::bytes::{ByteOrder, padded};
use super::item::{Frame, MAX_INTERFACES, MAX_PACKET_BYTES, Meta, link_type};

/// Type of a section header block; the same in both byte orders.
pub(super) const SECTION: u32 = 0x0a0d_0d0a;
/// Type of an interface description block.
pub(super) const INTERFACE: u32 = 1;
/// Type of an obsolete packet block.
pub(super) const OBSOLETE: u32 = 2;
/// Type of a simple packet block.
pub(super) const SIMPLE: u32 = 3;
/// Type of an enhanced packet block.
pub(super) const ENHANCED: u32 = 6;

/// Bytes in front of a block's body: type and length.
pub(super) const HEAD: usize = 8;
/// Bytes behind a block's body: the length again.
pub(super) const TAIL: usize = 4;
/// The offset of the section length in a section header block.
pub(super) const SECTION_LEN_AT: usize = 16;
/// The offset of the snap length in an interface description block.
pub(super) const SNAPLEN_AT: usize = 12;
/// Bytes of a packet block's body in front of the packet.
pub(super) const PACKET_HEAD: usize = 20;
/// Bytes of a simple packet block's body in front of the packet.
pub(super) const SIMPLE_HEAD: usize = 4;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const OPTION_END: u16 = 0;
/// Option of a packet block: a hash over the packet.
pub(super) const OPTION_HASH: u16 = 3;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_OFFSET: u16 = 14;

/// The byte order by a section header's magic (its bytes 8 to 11).
pub(super) fn section_order(magic: &[u8]) -> Option<ByteOrder> {
    [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| order.u32(magic, 0) == BYTE_ORDER_MAGIC)
}

/// The data about packets from the blocks of a section so far.
pub(super) struct NgSection {
    pub(super) order: ByteOrder,
    interfaces: Vec<NgInterface>,
}

/// An interface that packets were captured on.
struct NgInterface {
    /// The link type's number.
    link: u32,
    snaplen: u32,
    clock: Clock,
}

/// The resolution of an interface's timestamps.
struct Clock {
    /// Nanoseconds of one unit, where that is a whole number.
    unit_ns: Option<u64>,
    /// Units of one second; 0 if that is beyond any sense.
    per_second: u128,
    offset_s: i64,
}

/// A packet block taken apart.
pub(super) struct PacketBlock {
    pub(super) frame: Frame,
    /// `None`: the block has no time.
    pub(super) time_ns: Option<u64>,
    pub(super) link: Result<mmb_packet::LinkType, u32>,
    pub(super) captured_len: u32,
    pub(super) original_len: u32,
    /// Bytes of the block's body in front of the packet.
    pub(super) head: usize,
}

impl NgSection {
    pub(super) fn new(order: ByteOrder) -> NgSection {
        NgSection { order, interfaces: Vec::new() }
    }

    /// Notes the interface that a block describes; the body is without the lengths around it.
    pub(super) fn interface(&mut self, body: &[u8]) -> Result<(), String> {
        if body.len() < 8 {
            return Err(format!("an interface needs 8 bytes, here are {}", body.len()));
        }
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(format!("it is an interface too many: the most is {MAX_INTERFACES}"));
        }
        let clock = Clock::read(&body[8..], self.order);
        let (link, snaplen) = (u32::from(self.order.u16(body, 0)), self.order.u32(body, 4));
        self.interfaces.push(NgInterface { link, snaplen, clock });
        Ok(())
    }

    /// Parses the body of a packet block; `None` for a block of another type.
    #[inline]
    pub(super) fn packet(&self, kind: u32, body: &[u8]) -> Option<Result<PacketBlock, String>> {
        match kind {
            ENHANCED | OBSOLETE => Some(self.full(kind, body)),
            SIMPLE => Some(self.simple(body)),
            _ => None,
        }
    }

    fn full(&self, kind: u32, body: &[u8]) -> Result<PacketBlock, String> {
        if body.len() < PACKET_HEAD {
            return Err(format!("a packet's block needs {PACKET_HEAD} bytes, here are {}", body.len()));
        }
        let order = self.order;
        let (time_high, time_low) = (order.u32(body, 4), order.u32(body, 8));
        let (frame, interface) = if kind == ENHANCED {
            let interface = order.u32(body, 0);
            (Frame::Enhanced { interface, time_high, time_low }, interface)
        } else {
            let (interface, drops) = (order.u16(body, 0), order.u16(body, 2));
            (Frame::Obsolete { interface, drops, time_high, time_low }, u32::from(interface))
        };
        let on = self.interface_of(interface)?;
        let captured_len = order.u32(body, 12);
        let room = body.len() - PACKET_HEAD;
        if captured_len as usize > room.min(MAX_PACKET_BYTES) {
            return Err(format!(
                "it claims {captured_len} captured bytes, its block holds {room} and the most is {MAX_PACKET_BYTES}"
            ));
        }
        let units = u64::from(time_high) << 32 | u64::from(time_low);
        Ok(PacketBlock {
            frame,
            time_ns: Some(on.clock.ns(units)),
            link: link_type(on.link).ok_or(on.link),
            captured_len,
            original_len: order.u32(body, 16),
            head: PACKET_HEAD,
        })
    }

    fn simple(&self, body: &[u8]) -> Result<PacketBlock, String> {
        if body.len() < SIMPLE_HEAD {
            return Err(format!("a packet's block needs {SIMPLE_HEAD} bytes, here are {}", body.len()));
        }
        let on = self.interface_of(0)?;
        let original_len = self.order.u32(body, 0);
        let snaplen = if on.snaplen == 0 { u32::MAX } else { on.snaplen };
        let captured_len = (body.len() - SIMPLE_HEAD).min(original_len.min(snaplen) as usize);
        if captured_len > MAX_PACKET_BYTES {
            return Err(format!("it holds {captured_len} bytes, the most is {MAX_PACKET_BYTES}"));
        }
        Ok(PacketBlock {
            frame: Frame::Simple,
            time_ns: None,
            link: link_type(on.link).ok_or(on.link),
            captured_len: captured_len as u32,
            original_len,
            head: SIMPLE_HEAD,
        })
    }

    /// The record of a packet of another capture in this section, with the first interface of its link type; `None` if there is
    /// none.
    pub(super) fn adopt(&self, meta: &Meta) -> Option<Meta> {
        let number = self.interfaces.iter().position(|on| link_type(on.link) == Some(meta.link))?;
        let units = self.interfaces[number].clock.units(meta.time_ns);
        let (time_high, time_low) = ((units >> 32) as u32, units as u32);
        let frame = Frame::Enhanced { interface: number as u32, time_high, time_low };
        Some(Meta { frame, big_endian: self.order.is_big(), ..*meta })
    }

    fn interface_of(&self, number: u32) -> Result<&NgInterface, String> {
        self.interfaces.get(number as usize).ok_or_else(|| {
            format!(
                "it is of interface {number}, and the section has described {} so far",
                self.interfaces.len()
            )
        })
    }
}

impl PacketBlock {
    /// The offset of the options in the block's body, behind the packet and its padding.
    pub(super) fn options_at(&self) -> usize {
        self.head + padded(self.captured_len as usize)
    }
}

impl Clock {
    /// Reads the options of an interface; microseconds since 1970 where they say nothing.
    fn read(options: &[u8], order: ByteOrder) -> Clock {
        let (mut resolution, mut offset_s) = (6, 0);
        for (code, value, _) in NgOptions::new(options, order) {
            match (code, value.len()) {
                (OPTION_RESOLUTION, 1) => resolution = value[0],
                (OPTION_OFFSET, 8) => offset_s = order.i64(value, 0),
                _ => {}
            }
        }
        let exponent = u32::from(resolution & 0x7f);
        let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
        let per_second = base.checked_pow(exponent).unwrap_or(0);
        let whole = per_second > 0 && 1_000_000_000 % per_second == 0;
        let unit_ns = whole.then(|| (1_000_000_000 / per_second) as u64);
        Clock { unit_ns, per_second, offset_s }
    }

    #[inline]
    fn ns(&self, units: u64) -> u64 {
        let since = match self.unit_ns {
            Some(unit_ns) => units.saturating_mul(unit_ns),
            None if self.per_second == 0 => 0,
            None => u64::try_from(u128::from(units) * 1_000_000_000 / self.per_second).unwrap_or(u64::MAX),
        };
        if self.offset_s == 0 {
            return since;
        }
        let shifted = i128::from(since) + i128::from(self.offset_s) * 1_000_000_000;
        u64::try_from(shifted.max(0)).unwrap_or(u64::MAX)
    }

    /// The timestamp of a time.
    fn units(&self, time_ns: u64) -> u64 {
        let since = i128::from(time_ns) - i128::from(self.offset_s) * 1_000_000_000;
        let units = u128::try_from(since).unwrap_or(0).saturating_mul(self.per_second) / 1_000_000_000;
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

/// The options of a block: code, value, and the option's whole bytes. Ends at the end-of-options mark and at the first
/// option that is not whole.
pub(super) struct NgOptions<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> NgOptions<'a> {
    pub(super) fn new(options: &'a [u8], order: ByteOrder) -> NgOptions<'a> {
        NgOptions { rest: options, order }
    }
}

impl<'a> Iterator for NgOptions<'a> {
    type Item = (u16, &'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < 4 {
            return None;
        }
        let (code, len) = (self.order.u16(self.rest, 0), usize::from(self.order.u16(self.rest, 2)));
        if code == OPTION_END {
            return None;
        }
        let value = self.rest.get(4..4 + len)?;
        let (whole, rest) = self.rest.split_at_checked(4 + padded(len))?;
        self.rest = rest;
        Some((code, value, whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(options: &[u8]) -> Clock {
        Clock::read(options, ByteOrder::Little)
    }

    #[test]
    fn time_counts_in_the_unit_of_the_interface() {
        assert_eq!(clock(&[]).ns(1_500_000), 1_500_000_000);
        assert_eq!(clock(&[9, 0, 1, 0, 9, 0, 0, 0]).ns(1_500_000), 1_500_000);
        assert_eq!(clock(&[9, 0, 1, 0, 0, 0, 0, 0]).ns(3), 3_000_000_000);
        // 2^-10 s.
        assert_eq!(clock(&[9, 0, 1, 0, 0x8a, 0, 0, 0]).ns(1536), 1_500_000_000);
        // 10^-12 s.
        assert_eq!(clock(&[9, 0, 1, 0, 12, 0, 0, 0]).ns(1_500_000), 1500);
    }

    #[test]
    fn timestamps_of_times_are_those_that_give_them() {
        let shifted = [14, 0, 8, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        for options in [&[][..], &[9, 0, 1, 0, 9, 0, 0, 0], &[9, 0, 1, 0, 0x8a, 0, 0, 0], &shifted] {
            let clock = clock(options);
            for units in [1_500_000, 1 << 33, 3_000_000] {
                assert_eq!(clock.ns(clock.units(clock.ns(units))), clock.ns(units), "{options:?}");
            }
        }
        assert_eq!(clock(&[9, 0, 1, 0, 127, 0, 0, 0]).units(u64::MAX), 0);
    }

    #[test]
    fn time_is_shifted_by_the_offset_and_never_wraps() {
        let minus_one = [14, 0, 8, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(clock(&minus_one).ns(1_500_000), 500_000_000);
        assert_eq!(clock(&minus_one).ns(1), 0);
        assert_eq!(clock(&[9, 0, 1, 0, 0, 0, 0, 0]).ns(u64::MAX), u64::MAX);
        assert_eq!(clock(&[9, 0, 1, 0, 127, 0, 0, 0]).ns(u64::MAX), 0);
        assert_eq!(clock(&[9, 0, 1, 0, 0xff, 0, 0, 0]).ns(u64::MAX), 0);
    }

    #[test]
    fn options_end_where_they_are_not_whole() {
        let options = [1, 0, 1, 0, b'x', 0, 0, 0, 2, 0, 200, 0, 1];
        let found: Vec<_> =
            NgOptions::new(&options, ByteOrder::Little).map(|(code, value, _)| (code, value)).collect();
        assert_eq!(found, [(1, &b"x"[..])]);
        assert_eq!(NgOptions::new(&[0, 0, 0, 0, 1, 0, 0, 0], ByteOrder::Little).count(), 0);
    }
}

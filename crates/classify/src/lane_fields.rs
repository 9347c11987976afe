//! The contents of a key's lanes, as far as merging tuples and relaxing rules need them: addresses, ports, the rest.

use mmb_packet::Class;
use mmb_packet::key::{L4, LANE};
use mmb_policy::field::FieldId;
use std::ops::Range;

/// The lane of the ports of TCP and UDP, source before destination.
pub(crate) const PORTS: usize = L4 / LANE;

/// The lanes of the addresses in keys of a class, source and destination; none where it has no addresses.
pub(crate) fn addresses(class: Class) -> [Range<usize>; 2] {
    let lanes = |field: FieldId| {
        let (bit, width) = field.info().place.key_bits().unwrap_or((0, 0));
        usize::from(bit) / 32..(usize::from(bit) + usize::from(width)) / 32
    };
    match class {
        Class::Ip4 => [FieldId::IpSaddr, FieldId::IpDaddr].map(lanes),
        Class::Ip6 => [FieldId::Ip6Saddr, FieldId::Ip6Daddr].map(lanes),
        Class::Other => [0..0, 0..0],
    }
}

/// Whether a lane is of an address.
fn is_address(class: Class, lane: usize) -> bool {
    addresses(class).iter().any(|lanes| lanes.contains(&lane))
}

/// Whether packets of a class differ in all bits of a lane. In most lanes nearly all have the same few values.
pub(crate) fn is_diverse(class: Class, lane: usize) -> bool {
    lane == PORTS || is_address(class, lane)
}

/// The numbers that a lane is made of, each as the bits behind it and its width: two ports, part of an address, else
/// bytes.
pub(crate) fn numbers(class: Class, lane: usize) -> &'static [(u32, u32)] {
    if lane == PORTS {
        &[(16, 16), (0, 16)]
    } else if is_address(class, lane) {
        &[(0, 32)]
    } else {
        &[(24, 8), (16, 8), (8, 8), (0, 8)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_where_the_table_of_fields_says() {
        assert_eq!(addresses(Class::Ip4), [13..14, 14..15]);
        assert_eq!(addresses(Class::Ip6), [12..16, 16..20]);
        for field in [FieldId::TcpSport, FieldId::UdpSport, FieldId::TcpDport, FieldId::UdpDport] {
            let Some((bit, width)) = field.info().place.key_bits() else {
                panic!("{field:?} is not in the key")
            };
            let shift = 32 - u32::from(bit) % 32 - u32::from(width);
            assert_eq!(usize::from(bit) / 32, PORTS);
            assert!(numbers(Class::Ip4, PORTS).contains(&(shift, width.into())));
        }
        // TTL, protocol and checksum of an IPv4 packet lie where an IPv6 packet's source begins.
        assert!(is_diverse(Class::Ip6, 12) && !is_diverse(Class::Ip4, 12) && !is_diverse(Class::Other, 13));
        assert!([Class::Ip4, Class::Ip6].iter().all(|&class| is_diverse(class, PORTS)));
    }

    #[test]
    fn numbers_cover_their_lane_once() {
        for class in [Class::Ip4, Class::Ip6, Class::Other] {
            for lane in 0..20 {
                let ones = |&(shift, width): &(u32, u32)| (u32::MAX >> (32 - width)) << shift;
                let all = numbers(class, lane).iter().map(ones).fold(0u64, |sum, ones| sum + u64::from(ones));
                assert_eq!(all, u32::MAX.into());
            }
        }
    }
}

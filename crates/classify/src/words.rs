//! A tuple's mask in the words of the language, from the table of fields.

use crate::cube::KeyCube;
use mmb_packet::Class;
use mmb_packet::key::{self, flags};
use mmb_policy::field::{FIELDS, FieldId, FieldInfo, Implies};
use std::collections::BTreeSet;

/// Bits of the key's flags and the fields whose presence they are about.
const PRESENCE: [(u8, FieldId); 4] = [
    (flags::VLAN_TAGGED, FieldId::VlanId),
    (flags::TCP_OPTION_AREA, FieldId::TcpOpt),
    (flags::HAS_PAYLOAD, FieldId::Payload),
    (flags::LATER_FRAGMENT, FieldId::Payload),
];

/// The fields that a mask covers, in the order of the table; a prefix with its length. `kinds` are the kinds of
/// transport header that the tuple's keys name.
pub(crate) fn describe(class: Class, mask: &KeyCube, kinds: &BTreeSet<u8>) -> String {
    let mut named = Naming { mask, named: Vec::new() };
    named.fields(|field| common(class, field));
    for &kind in kinds {
        named.fields(|field| kind_of(field.implies) == Some(kind));
    }
    named.presence(class);
    let mut words = named.named;
    words.sort_unstable();
    words.dedup_by(|later, first| later.0 == first.0);
    let words: Vec<_> = words.into_iter().map(|(id, suffix)| format!("{}{suffix}", id.info().name)).collect();
    if words.is_empty() { "all".to_owned() } else { words.join(" ") }
}

/// Whether a field is one of every packet of a class.
fn common(class: Class, field: &FieldInfo) -> bool {
    match field.implies {
        Implies::Frame => true,
        Implies::Ip | Implies::Transport | Implies::TcpOrUdp => class != Class::Other,
        Implies::Ip4 => class == Class::Ip4,
        Implies::Ip6 => class == Class::Ip6,
        Implies::Icmp | Implies::Icmp6 | Implies::Udp | Implies::Tcp => false,
    }
}

/// The kind of transport header that an implication names.
fn kind_of(implies: Implies) -> Option<u8> {
    implies.key_bytes().iter().find(|(byte, ..)| *byte == key::L4_KIND).map(|&(_, _, kind)| kind)
}

/// Names being collected.
struct Naming<'a> {
    mask: &'a KeyCube,
    /// Fields with the length of the prefix that the mask covers, `/24`, where that is not all of them.
    named: Vec<(FieldId, String)>,
}

impl Naming<'_> {
    /// Names those fields that the mask covers, the widest first, each bit once.
    fn fields(&mut self, is_included: impl Fn(&FieldInfo) -> bool) {
        let place = |field: &FieldInfo| field.place.key_bits().map(|(bit, width)| (field.id, bit, width));
        let mut fields: Vec<_> = FIELDS.iter().filter(|field| is_included(field)).filter_map(place).collect();
        fields.sort_by_key(|&(.., width)| std::cmp::Reverse(width));
        let mut left = *self.mask;
        for whole in [true, false] {
            for &(id, bit, width) in &fields {
                let covered =
                    (0..u16::from(width)).take_while(|i| left.known(bit + i, 1).is_some()).count() as u8;
                if covered == 0 || whole && covered < width {
                    continue;
                }
                let mut used = KeyCube::default();
                // A fresh cube contradicts nothing.
                if used.fix(bit, covered, 0).is_ok() {
                    left.release(&used);
                }
                self.named.push((id, if whole { String::new() } else { format!("/{covered}") }));
            }
        }
    }

    fn presence(&mut self, class: Class) {
        let bit_fixed =
            |mask: u8| self.mask.known((key::FLAGS * 8) as u16 + mask.leading_zeros() as u16, 1).is_some();
        let ip_payload = if class == Class::Ip6 { FieldId::Ip6Payload } else { FieldId::IpPayload };
        let present = PRESENCE.into_iter().chain([(flags::HAS_IP_PAYLOAD, ip_payload)]);
        let mut ids: Vec<_> = present.filter(|&(mask, _)| bit_fixed(mask)).map(|(_, id)| id).collect();
        if self.mask.known_byte(key::L4_KIND).is_some() {
            ids.push(FieldId::IpProto);
        }
        self.named.extend(ids.into_iter().map(|id| (id, String::new())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(fields: &[(FieldId, u8)]) -> KeyCube {
        let mut cube = KeyCube::default();
        for &(id, bits) in fields {
            let Some((bit, _)) = id.info().place.key_bits() else { panic!("{id:?} is not in the key") };
            cube.fix(bit, bits, 0).unwrap();
        }
        cube
    }

    #[test]
    fn masks_have_words() {
        let mut tcp = mask(&[(FieldId::TcpDport, 16), (FieldId::IpSaddr, 24)]);
        tcp.fix_byte(key::L4_KIND, 0xff, 6).unwrap();
        let words =
            |cube: &KeyCube, kinds: &[u8]| describe(Class::Ip4, cube, &kinds.iter().copied().collect());
        assert_eq!(words(&tcp, &[6]), "ip-proto ip-saddr/24 tcp-dport");
        assert_eq!(words(&tcp, &[6, 17]), "ip-proto ip-saddr/24 udp-dport tcp-dport");
        assert_eq!(words(&KeyCube::default(), &[]), "all");
        assert_eq!(words(&mask(&[(FieldId::IpEcn, 2), (FieldId::IpDf, 1)]), &[]), "ip-ecn ip-df");
        let mut tagged = KeyCube::default();
        tagged.fix_byte(key::FLAGS, flags::VLAN_TAGGED, 0).unwrap();
        assert_eq!(words(&tagged, &[]), "vlan-id");
    }
}

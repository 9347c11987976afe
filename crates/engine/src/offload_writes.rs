//! Computes what rules write to the packets of a flow, if they write the same to every packet.
//!
//! The edits of the rules are applied to two sample packets of the flow, which have opposite bits wherever
//! packets of the flow may differ. A bit that is equal in both packets afterwards is written. A bit that is
//! unchanged in both is not written. The result is not constant if an edit changes options, payload, lengths
//! or checksums, or writes a field that [`FlowWrites`] does not have.

use crate::offload::{FlowKey, FlowWrites, TrafficClass};
use mmb_packet::checksum::ChecksumSum;
use mmb_packet::parse::parse;
use mmb_packet::proto::{TCP, UDP};
use mmb_packet::{LinkType, Packet, ParserLimits};
use mmb_rewrite::{Edit, NotAppliedCounts, PacketEditor};

const ETHERNET: usize = 14;
const IP4: usize = 20;
const IP6: usize = 40;
/// Bytes of the longest sample packet: an IPv6 and a TCP header.
const MAX_SAMPLE_BYTES: usize = ETHERNET + IP6 + 20;

/// A sample packet of a flow, and its length. The bits in which packets of the flow may differ are ones if
/// `ones` is true, else zeros.
fn sample(key: &FlowKey, ones: bool) -> ([u8; MAX_SAMPLE_BYTES], usize) {
    let fill = if ones { 0xff } else { 0 };
    let mut bytes = [fill; MAX_SAMPLE_BYTES];
    let l4_len = match key.proto {
        TCP => 20,
        _ => 8,
    };
    let is_ip6 = key.family == 6;
    let l4 = ETHERNET + if is_ip6 { IP6 } else { IP4 };
    let len = l4 + l4_len;
    let big = |number: usize| (number as u16).to_be_bytes();
    bytes[12..14].copy_from_slice(&if is_ip6 { [0x86, 0xdd] } else { [8, 0] });
    let ip = &mut bytes[ETHERNET..];
    if is_ip6 {
        ip[0] = 0x60 | fill & 0x0f;
        ip[4..6].copy_from_slice(&big(l4_len));
        ip[6] = key.proto;
        ip[7] = fill;
        ip[8..24].copy_from_slice(&key.addresses[0].to_be_bytes());
        ip[24..40].copy_from_slice(&key.addresses[1].to_be_bytes());
    } else {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&big(IP4 + l4_len));
        // Not a fragment. The other flags may differ.
        ip[6..8].copy_from_slice(&[fill & 0xc0, 0]);
        ip[8] = fill;
        ip[9] = key.proto;
        ip[12..16].copy_from_slice(&(key.addresses[0] as u32).to_be_bytes());
        ip[16..20].copy_from_slice(&(key.addresses[1] as u32).to_be_bytes());
        ip[10..12].fill(0);
        let sum = ChecksumSum::default().bytes(&ip[..IP4]).checksum();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let header = &mut bytes[l4..len];
    match key.proto {
        TCP => {
            // ACK is set. PSH, URG and the ECN flags may differ.
            header[12] = 0x50 | fill & 0x0f;
            header[13] = 0x10 | fill & 0xe8;
        }
        UDP => header[4..6].copy_from_slice(&big(l4_len)),
        _ => {}
    }
    header[..2].copy_from_slice(&key.ports[0].to_be_bytes());
    if matches!(key.proto, TCP | UDP) {
        header[2..4].copy_from_slice(&key.ports[1].to_be_bytes());
    } else {
        header[4..6].copy_from_slice(&key.ports[1].to_be_bytes());
    }
    (bytes, len)
}

/// What `before` and then `edits`, in order, write to each packet with this key. `None` if they do not write
/// the same to every packet.
pub(crate) fn constant_writes<'e>(
    key: &FlowKey,
    before: FlowWrites,
    edits: impl Iterator<Item = &'e Edit> + Clone,
) -> Option<FlowWrites> {
    if edits.clone().next().is_none() {
        return Some(before);
    }
    if edits.clone().any(|edit| !edit.writes_fields_only()) {
        return None;
    }
    let translated = FlowKey {
        addresses: before.addresses.unwrap_or(key.addresses),
        ports: before.ports.unwrap_or(key.ports),
        ..*key
    };
    let edited = [false, true].map(|ones| {
        let (mut bytes, len) = sample(&translated, ones);
        let was = bytes;
        let mut packet = Packet::new(&mut bytes[..len], 0, len, key.port, LinkType::Ethernet)?;
        let mut layout = parse(&packet, &ParserLimits::default()).ok()?;
        PacketEditor::default().apply(
            &mut packet,
            &mut layout,
            edits.clone(),
            &mut NotAppliedCounts::default(),
        );
        (packet.len() == len).then_some((was, bytes, len))
    });
    let [Some((was_low, low, len)), Some((was_high, high, _))] = edited else { return None };
    // The bits of a byte that the edits write.
    let written = |offset: usize| {
        !(low[offset] ^ high[offset]) & (was_low[offset] ^ was_high[offset]) | (low[offset] ^ was_low[offset])
    };
    let is_ip6 = key.family == 6;
    let l4 = ETHERNET + if is_ip6 { IP6 } else { IP4 };
    let mut writes = before;
    for offset in 0..len {
        let bits = written(offset);
        if bits == 0 {
            continue;
        }
        let value = low[offset] & bits;
        match (offset.wrapping_sub(ETHERNET), is_ip6) {
            (1, false) => {
                writes.traffic_class.mask |= bits;
                writes.traffic_class.value |= value;
            }
            (8, false) | (7, true) if bits == 0xff => writes.ttl = Some(low[offset]),
            // The checksum of the IPv4 header: the host updates it.
            (10 | 11, false) => {}
            (12..20, false) | (8..40, true) => writes.addresses = Some(addresses(&low, is_ip6)),
            (0, true) if bits & 0xf0 == 0 => add_class(&mut writes.traffic_class, bits << 4, value << 4),
            (1, true) => {
                add_class(&mut writes.traffic_class, bits >> 4, value >> 4);
                if bits & 0x0f != 0 {
                    writes.label = Some(label(&low));
                }
            }
            (2 | 3, true) => writes.label = Some(label(&low)),
            _ if offset >= l4 && offset < l4 + 4 && matches!(key.proto, TCP | UDP) => {
                writes.ports =
                    Some([0, 2].map(|side| u16::from_be_bytes([low[l4 + side], low[l4 + side + 1]])));
            }
            _ if is_checksum(key.proto, offset.wrapping_sub(l4)) => {}
            _ => return None,
        }
    }
    // [`FlowWrites`] has only whole labels.
    let is_whole_label = [1, 2, 3].iter().all(|offset| {
        let mask = if *offset == 1 { 0x0f } else { 0xff };
        written(ETHERNET + offset) & mask == mask
    });
    (writes.label.is_none() || before.label.is_some() || is_whole_label).then_some(writes)
}

fn add_class(class: &mut TrafficClass, mask: u8, value: u8) {
    class.mask |= mask;
    class.value |= value;
}

fn addresses(bytes: &[u8], is_ip6: bool) -> [u128; 2] {
    let number = |offset: usize, len: usize| {
        bytes[offset..offset + len].iter().fold(0u128, |number, byte| number << 8 | u128::from(*byte))
    };
    match is_ip6 {
        true => [ETHERNET + 8, ETHERNET + 24].map(|offset| number(offset, 16)),
        false => [ETHERNET + 12, ETHERNET + 16].map(|offset| number(offset, 4)),
    }
}

fn label(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([0, bytes[ETHERNET + 1] & 0x0f, bytes[ETHERNET + 2], bytes[ETHERNET + 3]])
}

/// Whether a byte of a transport header belongs to its checksum.
fn is_checksum(proto: u8, offset: usize) -> bool {
    let start = match proto {
        TCP => 16,
        UDP => 6,
        _ => 2,
    };
    offset == start || offset == start + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_packet::PortId;
    use mmb_policy::Target;
    use mmb_policy::field::{Field, FieldId};
    use mmb_policy::rule::Write;

    fn key(family: u8, proto: u8) -> FlowKey {
        FlowKey {
            port: PortId(0),
            vlan: None,
            family,
            proto,
            addresses: [0x0a00_0001, 0x0a00_0002],
            ports: [1000, 80],
        }
    }

    fn writes(key: &FlowKey, fields: &[(FieldId, u128)]) -> Option<FlowWrites> {
        let edits: Vec<Edit> = fields
            .iter()
            .filter_map(|(id, number)| Edit::compile(&[Target::Mod(Field::new(*id), Write::Number(*number))]))
            .collect();
        assert_eq!(edits.len(), fields.len());
        constant_writes(key, FlowWrites::default(), edits.iter())
    }

    #[test]
    fn constants_are_found() {
        let tcp = key(4, TCP);
        let expected = FlowWrites { ports: Some([1000, 443]), ttl: Some(9), ..FlowWrites::default() };
        assert_eq!(writes(&tcp, &[(FieldId::TcpDport, 443), (FieldId::IpTtl, 9)]), Some(expected));
        for ttl in [1, 2, 64, 255] {
            assert_eq!(writes(&tcp, &[(FieldId::IpTtl, ttl)]).and_then(|writes| writes.ttl), Some(ttl as u8));
        }
        let dscp = TrafficClass { mask: 0xfc, value: 46 << 2 };
        let expected = FlowWrites { traffic_class: dscp, ..FlowWrites::default() };
        assert_eq!(writes(&tcp, &[(FieldId::IpDscp, 46)]), Some(expected));
        let class = TrafficClass { mask: 0xff, value: 46 << 2 };
        let whole = FlowWrites { traffic_class: class, ..FlowWrites::default() };
        assert_eq!(writes(&key(6, UDP), &[(FieldId::Ip6TrafficClass, 46 << 2)]), Some(whole));
        let expected = FlowWrites { label: Some(0x12345), ..FlowWrites::default() };
        assert_eq!(writes(&key(6, UDP), &[(FieldId::Ip6FlowLabel, 0x12345)]), Some(expected));
        let expected = FlowWrites { addresses: Some([0x0a00_0001, 0x0b00_0002]), ..FlowWrites::default() };
        assert_eq!(writes(&key(4, UDP), &[(FieldId::IpDaddr, 0x0b00_0002)]), Some(expected));
    }

    #[test]
    fn a_write_of_what_is_there_is_one() {
        let tcp = key(4, TCP);
        // The value of another packet may differ.
        let expected = FlowWrites { ttl: Some(1), ..FlowWrites::default() };
        assert_eq!(writes(&tcp, &[(FieldId::IpTtl, 1)]), Some(expected));
        assert_eq!(writes(&tcp, &[(FieldId::TcpDport, 80)]), Some(FlowWrites::default()));
    }

    #[test]
    fn other_writes_are_no_constants() {
        let tcp = key(4, TCP);
        for field in [
            FieldId::IpId,
            FieldId::TcpReserved,
            FieldId::TcpSeqNum,
            FieldId::TcpWin,
            FieldId::TcpFlags,
            FieldId::IpLen,
        ] {
            assert_eq!(writes(&tcp, &[(field, 2)]), None, "{field:?}");
        }
        // A rule for UDP changes nothing here.
        assert_eq!(writes(&tcp, &[(FieldId::UdpDport, 9)]), Some(FlowWrites::default()));
    }
}

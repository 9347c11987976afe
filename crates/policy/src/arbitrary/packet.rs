//! The packet that a drawn rule matches, as far as rules can see.

use crate::field::{BareMeaning, Field, FieldId, FieldInfo, FieldPlace, Implies, Payload, ValueKind};
use crate::rule::{Cond, Equality, NumberSet, Test};
use mmb_packet::key::{self, eh, flags};
use proptest::collection::vec;
use proptest::prelude::*;

/// A packet as rules see it.
#[derive(Clone, Debug)]
pub struct PacketSpec {
    /// Its header key, zero where the family's is shorter.
    pub key: [u8; 80],
    /// Its TCP options in order, padding included: kind and data.
    pub options: Vec<(u8, Vec<u8>)>,
    /// The bytes behind the transport header.
    pub payload: Vec<u8>,
    /// The bytes behind the IPv4 header or the fixed IPv6 header.
    pub ip_payload: Vec<u8>,
    /// The name of the port that it came in by.
    pub in_port: String,
    /// The name of the port that it leaves by.
    pub out_port: String,
}

/// Option data as a number; `None` if it is none.
pub(super) fn big_endian(data: &[u8]) -> Option<u128> {
    (1..=8).contains(&data.len()).then(|| data.iter().fold(0, |n, &byte| n << 8 | u128::from(byte)))
}

impl PacketSpec {
    /// Returns whether the packet is one that a field implies.
    pub fn is_about(&self, implies: Implies) -> bool {
        let is_ip = self.key[key::FAMILY] != 0;
        let transport = implies != Implies::TcpOrUdp || [6, 17].contains(&self.key[key::L4_KIND]);
        transport
            && implies.key_bytes().iter().all(|&(at, mask, value)| self.key[at] & mask == value)
            && (is_ip || implies == Implies::Frame)
    }

    /// The value of a field at a fixed place, 0 for others.
    pub fn number(&self, info: &FieldInfo) -> u128 {
        let FieldPlace::Key { bit, width } = info.place else { return 0 };
        (bit..bit + u16::from(width))
            .fold(0, |n, bit| n << 1 | u128::from(self.key[usize::from(bit / 8)] >> (7 - bit % 8) & 1))
    }

    /// Returns whether a test of a field holds. The packet is one that the field implies.
    pub fn satisfies(&self, field: Field, test: &Test) -> bool {
        let info = field.info();
        if field.id == FieldId::VlanId && self.key[key::FLAGS] & flags::VLAN_TAGGED == 0 {
            return false;
        }
        match info.place {
            FieldPlace::Key { .. } => match test {
                Test::Present => match info.alone {
                    BareMeaning::Equals(value) => self.number(info) == u128::from(value),
                    BareMeaning::Protocol | BareMeaning::Optional => true,
                },
                Test::Number(cond, set) => {
                    compare(self.number(info), *cond, set, info.width().unwrap_or(128))
                }
                Test::Port(equality, names) => {
                    let port = if field.id == FieldId::In { &self.in_port } else { &self.out_port };
                    names.contains(port) == (*equality == Equality::Eq)
                }
                Test::Bytes(..) | Test::Patterns(_) | Test::Header(..) | Test::NamedSet(..) => false,
            },
            FieldPlace::Connection | FieldPlace::Stream(_) => false,
            FieldPlace::AnyOption => self.options.iter().any(|(kind, _)| *kind > 1),
            FieldPlace::Option(_) | FieldPlace::NamedOption => self
                .options
                .iter()
                .filter(|(kind, _)| Some(*kind) == field.option_kind())
                .any(|(_, data)| match test {
                    Test::Number(cond, set) => {
                        big_endian(data).is_some_and(|n| compare(n, *cond, set, info.width().unwrap_or(64)))
                    }
                    Test::Bytes(equality, strings) => strings.contains(data) == (*equality == Equality::Eq),
                    Test::Present | Test::Port(..) | Test::Patterns(_) | Test::Header(..) => true,
                    Test::NamedSet(..) => true,
                }),
            FieldPlace::Payload(which) => {
                let payload = if which == Payload::Ip { &self.ip_payload } else { &self.payload };
                let begins = |strings: &[Vec<u8>]| strings.iter().any(|string| payload.starts_with(string));
                match test {
                    Test::Bytes(Equality::Eq, strings) => begins(strings),
                    Test::Bytes(Equality::Ne, strings) => !payload.is_empty() && !begins(strings),
                    Test::Present
                    | Test::Number(..)
                    | Test::NamedSet(..)
                    | Test::Port(..)
                    | Test::Patterns(_)
                    | Test::Header(..) => !payload.is_empty(),
                }
            }
        }
    }
}

pub(super) fn compare(n: u128, cond: Cond, set: &NumberSet, width: u8) -> bool {
    let within = set.0.iter().map(|item| item.bounds(width)).any(|(first, last)| (first..=last).contains(&n));
    let one = set.0.first().map_or(0, |item| item.bounds(width).0);
    match cond {
        Cond::Eq => within,
        Cond::Ne => !within,
        Cond::Lt => n < one,
        Cond::Le => n <= one,
        Cond::Gt => n > one,
        Cond::Ge => n >= one,
    }
}

/// Any packet, of every family, transport and sort of fragment.
pub fn witness() -> impl Strategy<Value = PacketSpec> {
    let sorts = prop::sample::select(&[
        (4, 6, false),
        (4, 17, false),
        (4, 1, false),
        (4, 0, false),
        (4, 0, true),
        (6, 6, false),
        (6, 17, false),
        (6, 58, false),
        (6, 0, false),
        (6, 0, true),
        (0, 0, false),
    ]);
    let kinds = prop_oneof![3 => prop::sample::select(&[0u8, 1, 2, 3, 4, 5, 8, 30, 34]), 1 => any::<u8>()];
    let options = vec((kinds, vec(any::<u8>(), 0..10)), 0..4);
    let payload = vec(any::<u8>(), 0..20);
    (sorts, vec(any::<u8>(), 80), options, payload.clone(), payload, any::<[bool; 2]>()).prop_map(
        |((family, transport, later), noise, mut options, payload, ip_payload, ports)| {
            if transport != 6 {
                options.clear();
            }
            for (kind, data) in &mut options {
                if *kind <= 1 {
                    data.clear();
                } else if let ValueKind::OptionData(Some(width)) = Field::option(*kind).info().values
                    && data.len() > 2
                {
                    // Of the option's own width, but for some.
                    data.resize(width.into(), 7);
                }
            }
            let key = key(&noise, family, transport, later, &options);
            let name = |b| if b { "a" } else { "b" }.to_owned();
            let [in_port, out_port] = ports.map(name);
            PacketSpec { key, options, payload, ip_payload, in_port, out_port }
        },
    )
}

/// A consistent header key made of noise.
fn key(noise: &[u8], family: u8, transport: u8, later: bool, options: &[(u8, Vec<u8>)]) -> [u8; 80] {
    let mut key: [u8; 80] = std::array::from_fn(|at| noise[at]);
    let tagged = key[key::FLAGS] & flags::VLAN_TAGGED;
    key[key::FLAGS] = tagged | if later { flags::FRAGMENT | flags::LATER_FRAGMENT } else { 0 };
    key[key::VLAN] &= 0x0f * tagged;
    key[key::VLAN + 1] *= tagged;
    (key[key::FAMILY], key[key::L4_KIND]) = (family, transport);
    let eth_type: u16 = match family {
        4 => 0x0800,
        6 => 0x86dd,
        _ => 0x0806 + u16::from(noise[key::ETH_TYPE]),
    };
    key[key::ETH_TYPE..key::ETH_TYPE + 2].copy_from_slice(&eth_type.to_be_bytes());
    key[key::PROTO] = match transport {
        0 if later => noise[key::PROTO],
        0 => 90 + noise[key::PROTO] % 40,
        transport => transport,
    };
    let ip = key::IP;
    let mut present = 0;
    match family {
        4 => {
            key[ip] = 0x40 | (5 + noise[ip] % 11);
            key[ip + 9] = key[key::PROTO];
            key[ip + 6] = if later { key[ip + 6] | 1 } else { key[ip + 6] & 0xe0 };
            key[ip + 7] *= u8::from(later);
        }
        6 => {
            key[ip] = 0x60 | noise[ip] & 0x0f;
            // Behind an encrypted header there is no transport header to be seen.
            let hidden = if transport == 0 && !later { 0 } else { eh::ESP };
            let drawn = u16::from_be_bytes([noise[key::EH] & 1, noise[key::EH + 1]]);
            present = drawn & !(hidden | eh::FRAGMENT) | if later { eh::FRAGMENT } else { 0 };
            if present & eh::ESP != 0 {
                key[key::PROTO] = 50;
            }
            present |= if present == 0 { 0 } else { eh::ANY };
            key[ip + 6] = match present {
                0 => key[key::PROTO],
                _ => [0, 43, 44, 60][usize::from(noise[ip + 6]) % 4],
            };
        }
        _ => {}
    }
    key[key::EH..key::EH + 2].copy_from_slice(&present.to_be_bytes());
    if transport == 6 {
        let len: usize = options.iter().map(|(kind, data)| if *kind <= 1 { 1 } else { 2 + data.len() }).sum();
        key[key::L4 + 12] = ((5 + len.div_ceil(4)) as u8) << 4 | noise[key::L4 + 12] & 0x0f;
    }
    key
}

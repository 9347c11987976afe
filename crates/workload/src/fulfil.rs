//! Packets that match a rule: fields as the rule requires, random in the bits that it leaves free.
//!
//! It depends on the rule alone and not on classifiers. It makes no packet for rules with fields that a [`PacketHeader`] does not
//! have (VLAN tags, extension headers, payloads, checksums), or with options that are compared with something other than a value.

use crate::header::{PacketHeader, any_address};
use mmb_packet::proto::{ICMP, ICMP6, TCP, UDP};
use mmb_policy::field::ones;
use mmb_policy::field::{BareMeaning, Implies};
use mmb_policy::rule::{Cond, Equality, NumberSet};
use mmb_policy::{Field, FieldId, Intervals, Match, Rule, Test};
use mmb_random::RepeatableRandom;

/// The number of draws after which a field's constraints count as impossible.
const MAX_DRAWS: usize = 64;
/// The maximum number of options of a packet, so that they fit.
const MAX_OPTIONS: usize = 5;

/// A packet that `rule` matches. Fields without a constraint are as in `header`, except the free bits of fields with a
/// constraint. `None`: no such packet can be made here.
pub fn fulfil(rule: &Rule, mut header: PacketHeader, random: &mut RepeatableRandom) -> Option<PacketHeader> {
    imply(rule, &mut header, random)?;
    for (number, constraint) in rule.matches.iter().enumerate() {
        let field = constraint.field;
        // Its packets are those of the header; what they carry is not drawn.
        if constraint.is_of_stream() {
            continue;
        }
        if rule.matches[..number].iter().any(|before| before.field == field) {
            continue;
        }
        let same: Vec<&Match> = rule.matches[number..].iter().filter(|other| other.field == field).collect();
        match field.option_kind() {
            Some(kind) => set_option(&mut header, kind, &same, random)?,
            None => set_number(&mut header, field, &same, random)?,
        }
    }
    Some(header)
}

/// Sets the family and the protocol that the rule's fields require.
fn imply(rule: &Rule, header: &mut PacketHeader, random: &mut RepeatableRandom) -> Option<()> {
    for constraint in &rule.matches {
        let (six, proto) = match constraint.field.info().implies {
            Implies::Ip4 => (Some(false), None),
            Implies::Ip6 => (Some(true), None),
            Implies::Icmp => (Some(false), Some(ICMP)),
            Implies::Icmp6 => (Some(true), Some(ICMP6)),
            Implies::Udp => (None, Some(UDP)),
            Implies::Tcp => (None, Some(TCP)),
            Implies::Ip if constraint.field.id == FieldId::NetProto => {
                let version = draw(&[constraint], 8, random)?;
                (Some(version == 6), None)
            }
            Implies::TcpOrUdp if [TCP, UDP].contains(&header.proto) => (None, None),
            Implies::TcpOrUdp => (None, Some(TCP)),
            Implies::Frame | Implies::Ip | Implies::Transport => (None, None),
        };
        if let Some(six) = six {
            header.change_family(six, random);
        }
        header.proto = proto.unwrap_or(header.proto);
    }
    Some(())
}

fn set_number(
    header: &mut PacketHeader,
    field: Field,
    same: &[&Match],
    random: &mut RepeatableRandom,
) -> Option<()> {
    use FieldId::*;
    let info = field.info();
    let number = draw(same, info.width()?, random)?;
    match field.id {
        NetProto => {}
        IpProto => header.proto = number as u8,
        IpSaddr | Ip6Saddr => header.source = number,
        IpDaddr | Ip6Daddr => header.destination = number,
        IpTtl | Ip6HopLimit => header.ttl = number as u8,
        IpDscp => header.tos = header.tos & 3 | (number as u8) << 2,
        IpEcn => header.tos = header.tos & !3 | number as u8,
        IpNonEct | IpEct0 | IpEct1 | IpCe => header.tos = header.tos & !3 | number as u8,
        Ip6TrafficClass => header.tos = number as u8,
        IpId => header.id = number as u16,
        IpLen => header.length = number as u16,
        TcpSport | UdpSport => header.sport = number as u16,
        TcpDport | UdpDport => header.dport = number as u16,
        IcmpType | Icmp6Type => header.icmp = Some((number as u8, header.icmp.map_or(0, |(_, code)| code))),
        IcmpCode | Icmp6Code => header.icmp = Some((header.icmp.map_or(8, |(kind, _)| kind), number as u8)),
        TcpFlags => header.flags = number as u8,
        TcpCwr | TcpEce | TcpUrg | TcpAck | TcpPush | TcpRst | TcpSyn | TcpFin => {
            let bit = 0x80 >> (field.id as u8 - TcpCwr as u8);
            header.flags = if number == 1 { header.flags | bit } else { header.flags & !bit };
        }
        TcpReserved => header.reserved = number as u8,
        TcpOffset => set_offset(header, same, random)?,
        TcpWin => header.window = number as u16,
        _ => return None,
    }
    Some(())
}

/// A TCP header of an allowed length; options that do not fit are removed.
fn set_offset(header: &mut PacketHeader, same: &[&Match], random: &mut RepeatableRandom) -> Option<()> {
    let lengths: Vec<u8> =
        (5..=15).filter(|&words| same.iter().all(|m| holds(m, u128::from(words), 4))).collect();
    if lengths.is_empty() {
        return None;
    }
    header.offset = random.of(&lengths);
    let room = usize::from(header.offset - 5) * 4;
    let mut used = 0;
    header.options.retain(|(_, data)| {
        used += 2 + data.len();
        used <= room
    });
    Some(())
}

/// One number that satisfies all constraints.
fn draw(same: &[&Match], width: u8, random: &mut RepeatableRandom) -> Option<u128> {
    (0..MAX_DRAWS).find_map(|_| {
        let number = proposal(random.of(same), width, random);
        same.iter().all(|constraint| holds(constraint, number, width)).then_some(number)
    })
}

/// A number that likely satisfies a constraint.
fn proposal(constraint: &Match, width: u8, random: &mut RepeatableRandom) -> u128 {
    let max = ones(width);
    let any = |random: &mut RepeatableRandom| match width {
        32 | 128 => any_address(width == 128, random),
        _ => random.within(0, max),
    };
    if constraint.negated {
        return any(random);
    }
    match &constraint.test {
        Test::Number(cond, NumberSet(items)) => {
            let (first, last) = random.of(items).bounds(width);
            let (low, high) = match cond {
                Cond::Eq => (first, last),
                Cond::Ne => return any(random),
                Cond::Lt => (0, first.saturating_sub(1)),
                Cond::Le => (0, first),
                Cond::Gt => (first.saturating_add(1).min(max), max),
                Cond::Ge => (first, max),
            };
            random.within(low, high)
        }
        Test::Present | Test::Port(..) | Test::Bytes(..) | Test::Patterns(_) | Test::Header(..) => {
            any(random)
        }
        // The rule does not tell what is in it.
        Test::NamedSet(..) => any(random),
    }
}

/// Whether the number of a field satisfies a constraint.
fn holds(constraint: &Match, number: u128, width: u8) -> bool {
    let passes = match &constraint.test {
        Test::Present => match constraint.field.info().alone {
            BareMeaning::Equals(value) => number == u128::from(value),
            BareMeaning::Protocol | BareMeaning::Optional => true,
        },
        Test::Number(cond, set) => Intervals::compared(*cond, set, width).contains(number),
        Test::Port(..) | Test::Bytes(..) | Test::Patterns(_) | Test::Header(..) => false,
        Test::NamedSet(..) => true,
    };
    passes != constraint.negated
}

/// Adds an option before the existing ones; supports only constraints on presence and equality.
fn set_option(
    header: &mut PacketHeader,
    kind: u8,
    same: &[&Match],
    random: &mut RepeatableRandom,
) -> Option<()> {
    let [constraint] = same else { return None };
    if constraint.negated {
        header.options.retain(|(other, _)| *other != kind);
        return Some(());
    }
    let width = usize::from(constraint.field.info().width().unwrap_or(0)) / 8;
    let data = match &constraint.test {
        Test::Present => vec![0; width],
        Test::Bytes(Equality::Eq, strings) => strings.first()?.clone(),
        Test::Number(Cond::Eq, NumberSet(items)) => {
            let (first, last) = items.first()?.bounds(64);
            let number = random.within(first, last) as u64;
            let needed = (8 - number.leading_zeros() as usize / 8).max(1);
            number.to_be_bytes()[8 - if width > 0 { width } else { needed }..].to_vec()
        }
        Test::Number(Cond::Ne | Cond::Lt | Cond::Le | Cond::Gt | Cond::Ge, _) => return None,
        Test::Bytes(Equality::Ne, _) | Test::Port(..) | Test::Patterns(_) | Test::Header(..) => return None,
        Test::NamedSet(..) => return None,
    };
    header.options.retain(|(other, _)| *other != kind);
    header.options.truncate(MAX_OPTIONS - 1);
    header.options.insert(0, (kind, data));
    Some(())
}

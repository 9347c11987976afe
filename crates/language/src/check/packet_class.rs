//! The classes of packets, and the values that each fixes.
//!
//! A rule can match if the packets of some class can satisfy it. A class is a family, a transport header (or
//! none), and whether the packet is a later fragment; in each, some fields have less than their full range.

use mmb_packet::proto::{ICMP, ICMP6, TCP, UDP};
use mmb_policy::field::{FIELDS, Field, FieldId, Implies};
use mmb_policy::intervals::Intervals;
use std::sync::LazyLock;

/// A class of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketClass {
    /// 4, 6, or 0 for frames that are not IP.
    family: u8,
    /// The transport header's protocol, or 0 if there is none that mmb knows.
    transport: u8,
    /// It is a fragment and not the first one.
    later: bool,
}

const fn class(family: u8, transport: u8, later: bool) -> PacketClass {
    PacketClass { family, transport, later }
}

/// Every class; a set of classes is a [`PacketClasses`].
pub(super) const CLASSES: [PacketClass; 11] = [
    class(4, TCP, false),
    class(4, UDP, false),
    class(4, ICMP, false),
    class(4, 0, false),
    class(4, 0, true),
    class(6, TCP, false),
    class(6, UDP, false),
    class(6, ICMP6, false),
    class(6, 0, false),
    class(6, 0, true),
    class(0, 0, false),
];

/// A set of classes: bit `i` is `CLASSES[i]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketClasses(pub(super) u16);

/// The fields that have less than their full range in packets of some class, by [`FieldId`].
static NARROW: LazyLock<Vec<bool>> = LazyLock::new(|| {
    let narrow = |id| CLASSES.iter().any(|class| class.values(id).is_some());
    FIELDS.iter().map(|info| narrow(info.id)).collect()
});

/// Returns whether a field of fixed place has less than its full range in packets of some class.
pub(super) fn is_narrow(id: FieldId) -> bool {
    NARROW[id as usize]
}

impl PacketClasses {
    /// Those of which a field that implies this can hold.
    pub(super) fn of(implies: Implies) -> PacketClasses {
        match implies {
            Implies::Frame => const { PacketClasses::within(Implies::Frame) },
            Implies::Ip => const { PacketClasses::within(Implies::Ip) },
            Implies::Ip4 => const { PacketClasses::within(Implies::Ip4) },
            Implies::Ip6 => const { PacketClasses::within(Implies::Ip6) },
            Implies::Icmp => const { PacketClasses::within(Implies::Icmp) },
            Implies::Icmp6 => const { PacketClasses::within(Implies::Icmp6) },
            Implies::Udp => const { PacketClasses::within(Implies::Udp) },
            Implies::Tcp => const { PacketClasses::within(Implies::Tcp) },
            Implies::Transport => const { PacketClasses::within(Implies::Transport) },
            Implies::TcpOrUdp => const { PacketClasses::within(Implies::TcpOrUdp) },
        }
    }

    const fn within(implies: Implies) -> PacketClasses {
        let (mut set, mut i) = (0, 0);
        while i < CLASSES.len() {
            let class = &CLASSES[i];
            let within = match implies {
                Implies::Frame => true,
                Implies::Ip => class.family != 0,
                Implies::Ip4 => class.family == 4,
                Implies::Ip6 => class.family == 6,
                Implies::Icmp => class.transport == ICMP,
                Implies::Icmp6 => class.transport == ICMP6,
                Implies::Udp => class.transport == UDP,
                Implies::Tcp => class.transport == TCP,
                Implies::Transport => class.family != 0 && !class.later,
                Implies::TcpOrUdp => class.transport == TCP || class.transport == UDP,
            };
            if within {
                set |= 1 << i;
            }
            i += 1;
        }
        PacketClasses(set)
    }

    pub(super) fn intersect(self, other: PacketClasses) -> PacketClasses {
        PacketClasses(self.0 & other.0)
    }

    /// Those that a condition holds for.
    pub(super) fn filter(self, keep: impl Fn(PacketClass) -> bool) -> PacketClasses {
        let kept = CLASSES.into_iter().enumerate().filter(|(_, class)| keep(*class));
        self.intersect(PacketClasses(kept.fold(0, |set, (i, _)| set | 1 << i)))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn iter(self) -> impl Iterator<Item = PacketClass> {
        CLASSES.into_iter().enumerate().filter(move |(i, _)| self.0 & 1 << i != 0).map(|(_, class)| class)
    }
}

/// Next headers that IPv6 goes on behind.
const EXTENSIONS: [u128; 8] = [0, 43, 44, 51, 60, 135, 139, 140];

impl PacketClass {
    /// The values that a field of fixed place can have in packets of this class, if not all that its width allows.
    pub(super) fn values(self, id: FieldId) -> Option<Intervals> {
        let transport = u128::from(self.transport);
        Some(match (id, self.family) {
            (FieldId::NetProto, family) => Intervals::one(family.into()),
            (FieldId::EthType, 4) => Intervals::one(0x0800),
            (FieldId::EthType, 6) => Intervals::one(0x86dd),
            (FieldId::EthType, _) => Intervals::of(&[0x0800, 0x86dd]).complement(0xffff),
            (FieldId::IpProto, _) if transport != 0 => Intervals::one(transport),
            (FieldId::IpProto, 4) if !self.later => Intervals::of(&[1, 6, 17]).complement(255),
            (FieldId::IpProto, 6) if !self.later => Intervals::of(&[6, 17, 58]).complement(255),
            (FieldId::IpVer, _) => Intervals::one(4),
            (FieldId::Ip6Ver, _) => Intervals::one(6),
            (FieldId::IpIhl | FieldId::TcpOffset, _) => Intervals::range(5, 15),
            (FieldId::IpFragOffset, _) if self.later => Intervals::range(1, 0x1fff),
            (FieldId::IpFragOffset, _) => Intervals::one(0),
            (FieldId::Ip6Next, _) if transport != 0 => {
                Intervals::of(&EXTENSIONS).union(&Intervals::one(transport))
            }
            (FieldId::Ip6EhFragment, _) if self.later => Intervals::one(1),
            // Nothing behind an encrypted header can be seen.
            (FieldId::Ip6EhEsp, _) if transport != 0 => Intervals::one(0),
            _ => return None,
        })
    }
}

/// The packets that a field is about, in words.
pub(super) fn about(implies: Implies) -> &'static str {
    match implies {
        Implies::Frame => "frames",
        Implies::Ip => "IP packets",
        Implies::Ip4 => "IPv4 packets",
        Implies::Ip6 => "IPv6 packets",
        Implies::Icmp => "ICMP packets",
        Implies::Icmp6 => "ICMPv6 packets",
        Implies::Udp => "UDP packets",
        Implies::Tcp => "TCP packets",
        Implies::Transport => "packets that are no later fragments",
        Implies::TcpOrUdp => "TCP and UDP packets",
    }
}

/// The text that the packets which a field implies always have it.
pub(super) fn always_has(field: Field) -> String {
    format!("every {} has `{field}`, and naming it asks for one", packets(field))
}

/// The packets that a field asks for, in the singular.
pub(super) fn packets(field: Field) -> &'static str {
    match field.info().implies {
        Implies::Frame => "frame",
        Implies::Ip => "IP packet",
        Implies::Ip4 => "IPv4 packet",
        Implies::Ip6 => "IPv6 packet",
        Implies::Icmp => "ICMP packet",
        Implies::Icmp6 => "ICMPv6 packet",
        Implies::Udp => "UDP packet",
        Implies::Tcp => "TCP packet",
        Implies::Transport => "packet",
        Implies::TcpOrUdp => "TCP or UDP packet",
    }
}

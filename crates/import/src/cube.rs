//! Sets of packets that a filter treats alike: a [`PacketCube`] contains, for each dimension of a packet, the allowed values.
//! Cubes of one family intersect and subtract exactly, which is how chains with jumps become one list of rules.
//!
//! Fields that only some packets have (ports, flags, ICMP types) are dimensions too. They are valid only if the cube contains
//! only first fragments of one protocol; [`PacketCube::with_transport`] ensures this.

use mmb_policy::{CtState, Intervals};
use std::collections::BTreeSet;

/// IPv4, IPv6, or neither. A cube contains packets of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4
    Ip4,
    /// IPv6
    Ip6,
    /// Frames that are not IP, which only tables of bridges see.
    Frame,
}

impl Family {
    /// Width of an address in bits.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Family::Ip4 => 32,
            Family::Ip6 => 128,
            Family::Frame => 0,
        }
    }

    /// The protocol number of its ICMP. No rule about frames asks for it.
    pub(crate) fn icmp(self) -> u8 {
        match self {
            Family::Ip4 | Family::Frame => 1,
            Family::Ip6 => 58,
        }
    }

    /// The ether types of its packets.
    pub(crate) fn ether_types(self) -> Intervals {
        let (ip4, ip6) = (Intervals::one(0x0800), Intervals::one(0x86dd));
        match self {
            Family::Ip4 => ip4,
            Family::Ip6 => ip6,
            Family::Frame => Intervals::of_width(16).minus(&ip4.union(&ip6)),
        }
    }
}

/// A dimension with numbers. The order is that of [`PacketCube::minus`]: the meaning of a dimension depends only on those before
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Dim {
    /// Ether type behind the VLAN tags.
    EtherType,
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Protocol; in IPv6 after the extension headers.
    Proto,
    /// 0 for whole packets and first fragments, 1 for later ones.
    Later,
    /// Type of service or traffic class, 8 bits.
    Tos,
    /// Length of the IP packet in bytes, its header included.
    Length,
    /// Time to live or hop limit.
    Ttl,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// TCP data offset.
    Offset,
    /// The four bits between the TCP data offset and the flags.
    Reserved,
    /// The eight TCP flags.
    Flags,
    /// ICMP type and code as one number of 16 bits.
    Icmp,
    /// The connection state of the packet: the number of a [`CtState`].
    State,
    /// The translations of the packet's connection: the bits [`DESTINATION_TRANSLATED`] and [`SOURCE_TRANSLATED`]. The language has
    /// no field for it; `netfilter::view` resolves it.
    Translated,
}

/// A bit of [`Dim::Translated`]: the destination of the connection's first packet is translated.
pub(crate) const DESTINATION_TRANSLATED: u128 = 1;

/// A bit of [`Dim::Translated`]: the source of the connection's first packet is translated.
pub(crate) const SOURCE_TRANSLATED: u128 = 2;

/// Connection states as numbers of [`Dim::State`].
pub(crate) fn states(states: &[CtState]) -> Intervals {
    states.iter().map(|&state| (state as u128, state as u128)).collect()
}

/// Every dimension, in order.
const DIMS: [Dim; 16] = [
    Dim::EtherType,
    Dim::Source,
    Dim::Destination,
    Dim::Proto,
    Dim::Later,
    Dim::Tos,
    Dim::Length,
    Dim::Ttl,
    Dim::SourcePort,
    Dim::DestinationPort,
    Dim::Offset,
    Dim::Reserved,
    Dim::Flags,
    Dim::Icmp,
    Dim::State,
    Dim::Translated,
];

impl Dim {
    /// Every number of the dimension: none if the family has no such field.
    pub(crate) fn all(self, family: Family) -> Intervals {
        if family == Family::Frame {
            return match self {
                Dim::EtherType => family.ether_types(),
                Dim::State => states(&[CtState::Untracked]),
                Dim::Translated => Intervals::one(0),
                // Frames have no other field.
                _ => Intervals::EMPTY,
            };
        }
        let bits = match self {
            Dim::Source | Dim::Destination => family.bits(),
            Dim::Proto | Dim::Tos | Dim::Ttl | Dim::Flags => 8,
            Dim::Later => 1,
            Dim::Offset | Dim::Reserved => 4,
            Dim::SourcePort | Dim::DestinationPort | Dim::Icmp => 16,
            // The length field of IPv6 does not count the fixed header.
            Dim::Length if family == Family::Ip6 => return Intervals::range(40, 40 + 65535),
            Dim::Length => 16,
            Dim::State => return Intervals::range(0, CtState::ALL.len() as u128 - 1),
            Dim::Translated => 2,
            Dim::EtherType => return family.ether_types(),
        };
        Intervals::of_width(bits)
    }
}

/// Names of ports, without a fixed set of all names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PortNameSet {
    /// These names.
    Only(BTreeSet<String>),
    /// Every name except these.
    But(BTreeSet<String>),
}

impl PortNameSet {
    /// Every name.
    pub(crate) fn all() -> PortNameSet {
        PortNameSet::But(BTreeSet::new())
    }

    /// One name.
    pub(crate) fn one(name: &str) -> PortNameSet {
        PortNameSet::Only(BTreeSet::from([name.to_owned()]))
    }

    /// The complement.
    pub(crate) fn others(self) -> PortNameSet {
        match self {
            PortNameSet::Only(names) => PortNameSet::But(names),
            PortNameSet::But(names) => PortNameSet::Only(names),
        }
    }

    pub(crate) fn and(&self, other: &PortNameSet) -> PortNameSet {
        match (self, other) {
            (PortNameSet::Only(a), PortNameSet::Only(b)) => PortNameSet::Only(a & b),
            (PortNameSet::Only(only), PortNameSet::But(but))
            | (PortNameSet::But(but), PortNameSet::Only(only)) => PortNameSet::Only(only - but),
            (PortNameSet::But(a), PortNameSet::But(b)) => PortNameSet::But(a | b),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == PortNameSet::Only(BTreeSet::new())
    }
}

/// The packets whose input port, output port and dimensions have allowed values. Not empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PacketCube {
    /// The family of the packets.
    pub(crate) family: Family,
    /// Their input ports.
    pub(crate) input: PortNameSet,
    /// Their output ports.
    pub(crate) output: PortNameSet,
    /// By dimension; `None`: every value.
    sets: [Option<Intervals>; DIMS.len()],
}

impl PacketCube {
    /// Every packet of a family.
    pub(crate) fn all(family: Family) -> PacketCube {
        PacketCube {
            family,
            input: PortNameSet::all(),
            output: PortNameSet::all(),
            sets: [const { None }; DIMS.len()],
        }
    }

    /// The constraint of a dimension, if there is one.
    pub(crate) fn asked(&self, dim: Dim) -> Option<&Intervals> {
        self.sets[dim as usize].as_ref()
    }

    /// The allowed values of a dimension.
    pub(crate) fn allowed(&self, dim: Dim) -> Intervals {
        self.asked(dim).cloned().unwrap_or_else(|| dim.all(self.family))
    }

    /// The packets of the cube with one of these numbers in a dimension; `None`: there are none.
    pub(crate) fn with(mut self, dim: Dim, set: &Intervals) -> Option<PacketCube> {
        let left = self.allowed(dim).intersect(set);
        if left.is_empty() {
            return None;
        }
        self.sets[dim as usize] = (left != dim.all(self.family)).then_some(left);
        Some(self)
    }

    /// The cube without its constraint on a dimension.
    pub(crate) fn without(mut self, dim: Dim) -> PacketCube {
        self.sets[dim as usize] = None;
        self
    }

    /// The packets of the cube that have a transport header of this protocol.
    pub(crate) fn with_transport(self, proto: u8) -> Option<PacketCube> {
        self.with(Dim::Proto, &Intervals::one(proto.into()))?.with(Dim::Later, &Intervals::one(0))
    }

    /// The packets of the cube that arrive on one of these ports.
    pub(crate) fn entering(mut self, names: &PortNameSet) -> Option<PacketCube> {
        self.input = self.input.and(names);
        (!self.input.is_empty()).then_some(self)
    }

    /// The packets of the cube that leave by one of these ports.
    pub(crate) fn leaving(mut self, names: &PortNameSet) -> Option<PacketCube> {
        self.output = self.output.and(names);
        (!self.output.is_empty()).then_some(self)
    }

    /// The packets in both cubes.
    pub(crate) fn and(&self, other: &PacketCube) -> Option<PacketCube> {
        if self.family != other.family {
            return None;
        }
        let mut both = self.clone().entering(&other.input)?.leaving(&other.output)?;
        for dim in DIMS {
            if let Some(set) = other.asked(dim) {
                both = both.with(dim, set)?;
            }
        }
        Some(both)
    }

    /// Takes the packets of another cube in, if both differ in one dimension at most, which does not select the header; returns whether
    /// they do.
    pub(crate) fn join(&mut self, other: &PacketCube) -> bool {
        let same_ports = self.input == other.input && self.output == other.output;
        if self.family != other.family || !same_ports {
            return false;
        }
        let differs = |dim: &&Dim| self.asked(**dim) != other.asked(**dim);
        let mut different = DIMS.iter().filter(differs);
        let (dim, rest) = (different.next().copied(), different.next());
        if rest.is_some() {
            return false;
        }
        if let Some(dim) = dim {
            // The meaning of ports and types depends on these.
            if matches!(dim, Dim::EtherType | Dim::Proto | Dim::Later) {
                return false;
            }
            let both = self.allowed(dim).union(&other.allowed(dim));
            self.sets[dim as usize] = (both != dim.all(self.family)).then_some(both);
        }
        true
    }

    /// Whether some packet is in both cubes.
    pub(crate) fn overlaps(&self, other: &PacketCube) -> bool {
        self.family == other.family
            && !self.input.and(&other.input).is_empty()
            && !self.output.and(&other.output).is_empty()
            && DIMS.iter().all(|&dim| match (self.asked(dim), other.asked(dim)) {
                (Some(one), Some(two)) => !one.intersect(two).is_empty(),
                _ => true,
            })
    }

    /// The packets that are not in the other cube, as disjoint cubes.
    pub(crate) fn minus(&self, other: &PacketCube) -> Vec<PacketCube> {
        if !self.overlaps(other) {
            return vec![self.clone()];
        }
        // A packet outside the other cube differs from it in some dimension; the first such dimension determines its cube.
        // `inside` contains the packets that do not differ so far.
        let mut inside = self.clone();
        let mut parts = Vec::new();
        parts.extend(inside.clone().entering(&other.input.clone().others()));
        inside.input = inside.input.and(&other.input);
        parts.extend(inside.clone().leaving(&other.output.clone().others()));
        inside.output = inside.output.and(&other.output);
        for dim in DIMS {
            let Some(set) = other.asked(dim) else { continue };
            let outside = dim.all(self.family).minus(set);
            parts.extend(inside.clone().with(dim, &outside));
            match inside.with(dim, set) {
                Some(left) => inside = left,
                None => break,
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet for the tests of cubes.
    type Point = (u128, u128, u128);

    const ASKED: [Dim; 3] = [Dim::Proto, Dim::Ttl, Dim::Later];

    fn any_cube() -> impl Strategy<Value = PacketCube> {
        let dim = |max: u128| prop::option::of((0..=max, 0..=max));
        let name = prop::option::of(prop_oneof![
            Just(PortNameSet::one("a")),
            Just(PortNameSet::one("b")),
            Just(PortNameSet::one("a").others()),
        ]);
        (dim(3), dim(3), dim(1), name).prop_filter_map("empty", |(a, b, c, name)| {
            let mut cube = PacketCube::all(Family::Ip4);
            for (dim, range) in ASKED.into_iter().zip([a, b, c]) {
                if let Some((x, y)) = range {
                    cube = cube.with(dim, &Intervals::range(x.min(y), x.max(y)))?;
                }
            }
            match name {
                Some(name) => cube.entering(&name),
                None => Some(cube),
            }
        })
    }

    fn holds(cube: &PacketCube, (a, b, c): Point, name: &str) -> bool {
        let inside = |(dim, n): (Dim, u128)| cube.allowed(dim).contains(n);
        ASKED.into_iter().zip([a, b, c]).all(inside) && !cube.input.and(&PortNameSet::one(name)).is_empty()
    }

    proptest! {
        #[test]
        fn cubes_behave_as_sets_of_packets(x in any_cube(), y in any_cube()) {
            let (both, rest) = (x.and(&y), x.minus(&y));
            for n in 0..50u128 {
                let point = (n % 5, n / 5 % 5, n / 25);
                for name in ["a", "b", "c"] {
                    let (in_x, in_y) = (holds(&x, point, name), holds(&y, point, name));
                    prop_assert_eq!(both.as_ref().is_some_and(|cube| holds(cube, point, name)), in_x && in_y);
                    let parts = rest.iter().filter(|cube| holds(cube, point, name)).count();
                    prop_assert_eq!(parts, usize::from(in_x && !in_y));
                }
            }
        }
    }
}

//! Rules over a number of tuples: each tuple is a combination of prefix lengths, protocol, ports and small fields; values are
//! uniformly random.

use super::{RuleIter, TRANSPORTS, equal, ports_of, prefix, rule};
use crate::header::any_address;
use mmb_policy::{FieldId, Match, Rule};
use mmb_random::RepeatableRandom;

/// The fields of a tuple's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TupleShape {
    source: u8,
    destination: u8,
    transport: ShapeTransport,
    dscp: bool,
    ttl: bool,
}

/// The protocol and ports of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShapeTransport {
    Any,
    Protocol,
    Sport,
    Dport,
    Ports,
}

/// The choice of shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variety {
    /// IPv4 prefixes of 8 bits and more, with and without protocol and ports.
    Usual,
    /// IPv6 prefixes of 16 bits and more, likewise.
    Usual6,
    /// IPv4 prefixes of any length, small fields too: the maximum number of shapes.
    Hostile,
}

const ALL_TRANSPORTS: [ShapeTransport; 5] = [
    ShapeTransport::Any,
    ShapeTransport::Protocol,
    ShapeTransport::Sport,
    ShapeTransport::Dport,
    ShapeTransport::Ports,
];

impl Variety {
    fn width(self) -> u8 {
        if self == Variety::Usual6 { 128 } else { 32 }
    }

    /// Every shape in which random packets match less than one rule in fifty of `size`.
    fn shapes(self, size: usize) -> Vec<TupleShape> {
        let (lengths, flags): (Vec<u8>, &[bool]) = match self {
            Variety::Usual => ((8..=32).collect(), &[false]),
            Variety::Usual6 => ((16..=128).step_by(4).collect(), &[false]),
            Variety::Hostile => ((0..=32).collect(), &[false, true]),
        };
        let min = size.max(1).ilog2() + 7;
        let mut shapes = Vec::new();
        for &source in &lengths {
            for &destination in &lengths {
                for transport in ALL_TRANSPORTS {
                    for &dscp in flags {
                        for &ttl in flags {
                            shapes.push(TupleShape { source, destination, transport, dscp, ttl });
                        }
                    }
                }
            }
        }
        shapes.retain(|shape| shape.bits(self) >= min);
        shapes
    }

    /// The most tuples that a set of `size` rules can have.
    pub(crate) fn max_tuples(self, size: usize) -> usize {
        self.shapes(size).len()
    }
}

impl TupleShape {
    /// The number of random bits of its rules.
    fn bits(self, variety: Variety) -> u32 {
        // The first three bits of IPv6 addresses are constant.
        let free =
            |len: u8| if variety == Variety::Usual6 { u32::from(len).saturating_sub(3) } else { len.into() };
        let transport = match self.transport {
            ShapeTransport::Any => 0,
            ShapeTransport::Protocol => 1,
            ShapeTransport::Sport | ShapeTransport::Dport => 17,
            ShapeTransport::Ports => 33,
        };
        let small = u32::from(self.dscp) * 6 + u32::from(self.ttl) * 8;
        free(self.source) + free(self.destination) + transport + small
    }

    fn rule(self, variety: Variety, random: &mut RepeatableRandom) -> Rule {
        let width = variety.width();
        let six = width == 128;
        let (source, destination) =
            if six { (FieldId::Ip6Saddr, FieldId::Ip6Daddr) } else { (FieldId::IpSaddr, FieldId::IpDaddr) };
        let mut matches: Vec<Match> = Vec::new();
        matches.extend(prefix(source, any_address(six, random), self.source, width));
        matches.extend(prefix(destination, any_address(six, random), self.destination, width));
        if self.dscp {
            matches.push(equal(FieldId::IpDscp, random.below(64).into()));
        }
        if self.ttl {
            matches.push(equal(FieldId::IpTtl, random.within(1, 255)));
        }
        let proto = random.of(&TRANSPORTS);
        let (sport, dport) = ports_of(proto);
        if self.transport == ShapeTransport::Protocol {
            matches.push(equal(FieldId::IpProto, proto.into()));
        }
        if matches!(self.transport, ShapeTransport::Sport | ShapeTransport::Ports) {
            matches.push(equal(sport, random.below(1 << 16).into()));
        }
        if matches!(self.transport, ShapeTransport::Dport | ShapeTransport::Ports) {
            matches.push(equal(dport, random.below(1 << 16).into()));
        }
        rule(matches)
    }
}

/// `size` rules, evenly over `tuples` shapes. The first shape is the exact five-tuple; the others are random.
pub(crate) fn rules(variety: Variety, size: usize, tuples: usize, mut random: RepeatableRandom) -> RuleIter {
    let width = variety.width();
    let exact = TupleShape {
        source: width,
        destination: width,
        transport: ShapeTransport::Ports,
        dscp: false,
        ttl: false,
    };
    let mut shapes = variety.shapes(size);
    shapes.retain(|shape| *shape != exact);
    random.shuffle(&mut shapes);
    shapes.insert(0, exact);
    shapes.truncate(tuples);
    Box::new((0..size).map(move |number| shapes[number % shapes.len()].rule(variety, &mut random)))
}

//! Translates matches to cubes.
//!
//! A match fails for packets without the field, also with `!=`. A field selects the packets that have it, and its values a part of these.

use super::json::{Expr, PayloadExpr, TaggedExpr};
use super::names::{self, ValueNames};
use super::values::{FieldValues, addresses, of_ether_type, part, placed, whole, words};
use crate::cube::{DESTINATION_TRANSLATED, Dim, Family, PacketCube, PortNameSet, SOURCE_TRANSLATED, states};
use crate::draft::is_plain;
use crate::iptables::names as common;
use crate::netfilter::{HostAddresses, Reason};
use crate::set;
use mmb_packet::proto::{TCP, UDP};
use mmb_policy::field::ones;
use mmb_policy::{CtState, Intervals};
use std::collections::{BTreeSet, HashMap};

/// The most cubes of one match.
const MAX_PARTS: usize = 4096;

/// Why a set with limits and the like is left out.
pub(super) const ELEMENTS_DECIDE: &str = "an element of a set decides on packets";

/// A named set or map of a table.
pub(super) struct NamedSet<'a> {
    pub(super) elements: &'a [Expr],
    /// Rules add to it.
    pub(super) is_dynamic: bool,
    /// Its elements have limits, or the like.
    pub(super) decides: bool,
}

/// What the rules of a table refer to.
#[derive(Clone, Copy)]
pub(super) struct MatchContext<'a> {
    /// The families of the table.
    pub(super) families: &'a [Family],
    /// The sets and maps of the table.
    pub(super) sets: &'a HashMap<&'a str, NamedSet<'a>>,
    /// The addresses of the host.
    pub(super) addresses: &'a HostAddresses,
}

/// A field that is compared.
struct Field {
    /// The packets that have it.
    base: Vec<PacketCube>,
    values: FieldValues,
}

impl<'a> MatchContext<'a> {
    /// The packets that satisfy a comparison.
    pub(super) fn compared(self, op: &str, left: &Expr, right: &Expr) -> Result<Vec<PacketCube>, Reason> {
        if let Some(TaggedExpr::And(parts)) = left.tagged() {
            return self.masked(op, parts, right);
        }
        if let Some(TaggedExpr::Concat(fields)) = left.tagged() {
            let fields =
                fields.iter().map(|field| self.field(field)).collect::<Result<Vec<Field>, Reason>>()?;
            let inside = self.concatenated(&fields, right)?;
            return match op {
                "==" | "in" => Ok(inside),
                "!=" => outside(product(fields.iter().map(|field| &field.base[..]))?, &inside),
                _ => Err(format!("the comparison {op} of several fields")),
            };
        }
        let field = self.field(left)?;
        match op {
            "==" | "in" => self.selected(&field, right, op),
            "!=" => outside(field.base.clone(), &self.selected(&field, right, op)?),
            "<" | "<=" | ">" | ">=" => self.ordered(&field, op, right),
            _ => Err(format!("the comparison {op}")),
        }
    }

    /// The packets whose key is an element of a map; `None` as the key: all others.
    pub(super) fn keyed(self, key: &Expr, element: &Expr) -> Result<Vec<PacketCube>, Reason> {
        self.compared("==", key, element)
    }

    /// All packets that have the fields of a key.
    pub(super) fn with_key(self, key: &Expr) -> Result<Vec<PacketCube>, Reason> {
        match key.tagged() {
            Some(TaggedExpr::Concat(fields)) => {
                let fields =
                    fields.iter().map(|field| self.field(field)).collect::<Result<Vec<Field>, Reason>>()?;
                product(fields.iter().map(|field| &field.base[..]))
            }
            _ => Ok(self.field(key)?.base),
        }
    }

    /// The elements of a set, a list, or one value.
    pub(super) fn elements<'r>(self, right: &'r Expr) -> Result<&'r [Expr], Reason>
    where
        'a: 'r,
    {
        match right {
            Expr::Text(text) if text.starts_with('@') => {
                let name = &text[1..];
                let set = self.sets.get(name).ok_or_else(|| format!("the set {name} is not known"))?;
                if set.is_dynamic {
                    return Err(format!("set {name}: rules change its members"));
                }
                if set.decides {
                    return Err(format!("set {name}: {ELEMENTS_DECIDE}"));
                }
                Ok(set.elements)
            }
            Expr::List(list) => Ok(list),
            Expr::Tagged(tagged) => match &**tagged {
                TaggedExpr::Set(list) => Ok(list),
                _one => Ok(std::slice::from_ref(right)),
            },
            Expr::Number(_) | Expr::Text(_) | Expr::Other(_) => Ok(std::slice::from_ref(right)),
        }
    }

    fn all(self) -> Vec<PacketCube> {
        self.families.iter().map(|&family| PacketCube::all(family)).collect()
    }

    fn of_family(self, family: Family) -> Vec<PacketCube> {
        self.all().into_iter().filter(|cube| cube.family == family).collect()
    }

    /// Packets with a transport header of one of these protocols.
    pub(super) fn with_transport(self, protos: &[u8]) -> Vec<PacketCube> {
        let all = self.all();
        all.iter()
            .flat_map(|cube| protos.iter().filter_map(|&proto| cube.clone().with_transport(proto)))
            .collect()
    }

    fn field(self, expr: &Expr) -> Result<Field, Reason> {
        let unknown = |what: &str| Err(format!("{what}: the rule language has nothing like it"));
        let Some(tagged) = expr.tagged() else { return unknown("an expression") };
        let ip = || self.all().into_iter().filter(|cube| cube.family != Family::Frame).collect::<Vec<_>>();
        match tagged {
            TaggedExpr::Payload(payload) => self.payload(payload),
            TaggedExpr::Meta(meta) => match meta.key.as_str() {
                "iifname" | "iif" => Ok(Field { base: self.all(), values: FieldValues::Input }),
                "oifname" | "oif" => Ok(Field { base: self.all(), values: FieldValues::Output }),
                "l4proto" => Ok(Field { base: ip(), values: whole(Dim::Proto, 8, ValueNames::Protocols) }),
                "length" => Ok(Field { base: ip(), values: whole(Dim::Length, 16, ValueNames::None) }),
                "nfproto" | "protocol" => Ok(Field { base: self.all(), values: FieldValues::Family }),
                "mark" | "priority" | "nftrace" => Err(format!("meta {}: packets have no marks", meta.key)),
                key => unknown(&format!("meta {key}")),
            },
            TaggedExpr::Ct(ct) => match ct.key.as_str() {
                "state" => Ok(Field { base: ip(), values: FieldValues::State }),
                "direction" => Ok(Field { base: ip(), values: FieldValues::Direction }),
                "status" => Ok(Field { base: ip(), values: FieldValues::Status }),
                "mark" => Err("ct mark: connections have no marks".to_owned()),
                key => unknown(&format!("ct {key}")),
            },
            TaggedExpr::Fib(fib) => {
                let dim = match (fib.result.as_str(), &fib.flags.texts()[..]) {
                    ("type", ["daddr"]) => Dim::Destination,
                    ("type", ["saddr"]) => Dim::Source,
                    _ => return Err("fib: only the routes of a host tell it".to_owned()),
                };
                Ok(Field { base: ip(), values: FieldValues::AddressType { dim } })
            }
            TaggedExpr::Rt(rt) => unknown(&format!("rt {}", rt.key)),
            TaggedExpr::TcpOption(option) => unknown(&format!("tcp option {}", option.name)),
            TaggedExpr::Concat(_)
            | TaggedExpr::Set(_)
            | TaggedExpr::Map(_)
            | TaggedExpr::Prefix(_)
            | TaggedExpr::Range(_)
            | TaggedExpr::And(_)
            | TaggedExpr::Or(_)
            | TaggedExpr::Elem(_) => unknown("an expression of values"),
        }
    }

    fn payload(self, payload: &PayloadExpr) -> Result<Field, Reason> {
        let name = format!("{} {}", payload.protocol, payload.field);
        let icmp = |family: Family| {
            let all = self.of_family(family);
            all.into_iter().filter_map(|cube| cube.with_transport(family.icmp())).collect::<Vec<_>>()
        };
        let (base, values) = match (payload.protocol.as_str(), payload.field.as_str()) {
            ("ip", field) => {
                let values = match field {
                    "saddr" => FieldValues::Address { dim: Dim::Source, family: Family::Ip4 },
                    "daddr" => FieldValues::Address { dim: Dim::Destination, family: Family::Ip4 },
                    "protocol" => whole(Dim::Proto, 8, ValueNames::Protocols),
                    "ttl" => whole(Dim::Ttl, 8, ValueNames::None),
                    "length" => whole(Dim::Length, 16, ValueNames::None),
                    "dscp" => part(Dim::Tos, 2, 6, ValueNames::Dscp),
                    "ecn" => part(Dim::Tos, 0, 2, ValueNames::Ecn),
                    "frag-off" => FieldValues::FragmentOffset,
                    _ => return Err(format!("{name}: the rule language has nothing like it")),
                };
                (self.of_family(Family::Ip4), values)
            }
            ("ip6", field) => {
                let values = match field {
                    "saddr" => FieldValues::Address { dim: Dim::Source, family: Family::Ip6 },
                    "daddr" => FieldValues::Address { dim: Dim::Destination, family: Family::Ip6 },
                    "hoplimit" => whole(Dim::Ttl, 8, ValueNames::None),
                    "length" => FieldValues::Number {
                        dim: Dim::Length,
                        shift: 0,
                        width: 16,
                        offset: 40,
                        names: ValueNames::None,
                    },
                    "dscp" => part(Dim::Tos, 2, 6, ValueNames::Dscp),
                    "ecn" => part(Dim::Tos, 0, 2, ValueNames::Ecn),
                    "nexthdr" => {
                        return Err(format!(
                            "{name}: mmb walks over extension headers to the protocol behind them"
                        ));
                    }
                    _ => return Err(format!("{name}: the rule language has nothing like it")),
                };
                (self.of_family(Family::Ip6), values)
            }
            ("tcp" | "udp" | "th", "sport" | "dport") => {
                let protos: &[u8] = match payload.protocol.as_str() {
                    "tcp" => &[TCP],
                    "udp" => &[UDP],
                    _ => &[TCP, UDP],
                };
                let dim = if payload.field == "sport" { Dim::SourcePort } else { Dim::DestinationPort };
                (self.with_transport(protos), whole(dim, 16, ValueNames::Ports))
            }
            ("tcp", "flags") => (self.with_transport(&[TCP]), whole(Dim::Flags, 8, ValueNames::TcpFlags)),
            ("tcp", "doff") => (self.with_transport(&[TCP]), whole(Dim::Offset, 4, ValueNames::None)),
            ("icmp", "type") => {
                (icmp(Family::Ip4), part(Dim::Icmp, 8, 8, ValueNames::IcmpTypes(Family::Ip4)))
            }
            ("icmp", "code") => {
                (icmp(Family::Ip4), part(Dim::Icmp, 0, 8, ValueNames::IcmpCodes(Family::Ip4)))
            }
            ("icmpv6", "type") => {
                (icmp(Family::Ip6), part(Dim::Icmp, 8, 8, ValueNames::IcmpTypes(Family::Ip6)))
            }
            ("icmpv6", "code") => {
                (icmp(Family::Ip6), part(Dim::Icmp, 0, 8, ValueNames::IcmpCodes(Family::Ip6)))
            }
            ("ether", "type") => (self.all(), FieldValues::Family),
            ("sctp" | "dccp" | "udplite", "sport" | "dport") => {
                return Err(format!("{name}: the rule language has no ports for this protocol"));
            }
            ("ether", _) => return Err(format!("{name}: no field holds link-layer addresses")),
            _ => return Err(format!("{name}: the rule language has nothing like it")),
        };
        Ok(Field { base, values })
    }

    /// The packets whose fields have one of the combinations of a set.
    fn concatenated(self, fields: &[Field], right: &Expr) -> Result<Vec<PacketCube>, Reason> {
        let mut cubes: Vec<PacketCube> = Vec::new();
        for element in self.elements(right)? {
            let Some(TaggedExpr::Concat(values)) = element.tagged() else {
                return Err("an element of several fields is expected".to_owned());
            };
            if values.len() != fields.len() {
                return Err("an element has another number of fields than its key".to_owned());
            }
            let parts = fields.iter().zip(values).map(|(field, value)| self.selected(field, value, "=="));
            let parts = parts.collect::<Result<Vec<_>, Reason>>()?;
            for cube in product(parts.iter().map(|part| &part[..]))? {
                if !cubes.iter_mut().rev().take(8).any(|have| have.join(&cube)) {
                    cubes.push(cube);
                }
            }
            if cubes.len() > MAX_PARTS {
                return Err(format!("a set has combinations for more than {MAX_PARTS} rules"));
            }
        }
        Ok(cubes)
    }

    /// The packets whose field has one of some values.
    fn selected(self, field: &Field, right: &Expr, op: &str) -> Result<Vec<PacketCube>, Reason> {
        let elements = self.elements(right)?;
        let within = |dim: Dim, set: &Intervals| -> Vec<PacketCube> {
            field.base.iter().filter_map(|cube| cube.clone().with(dim, set)).collect()
        };
        match &field.values {
            FieldValues::Number { dim, .. } => {
                let mut set = Intervals::EMPTY;
                if *dim == Dim::Flags && op != "==" && matches!(right, Expr::Text(_) | Expr::List(_)) {
                    // `tcp flags syn,ack`: one of the flags is set.
                    for element in elements {
                        let bits = self.bits(element, ValueNames::TcpFlags)?;
                        set = set.union(&set::masked(0, bits, 8).complement(ones(8)));
                    }
                } else {
                    let ranges = elements.iter().map(|element| field.values.range(element));
                    let ranges = ranges.collect::<Result<Vec<Intervals>, Reason>>()?;
                    set = ranges.iter().flat_map(|range| range.as_slice().iter().copied()).collect();
                }
                Ok(within(*dim, &set))
            }
            FieldValues::Address { dim, family } => {
                let ranges = elements.iter().map(|element| addresses(element, *family));
                let ranges = ranges.collect::<Result<Vec<Intervals>, Reason>>()?;
                let set = ranges.iter().flat_map(|range| range.as_slice().iter().copied()).collect();
                Ok(within(*dim, &set))
            }
            FieldValues::Input | FieldValues::Output => self.ports(field, elements),
            FieldValues::State => {
                let named = words(elements)?
                    .into_iter()
                    .map(|word| common::state(word).ok_or_else(|| format!("ct state {word} is not known")));
                let all = named.collect::<Result<Vec<&[CtState]>, Reason>>()?.concat();
                Ok(within(Dim::State, &states(&all)))
            }
            FieldValues::Direction => {
                let mut all = Vec::new();
                for word in words(elements)? {
                    all.extend(match word {
                        "original" => &[CtState::New, CtState::Established, CtState::Related][..],
                        "reply" => &[CtState::EstablishedReply, CtState::RelatedReply],
                        _ => return Err(format!("ct direction {word} is not known")),
                    });
                }
                Ok(within(Dim::State, &states(&all)))
            }
            FieldValues::Status => {
                let mut set = Intervals::EMPTY;
                for word in words(elements)? {
                    let bit = match word {
                        "dnat" => DESTINATION_TRANSLATED,
                        "snat" => SOURCE_TRANSLATED,
                        _ => return Err(format!("ct status {word}: the rule language has nothing like it")),
                    };
                    set = set.union(&Intervals::of(&[bit, DESTINATION_TRANSLATED | SOURCE_TRANSLATED]));
                }
                Ok(within(Dim::Translated, &set))
            }
            FieldValues::Family => {
                let mut cubes = Vec::new();
                for element in elements {
                    cubes.extend(of_ether_type(&field.base, element)?);
                }
                Ok(cubes)
            }
            FieldValues::AddressType { dim } => self.of_type(&field.base, *dim, &words(elements)?),
            FieldValues::FragmentOffset => {
                Err("ip frag-off: only its offset as a whole is translated".to_owned())
            }
        }
    }

    /// The packets whose field is less or greater than a number.
    fn ordered(self, field: &Field, op: &str, right: &Expr) -> Result<Vec<PacketCube>, Reason> {
        let FieldValues::Number { dim, shift, width, offset, .. } = field.values else {
            return Err(format!("the comparison {op} of such values"));
        };
        let one = field.values.number(right)?;
        let values = match op {
            "<" => Intervals::range(0, one).minus(&Intervals::one(one)),
            "<=" => Intervals::range(0, one),
            ">" => Intervals::range(one.saturating_add(1), ones(width)),
            _ => Intervals::range(one, ones(width)),
        };
        let set = placed(dim, shift, width, offset, &values);
        Ok(field.base.iter().filter_map(|cube| cube.clone().with(dim, &set)).collect())
    }

    /// `FIELD & MASK == VALUE`
    fn masked(self, op: &str, parts: &[Expr], right: &Expr) -> Result<Vec<PacketCube>, Reason> {
        let [left, mask] = parts else { return Err("a mask is expected".to_owned()) };
        let field = self.field(left)?;
        let is_equal = match op {
            "==" => true,
            "!=" => false,
            _ => return Err(format!("the comparison {op} under a mask")),
        };
        if let FieldValues::FragmentOffset = field.values {
            let (mask, value) = (self.bits(mask, ValueNames::None)?, self.bits(right, ValueNames::None)?);
            if mask != 0x1fff || value != 0 {
                return Err("ip frag-off: only its offset as a whole is translated".to_owned());
            }
            let later = Intervals::one(u128::from(!is_equal));
            return Ok(field.base.iter().filter_map(|cube| cube.clone().with(Dim::Later, &later)).collect());
        }
        let FieldValues::Number { dim, shift, width, offset: 0, names } = field.values else {
            return Err("a mask over such a field".to_owned());
        };
        let (mask, value) = (self.bits(mask, names)?, self.bits(right, names)?);
        let values = if value & !mask == 0 { set::masked(value, mask, width) } else { Intervals::EMPTY };
        let values = if is_equal { values } else { values.complement(ones(width)) };
        let set = placed(dim, shift, width, 0, &values);
        Ok(field.base.iter().filter_map(|cube| cube.clone().with(dim, &set)).collect())
    }

    /// A number from flags.
    fn bits(self, expr: &Expr, of: ValueNames) -> Result<u128, Reason> {
        match expr.value() {
            Expr::Number(n) => Ok((*n).into()),
            Expr::Text(word) => names::number(word, of).ok_or_else(|| format!("`{word}` is not known")),
            Expr::List(list) => list.iter().try_fold(0, |bits, expr| Ok(bits | self.bits(expr, of)?)),
            Expr::Tagged(tagged) => match &**tagged {
                TaggedExpr::Or(list) => list.iter().try_fold(0, |bits, expr| Ok(bits | self.bits(expr, of)?)),
                _other => Err("such a value".to_owned()),
            },
            Expr::Other(_) => Err("such a value".to_owned()),
        }
    }

    fn ports(self, field: &Field, elements: &[Expr]) -> Result<Vec<PacketCube>, Reason> {
        let mut names = BTreeSet::new();
        for word in words(elements)? {
            if word.ends_with('*') {
                return Err(format!("interface {word}: `in` and `out` take whole names of ports"));
            }
            if !is_plain(word) {
                return Err(format!("interface {word}: a port cannot be called so"));
            }
            // Packets from a host to itself are on no wire.
            if word != "lo" {
                names.insert(word.to_owned());
            }
        }
        let names = PortNameSet::Only(names);
        let is_input = matches!(field.values, FieldValues::Input);
        let at = |cube: &PacketCube| {
            let cube = cube.clone();
            if is_input { cube.entering(&names) } else { cube.leaving(&names) }
        };
        Ok(field.base.iter().filter_map(at).collect())
    }

    fn of_type(self, base: &[PacketCube], dim: Dim, words: &[&str]) -> Result<Vec<PacketCube>, Reason> {
        let mut cubes = Vec::new();
        for cube in base {
            let (family, mut set) = (cube.family, Intervals::EMPTY);
            for &word in words {
                let hosts = self.addresses.all(family);
                let known = !self.families.iter().all(|&family| self.addresses.all(family).is_empty());
                let of_word = match (word, family) {
                    ("local", _) if known => Some(hosts),
                    ("broadcast", Family::Ip6) => Some(Intervals::EMPTY),
                    ("broadcast", Family::Ip4) if known => self.addresses.broadcast(),
                    ("multicast", Family::Ip4) => Some(set::prefix(0xe000_0000, 4, 32)),
                    ("multicast", Family::Ip6) => Some(set::prefix(0xff00 << 112, 8, 128)),
                    _ => None,
                };
                set = set.union(&of_word.ok_or_else(|| {
                    format!("fib type {word}: needs the addresses of the host: --address PORT=ADDRESS/LENGTH")
                })?);
            }
            cubes.extend(cube.clone().with(dim, &set));
        }
        Ok(cubes)
    }
}

/// The packets that are in one cube of each list.
fn product<'c>(lists: impl Iterator<Item = &'c [PacketCube]>) -> Result<Vec<PacketCube>, Reason> {
    let mut found: Option<Vec<PacketCube>> = None;
    for list in lists {
        let both = match found {
            None => list.to_vec(),
            Some(have) => {
                have.iter().flat_map(|cube| list.iter().filter_map(|part| cube.and(part))).collect()
            }
        };
        if both.len() > MAX_PARTS {
            return Err(format!("a match has more than {MAX_PARTS} parts"));
        }
        found = Some(both);
    }
    Ok(found.unwrap_or_default())
}

/// Some packets without others.
pub(super) fn outside(mut base: Vec<PacketCube>, inside: &[PacketCube]) -> Result<Vec<PacketCube>, Reason> {
    for cube in inside {
        base = base.iter().flat_map(|have| have.minus(cube)).collect();
        if base.len() > MAX_PARTS {
            return Err("the complement of a set takes too many rules".to_owned());
        }
    }
    Ok(base)
}

//! Translates the options of a rule to cubes.
//!
//! A packet matches if it matches each option. An option is a set of cubes, since `--ports` matches a source port or a
//! destination port. The meaning of options follows the kernel's matches (`net/netfilter/xt_*.c`); for example, fields of
//! transport headers, negated or not, match no later fragment.

use super::ipset::IpSets;
use super::names;
use super::rates;
use super::save::{IptablesRule, Opt};
use crate::cube::{DESTINATION_TRANSLATED, Dim, Family, PacketCube, PortNameSet, SOURCE_TRANSLATED, states};
use crate::draft::is_plain;
use crate::netfilter::{HostAddresses, Reason};
use crate::set;
use mmb_packet::proto::{TCP, UDP};
use mmb_policy::{CtState, Intervals};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The most cubes of the packets outside a set.
const MAX_PARTS: usize = 1024;

/// Modules whose options this file translates, besides those with a reason.
const KNOWN: &[&str] = &[
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "multiport",
    "iprange",
    "length",
    "ttl",
    "hl",
    "dscp",
    "tos",
    "ecn",
    "comment",
    "addrtype",
    "conntrack",
    "state",
    "set",
];

/// Modules that cannot be translated, with the reason if it is specific.
const NOT_TRANSLATED: &[(&str, &str)] = &[
    ("mac", "no field holds link-layer addresses"),
    ("pkttype", "no field holds link-layer addresses"),
    ("recent", "no rule remembers addresses"),
    ("owner", "packets on a wire have no owner"),
    ("mark", "packets have no marks"),
    ("connmark", "packets have no marks"),
    ("physdev", "ports of bridges are not told from the bridges"),
    ("time", "no rule knows the time"),
    ("string", "payloads are compared at their beginning only"),
    ("sctp", "the rule language has no ports for protocol sctp"),
    ("dccp", "the rule language has no ports for protocol dccp"),
    ("udplite", "the rule language has no ports for protocol udplite"),
];

/// What the rules of a dump refer to.
#[derive(Clone, Copy)]
pub(super) struct MatchContext<'a> {
    /// The family of the dump.
    pub(super) family: Family,
    /// The addresses of the host.
    pub(super) addresses: &'a HostAddresses,
    /// The sets that rules name, if they are given.
    pub(super) sets: Option<&'a IpSets>,
}

/// The packets that a rule matches as far as it can be translated, and the untranslatable elements, each once.
pub(super) fn cubes(context: MatchContext<'_>, rule: &IptablesRule) -> (Vec<PacketCube>, Vec<Reason>) {
    let family = context.family;
    let mut cubes = vec![PacketCube::all(family)];
    let mut reasons: Vec<Reason> = Vec::new();
    let proto = rule.options.iter().find(|option| option.name == "protocol" && !option.negated);
    let proto = proto.and_then(|option| names::protocol(option.values.first()?));
    for option in &rule.options {
        match (Matching { context, family, proto, option }).cubes() {
            Ok(None) => {}
            Ok(Some(parts)) => {
                let both =
                    |cube: &PacketCube| parts.iter().filter_map(|part| cube.and(part)).collect::<Vec<_>>();
                cubes = cubes.iter().flat_map(both).collect();
            }
            Err(reason) if reasons.contains(&reason) => {}
            Err(reason) => reasons.push(reason),
        }
    }
    (cubes, reasons)
}

/// An option of a rule, with the context that it needs.
struct Matching<'a> {
    context: MatchContext<'a>,
    family: Family,
    /// The protocol that the rule matches.
    proto: Option<u8>,
    option: &'a Opt,
}

impl Matching<'_> {
    /// The packets that match the option; `None`: all packets.
    fn cubes(&self) -> Result<Option<Vec<PacketCube>>, Reason> {
        if let Some(module) = &self.option.module
            && !self.is_of_every_rule()
        {
            if rates::MODULES.contains(&module.as_str()) {
                return Ok(None);
            }
            if let Some((_, reason)) = NOT_TRANSLATED.iter().find(|(name, _)| name == module) {
                return Err(format!("-m {module}: {reason}"));
            }
            if !KNOWN.contains(&module.as_str()) {
                return Err(format!("-m {module}: the rule language has nothing like it"));
            }
        }
        let cube = match self.option.name.as_str() {
            "comment" => return Ok(None),
            "match" => self.module()?,
            "protocol" => self.protocol()?,
            "source" => self.with(Dim::Source, &self.addresses()?),
            "destination" => self.with(Dim::Destination, &self.addresses()?),
            "src-range" => self.with(Dim::Source, &self.address_range()?),
            "dst-range" => self.with(Dim::Destination, &self.address_range()?),
            "src-type" => self.with(Dim::Source, &self.address_type()?),
            "dst-type" => self.with(Dim::Destination, &self.address_type()?),
            "in-interface" | "out-interface" => self.interface()?,
            "fragment" => self.with(Dim::Later, &Intervals::one(1)),
            "sport" | "source-port" => {
                self.in_transport(self.with_ports()?, Dim::SourcePort, &self.port_range()?)
            }
            "dport" | "destination-port" => {
                self.in_transport(self.with_ports()?, Dim::DestinationPort, &self.port_range()?)
            }
            "sports" | "source-ports" => {
                self.in_transport(self.with_ports()?, Dim::SourcePort, &self.port_list()?)
            }
            "dports" | "destination-ports" => {
                self.in_transport(self.with_ports()?, Dim::DestinationPort, &self.port_list()?)
            }
            "ports" | "port" => return self.either_port().map(Some),
            "syn" => self.in_transport(TCP, Dim::Flags, &set::masked(0x02, 0x17, 8)),
            "tcp-flags" => self.in_transport(TCP, Dim::Flags, &self.tcp_flags()?),
            "icmp-type" | "icmpv6-type" => {
                self.in_transport(self.family.icmp(), Dim::Icmp, &self.icmp_types()?)
            }
            "length" => {
                self.with(Dim::Length, &self.range(Some(':'))?.intersect(&Dim::Length.all(self.family)))
            }
            "ttl" | "ttl-eq" | "hl-eq" => self.with(Dim::Ttl, &self.range(None)?),
            "ttl-lt" | "hl-lt" => {
                self.with(Dim::Ttl, &Intervals::of_width(8).minus(&Intervals::range(self.count()?, 255)))
            }
            "ttl-gt" | "hl-gt" => self.with(Dim::Ttl, &Intervals::range(self.count()? + 1, 255)),
            "dscp" => self.with(Dim::Tos, &dscp(names::number(self.value()?), self.value()?)?),
            "dscp-class" => {
                let value = names::dscp(self.value()?).and_then(|n| n.try_into().ok());
                self.with(Dim::Tos, &dscp(value, self.value()?)?)
            }
            "tos" => self.with(Dim::Tos, &self.service()?),
            "ecn-ip-ect" => {
                let value = self.count()?;
                self.with(Dim::Tos, &exactly(value, 0x03, 8))
            }
            "ecn-tcp-cwr" => self.in_transport(TCP, Dim::Flags, &set::masked(0x80, 0x80, 8)),
            "ecn-tcp-ece" => self.in_transport(TCP, Dim::Flags, &set::masked(0x40, 0x40, 8)),
            "ctstate" | "state" => return self.states().map(Some),
            "ctdir" => self.with(Dim::State, &self.direction()?),
            "match-set" => return self.in_set().map(Some),
            "tcp-option" => {
                return Err(
                    "--tcp-option: iptables looks for options behind the end of the list too".to_owned()
                );
            }
            other => return Err(format!("--{other}: the rule language has nothing like it")),
        };
        Ok(Some(cube.into_iter().collect()))
    }

    /// Whether the option belongs to no module, whatever its place.
    fn is_of_every_rule(&self) -> bool {
        let name = self.option.name.as_str();
        matches!(name, "source" | "destination" | "protocol" | "in-interface" | "out-interface" | "fragment")
    }

    fn value(&self) -> Result<&str, Reason> {
        let value = self.option.values.first().map(String::as_str);
        value.ok_or_else(|| format!("--{}: its value is missing", self.option.name))
    }

    fn wrong(&self, value: &str) -> Reason {
        format!("--{}: `{value}` is not known", self.option.name)
    }

    /// The packets with such a number in a dimension; if the option is negated, those with another number.
    fn with(&self, dim: Dim, set: &Intervals) -> Option<PacketCube> {
        self.within(PacketCube::all(self.family), dim, set)
    }

    /// The same among packets with a transport header, which is required even if the option is negated.
    fn in_transport(&self, proto: u8, dim: Dim, set: &Intervals) -> Option<PacketCube> {
        self.within(PacketCube::all(self.family).with_transport(proto)?, dim, set)
    }

    fn within(&self, cube: PacketCube, dim: Dim, set: &Intervals) -> Option<PacketCube> {
        let others = || dim.all(self.family).minus(set);
        if self.option.negated { cube.with(dim, &others()) } else { cube.with(dim, set) }
    }

    /// `-m MODULE` without options: some modules then match all packets that have their header.
    fn module(&self) -> Result<Option<PacketCube>, Reason> {
        let all = PacketCube::all(self.family);
        Ok(match self.value()? {
            "tcp" => all.with_transport(TCP),
            "udp" => all.with_transport(UDP),
            "icmp" | "icmp6" => all.with_transport(self.family.icmp()),
            _ => Some(all),
        })
    }

    fn protocol(&self) -> Result<Option<PacketCube>, Reason> {
        let word = self.value()?;
        let proto = names::protocol(word).ok_or_else(|| self.wrong(word))?;
        match (proto, self.family) {
            (0, Family::Ip4) => Ok(Some(PacketCube::all(self.family))),
            (0, Family::Ip6) if word != "0" => Ok(Some(PacketCube::all(self.family))),
            (0 | 43 | 44 | 51 | 60 | 135 | 139 | 140, Family::Ip6) => {
                Err(format!("-p {word}: mmb walks over this extension header to the protocol behind it"))
            }
            (proto, _) => Ok(self.with(Dim::Proto, &Intervals::one(proto.into()))),
        }
    }

    fn interface(&self) -> Result<Option<PacketCube>, Reason> {
        let name = self.value()?;
        if name == "+" {
            return Ok(Some(PacketCube::all(self.family)).filter(|_| !self.option.negated));
        }
        if name == "lo" {
            // Packets from a host to itself are on no wire.
            return Ok(Some(PacketCube::all(self.family)).filter(|_| self.option.negated));
        }
        if name.ends_with('+') {
            return Err(format!("interface {name}: `in` and `out` take whole names of ports"));
        }
        if !is_plain(name) {
            return Err(format!("interface {name}: a port cannot be called so"));
        }
        let names =
            if self.option.negated { PortNameSet::one(name).others() } else { PortNameSet::one(name) };
        let all = PacketCube::all(self.family);
        Ok(if self.option.name == "in-interface" { all.entering(&names) } else { all.leaving(&names) })
    }

    fn address(&self, word: &str) -> Result<u128, Reason> {
        let address = match self.family {
            Family::Ip4 => word.parse::<Ipv4Addr>().ok().map(|address| address.to_bits().into()),
            Family::Ip6 => word.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
            Family::Frame => None,
        };
        address.ok_or_else(|| format!("--{}: `{word}` is no address of the family", self.option.name))
    }

    /// Addresses with their masks, separated by commas.
    fn addresses(&self) -> Result<Intervals, Reason> {
        let bits = self.family.bits();
        let mut all = Intervals::EMPTY;
        for word in self.value()?.split(',') {
            let (address, mask) = word.split_once('/').unwrap_or((word, ""));
            let address = self.address(address)?;
            let len = match mask.parse::<u8>() {
                _ if mask.is_empty() => bits,
                Ok(len) if len <= bits => len,
                _ => {
                    // A mask of ones followed by zeros is a prefix length.
                    let mask = self.address(mask)? << (128 - bits);
                    let len = mask.leading_ones();
                    if mask.count_ones() != len {
                        return Err(format!("--{}: the mask of {word} is no prefix", self.option.name));
                    }
                    len as u8
                }
            };
            all = all.union(&set::prefix(address, len, bits));
        }
        Ok(all)
    }

    fn address_range(&self) -> Result<Intervals, Reason> {
        let word = self.value()?;
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Ok(Intervals::range(self.address(first)?, self.address(last)?))
    }

    /// The type of an address. Which ones are the host's depends on its configuration.
    fn address_type(&self) -> Result<Intervals, Reason> {
        let word = self.value()?;
        let addresses = self.context.addresses;
        match (word, self.family) {
            ("MULTICAST", Family::Ip4) => Ok(set::prefix(0xe000_0000, 4, 32)),
            ("MULTICAST", Family::Ip6) => Ok(set::prefix(0xff00 << 112, 8, 128)),
            ("LOCAL", family) if !addresses.all(family).is_empty() => Ok(addresses.all(family)),
            ("BROADCAST", Family::Ip4) if !addresses.all(Family::Ip4).is_empty() => {
                addresses.broadcast().ok_or_else(|| {
                    "-m addrtype: BROADCAST needs the networks of the host: --address PORT=ADDRESS/LENGTH"
                        .to_owned()
                })
            }
            ("LOCAL" | "BROADCAST", _) => Err(format!(
                "-m addrtype: {word} needs the addresses of the host: --address PORT=ADDRESS/LENGTH"
            )),
            _ => Err(format!("-m addrtype: only the routes of a host tell which addresses are {word}")),
        }
    }

    /// The protocol of the rule, if the language has its ports.
    fn with_ports(&self) -> Result<u8, Reason> {
        match self.proto {
            Some(proto @ (TCP | UDP)) => Ok(proto),
            Some(proto) => Err(format!("the rule language has no ports for protocol {proto}")),
            None => Err(format!("--{}: its protocol is not said", self.option.name)),
        }
    }

    /// `A`, `A:B`, `A:` or `:B`, with service names.
    fn ports_of(&self, word: &str) -> Result<Intervals, Reason> {
        let port = |word: &str, open: u16| match word {
            "" => Ok(open),
            word => names::port(word).ok_or_else(|| self.wrong(word)),
        };
        let (first, last) = word.split_once(':').unwrap_or((word, word));
        Ok(Intervals::range(port(first, 0)?.into(), port(last, u16::MAX)?.into()))
    }

    fn port_range(&self) -> Result<Intervals, Reason> {
        self.ports_of(self.value()?)
    }

    fn port_list(&self) -> Result<Intervals, Reason> {
        self.value()?.split(',').try_fold(Intervals::EMPTY, |set, word| Ok(set.union(&self.ports_of(word)?)))
    }

    /// `--ports`: the source port or the destination port is in the list; negated: neither is.
    fn either_port(&self) -> Result<Vec<PacketCube>, Reason> {
        let (proto, list) = (self.with_ports()?, self.port_list()?);
        let source = self.in_transport(proto, Dim::SourcePort, &list);
        let destination = self.in_transport(proto, Dim::DestinationPort, &list);
        if !self.option.negated {
            return Ok(source.into_iter().chain(destination).collect());
        }
        Ok(source
            .zip(destination)
            .and_then(|(source, destination)| source.and(&destination))
            .into_iter()
            .collect())
    }

    fn tcp_flags(&self) -> Result<Intervals, Reason> {
        let flags = |n: usize| {
            let word = self.option.values.get(n).ok_or("--tcp-flags: it takes two lists of flags")?;
            names::tcp_flags(word).ok_or_else(|| self.wrong(word))
        };
        Ok(exactly(flags(1)?.into(), flags(0)?.into(), 8))
    }

    fn icmp_types(&self) -> Result<Intervals, Reason> {
        let word = self.value()?;
        if self.family == Family::Ip4 && matches!(word, "any" | "255") {
            return Ok(Intervals::of_width(16));
        }
        let (of_type, code) = names::icmp(self.family, word).ok_or_else(|| self.wrong(word))?;
        let first = u128::from(of_type) << 8;
        Ok(match code {
            Some(code) => Intervals::one(first | u128::from(code)),
            None => Intervals::range(first, first | 0xff),
        })
    }

    /// States of conntrack, separated by commas: those of the packet, and those of its connection.
    fn states(&self) -> Result<Vec<PacketCube>, Reason> {
        let (mut of_packet, mut of_connection) = (Intervals::EMPTY, Intervals::EMPTY);
        let translated = |bit: u128| Intervals::of(&[bit, DESTINATION_TRANSLATED | SOURCE_TRANSLATED]);
        for word in self.value()?.split(',') {
            match word.to_ascii_uppercase().as_str() {
                "SNAT" => of_connection = of_connection.union(&translated(SOURCE_TRANSLATED)),
                "DNAT" => of_connection = of_connection.union(&translated(DESTINATION_TRANSLATED)),
                upper => {
                    let named = names::state(upper).ok_or_else(|| self.wrong(word))?;
                    of_packet = of_packet.union(&states(named));
                }
            }
        }
        let all = |dim: Dim| dim.all(self.family);
        let with = |dim: Dim, set: &Intervals| PacketCube::all(self.family).with(dim, set);
        if self.option.negated {
            let neither = with(Dim::State, &all(Dim::State).minus(&of_packet))
                .and_then(|cube| cube.with(Dim::Translated, &all(Dim::Translated).minus(&of_connection)));
            return Ok(neither.into_iter().collect());
        }
        // Disjoint, so that no packet is in both.
        let also = with(Dim::Translated, &of_connection)
            .and_then(|cube| cube.with(Dim::State, &all(Dim::State).minus(&of_packet)));
        Ok(with(Dim::State, &of_packet).into_iter().chain(also).collect())
    }

    /// The direction of a packet in its connection.
    fn direction(&self) -> Result<Intervals, Reason> {
        match self.value()?.to_ascii_uppercase().as_str() {
            "ORIGINAL" => Ok(states(&[CtState::New, CtState::Established, CtState::Related])),
            "REPLY" => Ok(states(&[CtState::EstablishedReply, CtState::RelatedReply])),
            _ => Err(self.wrong(self.value()?)),
        }
    }

    /// `--match-set NAME DIRECTIONS`
    fn in_set(&self) -> Result<Vec<PacketCube>, Reason> {
        let name = self.value()?;
        let directions = self.option.values.get(1).map_or("", String::as_str);
        let sets = self.context.sets.ok_or_else(|| {
            format!("set {name}: its members are not in the dump: name the output of `ipset save` with --ipset FILE")
        })?;
        let inside = sets.cubes(name, directions, self.family)?;
        if !self.option.negated {
            return Ok(inside);
        }
        let mut outside = vec![PacketCube::all(self.family)];
        for cube in &inside {
            outside = outside.iter().flat_map(|have| have.minus(cube)).collect();
            if outside.len() > MAX_PARTS {
                return Err(format!("set {name}: its complement takes too many rules"));
            }
        }
        Ok(outside)
    }

    fn service(&self) -> Result<Intervals, Reason> {
        let word = self.value()?;
        let (value, mask) = names::service(word).ok_or_else(|| self.wrong(word))?;
        Ok(exactly(value.into(), mask.into(), 8))
    }

    /// A number.
    fn count(&self) -> Result<u128, Reason> {
        let word = self.value()?;
        names::number(word).map(u128::from).ok_or_else(|| self.wrong(word))
    }

    /// A number, or two with a separator between them, either of which may be missing.
    fn range(&self, separator: Option<char>) -> Result<Intervals, Reason> {
        let word = self.value()?;
        let Some((first, last)) = separator.and_then(|separator| word.split_once(separator)) else {
            return Ok(Intervals::one(self.count()?));
        };
        let number = |word: &str, open: u32| match word {
            "" => Ok(open),
            word => names::number(word).ok_or_else(|| self.wrong(word)),
        };
        Ok(Intervals::range(number(first, 0)?.into(), number(last, 0xffff)?.into()))
    }
}

/// The numbers that have `value` under a mask: none if the value has bits outside the mask, as in the kernel's comparison.
fn exactly(value: u128, mask: u128, bits: u8) -> Intervals {
    if value & !mask == 0 { set::masked(value, mask, bits) } else { Intervals::EMPTY }
}

/// The type-of-service values with this codepoint.
fn dscp(value: Option<u32>, word: &str) -> Result<Intervals, Reason> {
    let value = value.filter(|&n| n < 64).ok_or_else(|| format!("-m dscp: `{word}` is not known"))?;
    Ok(set::masked(u128::from(value) << 2, 0xfc, 8))
}

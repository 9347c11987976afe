//! Sets of `ipset`: parses the output of `ipset save`, and translates their members to cubes.

use super::names;
use crate::cube::{Dim, Family, PacketCube, PortNameSet};
use crate::draft::is_plain;
use crate::named_set::{ImportedSets, Member, ValuesOf};
use crate::netfilter::Reason;
use crate::set;
use mmb_policy::Intervals;
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The most cubes of a set.
const MAX_CUBES: usize = 4096;

/// The most sets within each other in sets of sets.
const MAX_DEPTH: usize = 16;

/// The sets of a file.
#[derive(Debug, Default)]
pub struct IpSets {
    sets: HashMap<String, IpSet>,
}

/// A set.
#[derive(Debug)]
struct IpSet {
    /// `hash`, `bitmap` or `list`.
    method: String,
    /// The kinds of the parts of its members: `ip`, `net`, `port` and so on.
    parts: Vec<String>,
    /// `None`: a set of sets, or one of no family.
    family: Option<Family>,
    members: Vec<IpSetMember>,
}

/// A member of a set.
#[derive(Debug)]
struct IpSetMember {
    value: String,
    /// The seconds after which it expires.
    left_s: Option<u64>,
    /// It excludes packets that a larger member has.
    is_exception: bool,
}

/// A line of an ipset file that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct IpSetError {
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub message: String,
}

impl IpSets {
    /// Parses the output of `ipset save`.
    ///
    /// # Errors
    /// The first line that does not belong to it.
    pub fn read(text: &str) -> Result<IpSets, IpSetError> {
        let mut sets = IpSets::default();
        for (index, line) in text.lines().enumerate() {
            sets.line(line).map_err(|message| IpSetError { line: index + 1, message })?;
        }
        Ok(sets)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => Ok(()),
            [first, ..] if first.starts_with('#') => Ok(()),
            ["create" | "-N", name, kind, ref options @ ..] => {
                let (method, parts) =
                    kind.split_once(':').ok_or_else(|| format!("`{kind}` is no type of a set"))?;
                let parts: Vec<String> = parts.split(',').map(str::to_owned).collect();
                let six = options.windows(2).any(|pair| pair == ["family", "inet6"]);
                let family = match method {
                    "list" => None,
                    _ if parts == ["port"] => None,
                    _ if six => Some(Family::Ip6),
                    _ => Some(Family::Ip4),
                };
                let set = IpSet { method: method.to_owned(), parts, family, members: Vec::new() };
                match self.sets.insert(name.to_owned(), set) {
                    None => Ok(()),
                    Some(_) => Err(format!("there is a set {name} already")),
                }
            }
            ["add" | "-A", name, value, ref options @ ..] => {
                let set = self.sets.get_mut(name).ok_or_else(|| format!("there is no set {name}"))?;
                let is_exception = options.contains(&"nomatch");
                let timeout = options.windows(2).find(|pair| pair[0] == "timeout");
                // Without a time, a member stays.
                let left_s = timeout.and_then(|pair| pair[1].parse().ok()).filter(|&left_s| left_s > 0);
                set.members.push(IpSetMember { value: value.to_owned(), left_s, is_exception });
                Ok(())
            }
            _ => Err("this is no line of ipset save".to_owned()),
        }
    }

    /// The packets of a family that are in a set, disjoint or not, by the directions of the match: `src,dst`.
    ///
    /// # Errors
    /// Why the set cannot be translated.
    pub(super) fn cubes(
        &self,
        name: &str,
        directions: &str,
        family: Family,
    ) -> Result<Vec<PacketCube>, Reason> {
        let directions: Vec<&str> = directions.split(',').collect();
        self.nested(name, &directions, family, 0)
    }

    /// The sets of addresses and of ports that stay sets of the policy. The others are read where a rule asks for them.
    pub(super) fn imported(&self, family: Family) -> ImportedSets {
        let mut imported = ImportedSets::default();
        let mut names: Vec<&String> = self.sets.keys().collect();
        names.sort_unstable();
        for name in names {
            let set = &self.sets[name];
            let of = match set.parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["ip" | "net"] if set.family == Some(family) => ValuesOf::Addresses(family),
                ["port"] if set.family.is_none() => ValuesOf::Ports,
                _ => continue,
            };
            let reading = MemberReading { name, set, directions: &["src"], family };
            // What is wrong is told where a rule asks for it.
            if let Ok((values, members)) = reading.members(of) {
                imported.add(name, of, values, &members);
            }
        }
        imported
    }

    fn nested(
        &self,
        name: &str,
        directions: &[&str],
        family: Family,
        depth: usize,
    ) -> Result<Vec<PacketCube>, Reason> {
        let set = self.sets.get(name).ok_or_else(|| format!("set {name}: it is not in the file of sets"))?;
        if set.family.is_some_and(|of_set| of_set != family) {
            return Ok(Vec::new());
        }
        if set.method == "list" {
            if depth == MAX_DEPTH {
                return Err(format!("set {name}: there are too many sets within each other"));
            }
            let inner =
                set.members.iter().map(|member| self.nested(&member.value, directions, family, depth + 1));
            let cubes = inner.collect::<Result<Vec<_>, Reason>>()?.concat();
            return bounded(name, cubes);
        }
        if directions.len() < set.parts.len() {
            return Err(format!("set {name}: it needs {} directions", set.parts.len()));
        }
        let reading = MemberReading { name, set, directions, family };
        match set.parts[..] {
            [_] if set.family.is_some() => reading.addresses(),
            _ => reading.products(),
        }
    }
}

/// The members of a set, as a match reads them.
struct MemberReading<'a> {
    name: &'a str,
    set: &'a IpSet,
    directions: &'a [&'a str],
    family: Family,
}

impl MemberReading<'_> {
    /// The values of all members, and each member, without exceptions, which a policy's sets do not have.
    fn members(&self, of: ValuesOf) -> Result<(Intervals, Vec<Member>), Reason> {
        let (cubes, dim) = match of {
            ValuesOf::Addresses(_) => (self.addresses()?, Dim::Source),
            ValuesOf::Ports => (self.products()?, Dim::SourcePort),
        };
        let all = cubes.first().map_or(Intervals::EMPTY, |cube| cube.allowed(dim));
        let member = |member: &IpSetMember| {
            let values = match of {
                ValuesOf::Addresses(_) => self.network(&member.value)?,
                ValuesOf::Ports => {
                    let cubes = self.ports(true, &member.value)?;
                    cubes.first().map_or(Intervals::EMPTY, |cube| cube.allowed(dim))
                }
            };
            Ok((values.intersect(&all), member.left_s))
        };
        let members = self
            .set
            .members
            .iter()
            .filter(|member| !member.is_exception)
            .map(member)
            .collect::<Result<Vec<Member>, Reason>>()?;
        Ok((all, members))
    }

    /// A set of addresses: of members that contain an address, the smallest decides.
    fn addresses(&self) -> Result<Vec<PacketCube>, Reason> {
        let kind = self.set.parts[0].as_str();
        if !matches!(kind, "ip" | "net") {
            return Err(self.unknown(kind));
        }
        let members =
            self.set.members.iter().map(|member| Ok((self.network(&member.value)?, member.is_exception)));
        let mut members = members.collect::<Result<Vec<(Intervals, bool)>, Reason>>()?;
        let mut all = Intervals::EMPTY;
        if members.iter().any(|&(_, is_exception)| is_exception) {
            members.sort_by_key(|(network, _)| std::cmp::Reverse(size(network)));
            for (network, is_exception) in &members {
                all = if *is_exception { all.minus(network) } else { all.union(network) };
            }
        } else {
            all = members.iter().flat_map(|(network, _)| network.as_slice().iter().copied()).collect();
        }
        let dim = if self.is_source(0) { Dim::Source } else { Dim::Destination };
        Ok(PacketCube::all(self.family).with(dim, &all).into_iter().collect())
    }

    /// A set of combinations: a cube for each member, those that differ only in the last part together.
    fn products(&self) -> Result<Vec<PacketCube>, Reason> {
        let mut cubes: Vec<PacketCube> = Vec::new();
        for member in &self.set.members {
            if member.is_exception {
                return Err(format!("set {}: exceptions are read in sets of addresses only", self.name));
            }
            let mut words = member.value.split(',');
            let mut parts = vec![PacketCube::all(self.family)];
            for (index, kind) in self.set.parts.iter().enumerate() {
                let word = words.next().ok_or_else(|| self.wrong(&member.value))?;
                let of_part = self.part(index, kind, word)?;
                parts =
                    parts.iter().flat_map(|have| of_part.iter().filter_map(|part| have.and(part))).collect();
            }
            for cube in parts {
                if !cubes.iter_mut().rev().take(8).any(|have| have.join(&cube)) {
                    cubes.push(cube);
                }
            }
            if cubes.len() > MAX_CUBES {
                break;
            }
        }
        bounded(self.name, cubes)
    }

    /// The packets with a part of a member.
    fn part(&self, index: usize, kind: &str, word: &str) -> Result<Vec<PacketCube>, Reason> {
        let (source, all) = (self.is_source(index), PacketCube::all(self.family));
        Ok(match kind {
            "ip" | "net" => {
                let dim = if source { Dim::Source } else { Dim::Destination };
                all.with(dim, &self.network(word)?).into_iter().collect()
            }
            "port" => self.ports(source, word)?,
            "iface" => {
                let word = word.trim_matches('"');
                if !is_plain(word) || word.starts_with("physdev:") {
                    return Err(self.wrong(word));
                }
                let name = PortNameSet::one(word);
                let cube = if source { all.entering(&name) } else { all.leaving(&name) };
                cube.into_iter().collect()
            }
            other => return Err(self.unknown(other)),
        })
    }

    /// `PORT`, `PROTOCOL:PORT`, with ranges; `icmp:TYPE`. A set of ports alone is about TCP and UDP.
    fn ports(&self, source: bool, word: &str) -> Result<Vec<PacketCube>, Reason> {
        let (proto, ports) = match word.split_once(':') {
            Some((proto, ports)) => (Some(names::protocol(proto).ok_or_else(|| self.wrong(word))?), ports),
            None => (None, word),
        };
        let protos = match proto {
            Some(proto) => vec![proto],
            None if self.set.method == "bitmap" => vec![6, 17],
            None => vec![6],
        };
        let all = PacketCube::all(self.family);
        if let [proto] = protos[..]
            && proto == self.family.icmp()
        {
            let (of_type, code) = names::icmp(self.family, ports).ok_or_else(|| self.wrong(word))?;
            let (first, rest) = (u128::from(of_type) << 8, code.map_or(0..=255, |code| code..=code));
            let types = Intervals::range(first | u128::from(*rest.start()), first | u128::from(*rest.end()));
            return Ok(all
                .with_transport(proto)
                .and_then(|cube| cube.with(Dim::Icmp, &types))
                .into_iter()
                .collect());
        }
        if protos.iter().any(|proto| !matches!(proto, 6 | 17)) {
            return Err(format!(
                "set {}: the rule language has no ports for the protocol of {word}",
                self.name
            ));
        }
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |word: &str| names::port(word).ok_or_else(|| self.wrong(word));
        let ports = Intervals::range(port(first)?.into(), port(last)?.into());
        let dim = if source { Dim::SourcePort } else { Dim::DestinationPort };
        let with = |proto: u8| all.clone().with_transport(proto)?.with(dim, &ports);
        Ok(protos.into_iter().filter_map(with).collect())
    }

    /// An address, a prefix or a range.
    fn network(&self, word: &str) -> Result<Intervals, Reason> {
        let address = |word: &str| match self.family {
            Family::Ip4 => word.parse::<Ipv4Addr>().ok().map(|address| u128::from(address.to_bits())),
            Family::Ip6 => word.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
            Family::Frame => None,
        };
        let bits = self.family.bits();
        let found = match (word.split_once('/'), word.split_once('-')) {
            (Some((first, len)), _) => {
                let len = len.parse().ok().filter(|&len: &u8| len <= bits);
                address(first).zip(len).map(|(first, len)| set::prefix(first, len, bits))
            }
            (None, Some((first, last))) => {
                address(first).zip(address(last)).map(|(first, last)| Intervals::range(first, last))
            }
            (None, None) => address(word).map(Intervals::one),
        };
        found.ok_or_else(|| self.wrong(word))
    }

    fn is_source(&self, index: usize) -> bool {
        self.directions.get(index) == Some(&"src")
    }

    fn wrong(&self, word: &str) -> Reason {
        format!("set {}: `{word}` is not known", self.name)
    }

    fn unknown(&self, kind: &str) -> Reason {
        format!("set {}: no field holds the {kind} of its members", self.name)
    }
}

fn bounded(name: &str, cubes: Vec<PacketCube>) -> Result<Vec<PacketCube>, Reason> {
    if cubes.len() > MAX_CUBES {
        Err(format!("set {name}: it has combinations for more than {MAX_CUBES} rules"))
    } else {
        Ok(cubes)
    }
}

/// The number of addresses, saturated.
fn size(set: &Intervals) -> u128 {
    set.as_slice()
        .iter()
        .fold(0u128, |sum, &(first, last)| sum.saturating_add(last - first).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language;

    const SETS: &str = "create nets hash:net family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x1\n\
        add nets 10.0.0.0/8\nadd nets 10.1.0.0/16 nomatch\nadd nets 10.1.2.0/24\n\
        create web hash:ip,port family inet hashsize 1024 maxelem 65536\n\
        add web 192.0.2.1,tcp:80\nadd web 192.0.2.1,tcp:443\nadd web 192.0.2.2,udp:53\nadd web 192.0.2.3,icmp:echo-request\n\
        create ports bitmap:port range 0-65535\nadd ports 22\n\
        create six hash:ip family inet6 hashsize 1024 maxelem 65536 timeout 600\nadd six 2001:db8::1 timeout 599\n\
        create both list:set size 8\nadd both nets\nadd both six\n\
        create macs hash:mac hashsize 1024\nadd macs 02:00:00:00:00:01\n\
        create from hash:net,iface family inet\nadd from 10.0.0.0/8,lan\n";

    fn words(name: &str, directions: &str, family: Family) -> Vec<String> {
        let sets = IpSets::read(SETS).expect("sets");
        let cubes = sets.cubes(name, directions, family).expect("a set that can be translated");
        cubes
            .iter()
            .flat_map(|cube| language::constraints(cube, &ImportedSets::default()).expect("constraints"))
            .collect()
    }

    #[test]
    fn members_become_constraints() {
        assert_eq!(
            words("nets", "src", Family::Ip4),
            ["ip-saddr {10.0.0.0/16, 10.1.2.0/24, 10.2.0.0-10.255.255.255}"]
        );
        assert_eq!(
            words("web", "dst,dst", Family::Ip4),
            [
                "ip-daddr 192.0.2.1 tcp-dport {80, 443}",
                "ip-daddr 192.0.2.2 udp-dport 53",
                "ip-daddr 192.0.2.3 icmp-type 8"
            ]
        );
        assert_eq!(
            words("ports", "src", Family::Ip4),
            ["net-proto ip4 tcp-sport 22", "net-proto ip4 udp-sport 22"]
        );
        assert_eq!(words("six", "dst", Family::Ip6), ["ip6-daddr 2001:db8::1"]);
        assert_eq!(words("both", "dst", Family::Ip6), ["ip6-daddr 2001:db8::1"]);
        assert_eq!(words("six", "dst", Family::Ip4), [""; 0]);
        assert_eq!(words("from", "src,src", Family::Ip4), ["in lan ip-saddr 10.0.0.0/8"]);
    }

    #[test]
    fn what_cannot_be_translated_has_a_reason() {
        let sets = IpSets::read(SETS).expect("sets");
        for (name, directions, message) in [
            ("none", "src", "it is not in the file"),
            ("web", "src", "it needs 2 directions"),
            ("macs", "src", "no field holds the mac"),
        ] {
            let reason = sets.cubes(name, directions, Family::Ip4).expect_err(name);
            assert!(reason.contains(message), "{reason}");
        }
        for (text, message) in [
            ("create a hash:ip\ncreate a hash:ip\n", "line 2: there is a set a already"),
            ("add a 1.2.3.4\n", "line 1: there is no set a"),
            ("create a b\n", "`b` is no type of a set"),
            ("hello\n", "no line of ipset save"),
        ] {
            let error = IpSets::read(text).expect_err(text).to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn sets_of_sets_end() {
        let sets = IpSets::read("create a list:set\nadd a a\n").expect("sets");
        assert!(sets.cubes("a", "src", Family::Ip4).is_err());
    }
}

//! Translations of connections: the lists of the hooks that translate, as rules that map.
//!
//! All rules that match a packet count, so that these rules are about disjoint sets of packets, unlike rules with verdicts. Only the
//! first packet of a connection gets to a hook that translates, and only first packets get stateful rules.

use super::ruleset::{HostAddresses, MAX_CUBES, Pool, Reason, RulesetError, Translation, bits_in};
use super::view::{PacketClass, subtract};
use super::walk::{HookList, Item, Outcome};
use crate::cube::{DESTINATION_TRANSLATED, Dim, Family, PacketCube, PortNameSet, SOURCE_TRANSLATED, states};
use crate::draft::ImportVerdict;
use mmb_packet::proto::{TCP, UDP};
use mmb_policy::{CtState, Intervals};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The translation of an entry with its packets.
pub(super) struct NatEntry<'a> {
    /// The translation.
    pub(super) translation: &'a Translation,
    /// First packets of connections, as the hook sees them: those that no earlier entry decides about.
    pub(super) cubes: Vec<PacketCube>,
}

/// A rule that maps.
pub(super) struct MapRule {
    /// The packets that it matches.
    pub(super) cube: PacketCube,
    /// Its targets.
    pub(super) target: String,
    /// The new addresses, if they change.
    pub(super) addresses: Option<Intervals>,
    /// The new ports, if they are limited to some.
    pub(super) ports: Option<Intervals>,
}

/// The entries of lists that translate, in order, with disjoint packets. In the kernel, a list that accepts a packet leaves it to the next one,
/// and the first translation counts.
pub(super) fn disjoint<'a>(lists: &[&HookList<'a>]) -> Result<Vec<NatEntry<'a>>, RulesetError> {
    let mut found: Vec<NatEntry<'a>> = Vec::new();
    let mut translated: Vec<PacketCube> = Vec::new();
    for list in lists {
        let mut accepted: Vec<PacketCube> = Vec::new();
        for item in &list.items {
            let Item::Entry(entry) = item else { continue };
            let translation = match entry.outcome {
                Outcome::Translate(translation) => Some(translation),
                Outcome::Verdict(ImportVerdict::Accept) => None,
                // Such chains neither drop nor change.
                Outcome::Verdict(ImportVerdict::Drop | ImportVerdict::Reject(_))
                | Outcome::Edit(_)
                | Outcome::Limit(_) => continue,
            };
            let mut cubes = Vec::new();
            for cube in &entry.cubes {
                let first = cube.clone().with(Dim::State, &states(&[CtState::New]));
                let mut parts: Vec<PacketCube> = first.into_iter().collect();
                for before in accepted.iter().chain(&translated).chain(&cubes) {
                    subtract(&mut parts, before);
                    if parts.len() + cubes.len() > MAX_CUBES {
                        return Err(RulesetError::TooMany(entry.place.clone()));
                    }
                }
                cubes.extend(parts);
            }
            match translation {
                Some(translation) => {
                    translated.extend(cubes.iter().cloned());
                    found.push(NatEntry { translation, cubes });
                }
                None => accepted.extend(entry.cubes.iter().cloned()),
            }
        }
    }
    Ok(found)
}

impl MapRule {
    /// The packets that the rule of a translated destination translates: those that begin connections, and those from their initiators. Where rules ask
    /// for translations (`is_asked`), those that the rule leaves as they are have a class of their own: for the kernel they are not translated.
    pub(super) fn classes(&self, sources: bool, is_local: bool, is_asked: bool) -> Vec<PacketClass> {
        let all = states(&[CtState::New, CtState::Established, CtState::Related]);
        let Some(cube) = self.cube.clone().without(Dim::State).with(Dim::State, &all) else {
            return Vec::new();
        };
        let mut seen: Vec<(Dim, Intervals)> = Vec::new();
        seen.extend(self.addresses.clone().map(|addresses| (Dim::Destination, addresses)));
        seen.extend(self.ports.clone().map(|ports| (Dim::DestinationPort, ports)));
        let class = |cube: PacketCube, by_destination: &[u128]| {
            let by_source: &[u128] = if sources { &[0, SOURCE_TRANSLATED] } else { &[0] };
            let both: Vec<u128> = by_destination
                .iter()
                .flat_map(|bits| by_source.iter().map(move |more| bits | more))
                .collect();
            let translated = vec![(Dim::State.all(cube.family), Intervals::of(&both))];
            PacketClass { cube, seen: seen.clone(), translated, is_local }
        };
        let same = seen.iter().try_fold(cube.clone(), |cube, (dim, new)| cube.with(*dim, new));
        let Some(same) = same.filter(|_| is_asked) else {
            return vec![class(cube, &[DESTINATION_TRANSLATED])];
        };
        let is_one = seen.iter().all(|(_, new)| new.single().is_some());
        let mut changed = vec![cube];
        subtract(&mut changed, &same);
        let mut classes = vec![class(same, if is_one { &[0] } else { &[0, DESTINATION_TRANSLATED] })];
        classes.extend(changed.into_iter().map(|cube| class(cube, &[DESTINATION_TRANSLATED])));
        classes
    }
}

/// The rules of a translation for some packets, and why there are none for others of them.
pub(super) fn rules(
    translation: &Translation,
    cubes: &[PacketCube],
    hosts: &HostAddresses,
) -> (Vec<MapRule>, Vec<Reason>) {
    let (mut rules, mut reasons) = (Vec::new(), Vec::new());
    for cube in cubes {
        match translation {
            Translation::Source(pool) => mapped(cube, pool, None, true, &mut rules, &mut reasons),
            Translation::Destination(pool) => mapped(cube, pool, None, false, &mut rules, &mut reasons),
            Translation::Masquerade(pool) => of_ports(cube, pool, hosts, true, &mut rules, &mut reasons),
            Translation::Redirect(pool) => of_ports(cube, pool, hosts, false, &mut rules, &mut reasons),
        }
    }
    reasons.dedup();
    (rules, reasons)
}

/// The rules of a translation to the address of a port: one for each port.
fn of_ports(
    cube: &PacketCube,
    pool: &Pool,
    hosts: &HostAddresses,
    is_source: bool,
    rules: &mut Vec<MapRule>,
    reasons: &mut Vec<Reason>,
) {
    let mut rest = Some(cube.clone());
    for (name, address) in hosts.of_ports(cube.family) {
        let port = PortNameSet::one(name);
        let part = if is_source { cube.clone().leaving(&port) } else { cube.clone().entering(&port) };
        if let Some(part) = part {
            mapped(&part, pool, Some(address), is_source, rules, reasons);
        }
        let others = port.others();
        rest = rest.and_then(|rest| if is_source { rest.leaving(&others) } else { rest.entering(&others) });
    }
    let Some(rest) = rest else { return };
    let names = if is_source { &rest.output } else { &rest.input };
    match names {
        PortNameSet::Only(names) => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (what, port) = (names.join(" and "), names[0]);
            reasons.push(format!(
                "the address of {what} is not in the dump: name it with --address {port}=ADDRESS"
            ));
        }
        PortNameSet::But(_) if hosts.of_ports(cube.family).is_empty() => reasons.push(
            "the addresses of the ports are not in the dump: name them with --address PORT=ADDRESS"
                .to_owned(),
        ),
        // The operator named the ports that have addresses.
        PortNameSet::But(_) => {}
    }
}

/// The rules of a translation to a pool, or to one address.
fn mapped(
    cube: &PacketCube,
    pool: &Pool,
    address: Option<u128>,
    is_source: bool,
    rules: &mut Vec<MapRule>,
    reasons: &mut Vec<Reason>,
) {
    let addresses = match (address, pool.addresses) {
        (Some(address), _) => Some((address, address)),
        (None, None) => None,
        (None, Some((first, last))) => {
            match (bits_in(first, cube.family), bits_in(last, cube.family)) {
                (Some(first), Some(last)) if first <= last => Some((first, last)),
                // A rule of both families that translates to an address of the other one.
                _ => return,
            }
        }
    };
    let with_ports = pool.ports.is_some() || pool.is_random;
    let protos: Vec<u8> =
        [TCP, UDP].into_iter().filter(|&proto| cube.allowed(Dim::Proto).contains(proto.into())).collect();
    // The kernel limits ports only of protocols with ports; of these, mmb maps those of TCP and UDP.
    let parts: Vec<PacketCube> = match (with_ports, is_source) {
        (true, false) => protos.iter().filter_map(|&proto| cube.clone().with_transport(proto)).collect(),
        _ => vec![cube.clone()],
    };
    if with_ports && protos.is_empty() {
        reasons.push("mmb maps the ports of TCP and UDP only".to_owned());
        return;
    }
    for part in parts {
        let map = MapTarget { family: part.family, is_source, addresses };
        let has = |proto: &&u8| part.allowed(Dim::Proto).contains((**proto).into());
        let mut targets: Vec<String> = Vec::new();
        targets.extend(map.address());
        targets.extend(protos.iter().filter(has).filter_map(|&proto| map.ports(proto, pool)));
        if targets.is_empty() {
            continue;
        }
        rules.push(MapRule {
            cube: part,
            target: targets.join(" "),
            addresses: addresses.map(|(first, last)| Intervals::range(first, last)),
            ports: pool.ports.map(|(first, last)| Intervals::range(first.into(), last.into())),
        });
    }
}

/// The parts of a target that maps.
struct MapTarget {
    family: Family,
    is_source: bool,
    addresses: Option<(u128, u128)>,
}

impl MapTarget {
    fn address(&self) -> Option<String> {
        let (first, last) = self.addresses?;
        let (fields, show): ([&str; 2], &dyn Fn(u128) -> String) = match self.family {
            // Addresses of IPv4 fit in 32 bits.
            Family::Ip4 => (["ip-daddr", "ip-saddr"], &|n| Ipv4Addr::from_bits(n as u32).to_string()),
            Family::Ip6 | Family::Frame => {
                (["ip6-daddr", "ip6-saddr"], &|n| Ipv6Addr::from_bits(n).to_string())
            }
        };
        let field = fields[usize::from(self.is_source)];
        Some(if first == last {
            format!("map {field} {}", show(first))
        } else {
            format!("map {field} {}-{}", show(first), show(last))
        })
    }

    fn ports(&self, proto: u8, pool: &Pool) -> Option<String> {
        let field = match (proto == TCP, self.is_source) {
            (true, true) => "tcp-sport",
            (true, false) => "tcp-dport",
            (false, true) => "udp-sport",
            (false, false) => "udp-dport",
        };
        let verb = if pool.is_random { "shuffle" } else { "map" };
        match pool.ports {
            Some((first, last)) if first == last => Some(format!("map {field} {first}")),
            Some((first, last)) => Some(format!("{verb} {field} {first}-{last}")),
            None if pool.is_random => Some(format!("shuffle {field}")),
            None => None,
        }
    }
}

/// The replies to connections whose source is translated: they arrive with the new address as their destination, and hooks see the
/// initiator's. Where an initiator may have had the new address, which is not one of the host, a reply does not tell whether it is translated.
pub(super) fn replies(rules: &[MapRule], hosts: &HostAddresses) -> Vec<PacketClass> {
    let mut classes: Vec<PacketClass> = Vec::new();
    for rule in rules {
        let Some(addresses) = &rule.addresses else { continue };
        let from = [
            (Dim::Destination, rule.cube.allowed(Dim::Source)),
            (Dim::DestinationPort, rule.cube.allowed(Dim::SourcePort)),
        ];
        let cube = PacketCube::all(rule.cube.family)
            .entering(&rule.cube.output)
            .and_then(|cube| cube.with(Dim::Destination, addresses))
            .and_then(|cube| {
                cube.with(Dim::State, &states(&[CtState::EstablishedReply, CtState::RelatedReply]))
            });
        let Some(cube) = cube else { continue };
        let host = hosts.all(cube.family);
        let kept = rule.cube.allowed(Dim::Source).intersect(addresses).minus(&host);
        let mut translated = vec![SOURCE_TRANSLATED, DESTINATION_TRANSLATED | SOURCE_TRANSLATED];
        if !kept.is_empty() {
            translated.extend([0, DESTINATION_TRANSLATED]);
        }
        let translated = vec![(Dim::State.all(cube.family), Intervals::of(&translated))];
        if let Some(class) = classes.iter_mut().find(|class| class.cube == cube) {
            for ((_, seen), (_, more)) in class.seen.iter_mut().zip(&from) {
                *seen = seen.union(more);
            }
            for ((_, possible), (_, more)) in class.translated.iter_mut().zip(&translated) {
                *possible = possible.union(more);
            }
            continue;
        }
        classes.push(PacketClass { cube, seen: from.to_vec(), translated, is_local: false });
    }
    classes
}

/// ICMP errors from initiators about connections whose destination is translated: they arrive with the old destination.
pub(super) fn errors(rules: &[&MapRule], family: Family) -> Option<PacketClass> {
    let mut ends: Option<(Intervals, Intervals)> = None;
    for rule in rules.iter().filter(|rule| rule.cube.family == family) {
        let Some(addresses) = &rule.addresses else { continue };
        let old = rule.cube.allowed(Dim::Destination);
        ends = Some(match ends {
            None => (old, addresses.clone()),
            Some((before, after)) => (before.union(&old), after.union(addresses)),
        });
    }
    let (old, new) = ends?;
    let cube = PacketCube::all(family)
        .with(Dim::Proto, &Intervals::one(family.icmp().into()))?
        .with(Dim::Destination, &old)?
        .with(Dim::State, &states(&[CtState::Related]))?;
    let translated = [DESTINATION_TRANSLATED, DESTINATION_TRANSLATED | SOURCE_TRANSLATED];
    let translated = vec![(Dim::State.all(family), Intervals::of(&translated))];
    Some(PacketClass { cube, seen: vec![(Dim::Destination, new)], translated, is_local: false })
}

//! Compiled stateful rules and their mappings. A version distinguishes a rule from a later rule with the same
//! id. Through a line of successors, a connection finds that later rule.

use super::streams::StreamRule;
use crate::server_cells::ServerSlot;
use mmb_base::prefetch;
use mmb_nat::{Balance, BalancedPart, Balancing, Mapping, PortMapping, RuleVersion, ValueSet};
use mmb_policy::field::{Field, FieldId, MappedPart, ones};
use mmb_policy::rule::{DropRate, LbMethod, NumberSet, ServerList, Target, Write};
use mmb_policy::{Rule, RuleId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A stateful rule.
#[derive(Clone, Debug)]
pub(crate) struct StatefulRule {
    pub(crate) id: RuleId,
    pub(crate) version: RuleVersion,
    /// The version of the first rule in this rule's line of successors. Connections keep the rules of this
    /// line.
    pub(crate) line: RuleVersion,
    /// The number of rule sets with users, over all workers, that have a rule of this line.
    pub(crate) sets: Arc<AtomicU32>,
    /// Whether the rule drains.
    pub(crate) drains: bool,
    /// Whether all packets of one direction of a connection match the rule, or none of them.
    pub(crate) is_constant: bool,
    pub(crate) accepts: bool,
    /// The mapping of addresses and ports.
    pub(crate) mapping: Mapping,
    /// Whether `mapping` maps anything.
    pub(crate) maps: bool,
    pub(crate) ip_id: Option<ValueChoice>,
    pub(crate) flow_label: Option<ValueChoice>,
    pub(crate) seq: Option<ValueChoice>,
    pub(crate) ack: Option<ValueChoice>,
    /// The slots of the servers over which the rule balances, by index of their values. `None` if servers are
    /// not counted.
    pub(crate) servers: Option<Arc<[ServerSlot]>>,
    /// What the rule does with the bytes of its connections.
    pub(crate) stream: Option<Box<StreamRule>>,
}

/// A set, never empty, from which a number is chosen once per connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueChoice(ValueSet);

impl ValueChoice {
    /// The number that a random word selects.
    pub(crate) fn draw(&self, random: u64) -> u32 {
        self.0.nth(mmb_random::scale(random, self.0.len())) as u32
    }

    /// Whether the set contains all 32-bit numbers.
    pub(crate) fn is_any(&self) -> bool {
        self.0.len() == 1 << 32
    }
}

/// Whether a target of a stateful rule is a mapping: applied once per connection, and reversed on its
/// replies.
pub(crate) fn is_mapping(target: &Target) -> bool {
    match target {
        Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => true,
        Target::Mod(field, _) => field.info().bindings.part.is_some(),
        Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) | Target::StripAll => false,
        Target::Drop(_)
        | Target::Reject(_)
        | Target::Accept
        | Target::Limit(_)
        | Target::Log(_)
        | Target::Alert(_)
        | Target::Close
        | Target::Digest
        | Target::Edit(_)
        | Target::Helper(_) => false,
    }
}

/// Whether a target must see each packet, because it drops some packets and passes others, or because it logs
/// packets.
pub(super) fn sees_each(target: &Target) -> bool {
    matches!(target, Target::Log(_) | Target::Limit(_))
        || matches!(target, Target::Drop(rate) if *rate != DropRate::ALL)
}

/// Whether all packets of one direction of a connection have the same value of a field.
pub(super) fn is_constant(id: FieldId) -> bool {
    matches!(
        id,
        // A field that is not listed may differ between packets of a connection.
        FieldId::Ct
            | FieldId::In
            | FieldId::Out
            | FieldId::EthType
            | FieldId::NetProto
            | FieldId::IpProto
            | FieldId::IpSaddr
            | FieldId::IpDaddr
            | FieldId::Ip6Saddr
            | FieldId::Ip6Daddr
            | FieldId::UdpSport
            | FieldId::UdpDport
            | FieldId::TcpSport
            | FieldId::TcpDport
    )
}

/// Whether a rule is a per-packet rule, which no cached verdict contains. A rule is one in two cases:
///
/// - It matches on more than addresses, ports, protocol and `ct`. Then some packets of one direction of a
///   connection may match it, and others may not.
/// - It must see each packet, because it drops some packets and passes others, by chance or by a rate, or
///   because it logs packets.
///
/// A stateful rule is never a per-packet rule: a connection keeps its rules, whatever its later packets
/// match.
pub(crate) fn is_per_packet(rule: &Rule) -> bool {
    !rule.stateful && (!has_constant_matches(rule) || rule.targets.iter().any(sees_each))
}

/// Whether all packets of one direction of a connection match a rule, or none of them.
fn has_constant_matches(rule: &Rule) -> bool {
    rule.matches.iter().all(|constraint| is_constant(constraint.field.id))
}

/// Whether a rule accepts packets.
pub(crate) fn accepts(rule: &Rule) -> bool {
    rule.targets.contains(&Target::Accept)
}

/// An upper bound of the bytes of a server of a rule: its text, its place in the mapping, its state and its
/// counters.
const SERVER_BYTES: u64 = 320;

/// An upper bound of the bytes of the servers of a rule, and of the tables by which it finds them.
pub(super) fn server_bytes(rule: &Rule) -> u64 {
    let bytes = |target: &Target| {
        let Target::Lb(field, servers, method) = target else { return 0 };
        let table = match method {
            LbMethod::Hash => {
                Mapping::table_bytes(Balance::Hash, ValueSet::new(ranges(*field, &servers.items)).len())
            }
            LbMethod::RoundRobin | LbMethod::Least => 0,
        };
        table + servers.items.0.len() as u64 * SERVER_BYTES
    };
    rule.targets.iter().map(bytes).sum()
}

impl StatefulRule {
    /// Compiles a rule. `before` is the rule that it replaces.
    pub(crate) fn compile(rule: &Rule, version: RuleVersion, before: Option<&StatefulRule>) -> StatefulRule {
        let mut stateful = StatefulRule {
            id: rule.id.unwrap_or(RuleId(0)),
            version,
            line: before.map_or(version, |before| before.line),
            sets: before.map(|before| Arc::clone(&before.sets)).unwrap_or_default(),
            drains: rule.draining,
            is_constant: has_constant_matches(rule),
            accepts: accepts(rule),
            mapping: Mapping::default(),
            maps: false,
            ip_id: None,
            flow_label: None,
            seq: None,
            ack: None,
            servers: None,
            stream: StreamRule::compile(rule),
        };
        for target in &rule.targets {
            match target {
                Target::Mod(field, Write::Number(number)) if is_mapping(target) => {
                    stateful.map(*field, &[(*number, *number)], false);
                }
                Target::Map(field, set) => stateful.map(*field, &ranges(*field, set), false),
                Target::Shuffle(field, range) => {
                    let range = range.unwrap_or_else(|| default_range(*field));
                    stateful.map(*field, &[range], true);
                }
                Target::Lb(field, servers, method) => {
                    stateful.balance(*field, servers);
                    stateful.mapping.balance = balancing(*field, *method, version);
                }
                // Applied to each packet.
                Target::Mod(..) | Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) => {}
                Target::StripAll | Target::Drop(_) | Target::Reject(_) | Target::Accept | Target::Log(_) => {}
                Target::Limit(_) => {}
                // The stream decides.
                Target::Alert(_) | Target::Close | Target::Digest | Target::Edit(_) => {}
                Target::Helper(_) => {}
            }
        }
        stateful.mapping.prepare();
        stateful.maps = stateful.mapping != Mapping::default();
        stateful
    }

    /// Whether a connection has this rule, or another rule of its line.
    pub(crate) fn is_used(&self) -> bool {
        self.sets.load(Ordering::Relaxed) > 0
    }

    /// Counts a rule set that has its first user.
    pub(crate) fn add_set(&self) {
        self.sets.fetch_add(1, Ordering::Relaxed);
    }

    /// Discounts a rule set that has lost its last user.
    pub(crate) fn remove_set(&self) {
        self.sets.fetch_sub(1, Ordering::Relaxed);
    }

    /// Prefetches the fields that every new connection reads.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&self.version);
        prefetch(&self.maps);
        prefetch(&self.ip_id);
        prefetch(&self.seq);
        prefetch(&self.sets);
    }

    /// Prefetches the counter of its sets.
    #[inline]
    pub(crate) fn prefetch_sets(&self) {
        prefetch(&*self.sets);
    }

    fn balance(&mut self, field: Field, servers: &ServerList) {
        let ranges = ranges(field, &servers.items);
        let weights = (0..).map(|item| servers.weight(item));
        let weighted: Vec<_> = ranges.iter().copied().zip(weights).collect();
        let part = if servers.weights().is_empty() { None } else { field.info().bindings.part };
        match part {
            Some(MappedPart::DestinationAddress) => self.mapping.daddr = Some(ValueSet::weighted(&weighted)),
            Some(MappedPart::DestinationPort) => self.mapping.dport = Some(PortMapping::weighted(&weighted)),
            _ => self.map(field, &ranges, false),
        }
    }

    fn map(&mut self, field: Field, ranges: &[(u128, u128)], shuffled: bool) {
        let addresses = || Some(ValueSet::new(ranges.to_vec()));
        let choice = || addresses().filter(|set| !set.is_empty()).map(ValueChoice);
        let ports = || match *ranges {
            [(first, last)] if shuffled => Some(PortMapping::shuffled(first as u16, last as u16)),
            [(first, last)] if first == last => Some(PortMapping::fixed(first as u16)),
            _ => {
                let ranges: Vec<_> = ranges.iter().map(|r| (r.0 as u16, r.1 as u16)).collect();
                Some(PortMapping::within(&ranges))
            }
        };
        // The checker allows these targets only on fields with a mapped part.
        let Some(part) = field.info().bindings.part else { return };
        match part {
            MappedPart::SourceAddress => self.mapping.saddr = addresses(),
            MappedPart::DestinationAddress => self.mapping.daddr = addresses(),
            MappedPart::SourcePort => self.mapping.sport = ports(),
            MappedPart::DestinationPort => self.mapping.dport = ports(),
            MappedPart::IpId => self.ip_id = choice(),
            MappedPart::FlowLabel => self.flow_label = choice(),
            MappedPart::SequenceNumber => self.seq = choice(),
            MappedPart::AckNumber => self.ack = choice(),
        }
    }
}

fn ranges(field: Field, set: &NumberSet) -> Vec<(u128, u128)> {
    let width = field.info().width().unwrap_or(128);
    set.0.iter().map(|item| item.bounds(width)).collect()
}

/// How `lb FIELD … METHOD` of a rule balances.
fn balancing(field: Field, method: LbMethod, rule: RuleVersion) -> Option<Balancing> {
    let over = match field.info().bindings.part? {
        MappedPart::DestinationAddress => BalancedPart::Address,
        MappedPart::DestinationPort => BalancedPart::Port,
        // The checker allows `lb` only on the fields above.
        MappedPart::SourceAddress | MappedPart::SourcePort | MappedPart::IpId => return None,
        MappedPart::FlowLabel | MappedPart::SequenceNumber | MappedPart::AckNumber => return None,
    };
    let method = match method {
        LbMethod::RoundRobin => Balance::RoundRobin,
        LbMethod::Hash => Balance::Hash,
        LbMethod::Least => Balance::Least,
    };
    Some(Balancing { method, over, rule })
}

/// The range that `shuffle` uses by default: every number, for ports those above the well-known ones (RFC
/// 6056).
fn default_range(field: Field) -> (u128, u128) {
    if let Some(MappedPart::SourcePort | MappedPart::DestinationPort) = field.info().bindings.part {
        return (1024, 65_535);
    }
    (0, ones(field.info().width().unwrap_or(32)))
}

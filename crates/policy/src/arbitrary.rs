//! Rules for property tests, over every field and every form of value.
//!
//! A rule is drawn around a [`PacketSpec`]: the description of a packet that matches it. Each constraint is drawn
//! freely and then negated if the witness does not satisfy it, so that every rule can match and the checker must
//! take it. The witness may be drawn too ([`witness`]) or be made from a packet at hand.

use crate::field::{
    BareMeaning, FIELDS, Field, FieldId, FieldInfo, FieldPlace, Implies, Payload, ValueKind, Writable,
};
use crate::limit::{Limit, LimitKey, LimitPeriod, LimitUnit};
use crate::rule::{
    Cond, DEFAULT_PRIO, DropRate, Equality, LbMethod, Match, NumberItem, NumberSet, Reject, Rule, ServerList,
    Target, Test, Write,
};
use mmb_packet::key::{self, flags};
use proptest::collection::vec;
use proptest::prelude::*;

mod draw;
mod packet;
mod stream;

pub use draw::RuleOptions;
use draw::{Draw, draw};
pub use packet::{PacketSpec, witness};

/// Rules that a packet such as the drawn witness matches.
pub fn rule(options: RuleOptions) -> impl Strategy<Value = Rule> {
    (witness(), draws(&options)).prop_map(move |(witness, draws)| draws.rule(&witness, &options))
}

/// Rules that a packet such as `witness` matches.
pub fn rule_for(witness: PacketSpec, options: RuleOptions) -> impl Strategy<Value = Rule> {
    draws(&options).prop_map(move |draws| draws.rule(&witness, &options))
}

/// The dice of one rule.
#[derive(Clone, Debug)]
struct Draws {
    prio: Option<u32>,
    name: Option<String>,
    stateful: bool,
    draining: bool,
    matches: Vec<Draw>,
    targets: Vec<Draw>,
}

fn draws(options: &RuleOptions) -> impl Strategy<Value = Draws> + use<> {
    let prio = prop::option::of(prop_oneof![0u32..5, any::<u32>()]);
    let name = prop::option::weighted(0.2, "[a-z][a-z0-9._:/-]{0,8}");
    let stateful = if options.stateful { any::<bool>().boxed() } else { Just(false).boxed() };
    let kind = (stateful, prop::bool::weighted(0.2));
    (prio, name, kind, vec(draw(), 0..=options.max_matches), vec(draw(), 1..=options.max_targets.max(1)))
        .prop_map(|(prio, name, (stateful, draining), matches, targets)| Draws {
            prio,
            name,
            stateful,
            draining: stateful && draining,
            matches,
            targets,
        })
}

impl Draws {
    fn rule(&self, witness: &PacketSpec, options: &RuleOptions) -> Rule {
        let mut matches: Vec<Match> =
            self.matches.iter().filter_map(|draw| draw.constraint(witness, options, self.stateful)).collect();
        let is_ip = witness.key[key::FAMILY] != 0;
        if !is_ip && !matches.iter().any(|m| m.field.id == FieldId::EthType) {
            let set = NumberSet(vec![NumberItem::One(witness.number(FieldId::EthType.info()))]);
            matches.push(Match {
                negated: false,
                field: Field::new(FieldId::EthType),
                test: Test::Number(Cond::Eq, set),
            });
        }
        let mut targets = Vec::new();
        for draw in &self.targets {
            if let Some(target) = draw.target(witness, self.stateful, options)
                && goes_with(&target, &targets)
            {
                targets.push(target);
            }
        }
        stream::fit(&mut matches, &mut targets);
        if targets.is_empty() {
            targets.push(Target::Drop(DropRate::ALL));
        }
        let prio = self.prio.unwrap_or(DEFAULT_PRIO);
        Rule {
            id: None,
            prio,
            name: self.name.clone(),
            stateful: self.stateful,
            draining: self.draining,
            matches,
            targets,
        }
    }
}

/// Returns whether a rule may have a target beside the others.
fn goes_with(target: &Target, others: &[Target]) -> bool {
    let any = |is: fn(&Target) -> bool| others.iter().any(is);
    match target {
        Target::Limit(_) => {
            !any(|t| matches!(t, Target::Drop(_) | Target::Reject(_) | Target::Close | Target::Limit(_)))
        }
        Target::Drop(_) | Target::Reject(_) | Target::Close if any(|t| matches!(t, Target::Limit(_))) => {
            false
        }
        Target::Drop(_) | Target::Reject(_) | Target::Accept | Target::Close => {
            !any(|t| matches!(t, Target::Drop(_) | Target::Reject(_) | Target::Accept | Target::Close))
        }
        Target::Strip(_) => !any(|t| matches!(t, Target::Keep(_))),
        Target::StripAll => !any(|t| matches!(t, Target::Keep(_))),
        Target::Keep(_) => !any(|t| matches!(t, Target::Strip(_) | Target::StripAll)),
        Target::Mod(..) | Target::AddOption(..) | Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => {
            true
        }
        Target::Log(_) => !any(|t| matches!(t, Target::Log(_))),
        Target::Alert(_) => !any(|t| matches!(t, Target::Alert(_))),
        Target::Digest => !any(|t| matches!(t, Target::Digest)),
        Target::Helper(_) => !any(|t| matches!(t, Target::Helper(_))),
        Target::Edit(_) => true,
    }
}

impl Draw {
    /// A constraint that the witness satisfies.
    fn constraint(&self, witness: &PacketSpec, options: &RuleOptions, stateful: bool) -> Option<Match> {
        let usable: Vec<&FieldInfo> = FIELDS
            .iter()
            .filter(|info| witness.is_about(info.implies))
            .filter(|info| info.values != ValueKind::Port || !options.ports.is_empty())
            // What a packet is to connections does not stand in it.
            .filter(|info| info.values != ValueKind::State)
            .filter(|info| options.streams && stateful || !matches!(info.place, FieldPlace::Stream(_)))
            .filter(|info| options.edits || !matches!(info.place, FieldPlace::Stream(part) if part.is_http()))
            .collect();
        let info = *self.field.get(&usable);
        let field = if info.place == FieldPlace::NamedOption {
            Field::option(self.option_kind(witness))
        } else {
            Field::new(info.id)
        };
        if matches!(info.place, FieldPlace::Stream(_)) {
            return Some(self.stream_constraint(field, options));
        }
        let test = self.test(field, witness, options);
        let holds = witness.satisfies(field, &test);
        let refused = !holds && test == Test::Present && info.alone == BareMeaning::Protocol;
        (!refused).then_some(Match { negated: !holds, field, test })
    }

    /// The kind of an option that the witness has, or of any.
    fn option_kind(&self, witness: &PacketSpec) -> u8 {
        let [which, any, _] = self.small;
        if witness.options.is_empty() || which >= 128 {
            return any;
        }
        witness.options[usize::from(which) % witness.options.len()].0
    }

    fn test(&self, field: Field, witness: &PacketSpec, options: &RuleOptions) -> Test {
        let info = field.info();
        match info.values {
            ValueKind::Port => self.port_test(options),
            ValueKind::Nothing | ValueKind::State => Test::Present,
            ValueKind::Pattern | ValueKind::ServerName | ValueKind::Method | ValueKind::Header => {
                Test::Present
            }
            _ if self.form >= 230 => Test::Present,
            ValueKind::Number | ValueKind::Ip4 | ValueKind::Ip6 => {
                self.number_test(info, witness.number(info))
            }
            ValueKind::Bytes => {
                let is_ip = info.place == FieldPlace::Payload(Payload::Ip);
                self.bytes_test(if is_ip { &witness.ip_payload } else { &witness.payload }, 1)
            }
            ValueKind::OptionData(_) => {
                let kind = field.option_kind().unwrap_or(0);
                let data = witness.options.iter().find(|(k, _)| *k == kind).map_or(&[][..], |(_, data)| data);
                match info.max() {
                    _ if kind <= 1 => Test::Present,
                    Some(_) if self.negated => self.number_test(info, packet::big_endian(data).unwrap_or(0)),
                    _ => self.bytes_test(data, 0),
                }
            }
        }
    }

    fn port_test(&self, options: &RuleOptions) -> Test {
        let name = |i: u8| options.ports[usize::from(i) % options.ports.len()].clone();
        let names = match self.form % 4 {
            0 => self.small.map(name).to_vec(),
            _ => vec![name(self.small[0])],
        };
        Test::Port(if self.negated { Equality::Ne } else { Equality::Eq }, names)
    }

    /// A comparison with some of the witness's bytes.
    fn bytes_test(&self, witness: &[u8], min: usize) -> Test {
        let own = &witness[..witness.len().min(usize::from(self.small[1] % 16))];
        let whole = &witness[..witness.len().min(38)];
        let any = self.bytes.clone();
        let mut strings = match self.form % 4 {
            0 => vec![own.to_vec()],
            1 => vec![whole.to_vec()],
            2 => vec![any, own.to_vec()],
            _ => vec![any],
        };
        strings.retain(|string| string.len() >= min);
        if strings.is_empty() {
            strings.push(vec![self.small[2]]);
        }
        Test::Bytes(if self.negated { Equality::Ne } else { Equality::Eq }, strings)
    }

    /// A target that applies to the witness.
    fn target(&self, witness: &PacketSpec, stateful: bool, options: &RuleOptions) -> Option<Target> {
        let of_stream = options.streams && stateful;
        match self.form % 10 {
            5 if of_stream => Some(self.stream_target(witness.is_about(Implies::Tcp))),
            6 | 7 if of_stream && options.edits => Some(self.edit_target()),
            0 => Some(Target::Drop(DropRate((self.numbers[0] % u128::from(DropRate::ALL.0 + 1)) as u32))),
            1 if self.negated => Some(self.reject(witness)),
            1 => Some(Target::Accept),
            2 | 3 if witness.is_about(Implies::Tcp) => Some(self.option_target(witness)),
            4 if stateful => self.binding(witness),
            8 => Some(Target::Log(self.told_text())),
            9 if options.limits => Some(Target::Limit(self.limit(stateful))),
            _ => self.modification(witness),
        }
    }

    fn reject(&self, witness: &PacketSpec) -> Target {
        let [which, code, _] = self.small;
        Target::Reject(match which % 4 {
            0 if witness.is_about(Implies::Tcp) => Reject::TcpRst,
            1 => match code % (Reject::MAX_ICMP + 1) {
                Reject::FRAGMENTATION_NEEDED => Reject::Usual,
                code => Reject::Icmp(code),
            },
            2 => Reject::Icmp6(code % (Reject::MAX_ICMP6 + 1)),
            _ => Reject::Usual,
        })
    }

    fn limit(&self, stateful: bool) -> Limit {
        let [unit, period, key] = self.small;
        let unit = match LimitUnit::ALL[usize::from(unit) % LimitUnit::ALL.len()] {
            LimitUnit::Connections if !stateful => LimitUnit::Packets,
            unit @ (LimitUnit::Packets | LimitUnit::Bytes | LimitUnit::Bits | LimitUnit::Connections) => unit,
        };
        let amount = |number: u128| (number % u128::from(Limit::MAX)) as u64 + 1;
        let field = LimitKey::FIELDS[usize::from(key) % LimitKey::FIELDS.len()];
        Limit {
            amount: amount(self.numbers[0]),
            unit,
            period: LimitPeriod::ALL[usize::from(period) % LimitPeriod::ALL.len()],
            burst: self.negated.then(|| amount(self.numbers[1]).max(Limit::min_burst(unit))),
            per: LimitKey::new(field, Some(key / 4).filter(|prefix| prefix % 8 > 0)),
        }
    }

    fn option_target(&self, witness: &PacketSpec) -> Target {
        let kind = self.option_kind(witness);
        match self.small[2] % 5 {
            0 => Target::StripAll,
            1 => Target::Keep(kind),
            2 => Target::Strip(kind),
            _ => Target::AddOption(kind.max(2), self.bytes.clone()),
        }
    }

    fn modification(&self, witness: &PacketSpec) -> Option<Target> {
        let usable: Vec<&FieldInfo> = FIELDS
            .iter()
            .filter(|info| !matches!(info.writable, Writable::No(_)) && witness.is_about(info.implies))
            .filter(|info| match info.place {
                FieldPlace::Payload(Payload::Ip) => !witness.ip_payload.is_empty(),
                FieldPlace::Payload(Payload::Transport) => !witness.payload.is_empty(),
                FieldPlace::AnyOption | FieldPlace::Option(_) | FieldPlace::NamedOption => true,
                FieldPlace::Connection | FieldPlace::Stream(_) => false,
                FieldPlace::Key { .. } => {
                    info.id != FieldId::VlanId || witness.key[key::FLAGS] & flags::VLAN_TAGGED != 0
                }
            })
            .collect();
        let info = *usable.get(self.field.index(usable.len().max(1)))?;
        let field = if info.place == FieldPlace::NamedOption {
            Field::option(self.option_kind(witness).max(2))
        } else {
            Field::new(info.id)
        };
        let write = match (info.writable, field.info().max()) {
            (Writable::Payload, _) if self.bytes.is_empty() => Write::Bytes(vec![self.small[0]]),
            (Writable::Payload, _) | (Writable::Option, None) => Write::Bytes(self.bytes.clone()),
            (Writable::Option, Some(_)) if self.negated => Write::Bytes(self.bytes.clone()),
            (_, max) => Write::Number(self.numbers[0] & max?),
        };
        Some(Target::Mod(field, write))
    }

    fn binding(&self, witness: &PacketSpec) -> Option<Target> {
        let usable: Vec<&FieldInfo> = FIELDS
            .iter()
            .filter(|info| witness.is_about(info.implies))
            .filter(|info| info.bindings.part.is_some())
            .collect();
        let info = *usable.get(self.field.index(usable.len().max(1)))?;
        let (field, max) = (Field::new(info.id), info.max()?);
        let set =
            NumberSet((0..1 + usize::from(self.small[1] % 3)).map(|i| self.item(info, 0, max, i)).collect());
        let (a, b) = (self.numbers[0] & max, self.numbers[1] & max);
        let range = self.negated.then_some((a.min(b), a.max(b)));
        let method = [LbMethod::RoundRobin, LbMethod::Hash, LbMethod::Least][usize::from(self.small[0]) % 3];
        match self.small[2] % 3 {
            0 if info.bindings.lb => {
                let is_weighted = self.negated && set.0.iter().all(|item| matches!(item, NumberItem::One(_)));
                let weight =
                    |at| if at == 0 { 1 + self.small[0] % 100 } else { self.small[0].rotate_left(3) % 101 };
                let weights = if is_weighted && set.0.is_sorted_by(distinct) {
                    (0..set.0.len()).map(weight).collect()
                } else {
                    Vec::new()
                };
                Some(Target::Lb(field, ServerList::new(set, weights), method))
            }
            1 if info.bindings.map => Some(Target::Map(field, set)),
            _ if info.bindings.shuffle => Some(Target::Shuffle(field, range)),
            _ => info.bindings.map.then_some(Target::Map(field, set)),
        }
    }
}

/// Whether two numbers are in order and not equal.
fn distinct(one: &NumberItem, other: &NumberItem) -> bool {
    matches!((one, other), (NumberItem::One(one), NumberItem::One(other)) if one < other)
}

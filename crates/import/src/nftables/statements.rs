//! Translates the statements of rules to steps.

use super::json::{
    Expr, LimitRef, LimitStatement, MangleStatement, Mapping, NatStatement, RejectStatement, RuleObject,
    Statement, TaggedExpr,
};
use super::matches::{ELEMENTS_DECIDE, MatchContext, outside};
use super::names::{self, ValueNames};
use super::rates;
use crate::cube::{Dim, Family, PacketCube};
use crate::draft::{Effect, Place, Rejection};
use crate::edit;
use crate::netfilter::{Action, ChainId, Edit, Pool, Reason, Rule, Step, Translation};
use mmb_packet::proto::{TCP, UDP};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::net::IpAddr;

/// What the statements of a table refer to.
#[derive(Clone, Copy)]
pub(super) struct StatementContext<'a> {
    pub(super) matching: MatchContext<'a>,
    /// The chains of the table by name.
    pub(super) chains: &'a HashMap<&'a str, ChainId>,
    /// The family and the name of the table.
    pub(super) table: (&'a str, &'a str),
    /// The rates of the table by name.
    pub(super) limits: &'a HashMap<&'a str, &'a LimitStatement>,
    /// The MTU of the paths, if it is given.
    pub(super) path_mtu: Option<u16>,
}

/// A rule with the steps that its statements are.
pub(super) fn rule(context: StatementContext<'_>, source: &RuleObject, place: Place) -> Rule {
    let mut steps: Vec<Step> = Vec::new();
    for value in &source.expr {
        let step = match Statement::deserialize(value) {
            _ if let Some(name) = mapped_object(value) => Err(format!("{name}: {MAP_DECIDES}")),
            Ok(statement) => context.step(&statement, &steps),
            Err(_) => Ok(unknown_statement(value)),
        };
        steps.extend(step.unwrap_or_else(|reason| vec![Step::Unknown(reason)]));
    }
    let text = serde_json::to_string(&source.expr).unwrap_or_default();
    Rule { place, text, comment: source.comment.clone(), steps }
}

/// A rule ends for packets whose key is not in a map.
const MAP_DECIDES: &str = "a map decides on packets";

const OF_IPTABLES: &str = "the rule is one of iptables: translate the output of iptables-save instead";

/// The name of a statement that selects a counter or another object by a map.
fn mapped_object(statement: &Value) -> Option<&str> {
    let (name, object) = statement.as_object()?.iter().next()?;
    object.get("map").map(|_| name.as_str())
}

/// A statement that is not known: its name is the reason.
fn unknown_statement(value: &Value) -> Vec<Step> {
    let name = match value {
        Value::Object(fields) => fields.keys().next().map_or("a statement", String::as_str),
        Value::String(name) => name,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => "a statement",
    };
    match name {
        "dup" | "secmark" => {
            vec![Step::Act(Action::Unknown(format!("a filter has no target {name}"), Effect::None))]
        }
        "match" | "map" => vec![Step::Unknown(format!("{name}: the rule language has nothing like it"))],
        _ => unknown_verdict(format!("{name}: the rule language has nothing like it")),
    }
}

/// A statement that may decide on packets in a way that is not known.
fn unknown_verdict(reason: Reason) -> Vec<Step> {
    vec![Step::Unknown(reason.clone()), Step::Act(Action::Unknown(reason, Effect::Either))]
}

impl StatementContext<'_> {
    fn step(self, statement: &Statement, before: &[Step]) -> Result<Vec<Step>, Reason> {
        let act = |action: Action| Ok(vec![Step::Act(action)]);
        let unknown = |reason: &str, effect: Effect| act(Action::Unknown(reason.to_owned(), effect));
        match statement {
            Statement::Match(comparison) => {
                let cubes = self.matching.compared(&comparison.op, &comparison.left, &comparison.right)?;
                if let Some(TaggedExpr::Payload(payload)) = comparison.left.tagged()
                    && payload.protocol == "th"
                    && !is_tcp_or_udp(before)
                {
                    return Err("th: the rule language has no ports for all protocols at once".to_owned());
                }
                Ok(vec![Step::Match(cubes)])
            }
            Statement::Accept(_) => act(Action::Accept),
            Statement::Drop(_) => act(Action::Drop),
            Statement::Reject(reject) => {
                // In a table of both versions, such a rule is about one.
                let family = match reject.as_ref().and_then(|reject| reject.kind.as_deref()) {
                    Some("icmp") => Some(Family::Ip4),
                    Some("icmpv6") => Some(Family::Ip6),
                    _ => None,
                };
                let only = family.map(|family| Step::Match(vec![PacketCube::all(family)]));
                let reject = Step::Act(Action::Reject(rejection(reject.as_ref())));
                Ok(only.into_iter().chain([reject]).collect())
            }
            Statement::Return(_) => act(Action::Return),
            Statement::Jump(to) => act(Action::Jump(self.chain(&to.target)?)),
            Statement::Goto(to) => act(Action::Goto(self.chain(&to.target)?)),
            Statement::Vmap(map) => self.branches(map, |verdict| self.verdict(verdict)),
            Statement::Snat(nat) => self.nat(nat, Translation::Source),
            Statement::Dnat(nat) => self.nat(nat, Translation::Destination),
            Statement::Masquerade(nat) => self.of_port(nat.as_ref(), Translation::Masquerade),
            Statement::Redirect(nat) => self.of_port(nat.as_ref(), Translation::Redirect),
            Statement::Mangle(mangle) => self.mangle(mangle),
            Statement::Counter(_) | Statement::Last(_) | Statement::Continue(_) => Ok(Vec::new()),
            Statement::Log(log) => {
                let (prefix, level) =
                    log.as_ref().map_or((None, None), |log| (log.prefix.as_deref(), log.level.as_deref()));
                act(match level {
                    Some("audit") => Action::Remark("nothing is traced, but rules count"),
                    _ => Action::Edit(edit::log(prefix.unwrap_or_default())),
                })
            }
            Statement::Flow(_) => {
                act(Action::Remark("mmb selects the flows that the kernel forwards itself"))
            }
            Statement::Notrack(_) => unknown("mmb tracks all connections", Effect::Either),
            Statement::CtHelper(_) => unknown(
                "helpers are not translated: write `helper ftp` in the stateful rule of the control connections",
                Effect::Stricter,
            ),
            Statement::Set(set) => {
                let of_set = self.matching.sets.get(set.set.trim_start_matches('@'));
                let mut deciding = set.stmt.iter().filter(|statement| statement.decides());
                match (deciding.next(), deciding.next()) {
                    _ if of_set.is_some_and(|set| set.decides) => Err(ELEMENTS_DECIDE.to_owned()),
                    (None, _) => unknown("sets do not change with packets", Effect::None),
                    (Some(statement), None) => self.of_elements(&set.elem, statement, &set.set),
                    (Some(_), Some(_)) => Err(ELEMENTS_DECIDE.to_owned()),
                }
            }
            Statement::Meter(meter) => self.of_elements(&meter.key, &meter.stmt, &meter.name),
            Statement::Limit(limit) => {
                let rate = match limit {
                    LimitRef::Own(limit) => rates::rate(limit, None, None)?,
                    LimitRef::Named(name) => {
                        let limit = self.limits.get(name.as_str()).copied();
                        let limit = limit.ok_or_else(|| format!("the limit {name} is not known"))?;
                        rates::rate(limit, None, Some(self.in_table("limit", name)))?
                    }
                };
                Ok(vec![Step::Rate(rate)])
            }
            Statement::Quota(_) => Err("quota: no rule counts packets over time".to_owned()),
            Statement::CtCount(_) => Err("ct count: no rule counts connections".to_owned()),
            Statement::Xt(Some(xt)) if xt.kind == "match" => Err(OF_IPTABLES.to_owned()),
            Statement::Xt(_) => Ok(unknown_verdict(OF_IPTABLES.to_owned())),
        }
    }

    /// The name of an object of the table among those of all tables.
    fn in_table(self, kind: &str, name: &str) -> String {
        let (family, table) = self.table;
        format!("{kind} {family} {table} {name}")
    }

    /// What each element of a set decides about its packets.
    fn of_elements(self, elem: &Expr, statement: &Statement, set: &str) -> Result<Vec<Step>, Reason> {
        let Statement::Limit(LimitRef::Own(limit)) = statement else {
            return Err(ELEMENTS_DECIDE.to_owned());
        };
        let (key, family) = rates::key(elem)?;
        let rate = rates::rate(limit, Some(key), Some(self.in_table("set", set)))?;
        Ok(vec![Step::Match(vec![PacketCube::all(family)]), Step::Rate(rate)])
    }

    fn chain(self, name: &str) -> Result<ChainId, Reason> {
        self.chains.get(name).copied().ok_or_else(|| format!("the chain {name} is not known"))
    }

    fn verdict(self, verdict: &Expr) -> Result<Action, Reason> {
        let wrong = || "a verdict is expected".to_owned();
        let Expr::Other(value) = verdict.value() else { return Err(wrong()) };
        let step = Statement::deserialize(value).map_err(|_| wrong())?;
        Ok(match step {
            Statement::Accept(_) => Action::Accept,
            Statement::Drop(_) => Action::Drop,
            Statement::Return(_) => Action::Return,
            Statement::Jump(to) => Action::Jump(self.chain(&to.target)?),
            Statement::Goto(to) => Action::Goto(self.chain(&to.target)?),
            Statement::Continue(_) => Action::Remark("the rule has no target and only counts"),
            _other => return Err(wrong()),
        })
    }

    /// The actions of a map, each for the packets with its key; an element `*` is for all other packets.
    fn branches(
        self,
        map: &Mapping,
        action: impl Fn(&Expr) -> Result<Action, Reason>,
    ) -> Result<Vec<Step>, Reason> {
        let mut branches: Vec<(Vec<PacketCube>, Action)> = Vec::new();
        let mut others: Option<Action> = None;
        for element in self.matching.elements(&map.data)? {
            let Expr::List(pair) = element else { return Err("an element of a map is expected".to_owned()) };
            let [key, value] = &pair[..] else { return Err("an element of a map is expected".to_owned()) };
            let action = action(value)?;
            if key.text() == Some("*") {
                others = Some(action);
                continue;
            }
            // An element by itself stands for a set of one.
            let cubes = self.matching.keyed(&map.key, key)?;
            match branches.iter_mut().find(|(_, other)| *other == action) {
                Some((of_action, _)) => {
                    for cube in cubes {
                        if !of_action.iter_mut().rev().take(8).any(|have| have.join(&cube)) {
                            of_action.push(cube);
                        }
                    }
                }
                None => branches.push((cubes, action)),
            }
        }
        if let Some(action) = others {
            let inside: Vec<PacketCube> =
                branches.iter().flat_map(|(cubes, _)| cubes.iter().cloned()).collect();
            branches.push((outside(self.matching.with_key(&map.key)?, &inside)?, action));
        }
        Ok(vec![Step::Branch(branches)])
    }

    fn nat(self, nat: &NatStatement, translation: fn(Pool) -> Translation) -> Result<Vec<Step>, Reason> {
        let with = |address: Option<&Expr>, port: Option<&Expr>| -> Result<Action, Reason> {
            let pool = Pool {
                addresses: address.map(addresses).transpose()?,
                ports: port.map(ports).transpose()?,
                is_random: is_random(nat),
            };
            Ok(Action::Translate(translation(pool)))
        };
        if let Some(TaggedExpr::Map(map)) = nat.addr.as_ref().and_then(Expr::tagged) {
            return self.branches(map, |value| match value.tagged() {
                Some(TaggedExpr::Concat(values)) if values.len() == 2 => {
                    with(Some(&values[0]), Some(&values[1]))
                }
                _ => with(Some(value), nat.port.as_ref()),
            });
        }
        Ok(vec![Step::Act(with(nat.addr.as_ref(), nat.port.as_ref())?)])
    }

    fn of_port(
        self,
        nat: Option<&NatStatement>,
        translation: fn(Pool) -> Translation,
    ) -> Result<Vec<Step>, Reason> {
        let ports = nat.and_then(|nat| nat.port.as_ref()).map(ports).transpose()?;
        let pool = Pool { addresses: None, ports, is_random: nat.is_some_and(is_random) };
        Ok(vec![Step::Act(Action::Translate(translation(pool)))])
    }

    fn mangle(self, mangle: &MangleStatement) -> Result<Vec<Step>, Reason> {
        let unknown = |reason: String| Ok(vec![Step::Act(Action::Unknown(reason, Effect::None))]);
        let number = |of: ValueNames| match mangle.value.value() {
            Expr::Number(n) => u16::try_from(*n).ok(),
            other => other.text().and_then(|word| names::number(word, of)?.try_into().ok()),
        };
        let wrong = || "the value that is written is not known".to_owned();
        if let Some(TaggedExpr::Map(_)) = mangle.value.tagged() {
            return Err(MAP_DECIDES.to_owned());
        }
        let byte = |of: ValueNames| number(of).and_then(|n| u8::try_from(n).ok()).ok_or_else(wrong);
        let (family, edit) = match mangle.key.tagged() {
            Some(TaggedExpr::Payload(payload)) => match (payload.protocol.as_str(), payload.field.as_str()) {
                ("ip", "dscp") => (Family::Ip4, edit::dscp(Family::Ip4, byte(ValueNames::Dscp)?)),
                ("ip6", "dscp") => (Family::Ip6, edit::dscp(Family::Ip6, byte(ValueNames::Dscp)?)),
                ("ip", "ttl") => (Family::Ip4, edit::hops(Family::Ip4, byte(ValueNames::None)?)),
                ("ip6", "hoplimit") => (Family::Ip6, edit::hops(Family::Ip6, byte(ValueNames::None)?)),
                (protocol, field) => return unknown(format!("mmb does not write {protocol} {field} here")),
            },
            Some(TaggedExpr::TcpOption(option))
                if option.name == "maxseg" && option.field.as_deref() == Some("size") =>
            {
                return self.mss(mangle, number(ValueNames::None));
            }
            Some(TaggedExpr::Meta(meta)) => {
                return unknown(format!("meta {}: packets have no marks", meta.key));
            }
            Some(TaggedExpr::Ct(ct)) => return unknown(format!("ct {}: connections have no marks", ct.key)),
            _ => return unknown("the field that is written is not known".to_owned()),
        };
        // The rule ends for packets without the field.
        let having = Step::Match(vec![PacketCube::all(family)]);
        Ok(vec![Step::Act(Action::Edit(of_family(edit, family))), having])
    }

    /// A maximum segment size: a number, or that of the route.
    fn mss(self, mangle: &MangleStatement, number: Option<u16>) -> Result<Vec<Step>, Reason> {
        let of_route = matches!(mangle.value.tagged(), Some(TaggedExpr::Rt(rt)) if rt.key == "mtu");
        let mut steps = Vec::new();
        for &family in self.matching.families.iter().filter(|&&family| family != Family::Frame) {
            let headers = if family == Family::Ip6 { 60 } else { 40 };
            let size = match (of_route, self.path_mtu) {
                (false, _) => number,
                (true, Some(mtu)) => mtu.checked_sub(headers),
                (true, None) => {
                    let reason = "the MTU of the path is not in the rule set: name it with --mtu BYTES";
                    return Ok(vec![Step::Act(Action::Unknown(reason.to_owned(), Effect::None))]);
                }
            };
            let size = size.filter(|&size| size > 0).ok_or("the value that is written is not known")?;
            steps.push(Step::Act(Action::Edit(of_family(edit::mss(family, size, false), family))));
        }
        steps.push(Step::Match(self.matching.with_transport(&[TCP])));
        Ok(steps)
    }
}

/// The codes of `reject with icmp`, as `nft` names them, and as targets.
const ICMP_CODES: [(&str, &str); 7] = [
    ("net-unreachable", "reject icmp net-unreachable"),
    ("host-unreachable", "reject icmp host-unreachable"),
    ("prot-unreachable", "reject icmp proto-unreachable"),
    ("port-unreachable", "reject icmp port-unreachable"),
    ("net-prohibited", "reject icmp net-prohibited"),
    ("host-prohibited", "reject icmp host-prohibited"),
    ("admin-prohibited", "reject icmp admin-prohibited"),
];

/// Those of `reject with icmpv6`.
const ICMP6_CODES: [(&str, &str); 6] = [
    ("no-route", "reject icmp6 no-route"),
    ("admin-prohibited", "reject icmp6 admin-prohibited"),
    ("addr-unreachable", "reject icmp6 addr-unreachable"),
    ("port-unreachable", "reject icmp6 port-unreachable"),
    ("policy-fail", "reject icmp6 policy-fail"),
    ("reject-route", "reject icmp6 reject-route"),
];

/// Those of `reject with icmpx`, which stand for one code of each version (`net/netfilter/nft_reject.c`).
const ICMPX_CODES: [(&str, Rejection); 4] = [
    ("no-route", Rejection { ip4: "reject icmp net-unreachable", ip6: "reject icmp6 no-route" }),
    ("port-unreachable", UNREACHABLE),
    (
        "host-unreachable",
        Rejection { ip4: "reject icmp host-unreachable", ip6: "reject icmp6 addr-unreachable" },
    ),
    (
        "admin-prohibited",
        Rejection { ip4: "reject icmp admin-prohibited", ip6: "reject icmp6 admin-prohibited" },
    ),
];

/// The usual answer. The language has one target for it in both versions.
const UNREACHABLE: Rejection = Rejection::of_both("reject icmp port-unreachable");

/// The answer of `reject`, if mmb knows it.
fn rejection(reject: Option<&RejectStatement>) -> Option<Rejection> {
    let named = |codes: &[(&str, &'static str)], code: &str| {
        codes.iter().find(|(name, _)| *name == code).map(|(_, target)| Rejection::of_both(target))
    };
    let Some(kind) = reject.and_then(|reject| reject.kind.as_deref()) else { return Some(UNREACHABLE) };
    let code = reject.and_then(|reject| reject.expr.as_ref()).map_or(Some("port-unreachable"), Expr::text)?;
    match kind {
        "tcp reset" => Some(Rejection::of_both("reject tcp-rst")),
        "icmp" => named(&ICMP_CODES, code),
        "icmpv6" => named(&ICMP6_CODES, code),
        "icmpx" => ICMPX_CODES.iter().find(|(name, _)| *name == code).map(|(_, rejection)| *rejection),
        _ => None,
    }
}

/// A change of the packets of one family.
fn of_family(mut edit: Edit, family: Family) -> Edit {
    for rule in &mut edit.rules {
        rule.only.push((Dim::EtherType, family.ether_types()));
    }
    edit
}

/// Whether only packets of TCP and UDP get behind some steps.
fn is_tcp_or_udp(before: &[Step]) -> bool {
    before.iter().any(|step| match step {
        Step::Match(cubes) => cubes.iter().all(|cube| {
            let protos = cube.allowed(Dim::Proto).numbers(2);
            protos.is_some_and(|protos| protos.iter().all(|&n| n == u128::from(TCP) || n == u128::from(UDP)))
        }),
        Step::Rate(_) | Step::Unknown(_) | Step::Act(_) | Step::Branch(_) => false,
    })
}

fn is_random(nat: &NatStatement) -> bool {
    let flags = nat.flags.as_ref().map(Expr::texts).unwrap_or_default();
    flags.iter().any(|flag| matches!(*flag, "random" | "fully-random"))
}

fn addresses(expr: &Expr) -> Result<(IpAddr, IpAddr), Reason> {
    let wrong = || "an address or a range of addresses is expected".to_owned();
    let address = |expr: &Expr| expr.text().and_then(|word| word.parse().ok()).ok_or_else(wrong);
    match expr.tagged() {
        Some(TaggedExpr::Range([first, last])) => Ok((address(first)?, address(last)?)),
        Some(_) => Err(wrong()),
        None => Ok((address(expr)?, address(expr)?)),
    }
}

fn ports(expr: &Expr) -> Result<(u16, u16), Reason> {
    let wrong = || "a port or a range of ports is expected".to_owned();
    let port = |expr: &Expr| match expr.value() {
        Expr::Number(n) => u16::try_from(*n).map_err(|_| wrong()),
        other => other
            .text()
            .and_then(|word| names::number(word, ValueNames::Ports)?.try_into().ok())
            .ok_or_else(wrong),
    };
    match expr.tagged() {
        Some(TaggedExpr::Range([first, last])) => Ok((port(first)?, port(last)?)),
        Some(_) => Err(wrong()),
        None => Ok((port(expr)?, port(expr)?)),
    }
}

//! One rule, one packet class: a cube of fixed key bits, or several, and residual checks.

use crate::check::{OptionTest, RuleCheck};
use crate::cube::{Contradiction, KeyCube};
use crate::extract::Extract;
use crate::names::{RuleNames, UnknownPort};
use crate::set_lookup::{LookupField, SetLookup};
use mmb_packet::Class;
use mmb_packet::key::{self, flags};
use mmb_packet::parse::{ETHER_IP4, ETHER_IP6};
use mmb_policy::field::ones;
use mmb_policy::field::{BareMeaning, Field, FieldId, FieldPlace, Implies, Payload};
use mmb_policy::rule::{Cond, Equality, Match, NumberItem, NumberSet, Test};
use mmb_policy::{ElementKind, Intervals, Rule};

/// The ether type's place in the key: which it is decides a packet's class.
const ETH_TYPE_BIT: u16 = key::ETH_TYPE as u16 * 8;

/// The most keys that the sets of one rule are expanded to; larger sets are checked on a hit.
const MAX_CUBES: usize = 16;
/// Sets that hold one in so many of a field's values, or more, are checked on a hit: as keys they would tell little apart.
const SELECTIVE: u128 = 8;

/// A rule as one class knows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompiledRule {
    /// Cubes of one mask that do not meet: a packet is in at most one.
    pub(crate) cubes: Vec<KeyCube>,
    /// The remaining conditions, tests of options last.
    pub(crate) checks: Vec<RuleCheck>,
}

/// Why a constraint cannot be compiled.
#[derive(Debug)]
enum CompileError {
    /// No packet of the class satisfies it.
    Impossible,
    Port(UnknownPort),
}

impl From<Contradiction> for CompileError {
    fn from(_: Contradiction) -> Self {
        CompileError::Impossible
    }
}

impl From<UnknownPort> for CompileError {
    fn from(port: UnknownPort) -> Self {
        CompileError::Port(port)
    }
}

/// Compiles a rule for a class; `None` if no packet of the class can match it.
///
/// # Errors
/// A port that does not exist.
pub(crate) fn compile(
    rule: &Rule,
    class: Class,
    names: &RuleNames,
) -> Result<Option<CompiledRule>, UnknownPort> {
    let compiled = RuleDraft::new(class).and_then(|mut draft| {
        if !rule.matches.iter().all(|m| admits(class, m)) || !class_matches(class, rule) {
            return Err(CompileError::Impossible);
        }
        for constraint in &rule.matches {
            draft.constrain(constraint, names)?;
        }
        draft.finish()
    });
    match compiled {
        Ok(compiled) => Ok(Some(compiled)),
        Err(CompileError::Impossible) => Ok(None),
        Err(CompileError::Port(port)) => Err(port),
    }
}

/// Frames that are not IP match only rules that name an ether type.
fn class_matches(class: Class, rule: &Rule) -> bool {
    class != Class::Other || rule.matches.iter().any(|m| m.field.id == FieldId::EthType)
}

fn admits(class: Class, constraint: &Match) -> bool {
    class != Class::Other || constraint.field.info().implies == Implies::Frame
}

/// Numbers that a field of the key may have.
struct Allowed {
    bit: u16,
    width: u8,
    bounds: Intervals,
    /// Some constraint lists its values: a few of them become keys.
    listed: bool,
}

/// A rule on its way.
struct RuleDraft {
    class: Class,
    /// Fixes the bits that every packet of the class has.
    given: KeyCube,
    cube: KeyCube,
    allowed: Vec<Allowed>,
    checks: Vec<RuleCheck>,
}

impl RuleDraft {
    fn new(class: Class) -> Result<RuleDraft, CompileError> {
        let mut given = KeyCube::default();
        let (family, eth_type) = match class {
            Class::Ip4 => (4, Some(ETHER_IP4)),
            Class::Ip6 => (6, Some(ETHER_IP6)),
            Class::Other => (0, None),
        };
        given.fix_byte(key::FAMILY, 0xff, family)?;
        if let Some(eth_type) = eth_type {
            given.fix(ETH_TYPE_BIT, 16, eth_type.into())?;
        }
        Ok(RuleDraft { class, given, cube: given, allowed: Vec::new(), checks: Vec::new() })
    }

    fn constrain(&mut self, constraint: &Match, names: &RuleNames) -> Result<(), CompileError> {
        let Match { negated, field, test } = constraint;
        for &(byte, mask, value) in field.info().implies.key_bytes() {
            self.cube.fix_byte(byte, mask, value)?;
        }
        match field.info().place {
            FieldPlace::Key { bit, width } if field.info().alone == BareMeaning::Optional => {
                self.vlan(*negated, bit, width, test, names)
            }
            FieldPlace::Key { bit, width } => self.number(*negated, *field, (bit, width), test, names),
            FieldPlace::Payload(field) => self.payload(*negated, field, test),
            // Only when the packet is decided on is it known how it stands to connections.
            FieldPlace::Connection => Ok(()),
            // Decided later, on the bytes: here it selects the packets that may begin such a connection.
            FieldPlace::Stream(_) => {
                self.transport(field.info().implies);
                Ok(())
            }
            FieldPlace::AnyOption => self.option(*negated, |none| RuleCheck::AnyOption { none }),
            FieldPlace::Option(kind) => self.option_kind(*negated, kind, test),
            FieldPlace::NamedOption => self.option_kind(*negated, field.kind, test),
        }
    }

    fn number(
        &mut self,
        negated: bool,
        field: Field,
        (bit, width): (u16, u8),
        test: &Test,
        names: &RuleNames,
    ) -> Result<(), CompileError> {
        let alone = field.info().alone;
        let (bounds, listed) = match test {
            Test::Present => match alone {
                BareMeaning::Equals(value) => (Intervals::one(value.into()), false),
                BareMeaning::Protocol | BareMeaning::Optional => (Intervals::of_width(width), false),
            },
            // The common case, without a detour by sets.
            Test::Number(Cond::Eq, NumberSet(items)) if !negated && items.len() == 1 => match items[0] {
                NumberItem::One(value) => return Ok(self.cube.fix(bit, width, value)?),
                NumberItem::Prefix(first, len) => {
                    let prefix = first.checked_shr((width - len).into()).unwrap_or(0);
                    return Ok(self.cube.fix(bit, len, prefix)?);
                }
                NumberItem::Range(first, last) => (Intervals::range(first, last), true),
            },
            Test::Number(Cond::Eq, set) if !negated => (Intervals::compared(Cond::Eq, set, width), true),
            Test::Number(cond, set) => (Intervals::compared(*cond, set, width), false),
            Test::NamedSet(equality, name) => {
                let outside = (*equality == Equality::Ne) != negated;
                let set_field = match ElementKind::of_field(field) {
                    Some(ElementKind::Ip4) => LookupField::Ip4(Extract::new(bit, width, 0)),
                    Some(ElementKind::Ip6) => LookupField::Ip6((bit / 32) as u8),
                    Some(ElementKind::Number) => LookupField::Number(Extract::new(bit, width, 0)),
                    None => return Err(CompileError::Impossible),
                };
                let lookup = SetLookup { set: names.set_number(name), field: set_field };
                self.checks.push(RuleCheck::Named { lookup, outside });
                return Ok(());
            }
            Test::Port(equality, ports) => {
                let numbers = ports.iter().map(|port| names.number(port)).collect::<Result<Vec<_>, _>>()?;
                let named: Intervals = numbers.into_iter().map(|n| (n.into(), n.into())).collect();
                let equal = *equality == Equality::Eq;
                (if equal { named } else { named.complement(ones(width)) }, equal && !negated)
            }
            Test::Bytes(..) | Test::Patterns(_) | Test::Header(..) => return Err(CompileError::Impossible),
        };
        self.allow(bit, width, if negated { bounds.complement(ones(width)) } else { bounds }, listed);
        Ok(())
    }

    fn allow(&mut self, bit: u16, width: u8, bounds: Intervals, listed: bool) {
        match self.allowed.iter_mut().find(|a| (a.bit, a.width) == (bit, width)) {
            Some(allowed) => {
                allowed.bounds = allowed.bounds.intersect(&bounds);
                allowed.listed |= listed;
            }
            None => self.allowed.push(Allowed { bit, width, bounds, listed }),
        }
    }

    /// The transport protocol that an implication asks for, where it allows several.
    fn transport(&mut self, implies: Implies) {
        if implies == Implies::TcpOrUdp {
            let kinds = [6, 17].into_iter().map(|kind| (kind, kind)).collect();
            self.allow(key::L4_KIND as u16 * 8, 8, kinds, true);
        }
    }

    /// The VLAN id: it is there only if the frame is tagged.
    fn vlan(
        &mut self,
        negated: bool,
        bit: u16,
        width: u8,
        test: &Test,
        names: &RuleNames,
    ) -> Result<(), CompileError> {
        let bounds = match test {
            Test::Present => Intervals::of_width(width),
            Test::Number(cond, set) => Intervals::compared(*cond, set, width),
            Test::NamedSet(equality, name) => {
                let outside = (*equality == Equality::Ne) != negated;
                let unless = if negated { flags::VLAN_TAGGED } else { 0 };
                if !negated {
                    self.cube.fix_byte(key::FLAGS, flags::VLAN_TAGGED, flags::VLAN_TAGGED)?;
                }
                let field = LookupField::Number(Extract::new(bit, width, unless));
                let lookup = SetLookup { set: names.set_number(name), field };
                self.checks.push(RuleCheck::Named { lookup, outside });
                return Ok(());
            }
            Test::Port(..) | Test::Bytes(..) | Test::Patterns(_) | Test::Header(..) => {
                return Err(CompileError::Impossible);
            }
        };
        if !negated {
            self.cube.fix_byte(key::FLAGS, flags::VLAN_TAGGED, flags::VLAN_TAGGED)?;
            let listed = matches!(test, Test::Number(Cond::Eq, _));
            self.allow(bit, width, bounds, listed);
        } else if bounds == Intervals::of_width(width) {
            self.cube.fix_byte(key::FLAGS, flags::VLAN_TAGGED, 0)?;
        } else if !bounds.is_empty() {
            self.checks.push(RuleCheck::number(
                bit,
                width,
                &bounds.complement(ones(width)),
                flags::VLAN_TAGGED,
            ));
        }
        Ok(())
    }

    fn payload(&mut self, negated: bool, field: Payload, test: &Test) -> Result<(), CompileError> {
        let present = match field {
            Payload::Ip => flags::HAS_IP_PAYLOAD,
            Payload::Transport => flags::HAS_PAYLOAD,
        };
        match test {
            Test::Present => self.cube.fix_byte(key::FLAGS, present, if negated { 0 } else { present })?,
            Test::Bytes(equality, prefixes) => {
                if !negated {
                    self.cube.fix_byte(key::FLAGS, present, present)?;
                }
                let prefixes = prefixes.iter().map(|prefix| prefix[..].into()).collect();
                let begins = (*equality == Equality::Eq) != negated;
                self.checks.push(RuleCheck::Payload { field, prefixes, empty: negated, begins });
            }
            Test::Number(..) | Test::NamedSet(..) | Test::Port(..) | Test::Patterns(_) | Test::Header(..) => {
                return Err(CompileError::Impossible);
            }
        }
        Ok(())
    }

    fn option_kind(&mut self, negated: bool, kind: u8, test: &Test) -> Result<(), CompileError> {
        let test = match test {
            Test::Present => OptionTest::Present,
            Test::Number(cond, set) => {
                OptionTest::Number(Intervals::compared(*cond, set, 64).as_slice().into())
            }
            Test::Bytes(equality, strings) => OptionTest::Bytes {
                data: strings.iter().map(|string| string[..].into()).collect(),
                differs: *equality == Equality::Ne,
            },
            Test::NamedSet(..) | Test::Port(..) | Test::Patterns(_) | Test::Header(..) => {
                return Err(CompileError::Impossible);
            }
        };
        self.option(negated, |none| RuleCheck::Option { kind, test, none })
    }

    fn option(&mut self, negated: bool, check: impl FnOnce(bool) -> RuleCheck) -> Result<(), CompileError> {
        if !negated {
            self.cube.fix_byte(key::FLAGS, flags::TCP_OPTION_AREA, flags::TCP_OPTION_AREA)?;
        }
        self.checks.push(check(negated));
        Ok(())
    }

    /// Fixes what is known, expands short lists, and lets go of bits that say nothing.
    fn finish(mut self) -> Result<CompiledRule, CompileError> {
        for Allowed { bit, width, bounds, .. } in &self.allowed {
            if bounds.is_empty() {
                return Err(CompileError::Impossible);
            }
            if let Some(value) = bounds.single() {
                self.cube.fix(*bit, *width, value)?;
            }
        }
        self.conclude()?;
        let mut cubes = self.expand();
        let narrow = |a: &&Allowed| a.bounds != Intervals::of_width(a.width);
        for Allowed { bit, width, bounds, .. } in self.allowed.iter().filter(narrow) {
            // All cubes have one mask: what is known in one is known in all.
            cubes.retain(|cube| cube.known(*bit, *width).is_none_or(|value| bounds.contains(value)));
            if cubes.first().is_some_and(|cube| cube.known(*bit, *width).is_none()) {
                self.checks.push(RuleCheck::number(*bit, *width, bounds, 0));
            }
        }
        if self.class == Class::Other {
            let is_ip = |eth_type| [ETHER_IP4, ETHER_IP6].map(u128::from).contains(&eth_type);
            cubes.retain(|cube| !cube.known(ETH_TYPE_BIT, 16).is_some_and(is_ip));
        }
        if cubes.is_empty() {
            return Err(CompileError::Impossible);
        }
        cubes.iter_mut().for_each(|cube| cube.release(&self.given));
        self.checks.sort_by_key(RuleCheck::about_options);
        Ok(CompiledRule { cubes, checks: self.checks })
    }

    /// Fixes the bits that follow from those that are fixed: a packet with a transport header is of its protocol and no later
    /// fragment.
    fn conclude(&mut self) -> Result<(), CompileError> {
        if let Some(kind @ 1..) = self.cube.known_byte(key::L4_KIND) {
            for cube in [&mut self.cube, &mut self.given] {
                cube.fix_byte(key::PROTO, 0xff, kind)?;
                cube.fix_byte(key::FLAGS, flags::LATER_FRAGMENT, 0)?;
            }
        }
        Ok(())
    }

    /// The cube with every combination of the values of short lists, the shortest first, up to [`MAX_CUBES`].
    fn expand(&self) -> Vec<KeyCube> {
        let mut cubes = vec![self.cube];
        let is_selective = |a: &&Allowed| {
            let count =
                |sum: u128, (first, last): &(u128, u128)| sum.saturating_add(last - first).saturating_add(1);
            let values = a.bounds.as_slice().iter().fold(0, count);
            values.saturating_mul(SELECTIVE) <= ones(a.width).saturating_add(1)
        };
        let listed = self.allowed.iter().filter(|a| a.listed).filter(is_selective);
        let mut lists: Vec<_> =
            listed.filter_map(|a| Some((a.bit, a.width, a.bounds.numbers(MAX_CUBES)?))).collect();
        lists.sort_by_key(|(.., values)| values.len());
        for (bit, width, values) in lists {
            if cubes.len() * values.len() > MAX_CUBES {
                break;
            }
            let with = |cube: &KeyCube, value| {
                let mut cube = *cube;
                cube.fix(bit, width, value).map(|()| cube).ok()
            };
            cubes = cubes.iter().flat_map(|cube| values.iter().filter_map(move |&v| with(cube, v))).collect();
        }
        cubes
    }
}

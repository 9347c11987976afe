//! A baseline: each packet is compared with every rule.
//!
//! Rules are compiled to offsets and intervals of the header key, so that the cost is that of the comparisons and not of parsing text; the
//! constraints of a rule are checked until one fails. There is no index and no SIMD. The module shares no code with the classifier.

use super::measure::Stages;
use crate::tsc::Tsc;
use anyhow::{Context, bail};
use mmb_engine::Cycles;
use mmb_language::Print;
use mmb_packet::{
    Class, Key4, Key6, Layout, Packet, ParserLimits, PortId, fill_key4, fill_key6, options, parse,
};
use mmb_policy::field::ones;
use mmb_policy::field::{BareMeaning, FieldPlace};
use mmb_policy::{Intervals, Match, Policy, Rule, Test};

/// A key of either length, with padding to read 16 bytes at any offset.
type KeyBytes = [u8; 96];

/// All rules of a policy.
pub(super) struct Linear {
    rules: Vec<LinearRule>,
    limits: ParserLimits,
    /// The packets of one vector with their layouts and keys.
    parsed: Vec<(usize, Layout, KeyBytes)>,
    packets: u64,
    matches: u64,
}

/// The constraints of a rule, all of which must hold.
struct LinearRule {
    /// Offset in the key, mask, value.
    implied: Vec<(usize, u8, u8)>,
    checks: Vec<LinearCheck>,
}

/// A constraint.
struct LinearCheck {
    place: Where,
    negated: bool,
    intervals: Intervals,
}

/// The subject of a constraint.
enum Where {
    /// Bits of the key: 16 bytes at an offset, shifted right and masked.
    Key { offset: usize, shift: u8, mask: u128 },
    /// Numbers in TCP options of a kind; `true`: the presence of the option.
    Option(u8, bool),
}

impl Linear {
    /// Compiles a policy.
    ///
    /// # Errors
    /// A rule has constraints that this baseline does not support.
    pub(super) fn new(policy: &Policy) -> anyhow::Result<Linear> {
        let rules = policy.rules.iter().map(|rule| {
            LinearRule::new(&rule).with_context(|| format!("cannot be searched linearly: {}", rule.text()))
        });
        Ok(Linear {
            rules: rules.collect::<anyhow::Result<_>>()?,
            limits: ParserLimits { ip6_headers: policy.settings.ip6_max_headers },
            parsed: Vec::new(),
            packets: 0,
            matches: 0,
        })
    }

    /// Returns the average number of rules that a packet matched.
    pub(super) fn matches_per_packet(&self) -> f64 {
        self.matches as f64 / self.packets.max(1) as f64
    }

    fn search(&mut self, packets: &[Packet<'_>]) {
        for (number, layout, key) in &self.parsed {
            let packet = &packets[*number];
            let matches = self.rules.iter().filter(|rule| rule.matches(packet, layout, key));
            self.matches += matches.count() as u64;
        }
    }
}

impl Stages for Linear {
    fn names(&self) -> Vec<&'static str> {
        vec!["parse", "classify"]
    }

    fn take(&mut self, packets: &mut [Packet<'_>], spent: &mut [u64]) -> u64 {
        let begin = Tsc.now();
        self.parsed.clear();
        for (number, packet) in packets.iter().enumerate() {
            if let Ok(layout) = parse::parse(packet, &self.limits) {
                self.parsed.push((number, layout, [0; 96]));
            }
        }
        let parsed = Tsc.now();
        for (number, layout, key) in &mut self.parsed {
            fill(&packets[*number], layout, key);
        }
        self.search(packets);
        let end = Tsc.now();
        self.packets += packets.len() as u64;
        spent.copy_from_slice(&[parsed.wrapping_sub(begin), end.wrapping_sub(parsed)]);
        end.wrapping_sub(begin)
    }
}

fn fill(packet: &Packet<'_>, layout: &Layout, bytes: &mut KeyBytes) {
    let peer = PortId(1 - packet.port.0.min(1));
    if layout.class == Class::Ip6 {
        let mut key = Key6::default();
        fill_key6(packet, layout, packet.port, peer, &mut key);
        bytes[..80].copy_from_slice(&key.0);
    } else {
        let mut key = Key4::default();
        fill_key4(packet, layout, packet.port, peer, &mut key);
        bytes[..64].copy_from_slice(&key.0);
    }
}

impl LinearRule {
    fn new(rule: &Rule) -> anyhow::Result<LinearRule> {
        let implied = rule.matches.iter().flat_map(|m| m.field.info().implies.key_bytes().iter().copied());
        let checks = rule.matches.iter().map(LinearCheck::new).collect::<anyhow::Result<_>>()?;
        Ok(LinearRule { implied: implied.collect(), checks })
    }

    #[inline]
    fn matches(&self, packet: &Packet<'_>, layout: &Layout, key: &KeyBytes) -> bool {
        layout.class != Class::Other
            && self.implied.iter().all(|&(offset, mask, value)| key[offset] & mask == value)
            && self.checks.iter().all(|check| check.holds(packet, layout, key))
    }
}

impl LinearCheck {
    fn new(constraint: &Match) -> anyhow::Result<LinearCheck> {
        let info = constraint.field.info();
        let (place, width) = match info.place {
            FieldPlace::Key { bit, width } if info.alone != BareMeaning::Optional => {
                let (bit, bits) = (u32::from(bit), u32::from(width));
                let shift = (128 - bit % 8 - bits) as u8;
                let place = Where::Key { offset: (bit / 8) as usize, shift, mask: ones(width) };
                (place, width)
            }
            _ => match constraint.field.option_kind() {
                Some(kind) => (Where::Option(kind, constraint.test == Test::Present), 64),
                None => bail!("`{}` is not among the fields of this baseline", info.name),
            },
        };
        let intervals = match &constraint.test {
            Test::Present => match info.alone {
                BareMeaning::Equals(value) => Intervals::one(value.into()),
                BareMeaning::Protocol | BareMeaning::Optional => Intervals::of_width(width),
            },
            Test::Number(cond, set) => Intervals::compared(*cond, set, width),
            Test::NamedSet(..) => bail!("it does not know named sets"),
            Test::Port(..) | Test::Bytes(..) | Test::Patterns(_) | Test::Header(..) => {
                bail!("it knows neither ports of mmb nor bytes")
            }
        };
        Ok(LinearCheck { place, negated: constraint.negated, intervals })
    }

    #[inline]
    fn holds(&self, packet: &Packet<'_>, layout: &Layout, key: &KeyBytes) -> bool {
        let passes = match self.place {
            Where::Key { offset, shift, mask } => {
                let bytes = std::array::from_fn(|n| key[offset + n]);
                self.passes(u128::from_be_bytes(bytes) >> shift & mask)
            }
            Where::Option(kind, alone) => options::walk(options::area(packet, layout))
                .filter(|option| option.kind == kind)
                .any(|option| {
                    alone || options::number(option.data).is_some_and(|number| self.passes(number.into()))
                }),
        };
        passes != self.negated
    }

    #[inline]
    fn passes(&self, number: u128) -> bool {
        self.intervals.as_slice().iter().any(|&(first, last)| first <= number && number <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_differential::oracle::{OraclePacket, evaluate};
    use mmb_packet::LinkType;
    use mmb_workload::{FlowPattern, Traffic, Workload, WorkloadKind};

    #[test]
    fn it_finds_what_the_oracle_finds() {
        for kind in WorkloadKind::all().filter(|kind| {
            !matches!(kind, WorkloadKind::Empty | WorkloadKind::Rewrite | WorkloadKind::SourceNat)
        }) {
            let workload = Workload::new(kind, Some(300), None, 5).expect("a set of that kind");
            let policy = workload.policy().expect("numbers enough");
            let mut linear = Linear::new(&policy).expect("plain constraints");
            let traffic = Traffic {
                background: workload.background(),
                hit: 0.7,
                flows: FlowPattern::Distinct,
                seed: 5,
            };
            for mut frame in traffic.frames(100, workload.rules(), 300).frames {
                let received =
                    OraclePacket { bytes: &frame, headroom: 0, port: PortId(0), link: LinkType::Ethernet };
                let expected =
                    evaluate(&policy, &super::super::setup::wire(), &received, &mut || 0).matched.len();
                let before = linear.matches;
                let len = frame.len();
                let packet = Packet::new(&mut frame, 0, len, PortId(0), LinkType::Ethernet).expect("fits");
                linear.take(&mut [packet], &mut [0; 2]);
                assert_eq!(linear.matches - before, expected as u64, "{kind:?}");
            }
            assert!(linear.matches_per_packet() > 0.5, "{kind:?}");
        }
    }
}

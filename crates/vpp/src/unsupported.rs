//! What cannot mean anything in VPP, and is refused: rules that no packet on VPP's feature arcs matches, settings of what VPP decides.
//!
//! mmb sees IP packets without their link header, before VPP looks up where they go.

use mmb_policy::rule::{Cond, Match, Write};
use mmb_policy::settings::Settings;
use mmb_policy::{FieldId, Rule, Target, Test};

/// The ether types of packets that come to mmb.
const ETHER_TYPES: [u128; 2] = [0x0800, 0x86dd];

/// Settings of which VPP decides.
const VPP_DECIDES: &[(&str, &str)] = &[
    ("poll", "how VPP's threads wait is VPP's to say"),
    ("conn zone", "VPP has taken the tags off before mmb sees a packet"),
];

/// Why a rule cannot mean anything here, and the word that is to blame.
pub(crate) fn rule(rule: &Rule) -> Option<(&'static str, &'static str)> {
    rule.matches.iter().find_map(constraint).or_else(|| rule.targets.iter().find_map(target))
}

fn constraint(constraint: &Match) -> Option<(&'static str, &'static str)> {
    let why = match constraint.field.id {
        FieldId::Out => "rules see packets before VPP knows where they leave",
        FieldId::VlanId => {
            "VPP has taken the tags off before a rule sees a packet; name the sub-interface with `in`"
        }
        FieldId::EthType if !ETHER_TYPES.iter().any(|&kind| holds(constraint, kind)) => {
            "rules see nothing but IPv4 and IPv6 packets"
        }
        _ => return None,
    };
    Some((why, constraint.field.info().name))
}

fn target(target: &Target) -> Option<(&'static str, &'static str)> {
    match target {
        Target::Mod(field, Write::Number(_) | Write::Bytes(_)) if field.id == FieldId::VlanId => {
            Some(("VPP has taken the tags off before a rule sees a packet", field.info().name))
        }
        _ => None,
    }
}

/// Whether a constraint on a number holds for packets that have this one.
fn holds(constraint: &Match, value: u128) -> bool {
    let Test::Number(cond, set) = &constraint.test else { return !constraint.negated };
    let width = constraint.field.info().width().unwrap_or(16);
    let holds = |cond| {
        set.0.iter().any(|item| {
            let (first, last) = item.bounds(width);
            match cond {
                Cond::Eq | Cond::Ne => (first..=last).contains(&value),
                Cond::Lt => value < first,
                Cond::Le => value <= last,
                Cond::Gt => value > last,
                Cond::Ge => value >= first,
            }
        })
    };
    (holds(*cond) != (*cond == Cond::Ne)) != constraint.negated
}

/// The first setting that a change touches though VPP decides, with its name.
pub(crate) fn setting(before: &Settings, after: &Settings) -> Option<(&'static str, &'static str)> {
    let values = |settings: &Settings, name: &str| {
        settings.all().find(|setting| setting.info().name == name).map(|setting| setting.value())
    };
    VPP_DECIDES
        .iter()
        .find(|(name, _)| values(before, name) != values(after, name))
        .map(|&(name, why)| (why, name))
}

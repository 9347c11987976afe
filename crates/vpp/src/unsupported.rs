//! Rules and settings that are refused in VPP: rules that no packet on VPP's feature arcs matches, settings that VPP decides.
//!
//! mmb sees IP packets without their link header, before VPP's route lookup.

use mmb_policy::field::FieldGroup;
use mmb_policy::rule::{Cond, Match};
use mmb_policy::settings::Settings;
use mmb_policy::{FieldId, Rule, Target, Test};

/// The ether types of packets on VPP's feature arcs.
const ETHER_TYPES: [u128; 2] = [0x0800, 0x86dd];

/// Settings that VPP decides, with explanations.
const VPP_DECIDES: &[(&str, &str)] = &[
    ("poll", "how VPP's threads wait is VPP's to say"),
    ("conn zone", "VPP has taken the tags off before mmb sees a packet"),
];

/// The reason to refuse a rule, and the word that causes it.
pub(crate) fn rule(rule: &Rule) -> Option<(&'static str, &'static str)> {
    rule.matches.iter().find_map(constraint).or_else(|| rule.targets.iter().find_map(target))
}

fn constraint(constraint: &Match) -> Option<(&'static str, &'static str)> {
    let field = constraint.field.info();
    let why = match field.group {
        FieldGroup::Port if field.id == FieldId::Out => "rules see packets before VPP knows where they leave",
        FieldGroup::Link if field.id == FieldId::EthType => {
            if ETHER_TYPES.iter().any(|&kind| holds(constraint, kind)) {
                return None;
            }
            "rules see nothing but IPv4 and IPv6 packets"
        }
        FieldGroup::Link => {
            "VPP has taken the tags off before a rule sees a packet; name the sub-interface with `in`"
        }
        FieldGroup::Port | FieldGroup::Connection | FieldGroup::Ip | FieldGroup::Ip4 | FieldGroup::Ip6 => {
            return None;
        }
        FieldGroup::Ip6Extension | FieldGroup::Icmp | FieldGroup::Icmp6 | FieldGroup::Udp => return None,
        FieldGroup::Tcp | FieldGroup::TcpOption | FieldGroup::Payload | FieldGroup::Stream => return None,
    };
    Some((why, field.name))
}

fn target(target: &Target) -> Option<(&'static str, &'static str)> {
    match target {
        Target::Mod(field, _) | Target::Map(field, _) | Target::Shuffle(field, _) | Target::Lb(field, ..) => {
            let field = field.info();
            (field.group == FieldGroup::Link)
                .then_some(("VPP has taken the tags off before a rule sees a packet", field.name))
        }
        Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) | Target::StripAll => None,
        Target::Drop(_)
        | Target::Reject(_)
        | Target::Limit(_)
        | Target::Accept
        | Target::Log(_)
        | Target::Alert(_)
        | Target::Close
        | Target::Digest
        | Target::Edit(_)
        | Target::Helper(_) => None,
    }
}

/// True if a constraint on a number holds for this value.
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

/// The first changed setting that VPP decides: the explanation and its name.
pub(crate) fn setting(before: &Settings, after: &Settings) -> Option<(&'static str, &'static str)> {
    let values = |settings: &Settings, name: &str| {
        settings.all().find(|setting| setting.info().name == name).map(|setting| setting.value())
    };
    VPP_DECIDES
        .iter()
        .find(|(name, _)| values(before, name) != values(after, name))
        .map(|&(name, why)| (why, name))
}

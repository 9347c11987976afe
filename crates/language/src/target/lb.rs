//! `lb FIELD {VALUE, …} [METHOD]`: spreads connections over values.

use super::info::{Slot, TargetArguments, TargetInfo};
use super::operand::bindable;
use crate::number::numbers;
use crate::print::value;
use crate::report::CheckReport;
use mmb_policy::field::Field;
use crate::diagnostic::Diagnostic;
use crate::syntax::value::WeightSyntax;
use mmb_policy::rule::{LbMethod, ServerList, Target};
use std::fmt::{Display, Formatter, Result};

/// The words of methods, with their help.
const METHODS: &[(&str, &str)] = &[
    (name(LbMethod::RoundRobin), "in turn"),
    (name(LbMethod::Hash), "by a consistent hash of the five-tuple"),
    (name(LbMethod::Least), "the one with the fewest connections"),
];

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "FIELD {VALUE [weight N], …} [rr|hash|least]",
    stateful: true,
    help: "distributes connections over values; on replies it is reversed",
    reference: "`lb` gives each connection one of the values by the named method: in turn (`rr`), by a hash of the connection \
                (`hash`), or the one with the fewest connections (`least`). A value gets connections in proportion to its `weight`, \
                1 without one and at most 100. One of weight 0 drains: it gets no new connections and keeps those that it has. A \
                list with weights has at most 1000 values.",
    slots: &[Slot::Field("the field to spread"), Slot::WeightedValue, Slot::Choice("method", METHODS)],
    takes: |info| info.bindings.lb,
    ..TargetInfo::new("lb", check)
};

const fn name(method: LbMethod) -> &'static str {
    match method {
        LbMethod::RoundRobin => "rr",
        LbMethod::Hash => "hash",
        LbMethod::Least => "least",
    }
}

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let field = arguments.field.as_ref()?;
    bindable(field, INFO.name, INFO.takes, report)?;
    let value = arguments.value.as_ref()?;
    let items = numbers(field, value, report)?;
    let mut weights = vec![1; items.0.len()];
    for WeightSyntax { member, weight } in &arguments.weights {
        weights[*member] = *weight;
    }
    let servers = ServerList::new(items, weights);
    if let Some(fault) = fault_of_weights(&servers, field.field) {
        report.error(Diagnostic::new(value.span(), fault));
        return None;
    }
    let chosen = |method: &LbMethod| Some(name(*method)) == arguments.choice;
    let method = LbMethod::ALL.into_iter().find(chosen).unwrap_or_default();
    Some(Target::Lb(field.field, servers, method))
}

/// The fault of weights that are not all 1.
fn fault_of_weights(servers: &ServerList, field: Field) -> Option<String> {
    let weights = servers.weights();
    if weights.is_empty() {
        return None;
    }
    let width = field.info().width().unwrap_or(128);
    let mut ranges: Vec<_> = servers.items.0.iter().map(|item| item.bounds(width)).zip(weights).collect();
    ranges.sort_unstable();
    let values = ranges.iter().fold(0_u128, |sum, ((low, high), _)| sum.saturating_add(high - low).saturating_add(1));
    let differs = |pair: &[((u128, u128), &u8)]| {
        let [((_, high), one), ((low, _), other)] = pair else { return false };
        low <= high && one != other
    };
    if weights.iter().all(|weight| *weight == 0) {
        Some("no value takes connections: every weight is 0".to_owned())
    } else if values > ServerList::MAX_WEIGHTED {
        Some(format!("a list with weights has at most {} values", ServerList::MAX_WEIGHTED))
    } else if ranges.windows(2).any(differs) {
        Some("a value is given twice, with different weights".to_owned())
    } else {
        None
    }
}

pub(crate) fn print(f: &mut Formatter<'_>, field: Field, servers: &ServerList, method: LbMethod) -> Result {
    write!(f, "lb {field} ")?;
    let items: Vec<_> = servers.items.0.iter().enumerate().collect();
    value::in_braces(f, &items, |(at, item), f| {
        value::number_item(field.info(), **item).fmt(f)?;
        match servers.weight(*at) {
            1 => Ok(()),
            weight => write!(f, " weight {weight}"),
        }
    })?;
    if method == LbMethod::default() { Ok(()) } else { write!(f, " {}", name(method)) }
}

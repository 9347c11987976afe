//! A compiled policy as workers use it: immutable, and shared by all of them.
//!
//! Life-cycle: the control side compiles and publishes it; every worker picks it up between two vectors and releases the one before; the
//! control side, which holds a reference until then, frees it. A snapshot shares unchanged parts with the one before it: classifier,
//! actions and edits are persistent structures, of which a change copies a few pages.

use crate::cells::RuleCells;
use crate::conntrack::StatefulRule;
use crate::port::{Forward, PortSpec, PortTable};
use mmb_base::PersistentVec;
use mmb_base::prefetch;
use mmb_classify::Classifier;
use mmb_conn::{Side, Wire};
use mmb_packet::{ParserLimits, PortId};
use mmb_policy::policy::ConnectionSettings;
use mmb_policy::rule::{DropRate, Prio};
use mmb_policy::{CtState, Policy, Rule, RuleId, Target};
use mmb_rewrite::Edit;
use std::num::NonZeroU32;
use std::sync::Arc;

/// The actions of rules, by slot.
pub(crate) type ActionTable = PersistentVec<Action, 512>;
/// The edits of rules, by number.
pub(crate) type EditTable = PersistentVec<Option<Arc<Edit>>, 64>;
/// Stateful rules, by slot.
pub(crate) type StatefulRuleTable = PersistentVec<Option<Arc<StatefulRule>>, 64>;

/// The compiled targets of all rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompiledRules {
    pub(crate) actions: ActionTable,
    pub(crate) edits: EditTable,
    pub(crate) stateful: StatefulRuleTable,
    /// Number of stateful rules.
    pub(crate) stateful_rules: usize,
    /// Number of rules that match on fields that change within connections.
    pub(crate) changing_rules: usize,
    /// Number of rules that match on `ct`.
    pub(crate) ct_rules: usize,
}

/// A compiled policy.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Grows with every publish.
    pub(crate) generation: u64,
    /// Its handles are the rules' slots.
    pub(crate) classifier: Classifier,
    pub(crate) actions: ActionTable,
    edits: EditTable,
    stateful: StatefulRuleTable,
    /// Number of stateful rules.
    pub(crate) stateful_rules: usize,
    changing_rules: usize,
    /// Number of rules that match on `ct`.
    pub(crate) ct_rules: usize,
    pub(crate) connections: ConnectionSettings,
    pub(crate) limits: ParserLimits,
    pub(crate) routes: Box<[Route]>,
    /// Rule counters, by worker and slot.
    pub(crate) cells: Box<[RuleCells]>,
}

/// A rule's action: 16 bytes, four to a cache line, since matched rules are accessed at random.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(16))]
pub(crate) struct Action {
    pub(crate) prio: Prio,
    /// The rule's id, which orders rules of the same priority.
    id: u32,
    /// The number of its edit, from 1.
    edit: Option<NonZeroU32>,
    verdict: RuleVerdictBits,
}

const _: () = assert!(size_of::<Action>() == 16);

/// A rule's accept or drop target in the lower 3 of 4 bytes: 0 for none, 1 for accept, otherwise the drop rate plus 2. The top bit marks
/// stateful rules; the bits below it mark the `ct` states that the rule does not match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RuleVerdictBits(u32);

/// See [`RuleVerdictBits`].
const STATEFUL: u32 = 1 << 31;
/// See [`RuleVerdictBits`].
const UNWANTED: u32 = 24;

const _: () = assert!(DropRate::ALL.0 + 2 < 1 << UNWANTED && CtState::ALL.len() <= 7);

/// A rule's accept or drop target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleVerdict {
    None,
    Accept,
    Drop(DropRate),
}

/// The egress port in keys of packets that leave by no port that rules can name.
const NO_EGRESS: PortId = PortId(u16::MAX);

/// How packets of a port are forwarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The port for verdicts, and its MTU.
    pub(crate) to: Option<(PortId, u32)>,
    /// The egress port that rules match on.
    pub(crate) out: PortId,
    /// The wire in the tuples of its connections.
    pub(crate) wire: Wire,
    /// The side of that wire that the port is.
    pub(crate) side: Side,
    /// Packets from this port are processed.
    pub(crate) enabled: bool,
}

impl Route {
    /// Whether the host's routing decides where packets go.
    pub(crate) fn is_routed(&self) -> bool {
        self.wire.is_routed()
    }
}

impl Snapshot {
    /// A snapshot of a policy's settings and ports, with its compiled rules.
    pub(crate) fn new(
        generation: u64,
        policy: &Policy,
        ports: &PortTable,
        classifier: Classifier,
        rules: CompiledRules,
        cells: &[RuleCells],
    ) -> Snapshot {
        let CompiledRules { actions, edits, stateful, stateful_rules, changing_rules, ct_rules } = rules;
        Snapshot {
            generation,
            classifier,
            actions,
            edits,
            stateful,
            stateful_rules,
            changing_rules,
            ct_rules,
            connections: policy.settings.connections,
            limits: ParserLimits { ip6_headers: policy.settings.ip6_max_headers },
            routes: routes(policy, ports),
            cells: cells.into(),
        }
    }

    /// How packets of a port are forwarded.
    #[inline]
    pub(crate) fn route(&self, port: PortId) -> Route {
        let unknown =
            || Route { to: None, out: NO_EGRESS, wire: Wire::of(port, None), side: Side::Low, enabled: true };
        self.routes.get(usize::from(port.0)).copied().unwrap_or_else(unknown)
    }

    /// Whether all packets of one direction of a connection match the same rules.
    #[inline]
    pub(crate) fn is_constant(&self) -> bool {
        self.changing_rules == 0
    }

    /// The stateful rule of a slot that was assigned to one, if it still exists.
    #[inline]
    pub(crate) fn stateful(&self, slot: u32) -> Option<&Arc<StatefulRule>> {
        self.stateful.at(slot as usize).as_ref()
    }

    /// Prefetches what [`Snapshot::stateful`] reads.
    #[inline]
    pub(crate) fn fetch_stateful(&self, slot: u32) {
        prefetch(self.stateful.at(slot as usize));
    }

    /// The stateful rules with their slots.
    pub(crate) fn stateful_slots(&self) -> impl Iterator<Item = (RuleId, u32)> + '_ {
        (0..).zip(self.stateful.iter()).filter_map(|(slot, rule)| Some((rule.as_ref()?.id, slot)))
    }

    /// The edit with a number from [`Action::edit_number`].
    #[inline]
    pub(crate) fn edit(&self, number: u32) -> Option<&Edit> {
        (number as usize).checked_sub(1).and_then(|number| self.edits.at(number).as_deref())
    }
}

impl Action {
    /// The action of a rule with this edit.
    pub(crate) fn new(rule: &Rule, edit: Option<usize>) -> Action {
        Action {
            prio: rule.prio,
            id: rule.id.map_or(0, |id| id.0),
            edit: edit.and_then(|number| NonZeroU32::new(number as u32 + 1)),
            verdict: RuleVerdictBits::of(rule),
        }
    }

    /// The rule's position among others: by priority, then by id.
    #[inline]
    pub(crate) fn rank(&self) -> u64 {
        u64::from(self.prio) << 32 | u64::from(self.id)
    }

    /// The rule's id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Its accept or drop target.
    #[inline]
    pub(crate) fn rule_verdict(&self) -> RuleVerdict {
        match self.verdict.0 & ((1 << UNWANTED) - 1) {
            0 => RuleVerdict::None,
            1 => RuleVerdict::Accept,
            rate => RuleVerdict::Drop(DropRate(rate - 2)),
        }
    }

    /// Whether the rule is a stateful one.
    #[inline]
    pub(crate) fn is_stateful(&self) -> bool {
        self.verdict.0 & STATEFUL != 0
    }

    /// Whether the rule matches packets of this `ct` state.
    #[inline]
    pub(crate) fn wants(&self, state: CtState) -> bool {
        self.verdict.0 >> (UNWANTED + state as u32) & 1 == 0
    }

    /// The number of its edit, from 1; 0 if it has none.
    #[inline]
    pub(crate) fn edit_number(&self) -> u32 {
        self.edit.map_or(0, NonZeroU32::get)
    }

    /// The index of its edit.
    #[inline]
    pub(crate) fn edit(&self) -> Option<usize> {
        self.edit.map(|number| number.get() as usize - 1)
    }
}

impl RuleVerdictBits {
    fn of(rule: &Rule) -> RuleVerdictBits {
        let mut votes = rule.targets.iter().filter_map(|target| match target {
            Target::Accept => Some(RuleVerdictBits(1)),
            Target::Drop(rate) => Some(RuleVerdictBits(2 + rate.0)),
            _ => None,
        });
        // The checker allows one such target per rule.
        let RuleVerdictBits(verdict) = votes.next_back().unwrap_or(RuleVerdictBits(0));
        let unwanted = u32::from(rule.ct_states().unwanted()) << UNWANTED;
        RuleVerdictBits(verdict | unwanted | if rule.stateful { STATEFUL } else { 0 })
    }
}

fn routes(policy: &Policy, ports: &PortTable) -> Box<[Route]> {
    let mtu = |id: PortId| ports.0.get(usize::from(id.0)).map(|port| (id, port.mtu.unwrap_or(u32::MAX)));
    let route = |(id, port): (u16, &PortSpec)| {
        let id = PortId(id);
        let (to, out, wire) = match port.forward {
            Forward::Wire(peer) => (mtu(peer), peer, Wire::of(id, Some(peer))),
            Forward::Routed => (Some((id, u32::MAX)), NO_EGRESS, Wire::ROUTED),
            Forward::Nowhere => (None, NO_EGRESS, Wire::of(id, None)),
        };
        let counts = !wire.is_routed() && !policy.settings.connections.same_port;
        let side = if counts { Side::of(id, port.forward.peer()) } else { Side::Any };
        Route { to, out, wire, side, enabled: policy.ports.get(&port.name) != Some(&false) }
    };
    (0..).zip(&ports.0).map(route).collect()
}

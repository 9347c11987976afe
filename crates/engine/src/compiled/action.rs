//! The actions, edits and stateful parts of rules, in tables by slot.
//!
//! The tables are persistent: a snapshot keeps its version, and a change copies the pages that it touches.

use super::limit_rule::{LimitRule, limit_of};
use super::log_rule::LogRule;
use super::stateful::{StatefulRule, is_per_packet};
use crate::drop::DropReason;
use mmb_base::{PersistentVec, id_types};
use mmb_classify::RuleSlot;
use mmb_policy::limit::LimitUnit;
use mmb_policy::rule::{DropRate, Prio, Reject};
use mmb_policy::{CtState, Rule, Target};
use mmb_rewrite::Edit;
use std::sync::Arc;

id_types! {
    /// The edit of a rule. Valid as long as a policy has the rule.
    pub(crate) struct EditId;
}

/// The actions of rules, by slot.
pub(crate) type ActionTable = PersistentVec<Action, 512>;
/// The edits of rules, by id.
pub(crate) type EditTable = PersistentVec<Option<Arc<Edit>>, 64>;
/// Rules with `log`, by slot.
pub(crate) type LogRuleTable = PersistentVec<Option<Arc<LogRule>>, 64>;
/// Rules with limits, by slot.
pub(crate) type LimitRuleTable = PersistentVec<Option<Arc<LimitRule>>, 64>;
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
    /// Number of per-packet rules.
    pub(crate) per_packet_rules: usize,
    /// Number of rules that keep flows from being offloaded: see [`blocker`](super::blocker::blocker).
    pub(crate) blockers: usize,
    /// Number of rules that match on `ct`.
    pub(crate) ct_rules: usize,
    /// Rules with `log`, by slot.
    pub(crate) logs: LogRuleTable,
    /// Number of rules with `log`.
    pub(crate) log_rules: usize,
    /// Rules with limits, by slot.
    pub(crate) limits: LimitRuleTable,
    /// Number of rules with limits.
    pub(crate) limit_rules: usize,
}

/// A rule's action: 16 bytes, four to a cache line, because matched rules are accessed at random.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(16))]
pub(crate) struct Action {
    pub(crate) prio: Prio,
    /// The rule's id, which orders rules of the same priority.
    id: u32,
    edit: Option<EditId>,
    verdict: RuleVerdictBits,
}

const _: () = assert!(size_of::<Action>() == 16);

/// A rule's accept, drop, reject or limit target, and marks of the rule:
///
/// - Bits 0 to 21 contain the target: 0 for none, 1 for accept, from [`FIRST_RATE`] on the drop rate, from
///   [`FIRST_REJECT`] on the answer of a reject, from [`FIRST_LIMIT`] on the kind of a limit.
/// - Bit 22 ([`LOGS`]) marks rules with `log`.
/// - Bit 23 ([`PER_PACKET`]) marks per-packet rules.
/// - The bits from 24 ([`UNWANTED`]) on mark the `ct` states that the rule does not match.
/// - Bit 31 ([`STATEFUL`]) marks stateful rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RuleVerdictBits(u32);

/// See [`RuleVerdictBits`].
const STATEFUL: u32 = 1 << 31;
/// See [`RuleVerdictBits`].
const UNWANTED: u32 = 24;
/// See [`RuleVerdictBits`].
const PER_PACKET: u32 = 1 << 23;
/// See [`RuleVerdictBits`].
const LOGS: u32 = 1 << 22;

/// See [`RuleVerdictBits`].
const FIRST_RATE: u32 = 2;
/// See [`RuleVerdictBits`].
const FIRST_REJECT: u32 = FIRST_RATE + DropRate::ALL.0 + 1;
/// The answers of a reject, as offsets from [`FIRST_REJECT`]: 0 for the usual answer, then a RST, the ICMP
/// codes, the ICMPv6 codes.
const REJECT_RST: u32 = 1;
const REJECT_ICMP: u32 = 2;
const REJECT_ICMP6: u32 = REJECT_ICMP + 0x100;

/// The kinds of limits are offsets from [`FIRST_LIMIT`]: sums of the two constants below.
const FIRST_LIMIT: u32 = FIRST_REJECT + REJECT_ICMP6 + 0x100;
const LIMIT_ACCEPTS: u32 = 1;
const LIMIT_FIRST_ONLY: u32 = 2;

const _: () = assert!(FIRST_LIMIT + 4 < LOGS && CtState::ALL.len() <= 7);

/// A rule's accept, drop, reject or limit target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleVerdict {
    None,
    Accept,
    Drop(DropRate),
    Reject(Reject),
    Limit(LimitKind),
}

/// What a rule with a limit does with packets within the limit, and which packets it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitKind {
    /// It accepts packets within the limit.
    pub(crate) accepts: bool,
    /// It counts only the first packets of connections.
    pub(crate) first_only: bool,
}

impl RuleVerdict {
    /// Whether a rule with this verdict drops packets, as far as the action alone decides: a limit does not.
    pub(crate) fn drops(self) -> bool {
        match self {
            RuleVerdict::None | RuleVerdict::Accept | RuleVerdict::Limit(_) => false,
            RuleVerdict::Drop(_) | RuleVerdict::Reject(_) => true,
        }
    }

    /// The reason for drops by a rule with this verdict.
    pub(crate) fn drop_reason(self) -> DropReason {
        match self {
            RuleVerdict::Reject(_) => DropReason::RuleReject,
            RuleVerdict::Limit(_) => DropReason::RuleLimit,
            RuleVerdict::None | RuleVerdict::Accept | RuleVerdict::Drop(_) => DropReason::Rule,
        }
    }
}

/// A mark in a rule's slot that stands for a simple action. With it, most packets are decided on without
/// reading the table of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionMark {
    /// The action is not simple: the [`Action`] must be read.
    NotSimple,
    /// The rule accepts, and does nothing else.
    Accepts,
    /// The rule drops all packets, and does nothing else.
    Drops,
}

impl ActionMark {
    fn from_rule(rule: &Rule) -> ActionMark {
        let plain =
            !rule.stateful && rule.stream_matches().next().is_none() && rule.ct_states().unwanted() == 0;
        match rule.targets[..] {
            [Target::Accept] if plain => ActionMark::Accepts,
            [Target::Drop(DropRate::ALL)] if plain => ActionMark::Drops,
            _ => ActionMark::NotSimple,
        }
    }

    /// The mark of a matched rule's slot.
    #[inline]
    pub(crate) fn from_slot(slot: RuleSlot) -> ActionMark {
        match slot.mark() {
            1 => ActionMark::Accepts,
            2 => ActionMark::Drops,
            _ => ActionMark::NotSimple,
        }
    }
}

/// The slot of a rule, with the mark of its action.
pub(crate) fn marked(slot: RuleSlot, rule: &Rule) -> RuleSlot {
    slot.marked(match ActionMark::from_rule(rule) {
        ActionMark::NotSimple => 0,
        ActionMark::Accepts => 1,
        ActionMark::Drops => 2,
    })
}

impl Action {
    /// The action of a rule with this edit.
    pub(crate) fn new(rule: &Rule, edit: Option<EditId>) -> Action {
        Action {
            prio: rule.prio,
            id: rule.id.map_or(0, |id| id.0),
            edit,
            verdict: RuleVerdictBits::from_rule(rule),
        }
    }

    /// The rule's rank: by priority, then by id.
    #[inline]
    pub(crate) fn rank(&self) -> u64 {
        u64::from(self.prio) << 32 | u64::from(self.id)
    }

    /// The rule's id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The rule's accept, drop, reject or limit target.
    #[inline]
    pub(crate) fn rule_verdict(&self) -> RuleVerdict {
        match self.verdict.0 & (LOGS - 1) {
            0 => RuleVerdict::None,
            1 => RuleVerdict::Accept,
            rate @ FIRST_RATE..FIRST_REJECT => RuleVerdict::Drop(DropRate(rate - FIRST_RATE)),
            answer @ FIRST_REJECT..FIRST_LIMIT => RuleVerdict::Reject(decode_reject(answer - FIRST_REJECT)),
            limit => RuleVerdict::Limit(LimitKind {
                accepts: (limit - FIRST_LIMIT) & LIMIT_ACCEPTS != 0,
                first_only: (limit - FIRST_LIMIT) & LIMIT_FIRST_ONLY != 0,
            }),
        }
    }

    /// Whether the rule is stateful.
    #[inline]
    pub(crate) fn is_stateful(&self) -> bool {
        self.verdict.0 & STATEFUL != 0
    }

    /// Whether the rule is a per-packet rule.
    #[inline]
    pub(crate) fn is_per_packet(&self) -> bool {
        self.verdict.0 & PER_PACKET != 0
    }

    /// Whether the rule has `log`.
    #[inline]
    pub(crate) fn logs(&self) -> bool {
        self.verdict.0 & LOGS != 0
    }

    /// Whether the rule matches packets of this `ct` state.
    #[inline]
    pub(crate) fn matches_ct(&self, state: CtState) -> bool {
        self.verdict.0 >> (UNWANTED + state as u32) & 1 == 0
    }

    /// Whether the rule drops some packets of a connection and passes others: it drops a percentage, or what
    /// exceeds a limit.
    #[inline]
    pub(crate) fn drops_some(&self) -> bool {
        match self.rule_verdict() {
            RuleVerdict::Drop(rate) => rate != DropRate::ALL,
            RuleVerdict::Limit(kind) => !kind.first_only,
            RuleVerdict::None | RuleVerdict::Accept | RuleVerdict::Reject(_) => false,
        }
    }

    /// Whether the rule has a limit.
    #[inline]
    pub(crate) fn limits(&self) -> bool {
        matches!(self.rule_verdict(), RuleVerdict::Limit(_))
    }

    /// The rule's edit.
    #[inline]
    pub(crate) fn edit(&self) -> Option<EditId> {
        self.edit
    }
}

/// Encodes the answer of a reject as a number.
fn encode_reject(reject: Reject) -> u32 {
    match reject {
        Reject::Usual => 0,
        Reject::TcpRst => REJECT_RST,
        Reject::Icmp(code) => REJECT_ICMP + u32::from(code),
        Reject::Icmp6(code) => REJECT_ICMP6 + u32::from(code),
    }
}

/// Decodes the answer of a reject from a number of [`encode_reject`].
fn decode_reject(number: u32) -> Reject {
    match number {
        0 => Reject::Usual,
        REJECT_RST => Reject::TcpRst,
        code @ REJECT_ICMP..REJECT_ICMP6 => Reject::Icmp((code - REJECT_ICMP) as u8),
        code => Reject::Icmp6((code - REJECT_ICMP6) as u8),
    }
}

impl RuleVerdictBits {
    fn from_rule(rule: &Rule) -> RuleVerdictBits {
        let mut verdicts = rule.targets.iter().filter_map(|target| match target {
            Target::Accept => Some(RuleVerdictBits(1)),
            // The stream decides.
            Target::Drop(_) if rule.stream_matches().next().is_some() => None,
            Target::Drop(rate) => Some(RuleVerdictBits(FIRST_RATE + rate.0)),
            Target::Reject(reject) => Some(RuleVerdictBits(FIRST_REJECT + encode_reject(*reject))),
            Target::Mod(..) | Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) => None,
            Target::StripAll | Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => None,
            // A limit is encoded below, together with `accept`.
            Target::Limit(_) => None,
            Target::Log(_) | Target::Alert(_) | Target::Close | Target::Digest => None,
            Target::Edit(_) | Target::Helper(_) => None,
        });
        // The checker allows one such target per rule.
        let RuleVerdictBits(verdict) = match limit_of(rule) {
            None => verdicts.next_back().unwrap_or(RuleVerdictBits(0)),
            Some(limit) => {
                let accepts = if rule.targets.contains(&Target::Accept) { LIMIT_ACCEPTS } else { 0 };
                let first_only = if limit.unit == LimitUnit::Connections { LIMIT_FIRST_ONLY } else { 0 };
                RuleVerdictBits(FIRST_LIMIT + accepts + first_only)
            }
        };
        let unwanted = u32::from(rule.ct_states().unwanted()) << UNWANTED;
        let stateful = if rule.stateful { STATEFUL } else { 0 };
        let per_packet = if is_per_packet(rule) { PER_PACKET } else { 0 };
        let logs = if rule.targets.iter().any(|target| matches!(target, Target::Log(_))) { LOGS } else { 0 };
        RuleVerdictBits(verdict | unwanted | stateful | per_packet | logs)
    }
}

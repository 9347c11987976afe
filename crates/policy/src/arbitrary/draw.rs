//! What rules may be drawn of, and the dice of one constraint or target.

use crate::field::{FieldInfo, ValueKind, ones};
use crate::rule::{Cond, NumberItem, NumberSet, Test};
use proptest::collection::vec;
use proptest::prelude::*;

/// The content that drawn rules may have.
#[derive(Clone, Debug)]
pub struct RuleOptions {
    /// `add-stateful` and its targets.
    pub stateful: bool,
    /// Constraints on streams and their targets, of stateful rules.
    pub streams: bool,
    /// Beside them also constraints on HTTP, and targets that edit streams and HTTP.
    pub edits: bool,
    /// Rates, which depend on the time.
    pub limits: bool,
    /// The lists that patterns may be of; none: no such patterns.
    pub lists: Vec<String>,
    /// `in` and `out`, with these names and no others; none: no such constraints.
    pub ports: Vec<String>,
    /// Most constraints.
    pub max_matches: usize,
    /// Most targets.
    pub max_targets: usize,
}

impl Default for RuleOptions {
    fn default() -> Self {
        RuleOptions {
            stateful: false,
            streams: false,
            edits: false,
            limits: false,
            lists: Vec::new(),
            ports: vec!["a".to_owned(), "b".to_owned()],
            max_matches: 5,
            max_targets: 4,
        }
    }
}

/// The dice of one constraint or target.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    pub(super) field: prop::sample::Index,
    pub(super) form: u8,
    pub(super) negated: bool,
    pub(super) numbers: [u128; 3],
    pub(super) small: [u8; 3],
    pub(super) bytes: Vec<u8>,
}

/// Draws the dice of one constraint or target.
pub(super) fn draw() -> impl Strategy<Value = Draw> {
    let bytes = prop_oneof![vec(any::<u8>(), 0..=12), "[ -~\n\t]{0,12}".prop_map(String::into_bytes)];
    (any::<prop::sample::Index>(), any::<u8>(), any::<bool>(), any::<[u128; 3]>(), any::<[u8; 3]>(), bytes)
        .prop_map(|(field, form, negated, numbers, small, bytes)| Draw {
            field,
            form,
            negated,
            numbers,
            small,
            bytes,
        })
}

impl Draw {
    /// A comparison around the witness's value.
    pub(super) fn number_test(&self, info: &FieldInfo, value: u128) -> Test {
        let max = info.max().unwrap_or(0);
        let cond = [Cond::Eq, Cond::Eq, Cond::Ne, Cond::Lt, Cond::Le, Cond::Gt, Cond::Ge]
            [usize::from(self.form) % 7];
        let value = value.min(max);
        let items = match cond {
            Cond::Eq | Cond::Ne => match self.small[0] % 4 {
                0 => (0..3).map(|i| self.item(info, value, max, i)).collect(),
                _ => vec![self.item(info, value, max, 0)],
            },
            Cond::Lt | Cond::Le | Cond::Gt | Cond::Ge => vec![NumberItem::One(self.near(value, max, 0))],
        };
        Test::Number(cond, NumberSet(items))
    }

    /// A number at, beside or far from `value`.
    fn near(&self, value: u128, max: u128, i: usize) -> u128 {
        match self.small[i] / 32 {
            0..=3 => value,
            4 => value.saturating_add(1).min(max),
            5 => value.saturating_sub(1),
            6 => self.numbers[i] & max,
            _ => max - (self.numbers[i] & max) % 3,
        }
    }

    pub(super) fn item(&self, info: &FieldInfo, value: u128, max: u128, i: usize) -> NumberItem {
        let (a, b) = (self.near(value, max, i), self.near(value, max, (i + 1) % 3));
        let width = info.width().unwrap_or(64);
        let is_address = matches!(info.values, ValueKind::Ip4 | ValueKind::Ip6);
        match self.numbers[i] % 3 {
            0 => NumberItem::One(a),
            1 if is_address => {
                let len = (self.numbers[(i + 1) % 3] % (u128::from(width) + 1)) as u8;
                NumberItem::Prefix(a & !ones(width - len), len)
            }
            1 => NumberItem::Range(a.min(self.numbers[i] & max), a.max(self.numbers[i] & max)),
            _ => NumberItem::Range(a.min(b), a.max(b)),
        }
    }
}

//! The forms that records are made of.

use crate::field::FIELDS;
use crate::rule::Cond;

pub(super) const STATEFUL: u8 = 1;
pub(super) const HAS_PRIO: u8 = 2;
pub(super) const HAS_NAME: u8 = 4;
pub(super) const DRAINING: u8 = 8;
pub(super) const NAMES_SETS: u8 = 16;

/// Set beside a field's number in constraints with `!`.
pub(super) const NEGATED: u8 = 0x80;
const _: () = assert!(FIELDS.len() <= NEGATED as usize);

/// Forms of tests below this are the equality with a single item whose form it is.
pub(super) const FIRST_TEST: u8 = PREFIX + 17;
pub(super) const PRESENT: u8 = FIRST_TEST;
pub(super) const PORT: u8 = FIRST_TEST + 1;
pub(super) const BYTES: u8 = FIRST_TEST + 3;
pub(super) const NUMBERS: u8 = FIRST_TEST + 5;
pub(super) const PATTERNS: u8 = NUMBERS + 6;
pub(super) const HEADER: u8 = PATTERNS + 1;
pub(super) const NAMED_SET: u8 = HEADER + 1;

/// Forms of items: the kind, plus how many bytes of the first number follow.
pub(super) const ONE: u8 = 0;
pub(super) const RANGE: u8 = ONE + 17;
pub(super) const PREFIX: u8 = RANGE + 17;

/// Kinds of patterns.
pub(super) const TEXT: u8 = 0;
pub(super) const REGEX: u8 = 1;
pub(super) const REGEX_OF_EITHER_CASE: u8 = 2;
pub(super) const LIST: u8 = 3;

pub(super) const CONDS: [Cond; 6] = [Cond::Eq, Cond::Ne, Cond::Lt, Cond::Le, Cond::Gt, Cond::Ge];

pub(super) const DROP_ALL: u8 = 0;
pub(super) const DROP: u8 = 1;
pub(super) const ACCEPT: u8 = 2;
pub(super) const MOD_NUMBER: u8 = 3;
pub(super) const MOD_BYTES: u8 = 4;
pub(super) const ADD_OPTION: u8 = 5;
pub(super) const STRIP: u8 = 6;
pub(super) const KEEP: u8 = 7;
pub(super) const STRIP_ALL: u8 = 8;
pub(super) const MAP: u8 = 9;
pub(super) const SHUFFLE: u8 = 10;
pub(super) const SHUFFLE_RANGE: u8 = 11;
pub(super) const LB: u8 = 12;
pub(super) const ALERT: u8 = 13;
pub(super) const ALERT_TEXT: u8 = 14;
pub(super) const CLOSE: u8 = 15;
pub(super) const DIGEST: u8 = 16;
pub(super) const MASK: u8 = 17;
pub(super) const MOD_STREAM: u8 = 18;
pub(super) const STRIP_STREAM: u8 = 19;
pub(super) const MOD_HTTP: u8 = 20;
pub(super) const MOD_HEADER: u8 = 21;
pub(super) const ADD_HEADER: u8 = 22;
pub(super) const STRIP_HEADER: u8 = 23;
pub(super) const KEEP_HEADER: u8 = 24;
pub(super) const ADD_BODY: u8 = 25;
pub(super) const LOG: u8 = 26;
pub(super) const LOG_TEXT: u8 = 27;
pub(super) const REJECT: u8 = 28;
pub(super) const REJECT_RST: u8 = 29;
pub(super) const REJECT_ICMP: u8 = 30;
pub(super) const REJECT_ICMP6: u8 = 31;
pub(super) const LIMIT: u8 = 32;
pub(super) const HELPER: u8 = 33;

/// A limit's unit and period, and whether it has a burst and a key.
pub(super) const PERIOD: u32 = 2;
pub(super) const HAS_BURST: u8 = 0x10;
pub(super) const HAS_KEY: u8 = 0x20;

/// Parts of replacements.
pub(super) const PART_BYTES: u8 = 0;
pub(super) const PART_MATCHED: u8 = 1;

/// Set beside the method of an `lb` whose items have weights, which follow the items.
pub(super) const WEIGHTED: u8 = 0x80;

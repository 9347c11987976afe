//! Packet classification: finds the rules that packets match, for vectors of header keys.
//!
//! Purpose: [`ClassifierIndex`] takes rules, each under a [`RuleSlot`], all at once or one by one, and hands out
//! [`Classifier`]s. [`Classifier::classify`] finds, for a whole vector of keys, every rule that each packet matches.
//!
//! From rules to tables:
//! 1. `compile` turns a rule into a cube of fixed key bits (equality, prefixes, flags, implied protocols; a few
//!    cubes for a small set of values) and residual checks (ranges, inequalities, named sets, options, payloads). A rule that
//!    leaves both IP versions open is compiled for both; it is not added to a class in which it cannot match.
//! 2. Cubes with the same mask form a *tuple*. `merge` puts tuples together that can share a hash `table` under a mask
//!    that all of them fix without long chains. Tuples of few rules are rows that are compared one by one (`flat`).
//! 3. Rules with the same key share one entry: a `list`, which finds its rules by their conditions (`ranged`) or by
//!    the packet's TCP options.
//!
//! From keys to rules: keys lie in columns of 32-bit lanes ([`mmb_packet::columns`]). Each table hashes the column's keys many at a time
//! (`simd`), asks its filter, prefetches the buckets of the keys that passed, and compares. Options are parsed once a packet, and only
//! if a rule asks.
//!
//! Life-cycle: a [`ClassifierIndex`] belongs to the control side. A [`Classifier`] never changes; workers share it; it shares
//! unchanged pages with the index and other classifiers (copy on write). A [`Scratch`] and the
//! [`VectorKeys`](mmb_packet::parse::vector::VectorKeys) belong to one worker; they are allocated when made and on [`Scratch::fit`], never by `classify`.
#![deny(unsafe_code)]

mod batch;
mod check;
mod class_index;
mod classifier;
mod compile;
mod cube;
mod extract;
mod flat;
mod flow_cache;
mod ids;
mod key_rules;
mod lane_fields;
mod lane_mask;
mod list;
mod matches;
mod merge;
mod names;
mod option_key;
mod option_lookups;
mod probe;
mod ranged;
mod relax;
mod search;
mod segment;
mod set_lookup;
#[allow(unsafe_code)]
mod simd;
mod table;
mod words;

pub use class_index::arrange::Tuning;
pub use class_index::stats::TableStats;
pub use classifier::{Classifier, ClassifierIndex, extra_bytes};
pub use flow_cache::{BypassReason, FlowCache, FlowCounts};
pub use ids::RuleSlot;
pub use matches::{MATCHES, Scratch};
pub use mmb_base::VECTOR;
pub use names::{RuleNames, UnknownPort};

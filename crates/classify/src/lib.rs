//! Which rules does a packet match: policy rules to tuples, vectors of header keys to matched rules.
//!
//! Purpose: [`Classifier::build`] compiles rules, given in the order of their ranks (by priority, then id), to one
//! set of tables a packet class. [`Classifier::classify`] finds, for a whole vector of keys, every rule that each
//! packet matches.
//!
//! From rules to tables:
//! 1. `compile` turns a rule into a cube of fixed key bits (equality, prefixes, flags, implied protocols; a few
//!    cubes for a small set of values) and residual checks (ranges, inequalities, options, payloads). A rule that
//!    leaves both IP versions open is compiled for both; a class in which it cannot hold does not know it.
//! 2. Cubes with the same mask form a *tuple*: one hash table (`table`) from the masked key to an entry. Rules with
//!    the same masked key hang on one entry.
//!
//! From keys to rules: each tuple hashes all keys of the vector, loads their buckets' tags, and verifies the few keys
//! whose tag is there (tuple-space search, Srinivasan et al., SIGCOMM 1999). Checks run on hits. Tests of TCP
//! options come last, packet by packet, so that options are parsed once a packet and only for rules that ask.
//!
//! Life-cycle: a [`Classifier`] is built on the control side and never changes; workers share it. A [`Scratch`] and
//! the [`Keys`] belong to one worker; they are allocated when made and on [`Scratch::fit`], never by `classify`.
#![forbid(unsafe_code)]

mod bounds;
mod check;
mod classifier;
mod compile;
mod cube;
mod draft;
mod keys;
mod matches;
mod ports;
mod table;
mod tuple;
mod words;

pub use classifier::{Classifier, TableStats};
pub use keys::{Keys, Lane};
pub use matches::Scratch;
pub use ports::{Ports, UnknownPort};

/// The most packets of one vector. Packets are numbered in a byte.
pub const VECTOR: usize = 1 << u8::BITS;

//! Words of the grammar that no table holds.

/// Follows `clear`.
pub(crate) const COUNTERS: &str = "counters";
/// May follow `list` and `show servers`.
pub(crate) const TERSE: &str = "--terse";
/// Before the name of rules.
pub(crate) const NAME: &str = "name";
/// May follow `del ID`.
pub(crate) const KILL: &str = "--kill";
/// Likewise, for `del`.
pub(crate) const KEEP: &str = "--keep";
/// Ends a filter of `show connections` and `show streams`.
pub(crate) const VERBOSE: &str = "verbose";
/// Asks for numbers instead of a list, behind `show streams`.
pub(crate) const SUMMARY: &str = "summary";
/// Stands before the name of a file of elements.
pub(crate) const FILE: &str = "file";
/// May follow `del` and `show`, before the name of a set.
pub(crate) const SET: &str = "set";

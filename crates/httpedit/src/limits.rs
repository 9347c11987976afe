//! The bounds of what is edited together.

/// The most pieces of content that are looked at together. More than the bytes of the longest match, so that there is always a byte to decide.
pub(crate) const MAX_RUNS: usize = 8192;
/// The most bytes of content that are looked at together, of several pieces; of the first one all.
pub(crate) const MAX_GATHERED_BYTES: usize = 64 << 10;
/// The most matches that are edited together.
pub(crate) const MAX_MATCHES: usize = 1024;
/// The most bytes that stand in the place of matches that are edited together, but for the last one's.
pub(crate) const MAX_WRITTEN_BYTES: usize = 64 << 10;

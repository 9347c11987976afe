//! How a scan of a piece of a stream ended.

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ScanEnd {
    /// All bytes were scanned.
    AllScanned,
    /// The caller said stop, now or before: this state finds nothing any more.
    Stopped,
    /// Nothing was scanned: the set of the state is not prepared in this scanner.
    NotPrepared,
}

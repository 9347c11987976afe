//! Limits on the bodies of requests.

/// The largest body: a policy of some 400,000 rules.
pub(super) const LARGEST_BODY: usize = 64 << 20;

/// The total size of the bodies above `SMALL_BODY_BYTES` that are received or processed at once; further requests wait.
pub(super) const BODY_BUDGET: usize = 2 * LARGEST_BODY;

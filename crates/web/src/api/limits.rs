//! Limits on the bodies of requests.

/// The largest body: a policy of some 400,000 rules.
pub(super) const LARGEST_BODY: usize = 64 << 20;

/// The bytes of all larger bodies that are received or worked on at once; a request that finds no room waits for it.
pub(super) const BODY_BUDGET: usize = 2 * LARGEST_BODY;

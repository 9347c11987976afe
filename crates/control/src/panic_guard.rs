//! Limits the effect of a panic to the request that caused it.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`; returns `None` if it panicked.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

//! The error of an allocation that failed.

use std::collections::TryReserveError;

/// There is no memory for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocError;

impl From<TryReserveError> for AllocError {
    fn from(_: TryReserveError) -> AllocError {
        AllocError
    }
}

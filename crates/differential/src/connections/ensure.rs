//! A check that reports instead of panicking, so that a script can be shown with what it broke.

/// Returns an error if a condition does not hold.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
pub(super) use ensure;

//! A check that reports instead of panicking, so that a script can be shown with what it broke.

/// Says that something does not hold.
macro_rules! ensure {
    ($holds:expr, $($said:tt)+) => {
        if !$holds {
            return Err(format!($($said)+));
        }
    };
}
pub(super) use ensure;

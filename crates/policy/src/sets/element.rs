//! One element of a set, and the numbers that elements are of.

use std::fmt;

/// The time at which an element without a timeout expires.
pub const NEVER: u64 = u64::MAX;

/// A number of one width.
pub trait Number: Copy + Ord + fmt::Debug {
    /// The least one.
    const MIN: Self;
    /// The greatest one.
    const MAX: Self;
    /// The next one; there is one.
    fn after(self) -> Self;
    /// The one before; there is one.
    fn before(self) -> Self;
    /// The next one, or the greatest.
    fn after_or_most(self) -> Self;
    /// The one before, or the least.
    fn before_or_least(self) -> Self;
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl Number for $number {
            const MIN: Self = 0;
            const MAX: Self = <$number>::MAX;
            fn after(self) -> Self {
                self.wrapping_add(1)
            }
            fn before(self) -> Self {
                self.wrapping_sub(1)
            }
            fn after_or_most(self) -> Self {
                self.saturating_add(1)
            }
            fn before_or_least(self) -> Self {
                self.saturating_sub(1)
            }
        }
    )*};
}

number!(u32, u128);

/// An element: the numbers from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<N> {
    /// The first number.
    pub first: N,
    /// The last one, `first <= last`.
    pub last: N,
    /// The time at which it expires, or [`NEVER`].
    pub expires_ms: u64,
}

impl<N> Element<N> {
    /// An element that does not expire.
    pub const fn of(first: N, last: N) -> Element<N> {
        Element { first, last, expires_ms: NEVER }
    }
}
